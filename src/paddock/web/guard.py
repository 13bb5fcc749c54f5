"""The guard of `paddock web` decides who may ask: a middleware around the application.

a request                                              is
-----------------------------------------------------  -------------------------------------------
for a name that is not this machine's own (Host)       refused, 421: DNS rebinding
that another site's page sends (Sec-Fetch-Site)        refused, 403
that changes something, from no page of ours (Origin)  refused, 403
with the token in its address                          given the cookie, and sent to the page
with the cookie                                        answered
without either, or with those of an earlier server     refused, 401

Browsers set Host, Origin and Sec-Fetch-Site; scripts of a page cannot (Fetch Standard, forbidden
request-headers). A cookie does not tell ports apart, so its name has the port (RFC 6265, 8.5).
"""

from __future__ import annotations

import hmac
import re
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from paddock.web.texts import language_of, translator

if TYPE_CHECKING:
    from starlette.middleware.base import RequestResponseEndpoint
    from starlette.requests import Request
    from starlette.types import ASGIApp

OWN_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?")  # a tunnel has any port
TOKEN = "token"
UNKNOWN = "Open the address that `paddock web` has printed: it has the token that lets you in."
EARLIER = "This address is of an earlier `paddock web`: open the new one."
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


class Guard(BaseHTTPMiddleware):
    """Lets requests through to an application, by the module's table. port: where it listens."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        super().__init__(app)
        self._token = token
        self._cookie = f"paddock-{port}"

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Answer one request."""
        response = self._refusal(request) or await call_next(request)
        response.headers.update(HEADERS)
        return response

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that goes no further; None for one that is let through."""
        headers, given = request.headers, request.query_params
        host = headers.get("host", "")
        if not OWN_HOST.fullmatch(host):
            return _answer(request, "this server has another name", 421)
        is_page = headers.get("sec-fetch-mode", "navigate") == "navigate"
        is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if is_foreign and not (is_page and TOKEN in given):
            return _answer(request, "another site's page asked", 403)
        if request.method not in ("GET", "HEAD") and headers.get("origin") != f"http://{host}":
            return _answer(request, "no page of this server asked", 403)
        is_link = TOKEN in given and request.method == "GET"
        token = given[TOKEN] if is_link else request.cookies.get(self._cookie, "")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            is_old = not is_link and self._cookie in request.cookies
            return _answer(request, EARLIER if is_old else UNKNOWN, 401)
        return self._welcome(request) if is_link else None

    def _welcome(self, request: Request) -> Response:
        """The cookie, and a page that leads to the same address without the token.

        No redirect: a browser does not send a strict cookie with one that another site began, as a
        link in a notebook or a web terminal does.
        """
        query = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != TOKEN])
        to = escape("/" + request.scope["path"].lstrip("/") + (f"?{query}" if query else ""))
        lead = f'<meta http-equiv="refresh" content="0;url={to}"><a href="{to}">{to}</a>'
        icon = '<link rel="icon" href="/static/icon.svg">'  # else browsers ask for favicon.ico
        response = HTMLResponse(f"<!doctype html>{icon}{lead}")
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response


def _answer(request: Request, text: str, status: int) -> Response:
    return PlainTextResponse(translator(language_of(request))(text), status)
