"""The manifest of files that `paddock data` has written, and how all are published at once.

Rule: no file stands under its name before all are on the disk; the manifest comes last.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from paddock.data.chunks import MANIFEST
from paddock.errors import PaddockError, Problem, UsageError
from paddock.ps.storage.files import hash_of, remove_tree, sync_files, sync_path, writing

VERSION = 1


@dataclass(frozen=True)
class Shard:
    """A file of a manifest. count: its lines, rows or examples. xxh3: of its bytes, 64 bits."""

    name: str
    count: int
    bytes: int
    xxh3: str


@dataclass(frozen=True)
class Manifest:
    """The content of a directory. facts: how it was made, and what is known about it."""

    kind: str
    shards: tuple[Shard, ...]
    facts: dict[str, object] = field(default_factory=dict)
    unit: str = "examples"  # what is counted: examples, lines, rows

    def as_json(self) -> dict[str, object]:
        """The manifest as it is written."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "unit": self.unit,
            "count": sum(shard.count for shard in self.shards),
            "bytes": sum(shard.bytes for shard in self.shards),
            **self.facts,
            "files": [asdict(shard) for shard in self.shards],
        }


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a directory; None where it has none of ours.

    Raises: PaddockError where it is damaged or of another version.
    """
    path = directory / MANIFEST
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PaddockError(f"'{path}' cannot be read: {error}", hint="make the shards again") from (
            error
        )
    if not isinstance(value, dict) or not {"version", "kind", "files"} <= value.keys():
        return None  # Of another program.
    if value["version"] != VERSION:
        message = f"'{path}' has version {value['version']}, this paddock reads {VERSION}"
        raise PaddockError(message, hint="read it with the paddock that wrote it")
    try:
        shards = tuple(Shard(**shard) for shard in value["files"])
    except TypeError as error:
        raise PaddockError(f"'{path}' is damaged: {error}", hint="make the shards again") from error
    known = ("version", "kind", "files", "count", "bytes", "unit")
    facts = {key: fact for key, fact in value.items() if key not in known}
    return Manifest(value["kind"], shards, facts, value.get("unit", "examples"))


def file_hash(path: Path) -> str:
    """xxh3 of a file's bytes as 16 hexadecimal digits (what `xxhsum -H3` prints)."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return hash_of(b"")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            view = memoryview(data)
            try:
                return hash_of(view)
            finally:
                view.release()


# ---------------------------------------------------------------------------------------- publish


def refuse_taken(directory: Path, names: Iterable[str]) -> None:
    """Raises: UsageError naming a file of these, or a manifest, that is there already."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"'{directory}' is a file", hint="choose a directory with --out")
    taken = [name for name in (*names, MANIFEST) if (directory / name).exists()]
    if taken:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        message = f"already there: '{directory / taken[0]}'{more}"
        raise UsageError.of([Problem(message, "choose another --out, or remove what is there")])


@contextmanager
def publishing(directory: Path, what: str) -> Iterator[Path]:
    """A directory to fill; when all is well its files get their names in `directory`.

    A new directory appears with all of them at once; in one that is there they appear one after
    another, the manifest last. What a killed process left half made is removed by the next one.
    Raises: PaddockError naming `what` when it cannot be written.
    """
    with writing(what, directory):
        # Not renamed over one that is there and empty: it may be a mount, or where a shell stands.
        is_new = not directory.exists()
        parent = directory.parent if is_new else directory
        parent.mkdir(parents=True, exist_ok=True)
        stem = f".{directory.name}-paddock-"
        with aside(parent, stem, sweep=stem) as temporary:
            yield temporary
            sync_files(temporary)
            sync_path(temporary)
            if is_new and not directory.exists():
                temporary.rename(directory)
            else:
                _move(temporary, directory)
            sync_path(parent)


@contextmanager
def aside(parent: Path, stem: str, *, sweep: str) -> Iterator[Path]:
    """A directory to fill and rename; what is left of it goes.

    sweep: those of processes that have gone, whose names begin so, go first.
    """
    _sweep(parent, sweep)
    temporary = parent / f"{stem}{os.getpid()}.tmp"
    temporary.mkdir()
    held = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield temporary
    finally:
        remove_tree(temporary)
        os.close(held)


def _move(source: Path, directory: Path) -> None:
    """Raises: UsageError where another process has filled it since."""
    names = sorted(path.name for path in source.iterdir() if path.name != MANIFEST)
    held = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        refuse_taken(directory, names)
        for name in (*names, MANIFEST):
            (source / name).rename(directory / name)
    finally:
        os.close(held)
    source.rmdir()


def _sweep(parent: Path, stem: str) -> None:
    """Removes directories of processes that have gone: nobody holds their lock."""
    for path in parent.glob(f"{stem}*.tmp"):
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            remove_tree(path)
        finally:
            os.close(held)


def write_manifest(
    directory: Path,
    kind: str,
    counts: Mapping[str, int],
    facts: dict[str, object],
    unit: str = "examples",
) -> Manifest:
    """Writes the manifest of the files in a directory. counts: of each file, in `unit`."""
    paths = [(directory / name, count) for name, count in counts.items()]
    shards = [Shard(p.name, count, p.stat().st_size, file_hash(p)) for p, count in paths]
    manifest = Manifest(kind, tuple(shards), facts, unit)
    text = json.dumps(manifest.as_json(), indent=1)
    (directory / MANIFEST).write_text(text + "\n", "utf-8")
    return manifest
