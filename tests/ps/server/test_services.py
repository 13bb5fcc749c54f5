"""What server 0 hosts: a service, its notes, and positions of trainers that gave nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.ps.client.client import Client
from paddock.ps.group.messages import MemberExpelled
from paddock.ps.server.main import finish, make_server
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server
from paddock.ps.server.services import ServiceContext
from paddock.ps.spec import SparseSpec
from paddock.ps.wire.errors import RequestError


class Counter:
    """Counts how often it is asked."""

    def answer(
        self, who: tuple[int, int] | None, question: Mapping[str, Any], desk: ServiceContext
    ) -> dict[str, Any]:
        """The count, from its notes."""
        count = desk.notes.get("count", 0) + 1
        desk.keep({"count": count})
        return {"count": count, "who": who, "serial": desk.serial}


def start(folder: Path, *flags: str) -> Server:
    """A server of one trainer, with its log in `folder`."""
    words = ["--port=0", "--job=j", f"--data-dir={folder / 'data'}", *flags]
    server = make_server(read_options(words, {}), {"counter": Counter()})
    server.start()
    return server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Of two trainers, where silence is not waited for."""
    server = start(tmp_path, "--num_gradient_servers=2", "--on-lost-trainer=rescale")
    yield server
    finish(server)


def client(server: Server, trainer: int = 0, trainers: int = 1, strategy: str = "sync") -> Client:
    """A trainer of the server's job."""
    return Client(
        f"127.0.0.1:{server.port}", trainer=trainer, trainers=trainers, job="j", strategy=strategy
    )


def test_service_goes_on_from_its_notes_after_a_restart(tmp_path: Path) -> None:
    """Notes are in the log: what a service was told to remember is there in its next life."""
    first = start(tmp_path)
    with client(first) as ps:
        assert [ps.call("counter", {})["count"] for _ in range(2)] == [1, 2]
    finish(first)
    again = start(tmp_path)
    with client(again) as ps:
        answer = ps.call("counter", {})
    finish(again)
    assert (answer["count"], answer["who"]) == (3, [0, 2])


def test_snapshot_has_the_notes(tmp_path: Path) -> None:
    """The log before it may be gone."""
    first = start(tmp_path)
    with client(first) as ps:
        ps.call("counter", {})
        assert first.snapshots is not None
        first.snapshots.take(keep=1)
    finish(first)
    again = start(tmp_path)
    notes = dict(again.store.kv)
    finish(again)
    assert notes == {"counter/count": 1}


def test_loaded_checkpoint_has_the_notes_of_its_time(tmp_path: Path) -> None:
    """Notes are in one cut with the positions; the serial does not go back."""
    server = start(tmp_path)
    with client(server) as ps:
        ps.create(SparseSpec("words", 2))
        ps.call("counter", {})
        ps.save(tmp_path / "saved")
        before = ps.call("counter", {})
        ps.load(tmp_path / "saved")
        after = ps.call("counter", {})
    finish(server)
    assert (before["count"], after["count"]) == (2, 2)
    assert after["serial"] > before["serial"]


def test_unknown_service_is_refused_by_name(tmp_path: Path) -> None:
    """A server of an older version says so at once."""
    server = start(tmp_path)
    with client(server) as ps, pytest.raises(RequestError, match="no service 'data'"):
        ps.call("data", {})
    finish(server)


@pytest.mark.parametrize("keys", [[1], [["a"]], [{}], [None], "a", {}])
def test_a_key_that_is_no_text_is_a_wrong_request(tmp_path: Path, keys: Any) -> None:
    """Not an error of the server's."""
    server = start(tmp_path)
    with client(server) as ps, pytest.raises(RequestError, match="no request to the") as refused:
        ps.call("kv", {"get": keys})
    finish(server)
    assert refused.value.code == "usage"


def test_position_of_a_step_without_the_trainer_does_not_count(server: Server) -> None:
    """Who was expelled before a step was committed gave nothing to it: its data go on before."""
    gone = client(server, 1, 2)
    with client(server, 0, 2) as ps:
        for one in (ps, gone):
            one.create(SparseSpec("words", 2))
        gone.push("words", [1], np.ones((1, 2), np.float32))
        gone.commit_offset({"line": 7})
        assert server.coordinator is not None
        life = gone.peers[0].identity.incarnation
        with server.coordinator._changed:
            list(server.coordinator._write(MemberExpelled(1, life, "silent")))
        ps.step()
        assert server.store.committed == 1
        assert server.store.progress()["marks"].get("1", (0, None, 0))[1] is None
    for peer in gone.peers:
        peer.end()
