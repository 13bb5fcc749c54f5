"""A pull in flight: frames to several servers at once, answers read straight into one array.

All servers are asked before any is read. Each has at most AHEAD requests outstanding, so that
its answers never wait behind requests that nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.client.peer import Peer
from paddock.ps.link import Link
from paddock.ps.protocol.frames import BODY_MAX, Buffer, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import SparseSpec
from paddock.ps.stream import Closed, Silent, raw

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]
AHEAD = 2
# Keys of one request: 128 KiB, which the kernel's buffers take even while nobody reads.
KEYS_MAX = 16384
_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class Request:
    """One frame to send and where its answer goes: rows or elements [start, stop)."""

    header: Header
    body: tuple[Buffer, ...]
    into: memoryview
    start: int
    stop: int


class Run:
    """The requests of one pull to one server, in order."""

    def __init__(self, peer: Peer, requests: list[Request]) -> None:
        self.peer = peer
        self.requests = requests
        self.sent = 0
        self.received = 0
        # Requests whose shards are another server's now.
        self.moved: list[tuple[Request, Refusal]] = []
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
                    self.sent = self.received
                if self.sent == min(len(self.requests), self.received + AHEAD):
                    return
                request = self.requests[self.sent]
                link.send(request.header, *request.body)
                self.sent += 1
            except (Closed, Silent) as error:
                self._lost(error)

    def take(self) -> None:
        """Read one answer."""
        request = self.requests[self.received]
        try:
            self.peer.link("pull").receive_into(request.into)
            self.received += 1
            self._deadline = time.monotonic() + self.peer.timeout
        except (Closed, Silent) as error:
            self._lost(error)
        except Refusal as refusal:
            if refusal.code != "moved":
                raise
            self.moved.append((request, refusal))
            self.received += 1

    def _lost(self, error: PaddockError) -> None:
        self.peer.drop("pull")
        self.peer.reconnects += 1
        if time.monotonic() > self._deadline:
            raise self.peer.unreachable(error) from error
        self.peer.retry("pull", lambda link: None)
        self.fill()


class Pull:
    """A pull of rows or of a vector. keys: the distinct keys asked for, in the caller's order."""

    def __init__(self, runs: list[Run], keys: Keys, grouped: Rows, order: Keys | None) -> None:
        self.runs = runs
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
        return [one for run in self.runs for one in run.moved]

    def missing(self) -> Keys:
        """Positions in `keys` of the rows that were refused for that."""
        if not any(run.moved for run in self.runs):
            return _NONE
        ranges = [np.arange(request.start, request.stop) for request, _ in self.moved]
        at = np.concatenate(ranges)
        return at if self._order is None else self._order[at]

    @classmethod
    def sparse(
        cls,
        peers: Sequence[Peer],
        numbers: Sequence[int],
        spec: SparseSpec,
        keys: Keys,
        split: tuple[Keys, Keys] | None,
        step: int = 0,
    ) -> Pull:
        """A pull of distinct keys; split: (order, bounds) by server, None for one server."""
        if split is None:
            grouped, bounds = keys, [0, len(keys)]
        else:
            grouped, bounds = keys[split[0]], split[1].tolist()
        rows = np.empty((len(keys), spec.dim), np.float32)
        most = min(KEYS_MAX, BODY_MAX // (4 * spec.dim))
        runs = []
        for server, peer in enumerate(peers):
            requests = []
            for start in range(bounds[server], bounds[server + 1], most):
                end = min(start + most, bounds[server + 1])
                header = Header(
                    Op.PULL,
                    table=numbers[server],
                    count=end - start,
                    trainer=peer.identity.trainer,
                    step=step,
                )
                requests.append(
                    Request(
                        header,
                        (raw(grouped[start:end]),),
                        raw(rows[start:end]),
                        start,
                        end,
                    )
                )
            if requests:
                runs.append(Run(peer, requests))
        return cls(runs, keys, rows, None if split is None else split[0])

    @classmethod
    def dense(
        cls,
        peers: Sequence[Peer],
        numbers: Sequence[int],
        segments: Sequence[tuple[int, int, int]],
        out: Rows,
        step: int = 0,
    ) -> Pull:
        """A pull of a dense vector into `out`. segments: (start, stop, server)."""
        most = BODY_MAX // 4
        by_server: dict[int, list[Request]] = {}
        for start, stop, server in segments:
            for at in range(start, stop, most):
                end = min(at + most, stop)
                header = Header(Op.PULL_DENSE, table=numbers[server], count=end - at, step=step)
                by_server.setdefault(server, []).append(
                    Request(header, (at.to_bytes(8, "little"),), raw(out[at:end]), at, end)
                )
        runs = [Run(peers[server], requests) for server, requests in by_server.items()]
        return cls(runs, np.empty(0, np.int64), out.reshape(-1, 1), None)


def run_pulls(pulls: Sequence[Pull], *, wait: bool = True) -> None:
    """Send what can be sent, then read all answers; with wait=False only send."""
    runs = [run for pull in pulls for run in pull.runs if not run.is_done]
    try:
        for run in runs:
            run.fill()
        while wait and runs:
            for run in runs:
                run.take()
                run.fill()
            runs = [run for run in runs if not run.is_done]
    except BaseException:
        for run in runs:
            run.peer.drop("pull")  # Answers that nobody has read would be taken for the next ones.
        raise
