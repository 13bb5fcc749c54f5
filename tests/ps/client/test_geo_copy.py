"""The geo rule: what trainers exchange adds up, and nothing local is lost."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from paddock.ps.client.geo_copy import GeoRows, GeoVector
from paddock.ps.spec import DenseSpec, OptimizerSpec, SparseSpec

Floats = NDArray[np.float32]
SGD = OptimizerSpec("sgd", 1.0)


def learn(rows: GeoRows, keys: NDArray[np.int64], by: float) -> None:
    """A push that adds so much."""
    rows.learn([keys, np.full((len(keys), rows.dim), -by, np.float32)])


def test_the_delta_of_touched_rows_is_shared() -> None:
    """delta = (latest - old) / trainers, for touched rows only, once."""
    rows = GeoRows(SparseSpec("t", 2, SGD))
    rows.insert(np.array([7, -3, 5]), np.zeros((3, 2), np.float32))
    learn(rows, np.array([5, -3]), 1.0)
    keys, delta = rows.take_delta(2)
    assert keys.tolist() == [-3, 5]
    assert delta.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    keys, delta = rows.take_delta(2)
    assert (keys.shape, delta.shape) == ((0,), (0, 2))


def test_receiving_keeps_what_is_not_sent_yet() -> None:
    """latest += server - old; the local difference stays."""
    rows = GeoRows(SparseSpec("t", 1, SGD))
    rows.insert(np.array([1, 2]), np.float32([[10], [20]]))
    learn(rows, np.array([1]), 3.0)
    assert rows.receive(np.array([2, 1, 99]), np.float32([[21], [11], [5]])) == 2
    assert rows.values[rows.find(np.array([1, 2])), 0].tolist() == [14.0, 21.0]
    _, delta = rows.take_delta(1)
    assert delta.tolist() == [[3.0]]


def test_one_trainer_and_the_server_agree() -> None:
    """With a single trainer the server's rows are its rows."""
    rows, server = GeoRows(SparseSpec("t", 1, SGD)), np.zeros((4, 1), np.float32)
    keys = np.arange(4)
    rows.insert(keys, server)
    for batch in range(5):
        learn(rows, keys[batch % 4 :], 1.0)
        sent, delta = rows.take_delta(1)
        server[sent] += delta
    assert rows.values[:4].tolist() == server.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_two_trainers_stay_near_the_server(seed: int) -> None:
    """After each exchange latest - server is what this trainer has not shared, and no more."""
    rng = np.random.default_rng(seed)
    keys = np.arange(-5, 5)
    server = np.zeros((10, 2), np.float32)
    both = [GeoRows(SparseSpec("t", 2, SGD)) for _ in range(2)]
    for rows in both:
        rows.insert(keys, server)
    learnt = np.zeros((2, 10, 2))
    for _ in range(30):
        who = int(rng.integers(2))
        chosen = rng.permutation(10)[:4]
        learn(both[who], keys[chosen], 1.0)
        learnt[who, chosen] += 1.0
        sent, delta = both[who].take_delta(2)
        server[sent + 5] += delta
        both[who].receive(keys, server)
        latest = both[who].values[both[who].find(keys), :2]
        assert np.abs(latest - server).max() <= learnt[who].max()
        assert np.isfinite(latest).all()
    assert (server > 0).any()


def test_rows_grow_and_keep_their_values() -> None:
    """No vocabulary is given: rows come by the thousand, in any order."""
    rng = np.random.default_rng(0)
    rule = OptimizerSpec("row_adagrad", options={"initial": 0.5})
    rows, truth = GeoRows(SparseSpec("t", 2, rule)), dict[int, float]()
    for _ in range(40):
        keys = np.unique(rng.integers(-(2**62), 2**62, 300))
        keys = np.concatenate([keys, rng.permutation(np.array(list(truth), np.int64))[:100]])
        new = rows.missing(rng.permutation(keys))
        rows.insert(new, np.repeat(new % 1000, 2).reshape(-1, 2).astype(np.float32))
        truth.update((int(k), float(k % 1000)) for k in new)
    keys = np.array(list(truth))
    found = rows.values[rows.find(keys)]
    assert found[:, 0].tolist() == list(truth.values())
    assert (found[:, 2] == 0.5).all()
    assert len(rows) == len(truth)
    assert rows.find(np.array([1, 2, 3])).tolist() == [-1, -1, -1]


def test_a_dense_vector_follows_the_same_rule() -> None:
    """Dense parameters are exchanged as a whole."""
    vector = GeoVector(DenseSpec("w", 3, SGD))
    vector.insert(None, np.zeros(3, np.float32))
    vector.learn([np.full(3, -4, np.float32)])
    assert vector.take_delta(2)[0].tolist() == [2, 2, 2]
    vector.receive(np.float32([2, 5, 2]))
    assert vector.read(np.empty(3, np.float32)).tolist() == [4, 7, 4]
    assert vector.take_delta(2)[0].tolist() == [1, 1, 1]


def test_of_a_dense_vector_that_has_learned_nothing_nothing_is_sent() -> None:
    """As of rows: a frame of zeros would count as one of the trainer's batch."""
    vector = GeoVector(DenseSpec("w", 3, SGD))
    vector.insert(None, np.ones(3, np.float32))
    assert [len(column) for column in vector.take_delta(2)] == [0]
