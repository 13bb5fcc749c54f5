"""The records by which a shard changes hands, and the orders before them: moves.py, carried out.

Of a table's lock: orders take it here, records find it held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.ps.durable.arrays import Arrays
from paddock.ps.durable.snapshot import Plan
from paddock.ps.optimizers.updater import Updater
from paddock.ps.protocol.frames import Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.server.bodies import Body, json_part
from paddock.ps.spec import DenseSpec, SparseSpec, to_json
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable

if TYPE_CHECKING:
    from paddock.ps.server.held import Held

ORDERS = ("shards", "freeze", "thaw")


# ------------------------------------------------------------------------------------------ shards


def dense_shards(spec: DenseSpec, start: int, stop: int) -> NDArray[np.int64]:
    """The shards that have some of the elements [start, stop)."""
    found = [
        shard
        for shard in range(spec.shards)
        if max(start, (own := spec.range(shard))[0]) < min(stop, own[1])
    ]
    return np.array(found, np.int64)


def place(held: Held, shard: int) -> None:
    """Make room for a shard that is to be loaded."""
    table = held.table
    if isinstance(table, DenseTable) and shard not in table.shards:
        start, stop = table.spec.range(shard)
        table.add_shard(shard, Updater(table.spec.optimizer, stop - start))


def drop(held: Held, shard: int) -> None:
    """Forget a shard's content."""
    table = held.table
    if isinstance(table, SparseTable) or shard in table.shards:
        table.drop_shard(shard)


def fit(held: Held) -> None:
    """Give the table the shards that are owned, and no others."""
    table, owned = held.table, held.moves.owned
    if isinstance(table, SparseTable):
        table.owned = len(owned)
        return
    for shard in owned:
        place(held, shard)
    for shard in table.shards:
        if shard not in owned:
            table.drop_shard(shard)


def copy_of(held: Held, shard: int) -> Arrays:
    """A copy of a shard's arrays; none when it is not here any more."""
    if shard not in held.moves.owned:
        return {}
    return held.table.shard_state(shard)


# ----------------------------------------------------------------------------------------- records


def adopt_part(body: Body) -> tuple[int, bytes]:
    """(shard, data) of a part."""
    return int.from_bytes(body[:8], "little"), bytes(body[8:])


def is_done(held: Held, header: Header, body: Body) -> bool:
    """Whether a MOVE or ADOPT has been carried out before."""
    moves = held.moves
    if header.op == Op.ADOPT and header.count:
        shard, arrival = int.from_bytes(body[:8], "little"), None
        arrival = moves.arrivals.get(shard)
        is_here = (
            arrival is not None
            and arrival.version == header.step
            and header.part < len(arrival.parts)
        )
        return is_here or (shard in moves.owned and moves.adopted.get(shard) == header.step)
    order = json_part(body)
    shard, version = int(order["shard"]), int(order["version"])
    if header.op == Op.MOVE:
        return moves.given.get(shard) == (int(order["to"]), version)
    if order["own"]:
        return shard in moves.owned and moves.adopted.get(shard) == version
    held_back = moves.arrivals.get(shard)
    return held_back is None or held_back.version != version


def check(held: Held, header: Header, body: Body, server: int, servers: int) -> None:
    """Raises Refusal when a MOVE or ADOPT cannot be carried out."""
    try:
        if is_done(held, header, body):
            return
        if header.op == Op.ADOPT and header.count:
            _check_part(held, header, adopt_part(body)[0])
            return
        order = json_part(body)
        shard, version = int(order["shard"]), int(order["version"])
        if header.op == Op.MOVE:
            to = int(order["to"])
            if to == server or not 0 <= to < servers:
                raise Refusal("usage", f"shard {shard} cannot move from server {server} to {to}")
            if not held.moves.is_held(shard, version):
                raise Refusal(
                    "deadline", f"shard {shard} is not frozen any more", hint="move it again"
                )
        elif order["own"]:
            _check_own(held, shard, version)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refusal("usage", f"an order to move a shard is not whole: {error}") from error


def _check_part(held: Held, header: Header, shard: int) -> None:
    if not 0 <= shard < held.spec.shards or shard in held.moves.owned:
        raise Refusal("usage", f"shard {shard} of table {held.spec.name!r} is here already")
    arrival = held.moves.arrivals.get(shard)
    if header.part == 0:
        if arrival is not None and arrival.is_whole and arrival.version != header.step:
            raise Refusal("deadline", f"shard {shard} is here as a whole; is it to be owned?")
        return
    if arrival is None or (arrival.version, arrival.count, len(arrival.parts)) != (
        header.step,
        header.count,
        header.part,
    ):
        raise Refusal("deadline", f"part {header.part} of shard {shard} does not follow what came")


def _check_own(held: Held, shard: int, version: int) -> None:
    arrival = held.moves.arrivals.get(shard)
    if arrival is None or arrival.version != version or not arrival.is_whole:
        raise Refusal("deadline", f"shard {shard} is not here as a whole", hint="move it again")
    arrays = arrival.decode()
    given, width = arrays["values"].shape[-1], _width(held, shard)
    if given != width:
        raise Refusal("value", f"shard {shard} has rows of {given} floats, here of {width}")


def _width(held: Held, shard: int) -> int:
    if isinstance(held.spec, SparseSpec):
        return Updater(held.spec.optimizer, held.spec.dim).width
    start, stop = held.spec.range(shard)
    return Updater(held.spec.optimizer, stop - start).width


def apply(held: Held, lsn: int, header: Header, body: Body, plan: Plan | None) -> None:
    """Carry out a MOVE or ADOPT. plan: in recovery, which content has the record already."""
    moves = held.moves
    if header.op == Op.ADOPT and header.count:
        shard, data = adopt_part(body)
        moves.receive(shard, header.step, header.part, header.count, data)
        return
    order = json_part(body)
    shard, version = int(order["shard"]), int(order["version"])
    lacks = plan is None or plan.wants(held.spec.name, shard, lsn)
    if header.op == Op.MOVE:
        moves.give(shard, int(order["to"]), version)
        if lacks:
            drop(held, shard)
    elif order["own"]:
        if not moves.owned:  # No push has been counted here; the giver's have.
            held.step = max(held.step, int(order.get("step", 0)))
        arrival = moves.own(shard, version)
        if lacks:
            _load(held, shard, arrival.decode(), lsn)
    else:
        moves.forget(shard)
    if isinstance(held.table, SparseTable):
        held.table.owned = len(moves.owned)


def _load(held: Held, shard: int, arrays: Arrays, lsn: int) -> None:
    place(held, shard)
    if isinstance(held.table, SparseTable):
        # To deltas and replicas every row changes now, and some may be gone.
        arrays["version"] = np.full(len(arrays["keys"]), lsn, np.int64)
        arrays["rewritten"] = np.array([lsn], np.int64)
    held.table.load_shard(shard, arrays)


# ------------------------------------------------------------------------------------------ orders


def carry_out(held: Held | None, order: dict[str, Any]) -> dict[str, Any]:
    """An order of ORDERS. Raises Refusal."""
    if held is None:
        if order["do"] == "shards":
            return {"number": -1}
        raise Refusal("unknown-table", f"there is no table {order.get('table')!r}")
    if order["do"] == "shards":
        with held.lock:
            return facts_of(held)
    try:
        shard, version = int(order["shard"]), int(order["version"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refusal("usage", f"an order to move a shard is not whole: {error}") from error
    with held.lock:
        if order["do"] == "thaw":
            held.moves.thaw(shard, version)
            return {}
        return _freeze(held, shard, version)


def _freeze(held: Held, shard: int, version: int) -> dict[str, Any]:
    moves = held.moves
    if shard not in moves.owned:
        raise Refusal("moved", f"shard {shard} of table {held.spec.name!r} is not here")
    if not moves.is_held(shard, version):
        if held.contributions.nbytes:
            moves.wish(shard, version)
            return {"busy": True, "why": "a step is being gathered"}
        if not moves.freeze(shard, version):
            return {"busy": True, "why": "another order moves it"}
    parts = moves.parts(shard, version, held.table.shard_state)
    nbytes = sum(part.nbytes for part in parts)
    return {"busy": False, "parts": len(parts), "bytes": nbytes, "step": held.step}


def facts_of(held: Held) -> dict[str, Any]:
    """Where the shards of a table are, as far as this server knows."""
    moves = held.moves
    return {
        "number": held.number,
        "spec": to_json(held.spec),
        "step": held.step,
        "owned": list(moves.owned),
        "given": {str(s): [to, v] for s, (to, v) in moves.given.items()},
        "arrivals": {str(s): [a.version, a.is_whole] for s, a in moves.arrivals.items()},
        "frozen": sorted(moves.holds),
    }


def fetch(held: Held, part: int, order: dict[str, Any]) -> tuple[int, memoryview]:
    """(number of parts, one of them) of a frozen shard. Raises Refusal."""
    try:
        shard, version = int(order["shard"]), int(order["version"])
        with held.lock:
            parts = held.moves.parts(shard, version, held.table.shard_state)
        return len(parts), parts[part]
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise Refusal("usage", f"an order to move a shard is not whole: {error}") from error


def check_load(held: Held) -> None:
    """Raises Refusal while a shard is on its way: a checkpoint would miss it."""
    if held.moves.holds or any(one.is_whole for one in held.moves.arrivals.values()):
        raise Refusal(
            "usage",
            f"a shard of table {held.spec.name!r} is on its way between servers",
            hint="load again; if it lasts, paddock ps rebalance mends a move that was broken off",
        )
