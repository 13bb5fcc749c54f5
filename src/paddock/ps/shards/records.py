"""The records by which a shard changes hands, and a table's shards: ownership.py, carried out.

The table's lock is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paddock.ps.server.log_record import DELTA, LAST, TableRecord
from paddock.ps.shards.ownership import IncomingShard
from paddock.ps.spec import DenseSpec
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable
from paddock.ps.wire.errors import RequestError

if TYPE_CHECKING:
    from paddock.ps.server.serve import Server
    from paddock.ps.server.store import Store
    from paddock.ps.server.tables import ServerTable


# ------------------------------------------------------------------------------------------ shards


def dense_shards(spec: DenseSpec, start: int, stop: int) -> NDArray[np.int64]:
    """The shards that have some of the elements [start, stop), (n,) int64."""
    found = [
        shard
        for shard in range(spec.shards)
        if max(start, (own := spec.range(shard))[0]) < min(stop, own[1])
    ]
    return np.array(found, np.int64)


def place(held: ServerTable, shard: int) -> None:
    """Make room for a shard that is to be loaded."""
    table = held.table
    if isinstance(table, DenseTable) and shard not in table.shards:
        table.add_shard(shard)


def fit(held: ServerTable) -> None:
    """Give the table the shards that are owned, and no others."""
    table, owned = held.table, held.ownership.owned
    if isinstance(table, SparseTable):
        table.owned = len(owned)
        return
    for shard in owned:
        place(held, shard)
    for shard in table.shards:
        if shard not in owned:
            table.drop_shard(shard)


# ----------------------------------------------------------------------------------------- records


class MoveRecord(TableRecord):
    """MOVE: a shard is another server's from now on. JSON {"shard", "to", "version"}."""

    from_clients = False

    @property
    def shard(self) -> int:
        """The shard's number. Raises KeyError, TypeError, ValueError or OverflowError."""
        return int(self.data["shard"])

    @property
    def version(self) -> int:
        """The version of the attempt. Raises as `shard` does."""
        return int(self.data["version"])

    def check(self, store: Store) -> None:
        try:
            if not self.is_done(store):
                self.check_order(store.find(self.header.table))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RequestError(
                "usage", f"an order to move a shard is not whole: {error}"
            ) from error

    def check_order(self, held: ServerTable) -> None:
        """Raises RequestError when it cannot be applied to the table, or as `shard` does."""
        held.ownership.check_give(self.shard, self.version)

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.offsets.lose_count()

    def apply(self, store: Store, lsn: int) -> None:
        held = store.find(self.header.table)
        held.ownership.give(self.shard, int(self.data["to"]), self.version)
        held.table.drop_shard(self.shard)
        _count_shards(held)


class AdoptRecord(MoveRecord):
    """ADOPT: what came of a shard is this server's from now on, or it is forgotten.

    JSON {"shard", "version", "own", "step"}.
    """

    from_clients = True

    def check(self, store: Store) -> None:
        # A part of a shard that comes is held twice for a moment.
        limit = store.memory_limit_bytes
        if limit and store.nbytes + 2 * len(self.body) > limit:
            raise store.is_full("it cannot take another shard", "or move the shard elsewhere")
        super().check(store)

    def is_done(self, store: Store) -> bool:
        shard, version = self.shard, self.version
        ownership = store.find(self.header.table).ownership
        if self.data["own"]:
            return ownership.was_owned(shard, version)
        return shard not in ownership.incoming or ownership.incoming[shard].version != version

    def check_order(self, held: ServerTable) -> None:
        if not self.data["own"]:
            return
        int(self.data["step"])
        one = held.ownership.incoming.get(self.shard)
        if one is None or one.version != self.version or not one.is_whole:
            raise RequestError("deadline", f"shard {self.shard} is not here as a whole")
        for arrays in one.decode():
            held.table.check_state(self.shard, arrays)

    def apply(self, store: Store, lsn: int) -> None:
        held, shard = store.find(self.header.table), self.shard
        if not self.data["own"]:
            held.ownership.forget(shard)
            return
        if not held.ownership.owned:  # No push has been counted here; the giver's have.
            held.step = max(held.step, int(self.data["step"]))
        arrival = held.ownership.own(shard, self.version)
        place(held, shard)
        for number, arrays in enumerate(arrival.decode()):
            if isinstance(held.table, SparseTable):
                # To deltas and replicas every row changes now, and some may be gone.
                arrays["version"] = np.full(len(arrays["keys"]), lsn, np.int64)
                arrays["rewritten"] = np.array([lsn], np.int64)
                held.table.load_shard(shard, arrays, merge=number > 0)
            else:
                held.table.load_shard(shard, arrays)
        _count_shards(held)

    def after_write(self, server: Server) -> None:
        if self.header.flags & LAST:
            server.engine.make_durable()  # The giver goes on as if it could not be lost.


class PartRecord(AdoptRecord):
    """ADOPT with a count: a part of a shard that comes. int32 shard, int32 giver, bytes."""

    @property
    def shard(self) -> int:
        return int.from_bytes(self.body[:4], "little")

    def check(self, store: Store) -> None:
        giver = self._giver
        if giver == store.server or giver >= store.servers:
            raise RequestError("usage", f"server {giver} is not another one of {store.servers}")
        super().check(store)

    @property
    def _giver(self) -> int:
        return int.from_bytes(self.body[4:8], "little")

    def is_done(self, store: Store) -> bool:
        ownership = store.find(self.header.table).ownership
        return ownership.has_part(self.shard, self.header.step, self.header.part)

    def check_order(self, held: ServerTable) -> None:
        held.ownership.check_part(self.shard, self.header.step, self.header.part)

    def apply_meta(self, store: Store, lsn: int) -> None:
        """Frames of trainers are cut as before until the shard is owned."""

    def apply(self, store: Store, lsn: int) -> None:
        ownership, flags = store.find(self.header.table).ownership, self.header.flags
        one, adds, ends = IncomingShard(self.header.step, self._giver), flags & DELTA, flags & LAST
        ownership.receive(self.shard, one, bytes(self.body[8:]), adds=bool(adds), ends=bool(ends))


def _count_shards(held: ServerTable) -> None:
    if isinstance(held.table, SparseTable):
        held.table.owned = len(held.ownership.owned)
