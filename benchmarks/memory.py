"""Memory of the launcher itself while its ranks are idle, and the CPU it uses then."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.world import Running, World, load_average

SETTLE_SECONDS = 0.5
MIB = 1024.0  # smaps_rollup counts kB


def measure(world: World) -> list[Figure]:
    """At 2 and 32 ranks. Of Paddock, both of its processes are said apart and together."""
    figures: list[Figure] = []
    for nprocs in (2,) if world.quick else (2, 32):
        resident = Figure(f"memory, {nprocs} ranks: RSS, largest process", "MB", wanted=20)
        shared = Figure(f"memory, {nprocs} ranks: PSS, all its processes", "MB")
        idle_seconds = 1.0 if world.quick else 5.0 if nprocs == 2 else 1.0
        idle = Figure(f"idle CPU over {idle_seconds:g} s, {nprocs} ranks", "jiffies", wanted=0)
        for launcher in world.launchers:
            job = world.run(launcher, nprocs, "wait.py")
            try:
                job.ready(nprocs)
                time.sleep(SETTLE_SECONDS)
                pids = own_processes(job)
                sizes = [_memory(pid) for pid in pids]
                resident.add(launcher, max(rss for rss, _ in sizes))
                shared.add(launcher, sum(pss for _, pss in sizes))
                if len(sizes) > 1:
                    each = " + ".join(f"{rss:.1f}" for rss, _ in sizes)
                    resident.notes[launcher] = f"[{each}]"
                    shared.notes[launcher] = f"[{' + '.join(f'{pss:.1f}' for _, pss in sizes)}]"
                before = _jiffies(pids)
                time.sleep(idle_seconds)
                idle.add(launcher, _jiffies(pids) - before)
            finally:
                job.end()
        for figure in (resident, shared, idle):
            figure.loads.append(round(load_average(), 2))
        figures += [resident, shared, idle]
    return figures


def own_processes(job: Running) -> list[int]:
    """The launcher and what descends from it, less the ranks: guardian first, then launcher."""
    ranks = set(job.rank_pids())
    found, queue = [], [job.pid]
    while queue:
        pid = queue.pop(0)
        if pid in ranks:
            continue
        found.append(pid)
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="ascii")
            queue += [int(word) for word in children.split()]
    return found


def _memory(pid: int) -> tuple[float, float]:
    """RSS and PSS in MB. Source: proc(5), smaps_rollup."""
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) / MIB
    return sizes["Rss"], sizes["Pss"]


def _jiffies(pids: list[int]) -> float:
    """CPU time used so far, user and system, in clock ticks. Source: proc(5), stat."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return float(total)
