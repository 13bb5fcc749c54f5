"""Sync contributions: whatever the timing, the cuts and the servers, the sum has the same bits."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paddock.ps.table.contributions import (
    DenseContributions,
    DenseGradients,
    SparseContributions,
    SparseGradients,
)
from paddock.ps.table.sharding import deal, shard_of, sum_by
from ps.engines import engine

DIM = 3
Floats = NDArray[np.float32]
Pushed = tuple[NDArray[np.int64], Floats, Floats, Floats]


def pushed(seed: int, rows: int, vocabulary: int) -> Pushed:
    """A trainer's rows of one step, keys repeating, magnitudes apart so that order matters."""
    rng = np.random.default_rng(seed)
    keys = rng.integers(-vocabulary, vocabulary, rows)
    scale = 10.0 ** rng.integers(-6, 6, (rows, 1))
    grads = (rng.standard_normal((rows, DIM)) * scale).astype(np.float32)
    shows, clicks = rng.integers(0, 9, (2, rows)).astype(np.float32)
    return keys, grads, shows, clicks


def merged_rows(
    trainers: Sequence[Pushed], servers: int, rng: random.Random, how: str = "mean"
) -> dict[int, bytes]:
    """key -> bits of (gradient, show, click), over any number of servers, cut and mixed by rng."""
    members = [(number, 50 + number) for number in range(len(trainers))]
    result: dict[int, bytes] = {}
    for shards in deal(64, servers):
        held = SparseContributions()
        frames = []
        for member, arrays in zip(members, trainers, strict=True):
            owner = shard_of(arrays[0], 64)
            mine = [a[(owner >= shards.start) & (owner < shards.stop)] for a in arrays]
            at, part = 0, 0
            while at < len(mine[0]):
                size = rng.randint(1, 7)
                frames.append((member, part, *(a[at : at + size] for a in mine)))
                at, part = at + size, part + 1
        frames += rng.sample(frames, len(frames) // 3)  # Sent twice.
        rng.shuffle(frames)
        for member, part, keys, grads, shows, clicks in frames:
            held.add(1, member, part, SparseGradients(keys, grads, shows, clicks))
        found = held.merge(1, rng.sample(members, len(members)), how)
        assert held.nbytes == 0
        if not found:
            continue
        (got,) = found
        assert got.shows is not None and got.clicks is not None
        for i, key in enumerate(got.keys.tolist()):
            assert key not in result, "keys are distinct, and on one server"
            result[key] = got.rows[i].tobytes() + got.shows[i].tobytes() + got.clicks[i].tobytes()
    return result


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 40)), min_size=1, max_size=4),
    st.integers(1, 20),
    st.randoms(use_true_random=False),
)
def test_sparse_sums_have_the_same_bits(
    shapes: list[tuple[int, int]], vocabulary: int, rng: random.Random
) -> None:
    """Any arrival, any cut, 1 to 3 servers, frames sent twice: the same bits per key."""
    trainers = [pushed(seed, rows, vocabulary) for seed, rows in shapes]
    first = merged_rows(trainers, 1, rng)
    for servers in (1, 2, 3):
        assert merged_rows(trainers, servers, rng) == first


def test_sparse_sums_are_those_of_the_definition() -> None:
    """Row after row within a trainer, trainer after trainer, then one division, in float32."""
    trainers = [pushed(seed, 30, 4) for seed in range(3)]
    wanted = {}
    for key in {int(k) for keys, *_ in trainers for k in keys}:
        total = np.zeros(DIM, np.float32)
        for keys, grads, *_ in trainers:
            own = np.zeros(DIM, np.float32)
            for row in grads[keys == key]:
                own = own + row
            total = total + own
        wanted[key] = (total / np.float32(3)).tobytes()
    got = merged_rows(trainers, 2, random.Random(0))
    assert {key: bits[: 4 * DIM] for key, bits in got.items()} == wanted


def test_compiled_and_plain_kernels_have_the_same_bits() -> None:
    """A server without numba must continue a job that one with numba began."""
    keys, grads, *_ = pushed(1, 500, 10**6)
    at = np.random.default_rng(0).permutation(600)[: len(keys)].astype(np.int32)
    one = np.random.default_rng(1).standard_normal((600, DIM)).astype(np.float32)
    two = one.copy()
    sum_by(at, 600, grads, out=one)
    with engine(compiled=False):
        sum_by(at, 600, grads, out=two)
    assert one.tobytes() == two.tobytes()


def test_sum_and_mean_differ_by_the_number_of_members() -> None:
    """The mean is over the members of the step, also over those that did not touch the key."""
    keys, grads = np.array([4]), np.full((1, 1), 6.0, np.float32)
    for how, wanted in (("sum", 6.0), ("mean", 2.0)):
        held = SparseContributions()
        held.add(1, (0, 1), 0, SparseGradients(keys, grads))
        (got,) = held.merge(1, [(0, 1), (1, 1), (2, 1)], how)
        assert got.rows.tolist() == [[wanted]]
        assert got.shows is None


def test_what_non_members_gave_is_dropped() -> None:
    """An expelled trainer's half step, and a dead process's, are in no sum."""
    one = np.ones((1, 1), np.float32)
    held = SparseContributions()
    held.add(1, (0, 1), 0, SparseGradients(np.array([1]), one))
    held.add(1, (1, 1), 0, SparseGradients(np.array([2]), one))
    held.add(1, (2, 1), 0, SparseGradients(np.array([3]), one))
    assert held.add(
        1, (2, 2), 1, SparseGradients(np.array([4]), one)
    )  # Started anew: the older one's is dropped.
    assert not held.add(1, (2, 1), 2, SparseGradients(np.array([5]), one))
    (got,) = held.merge(1, [(0, 1), (2, 2)], "sum")
    assert got.keys.tolist() == [1, 4]
    assert held.nbytes == 0


def test_a_step_is_merged_once_only() -> None:
    """Every trainer relays the commit; the second relay must not apply anything."""
    held = SparseContributions()
    one = np.ones((1, 1), np.float32)
    held.add(1, (0, 1), 0, SparseGradients(np.array([1]), one))
    held.add(2, (0, 1), 0, SparseGradients(np.array([1]), one))
    assert len(held.merge(1, [(0, 1)], "sum")) == 1
    assert held.merge(1, [(0, 1)], "sum") == []
    assert not held.add(1, (0, 1), 1, SparseGradients(np.array([1]), one))
    assert len(held.merge(2, [(0, 1)], "sum")) == 1


def test_held_arrays_are_copies_of_the_frame() -> None:
    """The buffer of a connection is used again for the next frame."""
    held = SparseContributions()
    keys, grads = np.array([1]), np.ones((1, 1), np.float32)
    held.add(1, (0, 1), 0, SparseGradients(keys, grads))
    keys[0], grads[0] = 9, 9
    (got,) = held.merge(1, [(0, 1)], "sum")
    assert (got.keys.tolist(), got.rows.tolist()) == ([1], [[1.0]])


def test_a_snapshot_keeps_what_is_held() -> None:
    """A server killed in the middle of a step goes on with the same contributions."""
    sparse, dense = SparseContributions(committed=2), DenseContributions(committed=2)
    for number in (1, 0):
        keys, grads, shows, clicks = pushed(number, 9, 5)
        sparse.add(3, (number, 1), 0, SparseGradients(keys, grads))
        sparse.add(3, (number, 1), 1, SparseGradients(keys, grads, shows, clicks))
        dense.add(3, (number, 1), 0, DenseGradients(4 * number, grads[0]))
    data, arrays = sparse.to_arrays()
    again, dense_again = SparseContributions(), DenseContributions()
    again.restore(json.loads(json.dumps(data)), arrays)
    assert again.nbytes == sparse.nbytes
    members = [(0, 1), (1, 1)]
    (one,), (two,) = sparse.merge(3, members, "mean"), again.merge(3, members, "mean")
    assert one.shows is not None and two.shows is not None
    assert one.rows.tobytes() == two.rows.tobytes()
    assert one.shows.tobytes() == two.shows.tobytes()
    data, arrays = dense.to_arrays()
    dense_again.restore(json.loads(json.dumps(data)), arrays)
    runs, runs_again = dense.merge(3, members, "sum"), dense_again.merge(3, members, "sum")
    assert [(r.start, r.grads.tobytes()) for r in runs] == [
        (r.start, r.grads.tobytes()) for r in runs_again
    ]
    assert [r.start for r in runs] == [0, 4]


@pytest.mark.parametrize("seed", range(10))
def test_dense_sums_have_the_same_bits(seed: int) -> None:
    """Any arrival and any cut of two pushes of each trainer; elements nobody gave are left out."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    size, members = 40, [(0, 5), (1, 6), (2, 7)]
    grads = (numbers.standard_normal((3, 2, size)) * 10.0 ** numbers.integers(-6, 6, size)).astype(
        np.float32
    )
    total = np.zeros(size, np.float32)
    for first, second in grads:
        total += first + second
    total /= np.float32(3)
    held = DenseContributions()
    frames = []
    for member, pushes in zip(members, grads, strict=True):
        part = 0
        for values in pushes:
            at = 0
            while at < size:
                stop = min(size, at + rng.randint(1, 9))
                frames.append((member, part, DenseGradients(100 + at, values[at:stop])))
                at, part = stop, part + 1
    rng.shuffle(frames)
    for frame in frames:
        assert held.add(1, *frame)
        assert not held.add(1, *frame)
    (run,) = held.merge(1, members, "mean")
    assert run.start == 100
    assert run.grads.tobytes() == total.tobytes()
    assert held.merge(2, members, "mean") == []
