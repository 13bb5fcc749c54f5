"""A connection of a server: greets, proves, then answers frames in order until it ends.

A frame that is no frame ends this connection and nothing else. What a trainer may not do is
answered with a RequestError, and the connection goes on.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.errors import PaddockError
from paddock.ps.server.log_record import json_part
from paddock.ps.server.records import FROM_CLIENTS, make_record
from paddock.ps.server.tables import ServerDenseTable, ServerSparseTable
from paddock.ps.shards import records
from paddock.ps.stream import SMALL_BYTES, ConnectionClosed, FrameStream, ReadTimeout, raw
from paddock.ps.table.sharding import shard_of
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import ANSWER, BODY_MAX, MAGIC, FrameError, FrameFlag, Header, Op
from paddock.ps.wire.handshake import NONCE_BYTES, Hello, greeting_from, proof_of, same
from paddock.ps.wire.values import to_body

if TYPE_CHECKING:
    from paddock.ps.server.serve import Server

ERROR = ANSWER | int(FrameFlag.ERROR)
# Who has not said who it is gets no more time, for TLS, greeting and proof together...
GREETING_SECONDS = 10.0
# ...and no more memory.
GREETING_BYTES = 16 << 10
# After a stop, the lobby's thread ends within these.
LOOK_SECONDS = 1.0
SIGNATURE = MAGIC.to_bytes(4, "little")
_NO_HELLO = Hello("", "", 0, 0, "", "")
_OF_ANY_ROLE = (Op.STATUS, Op.CONTROL, Op.FOLLOW)


class Session:
    """Runs in a thread of its own. hello: what the client said of itself."""

    def __init__(self, server: Server, sock: socket.socket, where: str) -> None:
        self.server = server
        self.stream = FrameStream(sock, GREETING_SECONDS)
        self.where = where
        self.hello = _NO_HELLO
        self.heard_at = time.monotonic()
        # After a join the incarnation that it was given: of that the coordinator hears
        # until it connects as it.
        self.heard_as: tuple[int, int] | None = None
        self.ended = threading.Event()
        # Grown to the largest frame seen; most connections never see one of 4 MiB.
        self._body = memoryview(bytearray(4 << 10))
        self._answer = memoryview(bytearray(4 << 10))
        self._is_small = False  # The last frame was a small pull: the next may be one, too.
        self.pushes = self.pulls = 0  # carried out over this connection
        self._problem: PaddockError | None = None

    @property
    def is_known(self) -> bool:
        """True when the other side has said who it is."""
        return self.hello is not _NO_HELLO

    @property
    def who(self) -> tuple[int, int]:
        """(trainer, incarnation) at the other end."""
        return self.hello.trainer, self.hello.incarnation

    def run(self) -> None:
        """Serve until the other side ends the connection."""
        try:
            self.stream.deadline = time.monotonic() + GREETING_SECONDS
            if self._secure() and self._greet():
                self.server.end_former(self)
                self.stream.deadline = None
                self.stream.set_silence(0)  # A trainer may compute for as long as it likes.
                while self._problem is None:
                    self._serve_one()
                    if self._is_small and self.stream.is_empty:
                        self.server.small_pulls.rest(self)
                raise self._problem
        except (ConnectionClosed, ReadTimeout):
            pass  # The client keeps what was not acknowledged, and comes back.
        except FrameError as error:
            self.server.say(f"{self.where}: connection ended: {error.message}")
        finally:
            self.stream.close()
            self.server.forget(self)
            self.ended.set()

    # ---------------------------------------------------------------------------------- greeting

    def _secure(self) -> bool:
        """Speak TLS, where this server does; whether it works."""
        if self.server.tls is None:
            return True
        try:
            if self.stream.peek(len(SIGNATURE)) != SIGNATURE:
                self.stream.secure(self.server.tls)
                return True
        except (ssl.SSLError, OSError) as error:
            self.server.say(f"{self.where}: no TLS: {error}")
            return False
        self.server.say(f"{self.where}: refused: it speaks without TLS")
        what = f"server {self.server.store.server} speaks TLS only"
        hint = "Client(tls_ca=...), --tls-ca, or PADDOCK_PS_TLS_CA"
        self._refuse(Header(Op.HELLO), RequestError("auth", what, hint=hint))
        self.stream.finish()
        return False

    def _greet(self) -> bool:
        try:
            header, body = self.stream.receive(GREETING_BYTES)
        except FrameError as error:
            what = f"server {self.server.store.server} cannot read the greeting: {error.message}"
            self._refuse(Header(Op.HELLO), RequestError("usage", what, hint=error.hint))
            self.stream.finish()
            raise
        try:
            if header.op != Op.HELLO:
                raise RequestError("auth", "the first frame must be a greeting")
            hello = greeting_from(Hello, body)
            challenge = os.urandom(NONCE_BYTES).hex() if self.server.token else ""
            welcome = header._replace(flags=ANSWER), to_body(self.server.welcome(hello, challenge))
            if self.server.token:
                self.stream.send(*welcome)
                try:
                    proof, body = self.stream.receive(GREETING_BYTES)
                except (ConnectionClosed, ReadTimeout):
                    self.server.say(f"{self.where}: refused: it knows no token, or another one")
                    raise
                wanted = proof_of(self.server.token, "trainer", hello.nonce, challenge)
                given = bytes(body).decode("latin-1")  # Which any bytes are.
                if proof.op != Op.PROOF or not same(given, wanted):
                    what = "the token is not this server's"
                    hint = "use the file that --token-file names there"
                    raise RequestError("auth", what, hint=hint)
                welcome = proof._replace(flags=ANSWER), b""
            # Known from here on: not before it has proved itself, and not after it may go on, for
            # the connection that comes next must find this one (Server.end_former).
            self.hello = hello
            self.stream.send(*welcome)
            return True
        except RequestError as refusal:
            self.server.say(f"{self.where}: refused: {refusal.message}")
            self._refuse(header, refusal)
            return False

    # ------------------------------------------------------------------------------------- frames

    def _serve_one(self) -> None:
        header, received = self.stream.receive(into=self._body)
        body = memoryview(received)
        if body.nbytes > self._body.nbytes:
            self._body = memoryview(bytearray(1 << (body.nbytes - 1).bit_length()))
        self.heard_at = time.monotonic()
        self._is_small = False
        try:
            action = _DOES.get(header.op)
            if action is None:
                raise RequestError("usage", f"frames of op {header.op} are not served")
            action(self, header, body)
        except RequestError as error:
            refusal = error
            if header.op not in _OF_ANY_ROLE:  # One that was primary judges by an older state.
                try:
                    self.server.engine.check_serving()
                except RequestError as instead:
                    refusal = instead
            self._refuse(header, refusal)
        except (ConnectionClosed, ReadTimeout, FrameError):
            raise
        except PaddockError as error:
            self._refuse(header, RequestError("usage", error.message, hint=error.hint))
        except Exception as error:  # noqa: BLE001  # A bug: told to both sides; others are served.
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
            self.server.say(f"{self.where}: bug in op {header.op}: {what}")
            told = RequestError("internal", f"server {self.server.store.server}: {what}")
            self._refuse(header, told)

    def answer_small(self) -> bool:
        """Answer the small pulls that have come; False when there is something else. No wait."""
        if not self.stream.read_ready():
            return False
        try:
            while self.stream.has_small(Op.PULL):
                self._serve_one()
                if not self._is_small:
                    return False
        except PaddockError as error:
            self._problem = error
            return False
        return self.stream.is_empty

    def _refuse(self, header: Header, refusal: RequestError) -> None:
        self.stream.send(header._replace(flags=ERROR, count=0), refusal.to_body())

    def _say(self, header: Header, answer: dict[str, Any] | None, flags: int = 0) -> None:
        body = b"" if answer is None else json.dumps(answer).encode()
        self.stream.send(header._replace(flags=ANSWER | flags, count=0), body)

    def _check_who(self, header: Header, *, changes: bool = False) -> None:
        """Raises RequestError when a frame is not the connection's own trainer's; only one that
        begins may be new here. changes: an admin may send it, too, where admins may."""
        if changes and self.hello.purpose == "admin":
            self.server.check_admin(self.hello)
            return
        who, incarnations = (header.trainer, header.incarnation), self.server.store.incarnations
        if who != (self.hello.trainer, self.hello.incarnation):
            raise RequestError(
                "usage", f"a frame of trainer {header.trainer} over another's connection"
            )
        known = incarnations.get(who[0], (0, ""))[0]
        if header.op not in (Op.JOIN, Op.FENCE) and known != who[1]:
            raise RequestError(
                "fenced",
                f"this process is incarnation {who[1]} of trainer {who[0]}, "
                f"the server knows incarnation {known}",
                hint="is another process running as this trainer? each needs its own "
                "PADDLE_TRAINER_ID",
            )

    def _write(self, header: Header, body: memoryview) -> None:
        self._check_who(header, changes=True)
        record = make_record(header, body)
        if not record.numbered:
            record.check_sender(self.server)
        written = self.server.engine.write(record)
        self.pushes += record.overlapping
        if not record.numbered:
            record.after_write(self.server)
        self._say(header, written.answer, written.flags)

    def _grow_answer(self, nbytes: int) -> None:
        if nbytes > BODY_MAX:
            what = f"an answer of {nbytes // 4} floats is over the limit of {BODY_MAX} B"
            raise RequestError("usage", what)
        self._answer = memoryview(bytearray(1 << (nbytes - 1).bit_length()))

    def _pull(self, header: Header, body: memoryview) -> None:
        engine, count = self.server.engine, header.count
        engine.check_serving()
        held = engine.store.find(header.table, ServerSparseTable)
        if len(body) != 8 * count:
            raise RequestError("value", f"a pull of {count} keys has {len(body)} bytes")
        dim = held.spec.dim
        nbytes = 4 * count * dim
        if nbytes > self._answer.nbytes:
            self._grow_answer(nbytes)
        keys = np.frombuffer(body, np.int64)
        rows = np.frombuffer(self._answer, np.float32, count * dim).reshape(count, dim)
        with held.lock.rows:
            if held.ownership.active:
                held.ownership.check_pull(shard_of(keys, held.spec.shards))
            held.table.pull(keys, rows)
            loads = engine.store.loads
        self.pulls += 1
        engine.check_serving()  # The lease may have run out meanwhile.
        self.stream.send(header._replace(flags=ANSWER, step=loads), self._answer[:nbytes])
        self._is_small = nbytes <= SMALL_BYTES and not self.stream.is_tls

    def _pull_dense(self, header: Header, body: memoryview) -> None:
        engine, count = self.server.engine, header.count
        engine.check_serving()
        held = engine.store.find(header.table, ServerDenseTable)
        start = int.from_bytes(body[:8], "little")
        stop = start + count
        if 4 * count > self._answer.nbytes:
            self._grow_answer(4 * count)
        with held.lock.rows:
            if held.ownership.active:
                held.ownership.check_pull(records.dense_shards(held.spec, start, stop))
            if len(body) != 8 or not held.table.holds(start, stop):
                raise RequestError(
                    "value",
                    f"table {held.spec.name!r}: elements {start} to {stop} are not all on server "
                    f"{engine.store.server}",
                )
            held.table.pull(start, np.frombuffer(self._answer, np.float32, count))
            version = self.server.life + held.table.version
        self.pulls += 1
        engine.check_serving()
        answer = header._replace(flags=ANSWER, step=version)
        self.stream.send(answer, self._answer[: 4 * count])

    def _pull_changed(self, header: Header, body: memoryview) -> None:
        """Rows changed after a version: frames of keys and rows, the last one flagged LAST."""
        self.server.engine.check_serving()
        held = self.server.store.find(header.table, ServerSparseTable)
        dim = held.spec.dim
        self.pulls += 1
        with held.lock:
            version = self.server.replication.high_watermark(self.server.engine.lsn)
            keys = held.table.changed_since(header.step)
        most = BODY_MAX // (8 + 4 * dim)
        for start in range(0, max(1, len(keys)), most):
            part = keys[start : start + most]
            with held.lock:
                if held.ownership.active:  # A shard that went is told of by its new owner.
                    part = part[~held.ownership.is_away[shard_of(part, held.spec.shards)]]
                rows = np.empty((len(part), dim), np.float32)
                held.table.pull(part, rows)
            self.server.engine.check_serving()
            is_last = start + most >= len(keys)
            flags = int(FrameFlag.ANSWER) | (int(FrameFlag.LAST) if is_last else 0)
            answer = header._replace(flags=flags, count=len(part), step=version)
            self.stream.send(answer, raw(part), raw(rows))

    def _follow(self, header: Header, body: memoryview) -> None:
        """A replica: this connection is its own from here on."""
        self.server.replication.feed(self.stream, header, body)
        raise ConnectionClosed("the replica has gone, or this server is not its primary")

    def _coordinate(self, header: Header, body: memoryview) -> None:
        self._check_who(header)
        self.server.engine.check_serving()
        asked = json_part(body)
        answer = self.server.group().coordinate(header, asked, self.stream.is_gone)
        if header.op == Op.JOIN:
            self.heard_as = header.trainer, answer["incarnation"]
        self._say(header, answer)

    def _call(self, header: Header, body: memoryview) -> None:
        if self.hello.purpose != "admin":
            self._check_who(header)
        self.server.engine.check_serving()
        self._say(header, self.server.services.answer(self.hello, json_part(body)))

    def _control(self, header: Header, body: memoryview) -> None:
        self._say(header, self.server.control(self.hello, json_part(body)))

    def _read(self, header: Header, body: memoryview) -> None:
        self._check_who(header, changes=True)
        self.server.engine.check_serving()
        asked = json_part(body)
        found = self.server.spool.read(asked.get("file"), asked.get("offset"))
        self.stream.send(header._replace(flags=ANSWER, count=0), found)

    def _take(self, header: Header, body: memoryview) -> None:
        self._check_who(header, changes=True)
        self.server.engine.check_serving()
        asked = json_part(body[: header.count])
        self.server.spool.write(asked.get("file"), asked.get("offset"), body[header.count :])
        self._say(header, None)


_DOES: dict[int, Callable[[Session, Header, memoryview], None]] = {
    Op.PULL: Session._pull,
    Op.PULL_DENSE: Session._pull_dense,
    Op.PULL_CHANGED: Session._pull_changed,
    Op.STATUS: lambda self, header, _: self._say(header, self.server.status()),
    Op.CONTROL: Session._control,
    Op.CALL: Session._call,
    Op.FOLLOW: Session._follow,
    Op.READ: Session._read,
    Op.WRITE: Session._take,
    **dict.fromkeys((Op.ARRIVE, Op.JOIN, Op.LEAVE), Session._coordinate),
    **dict.fromkeys(FROM_CLIENTS, Session._write),
}


class SmallPullPoller:
    """Small pulls of many connections, answered by one thread.

    A thread for each connection is simple, but with many trainers the threads wait for one another
    (the interpreter runs one at a time) more than for the sockets. So a connection that has just
    been answered a small pull rests here: its own thread sleeps, and one thread reads from all that
    rest. Whatever is no whole small pull wakes the connection's own thread, which goes on where it
    was.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._resting: dict[int, tuple[Session, threading.Event]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def rest(self, session: Session) -> None:
        """Called by the connection's own thread; returns when that is needed again."""
        needed = threading.Event()
        with self._lock:
            if self._is_stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._resting[session.stream.fileno()] = session, needed
            self._epoll.register(session.stream.fileno(), select.EPOLLIN)
        needed.wait()

    def _run(self) -> None:
        while self._resting or not self._is_stopped:
            for descriptor, _ in self._epoll.poll(LOOK_SECONDS):
                session, needed = self._resting[descriptor]
                if not session.answer_small():
                    self._epoll.unregister(descriptor)
                    del self._resting[descriptor]
                    needed.set()
        self._epoll.close()

    def stop(self) -> None:
        """Take nobody any more; the connections of those that rest must end."""
        with self._lock:
            self._is_stopped = True
            if self._thread is None:
                self._epoll.close()
