"""Starts Paddock's servers as a user would, and trainers against them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ps.machine import free_ports
from benchmarks.ps.peer.install import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from benchmarks.ps.group import Child, Group

HERE = Path(__file__).resolve().parent
HOST = "127.0.0.1"
READY = "ready"  # a word of the one line that a server prints when it can be asked
READY_SECONDS = 60.0
DROPPED_PREFIXES = ("PADDLE_", "PADDOCK_", "TRAINING_ROLE")


class OursJob:
    """Servers that are up, and how to run trainers against them."""

    def __init__(
        self,
        group: Group,
        source: Path,
        servers: int,
        trainers: int = 1,
        *,
        ack: str = "log",
        compiled: str = "",
    ) -> None:
        """source: the folder that holds the package paddock. compiled: where compiled code is kept,
        if not where it always is.
        """
        self._group, self.ack, self.trainers = group, ack, trainers
        self.ports = free_ports(servers)
        self.endpoints = ",".join(f"{HOST}:{port}" for port in self.ports)
        env = clean_environment()
        kept = {k: v for k, v in env.items() if not k.startswith(DROPPED_PREFIXES)}
        # The scripts import ours: the package, and their neighbours by the benchmarks package.
        root = HERE.parent.parent.parent
        paths = {"PYTHONPATH": f"{source}:{root}", "OMP_NUM_THREADS": "1"}
        paths |= {"NUMBA_CACHE_DIR": compiled} if compiled else {}
        self.env = {**kept, **paths, "PADDLE_PSERVERS_IP_PORT_LIST": self.endpoints}
        self.env.pop("PYTHONDONTWRITEBYTECODE", None)
        self.servers: list[Child] = []
        self.ready_seconds: list[float] = []

    def folder_of(self, server: int) -> Path:
        """Where a server keeps its log and snapshots."""
        return self._group.folder / f"data{server}"

    def start_server(self, index: int, *options: str) -> Child:
        """One server; it may be a second life of that one. Not waited for."""
        lives = sum(child.name.startswith(f"server{index}.") for child in self.servers)
        words = [
            *("--port", str(self.ports[index]), "--data-dir", str(self.folder_of(index))),
            *("--ack", self.ack, "--num_gradient_servers", str(self.trainers), *options),
        ]
        env = {**self.env, "TRAINING_ROLE": "PSERVER", "POD_IP": HOST}
        env |= {"PADDLE_PORT": str(self.ports[index]), "PADDLE_PSERVER_ID": str(index)}
        argv = [sys.executable, "-m", "paddock", "pserver", *words]
        child = self._group.start(f"server{index}.{lives}", argv, env)
        self.servers.append(child)
        return child

    def start_servers(self, *options: str) -> None:
        """All of them, in parallel, until each is ready. Raises: ChildFailed."""
        started = [self.start_server(index, *options) for index in range(len(self.ports))]
        self.ready_seconds = [child.wait_line(READY, READY_SECONDS) for child in started]

    def start_pair(self) -> tuple[Child, Child]:
        """A primary and its replica, with the witness between them; none waited for."""
        port, witness = free_ports(2)
        self.ports.append(port)
        primary, replica = (f"{HOST}:{number}" for number in self.ports)
        # Trainers know both; which of them serves, they find out.
        self.env["PADDLE_PSERVERS_IP_PORT_LIST"] = f"{primary}|{replica}"
        folder = str(self._group.folder / "witness")
        argv = [sys.executable, "-m", "paddock", "ps", "witness"]
        argv += ["--port", str(witness), "--data-dir", folder]
        self._group.start("witness", argv, self.env)
        lease = ("--witness", f"{HOST}:{witness}")
        first = self.start_server(0, *lease)
        return first, self.start_server(1, "--index", "0", "--replica-of", primary, *lease)

    def start_trainer(self, script: str, words: list[str], rank: int = 0) -> Child:
        """One trainer of the job's."""
        alive = [child.pid for child in self.servers if child.process.poll() is None]
        env = {
            **self.env,
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_TRAINERS_NUM": str(self.trainers),
            "BENCH_SERVER_PIDS": " ".join(str(pid) for pid in alive),
        }
        argv = [sys.executable, "-u", str(HERE / script), *words]
        count = len(self._group.children)
        return self._group.start(f"trainer{rank}.{count}", argv, env)

    def run_trainers(
        self, script: str, words: list[str], limit_seconds: float, *, processes: int | None = None
    ) -> list[list[dict[str, Any]]]:
        """What each trainer measured, in order; processes: fewer than trainers, if one is many.

        Raises: ChildFailed.
        """
        ranks = range(self.trainers if processes is None else processes)
        running = [self.start_trainer(script, words, rank) for rank in ranks]
        return [child.wait(limit_seconds) for child in running]


@contextmanager
def ours_job(
    group: Group, source: Path, *, servers: int = 1, trainers: int = 1, **options: str
) -> Iterator[OursJob]:
    """A job whose servers are up; they end with the group."""
    job = OursJob(group, source, servers, trainers, **options)
    job.start_servers()
    yield job
