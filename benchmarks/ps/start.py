"""From the exec of a server until it can be asked; of a trainer until its first step is done."""

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
LIMIT_SECONDS = 60.0
COLD_SECONDS, WARM_SECONDS = 5.0, 1.5


def measure(bench: Bench) -> list[Figure]:
    """Ours: its line, and the first answer to a client that was already there. Peer: its port.

    The machine code of our kernels is kept from the run before, as on every start but the first.
    Then, of ours, a trainer's first pull and push with adagrad, from its exec: where nothing is
    compiled, as after an installation, and once more.
    """
    ready = Figure("server ready", "s", READY_SECONDS)
    several = Figure("4 servers at once, the last ready", "s")
    cold = Figure("first step of an installation: compiled first", "s", COLD_SECONDS)
    warm = Figure("first step of a trainer", "s", WARM_SECONDS)
    for number in range(2 if bench.quick else ROUNDS):
        bench.wait_idle()
        others = Others()
        for figure in (cold, warm):
            figure.add("ours", _first_step(bench, str(bench.home / f"compiled{number}")))
        for servers, figure in ((1, ready), (4, several)):
            for side in bench.sides:
                figure.add(side, _seconds(bench, side, servers))
        cores = round(others.cores(), 2)
        for figure in (ready, several, cold, warm):
            figure.busy.append(cores)
    return [ready, several, cold, warm]


def _first_step(bench: Bench, compiled: str) -> float | None:
    try:
        with bench.group() as group, ours_job(group, bench.source, compiled=compiled) as job:
            trainer = job.start_trainer("micro.py", ["--what", "first", "--rule", "adagrad"])
            return trainer.wait_line('"first"', LIMIT_SECONDS)
    except (ChildFailed, TimeoutError) as error:
        bench.failed("ours: first step", error)
        return None
    finally:
        bench.clean()


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
