"""One operation at a time through the peer's own ops: pull, push, dense, rows, save.

fleet builds the program of a real job; all but the op in question is then taken out, so that a
call costs the op (client, RPC and server) and the executor's 50 to 100 us.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import fleet_job as job
import numpy as np
import paddle
from paddle.distributed import fleet

SLOTS = 26
STEP = 8192  # examples of one frame that fills the table
FIRST_KEY = 1 << 40
SETTLE_SECONDS = 0.3


def rounds(batch: int, quick: bool) -> int:
    """How many calls are timed."""
    wanted = 200 if batch <= 32 else 40 if batch <= 1024 else 24
    return max(8, wanted // 4) if quick else wanted


class Micro:
    """The program, its two sparse ops, and the trainer's connection."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        dim = args.dim
        slots = [paddle.static.data(f"s{i}", [None, 1], "int64") for i in range(SLOTS)]
        rows = [paddle.reshape(job.embed(slot, dim), [-1, dim]) for slot in slots]
        self.side = int(args.dense**0.5)
        x = paddle.static.data("x", [None, self.side], "float32")
        y = paddle.static.nn.fc(x, self.side, bias_attr=False)
        loss = paddle.mean(paddle.concat(rows, 1)) + paddle.mean(y)
        job.minimize(loss, paddle.optimizer.SGD(0.01), rule=args.rule, dim=dim, rate=0.05)
        job.serve_if_server()
        self.executor = job.begin_worker()
        self.runtime = fleet.fleet._runtime_handle
        self.worker = self.runtime._worker
        pushing = job.op_of("distributed_push_sparse")
        self.ids, self.grads = pushing.input("Ids"), pushing.output("Outputs")
        self.shows, self.clicks = pushing.input("Shows")[0], pushing.input("Clicks")[0]
        self.pull_program = job.only({"distributed_lookup_table"})
        self.push_program = job.only({"distributed_push_sparse"})
        for name in [*self.grads, self.shows, self.clicks]:
            self.push_program.global_block().var(name).persistable = False

    def feed(self, ids, grads=None) -> dict:
        """ids int64[26, n]; grads float32[n, dim], the same for every slot, or None for a pull."""
        feed = {name: column.reshape(-1, 1) for name, column in zip(self.ids, ids)}  # noqa: B905
        if grads is not None:
            feed.update(dict.fromkeys(self.grads, grads))
            feed[self.shows], feed[self.clicks] = np.ones(1, "float32"), np.zeros(1, "float32")
        return feed

    def pull(self, feed: dict) -> None:
        """Synchronous."""
        self.executor.run(self.pull_program, feed=feed, fetch_list=[])

    def push(self, feed: dict) -> None:
        """Queued by the client; flush sends what it has merged."""
        self.executor.run(self.push_program, feed=feed, fetch_list=[])

    def flush(self) -> None:
        """Until the queues are empty."""
        self.worker.client_flush()

    def measure_sparse(self) -> None:
        """Push and pull of each batch size, warm rows."""
        noise = np.random.default_rng(1)
        batches = [int(word) for word in self.args.batches.split(",")]
        stored = {b: np.load(Path(self.args.data) / f"ids-{b}.npy") for b in batches}
        for batch in batches:
            grads = (noise.normal(size=(batch, self.args.dim)) * 1e-3).astype("float32")
            feeds = [self.feed(ids, grads) for ids in stored[batch]]
            for feed in feeds + feeds[:5]:
                self.push(feed)
            self.flush()
            clock, count = job.Clock(), rounds(batch, self.args.quick)
            for i in range(count):
                clock.call(self.push, feeds[i % len(feeds)])
            self.flush()
            job.say("push", ids=batch * SLOTS, **clock.result(count))
        for batch in batches:
            feeds = [self.feed(ids) for ids in stored[batch]]
            for feed in feeds:
                self.pull(feed)
            clock, count = job.Clock(), rounds(batch, self.args.quick)
            for i in range(count):
                clock.call(self.pull, feeds[i % len(feeds)])
            job.say("pull", ids=batch * SLOTS, **clock.result())

    def measure_dense(self) -> None:
        """The whole dense table, there and back."""
        from paddle.distributed.ps.utils.public import get_the_one_recv_context

        table, names = next(iter(get_the_one_recv_context(self.runtime.context).items()))
        scope = paddle.static.global_scope()
        calls = {"dense_pull": self.worker.pull_dense_params,
                 "dense_set": self.worker.push_dense_params}  # fmt: skip
        for name, call in calls.items():
            call(scope, table, names)
            clock = job.Clock()
            for _ in range(5 if self.args.quick else 20):
                clock.call(call, scope, table, names)
            job.say(name, floats=self.side**2, **clock.result())

    def fill(self, rows: int) -> None:
        """Pull, then push, ``rows`` new keys in order, so that each has its full size.

        A push is flushed by itself: a merged one above 64 MiB is refused by brpc, and lost.
        """
        step = STEP * SLOTS
        grads = np.full((STEP, self.args.dim), 1e-4, "float32")
        for first in range(0, rows, step):
            keys = FIRST_KEY + first + np.arange(step, dtype=np.int64).reshape(SLOTS, -1)
            self.pull(self.feed(keys))
            self.push(self.feed(keys, grads))
            self.flush()
        time.sleep(SETTLE_SECONDS)

    def measure_rows(self) -> None:
        """Memory of --rows rows; and, when a folder is named, saving and loading them."""
        before, began = job.servers_resident_mb(), time.monotonic()
        self.fill(self.args.rows)
        step = STEP * SLOTS
        rows = -(-self.args.rows // step) * step
        added = job.servers_resident_mb() - before
        took = time.monotonic() - began
        job.say("rows", rows=rows, mb=added, mb_per_million=added * 1e6 / rows, s=took)
        if self.args.folder:
            at = time.monotonic()
            main = paddle.static.default_main_program()
            fleet.save_persistables(self.executor, self.args.folder, main, mode=0)
            job.say("save", rows=rows, s=time.monotonic() - at)
            at = time.monotonic()
            fleet.load_model(self.args.folder, 0)
            job.say("load", rows=rows, s=time.monotonic() - at)

    def measure_growth(self) -> None:
        """1,024 examples among --rows rows, keys uniform."""
        draw = np.random.default_rng(3)
        grads = np.full((1024, self.args.dim), 1e-4, "float32")
        self.measure_rows()
        shape = (8, SLOTS, 1024)
        keys = FIRST_KEY + draw.integers(0, self.args.rows, shape, dtype=np.int64)
        for name, call in (("growth_push", self.push), ("growth_pull", self.pull)):
            feeds = [self.feed(ids, grads if call == self.push else None) for ids in keys]
            clock, count = job.Clock(), rounds(1024, self.args.quick)
            for i in range(count):
                clock.call(call, feeds[i % len(feeds)])
            self.flush()
            job.say(name, rows=self.args.rows, **clock.result(count))


def main() -> None:
    """As the environment says: a server, or the trainer that measures."""
    words = argparse.ArgumentParser()
    words.add_argument("--what", default="sparse")
    words.add_argument("--data", default=".")
    words.add_argument("--dim", type=int, default=16)
    words.add_argument("--rule", default="adagrad")
    words.add_argument("--dense", type=int, default=10_000)
    words.add_argument("--rows", type=int, default=1_000_000)
    words.add_argument("--batches", default="1,1024,8192")
    words.add_argument("--folder", default="")
    words.add_argument("--quick", action="store_true")
    args = words.parse_args()
    job.begin()
    micro = Micro(args)
    for name in args.what.split(","):
        if name != "none":
            getattr(micro, f"measure_{name}")()
    fleet.stop_worker()


if __name__ == "__main__":
    main()
