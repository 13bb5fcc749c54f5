"""Fills a table, takes a snapshot, pushes more; or checks that all of it is still there."""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.ps.ours.timing import say
from paddock.ps.client.client import Client
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.wire.frames import Op

DIM = 16
STEP = 212_992  # keys of one push
TAIL = 26_624
FIRST_KEY = 1 << 40
STRIDE = 7919  # a prime: tail pushes touch rows all over the table


def main() -> None:
    """Every row gets the same gradient once; those of the tail again after the snapshot."""
    words = argparse.ArgumentParser()
    words.add_argument("--rows", type=int, default=1_000_000)
    words.add_argument("--tail", type=int, default=0)
    words.add_argument("--check", action="store_true")
    args = words.parse_args()
    rule = OptimizerSpec("row_adagrad", 0.05)
    with Client(trainer=0, trainers=1) as client:
        client.create(SparseSpec("emb", DIM, rule, InitialSpec("zeros")))
        if args.check:
            check(client, args)
            return
        at = time.monotonic()
        grads = np.full((STEP, DIM), 1e-2, np.float32)
        for first in range(0, args.rows, STEP):
            keys = FIRST_KEY + np.arange(first, min(first + STEP, args.rows), dtype=np.int64)
            client.push("emb", keys, grads[: len(keys)])
            client.step()
        client.flush()
        say("filled", rows=args.rows, s=time.monotonic() - at)
        at = time.monotonic()
        for peer in client.peers:
            peer.ask(Op.CONTROL, {"do": "snapshot"})
        say("snapshot", rows=args.rows, s=time.monotonic() - at)
        for turn in range(args.tail):
            client.push("emb", tail_keys(turn, args.rows), grads[:TAIL])
            client.step()
        client.flush()


def tail_keys(turn: int, rows: int) -> np.ndarray:
    """The distinct keys of one push after the snapshot."""
    first = turn * TAIL
    return FIRST_KEY + (np.arange(first, first + TAIL, dtype=np.int64) * STRIDE) % rows


def check(client: Client, args: argparse.Namespace) -> None:
    """No row is at its initial value, and rows of the tail moved further."""
    pushed = np.concatenate([tail_keys(turn, args.rows) for turn in range(args.tail)])
    tail = client.pull("emb", np.unique(pushed)[:STEP])
    others = np.setdiff1d(FIRST_KEY + np.arange(args.rows, dtype=np.int64), pushed)[:STEP]
    rest = client.pull("emb", others)
    assert np.all(rest < 0.0), "rows of the snapshot are missing"
    assert np.all(tail < rest.min()), "pushes of the log are missing"
    say("checked", rows=len(tail) + len(rest))


if __name__ == "__main__":
    main()
