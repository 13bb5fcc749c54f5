"""The records by which a shard changes hands, and a table's shards: ownership.py, carried out.

The table's lock is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paddock.ps.server.bodies import Body, json_part
from paddock.ps.shards.ownership import IncomingShard
from paddock.ps.spec import DenseSpec
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op

if TYPE_CHECKING:
    from paddock.ps.server.tables import ServerTable

DELTA, LAST = int(FrameFlag.DELTA), int(FrameFlag.LAST)


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


def part_of(body: Body) -> tuple[int, int, memoryview]:
    """(shard, giver, data) of a part."""
    view = memoryview(body)
    return int.from_bytes(view[:4], "little"), int.from_bytes(view[4:8], "little"), view[8:]


def is_done(held: ServerTable, header: Header, body: Body) -> bool:
    """True when a MOVE or ADOPT has been carried out before."""
    ownership = held.ownership
    if header.op == Op.ADOPT and header.count:
        return ownership.has_part(part_of(body)[0], header.step, header.part)
    order = json_part(body)
    shard, version = int(order["shard"]), int(order["version"])
    if header.op == Op.MOVE:
        return False
    if order["own"]:
        return ownership.was_owned(shard, version)
    return shard not in ownership.incoming or ownership.incoming[shard].version != version


def check(held: ServerTable, header: Header, body: Body) -> None:
    """Raises RequestError when a MOVE or ADOPT cannot be carried out."""
    try:
        if is_done(held, header, body):
            return
        if header.op == Op.ADOPT and header.count:
            held.ownership.check_part(part_of(body)[0], header.step, header.part)
            return
        order = json_part(body)
        shard, version = int(order["shard"]), int(order["version"])
        if header.op == Op.MOVE:
            held.ownership.check_give(shard, version)
        elif order["own"]:
            int(order["step"])
            _check_own(held, shard, version)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise RequestError("usage", f"an order to move a shard is not whole: {error}") from error


def _check_own(held: ServerTable, shard: int, version: int) -> None:
    one = held.ownership.incoming.get(shard)
    if one is None or one.version != version or not one.is_whole:
        raise RequestError("deadline", f"shard {shard} is not here as a whole")
    for arrays in one.decode():
        held.table.check_state(shard, arrays)


def apply(held: ServerTable, lsn: int, header: Header, body: Body) -> None:
    """Carry out a MOVE or ADOPT."""
    ownership = held.ownership
    if header.op == Op.ADOPT and header.count:
        shard, source, data = part_of(body)
        adds, ends = bool(header.flags & DELTA), bool(header.flags & LAST)
        ownership.receive(
            shard, IncomingShard(header.step, source), bytes(data), adds=adds, ends=ends
        )
        return
    order = json_part(body)
    shard, version = int(order["shard"]), int(order["version"])
    if header.op == Op.MOVE:
        ownership.give(shard, int(order["to"]), version)
        held.table.drop_shard(shard)
    elif order["own"]:
        if not ownership.owned:  # No push has been counted here; the giver's have.
            held.step = max(held.step, int(order["step"]))
        _load(held, shard, ownership.own(shard, version), lsn)
    else:
        del ownership.incoming[shard]
    if isinstance(held.table, SparseTable):
        held.table.owned = len(ownership.owned)


def _load(held: ServerTable, shard: int, arrival: IncomingShard, lsn: int) -> None:
    place(held, shard)
    for number, arrays in enumerate(arrival.decode()):
        if isinstance(held.table, SparseTable):
            # To deltas and replicas every row changes now, and some may be gone.
            arrays["version"] = np.full(len(arrays["keys"]), lsn, np.int64)
            arrays["rewritten"] = np.array([lsn], np.int64)
            held.table.load_shard(shard, arrays, merge=number > 0)
        else:
            held.table.load_shard(shard, arrays)


def check_load(held: ServerTable) -> None:
    """Raises RequestError while a shard is on its way: a checkpoint would miss it."""
    if not held.ownership.is_idle:
        raise RequestError(
            "usage",
            f"a shard of table {held.spec.name!r} is on its way between servers",
            hint="load again; if it lasts, is a server down? paddock ps status",
        )
