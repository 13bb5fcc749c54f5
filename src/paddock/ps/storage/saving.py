"""Writes checkpoints (checkpoint.py reads them): begin, one part by each server, commit.

Whoever asks for the save calls begin_checkpoint and commit_checkpoint; each server write_part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from paddock.errors import PaddockError, UsageError
from paddock.ps.spec import TableSpec, to_json
from paddock.ps.storage import delta
from paddock.ps.storage.arrays import Arrays, WrittenFile, encode_arrays, write_arrays
from paddock.ps.storage.checkpoint import (
    CHAIN_MAX,
    FORMAT,
    LATEST,
    MANIFEST,
    PART,
    ROWS,
    SAME,
    WHOLE,
    Checkpoint,
    CheckpointEntry,
    list_checkpoints,
    open_checkpoint,
    read_part,
)
from paddock.ps.storage.files import (
    DamageError,
    remove_tree,
    replacing,
    sync_files,
    sync_path,
    write_json,
    writing,
)


def begin_checkpoint(directory: Path | str, step: int) -> str:
    """A fresh name for the checkpoint of this step; removes what an earlier save left undone.

    Raises PaddockError when DIR cannot be written.
    """
    directory = Path(directory)
    with writing("cannot save a checkpoint", directory):
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob("step-*.tmp"):
            remove_tree(leftover)
        first = name = f"step-{step:012d}"
        again = count(2)
        while (directory / name).exists():
            name = f"{first}.{next(again):04d}"
        (directory / (name + ".tmp")).mkdir()
    return name


def abandon_checkpoint(directory: Path | str, name: str) -> None:
    """Removes what was written of a checkpoint that will not be committed."""
    remove_tree(Path(directory) / (name + ".tmp"))


def see_checkpoint(directory: Path | str, name: str, index: int) -> Path:
    """The directory of server number `index`. Raises PaddockError when it does not see it."""
    parent = Path(directory) / (name + ".tmp")
    who = "by all servers and by the trainer that saves"
    if not parent.is_dir():
        hint = f"a checkpoint's directory must be shared {who}"
        raise PaddockError(f"server {index} does not see {parent}", hint=hint)
    if not os.access(parent, os.W_OK):
        hint = f"a checkpoint is written {who}"
        raise PaddockError(f"server {index} may not write to {parent}", hint=hint)
    return parent


def write_part(
    directory: Path | str,
    name: str,
    *,
    index: int,
    server: int,
    generation: int,
    lsn: int,
    specs: Sequence[TableSpec],
    owned: Mapping[str, Sequence[int]],
    take: Callable[[str, int], Arrays],
    state: Mapping[str, Any],
    base: Checkpoint | None = None,
) -> dict[str, Any]:
    """Writes what server number `index` owns; rows and bytes written.

    take(table, shard) gives an owned shard as it was at `lsn`, and is called once each. base: write
    a delta of it. server, generation: the identity whose lsns the versions are; a shard that the
    base has from another identity is written whole.
    Raises PaddockError when it cannot be written.
    """
    parent = see_checkpoint(directory, name, index)
    place = f"server-{index}"
    path = parent / place
    entries: list[CheckpointEntry] = []
    version = (lsn, server, generation)
    with writing("cannot save a checkpoint", parent):
        if path.exists():  # The order came twice: the connection broke, or this server died.
            remove_tree(path)
        path.mkdir()
        for number, spec in enumerate(specs):
            for shard in owned.get(spec.name, ()):
                arrays = take(spec.name, shard)
                kind, content = _choose(spec, shard, arrays, version, base)
                written = WrittenFile("", 0, "")
                if kind != SAME:
                    written = write_arrays(path / f"s-{number}-{shard}.bin", content, sync=False)
                    written = written._replace(file=f"{place}/{written.file}")
                # A dense shard is one row.
                rows = len(content[delta.KEYS]) if delta.KEYS in content else int(bool(content))
                entries.append(CheckpointEntry(spec.name, shard, kind, rows, *version, written))
        sync_files(path)
        tables = [to_json(spec) for spec in specs]
        part = {"shards": entries, "tables": tables, "state": dict(state)}
        checksum = write_json(path / PART, part)
    return {
        "checksum": checksum,
        "rows": sum(one.rows for one in entries),
        "bytes": sum(one.written.bytes for one in entries),
    }


def _choose(
    spec: TableSpec,
    shard: int,
    arrays: Arrays,
    version: tuple[int, int, int],
    base: Checkpoint | None,
) -> tuple[str, Arrays]:
    """The content of a shard's file: everything, what changed since the base, or nothing."""
    old = base.entries.get((spec.name, shard)) if base else None
    if base is None or old is None or to_json(base.spec(spec.name)) != to_json(spec):
        return WHOLE, arrays
    if delta.KEYS not in arrays:
        _, root = encode_arrays(arrays)
        unchanged = root == base.newest(spec.name, shard).written.xxh3
        return (SAME, {}) if unchanged else (WHOLE, arrays)
    comparable = (old.server, old.generation) == version[1:] and old.version <= version[0]
    rewritten = delta.REWRITTEN in arrays and int(arrays[delta.REWRITTEN][0]) > old.version
    if delta.VERSIONS not in arrays or not comparable or rewritten:
        return WHOLE, arrays
    arrays = delta.sort_rows(arrays)
    change = delta.make_delta(arrays, base.keys(spec.name, shard), old.version)
    is_same = all(delta.is_row_array(name) and not len(array) for name, array in change.items())
    return (SAME, {}) if is_same else (ROWS, change)


def commit_checkpoint(
    directory: Path | str,
    name: str,
    *,
    job: str,
    step: int,
    servers: int,
    positions: Mapping[str, Any] | None = None,
    base: Checkpoint | None = None,
    keep: int = 3,
) -> Checkpoint:
    """Makes the parts of all servers one checkpoint, the newest; removes all but `keep`.

    A base of one that is kept is kept. Raises PaddockError when a part or a shard is missing or
    two servers disagree: nothing is committed, and the checkpoint before stays the newest.
    """
    directory = Path(directory)
    path = directory / (name + ".tmp")
    if base is not None and len(list(base.bases())) + 2 > CHAIN_MAX:
        raise UsageError(
            f"checkpoint {base.path} is already {CHAIN_MAX - 1} deltas long", hint="save a full one"
        )
    parts = {f"server-{index}": read_part(path / f"server-{index}") for index in range(servers)}
    tables = parts["server-0"][0]["tables"]
    seen: dict[tuple[str, int], str] = {}
    for place, (part, _) in parts.items():
        if part["tables"] != tables:
            raise PaddockError(
                f"server-0 and {place} have different tables in {path}",
                hint="create every table on all servers before saving",
            )
        for table, shard, *_ in part["shards"]:
            if (table, shard) in seen:
                raise _moved(
                    f"shard {shard} of table {table!r} was saved by {seen[table, shard]} "
                    f"and by {place}"
                )
            seen[table, shard] = place
    for spec in tables:
        missing = [n for n in range(spec["shards"]) if (spec["name"], n) not in seen]
        if missing:
            raise _moved(
                f"no server saved shard {missing[0]} of table {spec['name']!r} "
                f"({len(missing)} are missing)"
            )
    older = sorted(_openable(directory), key=lambda one: one.serial, reverse=True)
    manifest = {
        "format": FORMAT,
        "serial": older[0].serial + 1 if older else 1,
        "job": job,
        "step": step,
        "base": {"name": base.name, "checksum": base.checksum} if base else None,
        "tables": tables,
        "parts": [[place, checksum] for place, (_, checksum) in parts.items()],
        "positions": dict(positions or {}),
    }
    with writing("cannot save a checkpoint", directory):
        write_json(path / MANIFEST, manifest)
        path.rename(directory / name)
        sync_path(directory)
        with replacing(directory / LATEST) as file:
            file.write(name.encode() + b"\n")
    checkpoint = open_checkpoint(directory, name=name)
    kept = [checkpoint, *older][: max(keep, 1)]
    needed = {one.path for top in kept for one in (top, *top.bases())}
    for one in older:
        if one.path not in needed:
            remove_tree(one.path)
    return checkpoint


def _moved(what: str) -> PaddockError:
    hint = "a shard moved during the save; save again"
    return PaddockError(what, hint=hint, retryable=True)


def _openable(directory: Path) -> list[Checkpoint]:
    """The checkpoints whose manifests are whole; damaged ones are left for a person to look at."""
    found = []
    for name in list_checkpoints(directory):
        with suppress(DamageError):
            found.append(open_checkpoint(directory, name=name))
    return found
