"""Pulls in flight: frames to several servers at once, answers read straight into the arrays.

All servers are asked, of all tables, before any is read. Each has requests of at most
AHEAD_BYTES outstanding, so that its answers never wait behind requests that nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from paddock.ps.client.partition import (
    Column,
    Keys,
    RemoteTable,
    Rows,
    partition_rows,
    partition_vector,
)
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.connection import FrameConnection
from paddock.ps.spec import DENSE_SHARD_MAX, DenseSpec
from paddock.ps.stream import ConnectionClosed, ReadTimeout, raw
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX, HEADER_SIZE, Buffer, Header, Op

# What the kernel's buffers take even while nobody reads.
AHEAD_BYTES = 256 << 10
# Requests of so many bytes in all are sent before any answer is read.
SMALL_BYTES = 32 << 10
# Keys of one request: half of that, so that one is answered while the next is on its way.
KEYS_MAX = 16384


@dataclass(slots=True)
class PullRequest:
    """A frame to send and where its answer goes: rows or elements [start, stop) of the pull."""

    pull: Pull
    server: int
    start: int
    stop: int
    header: Header
    body: Buffer
    into: memoryview

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return HEADER_SIZE + len(self.body)


class Pull:
    """A pull of rows, by distinct keys, or of a vector, into that array.

    refused: what did not come, as its shards are another server's now.
    """

    def __init__(self, remote: RemoteTable, array: Column) -> None:
        self.remote = remote
        self.array = array
        self.refused: list[tuple[PullRequest, RequestError]] = []
        # Keys and rows lie in the order of servers; that of the caller is got back by `order`.
        self.order: Keys | None = None
        self._keys, self.rows = array, array
        if not isinstance(remote.spec, DenseSpec):
            self.rows = np.empty((len(array), remote.spec.dim), np.float32)
        self.requests = self._ask(0, len(array))

    def _ask(self, start: int, stop: int) -> list[PullRequest]:
        """The requests for this part, to those who own it as far as is known."""
        remote, spec = self.remote, self.remote.spec
        if isinstance(spec, DenseSpec):
            op, pieces = Op.PULL_DENSE, partition_vector(remote, [(start, stop)], DENSE_SHARD_MAX)
        else:
            op = Op.PULL
            keys = self._keys[start:stop]
            order, pieces = partition_rows(remote, keys, min(KEYS_MAX, BODY_MAX // (4 * spec.dim)))
            if order is not None and self.order is None:
                self._keys, self.order = keys[order], order
            elif order is not None and self.order is not None:
                keys[:], self.order[start:stop] = keys[order], self.order[start:stop][order]
                pieces = [(server, start + a, start + b) for server, a, b in pieces]
        requests = []
        for server, a, b in pieces:
            header = Header(op, 0, remote.numbers[server], 0, b - a)
            body = raw(self._keys[a:b]) if op == Op.PULL else a.to_bytes(8, "little")
            requests.append(PullRequest(self, server, a, b, header, body, raw(self.rows[a:b])))
        return requests

    def in_order(self) -> Rows:
        """The rows in the caller's order, (n, dim) float32."""
        rows = np.empty_like(self.rows)
        rows[self.order] = self.rows
        return rows

    def ask_again(self) -> None:
        """Have requests for what did not come, to the new owners."""
        moved, self.refused = self.refused, []
        self.requests = [new for one, _ in moved for new in self._ask(one.start, one.stop)]


def _run(peer: ServerConnection, requests: list[PullRequest]) -> Generator[None, None, None]:
    """Have one server answer the requests, in order; at each turn nothing but an answer is missing.

    After a broken link, what is missing is asked for again.
    """
    sent = received = ahead = 0  # ahead: bytes of requests without an answer
    link: FrameConnection | None = None
    deadline = time.monotonic() + peer.timeout
    try:
        while received < len(requests):
            try:
                if link is not peer.link("pull"):  # Whatever was asked over another one is lost.
                    link, sent, ahead = peer.link("pull"), received, 0
                while sent < len(requests):
                    if ahead and ahead + requests[sent].size > AHEAD_BYTES:
                        break
                    link.send(requests[sent].header, requests[sent].body)
                    ahead += requests[sent].size
                    sent += 1
                yield
                link.receive_into(requests[received].into)
                deadline = time.monotonic() + peer.timeout
            except (ConnectionClosed, ReadTimeout) as error:
                peer.lost("pull", error, deadline)
                peer.retry("pull", lambda link: None)
                continue
            except RequestError as refusal:
                if refusal.code != "moved":
                    raise
                requests[received].pull.refused.append((requests[received], refusal))
            ahead -= requests[received].size
            received += 1
    finally:
        if received < len(requests):
            peer.drop("pull")  # Answers that nobody has read would be taken for others.


class PullBatch:
    """Pulls that are on their way together: one round trip, however many tables and servers."""

    def __init__(self, peers: Sequence[ServerConnection], pulls: Sequence[Pull]) -> None:
        asked: dict[int, list[PullRequest]] = {}
        for pull in pulls:
            for request in pull.requests:
                asked.setdefault(request.server, []).append(request)
        self._runs = [_run(peers[server], mine) for server, mine in asked.items()]
        self._turn()

    def finish(self) -> None:
        """Read all answers. Raises RequestError, but for shards that have moved; PaddockError."""
        while self._runs:
            self._turn()

    def _turn(self) -> None:
        try:
            self._runs = [run for run in self._runs if next(run, self) is not self]
        except BaseException:
            for run in self._runs:
                run.close()
            raise
