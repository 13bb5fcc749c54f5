"""Save on SIGTERM, exit 0, and go on from there when started again.

    paddock launch --nproc-per-node 2 examples/checkpoint_on_sigterm.py --steps 600

Stop it with Ctrl-C or `kill` and start it again: it goes on at the step it saved. The same happens
when Paddock restarts it after a failure (`--max-restart 1`), and then PADDOCK_ATTEMPT is 1.

Three habits make this safe: the handler only sets a flag; the file is written beside the old one
and renamed, so that a kill in the middle leaves the old one whole; and each rank has its own file.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path


def parse() -> argparse.Namespace:
    """The options of this script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600, help="how long to train")
    parser.add_argument("--step-seconds", type=float, default=0.05, help="length of one step")
    parser.add_argument("--dir", type=Path, default=Path("log/checkpoint"), help="where to save")
    parser.add_argument("--fail-at", type=int, default=-1, help="the last rank crashes once")
    return parser.parse_args()


def save(path: Path, step: int) -> None:
    """Replace the checkpoint whole, or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"step": step}))
    beside.replace(path)


def main() -> int:
    """Train to the last step, or until told to stop."""
    args = parse()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ["PADDOCK_ATTEMPT"])
    args.dir.mkdir(parents=True, exist_ok=True)
    path = args.dir / f"rank{rank}.json"
    first = json.loads(path.read_text())["step"] if path.exists() else 0

    stopping = False

    def on_stop(_signal: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, on_stop)
    signal.signal(signal.SIGINT, on_stop)
    print(f"rank {rank} attempt {attempt}: starting at step {first}", flush=True)

    for step in range(first, args.steps):
        time.sleep(args.step_seconds)  # stands for the work of a step
        if step == args.fail_at and attempt == 0 and rank == world_size - 1:
            save(path, step)
            raise RuntimeError(f"rank {rank} crashed at step {step}, as asked")
        if stopping:
            save(path, step + 1)
            print(f"rank {rank}: told to stop, saved step {step + 1}", flush=True)
            return 0
    save(path, args.steps)
    print(f"rank {rank} attempt {attempt}: trained all {args.steps} steps", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
