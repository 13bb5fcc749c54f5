"""The primary's side of one replica's connection: sends the log, hears what the replica has.

The session's thread reads; a second thread sends. A replica that is too far behind for the log
first gets the newest snapshot, file by file.

Over the replica's connection to its primary, all of Op.FOLLOW:

    replica  JSON Follow                                          once, first
    primary  JSON FollowAccepted or FollowRefused                 the answer
    primary  part=FILE, a JSON name, and FILE_BYTES frames        when is_reset: its snapshot
    primary  part=RECORD, step term, sequence position           and the record's own frame
    primary  part=IDLE                                            when it has nothing to say
    replica  step term, sequence end                             Ack: of each record, and of IDLE
    replica  flag ERROR, step term                               FollowRefused; the connection ends
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from paddock.errors import PaddockError
from paddock.ps.replication.state import (
    Ack,
    Follow,
    FollowAccepted,
    FollowRefused,
    ReplicaRole,
    SendMessage,
    common_end,
)
from paddock.ps.storage.segment import LogDamage
from paddock.ps.storage.snapshot import Snapshot, newest_snapshot
from paddock.ps.stream import ConnectionClosed, FrameStream, ReadTimeout
from paddock.ps.wire.frames import ANSWER, BODY_MAX, FrameFlag, Header, Op, encode
from paddock.ps.wire.values import body_from, to_body
from paddock.ps.xxh3 import Buffer

if TYPE_CHECKING:
    from paddock.ps.replication.pair import Pair

IDLE, RECORD, FILE, FILE_BYTES, FILES_END = range(5)
ERROR = int(FrameFlag.ERROR)
# Nothing to send for so long: say so, and hear that the replica is there.
IDLE_SECONDS = 0.5
# A replica that says nothing, or takes nothing, for so long: its connection is ended.
# It loads a snapshot meanwhile, or a checkpoint. The log is kept for it as long.
SILENCE_SECONDS = 120.0


class ReplicaFeed:
    """A replica that follows this server, over one connection."""

    def __init__(self, pair: Pair, stream: FrameStream) -> None:
        self.pair = pair
        self.stream = stream
        # TLS connections are not to be read and written at once (SSL_read(3)).
        self._turn: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if stream.is_tls:
            self._turn = threading.Lock()
        self._ended = threading.Event()

    def serve(self, header: Header, body: Buffer) -> None:
        """Answer a Follow and feed its sender until the connection, or this primary, ends."""
        message: Follow = body_from(Follow, body, "question of a replica")
        with contextlib.ExitStack() as opened:
            opened.callback(self.pair.feeding.pop, message.session, None)
            start, files = self._start(message, header, opened)
            if start is None:
                return
            self.stream.set_silence(SILENCE_SECONDS)
            thread = threading.Thread(target=self._send, args=(start, files), daemon=True)
            thread.start()
            try:
                while not self._ended.is_set():
                    self._hear(message, start)
            finally:
                self._ended.set()
                self.stream.interrupt()
                thread.join()
                clock = self.pair.clock
                self.pair.handle(lambda member: member.lost(message.session, now=clock()))

    # ------------------------------------------------------------------------------- its start

    def _start(
        self, message: Follow, header: Header, opened: contextlib.ExitStack
    ) -> tuple[FollowAccepted | None, list[BinaryIO]]:
        """(the answer that was given, None for a refusal; the snapshot's files)."""
        pair = self.pair
        files: list[BinaryIO] = []
        with pair.snapshots.lock:  # What the replica is told to begin with is not cut meanwhile.
            first, snapshot = self._first(message)
            for path in sorted(snapshot.path.iterdir()) if snapshot is not None else ():
                files.append(opened.enter_context(path.open("rb")))
            told = pair.handle(lambda m: m.followed(message, first=first, now=pair.clock()))
            start = next((t.message for t in told if isinstance(t.message, FollowAccepted)), None)
            if start is not None:
                with pair.lock:
                    pair.feeding[message.session] = start.common
        # It may be deposed by this very question.
        for one in told or [SendMessage(FollowRefused(message.session, 0))]:
            assert isinstance(one.message, FollowAccepted | FollowRefused)
            self.stream.send(header._replace(flags=ANSWER, count=0), to_body(one.message))
        return start, files

    def _first(self, message: Follow) -> tuple[int, Snapshot | None]:
        """The first position to read from the log, and the snapshot to send before it, if any."""
        member, log = self.pair.member, self.pair.engine.log
        assert log is not None
        first = log.first - 1
        common = common_end(member.history, member.end, message.history, message.end)
        if member.role is not ReplicaRole.PRIMARY or common >= first:
            return first, None
        snapshot, warnings = newest_snapshot(log.directory)
        for line in warnings:
            self.pair.say(line)
        assert snapshot is not None, "the log is only cut behind snapshots"
        return snapshot.state.lsn, snapshot

    # ---------------------------------------------------------------------------------- reading

    def _hear(self, message: Follow, start: FollowAccepted) -> None:
        if not self.stream.wait_readable(SILENCE_SECONDS):
            raise ReadTimeout("the replica is silent")
        with self._turn:
            header, _ = self.stream.receive(0)
            if header.op != Op.FOLLOW:
                raise ConnectionClosed("this is no word of a replica")
        pair = self.pair
        if header.flags & ERROR:
            refuse = FollowRefused(message.session, header.step)
            pair.handle(lambda member: member.refused(refuse))
            raise ConnectionClosed("the replica knows a newer primary")
        ack = Ack(message.server, message.session, header.step, header.sequence)
        pair.handle(lambda member: member.acknowledged(ack, now=pair.clock()))

    # ---------------------------------------------------------------------------------- sending

    def _send(self, start: FollowAccepted, files: list[BinaryIO]) -> None:
        try:
            if start.is_reset:
                self._send_files(files)
            self._send_log(start)
        except (ConnectionClosed, ReadTimeout):
            pass
        except (PaddockError, OSError) as error:
            if self._is_current(start):
                self.pair.say_once(f"the replica is not fed any more: {error}", "feed")
                if isinstance(error, LogDamage):  # The state in memory is whole: begin with that.
                    # An older snapshot would need the damaged part of the log, and keep it.
                    self.pair.snapshots.ask(keep=1)
        finally:
            self._ended.set()
            self.stream.interrupt()

    def _send_log(self, start: FollowAccepted) -> None:
        pair, position = self.pair, start.common
        log = pair.engine.log
        assert log is not None
        while self._is_current(start):
            before = position
            for lsn, header, body in log.follow(position + 1, IDLE_SECONDS):
                told = encode(Header(Op.FOLLOW, part=RECORD, step=start.term, sequence=lsn - 1))
                with self._turn:
                    self.stream.send(header, body, before=told, is_sealed=True)
                position = lsn
                pair.feeding[start.session] = position
                if not self._is_current(start):
                    return
            pair.say_once("", "feed")  # All could be read: what comes later is news.
            if position == before:
                with self._turn:
                    self.stream.send(Header(Op.FOLLOW, part=IDLE, step=start.term))

    def _is_current(self, start: FollowAccepted) -> bool:
        member = self.pair.member
        return (
            not self._ended.is_set()
            and not self.pair.is_stopped
            and member.role is ReplicaRole.PRIMARY
            # The silent one is given up (peer 0): it has to come again.
            and member.peer != 0
            and (member.session, member.term) == (start.session, start.term)
        )

    def _send_files(self, files: list[BinaryIO]) -> None:
        for file in files:
            size = os.fstat(file.fileno()).st_size
            told = json.dumps({"name": Path(file.name).name, "bytes": size}).encode()
            with self._turn:
                self.stream.send(Header(Op.FOLLOW, part=FILE), told)
            while data := file.read(BODY_MAX):
                with self._turn:
                    self.stream.send(Header(Op.FOLLOW, part=FILE_BYTES), data)
        with self._turn:
            self.stream.send(Header(Op.FOLLOW, part=FILES_END))
