"""A replica that is too far behind for the log, or starts with nothing, gets the snapshot."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from paddock.ps import Client
from paddock.ps.replication import follower
from paddock.ps.replication.pair import Pair
from paddock.ps.replication.witness import serve_witness
from paddock.ps.server import recovery
from paddock.ps.server.main import make_server
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server
from paddock.ps.storage.log import RecordLog
from ps.real.work import batch, declare
from ps.running import eventually, free_ports

pytestmark = pytest.mark.real

SEED = 3


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is cut in whole segments; with those of 256 MiB this would take long."""
    short = functools.partial(RecordLog, segment_bytes=20_000)
    monkeypatch.setattr(recovery, "RecordLog", short)
    monkeypatch.setattr(follower, "RecordLog", short)


class Two:
    """A pair in this process. servers: those that run, by place."""

    def __init__(self, folder: Path, witness: str) -> None:
        self.folder = folder
        self.witness = witness
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(2)]
        self.servers: dict[int, Server] = {}

    def start(self, index: int) -> Server:
        """Start one of the two."""
        words = [
            f"--port={self.endpoints[index].rpartition(':')[2]}",
            "--index=0",
            f"--endpoints={'|'.join(self.endpoints)}",
            f"--data-dir={self.folder / str(index)}",
            f"--witness={self.witness}",
            "--ack=replica",
            *([f"--replica-of={self.endpoints[0]}"] if index else []),
        ]
        server = make_server(read_options(words, {}))
        server.start()
        self.servers[index] = server
        return server

    def stop(self, index: int) -> None:
        """End one of the two in an orderly way."""
        server = self.servers.pop(index)
        server.stop()
        assert server.engine.log is not None and isinstance(server.replication, Pair)
        server.engine.log.close()
        server.replication.file.close()

    def digest(self, index: int) -> dict[str, int]:
        """The digests of the tables of one of the two."""
        with self.servers[index].engine.at_rest():
            return self.servers[index].store.digests()

    def is_in_sync(self) -> bool:
        """Whether either may be promoted."""
        members = [self._member(index) for index in self.servers]
        return len(members) == 2 and all(one["is_in_sync"] for one in members)

    def is_primary(self, index: int) -> bool:
        """Whether it serves."""
        return self.servers[index].role == "primary"

    def _member(self, index: int) -> dict[str, object]:
        facts = self.servers[index].replication.describe()
        assert facts is not None
        return facts


@contextmanager
def pair(folder: Path) -> Iterator[Two]:
    """Nothing runs yet but the witness."""
    port, ended, ready = free_ports(1)[0], threading.Event(), threading.Event()
    thread = threading.Thread(
        target=lambda: serve_witness(
            ended,
            port=port,
            data_dir=str(folder / "witness"),
            say=lambda line: None,
            ready=lambda line: ready.set(),
        )
    )
    thread.start()
    assert ready.wait(10)
    two = Two(folder, f"127.0.0.1:{port}")
    try:
        yield two
    finally:
        for index in list(two.servers):
            two.stop(index)
        ended.set()
        thread.join(10)


def train(client: Client, first: int, last: int) -> None:
    """Batches whose gradients do not depend on the rows."""
    for step in range(first, last + 1):
        batch(client, SEED, 0, step, reads=False)
    client.flush()


@contextmanager
def trainer(two: Two) -> Iterator[Client]:
    """A trainer of the pair."""
    with Client(["|".join(two.endpoints)], trainer=0, trainers=1, timeout=20.0) as client:
        declare(client)
        yield client


def test_a_new_replica_gets_the_snapshot_when_the_log_was_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then the records after it; and it takes over with the same tables."""
    with ExitStack() as held:
        two = held.enter_context(pair(tmp_path))
        primary = two.start(0)
        eventually(lambda: two.is_primary(0), "a primary")
        client = held.enter_context(trainer(two))
        assert primary.snapshots is not None and primary.engine.log is not None
        for first in (1, 11, 21):
            train(client, first, first + 9)
            primary.snapshots.take()
        assert primary.engine.log.first > 1
        train(client, 31, 35)
        two.start(1)
        eventually(two.is_in_sync, "in sync")
        train(client, 36, 40)
        # On a busy machine a replica that is late is left behind for a moment, and comes again.
        eventually(two.is_in_sync, "still in sync, or again")
        assert two.digest(0) == two.digest(1)
        two.stop(0)
        eventually(lambda: two.is_primary(1), "the replica serves")
        train(client, 41, 45)
        two.start(0)
        eventually(two.is_in_sync, "in sync again")
        assert two.digest(0) == two.digest(1)
        assert capsys.readouterr().err.count("the primary's snapshot of record") == 1


def test_a_replica_that_missed_too_much_begins_with_the_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own log ends before the primary's begins; it restarts from what it then has."""
    with ExitStack() as held:
        two = held.enter_context(pair(tmp_path))
        primary = two.start(0)
        eventually(lambda: two.is_primary(0), "a primary")
        client = held.enter_context(trainer(two))
        two.start(1)
        train(client, 1, 5)
        eventually(two.is_in_sync, "in sync")
        two.stop(1)
        assert primary.snapshots is not None and primary.engine.log is not None
        for first in (6, 16, 26):
            train(client, first, first + 9)
            primary.snapshots.take()
        assert primary.engine.log.first > 20
        two.start(1)
        eventually(two.is_in_sync, "in sync")
        assert two.digest(0) == two.digest(1)
        two.stop(1)
        train(client, 36, 40)
        two.start(1)
        eventually(two.is_in_sync, "in sync from its own disk")
        assert two.digest(0) == two.digest(1)
        said = capsys.readouterr().err
        assert said.count("the log is too old to be continued") == 1
        assert said.count("the primary's snapshot of record") == 1
