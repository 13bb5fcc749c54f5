"""Shards move between server processes under training, and kill -9 falls into every step of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product
from pathlib import Path

import pytest

from paddock.errors import PaddockError
from paddock.ps.client.admin import Admin, read_admin_settings
from paddock.ps.connection import FrameConnection, Identity
from paddock.ps.shards.ownership import PHASES
from paddock.ps.wire.frames import Header, Op
from ps.real.nursery import GATE_FILE, REACHED, Nursery, forked
from ps.real.work import TOP, applied, declare, train
from ps.running import Job, eventually, running

pytestmark = pytest.mark.real

SEED, STEPS, STEPS_A_MOVE = 3, 60, 4
ROUNDS = 8  # of new tables
STRATEGIES = ("sync", "async", "half_async")
# Two ways of four things, each three of which meet in every combination: 8 of 16.
PAIRS = [
    ("giver", "taker"), ("admin lives", "admin dies"), ("sync", "async"), ("log", "snapshots"),
]  # fmt: skip
EVERY_THREE = [
    tuple(names[way] for names, way in zip(PAIRS, ways, strict=True))
    for ways in product((0, 1), repeat=4)
    if sum(ways) % 2 == 0
]


def admin(job: Job) -> Admin:
    """What `paddock ps` has."""
    return Admin(read_admin_settings({}, endpoints=",".join(job.endpoints), timeout=20.0))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Servers in milliseconds: 90 are started here."""
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
    with running(tmp_path, 2) as job, admin(job) as orders:
        training = Training(job, strategy)
        for number in range(STEPS // STEPS_A_MOVE):
            # The last steps are left for finish: a digest taken while a shard moves is another.
            training.go_on(STEPS_A_MOVE - 1)
            for table in ("words", "ads", "top"):
                owner = orders.place(table).owners
                shard = number % len(owner)
                orders.move(table, shard, 1 - int(owner[shard]))
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
    with servers as job, admin(job) as orders, job.client(strategy=strategy) as client:
        for suffix in map(str, range(ROUNDS)):
            declare(client, suffix)
            with ThreadPoolExecutor(1) as pool:
                training = pool.submit(train, client, SEED, STEPS, suffix=suffix)
                for shard in cycle(range(TOP.shards)):
                    if training.done():
                        break
                    for table in ("words", "ads", "top"):
                        owner = int(orders.place(table + suffix).owners[shard])
                        orders.move(table + suffix, shard, 1 - owner)
                training.result()
            digest = client.digest()  # The trainer's own was taken while a shard moved.
            found = {name: digest[name + suffix] for name in ("words", "ads", "top")}
            assert found == undisturbed[strategy], f"round {suffix}"


def owner_of(orders: Admin, table: str, shard: int) -> int:
    """The server that has it; -1 while it is on its way."""
    try:
        return int(orders.place(table).owners[shard])
    except PaddockError:
        return -1


def killed(job: Job, victim: int, phase: str, *, admin_dies: bool, table: str, shard: int) -> None:
    """Server 0 gives a shard to server 1; after a phase the victim is ended, and started again."""
    gate, reached = job.folder / GATE_FILE, job.folder / REACHED
    gate.with_suffix(".tmp").write_text(phase)
    gate.with_suffix(".tmp").rename(gate)
    with ThreadPoolExecutor(1) as pool, admin(job) as orders:
        if admin_dies:
            link = FrameConnection(job.endpoints[0], Identity("default", 0, 1, "0"), "admin", 20.0)
            order = {"do": "move", "table": table, "shard": shard, "to": 1, "seconds": 20}
            link.stream.send(Header(Op.CONTROL), json.dumps(order).encode())
            link.close()
        else:
            moving = pool.submit(orders.move, table, shard, 1)
        eventually(reached.exists, f"the move has reached {phase}")
        job.kill(victim)
        if victim == 0:
            reached.unlink()
        job.start(victim)
        reached.unlink(missing_ok=True)
        if not admin_dies:
            moving.result(60)
    with admin(job) as orders:
        if not admin_dies or victim == 1 or phase in PHASES[-2:]:
            eventually(lambda: owner_of(orders, table, shard) == 1, "it is finished")


@pytest.mark.limit(300)
@pytest.mark.parametrize(("who", "admin_ends", "strategy", "keeping"), EVERY_THREE)
def test_kill_9_in_each_phase_loses_nothing(
    who: str,
    admin_ends: str,
    strategy: str,
    keeping: str,
    nursery: Nursery,
    undisturbed: dict[str, dict[str, str]],
    tmp_path: Path,
) -> None:
    """Of each table one shard: server 0 gives it, 1 takes it, and they finish by themselves."""
    flags = ("--snapshot-every=16K",) if keeping == "snapshots" else ()
    victim, admin_dies = int(who == "taker"), admin_ends == "admin dies"
    with forked(nursery, tmp_path, 2, 1, *flags) as job, admin(job) as orders:
        training = Training(job, strategy)
        for number, phase in enumerate(PHASES):
            for table in ("words", "top"):
                training.go_on(2)
                shard = number % 2
                killed(job, victim, phase, admin_dies=admin_dies, table=table, shard=shard)
                orders.move(table, shard, 1)
                orders.move(table, shard, 0)
        assert training.finish() == undisturbed[strategy]
        told = [one.ask(Op.CONTROL, {"do": "tables"})["tables"] for one in orders.peers]
        assert not any(table["moves"]["arrivals"] for tables in told for table in tables)


@pytest.mark.limit(120)
def test_a_spare_server_takes_its_share_while_two_trainers_train(tmp_path: Path) -> None:
    """What left server 2 comes back by rebalance; sync has the same bits as without."""
    digests: list[dict[str, str]] = []
    for moves in (False, True):
        with running(tmp_path / str(moves), 3, 2, keep=False) as job, admin(job) as orders:
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
                for shard, owner in enumerate(orders.place("words").owners.tolist()):
                    if owner == 2:
                        orders.move("words", shard, shard % 2)
                assert len(orders.rebalance("words")) == 21
            for thread in threads:
                thread.join(30)
            assert len(found) == 2 and found[0] == found[1]
            digests.append(found[0])
    assert digests[0] == digests[1]
