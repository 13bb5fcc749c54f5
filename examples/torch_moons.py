"""Classify two moons with PyTorch DistributedDataParallel, and go on from a checkpoint.

    paddock launch --nproc-per-node 2 examples/torch_moons.py

The script of docs/tutorials/pytorch.md. Nothing here is about Paddock, but the one line that makes
it fail when told to: torchrun sets the same variables.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

COUNT, BATCH = 4096, 256  # of the whole job


def moons() -> tuple[torch.Tensor, torch.Tensor]:
    """Points on two half circles that reach into one another, and which of them each is on."""
    angle, label = torch.rand(COUNT) * torch.pi, torch.arange(COUNT) % 2
    side = 1 - 2 * label
    points = torch.stack([side * angle.cos() + label, side * angle.sin() + label / 2], 1)
    return points + 0.1 * torch.randn(COUNT, 2), label


def main() -> None:
    """Train up to the last epoch, from the checkpoint if there is one."""
    words = argparse.ArgumentParser()
    words.add_argument("--epochs", type=int, default=5)
    words.add_argument("--epoch-seconds", type=float, default=0.0, help="at least so long an epoch")
    words.add_argument("--checkpoint", type=Path, default=Path("moons.pt"))
    words.add_argument("--fail-at", type=int, help="the last rank fails at this epoch, once")
    options = words.parse_args()

    dist.init_process_group("gloo")  # on GPUs: "nccl"
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, y = moons()
    model = nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = 0
    if options.checkpoint.exists():
        saved = torch.load(options.checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"]
    print(f"rank {rank} of {size} starts at epoch {first}", flush=True)

    parallel = nn.parallel.DistributedDataParallel(model)
    attempt = os.environ.get("PADDOCK_ATTEMPT", "0")
    for epoch in range(first, options.epochs):
        begun = time.monotonic()
        if (epoch, rank, attempt) == (options.fail_at, size - 1, "0"):
            raise ValueError("sample 812 has 3 labels, the table has 2")
        for batch in torch.randperm(COUNT).split(BATCH):
            mine = batch[rank::size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(parallel(x[mine]), y[mine])
            loss.backward()  # the gradients are averaged over the ranks here
            optimizer.step()
        accuracy = (model(x).argmax(1) == y).float().mean().item()
        print(f"epoch {epoch}  ranks {size}  accuracy {accuracy:.3f}", flush=True)
        if rank == 0:
            beside = options.checkpoint.with_suffix(".new")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "epoch": epoch + 1}, beside)
            beside.replace(options.checkpoint)  # a kill leaves the old one whole
        time.sleep(max(0.0, options.epoch_seconds - (time.monotonic() - begun)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # DistributedDataParallel keeps gloo's threads after destroy_process_group() (torch 2.15), and
    # the interpreter's end may then abort: "terminate called without an active exception".
    sys.stdout.flush()
    os._exit(0)
