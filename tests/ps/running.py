"""Real servers as processes of this machine: start, kill, stop, hold and start them again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.ps import Client
from paddock.ps.server.main import make_server
from paddock.ps.server.options import read_options
from stopped import stop

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS_MAX = 60.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process of ours; one thread for each library's mathematics."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **changes,
    }


def eventually(fact: Any, what: str, seconds: float = 30.0) -> Any:
    """What `fact()` gives as soon as it is true; fails with `what` when it never is."""
    deadline = time.monotonic() + seconds
    while True:
        found = fact()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.005)  # sleep: nothing tells of another process's state


@dataclass
class Job:
    """The servers of a job. flags: added to each server's. keep: whether they have data dirs.

    prefix: a command before the server's, such as nsenter(1). disk: where this process finds
    what the server has as its data directory, when it sees another file system.
    """

    folder: Path
    count: int = 1
    trainers: int = 1
    flags: tuple[str, ...] = ()
    keep: bool = True
    prefix: tuple[str, ...] = ()
    disk: Path = Path()
    endpoints: list[str] = field(default_factory=list)
    processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(self.count)]

    def data_dir(self, index: int) -> Path:
        """Where server `index` keeps its log."""
        return self.folder / f"data-{index}"

    def words(self, index: int) -> list[str]:
        """The flags of server `index`."""
        kept = [f"--data-dir={self.data_dir(index)}"] if self.keep else []
        return [
            f"--port={self.endpoints[index].rpartition(':')[2]}",
            f"--index={index}",
            f"--endpoints={','.join(self.endpoints)}",
            f"--num_gradient_servers={self.trainers}",
            *kept,
            *self.flags,
        ]

    def start(self, index: int) -> None:
        """Start a server and wait until it says that it is ready."""
        with (self.folder / f"server-{index}.err").open("a") as errors:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "paddock", "pserver", *self.words(index)],
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes[index] = process
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS_MAX)
        line = process.stdout.readline() if readable else ""
        assert "is ready" in line, f"server {index}: {line!r}; it said: {self.said(index)}"

    def start_fails(self, index: int) -> tuple[int, str]:
        """(exit code, stderr) of a server that does not start."""
        ended = subprocess.run(
            [sys.executable, "-m", "paddock", "pserver", *self.words(index)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=READY_SECONDS_MAX,
        )
        return ended.returncode, ended.stderr

    def said(self, index: int) -> str:
        """All that the lives of server `index` said on stderr."""
        path = self.folder / f"server-{index}.err"
        return path.read_text() if path.exists() else ""

    def signal(self, index: int, number: int) -> None:
        """Send a signal to a server; one that stops it has stopped every thread of it."""
        pid = self.processes[index].pid
        if number == signal.SIGSTOP:
            stop([pid])
        else:
            os.kill(pid, number)

    def kill(self, index: int) -> None:
        """kill -9, and the process is gone."""
        self._end(index, signal.SIGKILL)

    def stop(self, index: int) -> int:
        """SIGTERM; the exit code."""
        return self._end(index, signal.SIGTERM)

    def _end(self, index: int, number: int) -> int:
        process = self.processes.pop(index)
        process.send_signal(number)
        code = process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
        return code

    def restart(self, index: int) -> None:
        """kill -9, and start again on the same data directory."""
        self.kill(index)
        self.start(index)

    def client(self, trainer: int = 0, **options: Any) -> Client:
        """A trainer of the job."""
        given = {"endpoints": self.endpoints, "trainers": self.trainers, "timeout": 20.0, **options}
        return Client(trainer=trainer, **given)

    def end(self) -> None:
        """End every server that still runs."""
        for index in list(self.processes):
            process = self.processes.pop(index)
            process.kill()  # Also one that is stopped.
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


@contextlib.contextmanager
def running(
    folder: Path, count: int = 1, trainers: int = 1, *flags: str, keep: bool = True
) -> Iterator[Job]:
    """`count` servers that are ready; they end with the block."""
    job = Job(folder, count, trainers, flags, keep)
    try:
        for index in range(count):
            job.start(index)
        yield job
    finally:
        job.end()


@contextlib.contextmanager
def inside(count: int = 1, trainers: int = 1, *flags: str) -> Iterator[list[str]]:
    """The endpoints of servers that are threads of this process; they end with the block.

    Quicker to start than processes, for what kills none.
    """
    endpoints = [f"127.0.0.1:{port}" for port in free_ports(count)]
    servers = []
    try:
        for index, endpoint in enumerate(endpoints):
            words = [
                f"--port={endpoint.rpartition(':')[2]}",
                f"--index={index}",
                f"--endpoints={','.join(endpoints)}",
                f"--num_gradient_servers={trainers}",
                *flags,
            ]
            server = make_server(read_options(words, {}))
            server.start()
            servers.append(server)
        yield endpoints
    finally:
        for server in servers:
            server.stop()
