"""``python -m benchmarks.rec [name ...] [--quick] [--json FILE]``: measure, print one table."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ps.__main__ import IDLE_SECONDS, report
from benchmarks.ps.bench import ROOT
from benchmarks.rec.bench import RecBench

if TYPE_CHECKING:
    from benchmarks.ps.figure import Figure

# In this order; each is a module of this package with measure(bench) -> figures.
NAMES = {
    "readers": "lines a second of the parsers, beside Python and wc -l",
    "storage": "data split beside cp; the dispatcher's memory",
    "training": "examples a second of ctr-dnn and wide & deep, 1 to 4 workers, beside PaddleRec's "
    "way and plain PyTorch",
    "strategies": "AUC of sync, async, half_async and geo beside a single process",
}


def main() -> int:
    """Run the named benchmarks, or all; 1 when a target was missed or something failed."""
    words = argparse.ArgumentParser(
        prog="python -m benchmarks.rec",
        epilog="\n".join(f"{name:12}{what}" for name, what in NAMES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("names", nargs="*", metavar="name", help="which to run; all by default")
    words.add_argument("--quick", action="store_true", help="small and once")
    words.add_argument("--json", metavar="FILE", help="write every sample to FILE")
    words.add_argument("--no-peer", action="store_true", help="without PaddlePaddle 2.6.2")
    words.add_argument("--idle", type=float, default=IDLE_SECONDS, help="longest wait for quiet, s")
    words.add_argument("--source", type=Path, default=ROOT / "src", help="another copy of paddock")
    args = words.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        words.error(f"no benchmark '{unknown[0]}'; there are: {', '.join(NAMES)}")
    # SIGTERM unwinds, so that no server is left behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    names = args.names or list(NAMES)
    idle = 0.0 if args.quick else args.idle
    with_peer = not args.no_peer and "training" in names
    bench = RecBench(args.source, quick=args.quick, idle_seconds=idle, with_peer=with_peer)
    began, load = time.monotonic(), os.getloadavg()[0]
    figures: list[Figure] = []
    try:
        for name in names:
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            at = time.monotonic()
            figures += importlib.import_module(f"benchmarks.rec.{name}").measure(bench)
            print(f"{time.monotonic() - at:.0f} s", file=sys.stderr, flush=True)
    finally:
        bench.close()
    about = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}; load average {load:.1f} "
        f"before, {os.getloadavg()[0]:.1f} after; {time.monotonic() - began:.0f} s; "
        f"PaddlePaddle 2.6.2: {bench.about_peer}"
    )
    return report(figures, bench.problems, about, args.json)


if __name__ == "__main__":
    sys.exit(main())
