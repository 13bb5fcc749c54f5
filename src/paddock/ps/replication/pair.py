"""A server of a pair: runs the pure member (state.py) with clocks and threads.

Locks, in this order: tables, `engine.order`, the member's own. The member changes under its own
lock; what changes its role, or its log, happens under `engine.order` as well, so that between two
records of a push nothing else is logged.

Threads: one ticks; one asks the witness; one follows the primary while this is the replica
(follower.py); and a primary has one more for each replica that follows (feed.py).
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError, UsageError
from paddock.ps.connection import FrameConnection
from paddock.ps.endpoint import join_endpoint
from paddock.ps.replication.feed import ReplicaFeed
from paddock.ps.replication.follower import Follower
from paddock.ps.replication.lease import LeaseReply, LeaseRequest
from paddock.ps.replication.log_identity import MemberFile
from paddock.ps.replication.replication import Replication
from paddock.ps.replication.state import (
    NEAR_RECORDS,
    Action,
    AskWitness,
    BeginTerm,
    ConnectToPrimary,
    Deposed,
    ReplicaRole,
    ReplicaState,
    SendMessage,
    Stage,
    recovered,
)
from paddock.ps.replication.witness import boot_seconds, request_body
from paddock.ps.server.options import ServerOptions
from paddock.ps.server.records import TermRecord
from paddock.ps.stream import ConnectionClosed, FrameStream
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.wire.values import body_from

if TYPE_CHECKING:
    from paddock.ps.server.serve import Server

TICK_SECONDS = 0.1
# Longest wait for the witness: well below the lease, so that one lost answer does not end it.
WITNESS_SECONDS = 0.6
# Those that wait for an acknowledgement look again, at the latest, after so long.
LOOK_SECONDS = 0.25
JOIN_SECONDS = 5.0

Event = Callable[[ReplicaState], tuple[ReplicaState, list[Action]]]


def prepare_pair(options: ServerOptions, say: Callable[[str], None]) -> MemberFile | None:
    """Before the log is opened; None for a server that keeps none. Raises UsageError."""
    if not options.data_dir:
        return None
    if options.witness and (ca := options.trusted):
        try:
            ssl.create_default_context(cafile=ca)
        except OSError as error:  # ssl.SSLError is one
            raise UsageError(f"--tls-ca {ca}: {error}", hint="certificates in PEM form") from error
    file = MemberFile(Path(options.data_dir), say)
    file.prepare()
    return file


class Pair(Replication):
    """A recovered server's side of a pair.

    serves_alone: no replica is ever in sync (--ack is not replica), so no lease is needed.
    """

    is_replicated = True

    def __init__(self, server: Server, file: MemberFile) -> None:
        engine, store, options = server.engine, server.store, server.options
        assert engine.log is not None and server.snapshots is not None
        self.server = server
        self.engine = engine
        self.snapshots = server.snapshots
        self.file = file
        self.say, self.say_once = server.say, server.say_once
        self.witness = options.witness
        self.group = f"{options.job}-{options.index}"
        self.serves_alone = options.ack != "replica"
        end = engine.log.last
        member = ReplicaState(
            file.open(is_empty=end == 0, is_on_disk=options.ack == "disk"),
            options.advertise or join_endpoint(options.bind, server.port),
            is_first=not options.replica_of and (not store.history or options.promote == "yes"),
            max_lag=-1 if self.serves_alone else NEAR_RECORDS,
        )
        self.member = recovered(member, end=end, history=store.history)
        self.clock = boot_seconds
        # Positions that feeds are at: the log is not cut beyond.
        self.feeding: dict[int, int] = {}
        self.failed = ""
        self.lock = threading.Condition()  # the member's own; told when it changes
        self._request: LeaseRequest | None = None
        self._asked = threading.Condition()
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._tick, self._ask)
        ]
        self.follower = Follower(self, self.snapshots, file)

    def start(self) -> None:
        self.follower.start()
        for thread in self._threads:
            thread.start()

    def feed(self, stream: FrameStream, header: Header, body: memoryview) -> None:
        ReplicaFeed(self, stream).serve(header, body)

    @property
    def is_stopped(self) -> bool:
        """True when the server ends."""
        return self._stopped.is_set()

    # ------------------------------------------------------------------------- what it may do

    @property
    def term(self) -> int:
        return self.member.term

    def may_serve(self) -> bool:
        member = self.member
        if self.serves_alone:
            return member.role is ReplicaRole.PRIMARY
        return member.may_serve(now=self.clock())

    def may_write(self) -> int:
        # `engine.order` is held by who relies on it for longer than a moment.
        member = self.member
        if member.role is not ReplicaRole.PRIMARY:
            raise self.refusal()
        return member.term

    def refusal(self) -> RequestError:
        register, member = self.member.register, self.member
        endpoint = register.endpoint if register.holder != member.server else ""
        if member.role is ReplicaRole.PRIMARY:
            message = f"this server is cut off from its witness {self.witness}"
        else:
            message = "this server is a replica"
        return RequestError(
            "not-primary",
            f"{message}; the primary is {endpoint}" if endpoint else message,
            hint="list both servers of the pair: host:port|host:port",
            facts={"term": member.term, "endpoint": endpoint},
        )

    def appended(self) -> None:
        with self.lock:
            self.member, _ = self.member.appended(now=self.clock())

    def replicated(self, lsn: int, term: int) -> None:
        with self.lock:
            while True:
                member = self.member
                if member.role is not ReplicaRole.PRIMARY or member.term != term:
                    raise self.refusal()
                if member.acknowledges(lsn, now=self.clock()):
                    return
                if self._stopped.is_set():
                    raise ConnectionClosed("the server is ending")
                self.lock.wait(LOOK_SECONDS)

    def high_watermark(self, lsn: int) -> int:
        return min(lsn, self.member.high_watermark)

    def keep_from(self, lsn: int) -> int:
        with self.lock:
            return min(lsn, 1 + min([self.member.keep_from, *self.feeding.values()]))

    def describe(self) -> dict[str, Any]:
        member = self.member
        return {
            "role": member.role.value,
            "stage": member.stage.value,
            "term": member.term,
            "position": member.end,
            "acknowledged": member.high_watermark,
            "replica": member.match_lsn if member.in_sync_candidate else None,
            "in_sync": len(member.register.in_sync),
            "is_in_sync": member.server in member.register.in_sync,
            "holder": member.register.endpoint,
            "witness": self.witness,
            "name": member.server,
            "failed": self.failed,
        }

    # --------------------------------------------------------------------------------- events

    def become(self, member: ReplicaState) -> None:
        """The member from now on; its lock is held."""
        self.member = member
        self.lock.notify_all()

    def handle(self, event: Event) -> list[SendMessage]:
        """Give the member an event and do what it says, but for what the caller has to tell."""
        with self.lock:
            after, actions = event(self.member)
            if after.role is self.member.role:
                self.become(after)
                return self._carry_out(actions)
        with self.engine.order, self.lock:
            before = self.member.role
            after, actions = event(self.member)
            for action in actions:
                if isinstance(action, BeginTerm):
                    after = self._begin(after, action.term)
            self.become(after)
            told = self._carry_out(actions)
        if after.role is not before:
            self._tell_role()
        return told

    def _begin(self, member: ReplicaState, term: int) -> ReplicaState:
        """REPLICA -> PRIMARY: the record that begins the term. Both locks are held."""
        body = json.dumps({"term": term, "server": member.server}).encode()
        record = TermRecord(Header(Op.TERM, stamp=self.engine.clock()), body)
        lsn = self.engine.append(record)
        assert lsn == member.end + 1, (lsn, member.end)
        store = self.engine.store
        store.apply_meta(lsn, record)
        if store.group is not None:
            store.group.forget()  # What trainers said to another one is unknown here.
        return member.appended(now=self.clock())[0]

    def _carry_out(self, actions: list[Action]) -> list[SendMessage]:
        """The member's lock is held; nothing here waits."""
        told = []
        for action in actions:
            if isinstance(action, SendMessage):
                told.append(action)
            elif isinstance(action, AskWitness):
                with self._asked:
                    self._request = action.request
                    self._asked.notify_all()
            elif isinstance(action, ConnectToPrimary):
                self.follower.go(action.endpoint)
            elif isinstance(action, Deposed):
                whom = f", {action.endpoint} is" if action.endpoint else ""
                self.say(f"term {action.term}: this server is no longer the primary{whom}")
        return told

    def _tell_role(self) -> None:
        member = self.member
        if member.role is ReplicaRole.PRIMARY:
            self.say(f"term {member.term}: this server is the primary, from record {member.end}")
            let_go = self.follower.interrupt
        elif self.server.coordinator is not None:
            let_go = self.server.coordinator.let_go
        else:
            return
        threading.Thread(target=let_go, daemon=True).start()

    def fail(self, line: str) -> None:
        """This server's state is not to be trusted any more: it takes no further part."""
        self.failed = line
        self.say(f"{line}; this server takes no further part, start it again")

    # -------------------------------------------------------------------------------- threads

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            if self.failed:
                continue
            try:
                self.handle(lambda member: member.tick(now=self.clock()))
            except PaddockError as error:
                self.say_once(error.message, "tick")

    def _ask(self) -> None:
        """Carry requests to the witness; the newest one only, for it says all that is wanted."""
        link: FrameConnection | None = None
        while True:
            with self._asked:
                while self._request is None and not self._stopped.is_set():
                    self._asked.wait(1.0)
                request, self._request = self._request, None
            if request is None:
                break
            try:
                if link is None:
                    link = self._reach()
                link.stream.send(Header(Op.CONTROL), request_body(self.group, request))
                _, body = link.receive()
                reply: LeaseReply = body_from(LeaseReply, body, "answer of a witness")
                self.handle(partial(ReplicaState.replied, reply=reply, now=self.clock()))
                self._say_stuck()
                self.say_once("", "witness")
            except PaddockError as error:
                self.say_once(f"witness {self.witness}: {error.message}", "witness")
                if link is not None:
                    link.close()
                link = None
        if link is not None:
            link.close()

    def _reach(self) -> FrameConnection:
        return FrameConnection(self.witness, self.server.identity, "admin", WITNESS_SECONDS)

    def _say_stuck(self) -> None:
        """A server that nobody lets serve, and that has nobody to follow, says so."""
        member, register, line = self.member, self.member.register, ""
        is_replica, is_in_sync = (
            member.role is ReplicaRole.REPLICA,
            member.server in register.in_sync,
        )
        if is_replica and register.version == 0 and not member.is_first:
            line = (
                f"witness {self.witness} knows nothing of {self.group}; if this server's log is "
                "the right one, start it once with --promote=yes"
            )
        elif is_replica and member.stage is Stage.ALONE and register.holder and not is_in_sync:
            line = f"not in sync; waits for the primary {register.endpoint}"
        self.say_once(line, "stuck")

    def stop(self) -> None:
        if self._stopped.is_set():
            return
        wanted: list[LeaseRequest] = []

        def release(member: ReplicaState) -> tuple[ReplicaState, list[Action]]:
            after, actions = member.release(now=self.clock())
            wanted.extend(one.request for one in actions if isinstance(one, AskWitness))
            return after, []

        self._stopped.set()
        with contextlib.suppress(PaddockError):
            self.handle(release)
        with self._asked:
            self._request = None
            self._asked.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(JOIN_SECONDS)
        if wanted:
            with contextlib.suppress(PaddockError):  # The lease runs out by itself.
                link = self._reach()
                link.stream.send(Header(Op.CONTROL), request_body(self.group, wanted[-1]))
                link.receive()
                link.close()
        self.follower.join()
