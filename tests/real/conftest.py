"""For tests with real programs: marks them, says what is missing, starts jobs, counts leftovers.

A missing program or framework skips a test here and fails it under CI=true: a suite that skips
everything must not look like one that passed.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from local.jobs import World
from real.hosts import Etcd, Hosts, need_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Reaches every descendant, also those in their own session, and nothing else does.
MARK = "TEST_JOB_MARK"
GONE_SECONDS_MAX = 1.0  # nothing of a job is left this long after its launcher
PACKAGES = {
    "etcd": "etcd-server", "etcdctl": "etcd-client", "mpirun": "openmpi-bin", "ip": "iproute2",
    "mvn": "maven",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test below this folder the marker `real`."""
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.real)


def lack(what: str, hint: str) -> None:
    """Skip this test for want of something; in CI, fail it."""
    message = f"{what} is not installed: {hint}"
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def need_module(name: str) -> None:
    """The test needs this Python package. It is looked up, never imported."""
    if importlib.util.find_spec(name) is None:
        lack(f"Python package {name}", "make .venv/.real")


def need_program(name: str) -> None:
    """The test needs this program on PATH."""
    if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        lack(f"program {name}", f"apt-get install {PACKAGES.get(name, name)}")


class Need(Protocol):
    """need(modules=["torch"], programs=["etcd"])."""

    def __call__(self, *, modules: list[str] = ..., programs: list[str] = ...) -> None: ...


@pytest.fixture
def need() -> Need:
    """Say what a test needs, before it starts anything."""

    def check(*, modules: list[str] | None = None, programs: list[str] | None = None) -> None:
        for module in modules or []:
            need_module(module)
        for program in programs or []:
            need_program(program)

    return check


def marked_pids(mark: str) -> list[int]:
    """Living processes that carry the mark in their environment (zombies have none)."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # it ended while we looked, or is not ours
            continue
        if wanted in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class Done:
    """A job that has ended."""

    code: int
    output: str  # the console: stdout and stderr together
    log_dir: Path
    left: list[int]  # pids of the job still alive GONE_SECONDS_MAX after the launcher's end

    def log(self, rank: int, kind: str = "worker") -> str:
        """Everything this rank wrote, all attempts, in the order of the files' names."""
        files = sorted(self.log_dir.rglob(f"{kind}log.{rank}"))
        return "".join(f.read_text("utf-8", "replace") for f in files)


class Job:
    """One `paddock` command with a mark on it, run from the root of the repository."""

    def __init__(self, command: list[str], log_dir: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.log_dir = log_dir
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paddock", *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.seen = ""

    def read_until(self, *wanted: str) -> None:
        """Read the console until every text has been seen; the test's own limit ends the wait."""
        assert self.process.stdout is not None
        while not all(text in self.seen for text in wanted):
            line = self.process.stdout.readline()
            assert line, f"the console ended without {wanted}:\n{self.seen}"
            self.seen += line

    def end(self) -> Done:
        """Wait for the launcher and look for what it left behind."""
        assert self.process.stdout is not None
        self.seen += self.process.stdout.read()
        code = self.process.wait()
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while (left := marked_pids(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.02)  # sleep: other processes' ends wake nobody here
        return Done(code, self.seen, self.log_dir, left)

    def kill_all(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        for pid in marked_pids(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Launch(Protocol):
    """launch("--nproc_per_node", "2", "train.py") -> Job."""

    def __call__(self, *arguments: str) -> Job: ...


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start `paddock launch` with logs under tmp_path; everything is killed after the test."""
    jobs: list[Job] = []

    def start(*arguments: str) -> Job:
        log_dir = tmp_path / "log"
        jobs.append(Job(["launch", "--log_dir", str(log_dir), *arguments], log_dir))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill_all()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A folder with its jobs; all of them are killed after the test."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hosts(world: World) -> Iterator[Hosts]:
    """Four hosts on a network of their own; all of it is gone after the test."""
    need_hosts()
    made = Hosts(world, 4)
    yield made
    made.close()


@pytest.fixture
def etcd(hosts: Hosts) -> Iterator[Etcd]:
    """A real etcd on the last host."""
    need_program("etcd")
    need_program("etcdctl")
    made = Etcd(hosts[3])
    yield made
    made.close()
