"""Wide & deep click prediction, PyTorch on the parameter server.

    paddock launch --server-num 2 --worker-num 2 examples/ps/wide_deep_torch.py --strategy sync

README.md beside it says what it prints.
"""

import argparse

import criteo_like
import torch
from report import Report
from torch import nn

from paddock import ps
from paddock.ps import torch as ps_torch


class WideDeep(nn.Module):
    """A weight for each id, and an MLP over the ids' vectors and the numbers. Logits."""

    def __init__(self, client: ps.Client, options: argparse.Namespace) -> None:
        super().__init__()
        adam = ps.OptimizerSpec("adam", options.lr)
        self.wide = ps_torch.Embedding(client, "wide", 1, optimizer=adam, pooling="sum")
        self.deep = ps_torch.Embedding(client, "deep", options.dim, optimizer=adam)
        inputs = criteo_like.SLOTS * options.dim + criteo_like.NUMBERS
        self.mlp = nn.Sequential(
            nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        vectors = self.deep(ids).flatten(1)
        return (self.wide(ids) + self.mlp(torch.cat([vectors, dense], 1))).squeeze(1)


def main() -> None:
    """Train, then judge."""
    options = criteo_like.options(__doc__)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with ps.Client(strategy=options.strategy, staleness=options.staleness) as client:
        model = WideDeep(client, options)
        trainer = ps_torch.Trainer(client, model, optimizer="adam", lr=options.lr)
        report = Report(options)
        for batch in criteo_like.batches(options):
            ids, dense, label = map(torch.from_numpy, batch)
            loss = nn.functional.binary_cross_entropy_with_logits(model(ids, dense), label)
            trainer.step(loss)
            report.batch(loss.item, len(label))

        ids, dense, label = criteo_like.test_set(options)

        def score() -> object:
            trainer.dense.pull()
            model.eval()
            with torch.no_grad():
                return model(torch.from_numpy(ids), torch.from_numpy(dense)).numpy()

        report.end(client, score, label)


if __name__ == "__main__":
    main()
