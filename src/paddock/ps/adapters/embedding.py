"""An embedding whose rows live on the servers: what torch and Paddle share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import (
    POOLINGS,
    Keys,
    Scheduler,
    TableClient,
    as_sparse_spec,
    bags_of,
    check_offsets,
    check_pooling,
)
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.options import check_options, check_padding, explain, pooling_of, refuse
from paddock.ps.adapters.rows import EmbeddingTable, Lookup
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.table.coerce import as_keys, as_whole


class EmbeddingBase:
    """Rows of a sparse table by int64 id, any id; with gradients that go back to the table.

    pooling "none": ids of any shape give (*shape, dim). "sum" and "mean": ids of shape (bags,
    length) give (bags, dim); so do flat ids with `offsets`, and a list of one id tensor per bag;
    an empty bag gives zeros. mode is torch's name of it; with include_last_offset the last of the
    offsets is where the last bag ends. padding_idx: an id that stands for no id: a row of zeros
    that learns nothing, and no part of a bag.

    push_in_backward: each look-up's gradient is pushed as soon as backward() has it. False: they
    wait for push(), which sends them as one, and Trainer does that. In eval mode, or without
    gradients (no_grad), rows are looked up and nothing is ever pushed.
    """

    framework: Framework
    poolings: Sequence[str] = POOLINGS
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
        mode: str | None = None,
        padding_idx: int | None = None,
        include_last_offset: bool = False,
        push_in_backward: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(client, int):
            refuse(["num_embeddings"])
        check_options(options)
        spec = as_sparse_spec(table, dim, optimizer, lr)
        self.pooling = check_pooling(pooling_of(pooling, mode), self.poolings)
        self.padding_idx = check_padding(padding_idx)
        self.include_last_offset = include_last_offset
        self.rows = EmbeddingTable(client, spec, at_once=push_in_backward, lr=lr)

    @classmethod
    def from_pretrained(cls, *_: Any, **__: Any) -> NoReturn:
        """Refused: the rows are not here."""
        refuse(["from_pretrained"])

    def __getattr__(self, name: str) -> Any:
        """Says why where torch's embedding has it; hasattr() is False as for any other name."""
        if why := explain(name):
            raise AttributeError(why)
        return super().__getattr__(name)  # type: ignore[misc]  # The framework's module has it.

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.rows.spec.dim

    embedding_dim = dim

    @property
    def mode(self) -> str:
        """The pooling, as torch's EmbeddingBag names it."""
        return self.pooling

    def extra_repr(self) -> str:
        """As a model shows it."""
        spec = self.rows.spec
        return f"{spec.name!r}, {spec.dim}, {spec.optimizer.name}, pooling={self.pooling!r}"

    def forward(
        self, ids: Any, offsets: Any = None, per_sample_weights: Any = None, *, clicks: Any = None
    ) -> Any:
        """The rows of ids, pooled. clicks: one per id, where the table keeps statistics.

        per_sample_weights: a factor for each id, with pooling "sum"; it has a gradient, too.
        """
        self.rows.freshness.before_rows(self.rows)
        array, like, starts = self._read(ids, offsets)
        weights = per_sample_weights
        if weights is not None:
            self._check_weights(weights, array.size)
        given = None
        if clicks is not None:
            self._check_tensors("clicks are", clicks)
            given = self.rows.check_clicks(self.framework.array(clicks), array.size)
        if self.padding_idx is not None:
            return self._forward_padded(array, like, starts, weights, given)
        found = self.rows.look_up(array, given, learns=self.learns)
        rows = self.leaf(found, like)
        spread = self.framework.spread
        return spread(rows, found.inverse, array.shape, starts, self.pooling, weights)

    def _read(self, ids: Any, offsets: Any) -> tuple[NDArray[Any], Any, Keys | None]:
        """The ids, a tensor where they are, and where bags start in them if that is said."""
        array_of, like, starts = self.framework.array, ids, None
        if isinstance(ids, self.framework.tensor):
            array = as_keys(self.rows.table, array_of(ids))
        else:
            if offsets is not None:
                raise UsageError("offsets beside a list of ids", hint="give one of the two")
            self._check_tensors("ids are", *(ids if isinstance(ids, list | tuple) else [ids]))
            starts = bags_of([len(bag) for bag in ids])
            # Each by itself: joined to others, True would be an id and uint64 a float.
            bags = [as_keys(self.rows.table, array_of(bag)) for bag in ids]
            array = np.concatenate([np.zeros(0, np.int64), *bags])
            like = ids[0] if ids else None
        if offsets is not None:
            self._check_tensors("offsets are", offsets)
            whole = as_whole("offsets", array_of(offsets), "int64: where each bag starts")
            starts = self._starts(whole.reshape(-1), array.size)
        if starts is not None and self.pooling == "none":
            raise UsageError("offsets without pooling", hint='pooling="sum" or "mean"')
        if starts is None and self.pooling != "none" and array.ndim != 2:
            raise UsageError(
                f"pooling {self.pooling!r} of ids of shape {array.shape}",
                hint="shape (bags, length), or flat ids with offsets, or a list of tensors",
            )
        return array, like, starts

    def _check_tensors(self, what: str, *values: Any) -> None:
        """Refuses what has no device to give the rows: lists of numbers, numpy's arrays."""
        for value in values:
            if not isinstance(value, self.framework.tensor):
                raise UsageError(
                    f"table {self.rows.table!r}: {what} {type(value).__name__}, not a tensor",
                    hint="ids are a tensor of int64, or a list of such tensors, each a bag",
                )

    def _starts(self, offsets: NDArray[Any], ids: int) -> Keys:
        if not self.include_last_offset:
            return check_offsets(offsets, ids)
        if not offsets.size or offsets[-1] != ids:
            raise UsageError(
                f"the last of {offsets.size} offsets is not {ids}, the number of ids",
                hint="with include_last_offset=True it is where the last bag ends",
            )
        return check_offsets(offsets[:-1], ids)

    def _check_weights(self, weights: Any, ids: int) -> None:
        if self.pooling != "sum":
            raise UsageError(
                f"per_sample_weights with pooling {self.pooling!r}",
                hint='pooling="sum"; or multiply the rows of pooling="none" by them',
            )
        if math.prod(weights.shape) != ids:
            raise UsageError(
                f"per_sample_weights of shape {tuple(weights.shape)} for {ids} ids",
                hint="a factor for each id",
            )

    def _forward_padded(
        self, array: NDArray[Any], like: Any, starts: Keys | None, weights: Any, clicks: Any
    ) -> Any:
        """The padding is looked up nowhere: of a bag it is no part, else its row is of zeros."""
        flat = array.reshape(-1)
        places = np.flatnonzero(flat != self.padding_idx)
        if clicks is not None:
            clicks = clicks[places]
        found = self.rows.look_up(flat[places], clicks, learns=self.learns)
        rows, spread = self.leaf(found, like), self.framework.spread
        if self.pooling == "none":
            inverse = np.full(flat.shape, len(found.keys), found.inverse.dtype)
            inverse[places] = found.inverse
            return spread(self.framework.with_zeros(rows), inverse, array.shape, None, "none", None)
        if starts is None:
            starts = bags_of([array.shape[1]] * len(array))
        if weights is not None:
            weights = self.framework.take(weights.reshape((-1,)), places)
        starts = np.searchsorted(places, starts)  # How many ids are no padding, and before it.
        return spread(rows, found.inverse, found.inverse.shape, starts, self.pooling, weights)

    @property
    def learns(self) -> bool:
        """A look-up made now is pushed to: not in eval mode, nor under no_grad."""
        return self.training and self.framework.with_gradients()

    def leaf(self, found: Lookup, like: Any) -> Any:
        """The rows as the leaf of a graph, on the device of `like`; its gradient is received."""
        take = partial(self.rows.receive, found)
        return self.framework.leaf(found.rows, like, self.learns, take)

    def prefetch(self, ids: Any) -> None:
        """Asks for the rows of a later batch now, so that they travel while this one computes."""
        self.rows.client.prefetch(self.rows.table, self.framework.array(ids).reshape(-1))

    def push(self) -> int:
        """Sends the gradients that wait. Returns of how many look-ups."""
        return self.rows.push()
