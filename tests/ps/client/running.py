"""Servers for tests: in this process where that is enough, as processes where one must die."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paddock.ps.client.client import Client
from paddock.ps.server.main import make_server
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, "-m", "paddock", "pserver"]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


class Fleet:
    """Servers 0 to count - 1 of a job, in this process."""

    def __init__(self, count: int, words: Sequence[str] = (), data: Path | None = None) -> None:
        self.ports = free_ports(count)
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.words = list(words)
        self.data = data
        self.servers: list[Server] = [self._make(index) for index in range(count)]

    def _make(self, index: int) -> Server:
        words = [
            f"--port={self.ports[index]}",
            f"--index={index}",
            f"--endpoints={self.endpoints}",
            *self.words,
        ]
        if self.data is not None:
            words.append(f"--data-dir={self.data / str(index)}")
        server = make_server(read_options(words, {}))
        server.start()
        return server

    def stop_one(self, index: int) -> None:
        """End one server; its log is closed."""
        server = self.servers[index]
        server.stop()
        if server.engine.log is not None:
            server.engine.log.close()

    def restart(self, index: int) -> None:
        """Start one anew, from its data directory."""
        self.servers[index] = self._make(index)

    def stop(self) -> None:
        """End them all."""
        for index in range(len(self.servers)):
            self.stop_one(index)

    def client(self, **settings: Any) -> Client:
        """A trainer of the job."""
        return Client(self.endpoints, **{"timeout": 20.0, "trainer": 0, **settings})


@contextlib.contextmanager
def fleet(
    count: int = 1, *words: str, data: Path | None = None, kind: type[Fleet] = Fleet
) -> Iterator[Fleet]:
    """Servers that end with the block."""
    made = kind(count, words, data)
    try:
        yield made
    finally:
        made.stop()


class Processes:
    """Servers as processes, which can be killed and started again at their ports."""

    def __init__(self, count: int, data: Path, *words: str, env: dict[str, str] | None = None):
        self.ports = free_ports(count)
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.data = data
        self.words = words
        self.env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})}
        self.running: list[subprocess.Popen[str]] = [self._start(i) for i in range(count)]
        for index in range(count):
            self.wait_ready(index)

    def _start(self, index: int) -> subprocess.Popen[str]:
        words = [
            f"--port={self.ports[index]}",
            f"--index={index}",
            f"--endpoints={self.endpoints}",
            f"--data-dir={self.data / str(index)}",
            *self.words,
        ]
        return subprocess.Popen(
            [*COMMAND, *words],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self, index: int) -> None:
        """Until a server has said that it is ready."""
        out = self.running[index].stdout
        assert out is not None
        line = out.readline()
        if "is ready" not in line:
            raise AssertionError(f"server {index}: {line}{self.running[index].communicate()}")

    def kill(self, index: int) -> None:
        """kill -9."""
        process = self.running[index]
        process.kill()
        process.communicate()

    def start(self, index: int) -> None:
        """Start a dead one at its place; returns when it is ready."""
        self.running[index] = self._start(index)
        self.wait_ready(index)

    def stop(self) -> None:
        """End all that still run."""
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.running:
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()


@contextlib.contextmanager
def processes(
    count: int, data: Path, *words: str, env: dict[str, str] | None = None
) -> Iterator[Processes]:
    """Server processes that end with the block."""
    made = Processes(count, data, *words, env=env)
    try:
        yield made
    finally:
        made.stop()
