"""An embedding whose rows live on the servers: what torch and Paddle share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import (
    Scheduler,
    TableClient,
    as_sparse_spec,
    bags_of,
    check_offsets,
    check_pooling,
)
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.rows import EmbeddingTable, Lookup
from paddock.ps.spec import OptimizerSpec, SparseSpec


class EmbeddingBase:
    """Rows of a sparse table by int64 id, any id; with gradients that go back to the table.

    pooling "none": ids of any shape give (*shape, dim). "sum" and "mean": ids of shape (bags,
    length) give (bags, dim); so do flat ids with `offsets`, and a list of one id tensor per bag;
    an empty bag gives zeros.

    push_in_backward: each look-up's gradient is pushed as soon as backward() has it. False: they
    wait for push(), which sends them as one, and Trainer does that. In eval mode, or without
    gradients (no_grad), rows are looked up and nothing is ever pushed.
    """

    framework: Framework
    training: bool  # Of every module.

    def __init__(
        self,
        client: TableClient,
        table: str | SparseSpec,
        dim: int | None = None,
        *,
        optimizer: str | OptimizerSpec = "adagrad",
        lr: float | Scheduler | None = None,
        pooling: str = "none",
        push_in_backward: bool = True,
    ) -> None:
        super().__init__()
        spec = as_sparse_spec(table, dim, optimizer, lr)
        self.pooling = check_pooling(pooling)
        self.rows = EmbeddingTable(client, spec, at_once=push_in_backward, lr=lr)

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.rows.spec.dim

    def extra_repr(self) -> str:
        """As a model shows it."""
        spec = self.rows.spec
        return f"{spec.name!r}, {spec.dim}, {spec.optimizer.name}, pooling={self.pooling!r}"

    def forward(self, ids: Any, offsets: Any = None, *, clicks: Any = None) -> Any:
        """The rows of ids, pooled. clicks: one per id, where the table keeps statistics."""
        array_of, like, starts = self.framework.array, ids, None
        if isinstance(ids, self.framework.tensor):
            array = array_of(ids)
        else:
            if offsets is not None:
                raise UsageError("offsets beside a list of ids", hint="give one of the two")
            starts = bags_of([len(bag) for bag in ids])
            array = np.concatenate([np.zeros(0, np.int64), *map(array_of, ids)])
            like = ids[0] if ids else None
        if offsets is not None:
            starts = check_offsets(array_of(offsets), array.size)
        if starts is not None and self.pooling == "none":
            raise UsageError("offsets without pooling", hint='pooling="sum" or "mean"')
        if starts is None and self.pooling != "none" and array.ndim != 2:
            raise UsageError(
                f"pooling {self.pooling!r} of ids of shape {array.shape}",
                hint="shape (bags, length), or flat ids with offsets, or a list of tensors",
            )
        found = self.rows.look_up(array, None if clicks is None else array_of(clicks).reshape(-1))
        rows = self.leaf(found, like)
        return self.framework.spread(rows, found.inverse, array.shape, starts, self.pooling)

    def leaf(self, found: Lookup, like: Any) -> Any:
        """The rows as the leaf of a graph, on the device of `like`; its gradient is received."""
        take = partial(self.rows.receive, found)
        return self.framework.leaf(found.rows, like, self.training, take)

    def prefetch(self, ids: Any) -> None:
        """Asks for the rows of a later batch now, so that they travel while this one computes."""
        self.rows.client.prefetch(self.rows.table, self.framework.array(ids).reshape(-1))

    def push(self) -> int:
        """Sends the gradients that wait. Returns of how many look-ups."""
        return self.rows.push()
