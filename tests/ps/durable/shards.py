"""Builders of shards for the tests of snapshots and checkpoints."""

from __future__ import annotations

import numpy as np

from paddock.ps.durable.arrays import Arrays
from paddock.ps.spec import DenseSpec, OptimizerSpec, SparseSpec

WIDE = SparseSpec("wide", 3, OptimizerSpec("adagrad", 0.1), shards=8)
DEEP = DenseSpec("deep", 50, shards=8)
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


def make_job(seed: int, lsn: int = 5) -> dict[tuple[str, int], Arrays]:
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
