"""All servers of a job as one trainer's client has them: pulls, and frames of pushes.

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
from paddock.ps.client.partition import (
    LAST,
    Column,
    Keys,
    RemoteTable,
    Rows,
    Runs,
    frames,
    partition,
)
from paddock.ps.client.pulls import SMALL_BYTES, Pull, PullBatch
from paddock.ps.client.redirect import RetryBudget, handle_moved, resend
from paddock.ps.client.server_connection import ServerConnection, ask_once
from paddock.ps.spec import ScheduleSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from paddock.ps.wire.offsets import OffsetMark, OffsetProgress

STATISTICS, CONTRIBUTION = int(FrameFlag.STATISTICS), int(FrameFlag.CONTRIBUTION)
PARTS_MAX = 0xFFFF  # Header.part
# What is pulled: the rows of distinct keys, or a vector, into that array.
Wanted = tuple[RemoteTable, Column]


class ServerGroup:
    """The servers of one client. session_nonce: hex digits, of this client and no other.

    tables: those declared, by name. batch: of the trainer, from 0. step: the batch as the servers
    count it, in sync and staleness.
    """

    def __init__(self, peers: list[ServerConnection], session_nonce: str) -> None:
        self.peers = peers
        self.session_nonce = session_nonce
        self.tables: dict[str, RemoteTable] = {}
        self.batch = 0
        self.step = 0
        self.progress = OffsetProgress(len(peers))
        self._flight: PullBatch | None = None  # what was asked ahead

    def marks(self, of: int | None = None) -> list[OffsetMark]:
        """The progress that each server has of a trainer's batches; of this one by default."""
        trainer = str(self.peers[0].identity.trainer if of is None else of)
        asked = [peer.ask(Op.CONTROL, {"do": "progress"})["marks"] for peer in self.peers]
        return [OffsetMark(*marks.get(trainer, ())) for marks in asked]

    @contextmanager
    def room(self, behind: int) -> Iterator[None]:
        """Settle, before a push is cut up: until then its owners may change. After it, have it on
        its way.

        The error of a server that cannot be reached comes when the push is queued; it stays so.
        Raises the other ones before.
        """
        late: PaddockError | None = None
        try:
            self.wait_acked(behind)
        except PaddockError as error:
            if isinstance(error, RequestError) or not error.retryable:
                raise
            late = error
        yield
        if late is not None:
            raise late
        for peer in self.peers:
            peer.reach()

    def wait_acked(self, behind: int) -> None:
        """Wait until at most the `behind` newest batches have unacknowledged frames, and few.

        With 0, nothing is left unacknowledged.
        """
        problem: RequestError | None = None
        patience = RetryBudget(self.peers[0].timeout)
        while True:
            resend(self, patience)
            for peer in self.peers:
                try:
                    peer.wait_acked(self.batch + 1 - behind)
                except RequestError as refusal:
                    problem = problem or refusal
            if not any(peer.moved for peer in self.peers):
                break  # Else what is sent again may be another server's once more.
        if problem is not None:  # One error for a push, however many servers refuse it.
            raise problem

    def prefetch(self, remote: RemoteTable, keys: Keys) -> None:
        """Send the requests of a pull of keys, (n,); the next one of these takes what comes."""
        self.finish_pulls()
        pull = Pull(remote, keys)
        self._flight = PullBatch(self.peers, [pull])
        remote.ahead = pull

    def finish_pulls(self) -> None:
        """Read what was asked ahead, so that the links are free."""
        flight, self._flight = self._flight, None
        try:
            if flight is not None:
                flight.finish()
        except BaseException:
            for remote in self.tables.values():
                remote.ahead = None  # Its rows have not all come.
            raise

    def pull(self, wanted: Sequence[Wanted]) -> list[Rows]:
        """Rows, float32[n, dim], and vectors of several tables, in one round trip."""
        if self._flight is not None:
            self.finish_pulls()
        pulls, fresh, asked, size = list[Pull](), list[Pull](), [], 0
        for remote, array in wanted:
            pull, remote.ahead = remote.ahead, None
            if pull is None or not np.array_equal(pull.array, array):
                pull = Pull(remote, array)
                fresh.append(pull)
                for one in pull.requests:
                    asked.append((self.peers[one.server], "pull", one.header, one.body, one.into))
                    size += len(one.body)
            pulls.append(pull)
        if size > SMALL_BYTES or not ask_once(asked):
            PullBatch(self.peers, fresh).finish()
        found, patience = list[Rows](), None
        for pull in pulls:
            while pull.refused:
                patience = patience or RetryBudget(self.peers[0].timeout)
                handle_moved(self, pull.remote, [no for _, no in pull.refused], patience)
                pull.ask_again()
                PullBatch(self.peers, [pull]).finish()
            found.append(pull.rows if pull.order is None else pull.in_order())
        return found

    def post(
        self,
        op: Op,
        remote: RemoteTable,
        columns: list[Column],
        flags: int = 0,
        runs: Runs | None = None,
    ) -> None:
        """Frames of rows, keys (n,), or of a vector's runs, to servers; kept until acknowledged."""
        columns, pieces = partition(remote, columns, runs)
        if op == Op.PUSH and not flags and remote.spec.optimizer.schedule != ScheduleSpec():
            # It counts batches on every server, also on one that gets nothing of this batch.
            left = set(range(len(self.peers))) - {server for server, *_ in pieces}
            pieces += [(server, 0, 0) for server in sorted(left)]
        flags |= STATISTICS if len(columns) > 2 else 0
        for server, header, body in frames(remote, op, columns, pieces, flags | LAST):
            part, step = self.next_part(remote, server, flags), self.step
            if op == Op.PUSH and not flags & CONTRIBUTION:
                number = self.progress.next_frame(server)
                if number is None:
                    continue  # The server has it from an earlier incarnation of the trainer.
                step = number
            self.peers[server].post(self.batch, header._replace(part=part, step=step), *body)

    def post_all(self, op: Op, remote: RemoteTable, data: dict[str, Any], flags: int) -> None:
        """A frame of JSON to every server, among the pushes."""
        for server, peer in enumerate(self.peers):
            header = Header(op, flags, remote.numbers[server], step=self.step)
            peer.post(self.batch, header, json.dumps(data).encode())

    def next_part(self, remote: RemoteTable, server: int, flags: int) -> int:
        """Frames of one table and step are numbered, over all pushes of the step."""
        step, parts = remote.parts.get(server, (-1, 0))
        parts = parts + 1 if step == self.step else 0
        if parts > PARTS_MAX and flags & CONTRIBUTION:
            raise UsageError(
                f"table {remote.spec.name!r}: more than {PARTS_MAX + 1} frames to server {server} "
                "in one step",
                hint="client.step() after each batch",
            )
        remote.parts[server] = self.step, parts
        return parts & PARTS_MAX
