"""Real servers and real trainers, as processes on this machine, for tests of the adapters."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "ps"
SERVER = "import os, sys; from paddock.ps.server import main; main.run(sys.argv[1:], os.environ)"
SECONDS_MAX = 100.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process of a job; one thread for each library's mathematics."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **changes,
    }


class Servers:
    """`count` servers of one job. data_dir: where each keeps its log, for those to be killed."""

    def __init__(self, count: int, trainers: int, data_dir: Path | None = None) -> None:
        self.endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(count))
        self.trainers = trainers
        self.data_dir = data_dir
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, index: int) -> subprocess.Popen[str]:
        """A server's process; its first line is yet to be read."""
        words = [
            f"--port={self.endpoints.split(',')[index].rpartition(':')[2]}",
            f"--index={index}",
            f"--endpoints={self.endpoints}",
            f"--num_gradient_servers={self.trainers}",
        ]
        if self.data_dir is not None:
            words.append(f"--data-dir={self.data_dir / str(index)}")
        command = [sys.executable, "-c", SERVER, *words]
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)

    def start_all(self) -> None:
        """All of them, each ready."""
        self.processes = [self.start(i) for i in range(len(self.endpoints.split(",")))]
        for process in self.processes:
            wait_ready(process)

    def kill_and_restart(self, index: int) -> None:
        """kill -9, and the same command again."""
        self.processes[index].kill()
        self._forget(self.processes[index])
        self.processes[index] = self.start(index)
        wait_ready(self.processes[index])

    def end(self) -> None:
        """SIGTERM to all, and their ends."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            self._forget(process)

    @staticmethod
    def _forget(process: subprocess.Popen[str]) -> None:
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def wait_ready(process: subprocess.Popen[str]) -> None:
    """Returns when the server has said that it is ready."""
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()


@contextlib.contextmanager
def servers(count: int = 1, trainers: int = 1) -> Iterator[str]:
    """The endpoints of `count` running servers, with commas; they end with the block."""
    started = Servers(count, trainers)
    try:
        started.start_all()
        yield started.endpoints
    finally:
        started.end()


@dataclass(frozen=True)
class Trained:
    """What the trainers of an example printed, in their order."""

    output: list[str]

    def number(self, word: str, trainer: int = 0) -> float:
        """The number after a word that a trainer printed."""
        return float(self.text(word, trainer))

    def text(self, word: str, trainer: int = 0) -> str:
        """What follows a word that a trainer printed."""
        words = self.output[trainer].split()
        assert word in words, self.output[trainer]
        return words[words.index(word) + 1]


def train(name: str, *words: str, count: int = 1, trainers: int = 1) -> Trained:
    """Runs an example to its end: `count` servers, and `trainers` of it."""
    with servers(count, trainers) as endpoints:
        return finish(start_trainers(name, words, endpoints, trainers))


def start_trainers(
    name: str, words: Sequence[str], endpoints: str, trainers: int
) -> list[subprocess.Popen[str]]:
    """The trainers' processes, their output to be read."""
    processes = []
    for trainer in range(trainers):
        env = environment(
            PADDLE_PSERVERS_IP_PORT_LIST=endpoints,
            PADDLE_TRAINERS_NUM=str(trainers),
            PADDLE_TRAINER_ID=str(trainer),
            TRAINING_ROLE="TRAINER",
        )
        processes.append(
            subprocess.Popen(
                [sys.executable, str(EXAMPLES / name), *words],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return processes


def finish(processes: list[subprocess.Popen[str]]) -> Trained:
    """What the trainers printed, once all have ended well."""
    try:
        output = [process.communicate(timeout=SECONDS_MAX)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
    for process, text in zip(processes, output, strict=True):
        assert process.returncode == 0, text
    return Trained(output)


def together(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0) ... work(count - 1) in threads; raises what the first of them raised."""
    errors: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as error:  # noqa: BLE001 - told to the test, which fails with it
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads)
