"""A server's own snapshots: all its shards, each with the log position it was copied at.

    snap-<lsn>/manifest.json  s-<table>-<shard>.bin ...  state.bin

Shards are copied one at a time while pushes go on, so each has its own lsn; recovery applies to
a shard the records above that. A snapshot is written under another name and renamed when whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.durable.arrays import Arrays, Written, open_arrays, write_arrays
from paddock.ps.durable.files import (
    DamageError,
    read_json,
    remove_tree,
    sync_files,
    sync_path,
    write_error,
    write_json,
)
from paddock.ps.spec import TableSpec, from_json, to_json

FORMAT = 1
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class State:
    """What is no table's: identity windows, steps, positions, contributions held apart.

    lsn: the records up to this one are in it. values: JSON. arrays: what is too large for JSON.
    """

    lsn: int
    values: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard in the manifest. lsn: the records up to this one are in it."""

    table: str
    shard: int
    lsn: int
    rows: int
    written: Written


@dataclass(frozen=True, slots=True)
class Plan:
    """Which records recovery applies where: those above what each part holds already."""

    state_lsn: int
    floors: dict[str, NDArray[np.int64]]

    @property
    def first(self) -> int:
        """The first record to read."""
        return 1 + min([self.state_lsn, *(int(f.min()) for f in self.floors.values() if f.size)])

    @property
    def settled(self) -> int:
        """Records above this one are applied whole, with no question asked."""
        return max([self.state_lsn, *(int(f.max()) for f in self.floors.values() if f.size)])

    def check_log(self, first: int, last: int, directory: Path | str) -> None:
        """Raises PaddockError when a log of records [first, last] lacks some that are needed.

        One that ends below `settled` would number new records like those that parts hold already.
        """
        where = f"the log in {directory} holds records {first} to {last}, its snapshot"
        hint = (
            "were files removed? start from a replica, or load a checkpoint in an empty directory"
        )
        if first > self.first:
            raise PaddockError(f"{where} needs those from {self.first} on", hint=hint)
        if last < self.settled:
            raise PaddockError(f"{where} holds some up to {self.settled}", hint=hint)

    def wants(self, table: str, shard: int, lsn: int) -> bool:
        """Whether the shard lacks this record; a table the snapshot does not know lacks all."""
        return table not in self.floors or lsn > int(self.floors[table][shard])

    def wanted(self, table: str, shards: NDArray[Any], lsn: int) -> NDArray[np.bool_]:
        """The same for the shard of each key of a push: (n,) bool."""
        if table not in self.floors:
            return np.ones(len(shards), np.bool_)
        result: NDArray[np.bool_] = self.floors[table][shards] < lsn
        return result


def make_plan(
    state_lsn: int, specs: Sequence[TableSpec], lsns: Mapping[tuple[str, int], int]
) -> Plan:
    """The plan of a snapshot. A shard the snapshot lacks was empty at the state's lsn.

    >>> from paddock.ps.spec import SparseSpec
    >>> plan = make_plan(5, [SparseSpec("a", 4, shards=2)], {("a", 0): 7})
    >>> plan.wants("a", 0, 7), plan.wants("a", 1, 7), plan.first, plan.settled
    (False, True, 6, 7)
    """
    floors = {spec.name: np.full(spec.shards, state_lsn, np.int64) for spec in specs}
    for (table, shard), lsn in lsns.items():
        floors[table][shard] = lsn
    return Plan(state_lsn, floors)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole, verified snapshot on the disk."""

    path: Path
    server: int
    specs: tuple[TableSpec, ...]
    state: State
    shards: tuple[ShardEntry, ...]

    @property
    def plan(self) -> Plan:
        """What to apply from the log."""
        lsns = {(one.table, one.shard): one.lsn for one in self.shards}
        return make_plan(self.state.lsn, self.specs, lsns)

    def read(self, entry: ShardEntry) -> Arrays:
        """One shard's arrays, in fresh memory. Raises DamageError."""
        with open_arrays(self.path, entry.written) as file:
            return file.read()


# --------------------------------------------------------------------------------------- writing


def save_snapshot(
    directory: Path | str,
    *,
    server: int,
    specs: Callable[[], Sequence[TableSpec]],
    owned: Callable[[], Mapping[str, Sequence[int]]],
    take_state: Callable[[], State],
    take: Callable[[str, int], tuple[int, Arrays]],
    make_durable: Callable[[int], object] | None = None,
    keep: int = 2,
) -> Snapshot:
    """Writes a snapshot and removes those older than the `keep` newest.

    take_state is called first, take(table, shard) -> (lsn, copies) once for each owned shard; the
    server holds its lock within each call only. specs and owned are called after it: a table
    created meanwhile must not be missing, for the record that created it may be below the state's
    lsn.
    make_durable (Log.wait_durable) is called with the highest lsn of any part before the snapshot
    is whole: a snapshot on the disk of a log that is not would, after a power cut, give the same
    lsns to other records, which recovery would then skip.
    Older snapshots are kept for the case that this one gets damaged, and need the log from
    log_floor on.
    Raises PaddockError when it cannot be written; the snapshots before it stay.
    """
    directory = Path(directory)
    state = take_state()
    path = directory / snapshot_name(state.lsn)
    temporary = path.with_suffix(".tmp")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob("snap-*.tmp"):
            remove_tree(leftover)
        if path.exists():  # Nothing happened since, or it is damaged.
            try:
                return open_snapshot(path)
            except DamageError:
                remove_tree(path)
        temporary.mkdir()
        tables = specs()
        shards = _write_shards(temporary, tables, owned(), take)
        state_file = write_arrays(temporary / "state.bin", state.arrays, sync=False)
        sync_files(temporary)
        if make_durable is not None:
            make_durable(max([state.lsn, *(one.lsn for one in shards)]))
        manifest = {
            "format": FORMAT,
            "server": server,
            "tables": [to_json(spec) for spec in tables],
            "shards": [[one.table, one.shard, one.lsn, one.rows, *one.written] for one in shards],
            "state": {"lsn": state.lsn, "values": state.values, "arrays": list(state_file)},
        }
        write_json(temporary / _MANIFEST, manifest)
        temporary.rename(path)
        sync_path(directory)
    except OSError as error:
        remove_tree(temporary)
        raise write_error("cannot save a snapshot", directory, error) from error
    except BaseException:
        remove_tree(temporary)
        raise
    for old in list_snapshots(directory)[keep:]:
        remove_tree(old)
    return Snapshot(path, server, tuple(tables), state, tuple(shards))


def snapshot_name(lsn: int) -> str:
    """The directory's name.

    >>> snapshot_name(12)
    'snap-00000000000000000012'
    """
    return f"snap-{lsn:020d}"


def list_snapshots(directory: Path | str) -> list[Path]:
    """The directories of whole snapshots, newest first."""
    return sorted(Path(directory).glob("snap-" + "[0-9]" * 20), reverse=True)


def log_floor(directory: Path | str) -> int:
    """The first record that some kept snapshot still needs: what Log.cut may be given."""
    floors = []
    for path in list_snapshots(directory):
        try:
            floors.append(_read_manifest(path)[0].plan.first)
        except DamageError:
            continue
    return min(floors, default=0)


def _write_shards(
    directory: Path,
    specs: Sequence[TableSpec],
    owned: Mapping[str, Sequence[int]],
    take: Callable[[str, int], tuple[int, Arrays]],
) -> list[ShardEntry]:
    entries = []
    for index, spec in enumerate(specs):
        for shard in owned.get(spec.name, ()):
            lsn, arrays = take(spec.name, shard)
            written = write_arrays(directory / f"s-{index}-{shard}.bin", arrays, sync=False)
            entries.append(ShardEntry(spec.name, shard, lsn, row_count(arrays), written))
    return entries


def row_count(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Rows of a shard: the length of its keys, else of its first array."""
    first = arrays.get("keys", next(iter(arrays.values()), None))
    return 0 if first is None else len(first) if first.ndim else 1


# --------------------------------------------------------------------------------------- reading


def open_snapshot(path: Path) -> Snapshot:
    """The snapshot in this directory, every byte of it verified. Raises DamageError."""
    snapshot, state_file = _read_manifest(path)
    for entry in snapshot.shards:
        with open_arrays(path, entry.written) as file:
            file.verify()
    with open_arrays(path, state_file) as file:
        file.verify()
        snapshot.state.arrays.update(file.read())
    return snapshot


def newest_snapshot(directory: Path | str) -> tuple[Snapshot | None, list[str]]:
    """The newest whole snapshot (None: there is none at all) and one line per damaged one.

    Raises DamageError when there are some and all are damaged.
    """
    warnings: list[str] = []
    for path in list_snapshots(directory):
        try:
            snapshot = open_snapshot(path)
        except DamageError as error:
            warnings.append(f"snapshot {path.name} is not used: {error.message}")
            continue
        return snapshot, warnings
    if warnings:
        raise DamageError(
            f"no snapshot in {directory} is whole: " + "; ".join(warnings),
            hint="start from a replica, or from a checkpoint in an empty --data-dir",
        )
    return None, []


def _read_manifest(path: Path) -> tuple[Snapshot, Written]:
    """The snapshot but for the state's arrays, and the file those are in."""
    data, _ = read_json(path / _MANIFEST, "manifest")
    if data.get("format") != FORMAT:
        raise DamageError(
            f"snapshot {path} has format {data.get('format')}, this paddock reads {FORMAT}",
            hint="start the paddock that wrote it",
        )
    shards = tuple(
        ShardEntry(table, shard, lsn, rows, Written(*written))
        for table, shard, lsn, rows, *written in data["shards"]
    )
    state = State(data["state"]["lsn"], data["state"]["values"], {})
    specs = tuple(from_json(one) for one in data["tables"])
    snapshot = Snapshot(path, data["server"], specs, state, shards)
    return snapshot, Written(*data["state"]["arrays"])
