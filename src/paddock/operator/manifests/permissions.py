"""RBAC: the operator's own rights, and those of the people who use jobs. Tables. Pure.

Least privilege: no wildcards, no secrets, no pods/exec, no nodes. What a container printed last
comes with its pod's status (terminationMessagePolicy), so no right to read logs either.
"""

from __future__ import annotations

from paddock.kube.client import GROUP
from paddock.operator.names import LEASE

READ = ("get", "list", "watch")
OWN = (*READ, "create", "delete", "patch")
USE = ("create", "update", "patch", "delete", "deletecollection")

# (API group, resources, verbs, names). In the namespaces whose jobs are served.
Grant = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]
MANAGER: tuple[Grant, ...] = (
    # delete: ttlSecondsAfterFinished.
    (GROUP, ("paddlejobs",), (*READ, "patch", "delete"), ()),
    (GROUP, ("paddlejobs/status",), ("get", "patch"), ()),
    ("", ("pods", "services", "configmaps"), OWN, ()),
    ("events.k8s.io", ("events",), ("create", "patch"), ()),
)
# PodGroups, of those gang schedulers that are installed.
GANGS: dict[str, tuple[Grant, ...]] = {
    "volcano": (("scheduling.volcano.sh", ("podgroups",), OWN, ()),),
    "coscheduling": (("scheduling.x-k8s.io", ("podgroups",), OWN, ()),),
}
# In the operator's own namespace: who leads. A name cannot be asked of "create".
LEADER: tuple[Grant, ...] = (
    ("coordination.k8s.io", ("leases",), ("create",), ()),
    ("coordination.k8s.io", ("leases",), (*READ, "patch"), (LEASE,)),
)
# Added to the cluster's own roles view, edit and admin.
VIEW: tuple[Grant, ...] = ((GROUP, ("paddlejobs", "paddlejobs/status"), READ, ()),)
EDIT: tuple[Grant, ...] = (
    (GROUP, ("paddlejobs",), USE, ()),
    (GROUP, ("paddlejobs/scale",), ("get", "update", "patch"), ()),
)


def rules(grants: tuple[Grant, ...]) -> list[dict[str, object]]:
    """The rules of a Role or ClusterRole.

    >>> rules(VIEW)[0]["verbs"]
    ['get', 'list', 'watch']
    """
    found: list[dict[str, object]] = []
    for group, resources, verbs, names in grants:
        rule: dict[str, object] = {"apiGroups": [group], "resources": list(resources)}
        if names:
            rule["resourceNames"] = list(names)
        rule["verbs"] = list(verbs)
        found.append(rule)
    return found
