"""DIN: what a user had before, weighted by how much it says of the item that is offered.

Source: Zhou et al. 2018, "Deep Interest Network" (arXiv 1706.06978), (3) and figure 2; sizes of
PaddleRec, which has a softmax over the sequence, scaled by the root of its width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.inputs import Hyper, sequence_of
from paddock.rec.models.net import ZEROS, Net, Output, Table

SLOTS = ("hist_item", "hist_cat", "target_item", "target_cat")
# Where a sequence has no item: softmax gives it nothing.
ABSENT = -1e9


class Model:
    """Item and category -> 64 + 64; attention 4 x 128 -> 80 -> 40 -> 1; 256 -> 80 -> 40 -> 1."""

    metrics = ("auc",)

    def __init__(self, net: Net, hyper: Hyper) -> None:
        self.net = net
        sides = hyper("item_emb_size", 64), hyper("cat_emb_size", 64)
        self.longest = hyper("max_len", 100)
        first = InitialSpec("xavier", fan=sides[0] + sides[1])
        self.items = net.table("item_emb", hyper("item_count", 63001), sides[0], first)
        self.kinds = net.table("cat_emb", hyper("cat_count", 801), sides[1], first)
        self.bias = net.table("item_b", self.items.rows, 1, ZEROS)
        self.width = sum(sides)
        self.attention = net.mlp("attention", [4 * self.width, 80, 40, 1], "sigmoid")
        self.interest = net.linear("interest", self.width, self.width)
        self.tower = net.mlp("tower", [2 * self.width, 80, 40, 1], "sigmoid")

    def forward(self, batch: Batch) -> Output:
        """The chance of a click on the target item."""
        items, kinds, target, kind, is_there = self._ids(batch)
        size, length = items.shape
        # One look-up for both roles of an item: the target stands behind the sequence.
        all_items = self.items(np.concatenate([items, target], 1))
        all_kinds = self.kinds(np.concatenate([kinds, kind], 1))
        rows = self.net.concat([all_items, all_kinds], 2)
        past, offered = rows[:, :length], rows[:, length:]
        same = offered + past * 0.0  # (examples, length, width)
        pairs = self.net.concat([past, same, past - same, past * same], 2)
        scores = self.attention(pairs).reshape([size, length]) * (1.0 / math.sqrt(self.width))
        there = self.net.tensor(is_there)
        # Nobody to attend to: the share of nothing is nothing.
        shares = self.net.softmax(scores + (1.0 - there) * ABSENT, 1) * there
        pooled = (shares.reshape([size, length, 1]) * past).sum(1)
        both = self.net.concat([self.interest(pooled), offered.reshape([size, -1])], 1)
        return self.net.click(self.tower(both) + self.bias(target.reshape(-1)), batch)

    def wants(self, batch: Batch) -> Iterable[tuple[Table, NDArray[np.int64]]]:
        """The tables and int64 ids that forward() will look up."""
        items, kinds, target, kind, _ = self._ids(batch)
        return [
            (self.items, np.concatenate([items, target], 1)),
            (self.kinds, np.concatenate([kinds, kind], 1)),
            (self.bias, target.reshape(-1)),
        ]

    def _ids(self, batch: Batch) -> tuple[NDArray[np.int64], ...]:
        items, is_there = sequence_of(batch, SLOTS[0], self.longest)
        kinds, _ = sequence_of(batch, SLOTS[1], self.longest)
        target, _ = sequence_of(batch, SLOTS[2], 1)
        kind, _ = sequence_of(batch, SLOTS[3], 1)
        return items, kinds, target, kind, is_there
