"""Logistic regression: a weight for each id and each number.

Source: McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches", section 2.
"""

from __future__ import annotations

from paddock.data.batch import Batch
from paddock.rec.models.clicks import CtrModel
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import ZEROS, Net, Output


class Model(CtrModel):
    """A table of weights, and 13 -> 1."""

    def __init__(self, net: Net, hyper: Hyper) -> None:
        super().__init__(net, hyper)
        self.weights = net.table("weights", self.vocabulary, 1, ZEROS)
        self.dense_weights = net.linear("dense_weights", self.numbers, 1, ZEROS)

    def forward(self, batch: Batch) -> Output:
        """The chance of a click."""
        weights = self.weights(self.fields(batch)).reshape([batch.size, -1]).sum(1)
        return self.net.click(weights + self.dense_weights(self.dense(batch)).reshape([-1]), batch)
