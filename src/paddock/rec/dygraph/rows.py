"""An nn.Embedding whose rows are on the servers: the layer stays, its weights go.

The user's layer object is kept, as models hold it in lists and dictionaries of their own; only
its forward is another one, and its weight is gone, so that nothing can use an old copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps import Client, SparseSpec
from paddock.ps.adapters.rows import EmbeddingTable
from paddock.ps.paddle import PADDLE
from paddock.ps.table.coerce import as_keys
from paddock.rec.models import paddle_private as private

Keys = NDArray[np.int64]
Floats = NDArray[np.float32]


class PullCache:
    """A client whose pulls of one batch are answered from what was fetched for all tables at once.

    Models look up slot by slot; without it each slot would be a round trip.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._held: dict[str, tuple[Keys, Floats]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def fetch(self, wanted: Mapping[str, Keys]) -> None:
        """Pulls distinct ascending int64 keys of several tables in place of those held before."""
        self._held = {}
        if wanted:
            found = self.client.pull_many(wanted, distinct=True)
            self._held = {table: (keys, found[table]) for table, keys in wanted.items()}

    def pull(self, table: str, keys: Keys, *, distinct: bool = True) -> Floats:
        """Rows (n, dim) of distinct ascending keys; those not held are pulled and held."""
        if table not in self._held:
            self._held[table] = keys, self.client.pull(table, keys, distinct=True)
        known, rows = self._held[table]
        at = np.minimum(np.searchsorted(known, keys), max(len(known) - 1, 0))
        lacks = keys[known[at] != keys] if len(known) else keys
        if len(lacks):
            every = np.concatenate([known, lacks])
            order = np.argsort(every)
            rows = np.concatenate([rows, self.client.pull(table, lacks, distinct=True)])[order]
            known = every[order]
            self._held[table] = known, rows
            at = np.searchsorted(known, keys)
        found: Floats = rows[at]
        return found


class ServerEmbedding:
    """A table on the servers: the layers that look up in it, and what its weight was.

    asked: the ids of each look-up of this batch, while `is_watched`.
    """

    def __init__(
        self, client: PullCache, spec: SparseSpec, rows: int, name: str, keys: list[str]
    ) -> None:
        self.rows = EmbeddingTable(client, spec, at_once=False)  # type: ignore[arg-type]  # it is one
        self.count, self.name, self.state_keys = rows, name, keys
        self.is_watched = True
        self.asked: list[Keys] = []
        self.batches = 0  # that had a gradient of it

    def take_over(self, layer: paddle.nn.Embedding) -> None:
        """Have this layer look up here."""
        del private.own_parameters(layer)["weight"]
        layer.forward = partial(self._forward, private.padding_of(layer))

    def _forward(self, padding: int | None, x: Any) -> Any:
        ids = as_keys(self.rows.table, PADDLE.array(x)).reshape(-1)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.count:
            wrong = ids[(ids < 0) | (ids >= self.count)]
            raise PaddockError(
                f"embedding {self.name!r} has {self.count} rows, an id is {wrong[0]}",
                hint="the reader's ids, or hyper_parameters that give the size",
                exit_code=2,
            )
        if self.is_watched:
            self.asked.append(ids)
        found = self.rows.look_up(ids, None)
        take = partial(self.rows.receive, found)
        # Also of a layer in eval(): Paddle's gradients do not ask for that.
        leaf = PADDLE.leaf(found.rows, x, True, take)
        out = PADDLE.spread(leaf, found.inverse, x.shape, None, "none", None)
        if padding is None or padding < 0 or not (ids == padding).any():
            return out
        # Zeros; but as alone the row has its gradient, which counts where norms are clipped.
        padded = paddle.to_tensor((ids == padding).astype(np.float32).reshape([*x.shape, 1]))
        return out - (out * padded).detach()


class IdPredictor:
    """Which part of a batch has the ids of which table, learned from the first batch.

    A look-up is of several parts together where they have its ids and no others, else of the
    smallest part that has them all. What is computed within the model is of none, and is pulled
    where it is looked up.
    """

    def __init__(self) -> None:
        self._parts: dict[str, set[int]] | None = None

    @property
    def is_known(self) -> bool:
        """A batch was seen."""
        return self._parts is not None

    def learn(self, batch: Any, asked: Mapping[str, list[Keys]]) -> None:
        """Compare a batch with the int64 ids that its tables were asked for."""
        parts = {at: np.unique(ids) for at, ids in enumerate(_leaves(batch)) if ids is not None}
        self._parts = {}
        for table, lookups in asked.items():
            for ids in lookups:
                self._parts.setdefault(table, set()).update(_parts_of(ids, parts))

    def keys(self, batch: Any, counts: Mapping[str, int]) -> dict[str, Keys]:
        """Distinct ascending int64 ids of each table in a batch, those known; below its count."""
        leaves, found = list(_leaves(batch)) if self._parts else [], dict[str, Keys]()
        for table, places in (self._parts or {}).items():
            if not places:
                continue
            pieces = [leaves[at] for at in sorted(places) if at < len(leaves)]
            if ids := [one for one in pieces if one is not None]:
                keys = np.unique(np.concatenate(ids))
                found[table] = keys[(keys >= 0) & (keys < counts[table])]
        return found


def _parts_of(ids: Keys, parts: Mapping[int, Keys]) -> list[int]:
    """Which parts a look-up's ids are of."""
    within = [at for at, part in parts.items() if len(part) and np.isin(part, ids).all()]
    if within and np.isin(ids, np.concatenate([parts[at] for at in within])).all():
        return within
    whole = [at for at, part in parts.items() if np.isin(ids, part).all()]
    return [min(whole, key=lambda at: len(parts[at]))] if whole else []


def _leaves(batch: Any) -> list[Keys | None]:
    """The ids of each tensor of a batch, in order; None of one that has floats."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return [leaf for one in batch for leaf in _leaves(one)]
    if not isinstance(batch, (paddle.Tensor, np.ndarray)):
        return [None]
    array = np.asarray(batch)
    # Some readers have ids among floats, or ids as floats.
    is_whole = array.dtype.kind == "f" and bool((array == np.floor(array)).all())
    return [array.reshape(-1).astype(np.int64) if is_whole or array.dtype.kind in "iu" else None]
