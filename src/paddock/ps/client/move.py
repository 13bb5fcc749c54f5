"""Shards change hands while trainers go on: the admin's half. server/moves.py has the other.

Nothing is lost when this process or a server dies: until MOVE the shard is the old owner's, after
it the next owner has all of it, on disk where it keeps a log. The same order given again goes on
from there, or begins anew.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.peer import Peer
from paddock.ps.link import Link
from paddock.ps.protocol.frames import Header, Op
from paddock.ps.protocol.refusals import Refusal

# Asked again after so long, when trainers gather a step or somebody else moves the shard.
RETRY_SECONDS = 0.02
# For how long, in all. A step of sync that takes longer is not waited for.
DEADLINE_SECONDS = 60.0
# Times that a move which was interrupted is begun anew.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did. seconds: pushes waited for so long, 0.0 when the shard was there already."""

    table: str
    shard: int
    source: int
    to: int
    bytes: int
    seconds: float


class Where:
    """Where the shards of one table are, as the servers say. peers: all of the job, in order.

    owner: server by shard; a shard that is between servers is missing.
    """

    def __init__(self, peers: Sequence[Peer], table: str) -> None:
        self.facts = [peer.ask(Op.CONTROL, {"do": "shards", "table": table}) for peer in peers]
        known = [facts for facts in self.facts if facts["number"] >= 0]
        if not known:
            raise UsageError(f"no server has a table {table!r}", hint="paddock ps tables")
        self.spec: dict[str, Any] = known[0]["spec"]
        self.shards = int(self.spec["shards"])
        self.owner = {
            int(shard): server
            for server, facts in enumerate(self.facts)
            for shard in facts.get("owned", ())
        }

    def number(self, server: int) -> int:
        """What a server calls the table."""
        return int(self.facts[server]["number"])

    def arrivals(self) -> list[tuple[int, int, int, bool]]:
        """(server, shard, version, whether it is whole) of what came and is not owned."""
        return [
            (server, int(shard), int(version), bool(is_whole))
            for server, facts in enumerate(self.facts)
            for shard, (version, is_whole) in facts.get("arrivals", {}).items()
        ]

    def was_given(self, shard: int, to: int, version: int) -> bool:
        """Whether some server gave the shard to `to` under this version."""
        return any(facts.get("given", {}).get(str(shard)) == [to, version] for facts in self.facts)


def move(
    peers: Sequence[Peer],
    table: str,
    shard: int,
    to: int,
    *,
    after: Callable[[str], None] = lambda step: None,
    deadline: float = DEADLINE_SECONDS,
) -> Moved:
    """Make server `to` the owner of a shard. Done already: nothing happens.

    peers: all servers, in order, their links of purpose "admin". after: called with the name of
    each step of the protocol when it is done. Raises PaddockError; the order may be given again.
    """
    if not 0 <= to < len(peers):
        raise UsageError(f"there is no server {to}", hint=f"0 to {len(peers) - 1}")
    until = time.monotonic() + deadline
    for attempt in range(ATTEMPTS):
        where = mend(peers, table)
        if not 0 <= shard < where.shards:
            raise UsageError(
                f"table {table!r} has no shard {shard}", hint=f"0 to {where.shards - 1}"
            )
        if shard not in where.owner:
            raise PaddockError(
                f"shard {shard} of table {table!r} is on no server",
                hint="is a server missing in --endpoints? else load a checkpoint",
            )
        source = where.owner[shard]
        if source == to:
            return Moved(table, shard, source, to, 0, 0.0)
        try:
            return _move(peers, where, table, shard, to, after, until)
        except Refusal as refusal:
            # A server started anew, or a freeze ended, between two steps.
            if refusal.code not in ("deadline", "moved") or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _move(
    peers: Sequence[Peer],
    where: Where,
    table: str,
    shard: int,
    to: int,
    after: Callable[[str], None],
    until: float,
) -> Moved:
    source = where.owner[shard]
    giver, taker = peers[source], peers[to]
    if where.number(to) < 0:
        number = int(taker.ask(Op.CREATE, where.spec)["table"])
    else:
        number = where.number(to)
    order = {"table": table, "shard": shard, "version": secrets.randbits(62) | 1}
    frozen, started = _freeze(giver, order, until)
    try:
        after("freeze")
        for part in range(int(frozen["parts"])):
            count, data = _fetch(giver, where.number(source), part, order)
            _adopt(taker, number, part, count, order, data)
            if part == 0:
                after("first part")
        # Of a power cut: what the giver forgets must be on the taker's disk.
        taker.ask(Op.CONTROL, {"do": "keep"})
        after("adopt")
        giver.ask(Op.MOVE, {**order, "to": to}, table=where.number(source))
    except BaseException:
        _thaw(giver, order)
        raise
    # And that it was given away must be on the giver's, or two could own it after one.
    giver.ask(Op.CONTROL, {"do": "keep"})
    after("move")
    _own(taker, number, order, int(frozen["step"]))
    seconds = time.monotonic() - started
    after("own")
    return Moved(table, shard, source, to, int(frozen["bytes"]), seconds)


def _freeze(giver: Peer, order: dict[str, Any], until: float) -> tuple[dict[str, Any], float]:
    """(what the giver says, when trainers began to wait)."""
    while True:
        started = time.monotonic()
        answer = giver.ask(Op.CONTROL, {"do": "freeze", **order})
        if not answer["busy"]:
            return answer, started
        if time.monotonic() > until:
            _thaw(giver, order)
            raise PaddockError(
                f"shard {order['shard']} of table {order['table']!r} cannot move now: "
                f"{answer['why']}",
                hint="try again later",
                retryable=True,
            )
        time.sleep(RETRY_SECONDS)


def _thaw(giver: Peer, order: dict[str, Any]) -> None:
    try:
        giver.ask(Op.CONTROL, {"do": "thaw", **order})
    except PaddockError:
        pass  # It is dead, and has thawed with that; or it does so by itself.


def _fetch(giver: Peer, number: int, part: int, order: dict[str, Any]) -> tuple[int, bytes]:
    """(number of parts, one of them)."""
    header = Header(Op.FETCH, table=number, part=part)
    body = json.dumps(order).encode()

    def once(link: Link) -> tuple[int, bytes]:
        link.send(header, body)
        answer, data = link.receive()
        return answer.count, bytes(data)

    return giver.retry(giver.purpose, once)


def _adopt(
    taker: Peer, number: int, part: int, count: int, order: dict[str, Any], data: bytes
) -> None:
    header = Header(Op.ADOPT, table=number, part=part, count=count, step=order["version"])
    shard = int(order["shard"]).to_bytes(8, "little")

    def once(link: Link) -> None:
        link.send(header, shard, data)
        link.receive()

    taker.retry(taker.purpose, once)


def _own(taker: Peer, number: int, order: dict[str, Any], step: int) -> None:
    data = {"shard": order["shard"], "version": order["version"], "own": True, "step": step}
    taker.ask(Op.ADOPT, data, table=number)


def mend(peers: Sequence[Peer], table: str) -> Where:
    """Finish the moves that were broken off after MOVE, forget what others left behind."""
    where = Where(peers, table)
    arrivals = where.arrivals()
    for server, shard, version, is_whole in arrivals:
        order = {"table": table, "shard": shard, "version": version}
        number = where.number(server)
        if is_whole and shard not in where.owner and where.was_given(shard, server, version):
            step = max(int(facts.get("step", 0)) for facts in where.facts)
            _own(peers[server], number, order, step)
        elif shard in where.owner and shard not in where.facts[where.owner[shard]]["frozen"]:
            # Another admin may be at it: after this thaw its MOVE is refused, if it has not been.
            giver = where.owner[shard]
            _thaw(peers[giver], order)
            if Where(peers, table).owner.get(shard) == giver:
                peers[server].ask(Op.ADOPT, {**order, "own": False}, table=number)
    return Where(peers, table) if arrivals else where


def rebalance(peers: Sequence[Peer], table: str) -> list[Moved]:
    """Have every server own as many shards as the others, give or take one; few moves.

    Finishes broken-off moves too.
    """
    where = mend(peers, table)
    return [move(peers, table, shard, to) for shard, to in plan(where.owner, len(peers))]


def plan(owner: dict[int, int], servers: int) -> list[tuple[int, int]]:
    """(shard, to): the moves that make the numbers of shards equal, give or take one.

    >>> plan({0: 0, 1: 0, 2: 0, 3: 1}, 3)
    [(2, 2)]
    """
    held: list[list[int]] = [[] for _ in range(servers)]
    for shard, server in sorted(owner.items()):
        held[server].append(shard)
    moves: list[tuple[int, int]] = []
    while True:
        counts = [len(shards) for shards in held]
        most, least = counts.index(max(counts)), counts.index(min(counts))
        if counts[most] - counts[least] <= 1:
            return moves
        shard = held[most].pop()
        held[least].append(shard)
        moves.append((shard, least))
