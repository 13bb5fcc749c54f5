"""Pulls in flight: frames to several servers at once, answers read straight into the arrays.

All servers are asked, of all tables, before any is read. Each has requests of at most
AHEAD_BYTES outstanding, so that its answers never wait behind requests that nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.client.peer import Peer
from paddock.ps.link import Link
from paddock.ps.protocol.frames import BODY_MAX, HEADER_SIZE, Buffer, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import SparseSpec
from paddock.ps.stream import Closed, Silent, raw

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]
# What the kernel's buffers take even while nobody reads.
AHEAD_BYTES = 256 << 10
# Keys of one request: half of that, so that one is answered while the next is on its way.
KEYS_MAX = 16384
_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class Request:
    """One frame to send and where its answer goes: rows or elements [start, stop).

    refusal: says that its shards are another server's now.
    """

    header: Header
    body: tuple[Buffer, ...]
    into: memoryview
    start: int
    stop: int
    refusal: Refusal | None = None


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

    @property
    def is_done(self) -> bool:
        """Whether every answer is there."""
        return self.received == len(self.requests)

    def fill(self) -> None:
        """Send what may be outstanding. After a broken link, ask again for what is missing."""
        while not self.is_done:
            try:
                link = self.peer.link("pull")
                if link is not self._link:  # Whatever was asked over another one is lost.
                    self._link = link
                    self.sent, self._ahead = self.received, 0
                if self.sent == len(self.requests):
                    return
                request = self.requests[self.sent]
                size = _size(request)
                if self._ahead and self._ahead + size > AHEAD_BYTES:
                    return
                link.send(request.header, *request.body)
                self._ahead += size
                self.sent += 1
            except (Closed, Silent) as error:
                self._lost(error)

    def take(self) -> None:
        """Read one answer."""
        request = self.requests[self.received]
        try:
            self.peer.link("pull").receive_into(request.into)
            self._deadline = time.monotonic() + self.peer.timeout
        except (Closed, Silent) as error:
            self._lost(error)
            return
        except Refusal as refusal:
            if refusal.code != "moved":
                raise
            request.refusal = refusal
        self._ahead -= _size(request)
        self.received += 1

    def _lost(self, error: PaddockError) -> None:
        self.peer.drop("pull")
        self.peer.reconnects += 1
        if time.monotonic() > self._deadline:
            raise self.peer.unreachable(error) from error
        self.peer.retry("pull", lambda link: None)
        self.fill()


def _size(request: Request) -> int:
    return HEADER_SIZE + sum(map(len, request.body))


class Pull:
    """A pull of rows or of a vector. keys: the distinct keys asked for, in the caller's order.

    requests: by server.
    """

    def __init__(
        self, requests: list[list[Request]], keys: Keys, grouped: Rows, order: Keys | None
    ) -> None:
        self.requests = requests
        self.keys = keys
        self._grouped = grouped
        self._order = order

    def rows(self) -> Rows:
        """What came, in the order of keys."""
        if self._order is None:
            return self._grouped
        rows = np.empty_like(self._grouped)
        rows[self._order] = self._grouped
        return rows

    @property
    def moved(self) -> list[tuple[Request, Refusal]]:
        """What was refused because a shard is another server's now."""
        every = (request for mine in self.requests for request in mine)
        return [(request, request.refusal) for request in every if request.refusal is not None]

    def missing(self) -> Keys:
        """Positions in `keys` of the rows that were refused for that."""
        moved = self.moved
        if not moved:
            return _NONE
        at = np.concatenate([np.arange(request.start, request.stop) for request, _ in moved])
        return at if self._order is None else self._order[at]

    @classmethod
    def sparse(
        cls,
        numbers: Sequence[int],
        spec: SparseSpec,
        keys: Keys,
        split: tuple[Keys, Keys] | None,
    ) -> Pull:
        """A pull of distinct keys; split: (order, bounds) by server, None for one server."""
        if split is None:
            grouped, bounds = keys, [0, len(keys)]
        else:
            grouped, bounds = keys[split[0]], split[1].tolist()
        rows = np.empty((len(keys), spec.dim), np.float32)
        most = min(KEYS_MAX, BODY_MAX // (4 * spec.dim))
        requests: list[list[Request]] = []
        for server, number in enumerate(numbers):
            requests.append([])
            for start in range(bounds[server], bounds[server + 1], most):
                end = min(start + most, bounds[server + 1])
                header = Header(Op.PULL, table=number, count=end - start)
                into = raw(rows[start:end])
                requests[-1].append(Request(header, (raw(grouped[start:end]),), into, start, end))
        return cls(requests, keys, rows, None if split is None else split[0])

    @classmethod
    def dense(
        cls, numbers: Sequence[int], segments: Sequence[tuple[int, int, int]], out: Rows
    ) -> Pull:
        """A pull of a dense vector into `out`. segments: (start, stop, server)."""
        most = BODY_MAX // 4
        requests: list[list[Request]] = [[] for _ in numbers]
        for start, stop, server in segments:
            for at in range(start, stop, most):
                end = min(at + most, stop)
                header = Header(Op.PULL_DENSE, table=numbers[server], count=end - at)
                body = (at.to_bytes(8, "little"),)
                requests[server].append(Request(header, body, raw(out[at:end]), at, end))
        return cls(requests, _NONE, out, None)


class Flight:
    """Pulls that are on their way together: one round trip, however many tables and servers."""

    def __init__(self, peers: Sequence[Peer], pulls: Sequence[Pull]) -> None:
        asked = [[r for pull in pulls for r in pull.requests[peer.index]] for peer in peers]
        self._runs = [Run(peer, mine) for peer, mine in zip(peers, asked, strict=True) if mine]
        with self._whole():
            for run in self._runs:
                run.fill()

    def land(self) -> None:
        """Read all answers. Raises Refusal, but for shards that have moved; PaddockError."""
        with self._whole():
            while self._runs:
                for run in self._runs:
                    run.take()
                    run.fill()
                self._runs = [run for run in self._runs if not run.is_done]

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for run in self._runs:
                run.peer.drop("pull")  # Answers that nobody has read would be taken for others.
            self._runs = []
            raise
