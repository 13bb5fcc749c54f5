"""What an API server refused, as one sentence of the user's world. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.errors import UsageError

if TYPE_CHECKING:
    from paddock.errors import PaddockError
    from paddock.kube.client import KubeError


def explained(error: KubeError, what: str, namespace: str) -> PaddockError:
    """The error as people can act on it; it begins with what was asked for.

    >>> from paddock.kube.client import KubeError
    >>> explained(KubeError('namespaces "x" not found', status=404, reason="NotFound"),
    ...           "create Job a", "x").message
    "namespace 'x' does not exist"
    """
    said = error.message
    if error.status == 0:
        return UsageError(f"{what}: {said}", hint="is this the right context, and the cluster up?")
    if error.status == 401:
        return UsageError(f"{what}: the cluster does not accept your credentials ({said})",
                          hint="log in again, or look at --context and --kubeconfig")  # fmt: skip
    if error.is_of_ending_namespace:
        return UsageError(f"namespace '{namespace}' is being deleted", hint="take another one")
    if error.status == 403 and "exceeded quota" in said:
        return UsageError(f"{what}: the quota of namespace '{namespace}' does not allow it: {said}",
                          hint="ask for less with --cpu, --memory or -n")  # fmt: skip
    if error.status == 403:
        return UsageError(f"{what}: you may not do this in namespace '{namespace}': {said}",
                          hint="see: kubectl auth can-i --list -n " + namespace)  # fmt: skip
    if error.status == 404 and "namespaces" in said:
        return UsageError(f"namespace '{namespace}' does not exist",
                          hint="write --namespace NAME")  # fmt: skip
    if error.status == 404:
        return UsageError(f"{what}: the cluster has no such thing ({said})",
                          hint="it is not installed: another form=, or --scheduler")  # fmt: skip
    if error.reason == "AlreadyExists":
        return UsageError(f"{what}: the name is in use", hint="--replace stops the old one first")
    if error.status in (400, 422):
        return UsageError(f"{what}: refused: {said}")
    return error
