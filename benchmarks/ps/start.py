"""From the exec of a server until it can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.group import ChildFailed
from benchmarks.ps.machine import Others
from benchmarks.ps.ours.job import ours_job
from benchmarks.ps.peer.job import peer_job

if TYPE_CHECKING:
    from benchmarks.ps.bench import Bench

ROUNDS = 5
READY_SECONDS = 0.6


def measure(bench: Bench) -> list[Figure]:
    """Ours: its line, and the first answer to a client that was already there. Peer: its port.

    The machine code of our kernels is kept from the run before, as on every start but the first.
    """
    ready = Figure("server ready", "s", READY_SECONDS)
    several = Figure("4 servers at once, the last ready", "s")
    for _ in range(2 if bench.quick else ROUNDS):
        bench.wait_idle()
        others = Others()
        for servers, figure in ((1, ready), (4, several)):
            for side in bench.sides:
                figure.add(side, _seconds(bench, side, servers))
        ready.busy.append(round(others.cores(), 2))
        several.busy.append(ready.busy[-1])
    return [ready, several]


def _seconds(bench: Bench, side: str, servers: int) -> float | None:
    try:
        with bench.group() as group:
            if side == "ours":
                with ours_job(group, bench.source, servers=servers) as job:
                    return max(job.ready_seconds)
            assert bench.peer is not None
            words = ["--what", "none"]
            with peer_job(group, bench.peer, "micro.py", words, servers=servers) as theirs:
                return max(theirs.ready_seconds)
    except (ChildFailed, TimeoutError) as error:
        bench.failed(f"{side}: start of {servers} servers", error)
        return None
    finally:
        bench.clean()
