"""A client's work on a batch of keys: unique, sums, groups; compiled and in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.ps.jit import plain
from paddock.ps.table.sharding import _unique, deal, expand, group, shard_of, sum_by, unique
from ps.engines import engine

KEYS = st.lists(st.one_of(st.integers(-3, 12), st.integers(-(2**63), 2**63 - 1)), max_size=120).map(
    lambda values: np.array(values, np.int64)
)


@given(keys=KEYS)
@settings(max_examples=80)
def test_unique_keeps_first_seen_order(keys: np.ndarray) -> None:
    """The numpy path gives the same arrays, so the frames sent are the same."""
    distinct, inverse = unique(keys)
    assert distinct.tolist() == list(dict.fromkeys(keys.tolist()))
    assert distinct[inverse].tolist() == keys.tolist()
    with engine(compiled=False):
        plain, plain_inverse = unique(keys)
    assert plain.tolist() == distinct.tolist()
    assert plain_inverse.tolist() == inverse.tolist()


@given(keys=KEYS, dim=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_sums_have_the_same_bits_compiled_or_not(keys: np.ndarray, dim: int, seed: int) -> None:
    """Float addition depends on its order; both add a key's rows in theirs."""
    distinct, inverse = unique(keys)
    grads = np.random.default_rng(seed).normal(size=(len(keys), dim)).astype(np.float32)
    compiled = sum_by(inverse, len(distinct), grads)
    with engine(compiled=False):
        plain = sum_by(inverse, len(distinct), grads)
    assert compiled.tobytes() == plain.tobytes()
    exact = np.zeros((len(distinct), dim))
    np.add.at(exact, inverse, grads.astype(np.float64))
    np.testing.assert_allclose(compiled, exact, atol=1e-4)


@given(keys=KEYS, servers=st.integers(1, 7))
@settings(max_examples=60)
def test_groups_hold_every_position_once_and_in_order(keys: np.ndarray, servers: int) -> None:
    """Each server gets its own keys, in the order they came."""
    owner = np.zeros(64, np.int32)
    for server, shards in enumerate(deal(64, servers)):
        owner[list(shards)] = server
    order, bounds = group(keys, owner, servers)
    with engine(compiled=False):
        plain_order, plain_bounds = group(keys, owner, servers)
    assert (order.tolist(), bounds.tolist()) == (plain_order.tolist(), plain_bounds.tolist())
    of = owner[shard_of(keys, 64)]
    for server in range(servers):
        mine = order[bounds[server] : bounds[server + 1]]
        assert mine.tolist() == np.flatnonzero(of == server).tolist()


def test_a_frequent_key_does_not_change_the_numpy_sum() -> None:
    """Zipf ids: one key with thousands of rows, added one after the other."""
    rng = np.random.default_rng(0)
    keys = np.where(rng.random(6000) < 0.7, 0, rng.integers(0, 500, 6000))
    distinct, inverse = unique(keys)
    grads = rng.normal(size=(6000, 4)).astype(np.float32)
    compiled = sum_by(inverse, len(distinct), grads)
    with engine(compiled=False):
        assert sum_by(inverse, len(distinct), grads).tobytes() == compiled.tobytes()


def test_expand_is_the_inverse_of_unique() -> None:
    """Pulled rows of distinct keys become rows of all ids."""
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert expand(rows, np.array([2, 0, 2], np.int32)).tolist() == [[4, 5], [0, 1], [4, 5]]


@pytest.mark.parametrize("shards", [1, 2, 64, 4096])
def test_keys_spread_evenly_over_shards(shards: int) -> None:
    """Dense ids, strided ids and hash ids alike."""
    rng = np.random.default_rng(1)
    for keys in (np.arange(2**17), np.arange(2**17) * 64, rng.integers(-(2**62), 2**62, 2**17)):
        counts = np.bincount(shard_of(keys, shards), minlength=shards)
        assert len(counts) == shards
        expected = 2**17 / shards
        assert np.abs(counts - expected).max() <= 6 * expected**0.5


def test_shards_are_dealt_without_gap() -> None:
    """Each shard has one server, for any number of servers."""
    for servers in range(1, 65):
        dealt = deal(64, servers)
        assert [s for shards in dealt for s in shards] == list(range(64))
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


class _Counted(np.ndarray):
    """Slots that count how often they are looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("distance", [1, 610, 1932, 65536, 317811, 832040, 2**44, 10**12])
def test_keys_at_any_distance_are_found_in_few_looks(distance: int) -> None:
    """Ids of one field, or the strides of a composed key, must not all meet in a few slots."""
    keys = np.arange(2000) * distance
    slots = np.empty(4096, np.int32).view(_Counted)
    with np.errstate(over="ignore"):
        plain(_unique)(keys, slots, np.empty(2000, np.int64), np.empty(2000, np.int32))
    assert slots.looks < 4 * len(keys)
