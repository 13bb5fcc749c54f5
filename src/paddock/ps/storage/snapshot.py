"""A server's own snapshots: its whole state at one record.

    snap-<lsn>/manifest.json  s-<table>-<shard>.bin ...  state.bin

Recovery applies the records above it. A snapshot is written under another name and renamed when
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from paddock.errors import PaddockError
from paddock.ps.spec import TableSpec, from_json, to_json
from paddock.ps.storage.arrays import Arrays, WrittenFile, open_arrays, write_arrays
from paddock.ps.storage.files import (
    DamageError,
    new_directory,
    read_json,
    remove_tree,
    sync_files,
    write_json,
)

FORMAT = 3
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The state beside tables: identity windows, steps, offsets, contributions held apart.

    lsn: the records up to this one are in it. values: JSON. arrays: what is too large for JSON.
    """

    lsn: int
    values: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)


class ShardEntry(NamedTuple):
    """A shard in the manifest."""

    table: str
    shard: int
    written: WrittenFile


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole, verified snapshot on the disk."""

    path: Path
    server: int
    specs: tuple[TableSpec, ...]
    state: SnapshotState
    shards: tuple[ShardEntry, ...]

    def check_log(self, first: int, last: int, directory: Path | str) -> None:
        """Raises PaddockError when a log of records [first, last] lacks some that are needed.

        One that ends below the snapshot would give other records the numbers of those in it.
        """
        lsn, hint = self.state.lsn, "were files removed? start from a replica, or load a checkpoint"
        needs = f"needs those from {lsn + 1} on" if first > lsn + 1 else f"holds those up to {lsn}"
        if first > lsn + 1 or last < lsn:
            raise PaddockError(
                f"the log in {directory} holds records {first} to {last}, its snapshot {needs}",
                hint=f"{hint} in an empty directory",
            )

    def read(self, entry: ShardEntry) -> Arrays:
        """A shard's arrays, in fresh memory. Raises DamageError."""
        with open_arrays(self.path, entry.written) as file:
            return file.read()


# --------------------------------------------------------------------------------------- writing


def save_snapshot(
    directory: Path | str,
    *,
    server: int,
    specs: Sequence[TableSpec],
    owned: Mapping[str, Sequence[int]],
    state: SnapshotState,
    take: Callable[[str, int], Arrays],
    make_durable: Callable[[int], object] | None = None,
    keep: int = 2,
) -> Snapshot:
    """Writes a snapshot and removes those older than the `keep` newest.

    take(table, shard) gives an owned shard as it was at the state's lsn, and is called once each.
    make_durable (Log.wait_durable) is called before the snapshot is whole: a snapshot on the disk
    of a log that is not would, after a power cut, give the same lsns to other records. Older
    snapshots are kept in case this one gets damaged, and need the log from log_floor on.
    Raises PaddockError when it cannot be written; the snapshots before it stay.
    """
    directory = Path(directory)
    path = directory / snapshot_name(state.lsn)
    if path.exists():  # Nothing happened since, or it is damaged.
        try:
            found = open_snapshot(path)
        except DamageError:
            remove_tree(path)
        else:
            _remove_old(directory, keep)
            return found
    with new_directory(path, "cannot save a snapshot") as temporary:
        shards = [
            ShardEntry(
                spec.name,
                shard,
                write_arrays(
                    temporary / f"s-{index}-{shard}.bin", take(spec.name, shard), sync=False
                ),
            )
            for index, spec in enumerate(specs)
            for shard in owned.get(spec.name, ())
        ]
        state_file = write_arrays(temporary / "state.bin", state.arrays, sync=False)
        sync_files(temporary)
        if make_durable is not None:
            make_durable(state.lsn)
        manifest = {
            "format": FORMAT,
            "server": server,
            "tables": [to_json(spec) for spec in specs],
            "shards": shards,
            "state": [state.lsn, state.values, state_file],
        }
        write_json(temporary / _MANIFEST, manifest)
    _remove_old(directory, keep)
    return Snapshot(path, server, tuple(specs), state, tuple(shards))


def _remove_old(directory: Path, keep: int) -> None:
    for old in list_snapshots(directory)[keep:]:
        remove_tree(old)


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
    return min((int(path.name[-20:]) + 1 for path in list_snapshots(directory)), default=0)


# --------------------------------------------------------------------------------------- reading


def open_snapshot(path: Path) -> Snapshot:
    """The snapshot in this directory, every byte of it verified. Raises DamageError."""
    data, _ = read_json(path / _MANIFEST, "manifest", FORMAT)
    shards = tuple(ShardEntry(table, n, WrittenFile(*file)) for table, n, file in data["shards"])
    for entry in shards:
        with open_arrays(path, entry.written) as file:
            file.verify()
    lsn, values, written = data["state"]
    with open_arrays(path, WrittenFile(*written)) as file:
        state = SnapshotState(lsn, values, file.read())
    return Snapshot(path, data["server"], tuple(map(from_json, data["tables"])), state, shards)


def newest_snapshot(directory: Path | str) -> tuple[Snapshot | None, list[str]]:
    """The newest whole snapshot (None: there is none at all) and one line per damaged one.

    Raises DamageError when there are some and all are damaged.
    """
    warnings: list[str] = []
    for path in list_snapshots(directory):
        try:
            return open_snapshot(path), warnings
        except DamageError as error:
            warnings.append(f"snapshot {path.name} is not used: {error.message}")
    if warnings:
        raise DamageError(
            f"no snapshot in {directory} is whole: " + "; ".join(warnings),
            hint="start from a replica, or from a checkpoint in an empty --data-dir",
        )
    return None, []
