"""Decoders of the API server's replies: lists, events of a watch, refusals. Pure.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/ and meta/v1 Status.
"""

from __future__ import annotations

import threading
from typing import Any, Generic, Literal, TypeVar

import msgspec

from paddock.kube.client import Change, KubeError, Page

T = TypeVar("T")
EXCERPT_MAX = 200  # characters of a body that is not the API server's
# The API server asks for seconds; a webhook, or a proxy on the way, may say anything.
RETRY_AFTER_SECONDS_MAX = 300.0

REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound",
    405: "MethodNotAllowed", 406: "NotAcceptable", 409: "Conflict", 410: "Expired",
    413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip
HINTS = {
    401: "the credentials are not, or no longer, accepted; look at the kubeconfig or the token",
}
CHANGES: dict[str, Literal["added", "modified", "deleted", "bookmark"]] = {
    "ADDED": "added", "MODIFIED": "modified", "DELETED": "deleted", "BOOKMARK": "bookmark",
}  # fmt: skip


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] | None = None
    retryAfterSeconds: float = 0.0


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    # "continue" in JSON.
    rest: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[T, ...] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_making = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    with _making:  # msgspec crashes where two threads look at a new shape at once
        if shape not in _decoders:
            _decoders[shape] = msgspec.json.Decoder(shape)
        return _decoders[shape]


_events = msgspec.json.Decoder(_Event)
_statuses = msgspec.json.Decoder(_Status)


def read_object(shape: type[T], text: bytes, line: str) -> T:
    """Decode an object. line: the request, for the message. Raises KubeError "Malformed"."""
    try:
        found: T = _decoder(shape).decode(text)
    except msgspec.DecodeError as error:
        raise _malformed(line, error) from error
    return found


def read_page(shape: type[T], text: bytes, line: str) -> Page[T]:
    """Decode a page of a list. Raises KubeError "Malformed"."""
    found = read_object(_List[shape], text, line)  # type: ignore[valid-type]  # a value
    return Page(found.items or (), found.metadata.resourceVersion, found.metadata.rest)


def read_change(shape: type[T], data: bytes, line: str) -> Change[T]:
    """Decode a line of a watch. Raises KubeError: that of an ERROR event, or "Malformed"."""
    try:
        event = _events.decode(data)
        if event.type not in CHANGES:
            status = _statuses.decode(event.object)
            raise _refusal(status.code or 500, status, line, 0.0)
        return Change(CHANGES[event.type], _decoder(shape).decode(event.object))
    except msgspec.DecodeError as error:
        raise _malformed(line, error) from error


def read_refusal(status: int, text: bytes, line: str, retry_after: str = "") -> KubeError:
    """The error of an answer that is not 2xx. retry_after: that header, as it came.

    >>> body = b'{"kind":"Status","reason":"AlreadyExists","message":"pods \\\\"a\\\\" exists"}'
    >>> read_refusal(409, body, "POST /api/v1/namespaces/ml/pods").reason
    'AlreadyExists'
    """
    try:
        found = _statuses.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _Status()
    if found.kind != "Status":
        excerpt = " ".join(text.decode("utf-8", "replace").split())[:EXCERPT_MAX]
        found = _Status(message=f"{line}: HTTP {status}: {excerpt or 'no text'}")
    # RFC 9110 allows a date too; the API server sends seconds.
    wait = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    return _refusal(status, found, line, wait)


def _refusal(code: int, status: _Status, line: str, retry_after: float) -> KubeError:
    details = status.details or _Details()
    reason = REASONS.get(code, "Unknown") if status.reason in ("", "Gone") else status.reason
    error = KubeError(
        status.message or f"{line}: HTTP {code}",
        status=code,
        reason=reason,
        causes=tuple((cause.field, cause.message) for cause in details.causes or ()),
        retry_after=min(max(retry_after, details.retryAfterSeconds), RETRY_AFTER_SECONDS_MAX),
    )
    error.hint = HINTS.get(code, "")
    return error


def _malformed(line: str, error: Exception) -> KubeError:
    return KubeError(f"{line}: the answer makes no sense: {error}", reason="Malformed")
