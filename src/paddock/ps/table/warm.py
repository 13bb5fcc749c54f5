"""Compiles the tables' loops, or loads them from numba's cache, before the first request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.table.finite import check_finite
from paddock.ps.table.initial import set_versions
from paddock.ps.table.sparse import SparseTable


def warm_server(is_over: Callable[[], bool] = lambda: False) -> None:
    """Compiles the loops of a server: pull, push, save, drop; no optimizer. No-op without numba.

    is_over: asked in between, ends it.
    """
    if not HAVE_NUMBA:
        return
    spec = SparseSpec("warm", 4, OptimizerSpec("sgd"))
    table = SparseTable(spec, Updater(spec.optimizer, spec.dim))
    keys = np.arange(4, dtype=np.int64)
    rows = np.zeros((4, 4), np.float32)
    works: tuple[Callable[[], object], ...] = (
        lambda: table.pull(keys, rows),
        lambda: check_finite("warm", rows, keys),
        lambda: table.set(keys, rows, now=0, lsn=1),  # As a push makes rows.
        lambda: set_versions(keys, np.zeros(4, np.int64), 1, rows),
        lambda: table.shard_state(0),
        *(partial(table.drop_shard, shard) for shard in range(spec.shards)),
    )
    for work in works:
        if is_over():
            return
        work()
