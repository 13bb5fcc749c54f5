"""The manifest of a package: every file, directory and link, by path. Pure.

The submitter makes it, the host checks all of it before use. Paths are text; bytes
that are no UTF-8 stand in it as surrogates (PEP 383), on every machine, whatever its locale.
"""

from __future__ import annotations

import json

from paddock.core.value import value
from paddock.errors import PaddockError, Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Literal

    Kind = Literal["file", "dir", "link"]

VERSION = 1
RESERVED = ".paddock"  # ours, in every job's directory (jobdir.py)
HOPS_MAX = 40  # Linux follows as many links of one path (path_resolution(7))
NAME_BYTES_MAX = 255
SHOWN_MAX = 10
_HEX = frozenset("0123456789abcdef")


@value
class PackageEntry:
    """An entry of a package: file, directory or link.

    path: below the root, joined by "/". mode: permission bits. size: bytes of a file. sha256: of
    its content, in hex. target: where a link leads, as it is written there.
    """

    path: str
    kind: Kind
    mode: int = 0
    size: int = 0
    sha256: str = ""
    target: str = ""


@value
class PackageManifest:
    """The entries of a package, by path: a directory stands before what is in it."""

    entries: tuple[PackageEntry, ...]

    @property
    def files(self) -> list[PackageEntry]:
        """The entries that are files."""
        return [entry for entry in self.entries if entry.kind == "file"]

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def blobs(self) -> dict[str, int]:
        """The size of every different content by its SHA-256."""
        return {entry.sha256: entry.size for entry in self.entries if entry.kind == "file"}

    def without(self, paths: Iterable[str]) -> PackageManifest:
        """Return the manifest without some files."""
        left_out = frozenset(paths)
        return PackageManifest(tuple(e for e in self.entries if e.path not in left_out))

    def pack(self) -> bytes:
        """Return the manifest as bytes for the wire."""
        rows = [[e.path, e.kind, e.mode, e.size, e.sha256, e.target] for e in self.entries]
        return json.dumps([VERSION, rows], separators=(",", ":")).encode("ascii")


def make_manifest(entries: Iterable[PackageEntry]) -> PackageManifest:
    """Return the manifest of those entries, in order."""
    return PackageManifest(tuple(sorted(entries, key=lambda entry: entry.path)))


def unpack(data: bytes) -> PackageManifest:
    """Read a manifest from the bytes of ``pack``. Raises PaddockError, also for unsafe entries."""
    try:
        version, rows = json.loads(data)
        if version != VERSION:
            raise ValueError(f"version {version}")
        entries = tuple(PackageEntry(*row) for row in rows)
        for each in entries:
            texts = (each.path, each.kind, each.sha256, each.target)
            if {*map(type, texts)} != {str} or {type(each.mode), type(each.size)} != {int}:
                raise ValueError("a field of another type")
    except (ValueError, TypeError, RecursionError) as error:
        raise PaddockError(f"the list of files cannot be read: {error}") from error
    refuse_unsafe_entries(entries)
    return PackageManifest(entries)


def listed(items: list[str]) -> str:
    """Return the first of the problems, and how many more there are."""
    more = f"; and {len(items) - SHOWN_MAX} more" if len(items) > SHOWN_MAX else ""
    return "; ".join(items[:SHOWN_MAX]) + more


def shown(path: str) -> str:
    """Return a path as people can read it, on one line, whatever its letters.

    >>> print(shown("训练/a.py"), shown("a b"), shown("a" + chr(10) + "b"))
    训练/a.py 'a b' 'a\\nb'
    """
    is_plain = path.isprintable() and not any(c in " '\"\\" for c in path)
    return path if is_plain and path else ascii(path) if not path.isprintable() else repr(path)


def changed_problem(path: str) -> Problem:
    """Return the problem of a file that has changed since it was listed."""
    return Problem(
        f"another program changed {shown(path)} while it was sent",
        "name it in .paddockignore, or have it written outside of the package",
    )


def raw(path: str) -> bytes:
    """Return a path in the kernel's bytes. Raises UnicodeEncodeError for text that has none."""
    return path.encode("utf-8", "surrogateescape")


def refuse_unsafe_entries(entries: Iterable[PackageEntry]) -> None:
    """Raise PaddockError with a sentence for each entry that must not be made on a host."""
    found: list[str] = []
    kinds: dict[str, str] = {}
    links: dict[str, str] = {}
    for entry in entries:
        if not _is_safe(entry, kinds):
            found.append(f"{shown(entry.path)} is not safe")
        kinds[entry.path] = entry.kind
        if entry.kind == "link":
            links[entry.path] = entry.target
    for path in links:
        if leads_outside(path, links):
            found.append(f"{shown(path)} leads outside of the package: {shown(links[path])}")
    if found:
        raise PaddockError("the list of files is refused: " + listed(found))


def leads_outside(path: str, links: Mapping[str, str]) -> bool:
    """Return True if a path, followed as the kernel does, leaves the root or never ends.

    links: path -> target of all links below the root.

    >>> leads_outside("a", {"a": "../b"}), leads_outside("a/b", {"a/b": "../c", "c": "d"})
    (True, False)
    """
    todo = path.split("/")[::-1]
    at: list[str] = []
    hops = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        target = links.get("/".join(at))
        if target is None:
            continue
        hops += 1
        if hops > HOPS_MAX or target.startswith("/"):
            return True
        at.pop()
        todo += target.split("/")[::-1]
    return False


def _is_safe(entry: PackageEntry, kinds: Mapping[str, str]) -> bool:
    """Return True if an entry can be made below the package. kinds: of the entries before it."""
    parent, _, _ = entry.path.rpartition("/")
    parts = entry.path.split("/")
    try:
        names = [raw(part) for part in parts]
        target = raw(entry.target)
    except UnicodeEncodeError:
        return False
    return (
        not {"", ".", ".."}.intersection(parts)
        and b"\0" not in b"".join(names) + target
        and max(map(len, names)) <= NAME_BYTES_MAX
        and parts[0] != RESERVED
        and entry.path not in kinds
        and (not parent or kinds.get(parent) == "dir")
        and entry.kind in ("file", "dir", "link")
        and 0 <= entry.mode <= 0o777
        and entry.size >= 0
        and (entry.kind != "file" or (len(entry.sha256) == 64 and _HEX.issuperset(entry.sha256)))
        and (entry.kind != "link" or entry.target != "")
    )
