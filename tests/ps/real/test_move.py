"""Shards move between server processes under training, and kill -9 falls into every step of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest

from paddock.errors import PaddockError
from paddock.ps.client.move import Where, move, rebalance
from paddock.ps.client.peer import Peer
from paddock.ps.link import Identity
from ps.real.nursery import Nursery, forked
from ps.real.work import TOP, applied, declare, train
from ps.running import Job, running

pytestmark = pytest.mark.real

SEED, STEPS, STEPS_A_MOVE = 3, 60, 4
ROUNDS = 8  # of new tables
PROTOCOL = ("freeze", "first part", "adopt", "move", "own")
STRATEGIES = ("sync", "async", "half_async")


@contextmanager
def admin(job: Job) -> Iterator[list[Peer]]:
    """Links as `paddock ps` has them."""
    identity = Identity("default", 0, 1, "0")
    peers = [
        Peer(index, endpoint, identity, 20.0, purpose="admin")
        for index, endpoint in enumerate(job.endpoints)
    ]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Servers in milliseconds: 170 are started here."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="module")
def undisturbed(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """The digests after the same training where nothing moves, by strategy."""
    found = {}
    for strategy in STRATEGIES:
        calm = forked(nursery, tmp_path_factory.mktemp("calm"), 2, 1, keep=False)
        with calm as job, job.client(strategy=strategy) as client:
            found[strategy] = train(client, SEED, STEPS)
    return found


class Training:
    """A trainer in a thread, let go on step by step; its digests at the end."""

    def __init__(self, job: Job, strategy: str) -> None:
        self._allowed = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(job, strategy), daemon=True)
        self._left = STEPS
        self.digest: dict[str, str] = {}
        self.failed: BaseException | None = None
        self.started = threading.Event()
        self._thread.start()
        self.started.wait(30)

    def _run(self, job: Job, strategy: str) -> None:
        def before(step: int) -> None:
            self.started.set()
            self._allowed.acquire()

        try:
            with job.client(strategy=strategy, timeout=30.0) as client:
                self.digest = train(client, SEED, STEPS, before=before)
                if strategy == "sync":  # Else each server counts the batches it had rows of.
                    assert applied(client) == dict.fromkeys(("words", "ads", "top"), STEPS)
        except BaseException as error:  # noqa: BLE001  # Raised by finish.
            self.failed = error

    def go_on(self, steps: int = STEPS_A_MOVE) -> None:
        """Some steps more, while the caller does something else."""
        steps = min(steps, self._left)
        self._left -= steps
        for _ in range(steps):
            self._allowed.release()

    def finish(self) -> dict[str, str]:
        """All steps that are left; the digests."""
        self.go_on(STEPS)
        self._thread.join(60)
        if self.failed is not None:
            raise self.failed
        assert not self._thread.is_alive()
        return self.digest


@pytest.mark.limit(180)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_shards_move_back_and_forth_and_no_bit_changes(
    strategy: str, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Each table gives and takes while batches are under way; then a snapshotless restart."""
    with running(tmp_path, 2) as job, admin(job) as peers:
        training = Training(job, strategy)
        for number in range(STEPS // STEPS_A_MOVE):
            # The last steps are left for finish: a digest taken while a shard moves is another.
            training.go_on(STEPS_A_MOVE - 1)
            for table in ("words", "ads", "top"):
                where = Where(peers, table)
                shard = number % where.shards
                move(peers, table, shard, 1 - where.owner[shard])
        assert training.finish() == undisturbed[strategy]
        for index in range(2):
            job.restart(index)
        with job.client(strategy=strategy) as client:
            assert client.digest() == undisturbed[strategy]


@pytest.mark.parametrize("strategy", ["async", "half_async"])
def test_the_first_moves_of_new_tables_change_no_bit(
    strategy: str, undisturbed: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """A server that never had to do with a move of the table gets its first shards."""
    servers = running(tmp_path, 2, keep=False)
    with servers as job, admin(job) as peers, job.client(strategy=strategy) as client:
        for suffix in map(str, range(ROUNDS)):
            declare(client, suffix)
            with ThreadPoolExecutor(1) as pool:
                training = pool.submit(train, client, SEED, STEPS, suffix=suffix)
                for shard in cycle(range(TOP.shards)):
                    if training.done():
                        break
                    for table in ("words", "ads", "top"):
                        owner = Where(peers, table + suffix).owner[shard]
                        move(peers, table + suffix, shard, 1 - owner)
                training.result()
            digest = client.digest()  # The trainer's own was taken while a shard moved.
            found = {name: digest[name + suffix] for name in ("words", "ads", "top")}
            assert found == undisturbed[strategy], f"round {suffix}"


class Killer:
    """Ends server `victim` after a step, and starts it again; then the admin dies, if it is to."""

    def __init__(self, job: Job, victim: int, step: str, admin_dies: bool) -> None:
        self.job, self.victim, self.step, self.admin_dies = job, victim, step, admin_dies
        self.kills = 0

    def __call__(self, done: str) -> None:
        """After a step."""
        if done != self.step or self.kills:
            return
        self.kills += 1
        self.job.restart(self.victim)
        if self.admin_dies:
            raise KeyboardInterrupt


def until_done(order: Callable[[], object]) -> None:
    """Give the order until it is carried out."""
    for _ in range(3):
        try:
            order()
            return
        except (KeyboardInterrupt, PaddockError):
            continue
    order()


@pytest.mark.limit(300)
@pytest.mark.parametrize("admin_dies", [False, True], ids=["admin-lives", "admin-dies"])
@pytest.mark.parametrize("victim", [0, 1], ids=["giver", "taker"])
@pytest.mark.parametrize("strategy", ["sync", "async"])
@pytest.mark.parametrize("flags", [(), ("--snapshot-every=16K",)], ids=["log", "snapshots"])
def test_kill_9_at_each_step_loses_nothing(
    flags: tuple[str, ...],
    strategy: str,
    victim: int,
    admin_dies: bool,
    nursery: Nursery,
    undisturbed: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    """Of each table one shard: server 0 gives it, 1 takes it; the same order mends the move."""
    with forked(nursery, tmp_path, 2, 1, *flags) as job, admin(job) as peers:
        training = Training(job, strategy)
        for number, step in enumerate(PROTOCOL):
            for table in ("words", "top"):
                training.go_on(2)
                killer = Killer(job, victim, step, admin_dies)
                shard = number % 2
                until_done(lambda: move(peers, table, shard, 1, after=killer))  # noqa: B023
                assert killer.kills == 1
                assert Where(peers, table).owner[shard] == 1
                move(peers, table, shard, 0)
        assert training.finish() == undisturbed[strategy]
        assert not any(Where(peers, table).arrivals() for table in ("words", "ads", "top"))


@pytest.mark.limit(120)
def test_a_spare_server_takes_its_share_while_two_trainers_train(tmp_path: Path) -> None:
    """What left server 2 comes back by rebalance; sync has the same bits as without."""
    digests: list[dict[str, str]] = []
    for moves in (False, True):
        with running(tmp_path / str(moves), 3, 2, keep=False) as job, admin(job) as peers:
            begun, found = threading.Event(), []

            def work(
                number: int,
                job: Job = job,
                begun: threading.Event = begun,
                found: list[dict[str, str]] = found,
            ) -> None:
                with job.client(number, strategy="sync") as client:
                    train(client, SEED, 60, before=lambda step: begun.set() if step > 2 else None)
                    client.barrier()
                    found.append(client.digest())

            threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            assert begun.wait(30)
            if moves:
                for shard, owner in Where(peers, "words").owner.items():
                    if owner == 2:
                        move(peers, "words", shard, shard % 2)
                assert len(rebalance(peers, "words")) == 21
            for thread in threads:
                thread.join(30)
            assert len(found) == 2 and found[0] == found[1]
            digests.append(found[0])
    assert digests[0] == digests[1]
