"""Every file of deploy/ that is generated, and its content. Pure."""

from __future__ import annotations

from paddock.operator.manifests.crd import HEAD, Tree, crd_text, to_yaml
from paddock.operator.manifests.install import (
    REPOSITORY,
    Install,
    manifests_text,
    service_monitor,
)
from paddock.operator.manifests.permissions import EDIT, LEADER, MANAGER, VIEW, rules
from paddock.operator.names import NAMESPACE

CHART = "helm/paddock-operator"

IMAGES_NOTE = f"""\
# In a kustomization of your own, beside this folder among its resources:
#   images: [{{name: {REPOSITORY}, newName: registry.example/paddock-operator}}]
"""


def files() -> dict[str, str]:
    """Path below deploy/ -> content."""
    return {
        "v1/crd.yaml": crd_text(),
        "v1/operator.yaml": manifests_text(Install()),
        "v1beta1/crd.yaml": crd_text("v1beta1"),
        # No ending: kubectl apply -f deploy/v1/ would take a kustomization.yaml for an object.
        "v1/Kustomization": _kustomization("crd.yaml", "operator.yaml"),
        "kustomize/base/kustomization.yaml": _kustomization("../../v1") + IMAGES_NOTE,
        "prometheus/servicemonitor.yaml": HEAD + to_yaml(service_monitor(NAMESPACE)),
        # The rest of the chart is written by hand.
        f"{CHART}/files/crd.yaml": crd_text(),
        f"{CHART}/files/rules.yaml": HEAD + to_yaml(_rules()),
    }


def _kustomization(*resources: str) -> str:
    found: Tree = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
    }
    return HEAD + to_yaml(found)


def _rules() -> Tree:
    """Who may do what, for the chart's templates."""
    roles = {"manager": MANAGER, "leader": LEADER, "view": VIEW, "edit": EDIT}
    return {name: rules(grants) for name, grants in roles.items()}
