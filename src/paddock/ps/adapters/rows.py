"""The rows of one table as an adapter uses them: distinct keys up, one gradient a batch down."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.adapters.given import Floats, Keys, Scheduler, TableClient, as_keys, rate_of
from paddock.ps.spec import SparseSpec
from paddock.ps.table.finite import check_finite
from paddock.ps.table.sharding import sum_by, unique


@dataclass(frozen=True, slots=True)
class Lookup:
    """One look-up of ids: rows[inverse] are the rows of the ids, in the ids' order.

    keys: (distinct,) int64. inverse: (ids,) int32. rows: (distinct, dim) float32, owned by the
    caller. shows, clicks: (distinct,) float32, of tables with statistics.
    """

    keys: Keys
    inverse: NDArray[np.int32]
    rows: Floats
    shows: Floats | None = None
    clicks: Floats | None = None


@dataclass(frozen=True, slots=True)
class Gradient:
    """What one look-up has to tell the table. grads: (distinct, dim) float32."""

    keys: Keys
    grads: Floats
    shows: Floats | None = None
    clicks: Floats | None = None


class Rows:
    """The rows of one table as an adapter uses them: looked up by id, gradients gathered.

    Gradients of several look-ups are sent as one push, so that one batch is one step of the
    optimizer, unless at_once is set: then each is sent when it is there.
    """

    def __init__(
        self,
        client: TableClient,
        spec: SparseSpec,
        *,
        at_once: bool,
        lr: float | Scheduler | None = None,
    ) -> None:
        self.client = client
        self.spec = spec
        self.table = spec.name
        self.at_once = at_once
        self._gradients: list[Gradient] = []
        self._waiting = 0
        self.rate = rate_of(client, spec.name, lr)
        client.create(spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        """The same table through the same client, with no gradients of its own yet."""
        twin = copy.copy(self)
        twin.forget()
        return twin

    def __str__(self) -> str:
        """As a layer shows it."""
        return f"{self.spec.name!r}, {self.spec.dim}, {self.spec.optimizer.name}"

    @property
    def waiting(self) -> int:
        """How many look-ups have a gradient that is not pushed yet."""
        return self._waiting

    def look_up(self, ids: NDArray[Any], clicks: NDArray[Any] | None) -> Lookup:
        """Pulls each distinct id once. clicks: (ids,), for tables with statistics."""
        name = self.spec.name
        keys, inverse = unique(as_keys(name, ids))
        rows = self.client.pull(name, keys)
        if not self.spec.accessor.statistics:
            if clicks is not None:
                raise UsageError(
                    f"table {name!r} keeps no statistics, but clicks were given",
                    hint="declare it with AccessorSpec(statistics=True)",
                )
            return Lookup(keys, inverse, rows)
        if clicks is None:
            raise UsageError(
                f"table {name!r} keeps statistics, but no clicks were given",
                hint="embedding(ids, clicks=labels)",
            )
        shows = np.bincount(inverse, minlength=len(keys)).astype(np.float32)
        flat = np.broadcast_to(clicks, inverse.shape)
        sums = np.bincount(inverse, weights=flat, minlength=len(keys)).astype(np.float32)
        return Lookup(keys, inverse, rows, shows, sums)

    def receive(self, gradient: Gradient) -> None:
        """Takes the gradient of a look-up's rows."""
        self._gradients.append(gradient)
        self._waiting += 1
        if self.at_once:
            self.push()

    def gather(self) -> None:
        """Makes one gradient of those that wait. Raises Refusal when it is not finite."""
        if self._gradients:
            one = _merged(self._gradients)
            self._gradients = [one]
            check_finite(self.spec.name, one.grads, one.keys)

    def push(self) -> int:
        """Sends what was received since the last push. Returns how many look-ups that were."""
        gradients, waiting = self._gradients, self.forget()
        if gradients:
            one = _merged(gradients)
            if self.rate is not None:
                self.rate.send()
            self.client.push(
                self.spec.name, one.keys, one.grads, shows=one.shows, clicks=one.clicks
            )
        return waiting

    def forget(self) -> int:
        """Drops the gradients not pushed yet (a batch to be left out). Returns how many."""
        waiting, self._gradients, self._waiting = self._waiting, [], 0
        return waiting


def _merged(gradients: list[Gradient]) -> Gradient:
    if len(gradients) == 1:
        return gradients[0]
    keys, inverse = unique(np.concatenate([g.keys for g in gradients]))
    grads = sum_by(inverse, len(keys), np.concatenate([g.grads for g in gradients]))
    if gradients[0].shows is None:
        return Gradient(keys, grads)
    sums = [
        np.bincount(inverse, np.concatenate(parts), len(keys)).astype(np.float32)
        for parts in (
            [g.shows for g in gradients if g.shows is not None],
            [g.clicks for g in gradients if g.clicks is not None],
        )
    ]
    return Gradient(keys, grads, *sums)
