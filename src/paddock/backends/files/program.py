"""The launcher as an archive: for hosts that have python3, and nothing of Paddock.

Hosts keep it by the SHA-256 of its sources, so that it is packed only for one that lacks it. It
holds what `paddock launch` imports, and the program that answers a submitter (node/); both need the
standard library only. A job that uses `paddock.ps` gets a larger one, with the parameter server
(node/carried.py), `paddock rec` and its bundled models.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import threading
import zipfile
from functools import cache
from pathlib import Path

import paddock

# Of paddock: packages with all that is below them, and single modules.
PACKAGES = (
    "accel", "agent", "backends/node", "contracts", "core", "etcd", "jobfile", "local", "watch",
)  # fmt: skip
MODULES = (
    "__init__.py", "command_line.py", "errors.py", "backends/__init__.py", "backends/flags.py",
    "backends/table.py", "backends/types.py", "backends/sites/__init__.py",
    "backends/sites/keys.py", "cli/__init__.py", "cli/family.py", "cli/main.py", "cli/launch.py",
    "cli/explain.py", "cli/explain_kubernetes.py", "cli/help.py", "cli/version.py",
)  # fmt: skip
PS_PACKAGES = ("ps", "data", "rec")
# Of commands that hosts do not run: `paddock data`, `ps`, `top` and `web`.
LEFT_OUT = (
    "data/check.py", "data/split.py", "data/split_parquet.py",
    "ps/client/admin.py", "ps/client/transfer.py",
    "ps/storage/paddle_text.py", "watch/slow.py", "watch/view.py", "jobfile/dialects/written.py",
)  # fmt: skip
PS_MODULES = ("__main__.py", "cli/pserver.py")
DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can tell
START = "from paddock.cli.main import main\n\nmain()\n"
PS_START = f"from paddock.backends.node.carried import start\n\nstart()\n{START}"
MAKING = threading.Lock()  # hosts ask at the same time: the first makes it, the others wait


def build(*, has_ps: bool) -> bytes:
    """Return the archive: a zip file whose root has `__main__.py` and `paddock/`."""
    with MAKING:
        return _packed(has_ps)


def digest(*, has_ps: bool) -> str:
    """Return the SHA-256 of its sources, in hex, and their size in bytes."""
    with MAKING:
        return _digest(has_ps)


@cache
def _files(has_ps: bool) -> dict[str, bytes]:
    root = Path(paddock.__file__).parent
    names = [*MODULES, "py.typed", *(PS_MODULES if has_ps else ())]
    for package in (*PACKAGES, *(PS_PACKAGES if has_ps else ())):
        found = (p for p in (root / package).rglob("*") if p.suffix in (".py", ".yaml"))
        names += {str(p.relative_to(root)) for p in found}.difference(LEFT_OUT)
    sources = {f"paddock/{name}": (root / name).read_bytes() for name in sorted(names)}
    if has_ps:  # a ConfigMap holds 1 MiB, and functions' docstrings are a tenth of that
        sources = {n: _shortened(b) if n.endswith(".py") else b for n, b in sources.items()}
    return {"__main__.py": (PS_START if has_ps else START).encode(), **sources}


def _shortened(source: bytes) -> bytes:
    """The source without the docstrings of its functions; each line keeps its number."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0]
        if ast.get_docstring(node) is None or lines[first.lineno - 1][: first.col_offset].strip():
            continue
        assert first.end_lineno is not None  # of what was parsed from text
        indent = lines[first.lineno - 1][: first.col_offset]
        blank = [b"\n"] * (first.end_lineno - first.lineno)
        lines[first.lineno - 1 : first.end_lineno] = [indent + b'""\n', *blank]
    return b"".join(lines)


@cache
def _packed(has_ps: bool) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _files(has_ps).items():
            entry = zipfile.ZipInfo(name.replace(os.sep, "/"), DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, compresslevel=9)
    return target.getvalue()


@cache
def _digest(has_ps: bool) -> str:
    found = hashlib.sha256()
    for name, data in _files(has_ps).items():
        found.update(f"{name}\0{len(data)}\0".encode() + data)
    return f"{found.hexdigest()}-{sum(map(len, _files(has_ps).values()))}"


def unpack_into(folder: Path, *, has_ps: bool) -> Path:
    """Unpack the program into a folder that nodes share; return the path for Python to start."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with zipfile.ZipFile(io.BytesIO(build(has_ps=has_ps))) as archive:
        archive.extractall(folder)
    return folder / "__main__.py"
