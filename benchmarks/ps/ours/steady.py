"""Pushes small batches one after another, each acknowledged; says the longest pause."""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.ps.ours.timing import say
from paddock.ps.client.client import Client
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec

DIM = 16
KEYS = 1024
RATE = 1.0
STEP = 2.0**-12  # a power of two: sums of it are exact in float32


def main() -> None:
    """Every push subtracts the same from every row, so the rows count the pushes."""
    words = argparse.ArgumentParser()
    words.add_argument("--seconds", type=float, default=10.0)
    args = words.parse_args()
    keys = np.arange(KEYS, dtype=np.int64)
    grads = np.full((KEYS, DIM), STEP, np.float32)
    with Client(trainer=0, trainers=1) as client:
        rule = OptimizerSpec("sgd", RATE)
        client.create(SparseSpec("emb", DIM, rule, InitialSpec("zeros")))
        say("pushing")
        at, longest, pushes = time.monotonic(), 0.0, 0
        end = at + args.seconds
        while at < end:
            client.push("emb", keys, grads)
            client.step()
            client.flush()
            now = time.monotonic()
            at, longest, pushes = now, max(longest, now - at), pushes + 1
        counted = -client.pull("emb", keys) / (RATE * STEP)
        lost = float(np.abs(counted - pushes).max())
        say("steady", pushes=pushes, longest_s=longest, lost=lost)


if __name__ == "__main__":
    main()
