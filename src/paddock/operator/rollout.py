"""How far an installation is, and what is wrong with it: kinds, shapes, and one judgement. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from paddock.kube.client import CRDS, SERVICES, Resource
from paddock.kube.objects import KubeCondition, Meta, Object
from paddock.operator.outcome import waits_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.kube.objects import Pod

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
BACKING_OFF = ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CrashLoopBackOff")
OF_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
IMAGE_HINT = (
    "put the image on the nodes (deploy/images/build.sh operator --load kind), or name one that"
    " they can pull with --image"
)

# What to do when the API server says no, by the HTTP status; 0 is no answer.
HINTS = {
    0: "does the cluster run, and is it this kubeconfig's? kubectl cluster-info",
    401: "the credentials of this kubeconfig are refused: kubectl auth whoami",
    403: "ask an administrator of the cluster, or give them `paddock operator install --dry-run`",
    404: "the cluster lacks its namespace, or its kind",
}


class DefinitionStatus(msgspec.Struct, frozen=True):
    conditions: tuple[KubeCondition, ...] | None = None


class Definition(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    status: DefinitionStatus = DefinitionStatus()


class DeploymentSpec(msgspec.Struct, frozen=True):
    replicas: int = 1


class DeploymentStatus(msgspec.Struct, frozen=True):
    observedGeneration: int = 0
    replicas: int = 0
    updatedReplicas: int = 0
    availableReplicas: int = 0
    conditions: tuple[KubeCondition, ...] | None = None


class Deployment(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


DEFINITIONS = Resource(CRDS.group, CRDS.version, CRDS.plural, CRDS.kind, Definition, False)
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", Deployment)
POLICIES = Resource(
    ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", Object,
    namespaced=False,
)  # fmt: skip
_OTHERS = (  # group, plural, kind, namespaced
    ("", "namespaces", "Namespace", False),
    ("", "serviceaccounts", "ServiceAccount", True),
    (RBAC, "clusterroles", "ClusterRole", False),
    (RBAC, "clusterrolebindings", "ClusterRoleBinding", False),
    (RBAC, "roles", "Role", True),
    (RBAC, "rolebindings", "RoleBinding", True),
    (ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    ("networking.k8s.io", "networkpolicies", "NetworkPolicy", True),
    ("monitoring.coreos.com", "servicemonitors", "ServiceMonitor", True),
)
KINDS: dict[str, Resource[Any]] = {
    **{found.kind: found for found in (DEFINITIONS, DEPLOYMENTS, SERVICES, POLICIES)},
    **{
        kind: Resource(group, "v1", plural, kind, Object, namespaced)
        for group, plural, kind, namespaced in _OTHERS
    },
}


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The progress of a step. done: its report; "" when it is not done, for the reason in why."""

    done: str = ""
    why: str = ""
    is_final: bool = False
    hint: str = ""


def rollout_state(found: Deployment, pods: Sequence[Pod]) -> RolloutState:
    """How far a Deployment is, as `kubectl rollout status` has it; or what is wrong with a pod."""
    wanted, status = found.spec.replicas, found.status
    is_seen = status.observedGeneration >= found.metadata.generation
    if is_seen and status.updatedReplicas == status.replicas == wanted <= status.availableReplicas:
        return RolloutState(f"{wanted} of {wanted} available")
    for pod in pods:
        if why := waits_for(pod):
            hint = IMAGE_HINT if why.startswith(OF_IMAGE) else ""
            text = f"pod {pod.metadata.name} on {pod.spec.nodeName or 'no node'}: {why}"
            return RolloutState(why=text, is_final=why.startswith(BACKING_OFF), hint=hint)
    for condition in status.conditions or ():
        if condition.type == "ReplicaFailure" and condition.status == "True":
            return RolloutState(why=f"{condition.reason}: {condition.message}")
    return RolloutState(why=f"{status.availableReplicas} of {wanted} are available")
