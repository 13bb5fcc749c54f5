"""The index against a dict, over random histories; block allocation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.table.index import Blocks, DictIndex, FlatIndex
from paddock.ps.table.sharding import shard_of

needs_numba = pytest.mark.skipif(not HAVE_NUMBA, reason="its loops are for numba")
EDGES = [-(2**63), 2**63 - 1, 0, -1, 1, -2]
KEYS = st.one_of(st.sampled_from(EDGES), st.integers(0, 40), st.integers(-(2**63), 2**63 - 1))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["make", "remove", "clear", "reserve"]),
        st.lists(KEYS, max_size=40, unique=True),
    ),
    max_size=40,
)


def keys_of(*values: int) -> np.ndarray:
    """int64 keys."""
    return np.array(values, np.int64)


def shard_list(index: FlatIndex | DictIndex, shards: int) -> dict[int, int]:
    """All that is in the index."""
    found: dict[int, int] = {}
    for shard in range(shards):
        keys, rows = index.entries(shard)
        assert (shard_of(keys, shards) == shard).all()
        assert len(keys) == index.live_in(shard)
        found.update(zip(keys.tolist(), rows.tolist(), strict=True))
    return found


@pytest.mark.parametrize("kind", [pytest.param("flat", marks=needs_numba), "dict"])
@pytest.mark.parametrize("shards", [1, 4, 64])
@given(steps=STEPS)
@settings(max_examples=40)
def test_index_does_what_a_dict_does(kind: str, shards: int, steps: list) -> None:
    """Any history of makes and removes: every key has one row, and no two keys the same."""
    index = FlatIndex(shards, 100) if kind == "flat" else DictIndex(shards)
    model: dict[int, int] = {}
    for what, values in steps:
        keys = keys_of(*values)
        if what == "make":
            rows, fresh = index.make(keys)
            assert [values[i] for i in fresh] == [k for k in values if k not in model]
            for key, row in zip(values, rows.tolist(), strict=True):
                assert model.setdefault(key, row) == row
        elif what == "remove":
            index.remove(keys)
            for key in values:
                model.pop(key, None)
        elif values and what == "clear":
            shard = int(shard_of(keys, shards)[0])
            index.clear(shard)
            model = {
                k: r for k, r in model.items() if int(shard_of(keys_of(k), shards)[0]) != shard
            }
        elif values:
            index.reserve(keys.repeat(10))
        assert index.live == len(model) <= index.top
        assert index.find(keys).tolist() == [model.get(key, -1) for key in values]
    assert shard_list(index, shards) == model
    assert len(set(model.values())) == len(model)
    assert all(0 <= row < index.top for row in model.values())


@needs_numba
def test_both_indexes_hand_out_the_same_rows() -> None:
    """A server with numba and one without must go through the same states."""
    flat, plain = FlatIndex(4, 100), DictIndex(4)
    rng = np.random.default_rng(3)
    for _ in range(100):
        keys = rng.choice(np.arange(-300, 300), 30, replace=False)
        if rng.random() < 0.6:
            for mine, other in zip(flat.make(keys), plain.make(keys), strict=True):
                assert mine.tolist() == other.tolist()
        else:
            flat.remove(keys)
            plain.remove(keys)
    assert shard_list(flat, 4) == shard_list(plain, 4)


@needs_numba
def test_keys_with_the_same_low_hash_bits_are_told_apart() -> None:
    """A shard whose keys are made to collide gets slow, never wrong."""
    pool = np.arange(200_000)
    one_shard = pool[shard_of(pool, 64) == 5][:2000]
    index = FlatIndex(64, 100)
    rows, _ = index.make(one_shard)
    index.remove(one_shard[::2].copy())
    assert (index.find(one_shard[::2].copy()) == -1).all()
    assert index.find(one_shard[1::2].copy()).tolist() == rows[1::2].tolist()


@needs_numba
def test_removed_rows_are_used_again() -> None:
    """A table that drops as many rows as it makes does not grow."""
    index = FlatIndex(64, 100)
    index.make(np.arange(1000))
    for start in range(1000, 20_000, 500):
        index.remove(np.arange(start - 1000, start - 500))
        index.make(np.arange(start, start + 500))
    assert (index.live, index.top) == (1000, 1000)


@needs_numba
def test_outgrown_blocks_are_joined_and_used_again() -> None:
    """Growth of 64 shards leaves no more room behind than it uses."""
    index = FlatIndex(64, 1_000_000)
    index.make(np.arange(300_000))
    assert index._blocks.end * 16 <= 2 * index.nbytes
    assert index.nbytes <= 300_000 * 16 * 4


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60))
@settings(max_examples=60)
def test_blocks_never_overlap(steps: list) -> None:
    """Two shards in the same slots would mix their keys."""
    blocks = Blocks()
    used: list[tuple[int, int]] = []
    for take, power in steps:
        if take or not used:
            size = 1 << power
            offset = blocks.take(size)
            assert offset % size == 0
            used.append((offset, size))
        else:
            blocks.give(*used.pop(power % len(used)))
        taken = [i for offset, size in used for i in range(offset, offset + size)]
        assert len(taken) == len(set(taken))
        assert blocks.used == len(taken)
        assert max(taken, default=-1) < blocks.end
