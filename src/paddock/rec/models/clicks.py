"""Click models over slots and numbers share their columns, and the terms of an FM."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.inputs import Fields, Hyper, dense_of, fields_of
from paddock.rec.models.net import ZEROS, Net, Table, Tensor


class CtrModel:
    """Columns of a batch as PaddleRec's click models have them: C1 to C26, and 13 numbers."""

    metrics = ("auc",)

    def __init__(self, net: Net, hyper: Hyper) -> None:
        self.net = net
        self.slots = hyper("sparse_inputs_slots", 27) - 1  # One of them is the label.
        self.numbers = hyper("dense_input_dim", 13)
        self.vocabulary = hyper("sparse_feature_number", 1000001)
        self.dim = hyper("sparse_feature_dim", 9)

    def fields(self, batch: Batch) -> Fields:
        """The ids of all slots."""
        return fields_of(batch, self.slots)

    def dense(self, batch: Batch) -> Tensor:
        """(examples, numbers)."""
        return self.net.tensor(dense_of(batch, self.numbers))

    def wants(self, batch: Batch) -> Iterable[tuple[Table, Fields | NDArray[np.int64]]]:
        """The tables and int64 ids that forward() will look up, to be asked for early."""
        fields = self.fields(batch)
        return [(table, fields) for table in self.net.tables.values()]


class Factorized(CtrModel):
    """A weight and a vector for each id and each number: the terms of a factorization machine.

    Source: Rendle 2010, "Factorization Machines", (1) and lemma 3.1.
    """

    def __init__(self, net: Net, hyper: Hyper) -> None:
        super().__init__(net, hyper)
        spread = InitialSpec("normal", 0.1 / math.sqrt(self.dim))
        self.weights = net.table("weights", self.vocabulary, 1, spread)
        self.vectors = net.table("vectors", self.vocabulary, self.dim, spread)
        self.dense_weights = net.linear("dense_weights", self.numbers, 1, ZEROS)
        self.dense_vectors = net.parameter("dense_vectors", (1, self.numbers, self.dim), spread)

    def terms(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(examples, 1): weights and products of all pairs, added up; and the vectors themselves,
        (examples, slots + numbers, dim)."""
        fields, dense = self.fields(batch), self.dense(batch)
        scaled = dense.reshape([batch.size, self.numbers, 1]) * self.dense_vectors
        vectors = self.net.concat([self.vectors(fields), scaled], 1)
        total = vectors.sum(1)
        pairs = (total * total - (vectors * vectors).sum(1)).sum(1) * 0.5
        weights = self.weights(fields).reshape([batch.size, -1]).sum(1)
        return self.dense_weights(dense).reshape([-1]) + weights + pairs, vectors
