"""RBAC of the operator and of users, and the admission policy of the operator's account. Pure.

Least privilege: no wildcards, no secrets, no pods/exec, no nodes. What a container printed last
comes with its pod's status (terminationMessagePolicy), so no right to read logs either.

A role cannot say "only the pods of PaddleJobs": whoever has the account's token could make any pod,
one with the host's files in it, too. The policy (Kubernetes 1.30) refuses the account

- pods, Services and ConfigMaps that no PaddleJob controls: to make, change or delete them;
- anything in a namespace of Kubernetes itself (kube-system, ...);
- another spec of a PaddleJob: it would be a way to any pod, by the operator's own hand.

What it cannot see is whether the PaddleJob that a pod names is there: Kubernetes' garbage collector
removes a pod that names another within seconds. What pods of a namespace may contain is the
business of Pod Security admission, there as for everybody's pods.

Source: https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.kube.client import GROUP
from paddock.operator.names import LEASE

if TYPE_CHECKING:
    from paddock.operator.manifests.crd import Tree

ADMISSION = "admissionregistration.k8s.io/v1"
POLICY = "paddle-manager-policy"
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
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


def _is_owned(which: str) -> str:
    """CEL: a PaddleJob controls the object."""
    return (
        f"has({which}.metadata.ownerReferences) && {which}.metadata.ownerReferences.exists(o,"
        " has(o.controller) && o.controller && o.kind == 'PaddleJob' &&"
        f" o.apiVersion.startsWith('{GROUP}/'))"
    )


def policy_rules() -> Tree:
    """spec of the policy, but for whom it is about."""
    is_job = "request.resource.resource == 'paddlejobs'"
    children: Tree = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["pods", "services", "configmaps"],
        "scope": "*",  # as the server writes it: applied again, it changes nothing
    }
    jobs: Tree = {
        "apiGroups": [GROUP],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["paddlejobs"],
        "scope": "*",
    }
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [children, jobs]},
        "validations": [
            {
                "expression": (
                    f"{is_job} || request.operation == 'DELETE' || ({_is_owned('object')})"
                ),
                "message": "the operator's account may only make what a PaddleJob controls",
            },
            {
                "expression": (
                    f"{is_job} || request.operation == 'CREATE' || ({_is_owned('oldObject')})"
                ),
                "message": "the operator's account may only touch what a PaddleJob controls",
            },
            {
                "expression": f"!({is_job}) || dyn(object).spec == dyn(oldObject).spec",
                "message": "the operator's account may not change the spec of a PaddleJob",
            },
            {
                "expression": "!request.namespace.startsWith('kube-')",
                "message": "the operator's account may do nothing in a namespace of Kubernetes",
            },
        ],
    }


def policy(account: str, labels: dict[str, str]) -> list[Tree]:
    """The policy and its binding. account: system:serviceaccount:NAMESPACE:NAME."""
    whose = {"name": "operator", "expression": f"request.userInfo.username == '{account}'"}
    specs: tuple[Tree, Tree] = (
        {"matchConditions": [whose], **policy_rules()},
        {"policyName": POLICY, "validationActions": ["Deny"]},
    )
    return [
        {
            "apiVersion": ADMISSION,
            "kind": kind,
            "metadata": {"name": POLICY, "labels": dict(labels)},
            "spec": spec,
        }
        for kind, spec in zip(KINDS, specs, strict=True)
    ]
