"""What goes between one trainer and all servers of its job: pulls, and frames of pushes.

Checks nothing of what a user gave, and decides nothing of when: that is the client's and the
strategy's. Of a table whose shards have moved, the new owners are asked (redirect.py).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.peer import Peer
from paddock.ps.client.pulls import Flight, Pull
from paddock.ps.client.redirect import Redirect
from paddock.ps.consistency.positions import Mark, Progress
from paddock.ps.protocol.frames import BODY_MAX, Buffer, Flag, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import (
    DENSE_SHARD_MAX,
    DenseSpec,
    ScheduleSpec,
    SparseSpec,
    TableSpec,
)
from paddock.ps.stream import raw
from paddock.ps.table.sharding import group

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]
STATISTICS, LAST = int(Flag.STATISTICS), int(Flag.LAST)
CONTRIBUTION = int(Flag.CONTRIBUTION)
PARTS_MAX = 0xFFFF  # Header.part
# Rows of one frame: the server applies one while the next is on its way.
ROWS_MAX = 16384
# Elements of a pushed frame of several dense shards, for the same reason.
ELEMENTS_MAX = 1 << 18


@dataclass(slots=True)
class Known:
    """A table this client declared. numbers: what each server calls it. owners: server of shard."""

    spec: TableSpec
    numbers: list[int]
    owners: NDArray[np.int32]
    ahead: Pull | None = None
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowsOf:
    """What is pulled of a sparse table: the rows of distinct keys."""

    known: Known
    spec: SparseSpec
    keys: Keys


@dataclass(frozen=True, slots=True)
class VectorOf:
    """What is pulled of a dense table: its vector, into float32[size]."""

    known: Known
    spec: DenseSpec
    out: Rows


Wanted = RowsOf | VectorOf


class Traffic:
    """Of one client. life: hex digits, of this client and no other.

    tables: those declared, by name. batch: of the trainer, from 0. step: the batch as the servers
    count it, in sync and staleness.
    """

    def __init__(self, peers: list[Peer], life: str) -> None:
        self.peers = peers
        self.life = life
        self.tables: dict[str, Known] = {}
        self.batch = 0
        self.step = 0
        self.progress = Progress(len(peers))
        self.redirect = Redirect(self)
        self._flight: Flight | None = None  # what was asked ahead

    def marks(self) -> list[Mark]:
        """What each server has of this trainer's batches."""
        trainer = str(self.peers[0].identity.trainer)
        asked = [peer.ask(Op.CONTROL, {"do": "progress"})["marks"] for peer in self.peers]
        return [Mark(*marks.get(trainer, ())) for marks in asked]

    def make_room(self, behind: int) -> PaddockError | None:
        """Settle, before a push is cut up: until then its owners may change.

        The error of a server that cannot be reached: the push is queued all the same. Raises the
        other ones.
        """
        try:
            self.settle(behind)
            for peer in self.peers:
                peer.make_room()
        except PaddockError as error:
            if isinstance(error, Refusal) or not error.retryable:
                raise
            return error
        return None

    def reach(self, late: PaddockError | None) -> None:
        """Everything queued is on its way. Raises `late`, else the error of a server that is away;
        what is queued stays so.
        """
        if late is not None:
            raise late
        for peer in self.peers:
            peer.reach()

    def settle(self, behind: int) -> None:
        """Wait until at most the `behind` newest batches have unacknowledged frames.

        With 0, nothing is left unacknowledged.
        """
        count = -1
        while count != self.redirect.count:  # What was sent again may be another server's.
            count = self.redirect.count
            problem: Refusal | None = None
            self.redirect.resume()
            for peer in self.peers:
                try:
                    peer.settle(self.batch + 1 - behind)
                except Refusal as refusal:
                    problem = problem or refusal
            if problem is not None:  # One error for a push, however many servers refuse it.
                raise problem
        self.redirect.settled()

    def prefetch(self, wanted: RowsOf) -> None:
        """Send the requests of a pull; the next one of the same keys takes what comes."""
        self.finish_pulls()
        wanted.known.ahead = self._pull(wanted)
        self._flight = Flight(self.peers, [wanted.known.ahead])

    def finish_pulls(self) -> None:
        """Read what was asked ahead, so that the links are free."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.land()

    def pull(self, wanted: Sequence[Wanted]) -> list[Rows]:
        """Rows, float32[n, dim], and vectors of several tables, in one round trip."""
        self.finish_pulls()
        pulls, fresh = [], []
        for one in wanted:
            pull, one.known.ahead = one.known.ahead, None
            if pull is None or isinstance(one, VectorOf) or not np.array_equal(pull.keys, one.keys):
                pull = self._pull(one)
                fresh.append(pull)
            pulls.append(pull)
        Flight(self.peers, fresh).land()
        return [self._whole(one, pull) for one, pull in zip(wanted, pulls, strict=True)]

    def _pull(self, wanted: Wanted) -> Pull:
        known = wanted.known
        if isinstance(wanted, VectorOf):
            frames = self._dense_frames(known, DENSE_SHARD_MAX)
            return Pull.dense(known.numbers, frames, wanted.out)
        split = self._split(known, wanted.keys)
        return Pull.sparse(known.numbers, wanted.spec, wanted.keys, split)

    def _whole(self, wanted: Wanted, pull: Pull) -> Rows:
        """What a pull has brought; of shards that have moved, from their owners."""
        rows, at, moved = pull.rows(), pull.missing(), pull.moved
        while moved:
            self.redirect.heed(wanted.known, [refusal for _, refusal in moved])
            if isinstance(wanted, RowsOf):
                again = self._pull(replace(wanted, keys=wanted.keys[at]))
            else:
                left = [(request.start, request.stop) for request, _ in moved]
                frames = self.dense_frames(wanted.known, left)
                again = Pull.dense(wanted.known.numbers, frames, wanted.out)
            Flight(self.peers, [again]).land()
            if isinstance(wanted, RowsOf):
                rows[at] = again.rows()
                at = at[again.missing()]
            moved = again.moved
        self.redirect.settled()
        return rows

    def post_sparse(
        self, op: Op, known: Known, distinct: Keys, rows: Rows, extra: list[Rows], flags: int
    ) -> None:
        """Frames of rows to their servers. The arrays are kept until acknowledged."""
        assert isinstance(known.spec, SparseSpec)
        split = self._split(known, distinct)
        if split is not None:
            order, bounds = split
            distinct, rows = distinct[order], rows[order]
            extra = [column[order] for column in extra]
        else:
            bounds = np.array([0, len(distinct)])
        flags |= STATISTICS if extra else 0
        most = min(ROWS_MAX, BODY_MAX // (8 + 4 * known.spec.dim + 4 * len(extra)))
        # A schedule counts batches on every server, also on one that gets no key of this batch.
        counts = op == Op.PUSH and not flags and known.spec.optimizer.schedule != ScheduleSpec()
        for server in range(len(self.peers)):
            start, stop = int(bounds[server]), int(bounds[server + 1])
            is_owed = counts
            while start < stop or is_owed:
                is_owed = False
                end = min(stop, start + most)
                header = Header(
                    op,
                    flags | (LAST if end == stop else 0),
                    known.numbers[server],
                    self.next_part(known, server, flags),
                    end - start,
                    step=self.step,
                )
                body = [raw(distinct[start:end]), raw(rows[start:end])]
                body += [raw(column[start:end]) for column in extra]
                self._post(server, header, *body)
                start = end

    def post_dense(
        self, op: Op, known: Known, values: Rows, flags: int, runs: list[tuple[int, int]]
    ) -> None:
        """Frames of a dense vector's runs to their servers, each of whole shards."""
        flat = np.ascontiguousarray(values.reshape(-1))
        frames = self._dense_frames(known, runs=runs)
        if op == Op.PUSH_DENSE and not flags and known.spec.optimizer.schedule != ScheduleSpec():
            # As in post_sparse: a batch counts on every server.
            left = set(range(len(self.peers))) - {server for *_, server in frames}
            frames += [(0, 0, server) for server in sorted(left)]
        last = {server: start for start, _, server in frames}
        for start, stop, server in frames:
            header = Header(
                op,
                flags | (LAST if last[server] == start else 0),
                known.numbers[server],
                self.next_part(known, server, flags),
                stop - start,
                step=self.step,
            )
            self._post(server, header, start.to_bytes(8, "little"), raw(flat[start:stop]))

    def _post(self, server: int, header: Header, *body: Buffer) -> None:
        """Send it, unless the server has this push from an earlier life of the trainer."""
        if header.op in (Op.PUSH, Op.PUSH_DENSE) and not header.flags & CONTRIBUTION:
            number = self.progress.next_frame(server)
            if number is None:
                return
            header = header._replace(step=number)
        self.peers[server].post(self.batch, header, *body)

    def post_all(self, op: Op, known: Known, data: dict[str, Any], flags: int) -> None:
        """A frame of JSON to every server, among the pushes."""
        for server, peer in enumerate(self.peers):
            header = Header(op, flags, known.numbers[server], step=self.step)
            peer.post(self.batch, header, json.dumps(data).encode())

    def next_part(self, known: Known, server: int, flags: int) -> int:
        """Frames of one table and step are numbered, over all pushes of the step."""
        step, parts = known.parts.get(server, (-1, 0))
        parts = parts + 1 if step == self.step else 0
        if parts > PARTS_MAX and flags & CONTRIBUTION:
            raise UsageError(
                f"table {known.spec.name!r}: more than {PARTS_MAX + 1} frames to server {server} "
                "in one step",
                hint="client.step() after each batch",
            )
        known.parts[server] = self.step, parts
        return parts & PARTS_MAX

    def _split(
        self, known: Known, distinct: Keys
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """(order, bounds): keys in the order of their servers; None for a single server."""
        if len(self.peers) == 1:
            return None
        return group(distinct, known.owners, len(self.peers))

    def _dense_frames(
        self, known: Known, most: int = ELEMENTS_MAX, runs: list[tuple[int, int]] | None = None
    ) -> list[tuple[int, int, int]]:
        """(start, stop, server): whole shards of one server, next to one another, that fit a frame.

        runs: of whole parts, in order; only what lies in them.
        """
        assert isinstance(known.spec, DenseSpec)
        found: list[tuple[int, int, int]] = []
        for owner, (start, stop) in zip(
            known.owners.tolist(), pairwise(known.spec.starts), strict=True
        ):
            at = bisect_right(runs, (start, known.spec.size)) - 1 if runs is not None else 0
            if runs is not None and (at < 0 or start >= runs[at][1]):
                continue
            before = found[-1] if found else (0, -1, -1)
            if before[1:] == (start, owner) and stop - before[0] <= most:
                found[-1] = (before[0], stop, owner)
            elif stop > start:
                found.append((start, stop, owner))
        return found

    def dense_frames(
        self, known: Known, parts: list[tuple[int, int]]
    ) -> list[tuple[int, int, int]]:
        """The same of parts of the vector, each of whole shards."""
        return [
            (max(start, begin), min(stop, end), server)
            for start, stop, server in self._dense_frames(known)
            for begin, end in parts
            if max(start, begin) < min(stop, end)
        ]
