"""Server 0 numbers the lives of trainers, and a stranger cannot put one out for good."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paddock.ps import OptimizerSpec, SparseSpec
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.connection import FrameConnection, Identity
from paddock.ps.server.records import make_record
from paddock.ps.server.store import Store
from paddock.ps.storage.files import read_json, write_json
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from ps.client.running import Fleet, fleet

WORDS = SparseSpec("words", 2, OptimizerSpec("sgd", lr=1.0))
LARGEST = (1 << 32) - 1


def begun(servers: Fleet) -> int:
    """The incarnation of a trainer that begins, pushes and ends."""
    with servers.client() as ps:
        ps.create(WORDS)
        before = ps.pull("words", [1, 2, 3, 4])
        ps.push("words", [1, 2, 3, 4], np.ones((4, 2)))
        ps.flush()
        assert np.array_equal(ps.pull("words", [1, 2, 3, 4]), before - 1)
        return int(ps.peers[0].identity.incarnation)


def test_lives_are_counted_by_the_server_not_by_the_trainers_clock(tmp_path: Path) -> None:
    """A trainer that moved to a host with a slower clock was refused until that caught up."""
    with fleet(2, data=tmp_path) as two:
        assert [begun(two), begun(two)] == [1, 2]
        for index in (0, 1):
            two.stop_one(index)
            two.restart(index)
        assert begun(two) == 3


def test_an_answer_that_was_lost_gives_the_same_number_again() -> None:
    """Asked again, it is the same life."""
    with fleet(1) as one, one.client() as ps:
        terms = {"strategy": ps.strategy.name, "staleness": 0, "nonce": ps.group.session_nonce}
        assert ps.peers[0].ask(Op.JOIN, terms)["incarnation"] == 1


@pytest.mark.parametrize("server", [0, 1])
def test_a_stranger_cannot_put_a_trainer_out_for_good(server: int) -> None:
    """Neither by fencing it with the largest number, nor with a push, nor by joining."""
    with fleet(2) as two:
        assert begun(two) == 1
        endpoint = two.endpoints.split(",")[server]
        identity = Identity("default", 0, LARGEST, "0")
        link = FrameConnection(endpoint, identity, "push", 5.0)
        push = Header(
            Op.PUSH, int(FrameFlag.LAST), count=1, trainer=0, incarnation=LARGEST, sequence=1
        )  # fmt: skip
        body = np.array([7], np.int64).tobytes(), np.ones(2, np.float32).tobytes()
        for header, pieces in (
            (Header(Op.FENCE, trainer=0, incarnation=LARGEST), (b'{"nonce": "x"}',)),
            (push, body),
        ):
            link.stream.send(header, *pieces)
            with pytest.raises(RequestError):
                link.receive()
        link.close()
        peer = ServerConnection(0, two.endpoints.split(",")[0], identity, 5.0)
        with pytest.raises(RequestError, match="above"):
            peer.ask(Op.JOIN, {"strategy": "async", "nonce": "y", "above": LARGEST})
        peer.end()
        assert begun(two) == 2


def test_a_life_that_only_another_server_knows_is_passed() -> None:
    """What it was fenced with there is no end of the trainer: the next life is above it."""
    with fleet(2) as two:
        assert begun(two) == 1
        peer = ServerConnection(
            1, two.endpoints.split(",")[1], Identity("default", 0, 50, "0"), 5.0
        )
        assert peer.ask(Op.FENCE, {"nonce": "x"}) == {"loads": 1}
        peer.end()
        assert begun(two) == 51


def test_of_two_processes_the_older_one_cannot_begin_again() -> None:
    """It is told who is the newest, and does not end the newest one's part either."""
    with fleet(2) as two:
        first = two.client()
        first.create(WORDS)
        with two.client():
            with pytest.raises(RequestError, match="is not its newest, 2 is"):
                first.peers[1].ask(Op.FENCE, {"nonce": first.group.session_nonce})
            with pytest.raises(RequestError, match="the server knows incarnation"):
                first.close()
            assert two.servers[0].store.closed == set()


def test_the_state_of_a_dozen_trainers_is_read_back_from_its_file(tmp_path: Path) -> None:
    """Its checksum is of what is read again: "10" stands before "2" there, and 10 after 2."""
    store, lsn = Store(0, 1), 0

    def apply(lsn: int, header: Header, data: dict[str, object]) -> None:
        store.apply_meta(lsn, make_record(header, json.dumps(data).encode()))

    apply(1, Header(Op.RULES), {"strategy": "async", "trainers": 12})
    for lsn, trainer in enumerate(range(12), 2):
        apply(lsn, Header(Op.JOIN), {"trainer": trainer, "incarnation": 1, "step": 0})
        apply(lsn, Header(Op.COMMIT_OFFSET, trainer=trainer, step=1), {"batch": 7})
    write_json(tmp_path / "state.json", store.state_values())
    again = Store(0, 1)
    again.restore(read_json(tmp_path / "state.json", "state")[0], {})
    assert again.group is not None and len(again.group.members) == 12
    assert again.progress()["marks"]["11"].position == {"batch": 7}
    assert again.state_values() == store.state_values()


def test_a_trainer_is_heard_of_from_its_join_on() -> None:
    """Its link still named nobody: under load it was expelled before it had made the next one."""
    with fleet(1) as one:
        link = FrameConnection(one.endpoints, Identity("default", 0, 0, ""), "control", 5.0)
        link.stream.send(Header(Op.JOIN), json.dumps({"strategy": "sync", "nonce": "x"}).encode())
        assert json.loads(bytes(link.receive()[1]))["incarnation"] == 1
        assert (0, 1) in one.servers[0].connected()  # Its link over TCP may still be ending.
        link.close()
