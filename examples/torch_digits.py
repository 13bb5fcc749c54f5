"""Train a digit classifier on real images with PyTorch, on any number of processes.

    paddock launch --nproc-per-node 2 examples/torch_digits.py

The 1,797 images (8 x 8, handwritten) ship inside scikit-learn: nothing is downloaded. Nothing here
is about Paddock: torchrun sets the same variables. Rank 0 prints `accuracy 0.95` or better.
paddle_digits.py is the same with PaddlePaddle.
"""

import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 15
BATCH = 64  # of the whole job: each of n processes takes 64 / n images a step


def main() -> None:
    """Train on this rank's share of the images; rank 0 measures on images nobody trained on."""
    dist.init_process_group("gloo")  # reads RANK, WORLD_SIZE, MASTER_ADDR; on GPUs: "nccl"
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world_size} is up", flush=True)
    torch.manual_seed(0)  # the same first weights everywhere

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype("float32") / 16
    train_x, test_x, train_y, test_y = map(
        torch.from_numpy,
        train_test_split(
            images, labels.astype("int64"), test_size=0.2, random_state=0, stratify=labels
        ),
    )

    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    train = TensorDataset(train_x, train_y)
    # Gives each rank its own share of every epoch, shuffled the same way on all.
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(train)
    loader = DataLoader(train, BATCH // world_size, sampler=sampler)

    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = 0.0
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # DistributedDataParallel averages the gradients over the ranks here
            optimizer.step()
            total += float(loss.detach())
        if rank == 0:  # one line that is written over, as a progress bar is
            shown = f"epoch {epoch + 1}/{EPOCHS}  loss {total / len(loader):.4f}"
            print(shown, end="\r" if epoch + 1 < EPOCHS else "\n", flush=True)

    if rank == 0:
        with torch.no_grad():
            guess = model.module(test_x).argmax(1)
        accuracy = (guess == test_y).float().mean().item()
        print(f"accuracy {accuracy:.3f} on {len(test_y)} unseen images", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # DistributedDataParallel keeps gloo's threads after destroy_process_group() (torch 2.15), and
    # the interpreter's end may then abort: "terminate called without an active exception".
    sys.stdout.flush()
    os._exit(0)
