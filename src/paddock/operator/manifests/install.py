"""The objects that run the operator: namespace, permissions, Deployment, metrics Service. Pure.

Names are those of paddle-operator, so that applying these files over it upgrades it in place and
takes back the rights that it had (pods/exec in every namespace). Nothing here has a finalizer:
whatever is removed first, nothing waits for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock import __version__
from paddock.errors import Problem, UsageError
from paddock.operator.decision import SCHEDULERS
from paddock.operator.manifests.crd import HEAD, Tree, crd_text, to_yaml
from paddock.operator.manifests.permissions import EDIT, GANGS, LEADER, MANAGER, VIEW, policy, rules
from paddock.operator.names import NAMESPACE
from paddock.operator.schema import LABEL, NAME_MAX

# Built by whoever installs it. No public hub has this name, so nobody else's image can be taken for
# it: a node that lacks it says so instead.
REPOSITORY = "localhost/paddock-operator"
IMAGE = f"{REPOSITORY}:{__version__}"
ACCOUNT = "paddle-manager-sa"
DEPLOYMENT = "paddle-controller-manager"
RBAC = "rbac.authorization.k8s.io/v1"
REPLICAS_MAX = 9
METRICS_PORT, HEALTH_PORT = 8080, 8081
USER = 65532  # nobody's, as paddle-operator had it; a name would need /etc/passwd
# The Deployment's selector cannot be changed later: it is still the old one.
SELECTOR = {"control-plane": "controller-manager"}
LABELS = {
    "app.kubernetes.io/name": "paddock-operator",
    "app.kubernetes.io/component": "operator",
    "app.kubernetes.io/part-of": "paddock",
}
# Source: https://kubernetes.io/docs/concepts/security/pod-security-admission/
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
OTHERS_TOO = ("default", "kube-system", "kube-public")
RESOURCES: Tree = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
V1_NOTE = """\
# The image is yours to build: make operator-image LOAD=kind, or others (docs/guide/kubernetes.md).
# kubectl apply -f crd.yaml -f operator.yaml; remove them in any order. Removing crd.yaml removes
# all jobs, and removing this file removes the namespace paddle-system with what is in it.
"""


@dataclass(frozen=True, slots=True)
class Install:
    """How the operator is to run. watch_namespaces: those whose jobs it serves, () for all.

    gangs: gang schedulers to whose PodGroups it has a right, that of scheduling apart.
    metrics_from: namespaces whose pods alone may connect to /metrics, () for all.
    has_policy: with the admission policy of permissions.py, for Kubernetes 1.30 and newer.
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
        found.append(service_monitor(install.namespace))
    head = crd_text() + "---\n" if has_crd else HEAD + V1_NOTE
    return head + to_yaml(*found)


def checked(install: Install) -> Install:
    """The same. Raises UsageError with everything that cannot be."""
    problems = _problems(install)
    if problems:
        raise UsageError.of(problems)
    return install


def objects(install: Install) -> list[Tree]:
    """Everything but the definition, in the order it is to be made."""
    namespace, leader = install.namespace, "paddle-leader-election-role"
    requested = {*install.gangs, install.scheduling}
    manager = ("ClusterRole", "paddle-manager-role")
    return [
        _own_namespace(install),
        _object("v1", "ServiceAccount", ACCOUNT, namespace),
        {**_object(RBAC, *manager), "rules": rules(MANAGER)},
        *_bindings(install, manager, "paddle-manager-rolebinding"),
        *(found for name in GANGS if name in requested for found in gang_rights(install, name)),
        {**_object(RBAC, "Role", leader, namespace), "rules": rules(LEADER)},
        _binding("RoleBinding", f"{leader}binding", namespace, ("Role", leader), namespace),
        *_user_roles(),
        *(operator_policy(namespace) if install.has_policy else ()),
        _metrics_service(namespace),
        *([metrics_policy(namespace, install.metrics_from)] if install.metrics_from else ()),
        _deployment(install),
    ]


def gang_rights(install: Install, scheduler: str) -> list[Tree]:
    """The right to the PodGroups of a gang scheduler, where jobs are served."""
    role = ("ClusterRole", f"paddle-manager-{scheduler}")
    made = {**_object(RBAC, *role), "rules": rules(GANGS[scheduler])}
    return [made, *_bindings(install, role, f"paddle-manager-{scheduler}")]


def operator_policy(namespace: str) -> list[Tree]:
    """The admission policy that holds the operator's account to objects of PaddleJobs."""
    return policy(f"system:serviceaccount:{namespace}:{ACCOUNT}", LABELS)


def metrics_policy(namespace: str, readers: tuple[str, ...]) -> Tree:
    """A NetworkPolicy: /metrics for pods of these namespaces, the probes for everybody."""
    name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(readers)}
    source = {"namespaceSelector": {"matchExpressions": [name]}}
    ingress: list[Tree] = [
        {"from": [source], "ports": [{"port": "metrics", "protocol": "TCP"}]},
        {"ports": [{"port": "health", "protocol": "TCP"}]},
    ]
    found = _object("networking.k8s.io/v1", "NetworkPolicy", f"{DEPLOYMENT}-metrics", namespace)
    selector = {"matchLabels": dict(SELECTOR)}
    return {
        **found,
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def _bindings(install: Install, role: tuple[str, str], name: str) -> list[Tree]:
    """A role for the operator, everywhere or in the served namespaces only."""
    kind = "RoleBinding" if install.watch_namespaces else "ClusterRoleBinding"
    return [
        _binding(kind, name, served, role, install.namespace)
        for served in install.watch_namespaces or ("",)
    ]


def _own_namespace(install: Install) -> Tree:
    """The operator's namespace, restricted; one that others use keeps its own rules."""
    found = _object("v1", "Namespace", install.namespace)
    if install.namespace not in (*OTHERS_TOO, *install.watch_namespaces):
        found["metadata"] = {"name": install.namespace, "labels": {**LABELS, **RESTRICTED}}
    return found


def _user_roles() -> list[Tree]:
    """Roles that add PaddleJobs to the cluster's view, edit and admin."""
    found = []
    for name, grants, targets in (("view", VIEW, ("view",)), ("edit", EDIT, ("edit", "admin"))):
        role = _object(RBAC, "ClusterRole", f"paddlejobs-{name}")
        labels = {f"rbac.authorization.k8s.io/aggregate-to-{target}": "true" for target in targets}
        role["metadata"] = {"name": f"paddlejobs-{name}", "labels": {**LABELS, **labels}}
        found.append({**role, "rules": rules(grants)})
    return found


def _binding(
    kind: str, name: str, namespace: str, role: tuple[str, str], account_namespace: str
) -> Tree:
    """A role for the operator. namespace: "" for a ClusterRoleBinding."""
    return {
        **_object(RBAC, kind, name, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role[0], "name": role[1]},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": account_namespace}],
    }


def _metrics_service(namespace: str) -> Tree:
    """The Service by which Prometheus finds the metrics."""
    ports = [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}]
    service = _object("v1", "Service", f"{DEPLOYMENT}-metrics", namespace)
    return {**service, "spec": {"selector": dict(SELECTOR), "ports": ports}}


def service_monitor(namespace: str) -> Tree:
    """For Prometheus' operator (monitoring.coreos.com/v1)."""
    monitor = _object("monitoring.coreos.com/v1", "ServiceMonitor", DEPLOYMENT, namespace)
    spec = {"selector": {"matchLabels": dict(LABELS)}, "endpoints": [{"port": "metrics"}]}
    return {**monitor, "spec": spec}


def _deployment(install: Install) -> Tree:
    """The operator itself, within the restricted pod security standard."""
    pod: Tree = {
        "serviceAccountName": ACCOUNT,
        "terminationGracePeriodSeconds": 10,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(install)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}}],
    }
    template: Tree = {
        "metadata": {
            "labels": {**SELECTOR, **LABELS},
            "annotations": {
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(METRICS_PORT),
            },
        },
        "spec": pod,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": DEPLOYMENT,
            "namespace": install.namespace,
            "labels": {**SELECTOR, **LABELS},
        },
        "spec": {
            "replicas": install.replicas,
            "selector": {"matchLabels": dict(SELECTOR)},
            "template": template,
        },
    }


def _arguments(install: Install) -> list[str]:
    """The words after ``paddock operator run``."""
    words = [
        "--leader-elect",
        f"--metrics-bind-address=:{METRICS_PORT}",
        f"--health-probe-bind-address=:{HEALTH_PORT}",
    ]
    if install.scheduling:
        words.append(f"--scheduling={install.scheduling}")
    if install.watch_namespaces:
        words.append(f"--namespace={','.join(install.watch_namespaces)}")
    if install.init_image:
        words.append(f"--init-image={install.init_image}")
    return words


def _container(install: Install) -> Tree:
    return {
        "name": "manager",
        "image": install.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["paddock", "operator", "run"],
        "args": _arguments(install),
        "ports": [
            {"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", period_seconds=20),
        "readinessProbe": _probe("/readyz", period_seconds=5),
        "resources": RESOURCES,
        # What it said last comes with its status: that is how an installation can name the error.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _probe(path: str, *, period_seconds: int) -> Tree:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
    }


def _object(version: str, kind: str, name: str, namespace: str = "") -> Tree:
    metadata: Tree = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    metadata["labels"] = dict(LABELS)
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _problems(install: Install) -> list[Problem]:
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
    return found
