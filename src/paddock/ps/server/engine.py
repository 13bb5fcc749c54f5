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
from paddock.ps.replication.replication import NotReplicated, Replication
from paddock.ps.server import checks
from paddock.ps.server.bodies import Body
from paddock.ps.server.store import Store
from paddock.ps.storage.log import RecordLog
from paddock.ps.stream import ConnectionClosed
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from paddock.ps.wire.windows import SequenceStatus

Ack = Literal["memory", "log", "disk", "replica"]
REPEATED = int(FrameFlag.REPEATED)
# While one of them is carried out, the next one of its table may be checked and logged.
OVERLAPPING = (Op.PUSH, Op.PUSH_DENSE)


class WriteResult(NamedTuple):
    """flags: of the answer. answer: what it says. outputs: what the coordinator has to say."""

    flags: int
    answer: dict[str, Any] | None
    outputs: list[Output]


class Logged(NamedTuple):
    """A record that is to be carried out. lr: of an update by it."""

    lsn: int
    header: Header
    body: Body
    lr: float
    outputs: list[Output]


class Engine:
    """A store and its log. clock: seconds since 1970, read once for each record."""

    def __init__(
        self,
        store: Store,
        log: RecordLog | None,
        ack: Ack,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.log = log
        self.ack = ack
        self.clock = clock
        self.lsn = log.last if log is not None else 0
        self.replication: Replication = NotReplicated()
        self.order = threading.Lock()
        self.broken = ""  # why the server must end

    def write(self, header: Header, body: Body) -> WriteResult:
        """Carry out a frame once. Raises RequestError when it is not: then nothing has changed."""
        self.check_whole()
        header = header._replace(stamp=self.clock())
        epoch = self.replication.may_write()
        locks = self.store.locks(header)
        with ExitStack() as rows, ExitStack() as writes:
            for lock in locks:
                writes.enter_context(lock.writes)
            try:
                written = self._log(header, body, epoch)
            except PaddockError:
                self.replication.may_write()  # The judgement of one that was primary is none.
                raise
            if not isinstance(written, WriteResult):
                for lock in locks:
                    rows.enter_context(lock.rows)
                if header.op in OVERLAPPING:
                    writes.close()
                written = self._apply(*written)
        # A repeat waits too: what it repeats may not be safe yet.
        self._wait_acked(self.lsn, epoch)
        return written

    def check_whole(self) -> None:
        """Raises ConnectionClosed once a logged record could not be carried out: the server is
        ending."""
        if self.broken:
            raise ConnectionClosed(self.broken)

    @contextmanager
    def holding(self, header: Header) -> Iterator[None]:
        """With the locks of the tables that a record concerns."""
        with ExitStack() as held:
            for lock in self.store.locks(header):
                held.enter_context(lock)
            yield

    def _log(self, header: Header, body: Body, epoch: int) -> WriteResult | Logged:
        """A frame that was carried out before gets its acknowledgement; any other is logged now.

        Nobody else writes to its tables.
        """
        if header.sequence and self._is_repeat(header):
            return WriteResult(REPEATED, None, [])
        checks.check(self.store, header, body)
        with self.order:
            if self.replication.may_write() != epoch:
                raise RequestError("not-primary", "another server was the primary meanwhile")
            # What takes no table's lock (a skipped number, a new incarnation, a table with this
            # name) may have come between.
            if header.sequence and self._is_repeat(header):
                return WriteResult(REPEATED, None, [])
            if header.op == Op.CREATE:
                checks.check(self.store, header, body)
            if not header.sequence and self.store.is_done(header, body):
                return WriteResult(REPEATED, self.store.answer(header, body), [])
            lsn = self.append(header, body)
            with self._logged(header):
                self.replication.appended()
                lr, outputs = self.store.apply_meta(lsn, header, body)
        return Logged(lsn, header, body, lr, outputs)

    def _apply(
        self, lsn: int, header: Header, body: Body, lr: float, outputs: list[Output]
    ) -> WriteResult:
        self.check_whole()  # Behind a record that could not be.
        with self._logged(header):
            return WriteResult(0, self.store.apply(lsn, header, body, lr), outputs)

    @contextmanager
    def _logged(self, header: Header) -> Iterator[None]:
        """A logged record must be carried out. When it is not, nobody is told no, for the next
        start does it; no other may be, and the server ends (main.py)."""
        try:
            yield
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self.broken = f"record {self.lsn} (op {header.op}) could not be carried out: {what}"
            raise ConnectionClosed(self.broken) from error

    def record(self, op: Op, data: dict[str, Any], *, step: int = 0) -> WriteResult:
        """Write a record that this server makes itself."""
        return self.write(Header(op, step=step), json.dumps(data).encode())

    def _is_repeat(self, header: Header) -> bool:
        newest = self.store.windows.incarnation_of(header.trainer)
        if newest is None or header.incarnation > newest:
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

    def append(self, header: Header, body: Body) -> int:
        """The lsn of a record, now in the log; `order` is held. Raises RequestError."""
        if self.log is None:
            self.lsn += 1
            return self.lsn
        try:
            self.lsn = self.log.append(header, body)
        except PaddockError as error:
            raise RequestError("disk", error.message, hint=error.hint) from error
        return self.lsn

    def _wait_acked(self, lsn: int, epoch: int) -> None:
        """Wait until the record is as safe as --ack says."""
        if self.ack == "disk" and self.log is not None:
            self.log.wait_durable(lsn)
        elif self.ack == "replica":
            self.replication.replicated(lsn, epoch)

    def make_durable(self) -> None:
        """Wait until every record so far is on the disk, and where a replica counts, with it."""
        lsn, epoch = self.newest_lsn(), self.replication.may_write()
        if self.log is not None:
            self.log.wait_durable(lsn)
        self._wait_acked(lsn, epoch)

    def refill(self, lsn: int, header: Header, body: Body) -> None:
        """Apply a record that is in a log already; nobody else uses the store."""
        self.lsn = lsn
        lr, _ = self.store.apply_meta(lsn, header, body)
        self.store.apply(lsn, header, body, lr)

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
