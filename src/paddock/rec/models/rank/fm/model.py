"""A factorization machine: weights, and a product of vectors for each pair.

Source: Rendle 2010, "Factorization Machines", (1); sizes of PaddleRec 2.x.
"""

from __future__ import annotations

from paddock.data.batch import Batch
from paddock.rec.models.clicks import Factorized
from paddock.rec.models.net import Output


class Model(Factorized):
    """Nothing but the terms."""

    def forward(self, batch: Batch) -> Output:
        """The chance of a click."""
        return self.net.click(self.terms(batch)[0], batch)
