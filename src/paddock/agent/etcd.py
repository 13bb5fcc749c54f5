"""Speaks etcd v3 over its JSON gateway, with the standard library only.

One rule: every call ends. The caller gives a budget in seconds; the endpoints share it, and
whatever goes wrong comes back as one EtcdError that says which endpoint did what.
Used by one thread at a time. No proxy is honoured: etcd is a neighbour, not the Internet.
Source: https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/ (etcd >= 3.3).
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time

from paddock.agent.etcd_address import EtcdAddress, host_port, parse_etcd_url
from paddock.agent.etcd_reply import (
    EtcdError,
    EtcdLeaseGone,
    EtcdRefused,
    EtcdTokenExpired,
    EtcdUnreachable,
    KeyValue,
    TxnReply,
    b64,
    error_of,
    excerpt,
    failure,
    first_key,
    json_object,
    list_in,
    not_etcd,
    number,
    object_in,
    what_failed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from _typeshed import WriteableBuffer
    from typing_extensions import Buffer

    from paddock.agent.etcd_reply import Json

REPLY_BYTES_MAX = 4 << 20  # etcd's own limit on a request is 1.5 MiB.
STREAM_BYTES_MAX = 1 << 20
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
    """Read one key."""
    return {"request_range": {"key": b64(key)}}


def put(key: str, content: bytes, lease: int = 0) -> Json:
    """Write one key; it goes when its lease goes (0: it stays)."""
    return {"request_put": {"key": b64(key), "value": b64(content), "lease": str(lease)}}


def delete(key: str) -> Json:
    """Delete one key."""
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
    ) -> TxnReply:
        """The outcome of one transaction. Raises: EtcdError; it may have been done even so."""
        body = {"compare": when, "success": then, "failure": otherwise}
        reply = self._call("/kv/txn", body, seconds)
        succeeded = reply.get("succeeded") is True
        ranges = [object_in(r, "response_range") for r in list_in(reply, "responses")]
        reads = tuple(first_key(found) for found in ranges if found is not None)
        if len(reads) != sum("request_range" in op for op in (then if succeeded else otherwise)):
            raise EtcdRefused("etcd's reply does not match the transaction")
        revision = number(object_in(reply, "header") or {}, "revision")
        return TxnReply(revision=revision, succeeded=succeeded, reads=reads)

    def get(self, key: str, seconds: float) -> KeyValue | None:
        """One key, or None. The read is linearizable: it needs the quorum."""
        return self.txn((), (read(key),), (), seconds).reads[0]

    def grant(self, ttl_seconds: int, seconds: float) -> tuple[int, int]:
        """A new lease: its id, and the time to live etcd chose (at least about 2 s)."""
        reply = self._call("/lease/grant", {"TTL": str(ttl_seconds)}, seconds)
        lease, ttl = number(reply, "ID"), number(reply, "TTL")
        if not lease or ttl <= 0:
            raise EtcdRefused(f"etcd granted a lease without an id or a time: {lease}, {ttl}")
        return lease, ttl

    def keep_alive(self, lease: int, seconds: float) -> int:
        """Seconds the lease now has; 0 where it is gone."""
        reply = self._call("/lease/keepalive", {"ID": str(lease)}, seconds)
        return max(0, number(object_in(reply, "result") or {}, "TTL"))

    def revoke(self, lease: int, seconds: float) -> None:
        """Ends a lease, which deletes the keys bound to it. Gone already is fine."""
        try:
            self._call("/lease/revoke", {"ID": str(lease)}, seconds)
        except EtcdLeaseGone:
            return

    def watch(self, key: str, from_revision: int, seconds: float) -> EtcdWatch:
        """An open watch on one key, at the endpoint that answered last."""
        host, port = self.address.endpoints[self._at]
        deadline = time.monotonic() + seconds
        try:
            sock = self._connect(host, port, deadline)
        except (OSError, ValueError) as error:
            raise EtcdUnreachable(what_failed(host, port, error, seconds)) from error
        request = {"key": b64(key), "start_revision": str(from_revision)}
        body = json.dumps({"create_request": request}).encode()
        return EtcdWatch(sock, self._watch_head(host, port, len(body)) + body)

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _watch_head(self, host: str, port: int, length: int) -> bytes:
        # HTTP/1.0: the stream then comes bare, one JSON object a line, without chunks.
        lines = [f"POST {self._prefix}/watch HTTP/1.0", f"Host: {host_port(host, port)}"]
        lines += [f"{name}: {text}" for name, text in self._headers().items()]
        return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode("latin-1")

    def _headers(self) -> dict[str, str]:
        return {**HEADERS, "Authorization": self._token} if self._token else dict(HEADERS)

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
        if not self.address.user:
            return self._post(path, body, deadline)
        if not self._token:
            self._token = self._authenticate(deadline)
        try:
            return self._post(path, body, deadline)
        except EtcdTokenExpired:
            self._token = self._authenticate(deadline)
            return self._post(path, body, deadline)

    def _authenticate(self, deadline: float) -> str:
        self._token = ""
        login = {"name": self.address.user, "password": self.address.password}
        return str(self._post("/auth/authenticate", login, deadline).get("token", ""))

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
        where = host_port(host, port)
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
        header = object_in(object_in(answer, "result") or answer, "header")
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
        host, port = self.address.endpoints[self._at]
        if self._connection is None:
            sock = self._connect(host, port, deadline)
            self._connection = http.client.HTTPConnection(host, port)
            self._connection.sock = _Timed(sock, deadline)
        timed = self._connection.sock
        assert isinstance(timed, _Timed)
        timed.deadline = deadline
        self._connection.request("POST", self._prefix + path, content, self._headers())
        with self._connection.getresponse() as response:
            reply = response.read(REPLY_BYTES_MAX + 1)
            if len(reply) > REPLY_BYTES_MAX:
                raise ValueError(f"a reply of more than {REPLY_BYTES_MAX} bytes")
            if response.will_close:
                self.close()
            return response.status, response.headers.get("Server", ""), reply

    def _connect(self, host: str, port: int, deadline: float) -> socket.socket:
        seconds = max(0.01, deadline - time.monotonic())
        sock = socket.create_connection((host, port), timeout=seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self.address.tls:
                return sock
            sock.settimeout(max(0.01, deadline - time.monotonic()))
            return self._tls_context().wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def _tls_context(self) -> ssl.SSLContext:
        import ssl  # http.client has loaded it; without etcds:// we do not depend on it.

        if self._tls is None:
            address = self.address
            try:
                self._tls = ssl.create_default_context(cafile=address.ca_file or None)
                if address.cert_file:
                    self._tls.load_cert_chain(address.cert_file, address.key_file or None)
            except OSError as error:  # ssl.SSLError is one.
                raise EtcdRefused(f"cannot use the TLS files of etcd: {error}") from error
        return self._tls


class EtcdWatch:
    """Tells when one key has changed; for use with poll(): readable means call changed()."""

    def __init__(self, sock: socket.socket, request: bytes) -> None:
        self._sock = sock
        self._seen = b""
        self._head_done = False
        try:
            for name, number in (("TCP_KEEPIDLE", 3), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3)):
                if hasattr(socket, name):  # Not on macOS.
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.sendall(request)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            raise EtcdUnreachable(f"etcd watch: {error}") from error

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._sock.fileno()

    def changed(self) -> bool:
        """True once the key changed; False so far. Raises: EtcdUnreachable, it is over."""
        while True:
            try:
                data = self._sock.recv(65536)
            except OSError as error:
                # BlockingIOError, or ssl.SSLWantReadError (which is no BlockingIOError).
                if isinstance(error, BlockingIOError) or "WantRead" in type(error).__name__:
                    return self._parse()
                raise EtcdUnreachable(f"etcd watch: {error}") from error
            if not data:
                if self._parse():
                    return True
                raise EtcdUnreachable("etcd watch: closed by etcd")
            self._seen += data
            if len(self._seen) > STREAM_BYTES_MAX:
                raise EtcdUnreachable("etcd watch: more data than a watch can have")

    def close(self) -> None:
        """Ends the watch."""
        self._sock.close()

    def _parse(self) -> bool:
        if not self._head_done:
            head, blank, rest = self._seen.partition(b"\r\n\r\n")
            if not blank:
                return False
            if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
                raise EtcdUnreachable(f"etcd watch: {excerpt(head)}")
            self._head_done, self._seen = True, rest
        *lines, self._seen = self._seen.split(b"\n")
        return any(self._is_change(line) for line in lines if line.strip())

    def _is_change(self, line: bytes) -> bool:
        answer = json_object(line)
        result = object_in(answer, "result") if answer else None
        if result is None or result.get("canceled"):
            raise EtcdUnreachable(f"etcd watch: {excerpt(line)}")
        return bool(list_in(result, "events"))


class _Timed:
    """A socket for http.client in which a whole exchange, not each read, has one deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self.deadline = deadline

    def arm(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)

    def sendall(self, data: Buffer) -> None:
        self.arm()
        self._sock.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        # A file of the socket's own keeps it open when http.client closes the socket, which it
        # does before it reads a reply that ends with the connection.
        return io.BufferedReader(_TimedReader(self, self._sock.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._sock.close()


class _TimedReader(io.RawIOBase):
    def __init__(self, timed: _Timed, raw: socket.SocketIO) -> None:
        self._timed = timed
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._timed.arm()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


__all__ = [
    "EtcdAddress",
    "EtcdClient",
    "EtcdError",
    "EtcdLeaseGone",
    "EtcdRefused",
    "EtcdUnreachable",
    "EtcdWatch",
    "KeyValue",
    "TxnReply",
    "compare",
    "delete",
    "parse_etcd_url",
    "put",
    "read",
]
