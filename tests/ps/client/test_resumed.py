"""A trainer dies between the frames of a batch, in any strategy: each batch is applied once."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.ps.client.client import Client
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from ps.client.running import Fleet, fleet

SGD = OptimizerSpec("sgd", 1.0)
COUNTS = SparseSpec("counts", 1, SGD, initial=InitialSpec("zeros"))
DENSE = DenseSpec("dense", 12, SGD, initial=InitialSpec("zeros"), shards=4)
BATCHES = 12
PLURAL = ("async", "half_async", "staleness", "geo")


def keys_of(batch: int) -> np.ndarray:
    """Those of a batch; of some, one server gets none."""
    return np.arange(batch % 4 + 1) * 7 + batch % 3


def wanted() -> np.ndarray:
    """How often each key is in all batches."""
    return np.bincount(np.concatenate([keys_of(batch) for batch in range(BATCHES)]), minlength=40)


class DiedError(Exception):
    """The trainer's process is no more."""


class Mortal:
    """A trainer that dies when it has posted so many frames, some of which are on no wire yet.

    lost: the newest frames of each server that were still in its memory.
    """

    def __init__(self, servers: Fleet, strategy: str, frames: int, lost: list[int]) -> None:
        self.ps = servers.client(strategy=strategy, geo_step=2, window=8, timeout=20.0)
        self.left = frames
        for peer, keep in zip(self.ps.peers, lost, strict=True):
            self._weaken(peer, keep)

    def _weaken(self, peer: ServerConnection, lost: int) -> None:
        send, held = peer.post, list[tuple[Any, ...]]()

        def later(*frame: Any) -> None:
            self.left -= 1
            if self.left < 0:
                raise DiedError
            held.append(frame)
            while len(held) > lost:
                send(*held.pop(0))

        def settle(oldest: int) -> None:
            while held and oldest > held[0][0]:
                send(*held.pop(0))
            ServerConnection.wait_acked(peer, oldest)

        peer.post, peer.wait_acked = later, settle  # type: ignore[method-assign]

    def end(self) -> None:
        """The kernel closes its connections; what was sent arrives first."""
        for peer in self.ps.peers:
            peer.wait_acked(0)
            peer.end()


def live(ps: Client, every: int = 2) -> None:
    """The script: all batches after the position, which it notes after every so many."""
    ps.create(COUNTS)
    ps.create(DENSE)
    at = ps.resume_offset()
    for batch in range(0 if at is None else at["batch"], BATCHES):
        keys = keys_of(batch)
        ps.push("counts", keys, -np.ones((len(keys), 1), np.float32))
        ps.push_dense("dense", -np.ones(12, np.float32))
        ps.step()
        if (batch + 1) % every == 0:
            ps.commit_offset({"batch": batch + 1})
    ps.flush()


def check_all(ps: Client) -> None:
    """Each batch is there once."""
    assert ps.pull("counts", np.arange(40)).ravel().tolist() == wanted().tolist()
    assert ps.pull_dense("dense").tolist() == [BATCHES] * 12


@pytest.mark.parametrize("strategy", PLURAL)
@pytest.mark.parametrize("seed", range(8))
def test_each_batch_is_applied_once_over_the_deaths_of_its_trainer(
    strategy: str, seed: int
) -> None:
    """Three servers; it dies three times, after any frame, and some frames die with it."""
    draw = random.Random(f"{strategy} {seed}")
    with fleet(3) as servers:
        for _ in range(3):
            lost = [draw.randrange(4) for _ in range(3)]
            trainer = Mortal(servers, strategy, draw.randrange(1, 60), lost)
            try:
                live(trainer.ps)
            except DiedError:
                trainer.end()
                continue
            trainer.end()
        with servers.client(strategy=strategy, geo_step=2) as ps:
            live(ps)
            check_all(ps)


def test_a_server_that_is_started_again_remembers_what_it_has(tmp_path: Path) -> None:
    """From its log, and from a snapshot."""
    with fleet(2, data=tmp_path) as servers:
        for frames, with_snapshot in ((9, False), (14, True)):
            trainer = Mortal(servers, "async", frames, [0, 2])
            with pytest.raises(DiedError):
                live(trainer.ps)
            trainer.end()
            for index, server in enumerate(servers.servers):
                if with_snapshot:
                    assert server.snapshots is not None
                    server.snapshots.take()
                servers.stop_one(index)
                servers.restart(index)
        with servers.client() as ps:
            live(ps)
            check_all(ps)


@pytest.mark.parametrize("servers_after", [2, 3])
def test_a_checkpoint_between_two_positions_is_gone_on_from(
    tmp_path: Path, servers_after: int
) -> None:
    """With as many servers each batch is applied once; with others that is said to be unknown."""
    with fleet(2) as servers:
        trainer = Mortal(servers, "async", 23, [0, 3])
        with pytest.raises(DiedError):
            live(trainer.ps)
        trainer.end()
        with servers.client(trainer=0) as ps:
            ps.save(tmp_path)
    with fleet(servers_after) as servers, servers.client() as ps:
        if servers_after == 2:
            ps.load(tmp_path)
            live(ps)
            check_all(ps)
        else:
            with pytest.warns(UserWarning, match="what was pushed after the positions is pushed"):
                ps.load(tmp_path)
            live(ps)
            assert (ps.pull("counts", np.arange(40)).ravel() >= wanted()).all()


def test_a_script_that_notes_nothing_pays_nothing_and_begins_anew() -> None:
    """The next run on the same servers is another job: nothing of it is left out."""
    with fleet(2) as servers:
        for run in (1, 2):
            with servers.client() as ps:
                ps.create(COUNTS)
                assert ps.resume_offset() is None
                ps.push("counts", [1, 2], -np.ones((2, 1), np.float32))
                ps.flush()
                assert ps.pull("counts", [1, 2]).ravel().tolist() == [run, run]
        assert json.dumps([asdict(s.store.offsets) for s in servers.servers]).count("1") == 0


@pytest.mark.parametrize(("replays", "wanted"), [(True, 2), (False, 3)])
def test_a_life_with_other_batches_leaves_nothing_out(replays: bool, wanted: int) -> None:
    """The first push after the offset is there already only if the life does the same batches."""
    ones = -np.ones((1, 1), np.float32)
    with fleet(2) as servers:
        with servers.client() as ps:
            ps.create(COUNTS)
            ps.push("counts", [1], ones)
            ps.commit_offset({"batch": 1})
            ps.push("counts", [1], ones)
        with servers.client() as ps:
            ps.create(COUNTS)
            assert ps.resume_offset(replays=replays) == {"batch": 1}
            ps.push("counts", [1], ones)
            ps.flush()
            assert ps.pull("counts", [1]).item() == wanted
