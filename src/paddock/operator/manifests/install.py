"""The objects that run the operator: namespace, permissions, Deployment, metrics Service. Pure.

Names are those of paddle-operator, so that applying these files over it upgrades it in place and
takes back the rights that it had (pods/exec in every namespace). Nothing here has a finalizer:
whatever is removed first, nothing waits for it.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

from paddock import __version__
from paddock.errors import Problem, UsageError
from paddock.kube.client import CRDS, SERVICES, Manifest, Resource
from paddock.kube.objects import Object
from paddock.operator.decision import SCHEDULERS
from paddock.operator.manifests.crd import HEAD, Tree, crd_text, template, to_yaml
from paddock.operator.names import NAMESPACE
from paddock.operator.schema import LABEL, NAME_MAX

# Built by whoever installs it. No public hub has this name, so nobody else's image can be taken for
# it: a node that lacks it says so instead.
REPOSITORY = "localhost/paddock-operator"
IMAGE = f"{REPOSITORY}:{__version__}"
DEPLOYMENT = "paddle-controller-manager"
REPLICAS_MAX = 9
SELECTOR = {"control-plane": "controller-manager"}
LABELS = {
    "app.kubernetes.io/name": "paddock-operator",
    "app.kubernetes.io/component": "operator",
    "app.kubernetes.io/part-of": "paddock",
}
POD_SECURITY = "pod-security.kubernetes.io/enforce"
OTHERS_TOO = ("default", "kube-system", "kube-public")
GANGS = ("volcano", "coscheduling")  # groups of operator.yaml, with a right to PodGroups each
V1_NOTE = """\
# The image is yours to build: make operator-image LOAD=kind, or others (docs/guide/kubernetes.md).
# kubectl apply -f crd.yaml -f operator.yaml; remove them in any order. Removing crd.yaml removes
# all jobs, and removing this file removes the namespace paddle-system with what is in it.
"""

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
DEPLOYMENTS: Resource[Any] = Resource("apps", "v1", "deployments", "Deployment", Object)
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
    **{found.kind: found for found in (CRDS, DEPLOYMENTS, SERVICES, POLICIES)},
    **{
        kind: Resource(group, "v1", plural, kind, Object, namespaced)
        for group, plural, kind, namespaced in _OTHERS
    },
}


@dataclass(frozen=True, slots=True)
class Install:
    """How the operator is to run. watch_namespaces: those whose jobs it serves, () for all.

    gangs: gang schedulers to whose PodGroups it has a right, that of scheduling apart.
    metrics_from: namespaces whose pods alone may connect to /metrics, () for all.
    has_policy: with the admission policy of its account, for Kubernetes 1.30 and newer.
    """

    namespace: str = NAMESPACE
    image: str = IMAGE
    scheduling: str = ""
    watch_namespaces: tuple[str, ...] = ()
    replicas: int = 1
    init_image: str = ""
    gangs: tuple[str, ...] = ()
    metrics_from: tuple[str, ...] = ()
    has_policy: bool = True


def manifests_text(install: Install, *, has_crd: bool = False, has_monitor: bool = False) -> str:
    """YAML for ``kubectl apply -f -``. has_crd: the definition comes first. has_monitor: with a
    ServiceMonitor for Prometheus' operator.

    Raises UsageError with everything that cannot be.
    """
    found = objects(checked(install))
    if has_monitor:
        found += group_of("monitor", install)
    head = crd_text() + "---\n" if has_crd else HEAD + V1_NOTE
    return head + to_yaml(*found)


def checked(install: Install) -> Install:
    """The same. Raises UsageError with everything that cannot be."""
    found = []
    for name in install.gangs:
        if name not in GANGS:
            found.append(Problem(f"gang scheduler {name!r} is not one of {', '.join(GANGS)}"))
    for namespace in (install.namespace, *install.watch_namespaces, *install.metrics_from):
        if len(namespace) > NAME_MAX or re.fullmatch(LABEL, namespace) is None:
            hint = f"use small letters, digits and -, {NAME_MAX} at most"
            found.append(Problem(f"{namespace!r} is not the name of a namespace", hint))
    if install.scheduling not in SCHEDULERS:
        known = ", ".join(word for word in SCHEDULERS if word)
        hint = "leave it out for no gang scheduling"
        found.append(Problem(f"scheduling {install.scheduling!r} is not one of {known}", hint))
    if not 1 <= install.replicas <= REPLICAS_MAX:
        hint = "one leads and the others wait: 2 are enough"
        found.append(Problem(f"{install.replicas} replicas are not in 1..{REPLICAS_MAX}", hint))
    for name, image in (("image", install.image), ("init_image", install.init_image)):
        if re.search(r"\s", image) or (name == "image" and not image):
            found.append(Problem(f"{name} {image!r} is not the name of an image"))
    if found:
        raise UsageError.of(found)
    return install


def objects(install: Install) -> list[Tree]:
    """Everything but the definition and the monitor, in the order it is to be made."""
    left_out = {"monitor", *GANGS} - {*install.gangs, install.scheduling}
    if not install.has_policy:
        left_out.add("policy")
    if not install.metrics_from:
        left_out.add("networkpolicy")
    groups = (name for name in template()["objects"] if name not in left_out)
    return [made for name in groups for made in group_of(name, install)]


def group_of(name: str, install: Install) -> list[Tree]:
    """The objects of a group of operator.yaml, as this installation has them."""
    return [made for one in template()["objects"][name] for made in _filled_in(one, install)]


def _filled_in(one: Tree, install: Install) -> list[Tree]:
    """An object of operator.yaml with the installation's own values; a binding may become many."""
    made: Any = copy.deepcopy(one)
    kind, metadata, spec = made["kind"], made["metadata"], made.get("spec")
    if "namespace" in metadata:
        metadata["namespace"] = install.namespace
    for subject in made.get("subjects", ()):
        subject["namespace"] = install.namespace
    if kind == "Namespace":
        metadata["name"] = install.namespace
        if install.namespace in (*OTHERS_TOO, *install.watch_namespaces):
            del metadata["labels"][POD_SECURITY]  # others use it, and it keeps its own rules
    elif kind == "ClusterRoleBinding" and install.watch_namespaces:
        made["kind"] = "RoleBinding"
        name, labels = metadata["name"], metadata["labels"]
        return [
            {**made, "metadata": {"name": name, "namespace": served, "labels": labels}}
            for served in install.watch_namespaces
        ]
    elif kind == "ValidatingAdmissionPolicy":
        (whose,) = spec["matchConditions"]
        whose["expression"] = whose["expression"].replace(NAMESPACE, install.namespace)
    elif kind == "NetworkPolicy":
        (source,) = spec["ingress"][0]["from"]
        (of_name,) = source["namespaceSelector"]["matchExpressions"]
        of_name["values"] = list(install.metrics_from)
    elif kind == "Deployment":
        spec["replicas"] = install.replicas
        (container,) = spec["template"]["spec"]["containers"]
        container["image"] = install.image
        # After the words that every `paddock operator run` of a Deployment has.
        given = {
            "scheduling": install.scheduling,
            "namespace": ",".join(install.watch_namespaces),
            "init-image": install.init_image,
        }
        container["args"] += [f"--{name}={text}" for name, text in given.items() if text]
    return [made]


def place_of(manifest: Manifest) -> tuple[Resource[Any], str, str]:
    """The kind, namespace and name of a manifest's object."""
    metadata: Any = manifest["metadata"]
    namespace, name = str(metadata.get("namespace", "")), str(metadata["name"])
    return KINDS[str(manifest["kind"])], namespace, name
