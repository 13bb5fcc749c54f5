"""The rows of one table as an adapter uses them: distinct keys up, one gradient a batch down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import Floats, Keys, Scheduler, TableClient
from paddock.ps.adapters.freshness import IDLE
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.spec import SparseSpec, TableSpec
from paddock.ps.table.coerce import as_keys
from paddock.ps.table.contributions import SparseGradients, added_up
from paddock.ps.table.finite import check_finite
from paddock.ps.table.sharding import unique

# Rows asked for at once, of a table pulled as a whole.
BLOCK_ROWS = 1 << 16


class DeclaredTable:
    """A table that this trainer declares, and its learning rate where a scheduler drives it."""

    def __init__(
        self, client: TableClient, spec: TableSpec, lr: float | Scheduler | None = None
    ) -> None:
        self.client = client
        self.spec = spec
        self.table = spec.name
        # Given the rate that was told last (None: none yet), the rate; None for that of the spec.
        self.rate: Callable[[Rate | None], Rate | None] | None = None
        self._sent: Rate | None = None
        if callable(lr):
            self.rate = lambda _: Rate(float(lr()))
        client.create(spec)

    def refresh(self) -> None:
        """The servers may have loaded another rate: it is told again with the next push."""
        self._sent = None

    def send_rate(self) -> None:
        """To be called before a push, whose rate it is; the servers are told when it changed."""
        rate = self.rate(self._sent) if self.rate is not None else None
        if rate is not None and rate != self._sent:
            self.client.set_lr(self.table, *rate)
            self._sent = rate


@dataclass(frozen=True, slots=True)
class Lookup:
    """A look-up of ids: rows[inverse] are the rows of the ids, in the ids' order.

    keys: (distinct,) int64. inverse: (ids,) int32. rows: (distinct, dim) float32, owned by the
    caller. shows, clicks: (distinct,) float32, of tables with statistics.
    """

    keys: Keys
    inverse: NDArray[np.int32]
    rows: Floats
    shows: Floats | None = None
    clicks: Floats | None = None


class EmbeddingTable(DeclaredTable):
    """The rows of one table as an adapter uses them: looked up by id, gradients gathered.

    Gradients of several look-ups are sent as one push, so that one batch is one step of the
    optimizer, unless at_once is set: then each is sent when it is there.
    """

    spec: SparseSpec

    def __init__(
        self,
        client: TableClient,
        spec: SparseSpec,
        *,
        at_once: bool,
        lr: float | Scheduler | None = None,
    ) -> None:
        super().__init__(client, spec, lr)
        self.at_once = at_once
        self.freshness = IDLE  # of the dense values that are used with the rows
        client.watch(self)
        self._pieces: list[SparseGradients] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> EmbeddingTable:
        """The same table through the same client, with no gradients of its own yet."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, freshness=IDLE)
        twin.forget()
        return twin

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"table {self.table!r} cannot be pickled: its rows are on the servers",
            hint="save model.state_dict() for the dense parameters, client.save() for all; in "
            "another process make the model anew, with a client of its own",
        )

    def look_up(
        self, ids: NDArray[Any], clicks: NDArray[Any] | None, *, learns: bool = True
    ) -> Lookup:
        """Pulls each distinct id once. clicks: (ids,), or one for all; for tables with statistics.

        learns: a gradient of these rows is pushed later, which counts their shows and clicks. An
        evaluation, whose labels may be unknown, needs no clicks.
        """
        name = self.table
        keys, inverse = unique(as_keys(name, ids))
        rows = self.client.pull(name, keys, distinct=True)
        self.freshness.after_rows()
        if not self.spec.accessor.statistics:
            if clicks is not None:
                raise UsageError(
                    f"table {name!r} keeps no statistics, but clicks were given",
                    hint="declare it with AccessorSpec(statistics=True)",
                )
            return Lookup(keys, inverse, rows)
        if clicks is None and not learns:
            return Lookup(keys, inverse, rows)
        if clicks is None:
            raise UsageError(
                f"table {name!r} keeps statistics, but no clicks were given",
                hint="embedding(ids, clicks=labels); none are needed in eval mode or no_grad",
            )
        shows = np.bincount(inverse, minlength=len(keys)).astype(np.float32)
        flat = self.check_clicks(clicks, inverse.size)
        sums = np.bincount(inverse, weights=flat, minlength=len(keys)).astype(np.float32)
        return Lookup(keys, inverse, rows, shows, sums)

    def check_clicks(self, clicks: NDArray[Any], ids: int) -> NDArray[Any]:
        """The clicks, (ids,); of a single number that many. Raises UsageError for others."""
        if clicks.size not in (1, ids):
            raise UsageError(
                f"table {self.table!r}: {clicks.size} clicks of {ids} ids",
                hint="a number for each id: of an example's label repeat it for its ids",
            )
        return np.broadcast_to(clicks.reshape(-1), (ids,))

    def receive(self, found: Lookup, grads: Floats) -> None:
        """Takes the gradient of a look-up's rows, (distinct, dim) float32."""
        self._pieces.append(SparseGradients(found.keys, grads, found.shows, found.clicks))
        if self.at_once:
            self.push()

    def combine(self) -> None:
        """Makes one gradient of those that wait. Raises RequestError when it is not finite."""
        if self._pieces:
            one = _merged(self._pieces)
            self._pieces = [one]
            check_finite(self.table, one.rows, one.keys)

    @property
    def held(self) -> list[Floats]:
        """The gradients, (n, dim) float32 each, that wait to be pushed; may be changed before."""
        return [piece.rows for piece in self._pieces]

    def waiting(self) -> Floats | None:
        """The gradient that waits, (distinct ids, dim) float32; what changes it changes the push.

        It may hold NaN or infinity. None where none waits.
        """
        if not self._pieces:
            return None
        self._pieces = [_merged(self._pieces)]
        return self._pieces[0].rows

    def push(self) -> int:
        """Sends what was received since the last push. Returns how many look-ups that were."""
        pieces = self._pieces
        waiting = self.forget()
        if pieces:
            one = _merged(pieces)
            self.send_rate()
            self.client.push(
                self.table, one.keys, one.rows, shows=one.shows, clicks=one.clicks, distinct=True
            )
        return waiting

    def forget(self) -> int:
        """Drops the gradients not pushed yet (a batch to be left out). Returns how many."""
        waiting, self._pieces = len(self._pieces), []
        return waiting


def set_all_rows(client: TableClient, table: str, weights: Floats) -> None:
    """The rows of ids from 0 on become these, (n, dim) float32, a block at a time."""
    for start in range(0, len(weights), BLOCK_ROWS):
        part = weights[start : start + BLOCK_ROWS]
        client.set(table, np.arange(start, start + len(part)), part)


def pull_all_rows(client: TableClient, spec: SparseSpec, rows: int) -> Floats:
    """The rows of ids from 0 on, (rows, dim) float32, pulled a block at a time."""
    out = np.empty((rows, spec.dim), np.float32)
    for start in range(0, rows, BLOCK_ROWS):
        ids = np.arange(start, min(start + BLOCK_ROWS, rows))
        out[start : start + len(ids)] = client.pull(spec.name, ids)
    return out


def _merged(pieces: list[SparseGradients]) -> SparseGradients:
    return pieces[0] if len(pieces) == 1 else added_up(pieces)
