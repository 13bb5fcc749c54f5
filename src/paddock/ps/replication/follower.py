"""The replica's side: connects to the primary, logs and applies its records, says what it has.

One thread. Its log may have records that the primary never acknowledged: they are cut, and the
state is built anew from a snapshot below. A log that is too old is replaced by the primary's
snapshot. Whatever fails here ends the connection; the pair's clock has it made again.
"""

from __future__ import annotations

import json
import secrets
import shutil
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import PaddockError
from paddock.ps.connection import FrameConnection
from paddock.ps.replication.feed import FILE, FILE_BYTES, FILES_END, IDLE, RECORD
from paddock.ps.replication.log_identity import (
    INCOMING,
    MemberFile,
    new_name,
    remove_log,
    remove_state,
)
from paddock.ps.replication.state import (
    Ack,
    Append,
    Follow,
    FollowAccepted,
    FollowRefused,
    Message,
    ReplicaRole,
    Restore,
    Stage,
    StoreRecord,
    Truncate,
)
from paddock.ps.server.records import make_record
from paddock.ps.server.recovery import Snapshots, fill
from paddock.ps.storage.files import DamageError, remove_tree, sync_files, sync_path, writing
from paddock.ps.storage.log import RecordLog
from paddock.ps.storage.snapshot import (
    Snapshot,
    list_snapshots,
    newest_snapshot,
    open_snapshot,
    snapshot_name,
)
from paddock.ps.stream import ConnectionClosed
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameError, FrameFlag, Header, Op
from paddock.ps.wire.handshake import Welcome
from paddock.ps.wire.values import body_from, to_body

if TYPE_CHECKING:
    from paddock.ps.replication.pair import Pair

CONNECT_SECONDS = 1.0
# The primary says something every half second; one that does not is not there.
SILENCE_SECONDS = 5.0
# It may be writing a snapshot, or verifying one, before it answers a Follow.
ANSWER_SECONDS = 120.0
JOIN_SECONDS = 5.0


class RetryFollow(PaddockError):
    """The log is another one now: the primary must be asked anew."""


class Follower:
    """The thread that follows."""

    def __init__(self, pair: Pair, snapshots: Snapshots, file: MemberFile) -> None:
        self.pair = pair
        self.engine = pair.engine
        self.snapshots = snapshots
        self.file = file
        self._wanted = ""
        self._stream_of: tuple[int, FrameConnection] | None = None
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to wait for a primary."""
        self._thread.start()

    def go(self, endpoint: str) -> None:
        """Follow the server there; the member, whose lock is held, follows nobody now."""
        with self._wake:
            self._wanted = endpoint
            self._wake.notify_all()
            if self._stream_of is not None and self._stream_of[0] == self.pair.member.session:
                self._stream_of[1].stream.interrupt()

    def interrupt(self) -> None:
        """End the connection: this server does not follow any more."""
        with self._wake:
            if self._stream_of is not None:
                self._stream_of[1].stream.interrupt()

    def join(self) -> None:
        """Wait for the thread, after the pair was stopped."""
        with self._wake:
            self._wake.notify_all()
        self.interrupt()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        pair = self.pair
        while not pair.is_stopped:
            with self._wake:
                if not self._wanted:
                    self._wake.wait(0.5)
                endpoint, self._wanted = self._wanted, ""
            if not endpoint or pair.failed or not self._is_replica():
                continue
            try:
                self._follow(endpoint)
            except RetryFollow as again:
                pair.say(again.message)
            except PaddockError as error:
                if self._is_replica() and not pair.is_stopped:
                    pair.say_once(f"cannot follow {endpoint}: {error.message}", "follow")

    def _is_replica(self) -> bool:
        return self.pair.member.role is ReplicaRole.REPLICA

    # ------------------------------------------------------------------------- one connection

    def _follow(self, endpoint: str) -> None:
        pair = self.pair
        link = FrameConnection(endpoint, pair.server.identity, "replica", CONNECT_SECONDS)
        session = secrets.randbits(63) | 1
        try:
            self._recognise(link.welcome, endpoint)
            told = pair.handle(lambda member: member.connected(session))
            with self._wake:
                self._stream_of = session, link
            link.stream.set_silence(ANSWER_SECONDS)
            self._tell(link, [one.message for one in told])
            if told:
                self._begin(link, endpoint)
                link.stream.set_silence(SILENCE_SECONDS)
                while pair.member.stage is Stage.FOLLOWING and not pair.is_stopped:
                    self._take(link, session)
        except FrameError as error:
            raise ConnectionClosed(error.message) from error
        finally:
            with self._wake:
                self._stream_of = None
            link.close()
            pair.handle(lambda member: member.lost(session, now=pair.clock()))

    def _recognise(self, welcome: Welcome, endpoint: str) -> None:
        """Is it this server's primary? An empty log takes over the name of its state."""
        log = self.engine.log
        assert log is not None
        store = self.engine.store
        if (welcome.server, welcome.servers) != (store.server, store.servers):
            raise PaddockError(
                f"{endpoint} is server {welcome.server} of {welcome.servers}, this one is "
                f"{store.server} of {store.servers}",
                hint="primary and replica are started with the same --index and --endpoints",
            )
        theirs = int(welcome.server_id, 16)
        if theirs == self.snapshots.server:
            return
        if welcome.role != "primary":
            raise ConnectionClosed(f"it is a {welcome.role} now")
        if self.pair.member.end > 0:
            raise PaddockError(
                f"{endpoint} has another state ({welcome.server_id}) than this server's data "
                f"directory {log.directory}",
                hint="give a new replica an empty --data-dir",
            )
        self._empty(theirs)

    def _tell(self, link: FrameConnection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, Follow):
                link.stream.send(Header(Op.FOLLOW), to_body(message))
            elif isinstance(message, Ack):
                link.stream.send(Header(Op.FOLLOW, step=message.term, sequence=message.end))
            elif isinstance(message, FollowRefused):
                link.stream.send(Header(Op.FOLLOW, int(FrameFlag.ERROR), step=message.term))

    def _begin(self, link: FrameConnection, endpoint: str) -> None:
        """Read the primary's answer to Follow, and make this log a beginning of its log."""
        pair = self.pair
        _, body = link.receive()
        kind = FollowAccepted if b'"common"' in bytes(body) else FollowRefused
        answer: FollowAccepted | FollowRefused = body_from(kind, body, "answer of a primary")
        if isinstance(answer, FollowRefused):
            pair.handle(lambda member: member.refused(answer))
            raise ConnectionClosed(f"it is not the primary (term {answer.term})")
        with pair.lock:
            _, actions = pair.member.started(answer)
        incoming: Snapshot | None = None
        if any(isinstance(one, Restore) for one in actions):
            if pair.member.end > 0:
                self._empty(self.snapshots.server)
                raise RetryFollow(
                    "the log is too old to be continued; the primary's snapshot is asked"
                )
            incoming = self._receive_files(link)
        with self.snapshots.lock, self.engine.at_rest():
            self._join(answer, incoming)
        with pair.lock:
            member = pair.member
            is_mine = member.stage is Stage.FOLLOWING and member.session == answer.session
            ack = Ack(member.server, member.session, member.term, member.end)
        if not is_mine:
            raise ConnectionClosed("a newer primary is known")
        pair.say_once("", "follow")
        pair.say(f"term {answer.term}: follows {endpoint} from record {answer.common}")
        self._tell(link, [ack])

    def _join(self, start: FollowAccepted, incoming: Snapshot | None) -> None:
        """Carry out Truncate and Restore; snapshots and log are held still."""
        pair = self.pair
        with pair.lock:
            if pair.member.role is not ReplicaRole.REPLICA:
                raise ConnectionClosed("this server is the primary now")
            _, actions = pair.member.started(start)
        if incoming is not None:
            self._restore(incoming, start.common)
        elif any(isinstance(one, Truncate) for one in actions):
            self._truncate(start.common)
        with pair.lock:
            after, _ = pair.member.started(start)
            # A newer term may have become known meanwhile: but the log is what it is now.
            pair.become(replace(after, end=start.common, history=start.history))

    # ----------------------------------------------------------------------------- one record

    def _take(self, link: FrameConnection, session: int) -> None:
        header, _ = link.receive()
        pair = self.pair
        if header.op != Op.FOLLOW or header.part not in (IDLE, RECORD):
            raise ConnectionClosed(f"op {header.op}, part {header.part} is no word of a primary")
        if header.part == IDLE:
            member = pair.member
            if member.stage is Stage.FOLLOWING and member.session == session:
                self._tell(link, [Ack(member.server, session, member.term, member.end)])
            return
        record, body = link.stream.receive()
        begun = int(json.loads(bytes(body))["term"]) if record.op == Op.TERM else 0
        message = Append(session, header.step, header.sequence, None, begun)
        self._tell(link, self._store(message, record, memoryview(body)))

    def _store(self, message: Append, header: Header, body: memoryview) -> list[Message]:
        """Log and apply one record; what to tell then."""
        engine, pair, store = self.engine, self.pair, self.engine.store
        record = make_record(header, body)
        if header.op == Op.LOAD:
            record.check(store)  # Its files may not be on this machine.
        is_stored = False
        try:
            with ExitStack() as held:
                for lock in record.locks(store):
                    held.enter_context(lock)
                try:
                    record.reserve(store)
                except RequestError as error:  # The primary goes on without it.
                    pair.fail(f"record {message.position} has no room: {error.message}")
                    raise
                with engine.order:
                    with pair.lock:
                        after, actions = pair.member.stored(message)
                        is_stored = any(isinstance(one, StoreRecord) for one in actions)
                        if is_stored:
                            lsn = engine.append(record, is_sealed=True)
                            assert lsn == message.position + 1, (lsn, message.position)
                        pair.become(after)
                    if is_stored:
                        store.apply_meta(lsn, record)
                if is_stored:
                    record.apply(store, lsn)
                    if header.op == Op.LOAD:
                        self.snapshots.ask()  # Until then its next start needs the checkpoint.
        except PaddockError as error:
            if is_stored and engine.lsn == message.position + 1:
                pair.fail(f"record {message.position} cannot be applied: {error.message}")
            raise
        except Exception as error:
            pair.fail(f"bug: record {message.position} cannot be applied: {error!r}")
            raise ConnectionClosed(repr(error)) from error
        return [one.message for one in actions if hasattr(one, "message")]

    # ------------------------------------------------------------------- the state made anew

    def _truncate(self, end: int) -> None:
        """Discard records, and what they did, beyond a position; locks are held."""
        engine = self.engine
        log = engine.log
        assert log is not None
        told = "were never acknowledged"
        if engine.ack != "replica":
            told = f"(some acknowledged, perhaps: --ack {engine.ack}) are not the primary's"
        self.pair.say(f"records {end} to {log.last - 1} {told} and are discarded")
        for path in list_snapshots(log.directory):
            if not _is_below(path, end):
                remove_tree(path)
        snapshot, _ = newest_snapshot(log.directory)
        if snapshot is None and log.first > 1:
            self._empty_now(self.snapshots.server)
            raise RetryFollow("no snapshot is old enough; the primary's is asked for")
        log.truncate(end)
        engine.store.clear()
        fill(engine, snapshot)

    def _restore(self, incoming: Snapshot, end: int) -> None:
        """Take over the primary's snapshot as this server's own; locks are held."""
        engine, server = self.engine, self.snapshots.server
        log = engine.log
        assert log is not None
        assert log.last == 0, "only an empty log is replaced"
        log.abandon()
        remove_log(log.directory)
        path = log.directory / incoming.path.name
        incoming.path.rename(path)
        sync_path(log.directory)
        remove_tree(log.directory / INCOMING)
        engine.log = RecordLog(log.directory, server=server, start=end + 1)
        engine.store.clear()
        fill(engine, replace(incoming, path=path))
        assert engine.lsn == end, (engine.lsn, end)

    def _empty(self, server: int) -> None:
        with self.snapshots.lock, self.engine.at_rest():
            self._empty_now(server)

    def _empty_now(self, server: int) -> None:
        """Begin with an empty log of this state, under a new name; locks are held."""
        engine, pair = self.engine, self.pair
        log = engine.log
        assert log is not None
        if pair.member.role is not ReplicaRole.REPLICA:
            raise ConnectionClosed("this server is the primary now")
        self.file.write(is_whole=False)
        log.abandon()
        remove_state(log.directory)
        engine.log = RecordLog(log.directory, server=server)
        engine.store.clear()
        engine.lsn = 0
        name = self.file.write(new_name())
        with pair.lock:
            pair.become(
                replace(
                    pair.member, server=name, stage=Stage.ALONE, end=0, history=(),
                    high_watermark=0, is_first=False,
                )
            )  # fmt: skip
        self.snapshots.server = server
        pair.server.server_id = f"{server:016x}"  # Of an empty server: its primary's.

    def _receive_files(self, link: FrameConnection) -> Snapshot:
        """The primary's snapshot, verified, in a directory beside the log."""
        log = self.engine.log
        assert log is not None
        base = log.directory / INCOMING
        remove_tree(base)
        name = "snap-incoming"
        total = 0
        with writing("cannot take over a snapshot", base):
            (base / name).mkdir(parents=True)
            while True:
                header, body = link.receive()
                if header.part == FILES_END:
                    break
                if header.part != FILE:
                    raise ConnectionClosed("this is no snapshot")
                told = json.loads(bytes(body))
                part, left = str(told["name"]), int(str(told["bytes"]))
                if Path(part).name != part:
                    raise ConnectionClosed(f"a snapshot has no file {part!r}")
                total += left
                with (base / name / part).open("wb") as file:
                    while left > 0:
                        header, body = link.receive()
                        if header.part != FILE_BYTES or len(body) > left:
                            raise ConnectionClosed("this is no file of a snapshot")
                        file.write(body)
                        left -= len(body)
        snapshot = open_snapshot(base / name)
        path = base / snapshot_name(snapshot.state.lsn)
        shutil.move(str(snapshot.path), path)
        sync_files(path)
        self.pair.say(f"the primary's snapshot of record {snapshot.state.lsn} came, {total} bytes")
        return replace(snapshot, path=path)


def _is_below(snapshot: Path, end: int) -> bool:
    """True when a snapshot is whole and has no record from position `end` on."""
    try:
        return open_snapshot(snapshot).state.lsn <= end
    except DamageError:
        return False
