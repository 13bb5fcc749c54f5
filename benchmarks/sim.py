"""The simulator of the tests with 500 agents, each running its own code: how long that takes."""

from __future__ import annotations

import subprocess
import time

from benchmarks.figure import Figure
from benchmarks.world import ROOT, World, load_average

LIMIT_SECONDS = 120.0


def measure(world: World) -> list[Figure]:
    """One job of 500 agents; 100 with --quick. A broken invariant is an error."""
    agents = 100 if world.quick else 500
    figure = Figure(f"simulated job of {agents:,} agents", "s")
    if not (ROOT / "tests" / "sim" / "__main__.py").exists():
        figure.notes["paddock"] = "no simulator here"
        return [figure]
    started = time.monotonic()
    subprocess.run(
        [world.python, "-m", "tests.sim", "--agents", str(agents)],
        cwd=ROOT,
        env={**world.env, "PYTHONPATH": f"{world.site}:{ROOT}"},
        stdout=subprocess.DEVNULL,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    figure.add("paddock", time.monotonic() - started)
    figure.loads.append(round(load_average(), 2))
    return [figure]
