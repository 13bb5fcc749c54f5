"""Pulls in flight: frames to several servers at once, answers read straight into the arrays.

All servers are asked, of all tables, before any is read. Each has requests of at most
AHEAD_BYTES outstanding, so that its answers never wait behind requests that nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paddock.errors import PaddockError
from paddock.ps.client.peer import Peer
from paddock.ps.client.pieces import Column, Keys, Known, Rows, cut_rows, cut_vector
from paddock.ps.link import Link
from paddock.ps.protocol.frames import BODY_MAX, HEADER_SIZE, Buffer, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import DENSE_SHARD_MAX, DenseSpec
from paddock.ps.stream import Closed, Silent, raw

# What the kernel's buffers take even while nobody reads.
AHEAD_BYTES = 256 << 10
# Requests of so many bytes in all are sent before any answer is read.
SMALL_BYTES = 32 << 10
# Keys of one request: half of that, so that one is answered while the next is on its way.
KEYS_MAX = 16384


@dataclass(slots=True)
class Request:
    """One frame to send and where its answer goes: rows or elements [start, stop).

    refusal: says that its shards are another server's now.
    """

    server: int
    start: int
    stop: int
    header: Header
    body: Buffer
    into: memoryview
    refusal: Refusal | None = None

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return HEADER_SIZE + len(self.body)


class Pull:
    """A pull of rows, by distinct keys, or of a vector, into that array."""

    def __init__(self, known: Known, array: Column) -> None:
        self.known = known
        self.array = array
        # Keys and rows lie in the order of servers; that of the caller is got back by `_order`.
        self._order: Keys | None = None
        self._keys, self._rows = array, array
        if not isinstance(known.spec, DenseSpec):
            self._rows = np.empty((len(array), known.spec.dim), np.float32)
        self.requests = self._ask(0, len(array))

    def _ask(self, start: int, stop: int) -> list[Request]:
        """The requests for this part, to those who own it as far as is known."""
        known, spec = self.known, self.known.spec
        if isinstance(spec, DenseSpec):
            op, pieces = Op.PULL_DENSE, cut_vector(known, [(start, stop)], DENSE_SHARD_MAX)
        else:
            op = Op.PULL
            keys = self._keys[start:stop]
            order, pieces = cut_rows(known, keys, min(KEYS_MAX, BODY_MAX // (4 * spec.dim)))
            if order is not None and self._order is None:
                self._keys, self._order = keys[order], order
            elif order is not None and self._order is not None:
                keys[:], self._order[start:stop] = keys[order], self._order[start:stop][order]
                pieces = [(server, start + a, start + b) for server, a, b in pieces]
        return [
            Request(
                server,
                a,
                b,
                Header(op, 0, known.numbers[server], 0, b - a),
                raw(self._keys[a:b]) if op == Op.PULL else a.to_bytes(8, "little"),
                raw(self._rows[a:b]),
            )
            for server, a, b in pieces
        ]

    def rows(self) -> Rows:
        """What came, in the caller's order."""
        if self._order is None:
            return self._rows
        rows = np.empty_like(self._rows)
        rows[self._order] = self._rows
        return rows

    def moved(self) -> list[Refusal]:
        """Why some of it did not come: its shards are another server's now."""
        return [request.refusal for request in self.requests if request.refusal is not None]

    def ask_again(self) -> None:
        """Have requests for what did not come, to the new owners."""
        moved = [request for request in self.requests if request.refusal is not None]
        self.requests = [new for one in moved for new in self._ask(one.start, one.stop)]


class Run:
    """The requests to one server, of one pull or several, in order."""

    def __init__(self, peer: Peer, requests: list[Request]) -> None:
        self.peer = peer
        self.requests = requests
        self.sent = 0
        self.received = 0
        self._ahead = 0  # bytes of requests without an answer
        self._link: Link | None = None
        self._deadline = time.monotonic() + peer.timeout

    def fill(self) -> None:
        """Send what may be outstanding. After a broken link, ask again for what is missing."""
        while self.received < len(self.requests):
            try:
                link = self.peer.link("pull")
                if link is not self._link:  # Whatever was asked over another one is lost.
                    self._link = link
                    self.sent, self._ahead = self.received, 0
                if self.sent == len(self.requests):
                    return
                request = self.requests[self.sent]
                if self._ahead and self._ahead + request.size > AHEAD_BYTES:
                    return
                link.send(request.header, request.body)
                self._ahead += request.size
                self.sent += 1
            except (Closed, Silent) as error:
                self._lost(error)

    def take(self) -> None:
        """Read one answer, and send what may be outstanding now."""
        request = self.requests[self.received]
        try:
            self.peer.link("pull").receive_into(request.into)
            self._deadline = time.monotonic() + self.peer.timeout
        except (Closed, Silent) as error:
            self._lost(error)
            return self.fill()
        except Refusal as refusal:
            if refusal.code != "moved":
                raise
            request.refusal = refusal
        self._ahead -= request.size
        self.received += 1
        self.fill()

    def _lost(self, error: PaddockError) -> None:
        self.peer.lost("pull", error, self._deadline)
        self.peer.retry("pull", lambda link: None)


class Flight:
    """Pulls that are on their way together: one round trip, however many tables and servers."""

    def __init__(self, peers: Sequence[Peer], pulls: Sequence[Pull]) -> None:
        asked: dict[int, list[Request]] = {}
        for pull in pulls:
            for request in pull.requests:
                asked.setdefault(request.server, []).append(request)
        self._runs = [Run(peers[server], mine) for server, mine in asked.items()]
        self._each(lambda run: run.fill())

    def land(self) -> None:
        """Read all answers. Raises Refusal, but for shards that have moved; PaddockError."""
        while self._runs:
            self._each(lambda run: run.take())
            self._runs = [run for run in self._runs if run.received < len(run.requests)]

    def _each(self, act: Callable[[Run], None]) -> None:
        try:
            for run in self._runs:
                act(run)
        except BaseException:
            for run in self._runs:
                run.peer.drop("pull")  # Answers that nobody has read would be taken for others.
            self._runs = []
            raise
