"""Real servers and real trainers, as processes on this machine, for tests of the adapters."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
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


@contextlib.contextmanager
def servers(count: int = 1, trainers: int = 1) -> Iterator[str]:
    """The endpoints of `count` running servers, with commas; they end with the block."""
    endpoints = ",".join(f"127.0.0.1:{port}" for port in free_ports(count))
    started: list[subprocess.Popen[str]] = []
    try:
        for index, endpoint in enumerate(endpoints.split(",")):
            words = [
                f"--port={endpoint.rpartition(':')[2]}",
                f"--index={index}",
                f"--endpoints={endpoints}",
                f"--num_gradient_servers={trainers}",
            ]
            command = [sys.executable, "-c", SERVER, *words]
            started.append(
                subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
            )
        for process in started:
            assert process.stdout is not None
            assert "is ready" in process.stdout.readline()
        yield endpoints
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(10)
            assert process.stdout is not None
            process.stdout.close()


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
        processes = []
        for trainer in range(trainers):
            env = environment(
                PADDLE_PSERVERS_IP_PORT_LIST=endpoints,
                PADDLE_TRAINERS_NUM=str(trainers),
                PADDLE_TRAINER_ID=str(trainer),
                TRAINING_ROLE="TRAINER",
            )
            command = [sys.executable, str(EXAMPLES / name), *words]
            processes.append(
                subprocess.Popen(
                    command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
            )
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
