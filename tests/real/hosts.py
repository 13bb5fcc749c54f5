"""Hosts for tests: network namespaces joined by a bridge, each with its own name and clocks.

A host is a process that holds a network, UTS and mount namespace; commands run inside by nsenter.
All of it is gone when the holding processes are.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from local.jobs import (
    Ended,
    Events,
    Running,
    World,
    environment_of,
    kill_marked,
    kill_pids,
    marked,
    wait_until,
)
from real.bridge import PATH, Bridge, hold, run
from stopped import stop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOST_MARK = "TEST_HOST_MARK"
TOOLS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}


def need_hosts(more: Mapping[str, str] = MappingProxyType({})) -> None:
    """Skip without root, the tools, or more programs (with their packages); in CI, fail."""
    tools = {**TOOLS, **more}
    lacking = [f"{t} ({p})" for t, p in tools.items() if shutil.which(t, path=PATH) is None]
    if not lacking and os.geteuid() == 0:
        done = subprocess.run(
            ["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True
        )
        if done.returncode == 0:
            return
        lacking = [f"namespaces: {done.stderr.strip()}"]
    message = "hosts as network namespaces need root" + "".join(f", {x}" for x in lacking)
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


class Host:
    """One host. number counts from 1; its addresses are 10.123.0.number and fd00::number."""

    def __init__(self, hosts: Hosts, number: int) -> None:
        self.hosts = hosts
        self.number = number
        self.name = f"node{number}"
        self.address = f"10.123.0.{number}"
        self.address6 = f"fd00::{number}"
        self.mark = uuid.uuid4().hex
        self.clock = ""  # as faketime takes it
        self.boot_seconds = 0  # how far its monotonic clock is ahead
        self.holder = hosts.hold("--net", "--uts", "--mount")
        hosts.bridge.plug(number, self.holder.pid)
        self.inside("hostname", self.name)
        self.inside("ip", "link", "set", "lo", "up")
        self.inside("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.inside("ip", "address", "add", f"{self.address6}/64", "dev", "eth0", "nodad")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("mount", "--bind", str(hosts.names), "/etc/hosts")

    @property
    def enter(self) -> list[str]:
        """What a command on this host begins with."""
        return ["nsenter", "-t", str(self.holder.pid), "--net", "--uts", "--mount"]

    def inside(self, *command: str) -> str:
        """Run a command on this host; returns its output."""
        return run([*self.enter, *command])

    def start(
        self,
        *words: object,
        env: Mapping[str, str] | None = None,
        log_dir: Path | None = None,
        mark: str = "",
    ) -> Running:
        """`paddock launch` on this host, with logs of its own."""
        before = list(self.enter)
        if self.boot_seconds:
            before += ["unshare", "--time", "--monotonic", str(self.boot_seconds)]
            before += ["--boottime", str(self.boot_seconds), "--fork", "--kill-child"]
        if self.clock:
            before += ["faketime", "-f", self.clock]
        world = self.hosts.world
        return world.start(
            *words,
            before=before,
            env={HOST_MARK: self.mark, "PATH": world.env()["PATH"] + ":/usr/sbin:/sbin",
                 **(env or {})},
            log_dir=log_dir or world.folder / f"log-{self.name}",
            mark=mark,
        )  # fmt: skip

    def start_line(self, line: str) -> Running:
        """A line as people copy it, in a shell of this host, `paddock` on its PATH."""
        world = self.hosts.world
        program = world.folder / "bin" / "paddock"
        if not program.exists():
            program.parent.mkdir()
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m paddock "$@"\n')
            program.chmod(0o755)
        running = Running(
            [*self.enter, "sh", "-c", f"exec env {line}"],
            cwd=world.folder,
            env=world.env({HOST_MARK: self.mark, "PATH": f"{program.parent}:{PATH}"}),
            mark=uuid.uuid4().hex,
        )
        world.running.append(running)
        return running

    def ranks(self, attempt: int) -> list[int]:
        """Processes of an attempt's ranks on this host."""
        wanted = str(attempt)
        return [p for p in self.pids() if environment_of(p).get("PADDOCK_ATTEMPT") == wanted]

    def log(self, local_rank: int) -> str:
        """A worker's log on this host."""
        path = self.hosts.world.folder / f"log-{self.name}" / f"workerlog.{local_rank}"
        return path.read_text("utf-8", "replace")

    def pids(self) -> list[int]:
        """Every process of jobs on this host."""
        return marked(self.mark, HOST_MARK)

    def kill(self) -> None:
        """kill -9 of everything that runs here; the kernel closes its connections."""
        kill_marked(self.mark, HOST_MARK)

    def cut_cable(self) -> None:
        """From now on no packet comes or goes."""
        self.hosts.bridge.cut(self.number)

    def mend_cable(self) -> None:
        """Packets flow again."""
        self.hosts.bridge.mend(self.number)

    def lose_power(self) -> None:
        """Nothing says goodbye: first the cable, then every process."""
        self.cut_cable()
        self.kill()

    def freeze(self, *, thaw: bool = False) -> None:
        """SIGSTOP (SIGCONT) to every process of jobs on this host."""
        if thaw:
            kill_pids(self.pids(), signal.SIGCONT)
        else:
            stop(self.pids())


class Hosts:
    """A few hosts on one bridge, and one test's jobs on them."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.events: Events = world.events
        self._holders: list[subprocess.Popen[str]] = []
        self._hosts: list[Host] = []
        self.names = world.folder / "hosts"
        rows = ["127.0.0.1 localhost", "::1 localhost"]
        for number in range(1, count + 1):
            rows += [f"10.123.0.{number} node{number}", f"fd00::{number} node{number}-6"]
        self.names.write_text("\n".join(rows) + "\n")
        self.bridge = Bridge()
        try:
            for number in range(1, count + 1):
                self._hosts.append(Host(self, number))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> object:
        return iter(self._hosts)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def hold(self, *namespaces: str) -> subprocess.Popen[str]:
        """A process that keeps new namespaces alive."""
        self._holders.append(hold(*namespaces))
        return self._holders[-1]

    def start_all(
        self, *words: object, count: int = 2, env: Mapping[str, str] | None = None
    ) -> list[Running]:
        """The same command on the first few hosts; the last one starts first."""
        found = [host.start(*words, env=env) for host in reversed(self._hosts[:count])]
        return found[::-1]

    def close(self) -> None:
        """End all jobs, then the hosts."""
        for host in self._hosts:
            host.freeze(thaw=True)
            host.kill()
        for holder in self._holders:
            holder.kill()
            holder.communicate()
        self.bridge.close()


class Etcd:
    """A real etcd on one of the hosts: one member, or several on ports of their own."""

    def __init__(self, host: Host, size: int = 1) -> None:
        self.host = host
        self._members: dict[int, subprocess.Popen[bytes]] = {}
        self._size = size
        self._folder = host.hosts.world.folder
        self.start(*range(size))

    @property
    def url(self) -> str:
        """As --master takes it."""
        ends = (f"{self.host.address}:{self._port(m)}" for m in range(self._size))
        return "etcd://" + ",".join(ends)

    def _port(self, member: int) -> int:
        return 2379 + 10 * member

    def _peer(self, member: int) -> str:
        return f"http://{self.host.address}:{self._port(member) + 1}"

    def start(self, *members: int) -> None:
        """Start members; comes back when the cluster answers."""
        for member in members:
            client = f"http://{self.host.address}:{self._port(member)}"
            cluster = ",".join(f"m{m}={self._peer(m)}" for m in range(self._size))
            command = [
                "etcd", f"--name=m{member}", f"--data-dir={self._folder}/etcd{member}",
                f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={self._peer(member)}",
                f"--initial-advertise-peer-urls={self._peer(member)}",
                f"--initial-cluster={cluster}", "--logger=zap", "--log-level=error",
            ]  # fmt: skip
            with open(self._folder / f"etcd{member}.txt", "ab") as log:
                self._members[member] = subprocess.Popen(
                    [*self.host.enter, *command],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    env={"PATH": PATH, HOST_MARK: self.host.mark},
                )  # fmt: skip
        if members:
            wait_until(self._answers)

    def _answers(self) -> bool:
        for member, process in self._members.items():
            assert process.poll() is None, (self._folder / f"etcd{member}.txt").read_text()
        client = f"http://{self.host.address}:{self._port(min(self._members))}"
        done = subprocess.run(
            [*self.host.enter, "etcdctl", "--endpoints", client, "--command-timeout=2s",
             "get", "ready"], capture_output=True, env={"PATH": PATH, "ETCDCTL_API": "3"},
        )  # fmt: skip
        return done.returncode == 0

    def kill(self, *members: int) -> None:
        """kill -9; their data stays."""
        for member in members:
            process = self._members.pop(member)
            process.kill()
            process.wait()

    def close(self) -> None:
        """End all members."""
        self.kill(*self._members)


def failure(ended: Ended) -> str:
    """What the report says of the culprit, without the time of day."""
    return ended.line("first failure: ").partition("first failure: ")[2]


def can_shift_monotonic() -> bool:
    """Whether this kernel gives a process its own monotonic clock."""
    done = subprocess.run(
        ["unshare", "--time", "--monotonic", "5", "--fork", "true"], capture_output=True
    )
    return done.returncode == 0


def end_all(running: Sequence[Running]) -> list[Ended]:
    """Wait for the end of each."""
    return [r.end() for r in running]
