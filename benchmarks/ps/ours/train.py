"""Wide & deep in PyTorch with the rows and the dense parameters on the servers, asynchronous.

The same model, batch, optimizer (Adam, one step a batch) and data as the peer's train.py; rows of
the next batch are asked for before this one is computed.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.ps.ours.timing import say, servers_cpu_seconds
from benchmarks.ps.workload import NUMBERS, SLOTS, auc
from paddock.ps.client.client import Client
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec, SparseSpec


class WideDeep(nn.Module):
    """Rows and numbers through layers, beside a linear model of the numbers."""

    def __init__(self, dim: int, layers: list[int]) -> None:
        super().__init__()
        widths = [SLOTS * dim + NUMBERS, *layers, 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.wide = nn.Linear(NUMBERS, 1)

    def forward(self, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        hidden = torch.cat([rows, numbers], 1)
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        return (self.layers[-1](hidden) + self.wide(numbers)).squeeze(1)


class Trainer:
    """The model, whose parameters and gradients are views of two flat buffers."""

    def __init__(self, client: Client, args: argparse.Namespace) -> None:
        self.client, self.args = client, args
        torch.manual_seed(7)
        self.model = WideDeep(args.dim, [int(word) for word in args.layers.split(",")])
        parameters = list(self.model.parameters())
        size = sum(p.numel() for p in parameters)
        self.values, self.grads = np.empty(size, np.float32), np.zeros(size, np.float32)
        at = 0
        for parameter in parameters:
            stop = at + parameter.numel()
            view = torch.from_numpy(self.values[at:stop]).view_as(parameter)
            view.copy_(parameter.detach())
            parameter.data = view
            parameter.grad = torch.from_numpy(self.grads[at:stop]).view_as(parameter)
            at = stop
        adam = OptimizerSpec("adam", args.rate)
        client.create(SparseSpec("emb", args.dim, adam, InitialSpec("uniform", 1e-3)))
        client.create(DenseSpec("dense", size, adam))
        if client.place.trainer == 0:
            client.set_dense("dense", self.values)
        if client.place.trainers > 1:
            client.barrier("begin")

    def epoch(
        self, keys: list[np.ndarray], numbers: list[torch.Tensor], labels: list[torch.Tensor]
    ) -> list[np.ndarray]:
        """One pass; the scores of each batch."""
        client, scores = self.client, []
        for i, batch_keys in enumerate(keys):
            rows = torch.from_numpy(client.pull("emb", batch_keys))
            client.pull_dense("dense", self.values)
            if i + 1 < len(keys):
                client.prefetch("emb", keys[i + 1])
            leaf = rows.view(len(rows), -1).requires_grad_()
            self.grads.fill(0.0)
            logits = self.model(leaf, numbers[i])
            functional.binary_cross_entropy_with_logits(logits, labels[i]).backward()
            assert leaf.grad is not None
            client.push("emb", batch_keys, leaf.grad.numpy().reshape(*batch_keys.shape, -1))
            client.push_dense("dense", self.grads)
            client.step()
            scores.append(logits.detach().numpy())
        client.flush()
        return scores


def main() -> None:
    """Train on this trainer's part of the data."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", default=".")
    words.add_argument("--dim", type=int, default=16)
    words.add_argument("--batch", type=int, default=1024)
    words.add_argument("--layers", default="64")
    words.add_argument("--rate", type=float, default=0.001)
    words.add_argument("--epochs", type=int, default=3)
    args = words.parse_args()
    torch.set_num_threads(1)
    with Client() as client:
        trainer = Trainer(client, args)
        with np.load(Path(args.data) / f"part-{client.place.trainer}.npz") as part:
            ids, numbers, labels = (part[name] for name in ("ids", "numbers", "labels"))
        starts = range(0, len(labels), args.batch)
        keys = [np.ascontiguousarray(ids[:, at : at + args.batch].T) for at in starts]
        rows = [torch.from_numpy(numbers[at : at + args.batch]) for at in starts]
        wanted = [torch.from_numpy(labels[at : at + args.batch]).float() for at in starts]
        for _ in range(args.epochs):
            at, own, servers = time.perf_counter(), time.process_time(), servers_cpu_seconds()
            scores = trainer.epoch(keys, rows, wanted)
            took = time.perf_counter() - at
            say(
                "epoch", examples=len(labels), s=took, rate=len(labels) / took,
                auc=auc(labels, np.concatenate(scores)),
                client_cores=(time.process_time() - own) / took,
                server_cores=(servers_cpu_seconds() - servers) / took,
            )  # fmt: skip


if __name__ == "__main__":
    main()
