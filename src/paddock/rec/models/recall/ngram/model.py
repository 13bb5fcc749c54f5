"""The N-gram model of the word2vec demo: four words say which is the next.

Source: Bengio et al. 2003, "A Neural Probabilistic Language Model", (1); sizes of Paddle's book,
chapter word2vec: one table for all places. The demo has AdaGrad 3e-3, batch 32, dropout 0.5 and 30
passes; ours has Adam, batch 256 and no dropout.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch
from paddock.errors import UsageError
from paddock.ps.spec import InitialSpec
from paddock.rec.models.inputs import Hyper, as_bag, slot_of
from paddock.rec.models.net import Net, Output, Table


class Model:
    """4 words x 32 -> 256, sigmoid, half of them dropped -> a class for each word."""

    metrics = ("accuracy",)

    def __init__(self, net: Net, hyper: Hyper) -> None:
        self.net = net
        self.words, self.dim = hyper("dict_size", 2000), hyper("emb_size", 32)
        self.context, width = hyper("n_gram", 5) - 1, hyper("hidden_size", 256)
        self.chance = hyper("dropout", 0.5)
        self.rows = net.table("_proj", self.words, self.dim, InitialSpec("normal", 0.001))
        first = InitialSpec("normal", (self.dim * 8) ** -0.5)
        self.hidden = net.linear("hidden", self.context * self.dim, width, first)
        self.next = net.linear("next", width, self.words)

    def forward(self, batch: Batch) -> Output:
        """The chance of each word to be the next."""
        words = self._words(batch)
        rows = self.rows(words[:, :-1]).reshape([batch.size, -1])
        hidden = self.net.dropout(self.net.sigmoid(self.hidden(rows)), self.chance)
        return self.net.classes(self.next(hidden), words[:, -1])

    def wants(self, batch: Batch) -> Iterable[tuple[Table, NDArray[np.int64]]]:
        """The tables and int64 ids that forward() will look up."""
        return [(self.rows, self._words(batch)[:, :-1])]

    def _words(self, batch: Batch) -> NDArray[np.int64]:
        bag = as_bag(slot_of(batch, "words"))
        if len(bag.values) != batch.size * (self.context + 1):
            raise UsageError(
                f"{batch.size} lines have {len(bag.values)} words, not {self.context + 1} each",
                hint="paddock data generate words --format ngram; hyper_parameters.n_gram",
            )
        return bag.values.reshape(batch.size, -1)
