"""Shards that change hands under training: same bits, every step repeatable, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.client import Client
from paddock.ps.client.move import Where, mend, move, plan, rebalance
from paddock.ps.client.peer import Peer
from paddock.ps.link import Identity
from paddock.ps.protocol.frames import Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.server.moves import HOLD_SECONDS, Moves
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from ps.client.running import Fleet, fleet
from ps.running import eventually

STEPS = ("freeze", "first part", "adopt", "move", "own")
WORDS = SparseSpec("words", 4, OptimizerSpec("adagrad", 0.1), shards=8)
ADS = SparseSpec(
    "ads", 2, OptimizerSpec("adam", 0.01), shards=4, accessor=AccessorSpec(statistics=True)
)
TOP = DenseSpec("top", 300, OptimizerSpec("momentum", 0.05), shards=4)
TABLES = (WORDS, ADS, TOP)


@contextmanager
def admin(servers: Fleet, timeout: float = 5.0) -> Iterator[list[Peer]]:
    """Links as `paddock ps` has them."""
    identity = Identity("default", 0, 1, "0")
    peers = [
        Peer(i, endpoint, identity, timeout, purpose="admin")
        for i, endpoint in enumerate(servers.endpoints.split(","))
    ]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()


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
    with fleet(2) as servers, servers.client(strategy=strategy) as ps, admin(servers) as peers:
        declare(ps)
        for step in range(12):
            batch(ps, step)
            if strategy == "sync" or step % 3 == 0:
                for spec in TABLES:
                    shard = step % spec.shards
                    owner = Where(peers, spec.name).owner[shard]
                    assert move(peers, spec.name, shard, 1 - owner).to == 1 - owner
        assert ps.digest() == calm[strategy]
        assert len(Where(peers, "words").owner) == 8


@pytest.mark.parametrize("strategy", ["sync", "async", "half_async"])
def test_moves_in_the_middle_of_batches_change_no_bit(
    strategy: str, calm: dict[str, dict[str, str]]
) -> None:
    """Another thread moves shards all the time; the order of pushes stays."""
    ended = threading.Event()
    moved: list[int] = []
    with fleet(3) as servers, servers.client(strategy=strategy) as ps, admin(servers) as peers:
        declare(ps)

        def disturb() -> None:
            draw = np.random.default_rng(1)
            while not ended.is_set():
                spec = TABLES[int(draw.integers(3))]
                to = int(draw.integers(3))
                moved.append(move(peers, spec.name, int(draw.integers(spec.shards)), to).bytes)

        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            step = 0
            while step < 12:
                batch(ps, step)
                step += 1
                ps.traffic.settle(2)
        finally:
            ended.set()
            while thread.is_alive():  # A move of sync may wait for a step's end.
                thread.join(0.05)
        assert ps.digest() == calm[strategy]
        assert any(moved)


@pytest.mark.parametrize("step", STEPS)
def test_a_move_broken_off_after_any_step_is_mended_by_the_same_order(
    step: str, calm: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """The admin dies there; both servers start anew, from their logs; the order is given again."""

    def die(done: str) -> None:
        if done == step:
            raise KeyboardInterrupt

    with fleet(2, data=tmp_path) as servers:
        with servers.client() as ps, admin(servers) as peers:
            declare(ps)
            train(ps, range(6))
            for spec in TABLES:
                with pytest.raises(KeyboardInterrupt):
                    move(peers, spec.name, 0, 1, after=die)
            for index in range(2):
                servers.stop_one(index)
                servers.restart(index)
            for spec in TABLES:
                assert move(peers, spec.name, 0, 1).to == 1
                assert Where(peers, spec.name).owner[0] == 1
                assert not Where(peers, spec.name).arrivals()
            assert train(ps, range(6, 12)) == calm["async"]
        with servers.client(trainer=0) as other:
            declare(other)
            assert other.traffic.tables["words"].owners.tolist() == [1, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("step", STEPS)
def test_a_snapshot_at_any_step_recovers_exactly(
    step: str, calm: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Both servers write a snapshot there, and start from it and from what the log has after."""
    with fleet(2, data=tmp_path) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        train(ps, range(6))

        def snapshot(done: str) -> None:
            if done == step:
                for server in servers.servers:
                    assert server.snapshots is not None
                    server.snapshots.take()

        for spec in TABLES:
            move(peers, spec.name, 0, 1, after=snapshot)
            move(peers, spec.name, spec.shards - 1, 0, after=snapshot)
        train(ps, range(6, 9))
        wanted = ps.digest()
        for index in range(2):
            servers.stop_one(index)
            servers.restart(index)
        assert ps.digest() == wanted
        assert Where(peers, "top").owner == {0: 1, 1: 0, 2: 1, 3: 0}
        assert train(ps, range(9, 12)) == calm["async"]


@pytest.mark.parametrize("after", ["state", "first shard", "all shards"])
@pytest.mark.parametrize("returns", [False, True])
def test_a_move_while_a_snapshot_is_written_recovers_exactly(
    after: str, returns: bool, calm: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Shards go and come between the copies of a snapshot, with pushes around each move."""
    with fleet(2, data=tmp_path) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        train(ps, range(5))
        left = iter(range(5, 10))

        def disturb() -> None:
            for to in (1, 0) if returns else (1,):
                for spec in TABLES:
                    train(ps, range(s := next(left, 10), min(s + 1, 10)))
                    move(peers, spec.name, 0, to)
                    move(peers, spec.name, spec.shards - 1, 1 - to)

        snapshots = servers.servers[0].snapshots
        assert snapshots is not None
        state, copy, calls = snapshots._state, snapshots._copy, []

        def state_then() -> object:
            found = state()
            if after == "state":
                disturb()
            return found

        def copy_then(table: str, shard: int) -> object:
            found = copy(table, shard)
            calls.append(shard)
            if (after, len(calls)) in (("first shard", 1), ("all shards", 8)):
                disturb()
            return found

        snapshots._state, snapshots._copy = state_then, copy_then  # type: ignore[assignment]
        snapshots.take()
        assert len(calls) >= 8 - 3
        train(ps, range(next(left, 10), 10))
        wanted = ps.digest()
        servers.stop_one(0)
        servers.restart(0)
        assert ps.digest() == wanted
        assert train(ps, range(10, 12)) == calm["async"]


def test_every_order_may_be_given_twice() -> None:
    """Repeats of each record and of whole moves change nothing and are no errors."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        before = train(ps, range(3))
        first = move(peers, "words", 0, 1)
        assert first.bytes > 0 and first.source == 0
        assert move(peers, "words", 0, 1).bytes == 0
        version = servers.servers[0].store.by_name["words"].moves.given[0][1]
        order = {"shard": 0, "version": version}
        peers[0].ask(Op.MOVE, {**order, "to": 1}, table=0)
        peers[1].ask(Op.ADOPT, {**order, "own": True}, table=0)
        assert ps.digest() == before


def test_a_move_after_its_freeze_has_ended_is_refused() -> None:
    """Pushes that came meanwhile would be lost."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        order = {"table": "words", "shard": 0, "version": 5}
        assert not peers[0].ask(Op.CONTROL, {"do": "freeze", **order})["busy"]
        assert peers[0].ask(Op.CONTROL, {"do": "freeze", **order, "version": 6})["busy"]
        peers[0].ask(Op.CONTROL, {"do": "thaw", **order})
        with pytest.raises(Refusal, match="not frozen any more"):
            peers[0].ask(Op.MOVE, {**order, "to": 1}, table=0)
        with pytest.raises(Refusal, match="cannot move from server 0 to 7"):
            peers[0].ask(Op.MOVE, {**order, "to": 7}, table=0)
        with pytest.raises(Refusal, match="not here as a whole"):
            peers[1].ask(Op.ADOPT, {**order, "own": True}, table=0)


def test_a_freeze_ends_by_itself() -> None:
    """After HOLD_SECONDS without a word from the admin, pushes pass."""
    now = [0.0]
    moves = Moves("words", 0, [0, 1], 4, lambda: now[0])
    assert moves.freeze(1, 7)
    push = Header(Op.PUSH, sequence=4, trainer=3, incarnation=9)
    with pytest.raises(Refusal) as caught:
        moves.check_push(push, np.array([0, 1]))
    assert caught.value.facts == {"owners": {}, "wait": True}
    now[0] = HOLD_SECONDS - 1
    assert moves.is_held(1, 7)
    now[0] = HOLD_SECONDS
    moves.check_push(push, np.array([0, 1]))
    assert not moves.is_held(1, 7)


def test_later_pushes_do_not_overtake_one_that_was_sent_away() -> None:
    """They are refused until it has come again, or is skipped; other trainers' are not."""
    moves = Moves("words", 0, [0, 1], 4, lambda: 0.0)
    moves.freeze(1, 7)
    first = Header(Op.PUSH, sequence=4, trainer=3, incarnation=9)
    later = first._replace(sequence=5)
    open_shard = np.array([0])
    with pytest.raises(Refusal, match="shard 1 moves"):
        moves.check_push(first, np.array([1]))
    with pytest.raises(Refusal, match="push 5 waits for push 4"):
        moves.check_push(later, open_shard)
    moves.check_push(later._replace(trainer=4), open_shard)
    moves.skipped(first)
    moves.check_push(later, open_shard)
    moves.give(1, 2, 7)
    moves.check_pull(open_shard)
    with pytest.raises(Refusal, match="is server 2's now") as caught:
        moves.check_pull(np.array([0, 1, 3]))
    assert caught.value.facts == {"owners": {"1": 2}, "wait": True}
    assert moves.behind == {}


@pytest.mark.parametrize("table", ["words", "top"])
def test_what_comes_before_the_first_shard_of_all_waits_for_it(
    table: str, calm: dict[str, dict[str, str]]
) -> None:
    """The giver has let go, the taker does not own yet, and never had to do with a move before."""
    found: list[dict[str, str]] = []
    with fleet(2) as servers, servers.client(strategy="async") as ps, admin(servers) as peers:
        declare(ps)
        train(ps, range(6))
        thread = threading.Thread(target=lambda: found.append(train(ps, range(6, 12))))
        taker = servers.servers[1].store.by_name[table].moves

        def after(step: str) -> None:
            if step == "move":
                with pytest.raises(Refusal, match=f"table '{table}': shard 0 moves"):
                    taker.check_pull(np.array([0]))
                thread.start()
                eventually(lambda: taker.behind, "a push waits at the taker")

        move(peers, table, 0, 1, after=after)
        thread.join(30)
    assert found == [calm["async"]]


def test_a_step_of_sync_is_finished_before_a_shard_moves() -> None:
    """The giver waits for the commit; the trainer's next pushes find the new owner."""
    with fleet(2) as servers, admin(servers) as peers, servers.client(strategy="sync") as ps:
        declare(ps)
        ps.push("words", np.arange(40), np.ones((40, 4), np.float32))
        ps.traffic.settle(0)
        with pytest.raises(PaddockError, match="a step is being gathered"):
            move(peers, "words", 0, 1, deadline=0.0)
        assert Where(peers, "words").owner[0] == 0
        ps.step()
        assert move(peers, "words", 0, 1).bytes > 0
        before = ps.digest()
        assert move(peers, "words", 0, 0).bytes > 0
        assert ps.digest() == before


def test_a_checkpoint_is_not_loaded_over_a_shard_on_its_way(tmp_path: Path) -> None:
    """Nobody would read that shard; after rebalance the load is whole."""

    def die(done: str) -> None:
        if done == "move":
            raise KeyboardInterrupt

    with fleet(2) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        train(ps, range(3))
        ps.save(tmp_path)
        saved = ps.digest()
        train(ps, range(3, 5))
        with pytest.raises(KeyboardInterrupt):
            move(peers, "words", 0, 1, after=die)
        with pytest.raises(PaddockError, match="is on its way between servers"):
            ps.load(tmp_path)
        with pytest.raises(PaddockError, match="no server saved shard 0 of table 'words'"):
            ps.save(tmp_path)
        assert mend(peers, "words").owner[0] == 1
        ps.load(tmp_path)
        assert ps.digest() == saved


def test_rebalance_gives_a_spare_server_its_share() -> None:
    """All but the spare's shards go away first; a trainer goes on meanwhile; shrink finds them."""
    with fleet(3) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        for shard in range(8):
            move(peers, "words", shard, 0)
        before = train(ps, range(3))
        moved = rebalance(peers, "words")
        assert len(moved) == 5 and rebalance(peers, "words") == []
        owner = Where(peers, "words").owner
        assert sorted(list(owner.values()).count(server) for server in range(3)) == [2, 3, 3]
        assert ps.digest() == before
        assert ps.shrink("words") == 0
        assert ps.pull("words", np.arange(-60, 60)).shape == (120, 4)


def test_what_was_asked_ahead_is_asked_again_after_a_move() -> None:
    """A prefetch whose shard is gone is a plain pull; no link waits for answers that never come."""
    with fleet(2) as servers, servers.client(timeout=3.0) as ps, admin(servers) as peers:
        declare(ps)
        keys = np.arange(-60, 60)
        ps.push("words", keys, np.ones((120, 4), np.float32))
        ps.flush()
        wanted = ps.pull("words", keys)
        for shard in range(8):
            move(peers, "words", shard, 1)
        ps.prefetch("words", keys)
        assert np.array_equal(ps.pull("words", keys), wanted)
        move(peers, "words", 3, 0)
        ps.prefetch("words", keys)
        ps.pull("ads", np.arange(5))
        assert np.array_equal(ps.pull("words", keys), wanted)


def test_a_wrong_order_names_what_is_wrong() -> None:
    """Table, shard and server."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        with pytest.raises(UsageError, match="there is no server 2"):
            move(peers, "words", 0, 2)
        with pytest.raises(UsageError, match="'words' has no shard 8"):
            move(peers, "words", 8, 1)
        with pytest.raises(UsageError, match="no server has a table 'nothing'"):
            move(peers, "nothing", 0, 1)


def test_a_memory_limit_refuses_a_shard() -> None:
    """The giver keeps it, and the trainer goes on."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as peers:
        declare(ps)
        ps.set("words", np.arange(20000), np.ones((20000, 4), np.float32))
        store = servers.servers[1].store
        store.memory_limit_bytes = store.nbytes + 100000
        with pytest.raises(Refusal, match="it cannot take another shard"):
            for shard in range(4):
                move(peers, "words", shard, 1)
        ps.push("words", np.arange(100), np.ones((100, 4), np.float32))
        ps.flush()
        assert len(mend(peers, "words").owner) == 8


@given(st.lists(st.integers(0, 4), min_size=1, max_size=64))
def test_a_plan_is_fair_and_moves_no_shard_twice(owners: list[int]) -> None:
    """Whatever the start, counts differ by one at most, and nothing moves that need not."""
    owner = dict(enumerate(owners))
    moves = plan(owner, 5)
    after = {**owner, **dict(moves)}
    counts = [list(after.values()).count(server) for server in range(5)]
    assert max(counts) - min(counts) <= 1
    assert len({shard for shard, _ in moves}) == len(moves)
