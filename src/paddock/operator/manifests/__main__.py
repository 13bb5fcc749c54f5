"""Writes the generated files of deploy/: ``--write deploy``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import EXIT_USAGE
from paddock.operator.manifests.crd import HEAD, Tree, crd_text, template, to_yaml
from paddock.operator.manifests.install import (
    GANGS,
    REPOSITORY,
    Install,
    group_of,
    manifests_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

CHART = "helm/paddock-operator"
USAGE = "usage: python -m paddock.operator.manifests [--write DIR]\n"

IMAGES_NOTE = f"""\
# In a kustomization of your own, beside this folder among its resources:
#   images: [{{name: {REPOSITORY}, newName: registry.example/paddock-operator}}]
"""


METRICS_NOTE = """\
# Pods of the namespace monitoring may connect to /metrics, and no others. Name yours.
"""


POLICY_NOTE = """\
# operator.yaml has these objects as well: this file is for commands that name it, and stays for two
# more minor versions. Apply it, do not create it.
"""


def files() -> dict[str, str]:
    """Path below deploy/ -> content."""
    install = Install(metrics_from=("monitoring",))
    groups = {name: HEAD + to_yaml(*group_of(name, install)) for name in template()["objects"]}
    monitored = HEAD + METRICS_NOTE + groups["networkpolicy"].removeprefix(HEAD)
    rules = template()["objects"]["policy"][0]["spec"].copy()
    del rules["matchConditions"]  # the chart's account has another name
    return {
        "v1/crd.yaml": crd_text(),
        "v1/operator.yaml": manifests_text(Install()),
        "v1/policy.yaml": HEAD + POLICY_NOTE + groups["policy"].removeprefix(HEAD),
        "v1beta1/crd.yaml": crd_text("v1beta1"),
        # Servers before 1.30 do not know the kind of the policy.
        "v1beta1/operator.yaml": manifests_text(Install(has_policy=False)),
        # No ending: kubectl apply -f deploy/v1/ would take a kustomization.yaml for an object.
        "v1/Kustomization": _kustomization("crd.yaml", "operator.yaml"),
        "kustomize/base/kustomization.yaml": _kustomization("../../v1") + IMAGES_NOTE,
        **{f"gangs/{name}.yaml": groups[name] for name in GANGS},
        "prometheus/networkpolicy.yaml": monitored,
        "prometheus/servicemonitor.yaml": groups["monitor"],
        # The rest of the chart is written by hand.
        f"{CHART}/files/crd.yaml": crd_text(),
        f"{CHART}/files/rules.yaml": HEAD + to_yaml(template()["rules"]),
        f"{CHART}/files/policy.yaml": HEAD + to_yaml(rules),
    }


def _kustomization(*resources: str) -> str:
    found: Tree = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(resources),
    }
    return HEAD + to_yaml(found)


def main(argv: Sequence[str]) -> int:
    """Write the files of deploy/ to the directory named."""
    if len(argv) != 2 or argv[0] != "--write":
        sys.stderr.write(USAGE)
        return EXIT_USAGE
    for name, text in files().items():
        path = Path(argv[1]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
