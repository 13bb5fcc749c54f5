"""A node is lost, of two: until the rank on the other one has SIGTERM.

Killed: kill -9 of everything of the node, on loopback. Cut: both nodes in network namespaces with
a bridge between them, and the lost one's port taken off the bridge, so that nothing is refused or
closed: there is only silence (needs root and iproute2; left out elsewhere).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time

from benchmarks.failure import two_agents
from benchmarks.figure import Figure, interleave, rounds
from benchmarks.memory import own_processes
from benchmarks.world import Running, World, free_port, load_average, node_options

LIMIT_SECONDS = 10.0


def measure(world: World) -> list[Figure]:
    """Kill -9, then the cut cable where that is possible."""
    killed = Figure("node killed to the other node's rank signalled", "s", wanted=3.0)
    cut, gone = (
        Figure(f"cable cut to {what}, worst", "s", wanted=3.0, is_worst=True)
        for what in ("the other node's rank signalled", "no rank alive on the lost node")
    )

    def kill_once(launcher: str) -> None:
        jobs = two_agents(world, launcher, {})
        try:
            doomed = [*own_processes(jobs[1]), *(s.pid for s in jobs[0].stamps("up") if s.rank > 1)]
            at_ns = time.monotonic_ns()
            for pid in doomed:
                os.kill(pid, 9)
            told = jobs[0].await_stamps("term", 2, LIMIT_SECONDS)
            if told:
                killed.add(launcher, (told[0].at_ns - at_ns) / 1e9)
            else:
                killed.notes[launcher] = f"not within {LIMIT_SECONDS:g} s"
        finally:
            for job in jobs:
                job.end()

    interleave((killed,), rounds(world, paddock=3, torchrun=1), kill_once, load_average)
    if os.geteuid() != 0 or shutil.which("ip") is None:
        cut.notes["paddock"] = gone.notes["paddock"] = "needs root and iproute2"
        return [killed, cut]
    for _ in range(1 if world.quick else 4):
        for figure, sample in zip((cut, gone), _cut(world), strict=True):
            figure.add("paddock", sample)
    cut.loads.append(round(load_average(), 2))
    return [killed, cut, gone]


def _cut(world: World) -> tuple[float | None, float | None]:
    """Seconds to the first SIGTERM on node 0, and until the last rank of node 1 is gone."""
    cable = Cable()
    try:
        return _cut_cable(world, cable)
    finally:
        cable.close()


def _cut_cable(world: World, cable: Cable) -> tuple[float | None, float | None]:
    port = free_port()
    jobs: list[Running] = []
    try:
        for node in (0, 1):
            jobs.append(
                world.run(
                    "paddock",
                    2,
                    "wait.py",
                    options=node_options("paddock", node, 2, port, cable.addresses[0]),
                    prefix=["ip", "netns", "exec", cable.names[node]],
                    stamps=jobs[0].folder / "stamps" if jobs else None,
                )
            )
        jobs[0].ready(4)
        time.sleep(0.5 + random.random())  # any phase between two pings
        far = [s.pid for s in jobs[0].stamps("up") if s.rank > 1]
        at_ns = time.monotonic_ns()
        cable.cut()
        gone_ns = 0
        deadline = time.monotonic() + LIMIT_SECONDS
        told: list[int] = []
        while time.monotonic() < deadline and not (gone_ns and told):
            time.sleep(0.005)
            told = [s.at_ns for s in jobs[0].stamps("term") if s.rank < 2]
            if not gone_ns and not set(far) & set(jobs[0].alive_ranks()):
                gone_ns = time.monotonic_ns()
        return (
            (told[0] - at_ns) / 1e9 if told else None,
            (gone_ns - at_ns) / 1e9 if gone_ns else None,
        )
    finally:
        for job in jobs:
            job.end()


class Cable:
    """Two network namespaces and a bridge in a third; everything goes with close()."""

    def __init__(self) -> None:
        tag = f"pdk{os.getpid() % 100_000:05d}"
        self.names = (f"{tag}a", f"{tag}b")
        self.addresses = ("10.231.77.1", "10.231.77.2")
        self._middle = f"{tag}m"
        self.close()
        for name in (*self.names, self._middle):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", self._middle, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", self._middle, "link", "set", "bridge0", "up")
        for name, address, port in zip(self.names, self.addresses, ("p0", "p1"), strict=True):
            words = ["type", "veth", "peer", "name", port, "netns", self._middle]
            _ip("-n", name, "link", "add", "eth0", *words)
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", self._middle, "link", "set", port, "master", "bridge0", "up")

    def cut(self) -> None:
        """Take the second node's port off the bridge: its link stays up, nothing arrives."""
        _ip("-n", self._middle, "link", "set", "p1", "nomaster")

    def close(self) -> None:
        """Delete the namespaces; what is in them goes too."""
        for name in (*self.names, self._middle):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
