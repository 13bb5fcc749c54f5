"""Every file of deploy/ that is generated, and its content. Pure."""

from __future__ import annotations

from paddock.operator.manifests.crd import HEAD, Tree, crd_text, to_yaml
from paddock.operator.manifests.dashboard import dashboard_text
from paddock.operator.manifests.etcd import etcd_text
from paddock.operator.manifests.install import (
    NAMESPACE,
    manifests_text,
    service_monitor,
    v1beta1_text,
)
from paddock.operator.manifests.permissions import EDIT, LEADER, MANAGER, VIEW, rules

CHART = "helm/paddock-operator"


def files() -> dict[str, str]:
    """Path below deploy/ -> content."""
    return {
        "v1/crd.yaml": crd_text(),
        "v1/operator.yaml": manifests_text(),
        "v1beta1/crd.yaml": crd_text("v1beta1"),
        "v1beta1/operator.yaml": v1beta1_text(),
        "kustomize/base/kustomization.yaml": _kustomization(),
        "kustomize/base/crd.yaml": crd_text(),
        "kustomize/base/operator.yaml": manifests_text(),
        "prometheus/servicemonitor.yaml": HEAD + to_yaml(service_monitor(NAMESPACE)),
        "grafana/paddock-operator.json": dashboard_text(),
        "elastic/etcd.yaml": etcd_text(),
        # The rest of the chart is written by hand.
        f"{CHART}/files/crd.yaml": crd_text(),
        f"{CHART}/files/rules.yaml": HEAD + to_yaml(_rules()),
    }


def _kustomization() -> str:
    found: Tree = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["crd.yaml", "operator.yaml"],
    }
    return HEAD + to_yaml(found)


def _rules() -> Tree:
    """Who may do what, for the chart's templates."""
    roles = {"manager": MANAGER, "leader": LEADER, "view": VIEW, "edit": EDIT}
    return {name: rules(grants) for name, grants in roles.items()}
