"""Speaks etcd v3 over its JSON gateway, with the standard library only.

One rule: every call ends. The caller gives a budget in seconds; the endpoints share it, and
whatever goes wrong comes back as one EtcdError that says which endpoint did what.
Used by one thread at a time. No proxy is honoured: etcd is a neighbour, not the Internet.
Source: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/ (etcd >= 3.3).
"""

from __future__ import annotations

import http.client
import json
import socket
import time

from paddock.core.endpoint import join_endpoint
from paddock.etcd.reply import (
    EtcdError,
    EtcdLeaseGone,
    EtcdRefused,
    EtcdTokenExpired,
    EtcdUnreachable,
    b64,
    error_of,
    failure,
    first_key,
    json_object,
    not_etcd,
    number,
    part,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from typing import Any

    from typing_extensions import Buffer

    from paddock.etcd.address import EtcdAddress
    from paddock.etcd.reply import Json, KeyValue

REPLY_BYTES_MAX = 4 << 20  # etcd's own limit on a request is 1.5 MiB.
SHARE_SECONDS_MIN = 0.5  # A silent endpoint is given this long before the next one is asked.
PREFIXES = ("/v3", "/v3beta")  # etcd >= 3.4, etcd 3.3.
HEADERS = {
    "Content-Type": "application/json",
    # clientv3.WithRequireLeader: a member cut off from its quorum says so at once instead of
    # holding the request for 7 s. The gateway hands Grpc-Metadata-* on as gRPC metadata.
    "Grpc-Metadata-hasleader": "true",
}


def compare(key: str, target: str, revision: int) -> Json:
    """A condition: the key's "create_revision" or "mod_revision" is this; 0 means absent."""
    enum = {"create_revision": "CREATE", "mod_revision": "MOD"}[target]
    return {"key": b64(key), "target": enum, "result": "EQUAL", target: str(revision)}


def read(key: str) -> Json:
    return {"request_range": {"key": b64(key)}}


def put(key: str, content: bytes, lease: int = 0) -> Json:
    """Write one key; it goes when its lease goes (0: it stays)."""
    return {"request_put": {"key": b64(key), "value": b64(content), "lease": str(lease)}}


def delete(key: str) -> Json:
    return {"request_delete_range": {"key": b64(key)}}


class EtcdClient:
    """Calls etcd; stays with the endpoint that answered last, over one connection."""

    def __init__(self, address: EtcdAddress) -> None:
        self.address = address
        self._at = 0  # Index of the endpoint in use.
        self._prefix = PREFIXES[0]
        self._token = ""
        self._cluster = ""
        self._connection: http.client.HTTPConnection | None = None
        self._tls: ssl.SSLContext | None = None

    def txn(
        self,
        when: Sequence[Json],
        then: Sequence[Json],
        otherwise: Sequence[Json],
        seconds: float,
    ) -> tuple[KeyValue | None, ...]:
        """Run a transaction; return the keys its reads found, in order; None: an absent key.

        Raises: EtcdError; it may have been done even so.
        """
        body = {"compare": when, "success": then, "failure": otherwise}
        reply = self._call("/kv/txn", body, seconds)
        done = then if reply.get("succeeded") is True else otherwise
        ranges = [part(one, "response_range", dict) for one in part(reply, "responses", list) or []]
        reads = tuple(first_key(found) for found in ranges if found is not None)
        if len(reads) != sum("request_range" in op for op in done):
            raise EtcdRefused("etcd's reply does not match the transaction")
        return reads

    def grant(self, ttl_seconds: int, seconds: float) -> tuple[int, int]:
        """A new lease: its id, and the time to live etcd chose (at least about 2 s)."""
        reply = self._call("/lease/grant", {"TTL": str(ttl_seconds)}, seconds)
        lease, ttl = number(reply, "ID"), number(reply, "TTL")
        if not lease or ttl <= 0:
            raise EtcdRefused(f"etcd granted a lease without an id or a time: {lease}, {ttl}")
        return lease, ttl

    def keep_alive(self, lease: int, seconds: float) -> int:
        """Renew a lease; return the seconds it now has. Raises: EtcdLeaseGone."""
        reply = self._call("/lease/keepalive", {"ID": str(lease)}, seconds)
        ttl = number(part(reply, "result", dict) or {}, "TTL")
        if ttl <= 0:
            raise EtcdLeaseGone(f"etcd holds lease {lease} no longer")
        return ttl

    def revoke(self, lease: int, seconds: float) -> None:
        """Ends a lease, which deletes the keys bound to it. Raises: EtcdLeaseGone."""
        self._call("/lease/revoke", {"ID": str(lease)}, seconds)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, path: str, body: Json, seconds: float) -> Json:
        """The reply of the first endpoint that gives one; all are tried, each once."""
        deadline = time.monotonic() + seconds
        failures: list[EtcdError] = []
        count = len(self.address.endpoints)
        for left in range(count, 0, -1):
            now = time.monotonic()
            share = max(min(SHARE_SECONDS_MIN, seconds), (deadline - now) / left)
            try:
                return self._ask(path, body, now + share)
            except EtcdLeaseGone:
                raise
            except EtcdError as error:
                failures.append(error)
                self.close()
                self._at = (self._at + 1) % count
        text = "; ".join(error.message for error in failures)
        hint = next((error.hint for error in failures if error.hint), "")
        if any(error.retryable for error in failures):
            raise EtcdUnreachable(text, hint=hint)
        raise EtcdRefused(text, hint=hint)

    def _ask(self, path: str, body: Json, deadline: float) -> Json:
        """The reply of the endpoint in use, logging in first where that is needed."""
        address = self.address
        while True:
            is_new = bool(address.user) and not self._token
            if is_new:
                login = {"name": address.user, "password": address.password}
                self._token = str(
                    self._post("/auth/authenticate", login, deadline).get("token", "")
                )
            try:
                return self._post(path, body, deadline)
            except EtcdTokenExpired:
                self._token = ""
                if is_new:
                    raise

    def _post(self, path: str, body: Json, deadline: float) -> Json:
        host, port = self.address.endpoints[self._at]
        content = json.dumps(body).encode()
        seconds = deadline - time.monotonic()
        fresh = self._connection is None
        try:
            status, server, reply = self._exchange(path, content, deadline)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            # A kept connection may have been closed by etcd's restart: once more on a new one.
            if not fresh and not isinstance(error, TimeoutError):
                return self._post(path, body, deadline)
            raise failure(host, port, error, seconds, tls=self.address.tls) from error
        answer = json_object(reply)
        if status == 404 and answer is None and self._prefix != PREFIXES[-1]:
            self._prefix = PREFIXES[-1]
            return self._post(path, body, deadline)
        where = join_endpoint(host, port)
        if answer is None or ("error" not in answer and status != 200):
            self._prefix = PREFIXES[0]
            raise not_etcd(where, f"HTTP {status}", server, reply)
        if "error" in answer:
            raise error_of(answer, where, self.address)
        if path != "/auth/authenticate":
            self._check_cluster(answer, where, server, reply)
        return answer

    def _check_cluster(self, answer: Json, where: str, server: str, reply: bytes) -> None:
        # Endpoints of two clusters would elect two coordinators for one job.
        header = part(part(answer, "result", dict) or answer, "header", dict)
        if header is None or "cluster_id" not in header:
            raise not_etcd(where, "JSON", server, reply)
        cluster = str(header["cluster_id"])
        self._cluster = self._cluster or cluster
        if cluster != self._cluster:
            raise EtcdRefused(
                f"etcd at {where} belongs to another cluster than the one first seen",
                hint="list only members of one etcd cluster in --master",
            )

    def _exchange(self, path: str, content: bytes, deadline: float) -> tuple[int, str, bytes]:
        if self._connection is None:
            host, port = self.address.endpoints[self._at]
            sock = self._connect(host, port, deadline)
            self._connection = http.client.HTTPConnection(host, port)
            self._connection.sock = sock
        assert isinstance(self._connection.sock, _Timed)
        self._connection.sock.deadline = deadline
        headers = {**HEADERS, "Authorization": self._token} if self._token else HEADERS
        self._connection.request("POST", self._prefix + path, content, headers)
        with self._connection.getresponse() as response:
            reply = response.read(REPLY_BYTES_MAX + 1)
            if len(reply) > REPLY_BYTES_MAX:
                raise ValueError(f"a reply of more than {REPLY_BYTES_MAX} bytes")
            if response.will_close:
                self.close()
            return response.status, response.headers.get("Server", ""), reply

    def _connect(self, host: str, port: int, deadline: float) -> _Timed:
        plain = socket.create_connection((host, port), timeout=_left(deadline))
        sock = _Timed(fileno=plain.detach())
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.address.tls:
                return sock
            sock.settimeout(_left(deadline))
            tls = self._tls_context().wrap_socket(sock, server_hostname=host)
            assert isinstance(tls, _Timed)
            return tls
        except BaseException:
            sock.close()
            raise

    def _tls_context(self) -> ssl.SSLContext:
        import ssl  # http.client has loaded it; without etcds:// we do not depend on it.

        class TimedTls(_Timed, ssl.SSLSocket):
            """The deadline holds for what is encrypted, too."""

        if self._tls is None:
            address = self.address
            try:
                self._tls = ssl.create_default_context(cafile=address.ca_file or None)
                self._tls.sslsocket_class = TimedTls
                if address.cert_file:
                    self._tls.load_cert_chain(address.cert_file, address.key_file or None)
            except OSError as error:  # ssl.SSLError is one.
                raise EtcdRefused(f"cannot use the TLS files of etcd: {error}") from error
        return self._tls


class _Timed(socket.socket):
    """A socket in which a whole exchange, not each read, has one deadline."""

    deadline = 0.0

    def sendall(self, data: Buffer, flags: int = 0) -> None:
        self.settimeout(_left(self.deadline))
        super().sendall(data, flags)

    def recv_into(self, *where: Any, **which: Any) -> int:
        self.settimeout(_left(self.deadline))
        return super().recv_into(*where, **which)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
