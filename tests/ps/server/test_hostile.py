"""What a hostile review found: each of these lost or doubled something, or stopped a server."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.connection import FrameConnection
from paddock.ps.server.engine import Engine
from paddock.ps.spec import (
    AccessorSpec,
    InitialSpec,
    OptimizerSpec,
    ScheduleSpec,
    SparseSpec,
    check_spec,
)
from paddock.ps.stream import ConnectionClosed, FrameStream
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op, encode
from ps.client.running import fleet

WORDS = SparseSpec("words", 2)
CLICKS = SparseSpec(
    "clicks", 2, accessor=AccessorSpec(statistics=True, decay=0.5, delete_score=0.04)
)


def test_a_shrink_asked_again_decays_once() -> None:
    """Its acknowledgement may be lost: the second asking is the same call."""
    with fleet(1) as one, one.client() as ps:
        ps.create(CLICKS)
        ps.push("clicks", [1, 2], np.ones((2, 2)), shows=[1, 8], clicks=[0, 0])
        ps.flush()
        shard_of_all = [
            ps.peers[0].ask(Op.SHRINK, {"shard": shard, "round": "a"}, table=0)["dropped"]
            for shard in range(CLICKS.shards)
        ]
        before = ps.digest()
        again = [
            ps.peers[0].ask(Op.SHRINK, {"shard": shard, "round": "a"}, table=0)["dropped"]
            for shard in range(CLICKS.shards)
        ]
        assert (again, ps.digest()) == (shard_of_all, before)


def declare(engine: Engine, start: threading.Barrier, lr: float) -> str:
    """Create the table with this learning rate, at the same moment as another; what came of it."""
    spec = {"name": "t", "kind": "sparse", "dim": 2, "optimizer": {"lr": lr}}
    start.wait()
    try:
        engine.record(Op.CREATE, spec)
    except RequestError as refusal:
        return refusal.code
    return "made"


def test_tables_made_at_once_are_all_alike_or_refused() -> None:
    """Two trainers that declare one name differently: one of them hears of it."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            with fleet(1) as one:
                engine, start = one.servers[0].engine, threading.Barrier(2)
                answers = pool.map(declare, [engine] * 2, [start] * 2, [0.1, 0.2])
                assert sorted(answers) == ["made", "spec"]


@pytest.mark.parametrize(
    "spec",
    [
        SparseSpec("t", 2, initial=InitialSpec("xavier", fan=-5)),
        SparseSpec("t", 2, OptimizerSpec(schedule=ScheduleSpec("noam", dim=10**400))),
        SparseSpec("t", 2, OptimizerSpec(schedule=ScheduleSpec("noam", warmup_steps=-1))),
    ],
    ids=["fan", "dim", "warmup"],
)
def test_a_spec_that_cannot_be_carried_out_is_never_logged(spec: SparseSpec) -> None:
    """It would be logged, fail, and fail again at every start."""
    assert check_spec(spec)


def test_a_greeting_of_wrong_types_ends_its_connection_alone() -> None:
    """It ended the coordinator's clock once, without a token."""
    with fleet(1) as one:
        hello = json.dumps(
            {"version": "1", "job": "default", "trainer": [], "incarnation": 1,
             "purpose": "push", "nonce": "00"}
        ).encode()  # fmt: skip
        with socket.create_connection(("127.0.0.1", one.ports[0]), timeout=5) as sock:
            sock.sendall(encode(Header(Op.HELLO), hello) + hello)
            assert b"trainer is []" in sock.recv(4096)
        with one.client() as ps:
            assert ps.status()[0]["role"] == "primary"


def test_a_step_whose_push_was_refused_is_not_committed() -> None:
    """Parts of it are on other servers: committing them would apply half a batch."""
    with fleet(2) as two:
        ps = two.client(strategy="sync")
        ps.create(SparseSpec("words", 2, max_rows=8))
        with pytest.raises(PaddockError):
            ps.push("words", np.arange(100), np.ones((100, 2)))
            ps.step()
        with pytest.raises(PaddockError, match="cannot be completed"):
            ps.step()
        with pytest.raises(PaddockError):
            ps.close()


def test_only_the_chief_completes_a_step() -> None:
    """A trainer that tells it to would throw away what the others gave."""
    with fleet(1) as one, one.client(strategy="sync") as ps:
        ps.create(WORDS)
        with pytest.raises(RequestError, match="the coordinator decides"):
            ps.peers[0].ask(Op.COMMIT, {"step": 1, "members": []})


def test_a_push_then_pull_sees_the_push() -> None:
    """Behind a flush, also in async."""
    with fleet(1) as one, one.client() as ps:
        ps.create(SparseSpec("words", 1, OptimizerSpec("sgd", 1.0), InitialSpec("zeros")))
        for number in range(1, 31):
            ps.push("words", [1], [[-1.0]])
            ps.flush()
            assert ps.pull("words", [1]).item() == number


def test_a_log_that_lost_its_end_is_noticed(tmp_path: Path) -> None:
    """After a power cut at --ack log the server has less than it acknowledged."""
    with fleet(1, data=tmp_path) as one:
        ps = one.client(timeout=3.0)
        ps.create(WORDS)
        for _ in range(4):
            ps.push("words", [1], np.ones((1, 2)))
            ps.flush()
        one.stop_one(0)
        (log,) = (tmp_path / "0").glob("log-*.bin")
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - 60)
        one.restart(0)
        with pytest.raises(RequestError, match="the end of its log is lost"), ps:
            ps.push("words", [1], np.ones((1, 2)))
            ps.flush()


def test_barriers_hold_in_a_second_run() -> None:
    """The turns of a run that is over must not open those of the next."""
    with fleet(1, "--num_gradient_servers=2") as one, ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            first, second = pool.map(lambda t: one.client(trainer=t, trainers=2), (0, 1))
            waits = pool.submit(second.barrier, "x")
            with pytest.raises(TimeoutError):
                waits.result(0.3)
            first.barrier("x")
            assert waits.result(10.0) is None
            first.close()
            second.close()


def test_a_new_connection_is_served_when_the_one_before_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two threads that carry out the same pushes could change their order."""
    send = FrameStream.send
    # sleep: a server's thread is held up behind a link's second welcome, over the Unix socket
    delays = [0.2, 0.0]

    def slow_welcome(stream: FrameStream, header: Header, *body: bytes) -> None:
        send(stream, header, *body)
        if header.op == Op.HELLO and header.flags & FrameFlag.ANSWER and delays:
            time.sleep(delays.pop())  # sleep: as above

    with fleet(1) as one, one.client() as ps:
        ps.create(WORDS)
        identity, held = ps.peers[0].identity, one.servers[0].store.by_name["words"]

        def push(link: FrameConnection, sequence: int) -> None:
            header = Header(
                Op.PUSH, int(FrameFlag.LAST), count=1, trainer=identity.trainer,
                incarnation=identity.incarnation, sequence=sequence,
            )  # fmt: skip
            link.stream.send(
                header, np.array([7], np.int64).tobytes(), np.ones(2, np.float32).tobytes()
            )

        monkeypatch.setattr(FrameStream, "send", slow_welcome)
        links = [FrameConnection(one.endpoints, identity, "push", 5.0)]
        try:
            with held.lock:
                push(links[0], 1)
                links.append(FrameConnection(one.endpoints, identity, "push", 5.0))
                for sequence in (1, 2):
                    push(links[1], sequence)
            assert [links[1].receive()[0].sequence for _ in range(2)] == [1, 2]
            assert held.step == 2
            with pytest.raises(ConnectionClosed):
                for _ in range(2):
                    links[0].receive()
        finally:
            for link in links:
                link.close()


def test_too_many_frames_of_one_step_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers would begin anew, and what repeats a number is dropped."""
    monkeypatch.setattr("paddock.ps.client.server_group.PARTS_MAX", 3)
    with fleet(1) as one:
        ps = one.client(strategy="sync")
        ps.create(WORDS)
        for _ in range(4):
            ps.push("words", [1], np.ones((1, 2)))
        with pytest.raises(UsageError, match="in one step"):
            ps.push("words", [1], np.ones((1, 2)))
        ps.step()
        ps.close()


def test_one_huge_push_is_answered_while_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,000 answers that nobody reads fill the way back: server and client stood still."""
    monkeypatch.setattr("paddock.ps.client.partition.ROWS_MAX", 16)
    monkeypatch.setattr("paddock.ps.stream.SOCKET_BUFFER_BYTES", 64 << 10)
    keys = np.arange(48_000)
    with fleet(1) as one, one.client(timeout=10.0) as ps:
        ps.create(SparseSpec("words", 8, OptimizerSpec("sgd", 1.0), InitialSpec("zeros")))
        ps.push("words", keys, np.ones((len(keys), 8)))
        ps.flush()
        assert ps.peers[0].reconnects == 0
        # A server that was away is sent all of it again.
        ps.push("words", keys, np.ones((len(keys), 8)))
        ps.peers[0].drop("push")
        ps.flush()
        assert ps.peers[0].reconnects == 0
        assert ps.pull("words", keys).tolist() == [[-2.0] * 8] * len(keys)


@pytest.mark.parametrize(
    ("op", "data", "match"),
    [
        (Op.CLOSE, b"\xfb y", "not JSON"),
        (Op.FENCE, b'{"states": 5}', "states are 5"),
        (Op.FENCE, b'{"nonce": [1]}', "a session nonce"),
        (Op.SHRINK, b'{"shard": true}', "shrink of shard True"),
        (Op.CREATE, b'{"kind": []}', "table kind"),
        (Op.COMMIT, b'{"step": true, "members": []}', "commit of step True"),
        (Op.MOVE, b'{"shard": 0, "to": 1, "version": 1}', "not served"),
        (Op.ADOPT, b'{"shard": 1e999, "version": 1, "own": true, "step": 0}', "not whole"),
        (Op.ADOPT, b'{"shard": 0, "version": 4294967296, "own": true}', "not whole"),
        (
            Op.LOAD,
            b'{"directory": "' + b"a" * 5000 + b'", "name": "b", "checksum": "c"}',
            "no checkpoint b",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
def test_a_record_of_nonsense_is_never_logged(op: Op, data: bytes, match: str) -> None:
    """Some ended the server, at each start anew; mutants of a conversation found them."""
    with fleet(2) as two, two.client() as ps:
        ps.create(WORDS)
        who = ps.peers[1].identity
        before = two.servers[1].engine.lsn

        def ask(link: FrameConnection) -> None:
            link.stream.send(Header(op, trainer=who.trainer, incarnation=who.incarnation), data)
            link.receive()

        with pytest.raises(RequestError, match=match) as caught:
            ps.peers[1].retry("control", ask)
        assert caught.value.code != "internal" and two.servers[1].engine.lsn == before


@pytest.mark.parametrize("op", [Op.JOIN, Op.LEAVE, Op.ARRIVE, Op.COMMIT_OFFSET, Op.CLOSE])
def test_a_trainer_speaks_for_itself(op: Op) -> None:
    """A frame with another trainer's number took that one out of the job."""
    with fleet(1, "--num_gradient_servers=2") as one, one.client(trainers=2) as first:
        with one.client(trainer=1, trainers=2) as second:
            link = second.peers[0].link("control")
            who = first.peers[0].identity
            link.stream.send(Header(op, trainer=who.trainer, incarnation=who.incarnation), b"{}")
            with pytest.raises(RequestError, match="over another's connection"):
                link.receive()
        group = one.servers[0].store.group
        assert group is not None and list(group.everyone) == [0]


def test_a_server_knows_so_many_trainers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes some memory, and anybody may call himself a trainer."""
    monkeypatch.setattr("paddock.ps.server.records.TRAINERS_MAX", 1)
    with (
        fleet(1, "--num_gradient_servers=2") as one,
        one.client(trainers=2),
        pytest.raises(RequestError, match="already knows 1 trainers"),
    ):
        one.client(trainer=1, trainers=2)
