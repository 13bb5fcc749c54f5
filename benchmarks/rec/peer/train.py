"""ctr-dnn and wide & deep with the peer's parameter server, from slot text, asynchronous.

The program is static, as PaddleRec's trainer for servers makes it; the models are those of
`paddock rec`. --reader queue: a dataset whose lines a Python child parses. --reader loader: the
same Python reader in the trainer, batches put together by paddle.io.DataLoader.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "ps" / "peer")]

import fleet_job as job  # noqa: E402
import numpy as np  # noqa: E402
import paddle  # noqa: E402
import reader  # noqa: E402
from paddle.distributed import fleet  # noqa: E402
from paddle.nn import functional  # noqa: E402

SLOTS, NUMBERS, ROWS = 26, 13, 1000001
MODELS = {"dnn": (9, [512, 256, 128, 32], 2), "wide_deep": (9, [512, 256, 128, 32], 1)}
THRESHOLDS = 1 << 12


def tower(hidden, widths):  # type: ignore[no-untyped-def]
    """Layers with ReLU between, weights Normal(0, 1 / sqrt(fan_in))."""
    for number, width in enumerate(widths):
        fan_in = hidden.shape[-1]
        weight = paddle.ParamAttr(initializer=paddle.nn.initializer.Normal(0.0, fan_in**-0.5))
        last = number + 1 == len(widths)
        hidden = paddle.static.nn.fc(
            hidden, width, weight_attr=weight, activation=None if last else "relu"
        )
    return hidden


def build(name):  # type: ignore[no-untyped-def]
    """(inputs in the order of the reader's slots, loss, AUC)."""
    dim, widths, outputs = MODELS[name]
    label = paddle.static.data("click", [None, 1], "int64")
    slots = [paddle.static.data(f"s{i}", [None, 1], "int64") for i in range(1, SLOTS + 1)]
    numbers = paddle.static.data("dense_feature", [None, NUMBERS], "float32")
    initial = paddle.nn.initializer.Uniform(-1.0, 1.0)
    attribute = paddle.ParamAttr(name="SparseFeatFactors", initializer=initial)
    rows = [
        paddle.reshape(
            paddle.static.nn.sparse_embedding(slot, size=[ROWS, dim], param_attr=attribute),
            [-1, dim],
        )
        for slot in slots
    ]
    scores = tower(paddle.concat([*rows, numbers], axis=1), [*widths, outputs])
    if name == "dnn":
        chances = functional.softmax(scores)
        loss = paddle.mean(functional.cross_entropy(scores, label))
    else:
        chance = functional.sigmoid(scores + paddle.static.nn.fc(numbers, 1))
        chances = paddle.concat([1 - chance, chance], axis=1)
        loss = paddle.mean(functional.log_loss(chance, paddle.cast(label, "float32")))
    area, _, _ = paddle.static.auc(chances, label, num_thresholds=THRESHOLDS, slide_steps=20)
    return [label, *slots, numbers], loss, area


class Lines(paddle.io.IterableDataset):
    """Samples of files as lists of arrays."""

    def __init__(self, paths):  # type: ignore[no-untyped-def]
        super().__init__()
        self.paths = paths

    def __iter__(self):  # type: ignore[no-untyped-def]
        for path in self.paths:
            with open(path) as lines:
                for line in lines:
                    for sample in reader.samples(line)():
                        *ids, (_, numbers) = sample
                        found = [np.array(values, "int64") for _, values in ids]
                        yield [*found, np.array(numbers, "float32")]


def main() -> None:
    """As the environment says: a server, or a trainer with every n-th file."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", default=".")
    words.add_argument("--model", default="dnn", choices=sorted(MODELS))
    words.add_argument("--reader", default="queue", choices=("queue", "loader"))
    words.add_argument("--batch", type=int, default=512)
    words.add_argument("--epochs", type=int, default=2)
    args = words.parse_args()
    job.begin()
    inputs, loss, area = build(args.model)
    adam = paddle.optimizer.Adam(0.001, lazy_mode=True)
    job.minimize(loss, adam, rule="", dim=MODELS[args.model][0], rate=0.001)
    job.serve_if_server()
    executor = job.begin_worker()
    program = paddle.static.default_main_program()
    files = sorted(str(path) for path in Path(args.data).glob("part-*"))
    mine = files[fleet.worker_index() :: fleet.worker_num()]
    examples = 0
    for path in mine:
        with open(path, "rb") as lines:
            examples += sum(1 for _ in lines)
    for _ in range(args.epochs):
        at = time.perf_counter()
        value = 0.0
        if args.reader == "queue":
            dataset = paddle.distributed.QueueDataset()
            command = f"{sys.executable} {HERE / 'reader.py'}"
            threads = int(os.environ["CPU_NUM"])
            dataset.init(
                use_var=inputs, pipe_command=command, batch_size=args.batch, thread_num=threads
            )
            dataset.set_filelist(mine)
            executor.train_from_dataset(program, dataset, print_period=10**9)
        else:
            loader = paddle.io.DataLoader(
                Lines(mine), batch_size=args.batch, places=paddle.CPUPlace(), drop_last=True
            )
            names = [each.name for each in inputs]
            for batch in loader():
                feed = dict(zip(names, batch))  # noqa: B905
                _, value = executor.run(program, feed=feed, fetch_list=[loss, area])
        took = time.perf_counter() - at
        auc = float(np.asarray(value).ravel()[0])
        job.say("epoch", examples=examples, s=took, rate=examples / took, auc=auc)
    fleet.stop_worker()


if __name__ == "__main__":
    main()
