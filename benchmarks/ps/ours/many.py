"""Many trainers, one process each, that pull 26 ids again and again from one server."""

from __future__ import annotations

import argparse
import json
import os
import time
import traceback
from typing import NoReturn

import numpy as np

from benchmarks.ps.ours.timing import say
from benchmarks.ps.workload import SLOTS, draw_ids
from paddock.ps.client.client import Client
from paddock.ps.spec import OptimizerSpec, SparseSpec

DIM = 16
WARM_PULLS = 20
SPEC = SparseSpec("emb", DIM, OptimizerSpec("row_adagrad", 0.05))


def main() -> None:
    """Fork the clients, add up what they saw."""
    words = argparse.ArgumentParser()
    words.add_argument("--clients", type=int, default=32)
    words.add_argument("--seconds", type=float, default=4.0)
    words.add_argument("--pace", type=float, default=0.0, help="pulls a second; 0: no pause")
    args = words.parse_args()
    with Client(trainer=0, trainers=args.clients) as client:
        client.create(SPEC)
        keys = draw_ids(np.random.default_rng(2), 1024)
        client.push("emb", keys, np.full((*keys.shape, DIM), 1e-4, np.float32))
        client.step()
    # The parent has imported and compiled everything; the children begin at the same moment.
    begin = time.monotonic() + 2.0
    ends = []
    for rank in range(args.clients):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(rank, args, begin, writing)
        os.close(writing)
        ends.append((pid, reading))
    found = []
    for pid, reading in ends:
        with open(reading, encoding="ascii") as text:
            words_of_child = text.read()
        os.waitpid(pid, 0)
        if not words_of_child:
            raise SystemExit("a client failed; its error is above")
        found.append(json.loads(words_of_child))
    merged = np.concatenate([np.array(samples) for samples in found])
    counts = [len(samples) for samples in found]
    say(
        "clients", p50_ms=1e3 * float(np.median(merged)), rate=len(merged) / args.seconds,
        p99_ms=1e3 * float(np.quantile(merged, 0.99)), fewest=min(counts), most=max(counts),
        worst_ms=1e3 * float(merged.max()),
    )  # fmt: skip


def child(rank: int, args: argparse.Namespace, begin: float, writing: int) -> NoReturn:
    """The life of one trainer's process; its failure is told on stderr."""
    code = 1
    try:
        found = one_client(rank, args, begin)
        with open(writing, "w", encoding="ascii") as out:
            json.dump(found, out)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def one_client(rank: int, args: argparse.Namespace, begin: float) -> list[float]:
    """Seconds of each pull of one trainer."""
    samples: list[float] = []
    keys = draw_ids(np.random.default_rng(100 + rank), 64)
    with Client(trainer=rank, trainers=args.clients) as client:
        client.create(SPEC)
        for turn in range(WARM_PULLS):
            client.pull("emb", keys[:, turn])
        pause = 1.0 / args.pace if args.pace else 0.0
        next_at = begin + pause * rank / args.clients
        end = begin + args.seconds
        while next_at < end:
            wait = next_at - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            at = time.monotonic()
            client.pull("emb", keys[:, len(samples) % 64].reshape(SLOTS))
            now = time.monotonic()
            samples.append(now - at)
            next_at = next_at + pause if pause else now
    return samples


if __name__ == "__main__":
    main()
