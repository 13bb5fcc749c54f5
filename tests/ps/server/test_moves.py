"""Shards that change hands under training: same bits, every step repeatable, in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.admin import Admin, plan_moves, read_admin_settings
from paddock.ps.client.client import Client
from paddock.ps.connection import FrameConnection, Identity
from paddock.ps.server.records import make_record
from paddock.ps.server.snapshot_view import SnapshotView
from paddock.ps.server.store import Store
from paddock.ps.shards.migrator import MOVES, Migration, ShardMigrator
from paddock.ps.shards.ownership import PHASES, IncomingShard, ShardOwnership
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage.arrays import Arrays
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from ps.client.running import Fleet, fleet
from ps.running import eventually

WORDS = SparseSpec("words", 4, OptimizerSpec("adagrad", 0.1), shards=8)
ADS = SparseSpec(
    "ads", 2, OptimizerSpec("adam", 0.01), shards=4, accessor=AccessorSpec(statistics=True)
)
TOP = DenseSpec("top", 300, OptimizerSpec("momentum", 0.05), shards=4)
TABLES = (WORDS, ADS, TOP)


def admin(servers: Fleet) -> Admin:
    """What `paddock ps` has."""
    return Admin(read_admin_settings({}, endpoints=servers.endpoints))


@contextmanager
def after_each(act: Callable[[str], None]) -> Iterator[None]:
    """act is called by the giver's thread when a phase of a move is done."""
    do = ShardMigrator.do

    def also(self: ShardMigrator, phase: str, one: Migration) -> None:
        do(self, phase, one)
        act(phase)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ShardMigrator, "do", also)
        yield


def order(servers: Fleet, table: str, shard: int, source: int, to: int) -> None:
    """Have a shard moved, by an admin that dies when it has said so."""
    link = FrameConnection(
        servers.endpoints.split(",")[source], Identity("default", 0, 1, "0"), "admin", 5.0
    )
    told = {"do": "move", "table": table, "shard": shard, "to": to, "seconds": 20}
    link.stream.send(Header(Op.CONTROL), json.dumps(told).encode())
    link.close()


def is_at_rest(servers: Fleet) -> bool:
    """Whether each shard has one owner, and nothing is on its way."""
    held = [one for server in servers.servers for one in server.store.tables]
    owned = [(one.spec.name, shard) for one in held for shard in one.owned]
    count = sum({one.spec.name: one.spec.shards for one in held}.values())
    return len(owned) == len(set(owned)) == count and all(one.ownership.is_idle for one in held)


def declare(ps: Client) -> None:
    """The three tables."""
    for spec in TABLES:
        ps.create(spec)


def batch(ps: Client, step: int) -> None:
    """One batch; gradients depend on what is pulled. Few keys, so that most pushes have repeats."""
    draw = np.random.default_rng(step)
    words, ads = draw.integers(-60, 60, 30), draw.integers(0, 20, 5)
    reads = ps.strategy.name != "async"
    rows = draw.normal(size=(30, 4)) + (ps.pull("words", words) if reads else 0)
    top = draw.normal(size=300) + (ps.pull_dense("top") if reads else 0)
    ps.push("words", words, rows.astype(np.float32))
    ps.push("words", words[:7], rows[7:14].astype(np.float32))
    ones = np.ones(5, np.float32)
    ps.push("ads", ads, draw.normal(size=(5, 2)).astype(np.float32), shows=ones, clicks=ones)
    ps.push_dense("top", top.astype(np.float32))
    ps.step()


def train(ps: Client, steps: range) -> dict[str, str]:
    """Batches; the digests after them."""
    for step in steps:
        batch(ps, step)
    return ps.digest()


@pytest.fixture(scope="module")
def calm() -> dict[str, dict[str, str]]:
    """The digests after 12 batches without a move, by strategy."""
    found = {}
    for strategy in ("sync", "async", "half_async"):
        with fleet(2) as servers, servers.client(strategy=strategy) as ps:
            declare(ps)
            found[strategy] = train(ps, range(12))
    return found


@pytest.mark.parametrize("strategy", ["sync", "async", "half_async"])
def test_moves_between_batches_change_no_bit(
    strategy: str, calm: dict[str, dict[str, str]]
) -> None:
    """Every table's shards go there and back; another trainer would find them."""
    with fleet(2) as servers, servers.client(strategy=strategy) as ps, admin(servers) as orders:
        declare(ps)
        for step in range(12):
            batch(ps, step)
            if strategy == "sync" or step % 3 == 0:
                for spec in TABLES:
                    shard = step % spec.shards
                    owner = int(orders.place(spec.name).owners[shard])
                    assert orders.move(spec.name, shard, 1 - owner).to == 1 - owner
        assert ps.digest() == calm[strategy]
        assert len(orders.place("words").owners) == 8


@pytest.mark.parametrize("strategy", ["sync", "async", "half_async"])
def test_moves_in_the_middle_of_batches_change_no_bit(
    strategy: str, calm: dict[str, dict[str, str]]
) -> None:
    """Another thread moves shards all the time; the order of pushes stays."""
    ended = threading.Event()
    moved: list[int] = []
    with fleet(3) as servers, servers.client(strategy=strategy) as ps, admin(servers) as orders:
        declare(ps)

        def disturb() -> None:
            draw = np.random.default_rng(1)
            while not ended.is_set():
                spec = TABLES[int(draw.integers(3))]
                to = int(draw.integers(3))
                moved.append(orders.move(spec.name, int(draw.integers(spec.shards)), to).bytes)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            step = 0
            while step < 12:
                batch(ps, step)
                step += 1
                ps.group.wait_acked(2)
        finally:
            ended.set()
            while thread.is_alive():  # A move of sync may wait for a step's end.
                thread.join(0.05)
        assert ps.digest() == calm[strategy]
        assert any(moved)


@pytest.mark.parametrize("victims", [(), (0,), (1,), (0, 1)], ids=["none", "giver", "taker", "all"])
@pytest.mark.parametrize("phase", PHASES)
def test_servers_finish_a_move_by_themselves(
    phase: str, victims: tuple[int, ...], calm: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The admin dies, and the servers after any phase; they start anew from their logs."""
    with fleet(2, data=tmp_path) as servers:
        with servers.client() as ps:
            declare(ps)
            train(ps, range(6))
            for spec in TABLES:
                reached = threading.Event()

                def kill(done: str, reached: threading.Event = reached) -> None:
                    if done == phase and not reached.is_set():
                        for index in victims:
                            servers.stop_one(index)
                        reached.set()

                with after_each(kill):
                    order(servers, spec.name, 0, 0, 1)
                    assert reached.wait(10)
                    for index in victims:
                        servers.restart(index)
                    eventually(lambda: is_at_rest(servers), "the move is finished, or off")
                    if phase in PHASES[-2:] or victims in ((), (1,)):
                        taker = servers.servers[1].store.by_name[spec.name]
                        eventually(lambda: 0 in taker.owned, "it is finished")  # noqa: B023
            assert train(ps, range(6, 12)) == calm["async"]
        with servers.client(trainer=0) as other:
            declare(other)
            owners = other.group.tables["words"].owners.tolist()
            assert owners[1:] == [0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("step", PHASES)
def test_a_snapshot_at_any_step_recovers_exactly(
    step: str, calm: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Both servers write a snapshot there, and start from it and from what the log has after."""
    with fleet(2, data=tmp_path) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        train(ps, range(6))

        def snapshot(done: str) -> None:
            if done == step:
                for server in servers.servers:
                    assert server.snapshots is not None
                    server.snapshots.take()

        with after_each(snapshot):
            for spec in TABLES:
                orders.move(spec.name, 0, 1)
                orders.move(spec.name, spec.shards - 1, 0)
        train(ps, range(6, 9))
        wanted = ps.digest()
        for index in range(2):
            servers.stop_one(index)
            servers.restart(index)
        assert ps.digest() == wanted
        assert orders.place("top").owners.tolist() == [1, 0, 1, 0]
        assert train(ps, range(9, 12)) == calm["async"]


@pytest.mark.parametrize("after", ["state", "first shard", "all shards"])
@pytest.mark.parametrize("returns", [False, True])
def test_a_move_while_a_snapshot_is_written_recovers_exactly(
    after: str,
    returns: bool,
    calm: dict[str, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shards go and come between the copies of a snapshot, with pushes around each move."""
    with fleet(2, data=tmp_path) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        train(ps, range(5))
        left = iter(range(5, 10))

        def disturb() -> None:
            for to in (1, 0) if returns else (1,):
                for spec in TABLES:
                    train(ps, range(s := next(left, 10), min(s + 1, 10)))
                    orders.move(spec.name, 0, to)
                    orders.move(spec.name, spec.shards - 1, 1 - to)

        taken: list[int] = []

        class Disturbed(SnapshotView):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                if after == "state":
                    disturb()

            def take(self, table: str, shard: int) -> Arrays:
                found = super().take(table, shard)
                taken.append(shard)
                if (after, len(taken)) in (("first shard", 1), ("all shards", 8)):
                    disturb()
                return found

        monkeypatch.setattr("paddock.ps.server.recovery.SnapshotView", Disturbed)
        snapshots = servers.servers[0].snapshots
        assert snapshots is not None
        snapshots.take()
        assert len(taken) == 8
        train(ps, range(next(left, 10), 10))
        wanted = ps.digest()
        servers.stop_one(0)
        servers.restart(0)
        assert ps.digest() == wanted
        assert train(ps, range(10, 12)) == calm["async"]


def test_the_state_in_a_snapshot_stays_while_records_come() -> None:
    """A part of a shard, and a shrink, between the moment of the cut and its writing."""
    store = Store(0, 2)
    held = store.add_table(WORDS)
    shrink = Header(Op.SHRINK, table=held.number)
    held.ownership.receive(7, IncomingShard(1 << 32, 1), b"one", adds=False, ends=True)
    store.apply_meta(1, make_record(shrink, b'{"shard": 0, "round": "a"}'))
    state = store.state_values()
    before = json.dumps(state)
    held.ownership.receive(7, IncomingShard(1 << 32, 1), b"two", adds=True, ends=True)
    store.apply_meta(2, make_record(shrink, b'{"shard": 1, "round": "b"}'))
    assert json.dumps(state) == before != json.dumps(store.state_values())


@pytest.mark.parametrize(
    ("sequence", "giver", "message"),
    [(9, 1, "have no number"), (0, 0, "server 0 is not another"), (0, 7, "server 7 is not")],
)
def test_a_part_that_no_server_sent_is_refused(sequence: int, giver: int, message: str) -> None:
    """Numbered like a push it would be taken twice; of nobody, it would be kept for ever."""
    with fleet(2) as servers, servers.client() as ps:
        declare(ps)
        store = servers.servers[0].store
        shard = next(n for n in range(8) if n not in store.tables[0].owned)
        header = Header(Op.ADOPT, count=1, step=1 << 32, sequence=sequence)
        with pytest.raises(RequestError, match=message):
            body = shard.to_bytes(4, "little") + giver.to_bytes(4, "little")
            make_record(header, body).check(store)


def test_every_order_may_be_given_twice() -> None:
    """Repeats of each record and of whole moves change nothing and are no errors."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        before = train(ps, range(3))
        first = orders.move("words", 0, 1)
        assert first.bytes > 0 and first.source == 0
        assert orders.move("words", 0, 1).bytes == 0
        version = servers.servers[0].store.by_name["words"].ownership.given[0][1]
        orders.peers[1].ask(
            Op.ADOPT, {"shard": 0, "version": version, "own": True, "step": 0}, table=0
        )
        late = Header(Op.ADOPT, part=0, count=1, step=version)
        servers.servers[1].engine.write(make_record(late, bytes(8) + b"other"))
        assert ps.digest() == before and is_at_rest(servers)


def test_only_what_is_here_as_a_whole_is_owned_and_only_what_is_frozen_is_given() -> None:
    """A wrong order is refused, and changes nothing."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        give = b'{"shard": 0, "to": 1, "version": 5}'
        with pytest.raises(RequestError, match="not frozen"):
            servers.servers[0].engine.write(make_record(Header(Op.MOVE), give))
        with pytest.raises(RequestError, match="cannot move from server 0 to 7") as refused:
            orders.peers[0].ask(Op.CONTROL, {"do": "move", "table": "words", "shard": 0, "to": 7})
        assert refused.value.hint == "the others are 1"
        with pytest.raises(RequestError, match="not here as a whole"):
            own = {"shard": 0, "version": 1 << 32, "own": True, "step": 0}
            orders.peers[1].ask(Op.ADOPT, own, table=0)
        assert is_at_rest(servers)


def test_later_pushes_do_not_overtake_one_that_was_sent_away() -> None:
    """They are refused until it has come again, or is skipped; other trainers' are not."""
    moves = ShardOwnership("words", 0, [0, 1], 4)
    version = moves.leave(1, 2, 7)
    assert moves.freeze(1, version, busy=False)
    first = Header(Op.PUSH, sequence=4, trainer=3, incarnation=9)
    later = first._replace(sequence=5)
    open_shard = np.array([0])
    with pytest.raises(RequestError, match="shard 1 moves"):
        moves.check_push(first, np.array([1]))
    with pytest.raises(RequestError, match="push 5 waits for push 4"):
        moves.check_push(later, open_shard)
    moves.check_push(later._replace(trainer=4), open_shard)
    moves.skipped(first)
    moves.check_push(later, open_shard)
    moves.give(1, 2, version)
    with pytest.raises(RequestError, match="shard 1 moves"):  # It may not be on the disk.
        moves.check_pull(np.array([1]))
    moves.stay(1, version)
    moves.check_pull(open_shard)
    with pytest.raises(RequestError, match="is server 2's now") as caught:
        moves.check_pull(np.array([0, 1, 3]))
    assert caught.value.facts == {"owners": {"1": 2}, "wait": True}
    assert moves.behind == {}


@pytest.mark.parametrize("table", ["words", "top"])
def test_what_comes_before_the_first_shard_of_all_waits_for_it(
    table: str, calm: dict[str, dict[str, str]]
) -> None:
    """The giver has let go, the taker does not own yet, and never had to do with a move before."""
    found: list[dict[str, str]] = []
    with fleet(2) as servers, servers.client(strategy="async") as ps, admin(servers) as orders:
        declare(ps)
        train(ps, range(6))
        thread = threading.Thread(target=lambda: found.append(train(ps, range(6, 12))))
        taker = servers.servers[1].store.by_name[table].ownership

        def after(step: str) -> None:
            if step == "move":
                with pytest.raises(RequestError, match=f"table '{table}': shard 0 moves"):
                    taker.check_pull(np.array([0]))
                thread.start()
                eventually(lambda: taker.behind, "a push waits at the taker")

        with after_each(after):
            orders.move(table, 0, 1)
        thread.join(30)
    assert found == [calm["async"]]


def test_a_step_of_sync_is_finished_before_a_shard_moves() -> None:
    """The giver waits for the commit; the trainer's next pushes find the new owner."""
    with fleet(2) as servers, admin(servers) as orders, servers.client(strategy="sync") as ps:
        declare(ps)
        ps.push("words", np.arange(40), np.ones((40, 4), np.float32))
        ps.group.wait_acked(0)
        with pytest.raises(PaddockError, match="a step is being gathered"):
            orders.move("words", 0, 1, seconds=0.0)
        assert orders.place("words").owners[0] == 0
        ps.step()
        assert orders.move("words", 0, 1).bytes > 0
        before = ps.digest()
        assert orders.move("words", 0, 0).bytes > 0
        assert ps.digest() == before


def test_a_checkpoint_is_not_loaded_over_a_shard_on_its_way(tmp_path: Path) -> None:
    """Nobody would read that shard; when the giver is back the load is whole."""
    with fleet(2, data=tmp_path / "data") as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(3))
        ps.save(tmp_path / "saved")
        saved = ps.digest()
        train(ps, range(3, 5))
        away, back = threading.Event(), threading.Event()

        def wait(phase: str) -> None:
            if phase == "move":
                away.set()
                back.wait(20)

        with after_each(wait), pytest.MonkeyPatch.context() as patched:
            patched.setitem(MOVES, "fate", lambda *_: {"fate": "coming"})
            order(servers, "words", 0, 0, 1)
            assert away.wait(10)
            with pytest.raises(PaddockError, match="is on its way between servers"):
                ps.load(tmp_path / "saved")
            with pytest.raises(PaddockError, match="no server saved shard 0 of table 'words'"):
                ps.save(tmp_path / "saved")
            back.set()
            eventually(lambda: is_at_rest(servers), "the shard has come")
        ps.load(tmp_path / "saved")
        assert ps.digest() == saved


def test_rebalance_gives_a_spare_server_its_share() -> None:
    """All but the spare's shards go away first; a trainer goes on meanwhile; shrink finds them."""
    with fleet(3) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        for shard in range(8):
            orders.move("words", shard, 0)
        before = train(ps, range(3))
        moved = orders.rebalance("words")
        assert len(moved) == 5 and orders.rebalance("words") == []
        owner = orders.place("words").owners
        assert sorted(owner.tolist().count(server) for server in range(3)) == [2, 3, 3]
        assert ps.digest() == before
        assert ps.shrink("words") == 0
        assert ps.pull("words", np.arange(-60, 60)).shape == (120, 4)


def test_what_was_asked_ahead_is_asked_again_after_a_move() -> None:
    """A prefetch whose shard is gone is a plain pull; no link waits for answers that never come."""
    with fleet(2) as servers, servers.client(timeout=3.0) as ps, admin(servers) as orders:
        declare(ps)
        keys = np.arange(-60, 60)
        ps.push("words", keys, np.ones((120, 4), np.float32))
        ps.flush()
        wanted = ps.pull("words", keys)
        for shard in range(8):
            orders.move("words", shard, 1)
        ps.prefetch("words", keys)
        assert np.array_equal(ps.pull("words", keys), wanted)
        orders.move("words", 3, 0)
        ps.prefetch("words", keys)
        ps.pull("ads", np.arange(5))
        assert np.array_equal(ps.pull("words", keys), wanted)


def test_a_wrong_order_names_what_is_wrong() -> None:
    """Table, shard and server."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        with pytest.raises(RequestError, match="cannot move from server 0 to 2"):
            orders.move("words", 0, 2)
        with pytest.raises(UsageError, match="'words' has no shard 8"):
            orders.move("words", 8, 1)
        with pytest.raises(UsageError, match="no table 'nothing'"):
            orders.move("nothing", 0, 1)


def test_a_memory_limit_refuses_a_shard() -> None:
    """The giver keeps it, and the trainer goes on."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        declare(ps)
        ps.set("words", np.arange(20000), np.ones((20000, 4), np.float32))
        store = servers.servers[1].store
        store.memory_limit_bytes = store.nbytes + 100000
        with pytest.raises(RequestError, match="it cannot take another shard"):
            for shard in range(4):
                orders.move("words", shard, 1)
        ps.push("words", np.arange(100), np.ones((100, 4), np.float32))
        ps.flush()
        assert len(orders.place("words").owners) == 8
        eventually(lambda: is_at_rest(servers), "what came is forgotten")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=64))
def test_a_plan_is_fair_and_moves_no_shard_twice(owners: list[int]) -> None:
    """Whatever the start, counts differ by one at most, and nothing moves that need not."""
    moves = plan_moves(owners, 5)
    after = {**dict(enumerate(owners)), **dict(moves)}
    counts = [list(after.values()).count(server) for server in range(5)]
    assert max(counts) - min(counts) <= 1
    assert len({shard for shard, _ in moves}) == len(moves)
