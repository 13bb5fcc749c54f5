"""Train with PyTorch DistributedDataParallel; reads the variables torchrun would set.

    paddock launch --nproc-per-node 2 examples/torch_ddp.py

Fits y = 3 x + 1 from points of which each rank sees its own half. Every rank ends with the same
weights, and they are checked to be the same.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def main() -> None:
    """Fit a line together with the other ranks."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")  # env://
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world_size} is up", flush=True)
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    x = torch.linspace(-1, 1, 256, device=device).reshape(-1, 1)[rank::world_size]
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), 3 * x + 1).backward()  # gradients averaged here
        optimizer.step()

    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    gathered = [torch.zeros_like(weights) for _ in range(world_size)]
    dist.all_gather(gathered, weights)
    same = all(torch.equal(w, weights) for w in gathered)
    print(f"rank {rank} fitted y = {weights[0]:.3f} x + {weights[1]:.3f}", flush=True)
    print(f"rank {rank}: weights equal on all ranks: {same}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # DistributedDataParallel keeps gloo's threads after destroy_process_group() (torch 2.15), and
    # the interpreter's end may then abort: "terminate called without an active exception".
    sys.stdout.flush()
    os._exit(0)
