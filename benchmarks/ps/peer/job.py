"""Starts the peer's servers and trainers as its launcher would, by environment; ours to drive."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ps.machine import free_ports, wait_port
from benchmarks.ps.peer.install import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from benchmarks.ps.group import Child, Group

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
SERVER_SECONDS = 90.0


class PeerJob:
    """Servers that are up, and how to run trainers against them."""

    def __init__(self, group: Group, python: str, script: str, servers: int, trainers: int) -> None:
        self._group, self._python, self._script = group, python, str(HERE / script)
        ports = free_ports(servers + trainers + 1)
        self._trainer_ports = ports[servers:-1]
        self.server_ports = ports[:servers]
        self.env = {
            **clean_environment(),
            "OMP_NUM_THREADS": "1",
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"{HOST}:{p}" for p in self.server_ports),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{HOST}:{p}" for p in self._trainer_ports),
            "PADDLE_TRAINERS_NUM": str(trainers),
            # Several trainers meet through gloo over HTTP before they begin.
            "PADDLE_WITH_GLOO": "1" if trainers > 1 else "0",
            "PADDLE_GLOO_RENDEZVOUS": "3",
            "PADDLE_GLOO_HTTP_ENDPOINT": f"{HOST}:{ports[-1]}",
            "POD_IP": HOST,
        }
        self.servers: list[Child] = []
        self.ready_seconds: list[float] = []

    def start_servers(self, words: list[str]) -> None:
        """Start them, in parallel. Raises: TimeoutError, from wait_port."""
        for index, port in enumerate(self.server_ports):
            role = {"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)}
            env = {**self.env, **role, "PADDLE_PSERVER_ID": str(index)}
            self.servers.append(self._start(f"peer-server{index}", env, words))
        if int(self.env["PADDLE_TRAINERS_NUM"]) == 1:
            # With gloo a server waits for the trainers before it listens.
            for child, port in zip(self.servers, self.server_ports, strict=True):
                at = wait_port(port, SERVER_SECONDS, alive=child.process)
                self.ready_seconds.append(at - child.started)

    def run_trainers(self, words: list[str], limit_seconds: float) -> list[list[dict[str, Any]]]:
        """What each of the trainers measured, in order. Raises: ChildFailed."""
        running = []
        for rank, port in enumerate(self._trainer_ports):
            role = {"TRAINING_ROLE": "TRAINER", "PADDLE_PORT": str(port)}
            env = {**self.env, **role, "PADDLE_TRAINER_ID": str(rank)}
            env["BENCH_SERVER_PIDS"] = " ".join(str(child.pid) for child in self.servers)
            running.append(self._start(f"peer-trainer{rank}", env, words))
        return [child.wait(limit_seconds) for child in running]

    def _start(self, name: str, env: dict[str, str], words: list[str]) -> Child:
        return self._group.start(name, [self._python, "-u", self._script, *words], env)


@contextmanager
def peer_job(
    group: Group, python: str, script: str, words: list[str], *, servers: int = 1, trainers: int = 1
) -> Iterator[PeerJob]:
    """A job of the peer whose servers are up; they end with the group."""
    job = PeerJob(group, python, script, servers, trainers)
    job.start_servers(words)
    yield job
