"""HTTP for probes and Prometheus: /healthz, /readyz, /metrics; and the authorizer of /metrics.

A little of HTTP/1.1, GET only. The API server says who a token belongs to and what they may do:
a TokenReview, then a SubjectAccessReview for verb get of the path. Only by TLS, since a token that
goes over a network in the clear is anybody's.
Source: authentication.k8s.io/v1, authorization.k8s.io/v1; sigs.k8s.io/controller-runtime,
pkg/metrics/filters.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import UsageError
from paddock.kube.client import KubeError, Resource
from paddock.operator.runtime.clock import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from paddock.kube.client import KubeClient
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.log import Logger

REQUEST_SECONDS_MAX = 5.0
LINES_MAX = 100
CONNECTIONS_MAX = 32
# What a caller without a right is told; 503: see the operator's log.
REFUSED = {
    401: "a bearer token that the cluster knows is needed\n",
    403: "this account may not get this path\n",
    503: "the API server could not be asked\n",
}
TEXT = "text/plain; charset=utf-8"

Answer = tuple[int, str, str]  # status, content type, text


def probe(problems: Callable[[], list[str]]) -> Callable[[], Answer]:
    """A route that is well when there is no problem, and else tells them, one a line."""

    def answer() -> Answer:
        found = problems()
        return (500, TEXT, "\n".join(found) + "\n") if found else (200, TEXT, "ok\n")

    return answer


def read_address(text: str, flag: str) -> tuple[str, int] | None:
    """The address to listen on; None for "0", which means nowhere. Raises UsageError.

    >>> read_address(":8080", "-a"), read_address("[::1]:80", "-a"), read_address("0", "-a")
    (('', 8080), ('::1', 80), None)
    """
    if text in ("0", ""):
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"{flag} is '{text}'", hint="write HOST:PORT, as :8080 or 127.0.0.1:8080; 0 for none"
        )
    return host, int(port)


@dataclass(eq=False)
class HttpServer:
    """Serves routes at one address. port: the one really used, once started.

    allow: the status for (header Authorization, path), 200 to answer. certificate: for HTTPS.
    """

    routes: Mapping[str, Callable[[], Answer]]
    _: KW_ONLY
    allow: Callable[[str, str], Awaitable[int]] | None = None
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        self.paths = sorted(self.routes)
        self.port = 0
        self._open = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, flag: str) -> None:
        """Listen. host "": every address. Raises UsageError when that is not possible."""
        try:
            self._server = await asyncio.start_server(
                self._serve, host or None, port,
                ssl=self.certificate.context if self.certificate else None,
                ssl_handshake_timeout=REQUEST_SECONDS_MAX if self.certificate else None,
            )  # fmt: skip
        except OSError as error:
            raise UsageError(
                f"{flag}: cannot listen on '{host}:{port}': {error.strerror or error}",
                hint="give another address, or 0 for none",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening; what is being answered is cut off."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with TimeLimit(REQUEST_SECONDS_MAX):
                    writer.write(await self._answer(*await _request(reader)))
                    await writer.drain()
        except (OSError, ValueError, asyncio.TimeoutError):
            return  # Whoever asked has gone, or does not speak HTTP.
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, line: str, authorization: str) -> bytes:
        method, _, rest = line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        route = self.routes.get(path)
        if method not in ("GET", "HEAD"):
            status, kind, text = 405, TEXT, "GET only\n"
        elif route is None:
            status, kind, text = 404, TEXT, "one of " + " ".join(self.paths) + "\n"
        elif self.allow and (refused := await self.allow(authorization, path)) != 200:
            status, kind, text = refused, TEXT, REFUSED[refused]
        else:
            status, kind, text = route()
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """The first line of a request and its header Authorization; the head has been read.

    Raises ValueError when too long.
    """
    first = (await reader.readline()).decode("latin-1").rstrip("\r\n")
    authorization = ""
    for _ in range(LINES_MAX):
        line = (await reader.readline()).decode("latin-1").rstrip("\r\n")
        if line == "":
            return first, authorization
        name, _, value = line.partition(":")
        if name.lower() == "authorization":
            authorization = value.strip()
    raise ValueError("too many header lines")


TOKEN_REVIEWS: Resource[dict[str, Any]] = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", dict, namespaced=False
)
ACCESS_REVIEWS: Resource[dict[str, Any]] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", dict,
    namespaced=False,
)  # fmt: skip
ALLOWED_SECONDS = 60.0  # an answer is believed so long; a scrape asks every half minute


@dataclass(eq=False)
class Access:
    """Asks the API server, once a minute for each caller that is let in."""

    client: KubeClient
    _: KW_ONLY
    clock: Clock
    log: Logger

    def __post_init__(self) -> None:
        self._allowed: dict[bytes, float] = {}  # digest of token and path -> until, monotonic
        # One question at a time: callers without a right cannot make the API server busy.
        self._asking = asyncio.Lock()

    async def check(self, authorization: str, path: str) -> int:
        """The HTTP status for a caller: 200, 401, 403, or 503 when it could not be asked."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return 401
        key = sha256(f"{path} {token}".encode()).digest()
        if self._is_known(key):
            return 200
        async with self._asking:
            if self._is_known(key):
                return 200  # another scrape asked meanwhile
            try:
                status = await self._ask(token, path)
            except KubeError as error:
                self.log.warning("cannot ask who may read", path=path, error=error)
                return 503
        if status == 200:
            now = self.clock.monotonic()
            self._allowed = {k: until for k, until in self._allowed.items() if until > now}
            self._allowed[key] = now + ALLOWED_SECONDS
        return status

    def _is_known(self, key: bytes) -> bool:
        return self._allowed.get(key, 0.0) > self.clock.monotonic()

    async def _ask(self, token: str, path: str) -> int:
        review = await self.client.create(TOKEN_REVIEWS, "", {"spec": {"token": token}})
        found = review.get("status", {})
        if not found.get("authenticated"):
            return 401
        user = found.get("user", {})
        who = {k: user[k] for k in ("uid", "groups", "extra") if k in user}
        spec = {
            "user": user.get("username", ""),
            **who,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        review = await self.client.create(ACCESS_REVIEWS, "", {"spec": spec})
        return 200 if review.get("status", {}).get("allowed") else 403


class Certificate:
    """tls.crt and tls.key of a folder, as a Secret of type kubernetes.io/tls is mounted.

    context: for a server; each handshake takes what the files hold then, as they are renewed while
    we run. What cannot be read, half of a pair perhaps, leaves the last good one in use.
    """

    def __init__(self, folder: str, flag: str) -> None:
        """Raises UsageError when they cannot be used."""
        self._files = (Path(folder) / "tls.crt", Path(folder) / "tls.key")
        try:
            self._stamp = self._stamped()
            self._latest = self.context = self._load()
        except OSError as error:  # ssl.SSLError is one
            raise UsageError(
                f"{flag}: tls.crt and tls.key of '{folder}' cannot be used: {error}",
                hint="name a folder with a certificate and its key, both as PEM",
            ) from error
        # OpenSSL calls it without a server name as well (SSL_CTX_set_tlsext_servername_callback).
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        with contextlib.suppress(OSError):
            if (stamp := self._stamped()) != self._stamp:
                self._latest = self._load()
                self._stamp = stamp
        connection.context = self._latest

    def _stamped(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns for file in self._files)

    def _load(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(*self._files)
        return made
