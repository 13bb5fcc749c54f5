"""The API server's refusals, worded as the real one words them. Data only.

Source: k8s.io/apimachinery/pkg/api/errors/errors.go, Kubernetes 1.34.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.kube.client import KubeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.kube.client import Resource


def qualified(resource: Resource[Any]) -> str:
    """The kind as messages name it.

    >>> from paddock.kube.client import PADDLE_JOBS, PODS
    >>> qualified(PODS), qualified(PADDLE_JOBS)
    ('pods', 'paddlejobs.batch.paddlepaddle.org')
    """
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource[Any], name: str) -> KubeError:
    """404: no such object."""
    return KubeError(
        f'{qualified(resource)} "{name}" not found', status=404, reason="NotFound"
    )  # fmt: skip


def not_served(resource: Resource[Any]) -> KubeError:
    """404: no such kind; its definition is not installed."""
    return KubeError(
        f"the server does not serve {qualified(resource)} {resource.version}",
        status=404,
        reason="NotFound",
    )


def already_exists(resource: Resource[Any], name: str) -> KubeError:
    """409: create of a name that is taken."""
    return KubeError(
        f'{qualified(resource)} "{name}" already exists', status=409, reason="AlreadyExists"
    )


def stale(resource: Resource[Any], name: str) -> KubeError:
    """409: the object changed since it was read."""
    return KubeError(
        f'Operation cannot be fulfilled on {qualified(resource)} "{name}": the object has been'
        " modified; please apply your changes to the latest version and try again",
        status=409,
        reason="Conflict",
    )


def wrong_uid(resource: Resource[Any], name: str, asked: str, found: str) -> KubeError:
    """409: what a delete's precondition meant is another object by now."""
    return KubeError(
        f'Operation cannot be fulfilled on {_singular(resource)} "{name}": the UID in the'
        f" precondition ({asked}) does not match the UID in record ({found}). The object might"
        " have been deleted and then recreated",
        status=409,
        reason="Conflict",
    )


def _singular(resource: Resource[Any]) -> str:
    # Events are checked as what they were in core/v1.
    if not resource.group or resource.group == "events.k8s.io":
        return resource.kind
    return f"{resource.kind}.{resource.group}"


def invalid(resource: Resource[Any], name: str, causes: Sequence[tuple[str, str]]) -> KubeError:
    """422: the object's content. causes: (field, message), at least one."""
    kind = _singular(resource)
    said = [f"{field}: {message}" for field, message in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    return KubeError(
        f'{kind} "{name}" is invalid: {text}', status=422, reason="Invalid", causes=tuple(causes)
    )


def bad_request(message: str) -> KubeError:
    """400: the request itself makes no sense."""
    return KubeError(message, status=400, reason="BadRequest")


def forbidden(resource: Resource[Any], name: str, why: str) -> KubeError:
    """403: rights, quota, an admission plugin or a webhook."""
    return KubeError(
        f'{qualified(resource)} "{name}" is forbidden: {why}', status=403, reason="Forbidden"
    )


def expired(message: str = "The resourceVersion for the provided watch is too old.") -> KubeError:
    """410: the history that was asked for is compacted away."""
    return KubeError(message, status=410, reason="Expired")


def too_many_requests(retry_after: float = 1.0) -> KubeError:
    """429: priority and fairness, or an overloaded server."""
    return KubeError(
        "too many requests, please try again later",
        status=429,
        reason="TooManyRequests",
        retry_after=retry_after,
    )


def internal_error(message: str = "etcdserver: request timed out") -> KubeError:
    """500, as a struggling etcd causes it."""
    return KubeError(message, status=500, reason="InternalError")


def unreachable(message: str = "connection refused") -> KubeError:
    """No answer: whether the call was carried out is not known."""
    return KubeError(message)


def again(error: KubeError) -> KubeError:
    """A fresh copy to raise: an exception that is raised often collects tracebacks."""
    return KubeError(
        error.message,
        status=error.status,
        reason=error.reason,
        causes=error.causes,
        retry_after=error.retry_after,
    )
