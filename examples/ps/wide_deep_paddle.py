"""Wide & deep click prediction, PaddlePaddle 3 dygraph on the parameter server.

    paddock launch --server-num 2 --worker-num 2 examples/ps/wide_deep_paddle.py --strategy sync

README.md beside it says what it prints.
"""

import argparse

import criteo_like
import paddle
from paddle import nn
from report import Report

from paddock import ps
from paddock.ps import paddle as ps_paddle


class WideDeep(nn.Layer):
    """A weight for each id, and an MLP over the ids' vectors and the numbers. Logits."""

    def __init__(self, client: ps.Client, options: argparse.Namespace) -> None:
        super().__init__()
        adam = ps.OptimizerSpec("adam", options.lr)
        self.wide = ps_paddle.Embedding(client, "wide", 1, optimizer=adam, pooling="sum")
        self.deep = ps_paddle.Embedding(client, "deep", options.dim, optimizer=adam)
        inputs = criteo_like.SLOTS * options.dim + criteo_like.NUMBERS
        self.mlp = nn.Sequential(
            nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, ids: paddle.Tensor, dense: paddle.Tensor) -> paddle.Tensor:
        vectors = self.deep(ids).flatten(1)
        return (self.wide(ids) + self.mlp(paddle.concat([vectors, dense], 1))).squeeze(1)


def train(client: ps.Client, model: nn.Layer, options: argparse.Namespace) -> None:
    """Train this trainer's part of every batch; the first trainer then judges for all."""
    trainer = ps_paddle.Trainer(client, model, optimizer="adam", lr=options.lr)
    report = Report(options)
    for batch in criteo_like.batches(options):
        ids, dense, label = map(paddle.to_tensor, batch)
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids, dense), label)
        trainer.step(loss)
        report.batch(loss.item, len(label))

    ids, dense, label = criteo_like.test_set(options)

    def score() -> object:
        trainer.dense.pull()
        model.eval()
        with paddle.no_grad():
            return model(paddle.to_tensor(ids), paddle.to_tensor(dense)).numpy()

    report.end(client, score, label)


def main() -> None:
    """Train, then judge."""
    options = criteo_like.options(__doc__)
    paddle.set_device("cpu")
    paddle.seed(0)
    with ps.Client(strategy=options.strategy, staleness=options.staleness) as client:
        train(client, WideDeep(client, options), options)


if __name__ == "__main__":
    main()
