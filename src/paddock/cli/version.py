"""``paddock version``: the installed versions, from package metadata; nothing is imported."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from importlib.util import find_spec

from paddock import __version__
from paddock.cli.family import JSON, CliCommand, ParsedCommand, named
from paddock.cli.main import COMMANDS as NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Name shown -> distributions that may provide it, in the order they are looked for.
FRAMEWORKS = {
    "paddle": ("paddlepaddle", "paddlepaddle-gpu", "paddlepaddle-xpu", "paddlepaddle-dcu"),
    "torch": ("torch",),
    "jax": ("jax",),
    "mpi4py": ("mpi4py",),
}
# Feature -> module it needs.
FEATURES = {"yaml files (-f job.yaml)": "yaml", "tls": "_ssl"}
# What the extra paddock-train[ps] brings; the parameter server runs with numpy alone, slower.
PS_EXTRA = ("numpy", "numba", "xxhash")


def _run(args: ParsedCommand) -> int:
    frameworks = {name: installed(names) for name, names in FRAMEWORKS.items()}
    extras = {name: installed((name,)) for name in PS_EXTRA}
    features = {name: find_spec(module) is not None for name, module in FEATURES.items()}
    if args.json:
        import json

        found = {
            "paddock": __version__,
            "python": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
            "frameworks": frameworks,
            "ps": extras,
            "features": features,
        }
        print(json.dumps(found, indent=2))
        return 0
    print(f"paddock {__version__}")
    print(f"python {platform.python_version()} ({sys.executable})")
    print(f"platform {platform.platform()}")
    of_ps = {f"{name} (ps)": version for name, version in extras.items()}
    for name, version in (frameworks | of_ps).items():
        print(f"{name} {version or 'not installed'}")
    for name, is_on in features.items():
        print(f"{name}: {'on' if is_on else 'off'}")
    return 0


def installed(names: Sequence[str]) -> str | None:
    """The version of the first distribution that is installed, None if none is."""
    for name in names:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return version if name == names[0] else f"{version} ({name})"
    return None


COMMANDS = named(CliCommand("version", NAMES["version"], (JSON,), _run))
