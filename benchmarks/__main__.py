"""``python -m benchmarks [name ...] [--quick] [--json FILE]``: measure, then print one table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks.figure import Figure, table
from benchmarks.world import ROOT, World, load_average

# In this order; each is a module of this package with measure(world) -> figures.
NAMES = {
    "start": "exec of the launcher to the last rank's first line, 2 and 32 ranks",
    "memory": "resident memory of the launcher, and its idle CPU",
    "failure": "a rank dies: until its peers are signalled; and is the culprit named?",
    "api": "paddock.launch(function) in 2 and 8 ranks, beside its peers; import; 1,000 runs listed",
    "restart": "a rank dies: until the next attempt's ranks run",
    "first_step": "Enter to the first training step, without and with --warm; after a failure",
    "rendezvous": "32, 256 and 1,024 agents meet",
    "log_path": "a million lines through the launcher; torn lines",
    "submit": "logs of 32 ranks merged",
    "lost_node": "a node is killed, or its cable cut: until the others know",
    "kill": "kill -9 of the launcher: ranks left behind",
    "watch": "watching a run: its cost; a stall is named; stacks; pages",
    "readme": "the table of README: each launcher as often as the other",
    "sim": "a simulated job of 500 agents, each with its own code",
}
ASKED = ("api",)  # not without its name: it installs its peers, 1 GB


def main() -> int:
    """Run the named benchmarks, or all; returns 1 when a wanted figure was missed."""
    words = argparse.ArgumentParser(
        prog="python -m benchmarks",
        epilog="\n".join(f"{name:12}{what}" for name, what in NAMES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument(
        "names", nargs="*", metavar="name", help="which to run; all but api by default"
    )
    words.add_argument("--quick", action="store_true", help="fewer rounds and peers: a minute")
    words.add_argument("--json", metavar="FILE", help="write every sample to FILE")
    words.add_argument(
        "--source", type=Path, default=ROOT / "src" / "paddock", help="another checkout's package"
    )
    args = words.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        words.error(f"no benchmark '{unknown[0]}'; there are: {', '.join(NAMES)}")
    if sys.platform != "linux":
        print("the benchmarks read /proc and need Linux", file=sys.stderr)
        return 2
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    world = World(args.source, quick=args.quick)
    figures: list[Figure] = []
    began, load = time.monotonic(), load_average()
    try:
        for name in args.names or (name for name in NAMES if name not in ASKED):
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            at = time.monotonic()
            module = __import__(f"benchmarks.{name}", fromlist=("measure",))
            figures += module.measure(world)
            print(f"{time.monotonic() - at:.0f} s", file=sys.stderr)
    finally:
        world.close()
    took = time.monotonic() - began
    kernel = ".".join(platform.release().split(".")[:2])
    about = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {kernel}; "
        f"load average {load:.1f} before, {load_average():.1f} after; {took:.0f} s"
    )
    print(table(figures, world.found))
    print(f"\n{about}")
    if args.json:
        report = {"about": about, "figures": [f.as_json() for f in figures]}
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    missed = [f.name for f in figures if f.is_met is False]
    print(f"missed: {'; '.join(missed)}" if missed else "every wanted figure was met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
