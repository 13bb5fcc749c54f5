"""Wide & deep through the peer's parameter server, asynchronous, from a dataset in memory."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import fleet_job as job
import numpy as np
import paddle
from paddle.distributed import fleet
from paddle.nn import functional

SLOTS = 26
NUMBERS = 13
THRESHOLDS = 1 << 12


def build(args: argparse.Namespace) -> tuple:
    """(inputs in the order of the files, names of the AUC's two histograms)."""
    slots = [paddle.static.data(f"s{i}", [None, 1], "int64") for i in range(SLOTS)]
    numbers = paddle.static.data("numbers", [None, NUMBERS], "float32")
    label = paddle.static.data("label", [None, 1], "int64")
    rows = [paddle.reshape(job.embed(slot, args.dim), [-1, args.dim]) for slot in slots]
    hidden = paddle.concat([*rows, numbers], axis=1)
    for width in args.layers.split(","):
        hidden = paddle.static.nn.fc(hidden, int(width), activation="relu")
    logit = paddle.static.nn.fc(hidden, 1) + paddle.static.nn.fc(numbers, 1)
    chance = functional.sigmoid(logit)
    loss = paddle.mean(functional.log_loss(chance, paddle.cast(label, "float32")))
    both = paddle.concat([1 - chance, chance], axis=1)
    _, _, state = paddle.static.auc(both, label, num_thresholds=THRESHOLDS, slide_steps=0)
    adam = paddle.optimizer.Adam(args.rate, lazy_mode=True)
    job.minimize(loss, adam, rule="", dim=args.dim, rate=args.rate)
    return [label, *slots, numbers], [state[-2].name, state[-1].name]


def take_auc(names: list) -> float:
    """Area from the two histograms, which are emptied."""
    scope, found = paddle.static.global_scope(), []
    for name in names:
        tensor = scope.find_var(name).get_tensor()
        counts = np.array(tensor).ravel().astype(float)
        tensor.set(np.zeros(tensor.shape(), "int64"), paddle.CPUPlace())
        found.append(counts[::-1].cumsum())
    right, wrong = (np.concatenate([[0.0], counts]) for counts in found)
    area = ((right[1:] + right[:-1]) * np.diff(wrong)).sum() / 2
    return float(area / max(1.0, right[-1] * wrong[-1]))


def main() -> None:
    """As the environment says: a server, or a trainer with its own part of the data."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", default=".")
    words.add_argument("--dim", type=int, default=16)
    words.add_argument("--batch", type=int, default=1024)
    words.add_argument("--layers", default="64")
    words.add_argument("--rate", type=float, default=0.001)
    words.add_argument("--epochs", type=int, default=3)
    args = words.parse_args()
    job.begin()
    inputs, histograms = build(args)
    job.serve_if_server()
    executor = job.begin_worker()
    main_program = paddle.static.default_main_program()
    options = dict(main_program._fleet_opt or {})
    main_program._fleet_opt = {**options, "stat_var_names": histograms}
    dataset = paddle.distributed.InMemoryDataset()
    dataset.init(
        use_var=inputs, pipe_command="cat", batch_size=args.batch,
        thread_num=int(os.environ["CPU_NUM"]),
    )  # fmt: skip
    dataset.set_filelist([str(Path(args.data) / f"part-{fleet.worker_index()}.txt")])
    dataset.load_into_memory()
    examples = int(dataset.get_memory_data_size())
    for _ in range(args.epochs):
        at = time.perf_counter()
        executor.train_from_dataset(main_program, dataset, print_period=10**9)
        took = time.perf_counter() - at
        job.say("epoch", examples=examples, s=took, rate=examples / took, auc=take_auc(histograms))
    fleet.stop_worker()


if __name__ == "__main__":
    main()
