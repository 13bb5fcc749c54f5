"""What a trainer does when a shard has moved: learns the owner, and sends again what was refused.

Order is kept. A server that refuses a push refuses the trainer's later ones to the table too, so
the refused ones are the newest; all are read before any is sent again, each under a new number
and cut by the new owners.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from paddock.ps.client.peer import Peer, Unacknowledged
from paddock.ps.protocol.frames import Buffer, Flag, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import SparseSpec
from paddock.ps.stream import raw
from paddock.ps.table.sharding import group

if TYPE_CHECKING:
    from paddock.ps.client.traffic import Known, Traffic

# Waits while a shard is on its way: from, factor, at most.
WAIT_SECONDS = (0.002, 1.5, 0.05)
# Redirections without a wait.
TURNS = 3
LAST, CONTRIBUTION = int(Flag.LAST), int(Flag.CONTRIBUTION)


class Redirect:
    """Of one client. count: frames sent again."""

    def __init__(self, traffic: Traffic) -> None:
        self.count = 0
        self._traffic = traffic
        # Frames that were refused and are not sent again yet, oldest first.
        self._pending: list[tuple[Peer, Unacknowledged, Refusal]] = []
        self._since: float | None = None
        self._wait = WAIT_SECONDS[0]
        self._turns = 0
        for peer in traffic.peers:
            peer.on_moved = self.push_refused

    # ------------------------------------------------------------------------------------- facts

    def learn(self, known: Known, refusal: Refusal) -> None:
        """Take over the owners that a refusal names."""
        owners = refusal.facts.get("owners")
        for shard, server in owners.items() if isinstance(owners, dict) else ():
            if int(server) >= len(self._traffic.peers):
                raise Refusal(
                    "moved",
                    f"shard {shard} of table {known.spec.name!r} is server {server}'s now, which "
                    "this trainer does not know",
                    hint="start the trainer again with all servers of the job",
                )
            known.owners[int(shard)] = int(server)

    def _pause_for(self, refusals: list[Refusal]) -> None:
        """Wait a moment for a shard on its way. Raises a refusal after the client's timeout.

        Two servers that name each other are between two steps of a move, so turns are counted.
        """
        refusal = next((one for one in refusals if one.facts.get("wait")), refusals[0])
        self._turns += 1
        if not refusal.facts.get("wait") and self._turns < TURNS:
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now - self._since > self._traffic.peers[0].timeout:
            self.settled()
            raise refusal
        time.sleep(self._wait)
        self._wait = min(self._wait * WAIT_SECONDS[1], WAIT_SECONDS[2])

    def settled(self) -> None:
        """Nothing is being waited for."""
        self._since, self._wait, self._turns = None, WAIT_SECONDS[0], 0

    def heed(self, known: Known, refusals: list[Refusal]) -> None:
        """A pull was refused: know more, or wait a moment. Raises one that is another no."""
        for refusal in refusals:
            if refusal.code != "moved":
                raise refusal
        # What was pushed before and is refused must go first to the new owner.
        before = self._since, self._wait, self._turns
        self._traffic.settle(0)
        self._since, self._wait, self._turns = before
        for refusal in refusals:
            self.learn(known, refusal)
        self._pause_for(refusals)

    # ------------------------------------------------------------------------------------ pushes

    def push_refused(self, peer: Peer) -> None:
        """The oldest unacknowledged frame of this server was refused because its shard moved."""
        refused, other = peer.drain()
        self._pending += [(peer, frame, refusal) for frame, refusal in refused]
        try:
            self.resume()
        finally:
            if other is not None:
                raise other

    def resume(self) -> None:
        """Send again what was refused, in order. After an error it is still to be done."""
        if not self._pending:
            return
        for peer, frame, refusal in self._pending:
            self.learn(self._find(peer, frame.header.table), refusal)
        self._pause_for([refusal for *_, refusal in self._pending])
        pending, self._pending = self._pending, []
        for peer, frame, _ in pending:
            self._again(peer, frame)
        self.count += len(pending)

    def _find(self, peer: Peer, number: int) -> Known:
        for known in self._traffic.tables.values():
            if known.numbers[peer.index] == number:
                return known
        raise AssertionError(f"no table has number {number} on server {peer.index}")

    def _again(self, peer: Peer, frame: Unacknowledged) -> None:
        known = self._find(peer, frame.header.table)
        if frame.header.op in (Op.PUSH, Op.SET):
            self._sparse_again(peer, known, frame)
        else:
            self._dense_again(peer, known, frame)

    def _sparse_again(self, peer: Peer, known: Known, frame: Unacknowledged) -> None:
        assert isinstance(known.spec, SparseSpec)
        count = frame.header.count
        keys = np.frombuffer(frame.body[0], np.int64)
        pieces = [np.frombuffer(piece, np.float32) for piece in frame.body[1:]]
        columns = [piece.reshape(count, piece.size // max(count, 1)) for piece in pieces]
        order, bounds = group(keys, known.owners, len(self._traffic.peers))
        keys, columns = keys[order], [column[order] for column in columns]
        for server in range(len(self._traffic.peers)):
            here = slice(int(bounds[server]), int(bounds[server + 1]))
            body: list[Buffer] = [raw(keys[here]), *(raw(column[here]) for column in columns)]
            self._post(peer, known, frame, server, here.stop - here.start, body)

    def _dense_again(self, peer: Peer, known: Known, frame: Unacknowledged) -> None:
        begin = int.from_bytes(frame.body[0], "little")
        values = np.frombuffer(frame.body[1], np.float32)
        runs = self._traffic.dense_frames(known, [(begin, begin + len(values))])
        if all(server != peer.index for _, _, server in runs):
            runs.append((begin, begin, peer.index))
        last = max(start for start, _, server in runs if server == peer.index)
        for start, stop, server in runs:
            body: list[Buffer] = [
                start.to_bytes(8, "little"),
                raw(values[start - begin : stop - begin]),
            ]
            is_last = server == peer.index and start == last
            self._post(peer, known, frame, server, stop - start, body, is_last=is_last)

    def _post(
        self,
        peer: Peer,
        known: Known,
        frame: Unacknowledged,
        server: int,
        count: int,
        body: list[Buffer],
        *,
        is_last: bool = True,
    ) -> None:
        """Send a part of a refused frame.

        The server that refused it counts the batch by the frame's flag, even when none of its
        rows are there any more; the others have counted it by frames of their own.
        """
        flags = frame.header.flags & ~LAST
        if server == peer.index and is_last:
            flags = frame.header.flags
        if not count and (not flags & LAST or flags & CONTRIBUTION):
            return
        header = Header(
            frame.header.op,
            flags,
            known.numbers[server],
            self._traffic.next_part(known, server, flags),
            count,
            step=frame.header.step if flags & CONTRIBUTION else 0,
        )
        self._traffic.peers[server].post(frame.batch, header, *body)
