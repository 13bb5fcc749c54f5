"""One operation at a time: pull, push, dense, rows, save and load; the peer's micro.py beside it.

A push is timed twice: until it is acknowledged (``acknowledged``), and in a stream of pushes whose
flush is shared, which is what the peer's figure is (``push``).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.ps.ours.timing import Clock, say, servers_resident_mb
from paddock.ps.client.client import Client
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec, SparseSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOTS = 26
STEP = 8192  # examples of one push that fills the table
FIRST_KEY = 1 << 40
SETTLE_SECONDS = 0.3


def rounds(batch: int, quick: bool) -> int:
    """How many calls are timed."""
    wanted = 200 if batch <= 32 else 40 if batch <= 1024 else 24
    return max(8, wanted // 4) if quick else wanted


class Micro:
    """A client with one sparse and one dense table."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.client = Client(trainer=0, trainers=1)
        rule, small = OptimizerSpec(args.rule, 0.05), InitialSpec("uniform", 1e-3)
        self.client.create(SparseSpec("emb", args.dim, rule, small))
        self.client.create(DenseSpec("dense", args.dense, OptimizerSpec("sgd", 0.01)))

    def push(self, keys: NDArray[np.int64], grads: NDArray[np.float32]) -> None:
        """One batch; not waited for."""
        self.client.push("emb", keys, grads)
        self.client.step()

    def push_and_wait(self, keys: NDArray[np.int64], grads: NDArray[np.float32]) -> None:
        """One batch, acknowledged."""
        self.push(keys, grads)
        self.client.flush()

    def measure_first(self) -> None:
        """One batch: the first that this process pulls and pushes."""
        keys = FIRST_KEY + np.arange(SLOTS * 1024, dtype=np.int64)
        self.client.pull("emb", keys)
        self.push_and_wait(keys, np.full((len(keys), self.args.dim), 1e-4, np.float32))
        say("first")

    def measure_sparse(self) -> None:
        """Push and pull of each batch size, warm rows."""
        noise = np.random.default_rng(1)
        batches = [int(word) for word in self.args.batches.split(",")]
        stored = {b: np.load(Path(self.args.data) / f"ids-{b}.npy") for b in batches}
        for batch in batches:
            shape = (SLOTS, batch, self.args.dim)
            grads = (noise.normal(size=shape) * 1e-3).astype(np.float32)
            for keys in (*stored[batch], *stored[batch][:5]):
                self.push(keys, grads)
            self.client.flush()
            count = rounds(batch, self.args.quick)
            clock = Clock()
            for i in range(count):
                clock.call(self.push, stored[batch][i % len(stored[batch])], grads)
            self.client.flush()
            say("push", ids=batch * SLOTS, **clock.result(count))
            clock = Clock()
            for i in range(count, 2 * count):  # Others than those just pushed.
                clock.call(self.push_and_wait, stored[batch][i % len(stored[batch])], grads)
            say("acknowledged", ids=batch * SLOTS, **clock.result())
        for batch in batches:
            for keys in stored[batch]:
                self.client.pull("emb", keys)
            clock = Clock()
            for i in range(rounds(batch, self.args.quick)):
                clock.call(self.client.pull, "emb", stored[batch][i % len(stored[batch])])
            say("pull", ids=batch * SLOTS, **clock.result())

    def measure_dense(self) -> None:
        """The whole dense table, there and back."""
        out = np.zeros(self.args.dense, np.float32)
        self.client.set_dense("dense", out)

        def push() -> None:
            self.client.push_dense("dense", out)
            self.client.step()
            self.client.flush()

        calls = {
            "dense_pull": lambda: self.client.pull_dense("dense", out),
            "dense_set": lambda: self.client.set_dense("dense", out),
            "dense_push": push,
        }
        for name, call in calls.items():
            call()
            clock = Clock()
            for _ in range(5 if self.args.quick else 20):
                clock.call(call)
            say(name, floats=self.args.dense, **clock.result())

    def fill(self, rows: int) -> None:
        """Push ``rows`` new keys in order."""
        step = STEP * SLOTS
        grads = np.full((step, self.args.dim), 1e-4, np.float32)
        for first in range(0, rows, step):
            self.push(FIRST_KEY + first + np.arange(step, dtype=np.int64), grads)
        self.client.flush()
        time.sleep(SETTLE_SECONDS)

    def measure_rows(self) -> None:
        """Memory of --rows rows; and, when a folder is named, saving and loading them."""
        before, began = servers_resident_mb(), time.monotonic()
        self.fill(self.args.rows)
        step = STEP * SLOTS
        rows = -(-self.args.rows // step) * step
        took = time.monotonic() - began
        added = servers_resident_mb() - before
        say("rows", rows=rows, mb=added, mb_per_million=added * 1e6 / rows, s=took)
        if self.args.folder:
            for name, call in (("save", self.client.save), ("load", self.client.load)):
                at = time.monotonic()
                call(self.args.folder)
                say(name, rows=rows, s=time.monotonic() - at)

    def measure_growth(self) -> None:
        """1,024 examples among --rows rows, keys uniform."""
        draw = np.random.default_rng(3)
        self.measure_rows()
        shape = (8, SLOTS, 1024)
        keys = FIRST_KEY + draw.integers(0, self.args.rows, shape, dtype=np.int64)
        grads = np.full((SLOTS, 1024, self.args.dim), 1e-4, np.float32)
        count = rounds(1024, self.args.quick)
        clock = Clock()
        for i in range(count):
            clock.call(self.push_and_wait, keys[i % len(keys)], grads)
        say("growth_push", rows=self.args.rows, **clock.result())
        clock = Clock()
        for i in range(count):
            clock.call(self.client.pull, "emb", keys[i % len(keys)])
        say("growth_pull", rows=self.args.rows, **clock.result())


def main() -> None:
    """Measure what is named."""
    words = argparse.ArgumentParser()
    words.add_argument("--what", default="sparse")
    words.add_argument("--data", default=".")
    words.add_argument("--dim", type=int, default=16)
    words.add_argument("--rule", default="row_adagrad")
    words.add_argument("--dense", type=int, default=10_000)
    words.add_argument("--rows", type=int, default=1_000_000)
    words.add_argument("--batches", default="1,1024,8192")
    words.add_argument("--folder", default="")
    words.add_argument("--quick", action="store_true")
    args = words.parse_args()
    micro = Micro(args)
    for name in args.what.split(","):
        getattr(micro, f"measure_{name}")()
    micro.client.close()


if __name__ == "__main__":
    main()
