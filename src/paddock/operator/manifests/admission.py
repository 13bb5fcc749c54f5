"""The admission policy of the operator's account, beyond its roles. Pure.

A role cannot say "only the pods of PaddleJobs": whoever has the account's token could make any pod,
one with the host's files in it, too. This policy (Kubernetes 1.30) refuses the account

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

if TYPE_CHECKING:
    from paddock.operator.manifests.crd import Tree

ADMISSION = "admissionregistration.k8s.io/v1"
POLICY = "paddle-manager-policy"
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


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
