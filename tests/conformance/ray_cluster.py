"""A Ray cluster over the hosts: h1 has its controller, and the laptop is a node without processors.

One cluster for all tests of a module: it takes ten seconds to start. A host that a test took away
is started again for the next one.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.hosts import Hosts
from conformance.labs import Lab
from local.jobs import wait_until

if TYPE_CHECKING:
    from conformance.hosts import Host

PORT = 6379
OBJECT_BYTES = 78643200  # the least that Ray takes
QUIET = "--disable-usage-stats --include-log-monitor=false"
# Ray finds a dead node by itself, 4 to 16 s after its last word: a busy machine is no death.
HEALTH = (
    '{"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000,'
    ' "health_check_failure_threshold": 4, "health_check_timeout_ms": 3000}'
)
START = """\
(env -i {env} {python} -m ray.scripts.scripts start {quiet} \
 --node-ip-address {address} --object-store-memory {object_bytes} {words} </dev/null \
 >{log} 2>&1) {behind}
"""


def need_ray() -> None:
    """Skip without Ray; in CI, fail."""
    if find_spec("ray") is None:
        message = "there is no ray: make .venv/.real installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)


class RayHosts:
    """Hosts with Ray on each."""

    def __init__(self) -> None:
        self.hosts = Hosts(3)
        try:
            for host in (*self.hosts, self.hosts.laptop):
                self._serve(host)
                wait_until(lambda: self._is_ready(self.hosts[0]))
            self.mend()
        except BaseException:
            self.hosts.close()
            raise

    def _serve(self, host: Host) -> None:
        head = self.hosts[0]
        words = f"--address {head.address}:{PORT} --num-cpus {2 if host in self.hosts else 0}"
        if host is head:
            words = f"--head --port {PORT} --num-cpus 2 --include-dashboard=false --no-monitor"
            words += f" --system-config '{HEALTH}'"
        is_laptop = host is self.hosts.laptop
        python = sys.executable if is_laptop else f"{self.hosts.packages}/bin/python"
        env = " ".join(f"{name}={text}" for name, text in host.env.items() if name != "PYTHONPATH")
        log = self.hosts.folder / "log" / f"ray-{host.name}"
        host.serve(
            START.format(
                env=env, python=python, quiet=QUIET, address=host.address, words=words,
                object_bytes=OBJECT_BYTES, behind="" if is_laptop else "&", log=log,
            )
        )  # fmt: skip

    def mend(self) -> None:
        """Start what is gone, and wait until Ray has all nodes."""
        for host in (*self.hosts, self.hosts.laptop):
            if not host.up:
                (self.hosts.folder / "log" / f"ray-{host.name}").unlink()
                host.boot()
        wait_until(lambda: all(self._is_ready(host) for host in (*self.hosts, self.hosts.laptop)))

    def _is_ready(self, host: Host) -> bool:
        log = self.hosts.folder / "log" / f"ray-{host.name}"
        return log.exists() and "Ray runtime started" in log.read_text("utf-8", "replace")

    def clean(self) -> None:
        """Remove what the last test has left; a job of it would keep the nodes' CPUs."""
        while jobs := [pid for host in self.hosts for pid in host.pids() if _is_of_a_job(pid)]:
            for pid in jobs:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)  # sleep: their launchers end in a moment, and wake nobody here
        for host in (*self.hosts, self.hosts.laptop):
            for each in ("paddock", ".local", ".cache/paddock"):
                shutil.rmtree(host.home / each, ignore_errors=True)


@dataclass
class RayLab(Lab):
    """Ray chooses which nodes a job gets, and in which order."""

    def node_name(self, index: int) -> str:
        return str(self.status()["nodes"][index]["name"])

    def node_to_lose(self) -> tuple[int, Host]:
        """A node of the job and its host: not the first, which knows the job's state, and not
        Ray's head, with which the cluster would be lost."""
        by_name = {host.name: host for host in self.hosts[1:]}
        names = {i: self.node_name(i) for i in (1, 2)}
        return next((i, by_name[name]) for i, name in names.items() if name in by_name)

    def lose_node(self, index: int) -> tuple[str, ...]:
        index, host = self.node_to_lose()
        host.kill()
        return host.name, f"node {index}"


def _is_of_a_job(pid: int) -> bool:
    """True for a script of a test, and for the launcher that started it."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"train.py" in words and b"submit" not in words
    return False


def kill_processes(host: Host, name: bytes) -> None:
    """Kill the processes of a host whose program has this in its name."""
    for pid in host.pids():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if name in words[0]:
                os.kill(pid, signal.SIGKILL)
