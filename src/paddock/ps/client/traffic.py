"""What goes between one trainer and all servers of its job: pulls, and frames of pushes.

Checks nothing of what a user gave, and decides nothing of when: that is the client's and the
strategy's. Of a table whose shards have moved, the new owners are asked (redirect.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.peer import Peer, ask_once
from paddock.ps.client.pieces import LAST, Column, Keys, Known, Rows, Runs, cut, frames
from paddock.ps.client.pulls import SMALL_BYTES, Flight, Pull
from paddock.ps.client.redirect import Patience, heed, resume
from paddock.ps.consistency.positions import Mark, Progress
from paddock.ps.spec import ScheduleSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Flag, Header, Op

STATISTICS, CONTRIBUTION = int(Flag.STATISTICS), int(Flag.CONTRIBUTION)
PARTS_MAX = 0xFFFF  # Header.part
# What is pulled: the rows of distinct keys, or a vector, into that array.
Wanted = tuple[Known, Column]


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
        self._flight: Flight | None = None  # what was asked ahead

    def marks(self, of: int | None = None) -> list[Mark]:
        """What each server has of a trainer's batches; this one's by default."""
        trainer = str(self.peers[0].identity.trainer if of is None else of)
        asked = [peer.ask(Op.CONTROL, {"do": "progress"})["marks"] for peer in self.peers]
        return [Mark(*marks.get(trainer, ())) for marks in asked]

    @contextmanager
    def room(self, behind: int) -> Iterator[None]:
        """Settle, before a push is cut up: until then its owners may change. After it, have it on
        its way.

        The error of a server that cannot be reached comes when the push is queued; it stays so.
        Raises the other ones before.
        """
        late: PaddockError | None = None
        try:
            self.settle(behind)
        except PaddockError as error:
            if isinstance(error, RequestError) or not error.retryable:
                raise
            late = error
        yield
        if late is not None:
            raise late
        for peer in self.peers:
            peer.reach()

    def settle(self, behind: int) -> None:
        """Wait until at most the `behind` newest batches have unacknowledged frames, and few.

        With 0, nothing is left unacknowledged.
        """
        problem: RequestError | None = None
        patience = Patience(self.peers[0].timeout)
        while True:
            resume(self, patience)
            for peer in self.peers:
                try:
                    peer.settle(self.batch + 1 - behind)
                except RequestError as refusal:
                    problem = problem or refusal
            if not any(peer.moved for peer in self.peers):
                break  # Else what is sent again may be another server's once more.
        if problem is not None:  # One error for a push, however many servers refuse it.
            raise problem

    def prefetch(self, known: Known, keys: Keys) -> None:
        """Send the requests of a pull; the next one of the same keys takes what comes."""
        self.finish_pulls()
        pull = Pull(known, keys)
        self._flight = Flight(self.peers, [pull])
        known.ahead = pull

    def finish_pulls(self) -> None:
        """Read what was asked ahead, so that the links are free."""
        flight, self._flight = self._flight, None
        try:
            if flight is not None:
                flight.land()
        except BaseException:
            for known in self.tables.values():
                known.ahead = None  # Its rows have not all come.
            raise

    def pull(self, wanted: Sequence[Wanted]) -> list[Rows]:
        """Rows, float32[n, dim], and vectors of several tables, in one round trip."""
        self.finish_pulls()
        pulls, fresh = [], []
        for known, array in wanted:
            pull, known.ahead = known.ahead, None
            if pull is None or not np.array_equal(pull.array, array):
                pull = Pull(known, array)
                fresh.append(pull)
            pulls.append(pull)
        asked = [
            (self.peers[one.server], "pull", one.header, one.body, one.into)
            for pull in fresh
            for one in pull.requests
        ]
        if sum(len(one[3]) for one in asked) > SMALL_BYTES or not ask_once(asked):
            Flight(self.peers, fresh).land()
        patience = Patience(self.peers[0].timeout)
        for pull in pulls:
            while moved := pull.moved():
                heed(self, pull.known, moved, patience)
                pull.ask_again()
                Flight(self.peers, [pull]).land()
        return [pull.rows() for pull in pulls]

    def post(
        self, op: Op, known: Known, columns: list[Column], flags: int = 0, runs: Runs | None = None
    ) -> None:
        """Frames of rows, or of a vector's runs, to their servers. Kept until acknowledged."""
        columns, pieces = cut(known, columns, runs)
        if op == Op.PUSH and not flags and known.spec.optimizer.schedule != ScheduleSpec():
            # It counts batches on every server, also on one that gets nothing of this batch.
            left = set(range(len(self.peers))) - {server for server, *_ in pieces}
            pieces += [(server, 0, 0) for server in sorted(left)]
        flags |= STATISTICS if len(columns) > 2 else 0
        for server, header, body in frames(known, op, columns, pieces, flags | LAST):
            part, step = self.next_part(known, server, flags), self.step
            if op == Op.PUSH and not flags & CONTRIBUTION:
                number = self.progress.next_frame(server)
                if number is None:
                    continue  # The server has it from an earlier life of the trainer.
                step = number
            self.peers[server].post(self.batch, header._replace(part=part, step=step), *body)

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
