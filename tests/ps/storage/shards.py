"""Builders of shards for the tests of snapshots and checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paddock.ps.spec import DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage.arrays import Arrays
from paddock.ps.storage.checkpoint import Checkpoint
from paddock.ps.storage.saving import begin_checkpoint, commit_checkpoint, write_part
from paddock.ps.storage.snapshot import Snapshot, SnapshotState, save_snapshot
from paddock.ps.table.sharding import deal

WIDE = SparseSpec("wide", 3, OptimizerSpec("adagrad", 0.1), shards=8)
DEEP = DenseSpec("deep", 50, shards=8)
Job = dict[tuple[str, int], Arrays]
SPECS = (WIDE, DEEP)
ALL = {"wide": range(8), "deep": range(8)}


def sparse_shard(seed: int, rows: int, lsn: int) -> Arrays:
    """A shard of sorted random keys whose rows were all changed at `lsn`."""
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(-(2**62), 2**62, rows))
    return {
        "keys": keys,
        "values": rng.random((len(keys), 6), np.float32),
        "version": np.full(len(keys), lsn, np.int64),
    }


def dense_shard(seed: int) -> Arrays:
    """A shard of a dense table."""
    return {"values": np.random.default_rng(seed).random((1, 12), np.float32)}


def make_job(seed: int, lsn: int = 5) -> Job:
    """Every shard of both tables."""
    job = {("wide", n): sparse_shard(seed * 100 + n, 20 * n, lsn) for n in range(8)}
    return job | {("deep", n): dense_shard(seed * 100 + n) for n in range(8)}


def equal(one: Arrays, other: Arrays) -> bool:
    """Same names, dtypes, shapes and bytes."""
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype
        and one[name].shape == other[name].shape
        and one[name].tobytes() == other[name].tobytes()
        for name in one
    )


def save_snap(directory: Path, seed: int, lsn: int) -> Snapshot:
    """A snapshot of a whole job."""
    job = make_job(seed)
    state = SnapshotState(lsn, {"windows": {"0": [1, 2]}}, {"held": np.arange(5, dtype=np.float32)})
    return save_snapshot(
        directory, server=7, specs=SPECS, owned=ALL, state=state,
        take=lambda table, shard: job[table, shard],
    )  # fmt: skip


def write_parts(
    directory: Path, name: str, job: Job, servers: int, lsn: int, base: Checkpoint | None = None
) -> None:
    """What the servers do."""
    for index in range(servers):
        shards = deal(8, servers)[index]
        write_part(
            directory, name, index=index, server=70 + index, generation=1, specs=SPECS,
            owned={"wide": shards, "deep": shards}, state={"server": index}, base=base, lsn=lsn,
            take=lambda table, shard: job[table, shard],
        )  # fmt: skip


def save(
    directory: Path,
    job: Job,
    *,
    step: int = 1,
    servers: int = 2,
    lsn: int = 5,
    base: Checkpoint | None = None,
    keep: int = 3,
) -> Checkpoint:
    """A committed checkpoint."""
    name = begin_checkpoint(directory, step)
    write_parts(directory, name, job, servers, lsn, base)
    return commit_checkpoint(
        directory, name, job="ads", step=step, servers=servers, base=base, keep=keep,
        positions={"0": {"shard": 3, "offset": 99}},
    )  # fmt: skip
