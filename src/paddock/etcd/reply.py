"""Reads the answers of etcd: values, and errors that name the endpoint. No I/O."""

from __future__ import annotations

import base64
import http.client
import json
import socket

from paddock.core.endpoint import join_endpoint
from paddock.core.value import value
from paddock.errors import EXIT_USAGE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from paddock.etcd.address import EtcdAddress

    Json = Mapping[str, object]
    T = TypeVar("T")


class EtcdError(PaddockError):
    """etcd did not do what was asked. The children say whether asking again can help."""


class EtcdUnreachable(EtcdError):
    """No endpoint answered in time, or the cluster has no leader: ask again later."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, retryable=True)


class EtcdRefused(EtcdError):
    """Asking again will not help: not etcd, not allowed, or not the same cluster."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=EXIT_USAGE)


class EtcdLeaseGone(EtcdError):
    """The lease named in the request has expired or was revoked."""


class EtcdTokenExpired(EtcdError):
    """etcd forgot our token (5 minutes idle, or a restart): authenticate again."""


@value
class KeyValue:
    """A key as etcd holds it; lease is 0 where the key has none."""

    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


# What etcd's texts mean: v3rpc/rpctypes/error.go, etcd 3.4.
_LEASE_GONE = "requested lease not found"
_TOKEN_EXPIRED = ("invalid auth token", "auth: revision in header is old")
_DENIED = ("user name is empty", "user name not found", "invalid user ID or password",
           "permission denied", "authentication failed")  # fmt: skip
_AUTH_OFF = "authentication is not enabled"
_HTTP_RETRYABLE = (408, 429, 500, 502, 503, 504)


def error_of(answer: Json, where: str, address: EtcdAddress) -> EtcdError:
    """The EtcdError for an answer that says "error"."""
    text = str(answer.get("message") or answer.get("error"))
    if _LEASE_GONE in text:
        return EtcdLeaseGone(f"etcd at {where}: {text}")
    if any(known in text for known in _TOKEN_EXPIRED):
        return EtcdTokenExpired(f"etcd at {where}: {text}", retryable=True)
    if any(known in text for known in _DENIED):
        who = f"user {address.user!r} is refused" if address.user else "a user is required"
        hint = "write --master etcd://user:password@host:port"
        return EtcdRefused(f"etcd at {where}: {who} ({text})", hint=hint)
    if _AUTH_OFF in text:
        return EtcdRefused(
            f"etcd at {where}: {text}", hint="leave user and password out of --master"
        )
    # gRPC codes that time can heal: 4 deadline, 8 exhausted, 13 internal, 14 unavailable.
    if answer.get("code") in (4, 8, 13, 14) or "no leader" in text or "timed out" in text:
        hint = "the etcd cluster has no quorum" if "no leader" in text else ""
        return EtcdUnreachable(f"etcd at {where}: {text}", hint=hint)
    return EtcdRefused(f"etcd at {where}: {text}")


def failure(host: str, port: int, error: Exception, seconds: float, *, tls: bool) -> EtcdError:
    """The EtcdError for an exchange that ended in an exception."""
    where = join_endpoint(host, port)
    line = str(error)
    if isinstance(error, EtcdError):
        return error
    if type(error).__name__ in ("SSLError", "SSLCertVerificationError"):
        hint = "write etcd:// if it has no TLS, or ?ca=FILE for a private authority"
        return EtcdRefused(f"etcd at {where}: TLS failed: {line}", hint=hint)
    if isinstance(error, ConnectionResetError):  # RemoteDisconnected is one.
        # etcd does the same, without an error, when its port has TLS and we have not.
        hint = "" if tls else "if this etcd has TLS, write etcds:// instead of etcd://"
        return EtcdUnreachable(f"etcd at {where}: closed the connection", hint=hint)
    if isinstance(error, http.client.IncompleteRead):
        return EtcdUnreachable(f"etcd at {where}: closed the connection within a reply")
    if isinstance(error, UnicodeError):
        return EtcdRefused(f"etcd at {where}: {host!r} cannot be a host name")
    if isinstance(error, (http.client.HTTPException, ValueError)):
        if line.startswith("\x15\x03") and not tls:
            return EtcdRefused(f"{where} speaks TLS", hint="write etcds:// instead of etcd://")
        return not_etcd(where, "something else than HTTP", "", line.encode())
    if isinstance(error, TimeoutError):
        return EtcdUnreachable(f"etcd at {where}: no answer within {seconds:.1f} s")
    if isinstance(error, ConnectionRefusedError):
        return EtcdUnreachable(f"etcd at {where}: nothing listens there")
    if isinstance(error, socket.gaierror):
        return EtcdUnreachable(f"etcd at {where}: the name {host!r} is not known")
    return EtcdUnreachable(f"etcd at {where}: {line or type(error).__name__}")


def not_etcd(where: str, kind: str, server: str, reply: bytes) -> EtcdError:
    """The EtcdError for an endpoint that is something else."""
    text = reply.decode("latin-1")
    if "HTTP request to an HTTPS server" in text:
        return EtcdRefused(f"{where} speaks TLS", hint="write etcds:// instead of etcd://")
    by = f" from {server!r}" if server else ""
    excerpt = repr(text[:60])
    shown = f"{where} is not an etcd v3 JSON gateway: it answers {kind}{by}: {excerpt}"
    if kind.startswith("HTTP ") and int(kind[5:]) in _HTTP_RETRYABLE:
        return EtcdUnreachable(shown)  # A load balancer before an etcd that is down.
    return EtcdRefused(shown, hint="check host and port in --master etcd://host:port")


def b64(content: str | bytes) -> str:
    """Keys and values as the gateway wants them."""
    data = content.encode() if isinstance(content, str) else content
    return base64.b64encode(data).decode()


def json_object(data: bytes) -> Json | None:
    """The object the bytes hold, or None."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def number(answer: Json, name: str) -> int:
    """A 64-bit number of an answer; 0 where it is absent."""
    # The gateway writes 64-bit numbers as text and leaves zeros out.
    found = answer.get(name, 0)
    try:
        return int(found) if isinstance(found, (str, int)) else 0
    except ValueError:
        return 0


def part(answer: object, name: str, kind: type[T]) -> T | None:
    """The value under this name, if it is of that kind."""
    found = answer.get(name) if isinstance(answer, dict) else None
    return found if isinstance(found, kind) else None


def first_key(found: Json) -> KeyValue | None:
    """The one key a read found, or None."""
    for kv in part(found, "kvs", list) or []:
        if isinstance(kv, dict):
            return KeyValue(
                value=_from_b64(str(kv.get("value", ""))),
                create_revision=number(kv, "create_revision"),
                mod_revision=number(kv, "mod_revision"),
                lease=number(kv, "lease"),
            )
    return None


def _from_b64(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError as error:
        raise EtcdRefused(f"etcd's reply holds no base64: {text[:60]!r}") from error
