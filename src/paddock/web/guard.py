"""The guard of `paddock web` decides who may ask: an ASGI layer around the application.

a request                                              is
-----------------------------------------------------  -------------------------------------------
for a name that is not this machine's own (Host)       refused, 421: DNS rebinding
that another site's page sends (Sec-Fetch-Site)        refused, 403
that changes something, from no page of ours (Origin)  refused, 403
with the token in its address                          given the cookie, and sent to the page
with the cookie                                        answered
without either                                         refused, 401

Browsers set Host, Origin and Sec-Fetch-Site; scripts of a page cannot (Fetch Standard, forbidden
request-headers). A cookie does not tell ports apart, so its name has the port (RFC 6265, 8.5).
"""

from __future__ import annotations

import hmac
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OWN_NAMES = ("127.0.0.1", "localhost", "::1")
TOKEN = "token"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, forms of our own have the Origin "null"
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets requests through to an application, by the module's table. port: where it listens."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._cookie = f"paddock-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in HEADERS.items():
                    headers[name] = text
            await send(message)

        answer = self._refusal(scope) if scope["type"] == "http" else PlainTextResponse("", 400)
        await (self._app if answer is None else answer)(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that goes no further; None for one that is let through."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _name_of(host) not in OWN_NAMES:
            return PlainTextResponse("this server has another name", 421)
        given = parse_qs(scope["query_string"].decode("latin-1"))
        is_page = headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_foreign and not (is_page and TOKEN in given):
            return PlainTextResponse("another site's page asked", 403)
        if scope["method"] not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("no page of this server asked", 403)
        if TOKEN in given and scope["method"] == "GET":
            if not self._is_token(given.pop(TOKEN)[-1]):
                return _unknown()
            return self._welcome(scope["path"], urlencode(given, doseq=True))
        kept = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        return None if self._is_token(kept) else _unknown()

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())

    def _welcome(self, path: str, query: str) -> Response:
        """The cookie, and a page that leads to the same address without the token.

        No redirect: a browser does not send a strict cookie with one that another site began, as a
        link in a notebook or a web terminal does.
        """
        to = escape("/" + path.lstrip("/") + (f"?{query}" if query else ""))
        lead = f'<meta http-equiv="refresh" content="0;url={to}"><a href="{to}">{to}</a>'
        icon = '<link rel="icon" href="/static/icon.svg">'  # else browsers ask for favicon.ico
        response = HTMLResponse(f"<!doctype html>{icon}{lead}")
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response


def _unknown() -> Response:
    return PlainTextResponse(
        "Open the address that `paddock web` has printed: it has the token that lets you in.\n", 401
    )


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; "" for what is none.

    >>> [_name_of(host) for host in ("127.0.0.1:8000", "[::1]:80", "evil.example", "a@b:c")]
    ['127.0.0.1', '::1', 'evil.example', '']
    """
    try:
        found = urlsplit(f"//{host}")
        return (found.hostname or "") if "@" not in host and found.port != 0 else ""
    except ValueError:
        return ""
