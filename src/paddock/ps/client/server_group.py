"""All servers of a job as one trainer's client has them: pulls, and frames of pushes.

Pulls: all servers are asked, of all tables, before any answer is read, straight into the arrays.
Each server has requests of at most AHEAD_BYTES outstanding, so that its answers never wait behind
requests that nobody reads.

Checks nothing of what a user gave, and decides nothing of when: that is the client's and the
strategy's. Of a table whose shards have moved, the new owners are asked (redirect.py).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

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
    partition_rows,
    partition_vector,
)
from paddock.ps.client.redirect import RetryBudget, handle_moved, resend
from paddock.ps.client.server_connection import ServerConnection, ask_once
from paddock.ps.connection import FrameConnection
from paddock.ps.spec import DENSE_SHARD_MAX, DenseSpec, ScheduleSpec
from paddock.ps.stream import ConnectionClosed, ReadTimeout, raw
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX, HEADER_SIZE, FrameFlag, Header, Op
from paddock.ps.wire.offsets import OffsetMark, OffsetProgress
from paddock.ps.xxh3 import Buffer

STATISTICS, CONTRIBUTION = int(FrameFlag.STATISTICS), int(FrameFlag.CONTRIBUTION)
PARTS_MAX = 0xFFFF  # Header.part
START = bytes(8)  # of a vector
# What the kernel's buffers take even while nobody reads.
AHEAD_BYTES = 256 << 10
# Requests of so many bytes in all are sent before any answer is read.
SMALL_BYTES = 32 << 10
# Keys of one request: half of that, so that one is answered while the next is on its way.
PULL_KEYS_MAX = 16384
# What is pulled: the rows of distinct keys, or a vector, into that array.
Wanted = tuple[RemoteTable, Column]


@dataclass(slots=True)
class PullRequest:
    """A frame to send and where its answer goes.

    start, part: of the pull's keys, or of the vector. rows: those of the part, to be filled.
    refusal: when they did not come, as their shards are another server's now. version: of a vector
    on that server, as it came; of rows: the checkpoints that it has loaded.
    """

    server: int
    start: int
    part: Column
    rows: Column
    header: Header
    body: Buffer
    refusal: RequestError | None = None
    version: int = 0

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return HEADER_SIZE + len(self.body)


class Pull:
    """A pull of rows, by distinct keys, or of a vector from `begin` on, into that array."""

    def __init__(self, remote: RemoteTable, array: Column, begin: int = 0) -> None:
        self.remote = remote
        self.array = array
        # Keys and rows lie in the order of servers; that of the caller is got back by `order`.
        self.order: Keys | None = None
        self.rows, keys, spec = array, array, remote.spec
        if isinstance(spec, DenseSpec):
            stop = begin + len(array)
            op, pieces = Op.PULL_DENSE, partition_vector(remote, [(begin, stop)], DENSE_SHARD_MAX)
        else:
            op, begin = Op.PULL, 0
            self.rows = np.empty((len(array), spec.dim), np.float32)
            most = min(PULL_KEYS_MAX, BODY_MAX // (4 * spec.dim))
            self.order, pieces = partition_rows(remote, array, most)
            if self.order is not None:
                keys = array[self.order]
        self.requests = list[PullRequest]()
        for server, start, stop in pieces:
            part = keys[start - begin : stop - begin]
            header = Header(op, 0, remote.numbers[server], 0, stop - start)
            body = raw(part) if op == Op.PULL else start.to_bytes(8, "little")
            rows = self.rows[start - begin : stop - begin]
            self.requests.append(PullRequest(server, start, part, rows, header, body))

    def versions(self) -> dict[int, int]:
        """The vector's version on each server; none where it changed between two parts of it, or
        where a server is of a release that tells none (0).
        """
        pairs = {(one.server, one.version) for one in self.requests}
        versions = dict(pairs)
        is_whole = len(versions) == len(pairs) and not any(one.refusal for one in self.requests)
        return versions if is_whole and all(versions.values()) else {}

    def result(self) -> Rows:
        """The rows in the caller's order, (n, dim) float32; or the vector."""
        if self.order is None:
            return self.rows
        rows = np.empty_like(self.rows)
        rows[self.order] = self.rows
        return rows


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
                current = peer.link("pull")
                if link is not current:  # Whatever was asked over another one is lost.
                    link, sent, ahead = current, received, 0
                while sent < len(requests):
                    if ahead and ahead + requests[sent].size > AHEAD_BYTES:
                        break
                    link.stream.send(requests[sent].header, requests[sent].body)
                    ahead += requests[sent].size
                    sent += 1
                yield
                answer, _ = link.receive(raw(requests[received].rows))
                requests[received].version = answer.step
                deadline = time.monotonic() + peer.timeout
            except (ConnectionClosed, ReadTimeout) as error:
                peer.lost("pull", error, deadline)
                peer.retry("pull", lambda link: None)
                continue
            except RequestError as refusal:
                if refusal.code != "moved":
                    raise
                requests[received].refusal = refusal
            ahead -= requests[received].size
            received += 1
    finally:
        if received < len(requests):
            peer.drop("pull")  # Answers that nobody has read would be taken for others.


def run_pulls(peers: Sequence[ServerConnection], pulls: Sequence[Pull]) -> Iterator[None]:
    """Have the pulls answered in one round trip, however many tables and servers; after the first
    turn they are on their way.

    Raises RequestError, but for shards that have moved; PaddockError.
    """
    asked: dict[int, list[PullRequest]] = {}
    for pull in pulls:
        for request in pull.requests:
            asked.setdefault(request.server, []).append(request)
    runs, ended = [_run(peers[server], mine) for server, mine in asked.items()], object()
    try:
        while runs:
            runs = [run for run in runs if next(run, ended) is not ended]
            yield
    finally:
        for run in runs:
            run.close()


class ServerGroup:
    """The servers of one client. session_nonce: hex digits, of this client and no other.

    tables: those declared, by name. batch: of the trainer, from 0. step: the batch as the servers
    count it, in sync and staleness. ended: passes that this trainer is through with, to be said
    with the next step of sync. all_ended: those that each trainer had said by the last one.
    """

    def __init__(self, peers: list[ServerConnection], session_nonce: str) -> None:
        self.peers = peers
        self.session_nonce = session_nonce
        self.tables: dict[str, RemoteTable] = {}
        self.batch = 0
        self.step = 0
        self.ended = 0
        self.all_ended: dict[int, int] = {}
        self.progress = OffsetProgress(len(peers))
        self._flight: Iterator[None] | None = None  # what was asked ahead
        self._loads: dict[int, int] = {}  # by server
        self.loads = 0  # another number when a server is known to have loaded a checkpoint

    def marks(self, of: int | None = None) -> list[OffsetMark]:
        """The progress that each server has of a trainer's batches; of this one by default."""
        trainer = str(self.peers[0].identity.trainer if of is None else of)
        asked = [peer.ask(Op.CONTROL, {"do": "progress"})["marks"] for peer in self.peers]
        return [OffsetMark(*marks.get(trainer, ())) for marks in asked]

    def note_loads(self, server: int, loads: int) -> None:
        """A server has loaded so many checkpoints, as it says; 0: an older one, which does not."""
        if loads and self._loads.get(server) != loads:
            self._loads[server] = loads
            self.loads += 1

    def ask_loads(self) -> None:
        """Ask each server which checkpoints it has loaded."""
        for peer in self.peers:
            progress = peer.ask(Op.CONTROL, {"do": "progress"})
            self.note_loads(peer.index, progress.get("loads", 0))

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
            if peer.unacknowledged and "push" not in peer.links:
                peer.resend()

    def wait_acked(self, behind: int) -> None:
        """Wait until at most the `behind` newest batches have unacknowledged frames, and few.

        With 0, nothing is left unacknowledged.
        """
        problem: RequestError | None = None
        patience: RetryBudget | None = None
        has_moved = True
        while has_moved:  # What is sent again may be another server's once more.
            has_moved = False
            for peer in self.peers:
                try:
                    peer.wait_acked(self.batch + 1 - behind)
                except RequestError as refusal:
                    problem = problem or refusal
                has_moved = has_moved or bool(peer.moved)
            if has_moved:
                patience = patience or RetryBudget(self.peers[0].timeout)
                resend(self, patience)
        if problem is not None:  # One error for a push, however many servers refuse it.
            raise problem

    def prefetch(self, remote: RemoteTable, keys: Keys) -> None:
        """Send the requests of a pull of keys, (n,); the next one of these takes what comes."""
        self.finish_pulls()
        pull = Pull(remote, keys)
        self._flight = run_pulls(self.peers, [pull])
        next(self._flight, None)
        remote.ahead = pull

    def forget_pulls(self) -> None:
        """Drop what was asked ahead: the next pull asks anew."""
        self.finish_pulls()
        for remote in self.tables.values():
            remote.ahead = None

    def finish_pulls(self) -> None:
        """Read what was asked ahead, so that the links are free."""
        flight, self._flight = self._flight, None
        try:
            for _ in flight or ():
                pass
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
                    into = raw(one.rows)
                    asked.append((self.peers[one.server], "pull", one.header, one.body, into))
                    size += len(one.body)
            pulls.append(pull)
        answers = None if size > SMALL_BYTES else ask_once(asked)
        if answers is None:
            for _ in run_pulls(self.peers, fresh):
                pass
        else:
            sent = (request for pull in fresh for request in pull.requests)
            for request, answer in zip(sent, answers, strict=True):
                request.version = answer.step
        found, patience = list[Rows](), None
        for pull in pulls:
            if isinstance(pull.remote.spec, DenseSpec):
                pull.remote.versions = pull.versions()
            else:
                for one in pull.requests:
                    self.note_loads(one.server, one.version)
            while refused := [one for one in pull.requests if one.refusal is not None]:
                patience = patience or RetryBudget(self.peers[0].timeout)
                refusals = [one.refusal for one in refused if one.refusal is not None]
                handle_moved(self, pull.remote, refusals, patience)
                parts = [Pull(pull.remote, one.part, one.start) for one in refused]
                for _ in run_pulls(self.peers, parts):
                    pass
                for one, part in zip(refused, parts, strict=True):
                    one.rows[:] = part.result()
                    # All of it is asked for once more.
                    one.refusal = next((two.refusal for two in part.requests if two.refusal), None)
            found.append(pull.result())
        return found

    def has_version(self, remote: RemoteTable, versions: Mapping[int, int]) -> bool:
        """True if each server has a vector as it was then: a question to each, in one round trip.

        versions: a RemoteTable's.
        """
        self.finish_pulls()
        none = [(server, Header(Op.PULL_DENSE, 0, remote.numbers[server])) for server in versions]
        asked = [(self.peers[server], "pull", header, START, None) for server, header in none]
        answers = ask_once(asked) if asked else None
        return answers is not None and [one.step for one in answers] == list(versions.values())

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
