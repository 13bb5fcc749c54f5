"""ctr-dnn and wide & deep in plain PyTorch: one process, one local table, no servers.

The same model, batch, parser and files as `paddock rec`, and what a PyTorch user would write:
nn.Embedding(sparse=True) with SparseAdam, Adam for the layers.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from benchmarks.ps.ours.timing import say
from benchmarks.rec.bench import BATCH
from benchmarks.rec.parsing import batches

ROWS, SLOTS, NUMBERS, DIM = 1_000_001, 26, 13, 9
WIDTHS = [512, 256, 128, 32]


class Clicks(nn.Module):
    """dnn: a tower with two classes. wide_deep: a tower with one, beside a line of the numbers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.rows = nn.Embedding(ROWS, DIM, sparse=True)
        nn.init.uniform_(self.rows.weight, -1.0, 1.0)
        sizes = [SLOTS * DIM + NUMBERS, *WIDTHS, 2 if name == "dnn" else 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.wide = nn.Linear(NUMBERS, 1) if name == "wide_deep" else None
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        hidden = torch.cat([self.rows(ids).flatten(1), numbers], 1)
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        scores = self.layers[-1](hidden)
        return scores if self.wide is None else scores + self.wide(numbers)


def main() -> None:
    """Train, an epoch after the other."""
    words = argparse.ArgumentParser()
    words.add_argument("--data", type=Path)
    words.add_argument("--model", default="dnn", choices=("dnn", "wide_deep"))
    words.add_argument("--epochs", type=int, default=2)
    args = words.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = Clicks(args.model)
    rows = torch.optim.SparseAdam([model.rows.weight], lr=1e-3)
    dense = torch.optim.Adam([p for n, p in model.named_parameters() if n != "rows.weight"], 1e-3)
    for _ in range(args.epochs):
        at, examples = time.perf_counter(), 0
        for ids, numbers, label in batches(args.data, BATCH):
            scores = model(torch.from_numpy(ids), torch.from_numpy(numbers))
            wanted = torch.from_numpy(label)
            if args.model == "dnn":
                loss = functional.cross_entropy(scores, wanted.long())
            else:
                loss = functional.binary_cross_entropy_with_logits(scores.squeeze(1), wanted)
            rows.zero_grad()
            dense.zero_grad()
            loss.backward()
            rows.step()
            dense.step()
            examples += len(label)
        took = time.perf_counter() - at
        say("epoch", examples=examples, s=took, rate=examples / took, loss=float(loss.detach()))


if __name__ == "__main__":
    main()
