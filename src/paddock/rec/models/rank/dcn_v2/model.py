"""DCN-v2: layers that multiply the input with a linear image of what came before; then an MLP.

Source: Wang et al. 2020, "DCN V2" (arXiv 2008.13535), (1) and (3): x' = x0 * (W x + b) + x.
hyper_parameters.is_stacked: the MLP over the crosses; else beside them.
"""

from __future__ import annotations

import math

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.clicks import CtrModel
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Net, Output


class Model(CtrModel):
    """26 slots x 9 and 13 numbers -> cross layers, and 500 -> 500 -> 500; -> 1."""

    def __init__(self, net: Net, hyper: Hyper) -> None:
        super().__init__(net, hyper)
        first = InitialSpec("normal", 0.1 / math.sqrt(self.dim))
        self.rows = net.table("SparseFeatFactors", self.vocabulary, self.dim, first)
        width = self.slots * self.dim + self.numbers
        names = [f"cross_{number}" for number in range(hyper("cross_num", 2))]
        flat = InitialSpec("normal", 1.0 / width)
        self.crosses = [net.linear(name, width, width, flat) for name in names]
        sizes = hyper("fc_sizes", [500, 500, 500])
        self.deep = net.mlp("deep", [width, *sizes])
        self.is_stacked = hyper("is_stacked", False)
        self.last = net.linear("last", sizes[-1] + (0 if self.is_stacked else width), 1)

    def forward(self, batch: Batch) -> Output:
        """The chance of a click."""
        rows = self.rows(self.fields(batch)).reshape([batch.size, -1])
        crossed = first = self.net.concat([rows, self.dense(batch)], 1)
        for layer in self.crosses:
            crossed = first * layer(crossed) + crossed
        deep = self.net.relu(self.deep(crossed if self.is_stacked else first))
        both = deep if self.is_stacked else self.net.concat([crossed, deep], 1)
        return self.net.click(self.last(both), batch)
