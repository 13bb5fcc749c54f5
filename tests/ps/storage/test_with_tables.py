"""Checkpoints of real sparse tables: what the table counts as changed is all that changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import AccessorSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage.checkpoint import Checkpoint
from paddock.ps.storage.saving import begin_checkpoint, commit_checkpoint, write_part
from paddock.ps.table.sparse import SparseTable

SPEC = SparseSpec(
    "wide",
    4,
    OptimizerSpec("adagrad", 0.1),
    accessor=AccessorSpec(statistics=True, admit_count=2, decay=0.5, ttl_seconds=3),
    shards=4,
)


class Job:
    """One server with one table, its lsn and its checkpoints."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table = SparseTable(SPEC, Updater(SPEC.optimizer, SPEC.dim))
        self.rng = np.random.default_rng(7)
        self.lsn = 0

    def push(self, times: int) -> None:
        for _ in range(times):
            self.lsn += 1
            keys = np.unique(self.rng.integers(0, 400, 100))
            ones = np.ones(len(keys), np.float32)
            grads = self.rng.random((len(keys), SPEC.dim), np.float32)
            self.table.push(
                keys, grads, lr=Rate(0.1), now=self.lsn, lsn=self.lsn, shows=ones, clicks=ones
            )

    def shrink(self) -> int:
        self.lsn += 1
        return sum(self.table.shrink(n, now=self.lsn, lsn=self.lsn) for n in range(SPEC.shards))

    def save(self, base: Checkpoint | None) -> Checkpoint:
        name = begin_checkpoint(self.directory, self.lsn)
        write_part(
            self.directory, name, index=0, server=1, generation=0, specs=[SPEC], state={},
            owned={"wide": range(SPEC.shards)}, base=base, lsn=self.lsn,
            take=lambda table, shard: self.table.shard_state(shard),
        )  # fmt: skip
        return commit_checkpoint(self.directory, name, job="j", step=self.lsn, servers=1, base=base)


@pytest.mark.parametrize("shrinks", [False, True])
def test_deltas_of_a_table_load_into_an_equal_one(tmp_path: Path, shrinks: bool) -> None:
    """Through pushes, admissions, a decay and drops: the digests agree after every save."""
    job = Job(tmp_path)
    checkpoint: Checkpoint | None = None
    kinds: set[str] = set()
    for _ in range(4):
        job.push(3)
        if shrinks and checkpoint is not None:
            assert job.shrink() > 0
        checkpoint = job.save(checkpoint)
        kinds |= {one.kind for one in checkpoint.entries.values()}
        loaded = SparseTable(SPEC, Updater(SPEC.optimizer, SPEC.dim))
        for shard in range(SPEC.shards):
            loaded.load_shard(shard, checkpoint.read("wide", shard))
        assert loaded.rows == job.table.rows > 0
        assert loaded.digest() == job.table.digest()
    assert kinds == ({"whole"} if shrinks else {"whole", "rows"})
