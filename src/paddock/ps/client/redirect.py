"""What a trainer does when a shard has moved: learns the owner, and sends again what was refused.

Order is kept. A server that refuses a push refuses the trainer's later ones to the table too, so
the refused ones are the newest; all are read before any is sent again, each under a new number
and cut by the new owners.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paddock.ps.client.peer import OnProgress, Peer, Unacknowledged, no_progress
from paddock.ps.client.pieces import DENSE_OPS, LAST, Column, Known, cut, frames
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Flag, Op

if TYPE_CHECKING:
    from paddock.ps.client.traffic import Traffic

# Waits while a shard is on its way: from, factor, at most.
WAIT_SECONDS = (0.002, 1.5, 0.05)
# Redirections without a wait.
TURNS = 3
CONTRIBUTION = int(Flag.CONTRIBUTION)


class Patience:
    """How long shards on their way are waited for, within one call of a user's."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._wait = WAIT_SECONDS[0]
        self._turns = 0

    def pause_for(self, refusals: Sequence[RequestError]) -> None:
        """Wait a moment for a shard on its way. Raises a refusal after so many seconds.

        Two servers that name each other are between two steps of a move, so turns are counted.
        """
        refusal = next((one for one in refusals if one.facts.get("wait")), refusals[0])
        self._turns += 1
        if not refusal.facts.get("wait") and self._turns < TURNS:
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > self._seconds:
            raise refusal
        time.sleep(self._wait)
        self._wait = min(self._wait * WAIT_SECONDS[1], WAIT_SECONDS[2])


def learn(known: Known, refusal: RequestError) -> None:
    """Take over the owners that a refusal names."""
    owners = refusal.facts.get("owners")
    for shard, server in owners.items() if isinstance(owners, dict) else ():
        if int(server) >= len(known.numbers):
            raise RequestError(
                "moved",
                f"shard {shard} of table {known.spec.name!r} is server {server}'s now, which "
                "this trainer does not know",
                hint="start the trainer again with all servers of the job",
            )
        known.owners[int(shard)] = int(server)


def heed(
    traffic: Traffic, known: Known, refusals: Sequence[RequestError], patience: Patience
) -> None:
    """A pull was refused: know more, or wait a moment. Raises one that is another no."""
    for refusal in refusals:
        if refusal.code != "moved":
            raise refusal
    traffic.settle(0)  # What was pushed before and is refused must go first to the new owner.
    for refusal in refusals:
        learn(known, refusal)
    patience.pause_for(refusals)


def resume(traffic: Traffic, patience: Patience) -> None:
    """Send again pushes that were refused, in order. After an error it is still to be done."""
    pending = [(peer, *one) for peer in traffic.peers for one in peer.moved]
    if not pending:
        return
    for peer, frame, refusal in pending:
        learn(_find(traffic, peer, frame.header.table), refusal)
    patience.pause_for([refusal for *_, refusal in pending])
    for peer, frame, _ in pending:
        peer.moved.popleft()
        _again(traffic, peer, frame)


def _find(traffic: Traffic, peer: Peer, number: int) -> Known:
    for known in traffic.tables.values():
        if known.numbers[peer.index] == number:
            return known
    raise AssertionError(f"no table has number {number} on server {peer.index}")


def _again(traffic: Traffic, peer: Peer, frame: Unacknowledged) -> None:
    """Send a refused frame to the new owners.

    The server that refused it counts the batch by the frame's flag, even when none of its
    rows are there any more; the others have counted it by frames of their own.
    """
    header, body, own = frame.header, frame.body, peer.index
    known = _find(traffic, peer, header.table)
    columns: list[Column]
    if header.op in DENSE_OPS.values():
        begin = int.from_bytes(body[0], "little")
        columns, runs = [np.frombuffer(body[1], np.float32)], [(begin, begin + header.count)]
    else:
        begin, runs = 0, None
        floats = [np.frombuffer(piece, np.float32) for piece in body[1:]]
        shape = max(header.count, 1)
        columns = [one.reshape(header.count, one.size // shape) for one in floats]
        columns.insert(0, np.frombuffer(body[0], np.int64))
    columns, pieces = cut(known, columns, runs)
    is_step = bool(header.flags & CONTRIBUTION)
    if header.flags & LAST and not is_step and own not in [server for server, *_ in pieces]:
        pieces.append((own, begin, begin))
    for server, head, parts in frames(known, header.op, columns, pieces, header.flags, begin=begin):
        flags = head.flags if server == own else head.flags & ~LAST
        part = traffic.next_part(known, server, flags)
        step = header.step if is_step else 0
        head = head._replace(flags=flags, part=part, step=step)
        traffic.peers[server].post(frame.batch, head, *parts)


def shrink(
    peers: Sequence[Peer], known: Known, heed: Callable[[RequestError], None],
    progress: OnProgress = no_progress,
) -> int:  # fmt: skip
    """Have the owner of each shard shrink it; rows dropped. heed: a shard has moved: bring `known`
    up to date, or raise. progress: told (shards done, of how many).
    """
    dropped, round_ = 0, os.urandom(8).hex()
    for shard in range(known.spec.shards):
        progress(shard, known.spec.shards)
        answer = None
        while answer is None:
            server = int(known.owners[shard])
            order = {"shard": shard, "round": round_}
            try:
                answer = peers[server].ask(Op.SHRINK, order, table=known.numbers[server])
            except RequestError as refusal:
                heed(refusal)
        dropped += int(answer["dropped"])
    return dropped
