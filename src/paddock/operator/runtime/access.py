"""The authorizer of /metrics, and the certificate that it is served with.

Whose token it is, and what they may do, is asked of the API server: a TokenReview, then a
SubjectAccessReview for verb get of the path. Only by TLS, since a token that goes over a network
in the clear is anybody's.
Source: authentication.k8s.io/v1, authorization.k8s.io/v1; sigs.k8s.io/controller-runtime,
pkg/metrics/filters.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import UsageError
from paddock.kube.client import KubeError, Resource

if TYPE_CHECKING:
    from paddock.kube.client import KubeClient
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.log import Logger

TOKEN_REVIEWS: Resource[dict[str, Any]] = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", dict, namespaced=False
)
ACCESS_REVIEWS: Resource[dict[str, Any]] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", dict,
    namespaced=False,
)  # fmt: skip
ALLOWED_SECONDS = 60.0  # an answer is believed so long; a scrape asks every half minute


class Access:
    """Asks the API server, once a minute for each caller that is let in."""

    def __init__(self, client: KubeClient, *, clock: Clock, log: Logger) -> None:
        self._client = client
        self._clock = clock
        self._log = log
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
                self._log.warning("cannot ask who may read", path=path, error=error)
                return 503
        if status == 200:
            now = self._clock.monotonic()
            self._allowed = {k: until for k, until in self._allowed.items() if until > now}
            self._allowed[key] = now + ALLOWED_SECONDS
        return status

    def _is_known(self, key: bytes) -> bool:
        return self._allowed.get(key, 0.0) > self._clock.monotonic()

    async def _ask(self, token: str, path: str) -> int:
        review = await self._client.create(TOKEN_REVIEWS, "", {"spec": {"token": token}})
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
        review = await self._client.create(ACCESS_REVIEWS, "", {"spec": spec})
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
