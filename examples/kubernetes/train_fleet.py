"""A small ResNet on handwritten digits, data-parallel with Paddle's fleet; processor or GPU.

In a pod, as the documents of paddle-operator have it, or without a launcher, or with ours:

    python -m paddle.distributed.launch train_fleet.py
    python train_fleet.py
    paddock launch train_fleet.py

Every process takes its part of each batch. Rank 0 prints `accuracy 0.97` or better on 360 images
that nobody trained on, after some ten seconds on one processor.
"""

import argparse

import digits
import paddle
from paddle import nn
from paddle.distributed import fleet
from paddle.nn import functional

BATCH = 96  # of the whole job


class Block(nn.Layer):
    """Two convolutions beside a short cut (He et al. 2015, https://arxiv.org/abs/1512.03385)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2D(inputs, outputs, 3, stride, 1, bias_attr=False), nn.BatchNorm2D(outputs),
            nn.ReLU(),
            nn.Conv2D(outputs, outputs, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(outputs),
        )  # fmt: skip
        self.short = nn.Conv2D(inputs, outputs, 1, stride, bias_attr=False)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return functional.relu(self.body(x) + self.short(x))


def resnet() -> nn.Layer:
    """ResNet for 8 x 8 pixels and ten classes, 80,000 parameters."""
    return nn.Sequential(
        nn.Conv2D(1, 16, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2D(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def batches(data: digits.Digits, rank: int, size: int) -> paddle.io.DataLoader:
    """This rank's part of every batch; sampler.set_epoch() shuffles, alike on all ranks."""
    pairs = paddle.io.TensorDataset(list(map(paddle.to_tensor, (data.train_x, data.train_y))))
    sampler = paddle.io.DistributedBatchSampler(
        pairs, max(1, BATCH // size), size, rank, shuffle=True, drop_last=True
    )
    return paddle.io.DataLoader(pairs, batch_sampler=sampler)


def train_epoch(model: nn.Layer, optimizer: paddle.optimizer.Optimizer, loader: object) -> float:
    """One pass over the data; the mean loss of this rank."""
    model.train()
    total, count = 0.0, 0
    for images, labels in loader:
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()  # the gradients are averaged over the ranks here
        optimizer.step()
        optimizer.clear_grad()
        total, count = total + float(loss), count + 1
    return total / count


def accuracy(model: nn.Layer, data: digits.Digits) -> float:
    """The share of unseen digits that are recognised."""
    model.eval()
    with paddle.no_grad():
        guess = model(paddle.to_tensor(data.test_x)).argmax(axis=1).numpy()
    return float((guess == data.test_y).mean())


def main() -> None:
    """Train on all ranks, judge on the first."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--epochs", type=int, default=6)
    options = words.parse_args()
    fleet.init(is_collective=True)
    rank, size = fleet.worker_index(), fleet.worker_num()
    print(f"rank {rank} of {size} is up", flush=True)
    paddle.seed(0)
    data = digits.load()
    model = resnet()
    optimizer = paddle.optimizer.Adam(3e-3, parameters=model.parameters())
    if size > 1:  # alone, Paddle 3.3 takes every model for a pipeline, and refuses it
        model = fleet.distributed_model(model)
        optimizer = fleet.distributed_optimizer(optimizer)
    loader = batches(data, rank, size)
    for epoch in range(options.epochs):
        loader.batch_sampler.set_epoch(epoch)
        loss = train_epoch(model, optimizer, loader)
        print(f"rank {rank} epoch {epoch + 1} loss {loss:.4f}", flush=True)
    if rank == 0:
        print(f"accuracy {accuracy(model, data):.3f} on {len(data.test_y)} unseen digits")


if __name__ == "__main__":
    main()
