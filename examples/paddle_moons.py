"""Classify two moons with PaddlePaddle's DataParallel, and go on from a checkpoint.

    paddock launch --nproc-per-node 2 examples/paddle_moons.py

The script of docs/tutorials/paddle.md. Nothing here is about Paddock, but the one line that makes
it fail when told to: `python -m paddle.distributed.launch` sets the same variables.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn

COUNT, BATCH = 4096, 256  # of the whole job


def moons() -> tuple[paddle.Tensor, paddle.Tensor]:
    """Points on two half circles that reach into one another, and which of them each is on."""
    numbers = np.random.default_rng(0)
    angle, label = numbers.random(COUNT) * np.pi, np.arange(COUNT) % 2
    side = 1 - 2 * label
    points = np.stack([side * np.cos(angle) + label, side * np.sin(angle) + label / 2], 1)
    points += 0.1 * numbers.standard_normal((COUNT, 2))
    return paddle.to_tensor(points.astype("float32")), paddle.to_tensor(label)


def main() -> None:
    """Train up to the last epoch, from the checkpoint if there is one."""
    words = argparse.ArgumentParser()
    words.add_argument("--epochs", type=int, default=5)
    words.add_argument("--epoch-seconds", type=float, default=0.0, help="at least so long an epoch")
    words.add_argument("--checkpoint", type=Path, default=Path("moons.pdparams"))
    words.add_argument("--fail-at", type=int, help="the last rank fails at this epoch, once")
    options = words.parse_args()

    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()
    paddle.seed(0)
    x, y = moons()
    model = nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
    first = 0
    if options.checkpoint.exists():
        saved = paddle.load(str(options.checkpoint))
        model.set_state_dict(saved["model"])
        optimizer.set_state_dict(saved["optimizer"])
        first = saved["epoch"]
    print(f"rank {rank} of {size} starts at epoch {first}", flush=True)

    parallel = paddle.DataParallel(model)
    attempt = os.environ.get("PADDOCK_ATTEMPT", "0")
    for epoch in range(first, options.epochs):
        begun = time.monotonic()
        if (epoch, rank, attempt) == (options.fail_at, size - 1, "0"):
            raise ValueError("sample 812 has 3 labels, the table has 2")
        order = np.random.default_rng(epoch).permutation(COUNT)
        for start in range(0, COUNT, BATCH):
            mine = paddle.to_tensor(order[start : start + BATCH][rank::size])
            loss = nn.functional.cross_entropy(parallel(x[mine]), y[mine])
            loss.backward()  # the gradients are averaged over the ranks here
            optimizer.step()
            optimizer.clear_grad()
        accuracy = (model(x).argmax(1) == y).astype("float32").mean().item()
        print(f"epoch {epoch}  ranks {size}  accuracy {accuracy:.3f}", flush=True)
        if rank == 0:
            beside = options.checkpoint.with_suffix(".new")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            paddle.save({**state, "epoch": epoch + 1}, str(beside))
            beside.replace(options.checkpoint)  # a kill leaves the old one whole
        time.sleep(max(0.0, options.epoch_seconds - (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
