"""ctr-dnn: rows of all slots and the numbers, side by side, through an MLP of two classes.

Source: PaddleRec, models/rank/dnn; the shape of Cheng et al. 2016 (arXiv 1606.07792) without its
wide half. One table for all slots, its rows Uniform(-1, 1); a slot of several ids is their sum.
"""

from __future__ import annotations

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.inputs import Hyper, dense_of, fields_of
from paddock.rec.models.net import Net, Output


class Model:
    """26 slots x 9 and 13 numbers -> 512 -> 256 -> 128 -> 32 -> 2."""

    metrics = ("auc",)

    def __init__(self, net: Net, hyper: Hyper) -> None:
        self.net = net
        self.slots = hyper("sparse_inputs_slots", 27) - 1
        self.numbers = hyper("dense_input_dim", 13)
        rows, dim = hyper("sparse_feature_number", 1000001), hyper("sparse_feature_dim", 9)
        self.rows = net.table("SparseFeatFactors", rows, dim, InitialSpec("uniform", 1.0))
        sizes = hyper("fc_sizes", [512, 256, 128, 32])
        self.tower = net.mlp("tower", [self.slots * dim + self.numbers, *sizes, 2])

    def forward(self, batch: Batch) -> Output:
        """The second class's share is the chance of a click."""
        rows = self.rows(fields_of(batch, self.slots)).reshape([batch.size, -1])
        dense = self.net.tensor(dense_of(batch, self.numbers))
        return self.net.two_classes(self.tower(self.net.concat([rows, dense])), batch)
