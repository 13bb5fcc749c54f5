"""A server: listens, gives each connection a thread, and holds what they share."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from paddock import __version__
from paddock.errors import PaddockError, UsageError
from paddock.ps.connection import Identity
from paddock.ps.endpoint import join_endpoint
from paddock.ps.group.coordinator import TICK_SECONDS, GroupCoordinator
from paddock.ps.group.messages import GroupRules
from paddock.ps.replication.witness import Witness
from paddock.ps.server.engine import Engine
from paddock.ps.server.options import ServerOptions
from paddock.ps.server.recovery import Snapshots
from paddock.ps.server.services import NO_SERVICES, OF_TRAINERS, HostedService, Services
from paddock.ps.server.session import Session, SmallPullPoller
from paddock.ps.server.snapshot_view import Save, check_load, check_save, no_snapshot_view
from paddock.ps.server.tables import ServerSparseTable
from paddock.ps.shards.migrator import MOVES, ShardMigrator
from paddock.ps.spec import to_json
from paddock.ps.storage.spool import Spool
from paddock.ps.stream import ConnectionClosed, enlarge, keep_alive, os_reason
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from paddock.ps.wire.handshake import Hello, Welcome, proof_of

if TYPE_CHECKING:
    from paddock.ps.replication.log_identity import MemberFile
    from paddock.ps.replication.replication import Replication

Part = TypeVar("Part")
BACKLOG = 512
# Connections that have not said who they are. One more, and the oldest of them ends: a trainer
# needs a moment only, so none is kept out.
UNAUTHENTICATED_MAX = 128
# A trainer whose connection is open is silent only after so many --trainer-timeout.
PATIENCE = 10
# Within these a connection that was replaced has ended; else the new one ends, and comes again.
FORMER_SECONDS = 5.0
NO_TRAINERS = ("admin", "replica")
# For so long at most the coordinator completes no step while a save takes its cut.
HOLD_SECONDS_MAX = 10.0
# What an admin may ask of a replica too.
OF_ANY_ROLE = ("digest", "tables", "progress", "snapshot")


class Server:
    """The shell around one engine. say: where one-line news go.

    token: shared secret, b"" for none. server_id: of its state, in hex. snapshots, file: of one
    that keeps a log.
    """

    def __init__(
        self,
        options: ServerOptions,
        engine: Engine,
        say: Callable[[str], None] = lambda line: None,
        *,
        token: bytes = b"",
        server_id: str = "",
        snapshots: Snapshots | None = None,
        witness: Witness | None = None,
        file: MemberFile | None = None,
        services: Mapping[str, HostedService] = NO_SERVICES,
    ) -> None:
        self.options = options
        self.engine = engine
        self.store = engine.store
        self.server_id = server_id or secrets.token_hex(8)
        self.token = token
        self.started = time.monotonic()
        self.life = time.time_ns()  # what versions of its tables begin at: of no life before
        self.coordinator: GroupCoordinator | None = None
        if options.index == 0:
            rules = GroupRules(
                trainers=options.num_gradient_servers,
                silent_seconds=options.trainer_timeout,
                on_silence=options.on_lost_trainer,
            )
            self.coordinator = GroupCoordinator(engine, rules, say)
        self.services = Services(self, services)
        self.snapshots = snapshots
        self.migrator = ShardMigrator(self)
        self.witness = witness
        self.file = file
        self.say = say
        self._said: dict[str, str] = {}
        self._away: dict[int, float] = {}  # by trainer, since when it has no connection
        self._sessions: dict[Session, None] = {}  # oldest first
        self._past = {"pushes": 0, "pulls": 0}  # of connections that have ended
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self.small_pulls = SmallPullPoller()
        self._save: Save | None = None
        self.spool = Spool(options.data_dir)
        self._stopped = threading.Event()
        self.tls = self._tls_context()
        self._listeners = [self._listen()]
        self.port: int = self._listeners[0].getsockname()[1]
        self._unix_name = self._listen_unix()

    @property
    def identity(self) -> Identity:
        """How this server introduces itself to others."""
        return Identity(self.options.job, 0, 0, __version__, self.token, self.options.trusted)

    @property
    def role(self) -> str:
        """primary when it serves, else replica."""
        return "primary" if self.replication.may_serve() else "replica"

    @property
    def replication(self) -> Replication:
        """The pair that this server is one of, if any."""
        return self.engine.replication

    # ---------------------------------------------------------------------------------- listening

    def _tls_context(self) -> ssl.SSLContext | None:
        cert, key = self.options.tls_cert, self.options.tls_key
        if not cert:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(cert, key or None)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"--tls-cert {cert}, --tls-key {key or '(none)'}: {error}", hint="both in PEM form"
            ) from error
        return context

    def _listen(self) -> socket.socket:
        host, port = self.options.bind, self.options.port
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return _listening(family, (host, port))
        except OSError as error:
            hint = "an address of this machine with --bind, a free port with --port"
            if error.errno == errno.EADDRINUSE:
                hint = f"what has it? ss -ltnp 'sport = :{port}'; choose another with --port"
            raise UsageError(
                f"cannot listen on {join_endpoint(host, port)}: {os_reason(error)}", hint=hint
            ) from error

    def _listen_unix(self) -> str:
        """The name of an abstract Unix socket beside the port (unix(7)); "" with TLS or where there
        is no such thing."""
        if self.tls is not None or not sys.platform.startswith("linux"):
            return ""
        name = f"paddock-ps-{self.server_id}-{self.port}"
        try:
            self._listeners.append(_listening(socket.AF_UNIX, "\0" + name))
        except OSError:
            return ""
        return name

    def start(self) -> None:
        """Begin to accept connections."""
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        if self.coordinator is not None:
            threading.Thread(target=self._tick, daemon=True).start()
        self.replication.start()
        self.migrator.start()

    def _tick(self) -> None:
        """The coordinator's clock. A trainer that is connected may compute PATIENCE times as
        long."""
        assert self.coordinator is not None
        # Several ticks a deadline: a coordinator that got fewer was itself held up, and blames
        # nobody.
        pause = min(TICK_SECONDS, self.options.trainer_timeout / 10 or TICK_SECONDS)
        while not self._stopped.wait(pause):
            if self.role != "primary":
                continue
            try:
                self.coordinator.tick(self.connected())
            except Exception as error:  # noqa: BLE001  # Whatever it is, the clock goes on:
                # the log takes no record now, say; the next tick asks again.
                self.say_once(getattr(error, "message", f"{type(error).__name__}: {error}"))

    def connected(self) -> set[tuple[int, int]]:
        """Trainers whose connection is open and has not been silent for long."""
        patience, now = PATIENCE * self.options.trainer_timeout, time.monotonic()
        with self._lock:
            sessions = [s for s in self._sessions if s.hello.purpose not in NO_TRAINERS]
        return {s.heard_as or s.who for s in sessions if now - s.heard_at < patience}

    def say_once(self, line: str, about: str = "") -> None:
        """A line of news, when it is not the same as the last one about this; "" is none."""
        if line and self._said.get(about) != line:
            self.say(line)
        self._said[about] = line

    def _accept(self, listener: socket.socket) -> None:
        while not self._stopped.is_set():
            try:
                sock, address = listener.accept()
            except OSError:
                if self._stopped.wait(0.05):  # Closed, or out of descriptors for a moment.
                    return
                continue
            where = join_endpoint(*address[:2]) if isinstance(address, tuple) else "unix socket"
            try:
                if sock.family != socket.AF_UNIX:
                    keep_alive(sock)
                session = Session(self, sock, where)
            except OSError:  # It has gone again.
                sock.close()
                continue
            with self._lock:
                self._sessions[session] = None
                unauthenticated = [one for one in self._sessions if not one.is_known]
            for one in unauthenticated[:-UNAUTHENTICATED_MAX]:
                one.stream.interrupt()
            try:
                threading.Thread(target=session.run, daemon=True).start()
            except RuntimeError as error:  # No thread is left for it; others are served.
                self.forget(session)
                sock.close()
                self.say(f"a connection was turned away: {error}")
                self._stopped.wait(0.05)

    @property
    def is_finished(self) -> bool:
        """True when every trainer of the job has closed its client."""
        return len(self.store.closed) >= self.options.num_gradient_servers

    def close_lost(self) -> None:
        """Close the clients of lost trainers, once those of all others are closed.

        With "rescale" a trainer is lost that has had no connection for twice --trainer-timeout: it
        is expelled after the first, and may come back until the second. Every server sees that by
        itself, so it holds where nobody is left who could tell the others.
        """
        seconds, closed = 2 * self.options.trainer_timeout, self.store.closed
        if self.options.on_lost_trainer != "rescale" or not seconds or self.role != "primary":
            self._away.clear()
            return
        now, here = time.monotonic(), {trainer for trainer, _ in self.connected()}
        away = self.store.incarnations.keys() - closed - here
        self._away = {trainer: self._away.get(trainer, now) for trainer in away}
        lost = sorted(t for t, since in self._away.items() if now - since >= seconds)
        if len(closed) + len(lost) < self.options.num_gradient_servers:
            return
        for trainer in lost:
            self.say(f"trainer {trainer} is lost: no connection for {seconds:g} s")
            incarnation, _ = self.store.incarnations[trainer]
            try:
                self.engine.record(Op.CLOSE, {}, trainer=trainer, incarnation=incarnation)
            except PaddockError as error:  # Asked again at the next look.
                self.say_once(error.message)

    def forget(self, session: Session) -> None:
        """A connection has ended."""
        if session.hello.purpose in OF_TRAINERS:
            self.services.missed[session.hello.trainer] = time.monotonic()
        with self._lock:
            if session in self._sessions:
                del self._sessions[session]
                self._past = self._counts(session)

    def _counts(self, *sessions: Session) -> dict[str, int]:
        """Pushes and pulls over these connections and those that have ended."""
        return {n: count + sum(getattr(s, n) for s in sessions) for n, count in self._past.items()}

    def end_former(self, session: Session) -> None:
        """End the connections over which this incarnation pushed before; wait for that.

        What such a one has not answered comes again over the new one: two threads that carry out
        the same pushes could change their order. Raises ConnectionClosed when one does not end
        in time.
        """
        if session.hello.purpose != "push":
            return
        with self._lock:
            older = takewhile(lambda one: one is not session, self._sessions)
            former = [o for o in older if o.who == session.who and o.hello.purpose == "push"]
        for one in former:
            one.stream.interrupt()
            if not one.ended.wait(FORMER_SECONDS):
                raise ConnectionClosed(
                    f"trainer {session.hello.trainer}: its former connection lives on"
                )

    def stop(self) -> None:
        """Accept nothing more and end every connection; what was acknowledged stays."""
        self.replication.stop()
        self._stopped.set()
        self.migrator.stop()
        for listener in self._listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # Not connected, which a listener never is on some kernels.
            listener.close()
        if self.coordinator is not None:
            self.coordinator.stop()
        self.small_pulls.stop()
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            session.stream.interrupt()
        self.spool.close()

    # ------------------------------------------------------------------------- what sessions ask

    def welcome(self, hello: Hello, challenge: str) -> Welcome:
        """The answer to a greeting. Raises RequestError."""
        job = self.options.job
        if hello.job != job and hello.purpose != "admin":
            raise RequestError(
                "auth",
                f"this server serves job {job!r}, trainer {hello.trainer} is of job {hello.job!r}",
                hint="two jobs on one port? check PADDLE_PSERVERS_IP_PORT_LIST and the job's id",
            )
        proof = proof_of(self.token, "server", hello.nonce, challenge) if challenge else ""
        return Welcome(
            __version__,
            job,
            self.store.server,
            self.store.servers,
            self.server_id,
            self.replication.term,
            self.role,
            self._unix_name,
            challenge,
            proof,
            self.store.windows.newest(hello.trainer, hello.incarnation),
        )

    def check_admin(self, hello: Hello) -> None:
        """An admin connection may read from any job, and write to the one it names.

        Raises RequestError.
        """
        if hello.job != self.options.job:
            raise RequestError(
                "auth",
                f"server {self.store.server} serves job {self.options.job!r}, this order is "
                f"for job {hello.job!r}",
                hint=f"--job {self.options.job}, if that is the one you mean",
            )

    def status(self) -> dict[str, Any]:
        """Facts about this server, for `paddock ps status`."""
        tables, log = list(self.store.tables), self.engine.log
        with self._lock:
            counts = self._counts(*self._sessions)
        return {
            "server": self.store.server,
            "servers": self.store.servers,
            "job": self.options.job,
            "role": self.role,
            "pair": self.replication.describe(),
            "term": self.replication.term,
            "server_id": self.server_id,
            "ack": self.engine.ack,
            "lsn": self.engine.lsn,
            "seconds": round(time.monotonic() - self.started, 3),
            "connections": len(self._sessions),
            "rows": sum(h.table.rows for h in tables if isinstance(h, ServerSparseTable)),
            "bytes": self.store.nbytes,
            "memory_limit": self.store.memory_limit_bytes,
            "log_bytes": 0 if log is None else log.nbytes,
            **counts,
            "version": __version__,
            "pid": os.getpid(),
            "tables": [self.store.describe(held) for held in tables],
            "trainers": None if self.coordinator is None else self.coordinator.describe(),
        }

    def control(self, hello: Hello, order: dict[str, Any]) -> dict[str, Any]:
        """An order that is no record. Raises RequestError."""
        what = order.get("do")
        if what == "lease":
            hint = "name a server that was started with --data-dir, or paddock ps witness"
            lacks = "keeps no data: it cannot be a witness"
            return self._part(self.witness, lacks, hint).answer(order)
        if hello.purpose != "admin" or what not in OF_ANY_ROLE:
            self.engine.check_serving()
        if isinstance(what, str) and what in MOVES:
            if hello.purpose == "admin":
                self.check_admin(hello)
            return MOVES[what](self.migrator, order)
        if what == "digest":
            with self.engine.at_rest() as lsn:
                return {"lsn": lsn, "tables": self.store.digests()}
        if what == "progress":
            return self.store.progress()
        if what == "tables":
            tables = [self.store.describe(held) for held in self.store.tables]
            for table, held in zip(tables, self.store.tables, strict=False):
                table.update(number=held.number, owned=held.owned, spec=to_json(held.spec))
                table["moves"] = held.ownership.to_json()
            return {"tables": tables}
        if what == "hold":
            seconds = order.get("seconds")
            if not isinstance(seconds, (int, float)) or not 0 <= seconds <= HOLD_SECONDS_MAX:
                raise RequestError("usage", f"the coordinator is to hold for {seconds!r} s")
            return self.group().hold(seconds)
        if what == "cut":
            return self._take_cut()
        if what == "save":
            return self._write_save(order)
        if what == "check save":
            return check_save(order, self.spool, self.store.server)
        if what == "check load":
            # A replica reads the checkpoint, too: in a pair both must see it.
            is_replicated = self.replication.is_replicated
            return check_load(self.store, order, None if is_replicated else self.spool)
        if what == "forget":
            self.spool.forget(order.get("files"))
            return {}
        if what == "snapshot":
            return {"lsn": self._part(self.snapshots, "keeps no log", "--data-dir DIR").take()}
        raise RequestError("usage", f"order {what!r} is unknown")

    def _take_cut(self) -> dict[str, Any]:
        """Have the state of this moment kept, to be saved next."""
        if not self._saving.acquire(blocking=False):
            raise RequestError(
                "deadline", "another save is being written", hint="save again after it"
            )
        try:
            if self._save is not None:
                self._save.end()
            self._save = Save(self.engine)
            return {**self._save.progress, "cut": self._save.cut.lsn}
        finally:
            self._saving.release()

    def _write_save(self, order: dict[str, Any]) -> dict[str, Any]:
        """Write this server's part of a checkpoint."""
        with self._saving:
            if self._save is None or self._save.cut.lsn != order.get("cut"):
                raise no_snapshot_view()
            return self._save.write(order, self.spool, server=int(self.server_id, 16))

    def group(self) -> GroupCoordinator:
        """The coordinator of the trainers. Raises RequestError when that is another server."""
        hint = "do all trainers list the servers in the same order?"
        return self._part(self.coordinator, "does not coordinate, server 0 does", hint)

    def _part(self, part: Part | None, lacks: str, hint: str) -> Part:
        if part is None:
            raise RequestError("usage", f"server {self.store.server} {lacks}", hint=hint)
        return part


def _listening(family: int, address: tuple[str, int] | str) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        enlarge(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
