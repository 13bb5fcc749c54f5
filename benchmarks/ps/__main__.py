"""``python -m benchmarks.ps [name ...] [--quick] [--json FILE]``: measure, then print one table."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.ps.bench import ROOT, Bench
from benchmarks.ps.figure import Figure, table

# In this order; each is a module of this package with measure(bench) -> figures.
NAMES = {
    "operations": "pull, push and dense pull of one trainer",
    "training": "examples a second, wide & deep, 1 server 1 trainer; AUC",
    "scaling": "the same with 1 to 4 servers and 1 to 4 trainers",
    "storage": "memory of a million rows, save, load",
    "recovery": "ten million rows after kill -9",
    "start": "exec of a server until it can be asked; a first step, compiled or not",
    "failover": "kill -9 of a primary until its replica takes a push",
    "clients": "32 clients with small pulls",
    "growth": "pull and push at 0.1 to 30 million rows, memory foretold",
}
QUICK = ("operations", "training", "start")
IDLE_SECONDS, IDLE_SECONDS_SHORT = 60.0, 5.0


def main() -> int:
    """Run the named benchmarks, or all; 1 when a target was missed or something failed."""
    args = flags("benchmarks.ps", NAMES, quick=f"{', '.join(QUICK)}; small and once: a minute")
    if sys.platform != "linux":
        print("the benchmarks read /proc and need Linux", file=sys.stderr)
        return 2
    idle = 0.0 if args.quick else args.idle
    bench = Bench(args.source, quick=args.quick, idle_seconds=idle, with_peer=not args.no_peer)
    names = args.names or (QUICK if args.quick else NAMES)
    return measure("benchmarks.ps", names, bench, args.json)


def flags(
    package: str, names: Mapping[str, str], *, quick: str, minutes: float | None = None
) -> argparse.Namespace:
    """What was typed. names: of the benchmarks, and what each measures.

    minutes: for all of them, where they keep to that; a round then waits for quiet 5 s at most.
    """
    words = argparse.ArgumentParser(
        prog=f"python -m {package}",
        epilog="\n".join(f"{name:12}{what}" for name, what in names.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("names", nargs="*", metavar="name", help="which to run; all by default")
    words.add_argument("--quick", action="store_true", help=quick)
    words.add_argument("--json", metavar="FILE", help="write every sample to FILE")
    words.add_argument("--no-peer", action="store_true", help="ours only")
    idle = IDLE_SECONDS if minutes is None else IDLE_SECONDS_SHORT
    words.add_argument(
        "--idle", type=float, default=idle, help=f"longest wait for a quiet machine, s ({idle:g})"
    )
    if minutes is not None:
        told = f"for all of it ({minutes:g}); what there is no time for is left out"
        words.add_argument("--minutes", type=float, default=minutes, help=told)
    words.add_argument(
        "--source", type=Path, default=ROOT / "src", help="the folder of another copy of paddock"
    )
    args = words.parse_args()
    unknown = [name for name in args.names if name not in names]
    if unknown:
        words.error(f"no benchmark '{unknown[0]}'; there are: {', '.join(names)}")
    return args


def measure(package: str, names: Iterable[str], bench: Bench, json_file: str | None) -> int:
    """Run benchmarks of a package, one after the other; the exit code."""
    # SIGTERM unwinds, so that no server is left behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    began, load = time.monotonic(), os.getloadavg()[0]
    figures: list[Figure] = []
    try:
        for name in names:
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            at = time.monotonic()
            figures += importlib.import_module(f"{package}.{name}").measure(bench)
            print(f"{time.monotonic() - at:.0f} s", file=sys.stderr, flush=True)
    finally:
        bench.close()
    about = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux "
        f"{'.'.join(platform.release().split('.')[:2])}; load average {load:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after; {time.monotonic() - began:.0f} s; "
        f"peer: PaddlePaddle 2.6.2 ({bench.about_peer})"
    )
    return report(figures, bench.problems, about, json_file)


def report(figures: list[Figure], problems: list[str], about: str, json_file: str | None) -> int:
    """Print the table and what went wrong; the exit code."""
    print(table(figures))
    print(f"\n{about}")
    if any(figure.is_disturbed for figure in figures):
        print("~ others used more than 0.3 cores meanwhile: not a figure to quote")
    if json_file:
        found = {"about": about, "problems": problems, "figures": [f.as_json() for f in figures]}
        Path(json_file).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for problem in problems:
        print(f"failed: {problem}")
    missed = [figure.name for figure in figures if figure.is_met is False]
    print(f"missed: {'; '.join(missed)}" if missed else "every target that was measured is met")
    return 1 if missed or problems else 0


if __name__ == "__main__":
    sys.exit(main())
