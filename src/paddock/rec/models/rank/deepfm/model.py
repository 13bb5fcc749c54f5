"""DeepFM: a factorization machine and an MLP over the same vectors; logits add up.

Source: Guo et al. 2017, "DeepFM" (arXiv 1703.04247), (1) to (4).
"""

from __future__ import annotations

from paddock.data.batch import Batch
from paddock.rec.models.clicks import Factorized
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Net, Output


class Model(Factorized):
    """The terms of an FM, and (26 + 13) x 9 -> 512 -> 256 -> 128 -> 32 -> 1."""

    def __init__(self, net: Net, hyper: Hyper) -> None:
        super().__init__(net, hyper)
        sizes = hyper("fc_sizes", [512, 256, 128, 32])
        self.deep = net.mlp("deep", [(self.slots + self.numbers) * self.dim, *sizes, 1])

    def forward(self, batch: Batch) -> Output:
        """The chance of a click."""
        terms, vectors = self.terms(batch)
        deep = self.deep(vectors.reshape([batch.size, -1])).reshape([-1])
        return self.net.click(terms + deep, batch)
