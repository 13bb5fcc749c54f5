"""A worker's batches: takes leases of chunks, reads them, and says how far it is.

Asking for the next batch means that the one before was used. What was used is committed as the
worker's offset; a chunk is reported done when the offset behind its last record is durable. So
whatever dies, a record is below the offset, or is read again.

Batches follow from leases alone, never from time: another incarnation that holds the same leases
cuts the same batches. A batch goes on in the next chunk, unless one of the two leases says `alone`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from paddock.data.dispatch.messages import (
    LEASES_MAX,
    AskProgress,
    ChunkLease,
    Differs,
    Failed,
    Granted,
    LeaseResult,
    Over,
    PassPlan,
    Poll,
    ProgressReport,
    RegisterWorker,
    Rejoin,
    ReleaseChunks,
)
from paddock.errors import PaddockError, UsageError

if TYPE_CHECKING:
    from paddock.data.dispatch.clients import LocalDispatcher, SharedDispatcher

# What reading and parsing data may raise; anything else is a bug, and ends the program.
UNREADABLE = (PaddockError, OSError, ValueError, EOFError)
# (number of the chunk, records to skip) -> its other records in parts, none of them empty: lists,
# or whatever else has a length and can be sliced.
Read = Callable[[int, int], Iterator[Sequence[Any]]]


@dataclass(slots=True)
class ActiveLease:
    """A lease in work. read, used, kept: records of the chunk that are in batches, in batches that
    were used, in durable offsets. end: None while there is more, "" behind its last
    record, else why the next one cannot be read."""

    lease: ChunkLease
    read: int
    used: int
    kept: int
    end: str | None = None
    source: Iterator[Sequence[Any]] | None = None
    ahead: Sequence[Any] = ()

    def rewind(self, to: int) -> None:
        """The chunk is read again from record `to` on."""
        self.read, self.end, self.source, self.ahead = to, None, None, ()


class Span(NamedTuple):
    """Records `start` to `stop` of the chunk of a lease."""

    number: int
    start: int
    stop: int


@dataclass(slots=True)
class LeasedBatch:
    """A batch and where its records are from. parts: the records, as they were read. offset: of
    the worker behind it, all that another incarnation needs: what is used of leases in work."""

    parts: list[Sequence[Any]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    batch: Any = None
    offset: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many records."""
        return sum(map(len, self.parts))


def flat(parts: list[Sequence[Any]]) -> list[Any]:
    """The records of all parts.

    >>> flat([["a", "b"], ["c"]])
    ['a', 'b', 'c']
    """
    return [record for part in parts for record in part]


class LeasedBatches:
    """The batches of one worker. make: of records, a batch. name: of a chunk, for people."""

    def __init__(
        self,
        port: LocalDispatcher | SharedDispatcher,
        plan: PassPlan,
        read: Read,
        batch_size: int,
        *,
        make: Callable[[list[Sequence[Any]]], Any] = flat,
        name: Callable[[int], str] = str,
    ) -> None:
        self.port = port
        self.plan = plan
        self.pass_ = 0
        self.is_ended = False
        self._read = read
        self._size = batch_size
        self._make = make
        self._name = name
        self._has_begun = False
        self._held: dict[int, ActiveLease] = {}
        self._committed: dict[str, Any] | None = None
        self._latest: LeasedBatch | None = None

    # ------------------------------------------------------------------------------- begin, end

    def begin(self) -> None:
        """Registers the worker, once: it goes on where it, or its incarnation before, was."""
        if self._has_begun:
            return
        seen = self.port.seen()
        port = self.port
        reply = port.ask(RegisterWorker(port.worker, port.incarnation, self.plan, seen))
        if isinstance(reply, Differs):
            held = reply.held
            raise UsageError(
                f"other data are being read: {held.chunks} chunks ({held.digest}, seed "
                f"{held.seed}), these are {self.plan.chunks} ({self.plan.digest}, seed "
                f"{self.plan.seed})",
                hint="name the same files in every worker, and in every life until the pass is "
                "over; two sets of data in one job need two names: stream(..., name=)",
            )
        assert isinstance(reply, Granted)
        self._has_begun = True
        self.pass_ = reply.pass_ + (reply.is_over and not reply.leases)
        self.is_ended = 0 < self.plan.passes <= self.pass_
        for lease in reply.leases:
            self._hold(lease, seen.get(lease.number, 0))
        self.port.resume(exactly=not reply.leases_revoked)

    def _hold(self, lease: ChunkLease, done: int = 0) -> None:
        if lease.number not in self._held:
            start = max(lease.start, done)
            self._held[lease.number] = ActiveLease(lease, start, start, start)

    def leave(self) -> None:
        """Gives back the leases that are not done; the worker may begin again later."""
        if not self._has_begun:
            return
        self._has_begun = False
        self._keep(wanted=True)
        seen = {number: held.kept for number, held in self._held.items()}
        self._held.clear()
        self._latest = None
        self.port.ask(ReleaseChunks(self.port.worker, self.port.incarnation, seen))

    # ---------------------------------------------------------------------------------- batches

    def items(self) -> Iterator[LeasedBatch | None]:
        """The batches of one pass that this worker gets. Whoever takes them says what it used.

        None: before the next one comes, use all that was given. The dispatcher is asked only
        then, so that what it is told never depends on how far somebody reads ahead.
        """
        self.begin()
        self._latest = None
        for held in self._held.values():  # What a loop was left with was not used.
            if held.read != held.used:
                held.rewind(held.used)
        while not self.is_ended and (item := (yield from self._next())) is not None:
            yield item
        self.pass_ += not self.is_ended
        self.is_ended = self.is_ended or 0 < self.plan.passes <= self.pass_

    def batches(self) -> Iterator[Any]:
        """The batches of `items`; to ask for the next one says that the one before was used."""
        for item in self.items():
            assert item is not None, "each was used before the next"
            self._latest = item
            yield item.batch
            self.use_latest()
            self._keep(wanted=False)

    def use(self, item: LeasedBatch) -> None:
        """The batch is trained, in this process: note it. In the order of the batches."""
        for span in item.spans:
            self._held[span.number].used = span.stop
        if item.offset != self._committed:
            self.port.commit_offset(item.offset)
            self._committed = item.offset

    def use_latest(self) -> None:
        """The batch that was asked for last is trained."""
        item, self._latest = self._latest, None
        if item is not None:
            self.use(item)

    def _next(self) -> Generator[None, None, LeasedBatch | None]:
        """The next batch, None when the pass is over. Yields as items() does."""
        while (item := (yield from self._gather())) is not None:
            try:
                item.batch = self._make(item.parts)
                # No lease ends before it is used: the dispatcher is asked behind that.
                held = [h for _, h in sorted(self._held.items()) if h.read > h.lease.start]
                seen = [[h.lease.number, h.read] for h in held]
                item.offset = {"pass": self.pass_, "open": seen}
                return item
            except UNREADABLE as error:
                self._fail(item, _reason(error))
        return None

    def _gather(self) -> Generator[None, None, LeasedBatch | None]:
        """The records of the next batch, None when the pass is over. Yields as items() does."""
        item, idle = LeasedBatch(), 0
        while item.size < self._size:
            held = next((h for h in self._held.values() if h.end is None), None)
            if held is not None:
                last = self._held[item.spans[-1].number] if item.parts else held
                if last is not held and (last.lease.alone or held.lease.alone):
                    break  # The batch must not go on in this chunk.
                self._take(held, item)
                continue
            if item.parts and len(self._held) >= LEASES_MAX:
                break
            while self._is_behind(item):
                yield None
            asked = self._poll()
            if asked is None:
                return None
            if asked:
                idle = 0
            elif item.parts:
                break
            else:
                self.port.idle(idle)
                idle += 1
        return item

    def _is_behind(self, item: LeasedBatch) -> bool:
        """True when batches before this one were handed out and are not used yet."""
        begins = {span.number: span.start for span in item.spans}
        return any(h.used < begins.get(n, h.read) for n, h in self._held.items())

    def _take(self, held: ActiveLease, item: LeasedBatch) -> None:
        """Move records of a chunk into the batch: all that are read, or those that fit."""
        try:
            if held.source is None:
                held.source = self._read(held.lease.chunk, held.read)
            if not held.ahead:
                held.ahead = next(held.source, ())
                if not held.ahead:
                    held.end = ""
        except UNREADABLE as error:
            held.end = _reason(error)
        taken = held.ahead[: self._size - item.size]
        if not taken:
            return
        held.ahead = held.ahead[len(taken) :]
        start = held.read
        held.read += len(taken)
        item.parts.append(taken)
        if item.spans and item.spans[-1].number == held.lease.number:
            start = item.spans.pop().start
        item.spans.append(Span(held.lease.number, start, held.read))

    def _fail(self, item: LeasedBatch, reason: str) -> None:
        """The batch cannot be made. Its chunks end before it, and are tried again one by one."""
        for span in item.spans:
            held = self._held[span.number]
            held.rewind(span.start)
            held.end = reason

    # ------------------------------------------------------------------------------ the dispatcher

    def _keep(self, *, wanted: bool) -> None:
        if self.port.keep(wanted=wanted):
            for held in self._held.values():
                held.kept = held.used

    def _poll(self) -> bool | None:
        """Report what has ended and ask for one more; whether there is one, None: pass over."""
        ended = [h for h in self._held.values() if h.end is not None and h.used == h.read]
        self._keep(wanted=bool(ended))
        ended = [held for held in ended if held.kept == held.read]
        reports = tuple(LeaseResult(h.lease.number, h.read, h.end or "") for h in ended)
        for held in ended:
            del self._held[held.lease.number]
        port, hold = self.port, min(len(self._held) + 1, LEASES_MAX)
        poll = Poll(port.worker, port.incarnation, self.plan.digest, self.pass_, reports, hold)
        reply = port.ask(poll)
        while isinstance(reply, AskProgress):
            seen = port.seen_of(reply.worker)
            port.ask(ProgressReport(reply.worker, reply.incarnation, seen))
            reply = port.ask(poll)
        if isinstance(reply, Over):
            self.is_ended = self.is_ended or reply.is_last
            return None
        if isinstance(reply, Granted):
            fresh = [lease for lease in reply.leases if lease.number not in self._held]
            for lease in fresh:
                self._hold(lease)
            return bool(fresh)
        if isinstance(reply, Failed):
            names = [
                f"{self._name(a.chunk)} from record {a.start} on: {a.reason}" for a in reply.aside
            ]
            raise PaddockError(
                f"chunks of data could not be read: {len(names)}, {self.plan.aside} are allowed: "
                + "; ".join(names),
                hint="mend or remove them; aside=N goes on without N of them",
            )
        if isinstance(reply, Rejoin):
            raise PaddockError(
                f"the dispatcher does not know worker {self.port.worker} in pass {self.pass_} any "
                "more: a checkpoint was loaded, or other data were begun",
                hint="make the stream after client.load(), and read it to the end of its pass",
            )
        return False


def _reason(error: BaseException) -> str:
    return getattr(error, "message", "") or f"{type(error).__name__}: {error}"


def records_by_lease(offset: object) -> dict[int, int]:
    """Records done by lease, of an offset; {} for none, and for one of another program."""
    if not isinstance(offset, Mapping) or not isinstance(offset.get("open"), list):
        return {}
    return {int(number): int(records) for number, records in offset["open"]}
