"""Compiles the tables' loops, or loads them from numba's cache, before the first request."""

from __future__ import annotations

import numpy as np

from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.table.sharding import group, sum_by, unique
from paddock.ps.table.sparse import SparseTable


def warm_server() -> None:
    """What a server runs: pull, push, drop, save. Optimizers: Updater.warm. No-op without numba."""
    if not HAVE_NUMBA:
        return
    spec = SparseSpec("warm", 4, OptimizerSpec("sgd"))
    table = SparseTable(spec, Updater(spec.optimizer, spec.dim))
    keys = np.arange(4, dtype=np.int64)
    rows = np.zeros((4, 4), np.float32)
    table.push(keys, rows, lr=0.0, now=0, lsn=1)
    table.pull(keys, rows)
    table.shard_state(0)
    for shard in range(spec.shards):
        table.drop_shard(shard)


def warm_client() -> None:
    """What a client runs on each batch. No-op without numba."""
    if not HAVE_NUMBA:
        return
    keys, inverse = unique(np.arange(4, dtype=np.int64))
    sum_by(inverse, len(keys), np.zeros((4, 2), np.float32))
    group(keys, np.zeros(64, np.int32), 1)
