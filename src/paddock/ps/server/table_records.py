"""The records of one table: it is made, pushed to, set, shrunk, or given a learning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.server.log_record import (
    CONTRIBUTION,
    DELTA,
    LAST,
    STATISTICS,
    LogRecord,
    TableRecord,
)
from paddock.ps.server.tables import ServerDenseTable, ServerSparseTable
from paddock.ps.shards.records import dense_shards
from paddock.ps.spec import DenseSpec, differences, from_json
from paddock.ps.table.contributions import DenseGradients, SparseGradients
from paddock.ps.table.finite import check_finite
from paddock.ps.table.memory import machine_bytes
from paddock.ps.table.sharding import deal, shard_of
from paddock.ps.wire.errors import RequestError

if TYPE_CHECKING:
    from paddock.ps.server.store import Store


class CreateRecord(LogRecord):
    """CREATE: a table is declared; each trainer does it."""

    def check(self, store: Store) -> None:
        try:
            spec = from_json(self.data)
            Updater(spec.optimizer, 1)
        except (ValueError, PaddockError) as error:
            raise RequestError(
                "usage", getattr(error, "message", str(error)), hint=getattr(error, "hint", "")
            ) from error
        here = store.by_name.get(spec.name)
        if here is None and isinstance(spec, DenseSpec):
            _check_room_for_dense(store, spec)
        if here is not None and here.spec != spec:
            raise RequestError(
                "spec",
                f"table {spec.name!r} was declared otherwise: "
                + ", ".join(f"{n} is {a}, asked {b}" for n, a, b in differences(here.spec, spec)),
                hint="every trainer must declare a table in the same way; "
                "or these servers still hold an earlier run: restart them without its --data-dir",
            )

    def is_done(self, store: Store) -> bool:
        return self.data.get("name") in store.by_name

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.add_table(from_json(self.data))

    def answer(self, store: Store) -> dict[str, Any]:
        held = store.by_name[self.data["name"]]
        # Who owns a shard is told where it is not the one who did at the start.
        owned = {"owned": list(held.owned)} if held.ownership.active else {}
        return {"table": held.number, **owned}


def _check_room_for_dense(store: Store, spec: DenseSpec) -> None:
    """A dense table takes all its memory when it is made."""
    shards = deal(spec.shards, store.servers)[store.server]
    elements = spec.starts[shards.stop] - spec.starts[shards.start]
    needed = 4 * Updater(spec.optimizer, 1).width * elements
    if store.nbytes + needed > (store.memory_limit_bytes or machine_bytes()):
        what = f"table {spec.name!r} takes {needed} bytes there"
        raise store.is_full(what, "add servers, or is its size wrong?")
    try:
        np.empty(needed, np.uint8)
    except MemoryError as error:
        raise store.gets_no_memory(f"table {spec.name!r}", error) from error


# ---------------------------------------------------------------------------- rows and elements


class SetRecord(TableRecord):
    """SET: rows of a sparse table have these values."""

    numbered = True
    _rows: tuple[ServerSparseTable, SparseGradients] | None = None

    def rows(self, store: Store) -> tuple[ServerSparseTable, SparseGradients]:
        """The table and the rows of the body, which is read once. Raises RequestError.

        The body: keys int64[count], rows float32[count, dim], and statistics when the frame has
        them. Views, but for a body that is read-only, as a log's: optimizers use rows as scratch.
        """
        if self._rows is not None:
            return self._rows
        held, count = store.find(self.header.table, ServerSparseTable), self.header.count
        dim, has_statistics = held.spec.dim, self.header.flags & STATISTICS
        wanted = count * (8 + 4 * dim) + (8 * count if has_statistics else 0)
        if len(self.body) != wanted:
            raise RequestError(
                "value",
                f"a frame of {count} rows of dim {dim} has {len(self.body)} bytes instead of "
                f"{wanted}",
                hint="do all trainers declare the table with the same dim?",
            )
        keys = np.frombuffer(self.body, np.int64, count)
        floats = np.frombuffer(self.body, np.float32, offset=8 * count)
        if not floats.flags.carray:
            floats = floats.copy()
        part = SparseGradients(keys, floats[: count * dim].reshape(count, dim))
        if has_statistics:
            tail = floats[count * dim :]
            part = part._replace(shows=tail[:count], clicks=tail[count:])
        self._rows = held, part
        return self._rows

    def check(self, store: Store) -> None:
        held, part = self.rows(store)
        if store.servers > 1:  # Else all shards are here.
            held.ownership.check_push(self.header, shard_of(part.keys, held.spec.shards))
        for column in part[1:]:
            if column is not None:
                check_finite(held.spec.name, column, part.keys)
        if self.header.flags & STATISTICS and not held.spec.accessor.statistics:
            raise RequestError(
                "usage",
                f"table {held.spec.name!r} keeps no statistics, but shows or clicks were pushed",
                hint="AccessorSpec(statistics=True)",
            )
        count, table = len(part.keys), held.table
        table.spare_rows -= count
        if table.spare_rows < 0 or not store.has_bytes(count * table.row_bytes):
            with held.lock.rows:  # So what was logged before is carried out.
                _check_room(store, held, part.keys)
        self.check_contribution(store, held, len(self.body))
        if table.spare_rows < 0:
            with held.lock.rows:
                self.reserve(store)
                left = min(table.rows_left, table.arrays_left)
                table.spare_rows = left - held.rows_pending - count

    def reserve(self, store: Store) -> None:
        """Raises RequestError when there is no memory for the rows. Nothing else is being applied.

        A contribution needs its memory when its step is done.
        """
        held, (keys, *_) = self.rows(store)
        held.table.spare_rows = 0
        if len(keys) + held.rows_pending <= held.table.arrays_left:
            return
        try:
            pending = np.concatenate([keys, *held.contributions.keys()])
            held.table.reserve(pending, 3 * held.contributions.nbytes)
        except MemoryError as error:
            what = f"more rows of table {held.spec.name!r}"
            hint = ", or use max_rows with eviction='lru'"
            raise store.gets_no_memory(what, error, hint) from error

    def apply(self, store: Store, lsn: int) -> None:
        held, part = self.rows(store)
        held.table.set(part.keys, part.rows, now=int(self.header.stamp), lsn=lsn)


def _check_room(store: Store, held: ServerSparseTable, keys: NDArray[np.int64]) -> None:
    """Raises RequestError when keys, (n,) int64, do not fit. Nothing else is being applied."""
    name, table = held.spec.name, held.table
    if not table.has_room(keys):
        part = table.rows_max
        share = "" if part == held.spec.max_rows else f" in all, {part} of them here"
        raise RequestError(
            "memory",
            f"table {name!r} has {table.rows} rows on server {store.server}, max_rows is "
            f"{held.spec.max_rows}{share}: there is no room for {table.unknown(keys)} more",
            hint="raise max_rows, or let it evict: eviction='lru'",
        )
    left = max(0, store.memory_limit_bytes - store.nbytes)
    is_wide = store.has_bytes(len(keys) * table.row_bytes)
    if not is_wide and not table.has_room(keys, bytes_left=left):
        what = f"no row can be added to table {name!r}"
        raise store.is_full(what, "add servers, or use max_rows with eviction='lru'")


class SetDenseRecord(TableRecord):
    """SET_DENSE: elements of a dense table have these values."""

    numbered = True
    _elements: tuple[ServerDenseTable, DenseGradients] | None = None

    def elements(self, store: Store) -> tuple[ServerDenseTable, DenseGradients]:
        """The table and the elements of the body, which is read once. Raises RequestError."""
        if self._elements is None:
            held = store.find(self.header.table, ServerDenseTable)
            count, size = self.header.count, len(self.body)
            if size != 8 + 4 * count:
                raise RequestError("value", f"a frame of {count} elements has {size} bytes")
            values = np.frombuffer(self.body, np.float32, offset=8)
            if not values.flags.carray:
                values = values.copy()
            start = int.from_bytes(self.body[:8], "little")
            self._elements = held, DenseGradients(start, values)
        return self._elements

    def check(self, store: Store) -> None:
        held, part = self.elements(store)
        start, stop = part.start, part.stop
        if held.ownership.active:
            held.ownership.check_push(self.header, dense_shards(held.spec, start, stop))
        check_finite(held.spec.name, part.grads, None)
        if not held.table.holds_whole(start, stop):
            raise RequestError(
                "value",
                f"table {held.spec.name!r}: elements {start} to {stop} are no whole shards of "
                f"server {store.server}",
            )
        self.check_contribution(store, held, len(self.body))

    def apply(self, store: Store, lsn: int) -> None:
        held, part = self.elements(store)
        held.table.set(*part)


class _Push(TableRecord):
    """A push; in sync a contribution to a step. lr: of its update, fixed when it is logged."""

    overlapping = True
    lr = Rate(0.0)

    def apply_meta(self, store: Store, lsn: int) -> None:
        header = self.header
        if not header.flags & CONTRIBUTION:
            held = store.tables[header.table]
            store.offsets.count(header.trainer, header.step)
            self.lr = held.rates.at(held.spec.optimizer, held.step)
            held.step += bool(header.flags & LAST)


class PushRecord(_Push, SetRecord):
    """PUSH: gradients of rows of a sparse table, or (DELTA) what is added to them."""

    def apply(self, store: Store, lsn: int) -> None:
        held, part = self.rows(store)
        header, flags, now = self.header, self.header.flags, int(self.header.stamp)
        if flags & CONTRIBUTION:
            member = header.trainer, header.incarnation
            held.contributions.add(header.step, member, header.part, part)
        elif flags & DELTA:
            held.table.add(part.keys, part.rows, now=now, lsn=lsn)
        else:
            keys, rows, shows, clicks = part
            held.table.push(keys, rows, lr=self.lr, now=now, lsn=lsn, shows=shows, clicks=clicks)


class PushDenseRecord(_Push, SetDenseRecord):
    """PUSH_DENSE: gradients of elements of a dense table, or (DELTA) what is added to them."""

    def apply(self, store: Store, lsn: int) -> None:
        held, part = self.elements(store)
        header = self.header
        if header.flags & CONTRIBUTION:
            member = header.trainer, header.incarnation
            held.contributions.add(header.step, member, header.part, part)
        elif header.flags & DELTA:
            held.table.add(*part)
        else:
            held.table.push(*part, lr=self.lr)


class RateRecord(TableRecord):
    """RATE: the table's learning rate; a contribution: from `step` on."""

    numbered = True

    def check(self, store: Store) -> None:
        lr, correction = self.data.get("lr"), self.data.get("correction")
        if not isinstance(lr, float) or not math.isfinite(lr) or lr < 0.0:
            raise RequestError("value", f"the learning rate is {lr!r}", hint="a number, 0 or more")
        if not isinstance(correction, float) or not 0.0 < correction <= 1.0:
            raise RequestError(
                "value", f"the correction of a rate is {correction!r}", hint="above 0, at most 1"
            )
        self.check_contribution(store, store.find(self.header.table), 0)

    def apply_meta(self, store: Store, lsn: int) -> None:
        header, rates = self.header, store.tables[self.header.table].rates
        rate = Rate(self.data["lr"], self.data["correction"])
        if not header.flags & CONTRIBUTION:
            rates.set(rate)
        elif header.step > store.committed:
            member = header.trainer, header.incarnation
            rates.note(header.step, member, rate)


class ShrinkRecord(TableRecord):
    """SHRINK: rows of one shard that its accessor gives up are dropped."""

    @property
    def key(self) -> str:
        """The key of the shard in Store.rounds and Store.dropped."""
        return f"{self.header.table}.{self.data['shard']}"

    def check(self, store: Store) -> None:
        shard, held = self.data.get("shard"), store.find(self.header.table, ServerSparseTable)
        if type(shard) is not int or not 0 <= shard < held.spec.shards:
            raise RequestError("usage", f"shrink of shard {shard!r}")
        if held.ownership.active:
            held.ownership.check_push(self.header, np.array([shard]))

    def is_done(self, store: Store) -> bool:
        return bool(store.rounds.get(self.key) == self.data.get("round", ""))

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.rounds[self.key] = self.data.get("round")

    def apply(self, store: Store, lsn: int) -> None:
        table, now = store.find(self.header.table, ServerSparseTable).table, int(self.header.stamp)
        store.dropped[self.key] = table.shrink(int(self.data["shard"]), now=now, lsn=lsn)

    def answer(self, store: Store) -> dict[str, Any]:
        return {"dropped": store.dropped.get(self.key, 0)}
