"""Logs on a file system that the hosts of a job share."""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING

from paddock.backends.mpi.driver import Mpi
from paddock.backends.node.jobdir import process_of
from paddock.backends.registry import RegisteredJob
from paddock.backends.types import Handle, LogChunk, LogQuery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def pieces(folder: Path, query: LogQuery) -> Iterator[LogChunk]:
    """The logs of a job of MPI in this directory."""
    host = socket.gethostname()
    details = {"folder": str(folder), "host": host}
    return Mpi().logs(
        RegisteredJob(folder, "j", "j", Handle("mpi", host, "j"), "", 1, 0.0, details), query
    )


def write(folder: Path, host: str, rank: int, at_ns: int, data: bytes) -> None:
    """A log of one line and its times."""
    place = folder / "log" / host
    place.mkdir(parents=True)
    (place / "workerlog.0").write_bytes(data)
    pairs = ((1 << 63, rank), (0, at_ns))
    times = b"".join(n.to_bytes(8, "little") for pair in pairs for n in pair)
    (place / "workerlog.0.times").write_bytes(times)


def test_lines_of_all_hosts_are_one_stream(tmp_path: Path) -> None:
    """Named by the directories, ordered by time."""
    write(tmp_path, "node-a", 0, 2000, b"second\n")
    write(tmp_path, "node-b", 1, 1000, b"first\n")
    assert list(pieces(tmp_path, LogQuery())) == [
        LogChunk(1000, "node-b rank 1", b"first\n"), LogChunk(2000, "node-a rank 0", b"second\n"),
    ]  # fmt: skip


def test_a_job_is_followed_until_its_daemon_has_ended(tmp_path: Path) -> None:
    """Whatever it was that ended it."""
    write(tmp_path, "node-a", 0, 1000, b"a\n")
    (tmp_path / ".paddock").mkdir()
    state = tmp_path / ".paddock" / "state.json"
    state.write_text(json.dumps({"state": "running", "process": process_of(os.getpid())}))
    stream = pieces(tmp_path, LogQuery(follow=True))
    assert next(stream).data == b"a\n"
    with (tmp_path / "log" / "node-a" / "workerlog.0").open("ab") as file:
        file.write(b"b\n")
    assert next(stream).data == b"b\n"
    state.write_text(json.dumps({"state": "succeeded", "process": None}))
    assert list(stream) == []
    assert list(pieces(tmp_path, LogQuery(follow=True)))[-1].data == b"a\nb\n"
