"""The files that install the operator: definitions, permissions, Deployment, charts. Pure.

``python -m paddock.operator.manifests --write deploy`` writes them; a test compares them.
"""

from __future__ import annotations

from paddock.operator.manifests.crd import crd_text
from paddock.operator.manifests.install import manifests_text

__all__ = ["crd_text", "manifests_text"]
