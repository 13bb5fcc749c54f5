"""Dense tables: one row per shard, any cut."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec
from paddock.ps.table.dense import DenseTable


def make(spec: DenseSpec, shards: range | None = None) -> DenseTable:
    """A table with some shards, or all."""
    return DenseTable(spec, range(spec.shards) if shards is None else shards)


def weights(table: DenseTable) -> np.ndarray:
    """All of a whole table."""
    out = np.empty(table.spec.size, np.float32)
    table.pull(0, out)
    return out


@pytest.mark.parametrize("size", [1, 3, 4, 10, 1000])
@pytest.mark.parametrize("shards", [1, 4, 64])
def test_elementwise_rules_do_not_see_the_cut(size: int, shards: int) -> None:
    """Adagrad on shards is adagrad on the vector."""
    optimizer = OptimizerSpec("adagrad", 0.1)
    one = make(DenseSpec("w", size, optimizer, InitialSpec("normal", 1.0), shards=1))
    cut = make(DenseSpec("w", size, optimizer, InitialSpec("normal", 1.0), shards=shards))
    assert weights(cut).tolist() == weights(one).tolist()
    rng = np.random.default_rng(0)
    for _ in range(3):
        grads = rng.normal(size=size).astype(np.float32)
        one.push(0, grads.copy(), lr=Rate(0.1))
        cut.push(0, grads.copy(), lr=Rate(0.1))
    assert weights(cut).tolist() == weights(one).tolist()


def test_set_add_and_pull_take_any_range() -> None:
    """Only a push needs whole shards."""
    table = make(DenseSpec("w", 10, shards=4))
    table.set(0, np.arange(10, dtype=np.float32))
    table.add(3, np.full(4, 100, np.float32))
    out = np.empty(5, np.float32)
    table.pull(2, out)
    assert out.tolist() == [2, 103, 104, 105, 106]


def test_a_push_of_part_of_a_shard_is_refused() -> None:
    """A norm over half a gradient would be another optimizer."""
    table = make(DenseSpec("w", 10, shards=4))
    with pytest.raises(PaddockError, match="whole shards"):
        table.push(1, np.ones(4, np.float32), lr=Rate(1.0))
    assert not weights(table).any()


def test_a_server_holds_its_own_shards_only() -> None:
    """Asking for others is refused, and changes nothing."""
    table = make(DenseSpec("w", 100, shards=4), range(1, 3))
    assert table.holds(25, 75)
    assert not table.holds(24, 75)
    assert not table.holds(25, 101)
    with pytest.raises(PaddockError, match="not whole shards of this server"):
        table.pull(0, np.empty(30, np.float32))


def test_digests_of_servers_add_up() -> None:
    """The table's digest does not depend on the number of servers."""
    spec = DenseSpec("w", 100, OptimizerSpec("adagrad", 0.1), InitialSpec("normal"), shards=4)
    whole, left, right = make(spec), make(spec, range(2)), make(spec, range(2, 4))
    grads = np.linspace(-1, 1, 100, dtype=np.float32)
    whole.push(0, grads.copy(), lr=Rate(0.1))
    left.push(0, grads[:50].copy(), lr=Rate(0.1))
    right.push(50, grads[50:].copy(), lr=Rate(0.1))
    assert (left.digest() + right.digest()) % 2**64 == whole.digest()


def test_a_loaded_shard_goes_on_as_the_saved_one() -> None:
    """Weights and state travel."""
    spec = DenseSpec("w", 100, OptimizerSpec("adam", 0.1), shards=4)
    one, two = make(spec), make(spec)
    one.push(0, np.ones(100, np.float32), lr=Rate(0.1))
    for shard in one.shards:
        two.load_shard(shard, one.shard_state(shard))
    for table in (one, two):
        table.push(0, np.ones(100, np.float32), lr=Rate(0.1))
    assert one.digest() == two.digest()
    with pytest.raises(PaddockError, match="another size, dim or optimizer"):
        two.load_shard(0, {"values": np.zeros((1, 3), np.float32)})
