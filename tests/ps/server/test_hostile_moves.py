"""What a hostile review found about moves and outages: each of these lost, doubled or reordered."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps import Client
from paddock.ps.client.admin import Admin, read_admin_settings
from paddock.ps.server.records import make_record
from paddock.ps.shards.ownership import PHASES
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.sharding import shard_of
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from ps.client.running import fleet
from ps.server.test_moves import admin, after_each, is_at_rest

SGD = OptimizerSpec("sgd", lr=1.0)
WORDS = SparseSpec("words", 2, SGD, shards=4)
TOP = DenseSpec("top", 400, SGD, shards=4)
KEYS = np.arange(1000)
ONES = np.ones((1000, 2), np.float32)


def applied(ps: Client, keys: np.ndarray, first: np.ndarray) -> list[float]:
    """How often a gradient of ones was applied to each key, each number once."""
    return sorted({float(n) for n in np.round(first - ps.pull("words", keys), 3)[:, 0]})


def test_two_who_move_the_same_shard_do_not_lose_it() -> None:
    """To two servers at once; and once more to where the first one had it."""
    with fleet(3) as servers, servers.client() as ps, admin(servers) as one, admin(servers) as two:
        ps.create(WORDS)
        ps.push("words", KEYS, ONES)
        ps.flush()
        with ThreadPoolExecutor(2) as pool:
            for _ in range(5):
                for done in [
                    pool.submit(one.move, "words", 0, 1),
                    pool.submit(two.move, "words", 0, 2),
                ]:
                    assert done.result(20).to in (1, 2)
        assert one.place("words").owners[0] in (1, 2) and is_at_rest(servers)
        assert sum(table["rows"] for s in ps.status() for table in s["tables"]) == len(KEYS)


@pytest.mark.parametrize("phase", PHASES)
def test_a_part_that_comes_late_does_not_replace_a_shard_that_is_here(phase: str) -> None:
    """Of an earlier attempt, whose giver has died."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        ps.create(WORDS)
        ps.push("words", KEYS, ONES)
        ps.flush()
        late = Header(Op.ADOPT, int(FrameFlag.LAST), count=1, step=(1 << 32) + 1)

        def after(done: str) -> None:
            if done == phase and phase != "own":
                with pytest.raises(RequestError, match="of another attempt is here"):
                    servers.servers[1].engine.write(make_record(late, bytes(8) + b"other"))
            elif done == phase:
                assert servers.servers[1].engine.write(make_record(late, bytes(8) + b"other")).flags

        with after_each(after):
            orders.move("words", 0, 1)
        assert sum(table["rows"] for s in ps.status() for table in s["tables"]) == len(KEYS)


def test_what_is_left_of_an_earlier_attempt_is_forgotten_and_the_move_goes_on() -> None:
    """The taker asks the giver first: it alone knows that it was never given."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        ps.create(WORDS)
        ps.push("words", KEYS, ONES)
        ps.flush()
        ps.create(WORDS)
        left = Header(Op.ADOPT, count=1, step=(1 << 32) + 1)
        servers.servers[1].engine.write(make_record(left, bytes(8) + b"half"))
        assert orders.move("words", 0, 1).bytes > 0
        assert orders.place("words").owners[0] == 1 and is_at_rest(servers)


def test_pushes_wait_for_what_is_left_and_not_for_the_copy() -> None:
    """While the shard is copied a trainer's pushes to it are applied, and come along."""
    keys = KEYS[shard_of(KEYS, 4) == 0][:10]
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        ps.create(WORDS)
        first = ps.pull("words", keys)

        def push(done: str) -> None:
            if done == "copy":
                ps.push("words", keys, ONES[:10])
                ps.flush()

        with after_each(push):
            orders.move("words", 0, 1)
        assert applied(ps, keys, first) == [1]


@pytest.mark.parametrize("first", ["sparse", "dense"])
def test_a_push_that_says_it_is_queued_is_queued(first: str, tmp_path: Path) -> None:
    """One of three servers is away for longer than the client's timeout: flush() later does it."""
    with fleet(3, data=tmp_path) as servers, servers.client(timeout=0.6) as ps:
        ps.create(WORDS)
        ps.create(TOP)
        rows, vector = ps.pull("words", KEYS), ps.pull_dense("top")

        def push() -> None:
            if first == "sparse":
                ps.push("words", KEYS, ONES)
            else:
                ps.push_dense("top", np.ones(400, np.float32))
            ps.step()

        push()
        ps.flush()
        servers.stop_one(0)
        count = 1
        with pytest.raises(PaddockError, match=r"server 0 .* has not answered"):
            while count < 10:
                count += 1
                push()
        servers.restart(0)
        ps.flush()
        if first == "sparse":
            assert applied(ps, KEYS, rows) == [count]
        else:
            assert set(vector - ps.pull_dense("top")) == {count}


@pytest.mark.parametrize("why", ["frozen", "away"])
def test_pushes_that_are_sent_away_outlast_an_error(why: str, tmp_path: Path) -> None:
    """Their shard is frozen, or its new owner away, for longer than the client's timeout."""
    keys = KEYS[shard_of(KEYS, 4) == 0][:10]
    with fleet(2, data=tmp_path) as servers, servers.client(timeout=0.6, window=4) as ps:
        ps.create(WORDS)
        first = ps.pull("words", keys)
        ps.push("words", keys, ONES[:10])
        ps.flush()
        moves = servers.servers[0].store.by_name["words"].ownership
        version = 0
        with admin(servers) as orders:
            if why == "frozen":
                version = moves.leave(0, 1, 5)
                assert moves.freeze(0, version, busy=False)
            else:
                orders.move("words", 0, 1)
                servers.stop_one(1)
            with pytest.raises(PaddockError, match=r"shard 0 moves|has not answered"):
                for _ in range(3):
                    ps.push("words", keys, ONES[:10])
                    ps.step()
                ps.flush()
            if why == "frozen":
                moves.stay(0, version)
            else:
                servers.restart(1)
        ps.flush()
        assert applied(ps, keys, first) == [4]


def test_a_table_declared_again_in_the_middle_of_a_step_loses_nothing() -> None:
    """Frames of a step are numbered, and what repeats a number is dropped."""
    with fleet(1) as one, one.client(strategy="sync") as ps:
        ps.create(WORDS)
        first = ps.pull("words", KEYS)
        for _ in range(2):
            ps.create(WORDS)
            ps.push("words", KEYS, ONES)
        ps.step()
        assert applied(ps, KEYS, first) == [2]


def test_a_table_declared_again_keeps_what_was_asked_ahead() -> None:
    """Else its answer would be taken for that of the next pull."""
    with fleet(1) as one, one.client() as ps:
        ps.create(WORDS)
        ps.push("words", KEYS[:4], ONES[:4])
        ps.flush()
        near, far = ps.pull("words", KEYS[:4]), ps.pull("words", KEYS[100:104])
        ps.prefetch("words", KEYS[:4])
        ps.create(WORDS)
        assert np.array_equal(ps.pull("words", KEYS[100:104]), far)
        assert np.array_equal(ps.pull("words", KEYS[:4]), near)


def test_many_pushes_of_one_batch_keep_their_order() -> None:
    """More frames than may be unacknowledged, and shards that move all the time."""
    spec = SparseSpec("calm", 4, OptimizerSpec("adagrad", 0.1), shards=8)

    def pushes(ps: Client, table: str) -> None:
        draw = np.random.default_rng(5)
        for _ in range(250):
            keys = draw.integers(0, 64, 16)
            ps.push(table, keys, draw.integers(-4, 5, (16, 4)).astype(np.float32))
        ps.flush()

    with fleet(2) as servers, servers.client(timeout=30.0) as ps, admin(servers) as orders:
        ps.create(spec)
        pushes(ps, "calm")
        ps.create(replace(spec, name="moved"))
        with ThreadPoolExecutor(1) as pool:
            training = pool.submit(pushes, ps, "moved")
            draw = np.random.default_rng(1)
            while not training.done():
                shard = int(draw.integers(8))
                orders.move("moved", shard, 1 - int(orders.place("moved").owners[shard]))
            training.result()
        every = np.arange(64)
        assert np.array_equal(ps.pull("moved", every), ps.pull("calm", every))


def test_a_checkpoint_is_loaded_again_when_a_shard_moved_meanwhile(tmp_path: Path) -> None:
    """From a server that had not read its share yet to one that had."""
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        ps.create(WORDS)
        ps.push("words", KEYS, ONES)
        ps.save(tmp_path)
        saved = ps.digest()
        ps.push("words", KEYS, ONES)
        ps.flush()
        ask = ps.peers[1].ask

        def interrupted(op: Op, data: dict[str, Any], **more: Any) -> dict[str, Any]:
            if op == Op.LOAD and orders.place("words").owners[2] == 1:
                orders.move("words", 2, 0)
            return ask(op, data, **more)

        ps.peers[1].ask = interrupted  # type: ignore[method-assign]
        ps.load(tmp_path)
        assert ps.digest() == saved


def test_a_shrink_follows_a_shard_that_moves() -> None:
    """Given up and ordered again, it decayed some shards twice."""
    spec = replace(WORDS, accessor=AccessorSpec(statistics=True, decay=0.5))
    with fleet(2) as servers, servers.client() as ps, admin(servers) as orders:
        ps.create(spec)
        ps.push("words", KEYS, ONES, shows=np.full(1000, 5.0), clicks=np.zeros(1000))
        ps.flush()
        with Admin(read_admin_settings({}, endpoints=servers.endpoints)) as orders:
            ask: Callable[..., dict[str, Any]] = orders.peers[1].ask

            def interrupted(op: Op, data: dict[str, Any], **more: Any) -> dict[str, Any]:
                if op == Op.SHRINK and orders.place("words").owners[2] == 1:
                    orders.move("words", 2, 0)
                return ask(op, data, **more)

            orders.peers[1].ask = interrupted  # type: ignore[method-assign]
            orders.shrink("words")
        held = [s.store.by_name["words"] for s in servers.servers]
        shows = [h.table.shard_state(n)["shows"] for h in held for n in h.owned]
        assert {float(x) for x in np.concatenate(shows)} == {2.5}
