"""ctr-dnn: rows of all slots and the numbers, side by side, through an MLP of two classes.

Source: PaddleRec, models/rank/dnn; the shape of Cheng et al. 2016 (arXiv 1606.07792) without its
wide half. One table for all slots, its rows Uniform(-1, 1); a slot of several ids is their sum.
"""

from __future__ import annotations

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.clicks import CtrModel
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Net, Output


class Model(CtrModel):
    """26 slots x 9 and 13 numbers -> 512 -> 256 -> 128 -> 32 -> 2."""

    def __init__(self, net: Net, hyper: Hyper) -> None:
        super().__init__(net, hyper)
        first = InitialSpec("uniform", 1.0)
        self.rows = net.table("SparseFeatFactors", self.vocabulary, self.dim, first)
        sizes = hyper("fc_sizes", [512, 256, 128, 32])
        self.tower = net.mlp("tower", [self.slots * self.dim + self.numbers, *sizes, 2])

    def forward(self, batch: Batch) -> Output:
        """The second class's share is the chance of a click."""
        rows = self.rows(self.fields(batch)).reshape([batch.size, -1])
        both = self.net.concat([rows, self.dense(batch)], 1)
        return self.net.two_classes(self.tower(both), batch)
