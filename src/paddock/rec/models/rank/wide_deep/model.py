"""Wide & deep: a linear model of the numbers, and an MLP over rows and numbers; logits add up.

Source: Cheng et al. 2016, "Wide & Deep Learning for Recommender Systems" (arXiv 1606.07792), (3);
sizes of PaddleRec 2.x on Criteo, where the wide half has the 13 numbers.
"""

from __future__ import annotations

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.clicks import CtrModel
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Net, Output


class Model(CtrModel):
    """Wide: 13 -> 1. Deep: 26 slots x 9 and 13 numbers -> 512 -> 256 -> 128 -> 32 -> 1."""

    def __init__(self, net: Net, hyper: Hyper) -> None:
        super().__init__(net, hyper)
        first = InitialSpec("uniform", 1.0)
        self.rows = net.table("SparseFeatFactors", self.vocabulary, self.dim, first)
        self.wide = net.linear("wide", self.numbers, 1)
        sizes = hyper("fc_sizes", [512, 256, 128, 32])
        self.deep = net.mlp("deep", [self.slots * self.dim + self.numbers, *sizes, 1])

    def forward(self, batch: Batch) -> Output:
        """The chance of a click."""
        dense = self.dense(batch)
        rows = self.rows(self.fields(batch)).reshape([batch.size, -1])
        deep = self.deep(self.net.concat([rows, dense], 1))
        return self.net.click(self.wide(dense) + deep, batch)
