"""The launcher as an archive: for hosts that have python3, and nothing of Paddock.

Hosts keep it by the SHA-256 of its sources, so that it is packed only for one that lacks it. It
holds what `paddock launch` imports, and what answers a submitter (node/); both need the standard
library only.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import paddock

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Of paddock: packages with all that is below them, and single modules.
PACKAGES = ("accel", "agent", "backends/node", "contracts", "core", "etcd", "jobfile", "local")
MODULES = (
    "__init__.py", "errors.py", "backends/__init__.py", "backends/words.py", "cli/__init__.py",
    "cli/main.py", "cli/launch.py", "cli/explain.py", "cli/help.py", "cli/version.py",
)  # fmt: skip
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can tell
START = "from paddock.cli.main import main\n\nmain()\n"


def _once(make: Callable[[], T]) -> Callable[[], T]:
    """Made by the first who asks; the others, at the same time, wait for it."""
    lock, kept = threading.Lock(), cache(make)

    @wraps(make)
    def ask() -> T:
        with lock:
            return kept()

    return ask


@_once
def _files() -> dict[str, bytes]:
    root = Path(paddock.__file__).parent
    names = [*MODULES, "py.typed"]
    for package in PACKAGES:
        names += [str(p.relative_to(root)) for p in (root / package).rglob("*.py")]
    found = {f"paddock/{name}": (root / name).read_bytes() for name in sorted(names)}
    return {"__main__.py": START.encode(), **found}


@_once
def build() -> bytes:
    """The archive: a zip file whose root has `__main__.py` and `paddock/`."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _files().items():
            entry = zipfile.ZipInfo(name.replace(os.sep, "/"), DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return target.getvalue()


@_once
def digest() -> str:
    """SHA-256 of its sources, in hex."""
    found = hashlib.sha256()
    for name, data in _files().items():
        found.update(f"{name}\0{len(data)}\0".encode() + data)
    return found.hexdigest()


def unpack_into(folder: Path) -> Path:
    """Put the program into a folder that nodes share; returns what Python is started with."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with zipfile.ZipFile(io.BytesIO(build())) as archive:
        archive.extractall(folder)
    return folder / "__main__.py"
