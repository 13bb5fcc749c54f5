"""PyTorch and JAX for containers, from this machine's own virtual environment.

They are too large for the images (torch with its CUDA libraries: 5 GB). A job of the bare image
gets them from the node, as a read-only volume, where Debian's Python of the image can load them.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.control.images import FRAMEWORKS
from cluster.control.layers import PYTHON

if TYPE_CHECKING:
    from collections.abc import Mapping

VOLUME = "frameworks"


class LacksFrameworkError(Exception):
    """This machine's Python cannot lend that framework. The text says why."""


def site_packages(module: str) -> Path:
    """The folder that has the module. It is looked up, not imported.

    Raises: LacksFrameworkError, where it is missing or belongs to another Python than the image's.
    """
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if own != PYTHON:
        raise LacksFrameworkError(
            f"the image has Python {PYTHON} and this is {own}: compiled packages cannot be lent"
        )
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise LacksFrameworkError(f"{module} is not installed: make .venv/.real")
    return Path(found.origin).parents[1]


def with_framework(job: Mapping[str, Any], module: str) -> dict[str, Any]:
    """The same PaddleJob, every first container of which finds the module.

    Raises: LacksFrameworkError.
    """
    folder = site_packages(module)
    made: dict[str, Any] = copy.deepcopy(dict(job))
    for role in ("ps", "worker", "heter"):
        if role in made["spec"]:
            pod = made["spec"][role]["template"]["spec"]
            pod.setdefault("volumes", []).append(
                {"name": VOLUME, "hostPath": {"path": str(folder), "type": "Directory"}}
            )
            pod["containers"][0].setdefault("volumeMounts", []).append(
                {"name": VOLUME, "mountPath": FRAMEWORKS, "readOnly": True}
            )
    return made
