"""Check, log, apply, acknowledge: the one way by which a server's state changes.

The log is written before the state changes, so whatever was acknowledged can be replayed. Records
of one table are in the log in the order in which they are carried out, because its locks are held
in turn (tables.py); `order` makes the same true for what belongs to the whole server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple

from paddock.errors import PaddockError
from paddock.ps.group.messages import Output
from paddock.ps.replication.replication import Replication
from paddock.ps.server.log_record import LogRecord
from paddock.ps.server.records import make_record
from paddock.ps.server.store import Store
from paddock.ps.storage.log import RecordLog
from paddock.ps.stream import ConnectionClosed
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from paddock.ps.wire.windows import SequenceStatus

Ack = Literal["memory", "log", "disk", "replica"]
REPEATED = int(FrameFlag.REPEATED)


class WriteResult(NamedTuple):
    """flags: of the answer. answer: what it says. outputs: what the coordinator has to say."""

    flags: int
    answer: dict[str, Any] | None
    outputs: list[Output]


class Engine:
    """A store and its log. clock: seconds since 1970, read once for each record."""

    def __init__(
        self, store: Store, log: RecordLog | None, ack: Ack, clock: Callable[[], float] = time.time
    ) -> None:
        self.store = store
        self.log = log
        self.ack = ack
        self.clock = clock
        self.lsn = log.last if log is not None else 0
        self.replication = Replication()
        self.order = threading.Lock()
        self.broken = ""  # why the server must end

    def write(self, record: LogRecord) -> WriteResult:
        """A record is carried out once, and as durable as --ack (Kafka: acks) says on return.

        Raises RequestError when it is not carried out: then nothing has changed.
        """
        if self.broken:
            raise ConnectionClosed(self.broken)
        record.header = record.header._replace(stamp=self.clock())
        term = self.replication.may_write()
        locks = record.locks(self.store)
        with ExitStack() as rows, ExitStack() as writes:
            for lock in locks:
                writes.enter_context(lock.writes)
            try:
                logged = self._log(record, term, has_locks=bool(locks))
            except PaddockError:
                self.replication.may_write()  # The judgement of one that was primary is none.
                raise
            if isinstance(logged, WriteResult):
                written = logged
            else:
                for lock in locks:
                    rows.enter_context(lock.rows)
                if record.overlapping:
                    writes.close()
                if self.broken:  # Behind a record that could not be carried out.
                    raise ConnectionClosed(self.broken)
                (lsn, outputs), answer = logged, None
                try:
                    record.apply(self.store, lsn)
                    if not record.overlapping:  # A push takes the bytes it was checked for.
                        # COMMIT holds the locks of all tables.
                        self.store.recount_bytes(at_once=record.header.op == Op.COMMIT)
                        answer = record.answer(self.store)
                except Exception as error:
                    raise self._breaks(record, error) from error
                written = WriteResult(0, answer, outputs)
        # A repeat waits too: what it repeats may not be safe yet.
        if self.ack == "replica":
            self.replication.replicated(self.lsn, term)
        elif self.ack == "disk" and self.log is not None:
            self.log.wait_durable(self.lsn)
        return written

    def check_serving(self) -> None:
        """Raises RequestError on a replica, and on a primary whose lease has run out;
        ConnectionClosed on a server that is ending, whose rows may be changed in part."""
        if self.broken:
            raise ConnectionClosed(self.broken)
        if not self.replication.may_serve():
            raise self.replication.refusal()

    def _log(
        self, record: LogRecord, term: int, *, has_locks: bool
    ) -> WriteResult | tuple[int, list[Output]]:
        """A record that was carried out before gets its acknowledgement; any other is logged now.

        Nobody else writes to its tables. What needs no table's lock (a skipped number, a new
        incarnation, a table with this name) may come between the check and the log.
        """
        store, header = self.store, record.header
        if header.sequence and self._is_repeat(header):
            return WriteResult(REPEATED, None, [])
        record.check(store)
        with self.order:
            if self.replication.may_write() != term:
                raise RequestError("not-primary", "another server was the primary meanwhile")
            if header.sequence and self._is_repeat(header):
                return WriteResult(REPEATED, None, [])
            if not has_locks:
                record.check(store)
            if not record.numbered and record.is_done(store):
                return WriteResult(REPEATED, record.answer(store), [])
            lsn = self.append(record)
            try:
                self.replication.appended()
                return lsn, store.apply_meta(lsn, record)
            except Exception as error:
                raise self._breaks(record, error) from error

    def _breaks(self, record: LogRecord, error: Exception) -> ConnectionClosed:
        """A logged record must be carried out. When it is not, no client is refused, for the next
        start does it; no other may be, and the server ends (main.py)."""
        what, op = f"{type(error).__name__}: {error}", record.header.op
        self.broken = f"record {self.lsn} (op {op}) could not be carried out: {what}"
        return ConnectionClosed(self.broken)

    def record(self, op: Op, data: dict[str, Any], **fields: int) -> WriteResult:
        """Write a record that this server makes itself. fields: of its header."""
        return self.write(make_record(Header(op, **fields), json.dumps(data).encode()))

    def _is_repeat(self, header: Header) -> bool:
        if header.incarnation > self.store.incarnations.get(header.trainer, (-1, ""))[0]:
            raise RequestError(
                "fenced", f"trainer {header.trainer} has not begun as this incarnation"
            )
        verdict = self.store.windows.check(header.trainer, header.incarnation, header.sequence)
        if verdict is SequenceStatus.FRESH:
            return False
        if verdict is SequenceStatus.REPEAT:
            return True
        raise RequestError(
            "fenced",
            f"trainer {header.trainer}: push {header.sequence} of incarnation "
            f"{header.incarnation} is refused: {verdict.value}",
            hint="is another process running as this trainer? each needs its own PADDLE_TRAINER_ID",
        )

    def append(self, record: LogRecord, *, is_sealed: bool = False) -> int:
        """The lsn of a record, now in the log; `order` is held. Raises RequestError.

        is_sealed: its header is that of the primary's log, with the checksum.
        """
        if self.log is None:
            self.lsn += 1
            return self.lsn
        try:
            self.lsn = self.log.append(record.header, record.body, is_sealed=is_sealed)
        except PaddockError as error:
            raise RequestError("disk", error.message, hint=error.hint) from error
        return self.lsn

    def make_durable(self) -> None:
        """Wait until every record so far is on the disk, and where a replica counts, with it."""
        lsn, term = self.newest_lsn(), self.replication.may_write()
        if self.log is not None:
            self.log.wait_durable(lsn)
        if self.ack == "replica":
            self.replication.replicated(lsn, term)

    def newest_lsn(self) -> int:
        """The newest record. With a table's lock held, all of the table's up to it are applied."""
        with self.order:
            return self.lsn

    @contextmanager
    def at_rest(self) -> Iterator[int]:
        """Between two records, with every table applied up to the lsn that this gives."""
        with ExitStack() as held:
            while True:
                tables = list(self.store.tables)
                for one in tables:
                    held.enter_context(one.lock)
                held.enter_context(self.order)
                if len(tables) == len(self.store.tables):
                    break
                held.close()  # One was made meanwhile: what was pushed to it may not be applied.
            yield self.lsn
