"""Pulls and pushes of every shape, and what each strategy promises of the next pull."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from paddock import ps as server
from paddock.errors import PaddockError
from paddock.ps.client.strategy import make_strategy
from paddock.ps.client.trainer_config import TrainerConfig
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.strategies import STRATEGIES
from ps.client.running import fleet

SGD = OptimizerSpec("sgd", 1.0)
ZEROS = InitialSpec("zeros")
WORDS = SparseSpec("words", 4, SGD, initial=ZEROS)


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (2, 3), (0, 5), (70,)])
@pytest.mark.parametrize("strategy", ["async", "geo"])
def test_rows_have_the_shape_of_the_keys(
    servers: int, shape: tuple[int, ...], strategy: str
) -> None:
    """And one axis more; keys may repeat."""
    with fleet(servers) as running, running.client(strategy=strategy) as ps:
        ps.create(WORDS)
        keys = np.arange(int(np.prod(shape))).reshape(shape) % 3
        grads = np.ones((*shape, 4), np.float32)
        assert not ps.pull("words", keys).any()
        ps.push("words", keys, grads)
        ps.flush()
        rows = ps.pull("words", keys)
        assert rows.shape == (*shape, 4) and rows.dtype == np.float32
        counts = np.bincount(keys.reshape(-1), minlength=3)
        assert (rows.reshape(-1, 4) == -counts[keys.reshape(-1)][:, None]).all()


def test_a_push_is_of_its_own_keys_when_the_array_pulled_with_was_written_over() -> None:
    """Of those just pulled, or of others in the same memory; gradients of a repeat add up."""
    keys = np.arange(100) % 50
    ones = np.ones((100, 4), np.float32)
    with fleet(1) as running, running.client() as ps:
        ps.create(WORDS)
        ps.pull("words", keys)
        ps.push("words", keys, ones)
        keys += 50
        ps.push("words", keys, ones)
        ps.flush()
        assert (ps.pull("words", np.arange(100)) == -2).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_call_needed_goes_with_it(strategy: str) -> None:
    """Megabytes of rows that wait for the garbage collector make the next call slower."""
    keys, ones = np.arange(5000) % 3000, np.ones((5000, 4), np.float32)
    with server.local(strategy) as ps:
        ps.create(WORDS)
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for some in (keys, keys[:10]):
                ps.pull("words", some)
                ps.push("words", some, ones[: len(some)])
            ps.step()
            ps.flush()
            gc.collect()
            left = [one for one in gc.garbage if type(one).__module__.startswith("paddock.ps.cl")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert left == []


def test_frames_are_cut_at_their_limit_and_nothing_is_lost() -> None:
    """A push of 24 MB and pulls of as much, to three servers."""
    keys = np.random.default_rng(1).permutation(100_000) - 50_000
    grads = np.random.default_rng(2).normal(size=(100_000, 60)).astype(np.float32)
    dense = np.arange(3_000_000, dtype=np.float32)
    with fleet(3) as running, running.client() as ps:
        ps.create(SparseSpec("wide", 60, SGD, initial=ZEROS))
        ps.create(DenseSpec("long", len(dense), SGD))
        ps.push("wide", keys, grads)
        ps.push_dense("long", dense)
        ps.flush()
        assert (ps.pull("wide", keys[::-1]) == -grads[::-1]).all()
        assert (ps.pull_dense("long") == -dense).all()


def test_what_is_asked_ahead_is_of_its_time() -> None:
    """One batch older than a pull after the push; another pull is not touched by it."""
    with fleet(2) as running, running.client() as ps:
        ps.create(WORDS)
        ps.prefetch("words", [1, 2])
        ps.push("words", [1, 2], -np.ones((2, 4), np.float32))
        ps.flush()
        assert ps.pull("words", [1, 2, 3]).sum(axis=1).tolist() == [4, 4, 0]
        ps.prefetch("words", [1, 2])
        assert ps.pull("words", [1, 2]).sum(axis=1).tolist() == [4, 4]


def test_what_was_asked_ahead_and_did_not_come_is_asked_again() -> None:
    """Its server answered too late: the pull after that one's error has the rows."""
    with fleet() as running, running.client() as ps:
        ps.create(WORDS)
        ps.push("words", [1, 2], -np.ones((2, 4), np.float32))
        ps.flush()
        ps.peers[0].timeout = 0.1
        ps.peers[0].link("pull").stream.set_silence(0.1)
        with running.servers[0].store.tables[0].lock.rows:
            ps.prefetch("words", [1, 2])
            with pytest.raises(PaddockError, match="has not answered"):
                ps.pull("words", [1, 2])
        ps.peers[0].timeout = 5.0
        assert ps.pull("words", [1, 2]).sum(axis=1).tolist() == [4, 4]


def test_sync_asks_ahead_within_its_step() -> None:
    """Keys beyond the window of frames: all rows are of one step, that of the question."""
    keys = np.arange(100_000)
    with fleet(2) as running, running.client(strategy="sync") as ps:
        ps.create(WORDS)
        for step in range(2):
            ps.prefetch("words", keys)
            ps.push("words", keys, -np.ones((len(keys), 4), np.float32))
            ps.step()
            assert np.unique(ps.pull("words", keys)).tolist() == [step]
        assert np.unique(ps.pull("words", keys)).tolist() == [2]


@pytest.mark.parametrize("strategy", ["async", "geo"])
def test_a_set_value_is_the_next_pulled_one(strategy: str) -> None:
    """Sparse and dense, pulled before or not."""
    with fleet(2) as running, running.client(strategy=strategy) as ps:
        ps.create(WORDS)
        ps.create(DenseSpec("bias", 9, SGD))
        ps.pull("words", [3]), ps.pull_dense("bias")
        rows = np.arange(8, dtype=np.float32).reshape(2, 4)
        ps.set("words", [3, -3], rows)
        ps.set_dense("bias", np.arange(9))
        out = np.empty(9, np.float32)
        assert (ps.pull("words", [3, -3]) == rows).all()
        assert ps.pull_dense("bias", out) is out and out.tolist() == [*range(9)]
        ps.step(), ps.flush()
        assert (ps.pull("words", [3, -3]) == rows).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_loaded_is_the_next_pulled(strategy: str, tmp_path: Path) -> None:
    """Of a key that the checkpoint has not, the first value."""
    with fleet(2) as running, running.client(strategy=strategy) as ps:
        ps.create(WORDS)
        ps.create(DenseSpec("bias", 3, SGD))
        ps.save(tmp_path)
        for _ in range(2):
            ps.push("words", [1, 2], np.ones((2, 4), np.float32))
            ps.push_dense("bias", np.ones(3, np.float32))
            ps.step(), ps.flush()
            assert (ps.pull("words", [1, 2]) == -1).all() and (ps.pull_dense("bias") == -1).all()
            ps.load(tmp_path)
            assert not ps.pull("words", [1, 2]).any() and not ps.pull_dense("bias").any()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_lone_trainer_learns_the_same_under_every_strategy(strategy: str) -> None:
    """With nobody to wait for, all are plain training."""
    with fleet(2) as running, running.client(strategy=strategy, geo_step=2) as ps:
        ps.create(WORDS)
        ps.create(DenseSpec("bias", 3, SGD))
        for _ in range(4):
            ps.pull("words", [1, 2])
            ps.push("words", [1, 2], np.ones((2, 4), np.float32))
            ps.push_dense("bias", np.ones(3, np.float32))
            ps.step()
        ps.flush()
        assert (ps.pull("words", [1, 2]) == -4).all()
        assert (ps.pull_dense("bias") == -4).all()


def test_sync_shows_a_step_only_when_it_is_done() -> None:
    """A pull before the end of the step sees the step before."""
    with fleet(2) as running, running.client(strategy="sync") as ps:
        ps.create(WORDS)
        ps.push("words", [1], np.ones((1, 4), np.float32))
        ps.flush()
        assert not ps.pull("words", [1]).any()
        ps.step()
        assert (ps.pull("words", [1]) == -1).all()


def test_each_strategy_says_what_trainers_must_agree_on() -> None:
    """Its name and its N."""
    place = TrainerConfig(("a:1",), 0, 1, "default")
    made = {name: make_strategy(name, 3, 2, 100, place) for name in STRATEGIES}
    assert [made[name].name for name in STRATEGIES] == [*STRATEGIES]
    assert made["staleness"].staleness == 3
    assert {made[name].staleness for name in STRATEGIES if name != "staleness"} == {0}
