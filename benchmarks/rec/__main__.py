"""``python -m benchmarks.rec [name ...] [--minutes N] [--quick]``: measure, print one table."""

from __future__ import annotations

import sys

from benchmarks.ps.__main__ import flags, measure
from benchmarks.rec.bench import RecBench

# In this order; each is a module of this package with measure(bench) -> figures.
NAMES = {
    "readers": "lines a second of the parsers, beside Python and wc -l",
    "storage": "data split beside cp; the dispatcher's memory",
    "training": "examples a second of ctr-dnn and wide & deep, 1 to 4 workers, beside PaddleRec's "
    "ways and plain PyTorch",
    "strategies": "AUC of sync, async, half_async and geo beside a single process",
}
MINUTES = 8.0


def main() -> int:
    """Run the named benchmarks, or all; 1 when a target was missed or something failed."""
    args = flags("benchmarks.rec", NAMES, quick="small and once", minutes=MINUTES)
    names = args.names or list(NAMES)
    idle = 0.0 if args.quick else args.idle
    with_peer = not args.no_peer and "training" in names
    bench = RecBench(args.source, quick=args.quick, idle_seconds=idle, with_peer=with_peer)
    bench.seconds = 60 * args.minutes
    return measure("benchmarks.rec", names, bench, args.json)


if __name__ == "__main__":
    sys.exit(main())
