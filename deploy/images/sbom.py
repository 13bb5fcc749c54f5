"""Prints what Python packages an environment holds, as CycloneDX JSON: python3 sbom.py /opt/paddock

The packages of the base image are not among them: its own package manager lists those.
Source: https://cyclonedx.org/docs/1.5/json/
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path


def component(found: Distribution) -> dict[str, object]:
    """One installed package; its name is PyPI's."""
    about = found.metadata
    name = re.sub(r"[-_.]+", "-", about["Name"]).lower()
    part: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": found.version,
        "purl": f"pkg:pypi/{name}@{found.version}",
    }
    if "License-Expression" in about:
        part["licenses"] = [{"expression": about["License-Expression"]}]
    elif "License" in about and "\n" not in about["License"]:
        part["licenses"] = [{"license": {"name": about["License"]}}]
    return part


def bill(environment: Path) -> dict[str, object]:
    """Of everything in a virtual environment, by name; the same packages give the same bytes."""
    (site,) = environment.glob("lib/python3*/site-packages")
    parts = [component(found) for found in distributions(path=[str(site)])]
    python = {"type": "platform", "name": "python", "version": platform.python_version()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": "paddock-operator"}},
        "components": [*sorted(parts, key=lambda part: str(part["name"])), python],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(bill(Path(sys.argv[1])), indent=1) + "\n")
