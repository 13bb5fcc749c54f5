"""Handwritten digits with PyTorch DistributedDataParallel, as torchrun's variables say.

The operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in every worker, and PET_* for
torchrun, so that all of these do the same:

    python torch_digits.py
    torchrun torch_digits.py
    paddock launch torch_digits.py
"""

import os
import sys

import digits
import torch
import torch.distributed as dist
from torch import nn

EPOCHS = 12
BATCH = 96  # of the whole job


def main() -> None:
    """Train on all ranks, judge on the first."""
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {size} is up", flush=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else "cpu"
    torch.manual_seed(0)
    train_x, train_y, test_x, test_y = (torch.from_numpy(a).to(device) for a in digits.load())
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10),
        ).to(device)
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(epoch))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            mine = order[first : first + BATCH][rank::size].to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(train_x[mine]), train_y[mine])
            loss.backward()  # the gradients are averaged over the ranks here
            optimizer.step()
        print(f"rank {rank} epoch {epoch + 1} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        with torch.no_grad():
            guess = model.module(test_x).argmax(1)
        print(f"accuracy {(guess == test_y).float().mean():.3f} on {len(test_y)} unseen digits")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # DistributedDataParallel keeps gloo's threads after destroy_process_group() (torch 2.15), and
    # the interpreter's end may then abort: "terminate called without an active exception".
    sys.stdout.flush()
    os._exit(0)
