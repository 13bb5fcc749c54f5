"""A pair of servers: whichever is killed, stopped or cut off, no acknowledged push is lost."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from paddock.ps import Client
from paddock.ps.connection import FrameConnection, Identity
from paddock.ps.stream import ConnectionClosed, raw
from paddock.ps.wire.frames import Header, Op
from ps.real.pairs import PairJob, paired, walled
from ps.real.work import applied, batch, declare, train
from ps.running import eventually, inside

pytestmark = pytest.mark.real

SEED, STEPS = 11, 40
TABLES = ("words", "ads", "top")
Before = Callable[[int], None]


def nothing(step: int) -> None:
    """What happens before a step of an undisturbed run."""


def trained(make: Callable[[int], Client], trainers: int, before: Before = nothing) -> list[str]:
    """The digests after `trainers` concurrent trainers; before: called by trainer 0."""

    def run(trainer: int) -> list[str]:
        with make(trainer) as client:
            train(client, SEED, STEPS, before=before if trainer == 0 else nothing)
            client.barrier("trained")
            assert applied(client) == dict.fromkeys(
                TABLES, STEPS if client.strategy.name == "sync" else STEPS * trainers
            )
            return sorted(client.digest().values())

    with ThreadPoolExecutor(trainers) as pool:
        found = list(pool.map(run, range(trainers)))
    assert all(one == found[0] for one in found)
    return found[0]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, list[str]]:
    """The digests of the same training with one server and no fault."""
    found = {}
    for strategy, trainers in (("sync", 2), ("async", 1)):
        with inside(1, trainers) as endpoints:
            found[strategy] = trained(
                lambda t, e=endpoints, s=strategy, n=trainers: Client(  # type: ignore[misc]
                    e, trainer=t, trainers=n, strategy=s
                ),
                trainers,
            )
    return found


@pytest.mark.parametrize(("strategy", "trainers"), [("sync", 2), ("async", 1)])
def test_a_killed_primary_costs_no_bit(
    tmp_path: Path, strategy: str, trainers: int, undisturbed: dict[str, list[str]]
) -> None:
    """Killed in the middle of training; comes back; then the other one is killed."""
    with paired(tmp_path, trainers) as job:

        def before(step: int) -> None:
            if step == 10:
                job.wait_in_sync()
                job.kill(0)
            elif step == 18:
                job.start(0)
            elif step == 25:
                assert job.wait_in_sync() == 1
                job.kill(1)

        digest = trained(lambda t: job.client(t, strategy=strategy), trainers, before)
        assert digest == undisturbed[strategy]
        assert job.state(0)["term"] == 3


def test_the_replica_acknowledges_after_its_primary_was_killed(tmp_path: Path) -> None:
    """The client that was cut off needs no help; how long it takes: benchmarks/ps/failover.py."""
    with paired(tmp_path) as job, job.client(strategy="half_async") as client:
        declare(client)
        for step in (1, 2, 3):
            batch(client, SEED, 0, step, reads=True)
        client.flush()
        job.wait_in_sync()
        job.kill(0)
        batch(client, SEED, 0, 4, reads=False)
        client.flush()
        assert job.is_serving(1)


def test_a_killed_replica_is_removed_and_counted_again(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """The primary goes on alone; the replica catches up with what it missed and takes over."""
    with paired(tmp_path) as job:

        def before(step: int) -> None:
            if step == 8:
                job.kill(1)
            elif step == 20:
                assert job.state(0)["in_sync"] == 1
                job.start(1)
                assert job.wait_in_sync() == 0
            elif step == 30:
                job.wait_in_sync()
                job.kill(0)

        digest = trained(lambda t: job.client(t, strategy="async"), 1, before)
        assert digest == undisturbed["async"]
        assert job.is_serving(1)


def test_a_stopped_primary_wakes_up_as_a_replica(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """The replica takes over meanwhile; the woken one answers no read with old values."""
    with paired(tmp_path) as job:
        identity = Identity("default", 9, 1, "")
        link = FrameConnection(job.endpoints[0], identity, "pull", 20.0)
        answers: list[str] = []

        def ask() -> None:
            link.stream.send(Header(Op.PULL, count=1), raw(np.zeros(1, np.int64)))
            try:
                link.receive()
                answers.append("old values")
            except ConnectionClosed as error:
                answers.append(error.message)

        def wake() -> None:
            eventually(lambda: job.is_serving(1), "the replica serves")
            job.signal(0, signal.SIGCONT)

        waking = threading.Thread(target=wake)
        asking = threading.Thread(target=ask)

        def before(step: int) -> None:
            if step == 10:
                job.wait_in_sync()
                job.signal(0, signal.SIGSTOP)
                asking.start()
                waking.start()
            elif step == 20:
                assert job.is_serving(1)

        digest = trained(lambda t: job.client(t, strategy="async"), 1, before)
        waking.join()
        asking.join()
        link.close()
        assert digest == undisturbed["async"]
        assert "replica" in answers[0] or "cut off" in answers[0]
        assert job.wait_in_sync() == 1
        assert job.digest(0) == job.digest(1)


def test_a_partition_of_the_pair_leaves_the_primary_alone_in_sync(tmp_path: Path) -> None:
    """The witness hears both: who lacks pushes is not promoted, and catches up afterwards."""
    with contextlib.ExitStack() as held:

        def change(job: PairJob) -> None:
            wall = held.enter_context(walled(job.endpoints[0]))
            job.advertised = (wall.endpoint, "")
            walls.append(wall)

        walls: list = []
        job = held.enter_context(paired(tmp_path, change=change))
        with job.client(strategy="half_async") as client:
            declare(client)
            batch(client, SEED, 0, 1, reads=True)
            walls[0].is_open.clear()
            for step in range(2, 10):
                batch(client, SEED, 0, step, reads=True)
            assert job.state(0)["in_sync"] == 1
            assert not job.is_serving(1)
            assert job.digest(0) != job.digest(1)
            walls[0].is_open.set()
            assert job.wait_in_sync() == 0
            assert job.digest(0) == job.digest(1)


def test_a_primary_cut_off_from_the_witness_gives_way(tmp_path: Path) -> None:
    """It cannot know whether it still is the primary, so it stops answering; the replica serves."""
    with contextlib.ExitStack() as held:

        def change(job: PairJob) -> None:
            walls.append(held.enter_context(walled(job.witness)))
            job.witnesses = (walls[0].endpoint, "")

        walls: list = []
        job = held.enter_context(paired(tmp_path, change=change))
        with job.client(strategy="half_async") as client:
            declare(client)
            batch(client, SEED, 0, 1, reads=True)
            job.wait_in_sync()
            walls[0].is_open.clear()
            eventually(lambda: job.is_serving(1), "the replica serves")
            assert not job.is_serving(0)
            for step in range(2, 6):
                batch(client, SEED, 0, step, reads=True)
            walls[0].is_open.set()
            assert job.wait_in_sync() == 1
            assert job.digest(0) == job.digest(1)


def test_what_only_the_dead_primary_had_is_discarded_and_sent_again(tmp_path: Path) -> None:
    """Pushes that the replica never got are no part of the log; the trainer still has them."""
    with contextlib.ExitStack() as held:

        def change(job: PairJob) -> None:
            walls.append(held.enter_context(walled(job.endpoints[0])))
            job.advertised = (walls[0].endpoint, "")

        walls: list = []
        job = held.enter_context(paired(tmp_path, change=change))
        with job.client(strategy="async", window=8) as client:
            declare(client)
            batch(client, SEED, 0, 1, reads=False)
            client.flush()
            job.wait_in_sync()
            before = job.state(0)["position"]
            walls[0].is_open.clear()
            for step in (2, 3):
                batch(client, SEED, 0, step, reads=False)
            eventually(lambda: job.state(0)["position"] > before, "logged at the primary")
            job.kill(0)
            walls[0].reset()
            client.flush()
            assert job.is_serving(1)
            job.start(0)
            assert job.wait_in_sync() == 1
            assert "were never acknowledged and are discarded" in job.said(0)
            assert job.digest(0) == job.digest(1)
            assert applied(client) == dict.fromkeys(TABLES, 3)


def test_an_orderly_end_hands_over_at_once(tmp_path: Path) -> None:
    """SIGTERM: the lease is given up, so nobody waits until it has run out."""
    with paired(tmp_path) as job, job.client(strategy="async") as client:
        declare(client)
        batch(client, SEED, 0, 1, reads=False)
        client.flush()
        job.wait_in_sync()
        assert job.stop(0) == 0
        batch(client, SEED, 0, 2, reads=False)
        client.flush()
        assert job.is_serving(1)
        assert applied(client) == dict.fromkeys(TABLES, 2)


@pytest.mark.parametrize(
    ("seed", "snapshots", "strategy", "trainers"),
    [(1, "1G", "sync", 2), (2, "100K", "async", 1)],
)
def test_rounds_of_random_kills_cost_no_bit(
    tmp_path: Path,
    seed: int,
    snapshots: str,
    strategy: str,
    trainers: int,
    undisturbed: dict[str, list[str]],
) -> None:
    """Either is killed, and started again now or later, sometimes both at once."""
    rng = random.Random(seed)
    rounds = set(rng.sample(range(2, STEPS), 6))
    with paired(tmp_path, trainers, f"--snapshot-every={snapshots}") as job:

        def before(step: int) -> None:
            if step not in rounds:
                return
            for index in (0, 1):
                if index not in job.processes:
                    job.start(index)
            job.wait_in_sync()
            victims = rng.choice([(0,), (1,), (0, 1), (1, 0)])
            for index in victims:
                job.kill(index)
                if rng.random() < 0.5:
                    job.start(index)
            if len(victims) == 2:  # One alone may lack what the other acknowledged last.
                for index in rng.sample((0, 1), 2):
                    if index not in job.processes:
                        job.start(index)

        make = lambda t: job.client(t, strategy=strategy, timeout=60.0)  # noqa: E731
        assert trained(make, trainers, before) == undisturbed[strategy]
