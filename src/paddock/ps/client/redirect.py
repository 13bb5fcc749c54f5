"""A trainer learns the new routing of a shard that has moved, and resends what was refused.

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

from paddock.ps.client.partition import DENSE_OPS, LAST, Column, RemoteTable, frames, partition
from paddock.ps.client.server_connection import (
    OnProgress,
    ServerConnection,
    Unacknowledged,
    no_progress,
)
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Op

if TYPE_CHECKING:
    from paddock.ps.client.server_group import ServerGroup

# Waits while a shard is on its way: from, factor, at most.
WAIT_SECONDS = (0.002, 1.5, 0.05)
# Redirections without a wait.
TURNS = 3
CONTRIBUTION = int(FrameFlag.CONTRIBUTION)


class RetryBudget:
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


def update_owners(remote: RemoteTable, refusal: RequestError) -> None:
    """A table's routing, shard by shard, becomes that of the owners that a refusal names."""
    owners = refusal.facts.get("owners")
    for shard, server in owners.items() if isinstance(owners, dict) else ():
        if int(server) >= len(remote.numbers):
            raise RequestError(
                "moved",
                f"shard {shard} of table {remote.spec.name!r} is server {server}'s now, which "
                "this trainer does not know",
                hint="start the trainer again with all servers of the job",
            )
        remote.owners[int(shard)] = int(server)


def handle_moved(
    group: ServerGroup, remote: RemoteTable, refusals: Sequence[RequestError], patience: RetryBudget
) -> None:
    """A pull was refused: know more, or wait a moment. Raises one that is another no."""
    for refusal in refusals:
        if refusal.code != "moved":
            raise refusal
    group.wait_acked(0)  # What was pushed before and is refused must go first to the new owner.
    for refusal in refusals:
        update_owners(remote, refusal)
    patience.pause_for(refusals)


def resend(group: ServerGroup, patience: RetryBudget) -> None:
    """Send again pushes that were refused, in order. After an error it is still to be done."""
    pending = [
        (peer, remote, *one)
        for peer in group.peers
        for one in peer.moved
        for remote in group.tables.values()
        if remote.numbers[peer.index] == one[0].header.table
    ]
    for _, remote, _, refusal in pending:
        update_owners(remote, refusal)
    patience.pause_for([refusal for *_, refusal in pending])
    for peer, remote, frame, _ in pending:
        peer.moved.popleft()
        _again(group, peer, remote, frame)


def _again(
    group: ServerGroup, peer: ServerConnection, remote: RemoteTable, frame: Unacknowledged
) -> None:
    """Send a refused frame to the new owners.

    The server that refused it counts the batch by the frame's flag, even when none of its
    rows are there any more; the others have counted it by frames of their own.
    """
    header, body, own = frame.header, frame.body, peer.index
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
    columns, pieces = partition(remote, columns, runs)
    is_step = bool(header.flags & CONTRIBUTION)
    if header.flags & LAST and not is_step and own not in [server for server, *_ in pieces]:
        pieces.append((own, begin, begin))
    for server, head, parts in frames(
        remote, header.op, columns, pieces, header.flags, begin=begin
    ):
        flags = head.flags if server == own else head.flags & ~LAST
        part = group.next_part(remote, server, flags)
        step = header.step if is_step else 0
        head = head._replace(flags=flags, part=part, step=step)
        group.peers[server].post(frame.batch, head, *parts)


def shrink(
    peers: Sequence[ServerConnection],
    remote: RemoteTable,
    handle_moved: Callable[[RequestError], None],
    progress: OnProgress = no_progress,
) -> int:
    """The owner of each shard shrinks it; returns the rows dropped.

    handle_moved: brings `remote` up to date when a shard has moved, or raises. progress: is called
    with (shards done, of how many).
    """
    dropped, round_ = 0, os.urandom(8).hex()
    for shard in range(remote.spec.shards):
        progress(shard, remote.spec.shards)
        answer = None
        while answer is None:
            server = int(remote.owners[shard])
            order = {"shard": shard, "round": round_}
            try:
                answer = peers[server].ask(Op.SHRINK, order, table=remote.numbers[server])
            except RequestError as refusal:
                handle_moved(refusal)
        dropped += int(answer["dropped"])
    return dropped
