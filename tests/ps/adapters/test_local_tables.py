"""Tables without servers: the bits of one trainer with servers in sync, and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps.local_tables import LocalTables

ADAM = ps.OptimizerSpec("adam", 0.01, schedule=ps.ScheduleSpec("exponential", 0.9, 2))
ROWS = ps.SparseSpec("rows", 3, ADAM, ps.InitialSpec("uniform", 0.5, seed=3))
DENSE = ps.DenseSpec("dense", 10, ADAM, parts=(4, 6))


def learn(client: Any, steps: range) -> None:
    """Some batches, each of them a function of its number."""
    for spec in (ROWS, DENSE):
        client.create(spec)
    for step in steps:
        rng = np.random.default_rng(step)
        if step == 3:
            client.set_lr("rows", 0.5)
        keys = rng.choice(50, 20, replace=False)
        rows = client.pull("rows", keys)
        client.push("rows", keys, rows * 0.1 + rng.normal(size=rows.shape).astype(np.float32))
        dense = client.pull_dense("dense")
        client.push_dense("dense", dense + np.float32(step), used=[True, step % 2 == 0])
        client.step()


def test_alone_has_the_bits_of_a_trainer_with_servers() -> None:
    """Rows, optimizer state, rates and parts that a batch leaves out."""
    alone = LocalTables()
    learn(alone, range(8))
    with ps.local() as client:
        learn(client, range(8))
        assert alone.digest() == client.digest()


def test_either_goes_on_from_a_checkpoint_of_the_other(tmp_path: Path) -> None:
    """A model that was begun alone moves to servers, and comes back."""
    whole = LocalTables()
    learn(whole, range(9))
    begun = LocalTables(job="local")
    learn(begun, range(3))
    begun.save(tmp_path / "alone")
    with ps.local() as client:
        for spec in (ROWS, DENSE):
            client.create(spec)
        client.load(tmp_path / "alone")
        learn(client, range(3, 6))
        client.save(tmp_path / "served")
    after = LocalTables()
    for spec in (ROWS, DENSE):
        after.create(spec)
    after.load(tmp_path / "served")
    learn(after, range(6, 9))
    assert after.digest() == whole.digest()


def test_a_checkpoint_of_other_tables_is_refused(tmp_path: Path) -> None:
    """A width that differs is named."""
    begun = LocalTables()
    learn(begun, range(1))
    begun.save(tmp_path)
    other = LocalTables()
    other.create(ps.SparseSpec("rows", 4, ADAM, ROWS.initial))
    with pytest.raises(UsageError, match="dim is 4"):
        other.load(tmp_path)
