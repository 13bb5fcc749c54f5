"""Checkpoints of a whole job, as a user keeps them: read by any number of servers.

    DIR/LATEST                 the name of the newest whole one
    DIR/step-<n>/manifest.json job, step, base, positions, the checksum of each part
    DIR/step-<n>/server-<k>/   part.json and the files of server k, which writes them itself

WrittenFile as `step-<n>.tmp`; `commit_checkpoint` checks that every shard is there, then renames,
then moves LATEST: whenever a machine stops, LATEST names a whole checkpoint. A delta holds the rows
changed since its base and names the base by checksum. All servers must see the same DIR.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paddock.errors import Problem, UsageError
from paddock.ps.spec import TableSpec, differences, from_json
from paddock.ps.storage import delta
from paddock.ps.storage.arrays import Arrays, WrittenFile, open_arrays
from paddock.ps.storage.files import DamageError, read_json
from paddock.ps.wire.offsets import is_exact

FORMAT = 2
MANIFEST = "manifest.json"
PART = "part.json"
LATEST = "LATEST"
# Deltas on deltas: each costs a read at load.
CHAIN_MAX = 64

# What an entry's file holds.
WHOLE = "whole"  # the shard
ROWS = "rows"  # a delta of the base's shard
SAME = "same"  # no file: the shard is the base's


class CheckpointEntry(NamedTuple):
    """A shard of a checkpoint.

    rows: those in the file. version: the lsn it was copied at, on the server of that identity
    and generation; versions of two identities do not compare. written: its file is below the
    checkpoint's directory.
    """

    table: str
    shard: int
    kind: str
    rows: int
    version: int
    server: int
    generation: int
    written: WrittenFile


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on the disk, its manifests verified; each file is verified when it is read.

    states: what each server that wrote it kept beside its tables (identity windows, steps).
    positions: how far each trainer had read its data. base: what a delta builds on.
    """

    path: Path
    checksum: str
    serial: int
    job: str
    step: int
    specs: tuple[TableSpec, ...]
    positions: dict[str, Any]
    states: tuple[dict[str, Any], ...]
    entries: dict[tuple[str, int], CheckpointEntry]
    base: Checkpoint | None

    @property
    def name(self) -> str:
        """The directory's name, as LATEST has it."""
        return self.path.name

    def spec(self, table: str) -> TableSpec:
        """The table's spec. Raises UsageError naming the tables there are."""
        for one in self.specs:
            if one.name == table:
                return one
        names = ", ".join(sorted(one.name for one in self.specs)) or "none"
        raise UsageError(f"checkpoint {self.path} has no table {table!r}", hint=f"it has {names}")

    def read(self, table: str, shard: int, names: Sequence[str] | None = None) -> Arrays:
        """The shard's arrays (all, or those named) as they were copied, sparse ones by key.

        Reads the base and each delta of it. Raises DamageError naming the file.
        """
        wanted = None if names is None else (*names, delta.KEYS, delta.DELETED)
        arrays: Arrays = {}
        for checkpoint, entry in self._chain(table, shard):
            with open_arrays(checkpoint.path, entry.written) as file:
                found = file.read(wanted)
            if entry.kind == ROWS:
                arrays = delta.apply_delta(arrays, found)
            else:
                arrays = delta.sort_rows(found) if delta.KEYS in found else found
        return arrays

    def keys(self, table: str, shard: int) -> delta.Keys:
        """The sorted keys of a sparse shard, (n,) int64, read without its rows."""
        return self.read(table, shard, [delta.KEYS])[delta.KEYS]

    def newest(self, table: str, shard: int) -> CheckpointEntry:
        """The newest entry of the shard that has a file."""
        return self._chain(table, shard)[-1][1]

    def verify(self, owned: Mapping[str, Container[int]] | None = None) -> None:
        """Reads every file of the checkpoint and of its bases. Raises DamageError.

        owned: those of these shards only, by table.
        """
        for checkpoint in (self, *self.bases()):
            for entry in checkpoint.entries.values():
                is_asked = owned is None or entry.shard in owned.get(entry.table, ())
                if is_asked and entry.kind != SAME:
                    with open_arrays(checkpoint.path, entry.written) as file:
                        file.verify()

    def bases(self) -> Iterator[Checkpoint]:
        """The checkpoint it builds on, the one that builds on, and so on."""
        base = self.base
        while base is not None:
            yield base
            base = base.base

    def _chain(self, table: str, shard: int) -> list[tuple[Checkpoint, CheckpointEntry]]:
        """The files to read for a shard, oldest first: a whole one and the deltas on it."""
        if (table, shard) not in self.entries:
            shards = self.spec(table).shards
            raise UsageError(f"table {table!r} of {self.path} has {shards} shards, not {shard}")
        chain = []
        for checkpoint in [self, *self.bases()]:
            entry = checkpoint.entries.get((table, shard))
            if entry is None:
                break
            if entry.kind != SAME:
                chain.append((checkpoint, entry))
            if entry.kind == WHOLE:
                return chain[::-1]
        raise DamageError(
            f"checkpoint {self.path} is damaged: shard {shard} of table {table!r} has no base"
        )


def open_checkpoint(
    directory: Path | str, *, name: str | None = None, job: str | None = None
) -> Checkpoint:
    """The newest whole checkpoint of DIR, or the one named; DIR may be a checkpoint itself.

    Raises UsageError when there is none or it is another job's, DamageError when it is damaged.
    """
    directory = Path(directory)
    if name is None and (directory / MANIFEST).is_file():
        directory, name = directory.parent, directory.name
    if name is None:
        name = latest_name(directory)
    is_here = os.path.isdir(directory)  # Also of what can be no path at all.
    others = [one for one in list_checkpoints(directory) if one != name] if is_here else []
    hint = "others there: " + ", ".join(others[-5:]) if others else ""
    if name is None or not os.path.isdir(directory / name):
        what = "no whole checkpoint" if name is None else f"no checkpoint {name}"
        made = "checkpoints are made by client.save() and paddock ps save"
        hint = (
            hint or f"is the path right? {made if is_here else 'there is no such directory here'}"
        )
        raise UsageError(f"there is {what} in {directory}", hint=hint)
    try:
        checkpoint = _open_one(directory / name)
    except DamageError as error:
        hint = error.hint or hint or "there is no other"
        raise DamageError(error.message, hint=hint) from error
    if job is not None and checkpoint.job != job:
        raise UsageError(
            f"checkpoint {checkpoint.path} is of job {checkpoint.job!r}, this job is {job!r}",
            hint="load the right directory, or give this job that name",
        )
    return checkpoint


def latest_name(directory: Path) -> str | None:
    """The checkpoint that LATEST names; when it is missing, the last one that is whole."""
    try:
        text = (directory / LATEST).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        text = ""
    if text and "/" not in text and (directory / text / MANIFEST).is_file():
        return text
    return next(reversed(list_checkpoints(directory)), None)


def list_checkpoints(directory: Path) -> list[str]:
    """The names of the committed checkpoints, by step."""
    paths = directory.glob("step-*/" + MANIFEST)
    return sorted(one.parent.name for one in paths if not one.parent.name.endswith(".tmp"))


def read_part(path: Path) -> tuple[dict[str, Any], str]:
    """A part's description and its checksum. Raises DamageError."""
    return read_json(path / PART, "checkpoint part")


def _open_one(path: Path, deltas: int = 0) -> Checkpoint:
    """The checkpoint with its bases. deltas: those on it."""
    manifest, checksum = read_json(path / MANIFEST, "checkpoint manifest", FORMAT)
    entries: dict[tuple[str, int], CheckpointEntry] = {}
    states = []
    for place, expected in manifest["parts"]:
        part, found = read_part(path / place)
        if found != expected:
            raise DamageError(
                f"checkpoint part {path / place} has checksum {found}, the manifest has {expected}"
            )
        for *head, written in part["shards"]:
            entry = CheckpointEntry._make([*head, WrittenFile(*written)])
            entries[entry.table, entry.shard] = entry
        states.append(part["state"])
    same = {name: manifest[name] for name in ("serial", "job", "step", "positions")}
    specs, told = tuple(map(from_json, manifest["tables"])), manifest["base"]
    base = None if told is None else _open_base(path, told["name"], told["checksum"], deltas + 1)
    return Checkpoint(
        path, checksum, specs=specs, states=tuple(states), entries=entries, base=base, **same
    )


def _open_base(path: Path, name: str, checksum: str, deltas: int) -> Checkpoint:
    """The checkpoint on which the one in this directory builds."""
    base = path.parent / name
    if not base.is_dir():
        raise DamageError(f"checkpoint {path} builds on {base}, which is missing")
    if deltas >= CHAIN_MAX:
        text = f"checkpoint {path} is the {CHAIN_MAX}th of a chain, and builds on {base}"
        raise DamageError(text)
    found = _open_one(base, deltas)
    if found.checksum != checksum:
        raise DamageError(
            f"checkpoint {path} builds on {base} with checksum {checksum}, "
            f"which now has {found.checksum}"
        )
    return found


# ----------------------------------------------------------------------------- comparing specs

# What may differ between the checkpoint's table and the job's: how it goes on, not what it is.
_FREE = ("optimizer.options", "optimizer.lr", "optimizer.schedule", "optimizer.bound",
         "optimizer.clip_value", "optimizer.clip_norm", "optimizer.l1", "optimizer.l2",
         "accessor", "merge", "max_rows", "eviction")  # fmt: skip
_FIXED_WITHIN = ("accessor.statistics", "accessor.unlock_from")


def check_specs(checkpoint: Checkpoint, wanted: Sequence[TableSpec]) -> None:
    """Raises UsageError with every field in which a table of the job is not the checkpoint's.

    Tables that only the job has begin anew; those that only the checkpoint has are created by
    it. Learning rate, schedule, limits and policies may differ: the job's are used.
    """
    known = {one.name: one for one in checkpoint.specs}
    hint = "declare it as the checkpoint does, or give the new table another name"
    problems = [
        Problem(
            f"table {spec.name!r}: {field} is {mine!r}, "
            f"in checkpoint {checkpoint.path} it is {its!r}",
            hint,
        )
        for spec in wanted
        if spec.name in known
        for field, mine, its in differences(spec, known[spec.name])
        if field in _FIXED_WITHIN or not field.startswith(_FREE)
    ]
    if problems:
        raise UsageError.of(problems)


def objection_to_resume(checkpoint: Checkpoint, servers: int) -> str:
    """Why trainers cannot go on from it with each batch applied once; "" when they can."""
    marks = [state.get("marks", {}) for state in checkpoint.states]
    if is_exact(marks, servers):
        return ""
    return (
        f"{checkpoint.path} was saved by {len(marks)} servers between two positions of the "
        f"trainers: with {servers} servers, what was pushed after the positions is pushed again"
    )
