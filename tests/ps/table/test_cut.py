"""A table as it was at one record, while it goes on changing."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable
from paddock.ps.table.states import State
from ps.engines import ENGINES, engine

ADAGRAD = OptimizerSpec("adagrad", 0.1)
SPECS = {
    "plain": SparseSpec("t", 3, ADAGRAD, shards=4),
    "evicts": SparseSpec("t", 3, ADAGRAD, shards=4, max_rows=60, eviction="lru"),
    "counts": SparseSpec(
        "t", 3, ADAGRAD, shards=4,
        accessor=AccessorSpec(statistics=True, decay=0.5, delete_score=0.2, admit_count=2),
    ),
}  # fmt: skip


def change(table: SparseTable, draw: np.random.Generator, lsn: int) -> None:
    """One record of any kind."""
    keys = np.unique(draw.integers(0, 200, 30))
    grads = draw.normal(size=(len(keys), 3)).astype(np.float32)
    kind = draw.integers(10)
    if kind < 6:
        table.push(keys, grads, lr=Rate(0.1), now=float(lsn), lsn=lsn)
    elif kind == 6:
        table.set(keys, grads, now=float(lsn), lsn=lsn)
    elif kind == 7:
        table.add(keys, grads, now=float(lsn), lsn=lsn)
    elif kind == 8:
        table.shrink(int(draw.integers(4)), now=float(lsn), lsn=lsn)
    else:
        shard = int(draw.integers(4))
        table.load_shard(shard, table.shard_state(shard))


def same(one: State, two: State) -> bool:
    """Byte for byte."""
    return one.keys() == two.keys() and all(
        one[name].tobytes() == two[name].tobytes() for name in one
    )


@ENGINES
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", range(5))
def test_a_cut_is_of_its_record_whatever_comes_after(name: str, seed: int, compiled: bool) -> None:
    """Rows changed, added, dropped, decayed and replaced, before and between the taking."""
    draw, spec = np.random.default_rng(seed), SPECS[name]
    with engine(compiled):
        table = SparseTable(spec, Updater(spec.optimizer, 3))
    for lsn in range(1, 30):
        change(table, draw, lsn)
    before = [table.shard_state(shard) for shard in range(4)]
    cut = table.begin_cut(29, range(4))
    lsn = 29
    for shard in draw.permutation(4).tolist():
        for _ in range(int(draw.integers(8))):
            lsn += 1
            change(table, draw, lsn)
        assert same(table.cut_state(cut, shard), before[shard]), shard
        with pytest.raises(KeyError):
            table.cut_state(cut, shard)
    table.end_cut(cut)
    with pytest.raises(KeyError):
        table.cut_state(cut, 0)


def test_two_cuts_do_not_know_of_each_other() -> None:
    """A snapshot while a checkpoint is written; bytes put aside count until they are taken."""
    spec, draw = SPECS["evicts"], np.random.default_rng(1)
    table = SparseTable(spec, Updater(spec.optimizer, 3))
    cuts, before = [], []
    for lsn in range(1, 90):
        if lsn in (30, 40):
            before.append([table.shard_state(shard) for shard in range(4)])
            cuts.append(table.begin_cut(lsn - 1, range(4)))
        change(table, draw, lsn)
    assert cuts[0].nbytes > 0 < cuts[1].nbytes
    kept = table.nbytes
    for shard in range(4):
        for cut, was in zip(cuts, before, strict=True):
            assert same(table.cut_state(cut, shard), was[shard])
    assert cuts[0].nbytes == cuts[1].nbytes == 0 and table.nbytes < kept
    table.end_cut(cuts[0])
    assert table.begin_cut(89, [2]) is not cuts[1]
    table.end_cut()
    with pytest.raises(KeyError):
        table.cut_state(cuts[1], 2)


def test_a_shard_that_goes_away_is_in_the_cut() -> None:
    """It was here at that record."""
    spec = SPECS["plain"]
    table = SparseTable(spec, Updater(spec.optimizer, 3))
    table.push(np.arange(50), np.ones((50, 3), np.float32), lr=Rate(0.1), now=0, lsn=1)
    before = table.shard_state(2)
    cut = table.begin_cut(1, [1, 2])
    table.drop_shard(2)
    assert same(table.cut_state(cut, 2), before)
    with pytest.raises(KeyError):
        table.cut_state(cut, 0)


def test_a_dense_cut_is_a_copy() -> None:
    """Pushes after it are not in it."""
    spec = DenseSpec("d", 8, shards=2)
    table = DenseTable(spec, range(2))
    cut = table.begin_cut(1, [0, 1])
    table.push(0, np.ones(8, np.float32), lr=Rate(1.0))
    assert not table.cut_state(cut, 1)["values"].any()
    table.end_cut(cut)
    with pytest.raises(KeyError):
        table.cut_state(cut, 0)
