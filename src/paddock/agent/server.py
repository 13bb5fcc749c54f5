"""The coordinator's door: accepts members, checks their key, watches their leases."""

from __future__ import annotations

import os
import resource
import socket
from time import monotonic, monotonic_ns

from paddock.agent.connection import Connection
from paddock.agent.guestlist import GuestList
from paddock.agent.messages import Ping, Pong
from paddock.agent.wire import (
    GREETING_LIMIT_BYTES,
    LINE_LIMIT_BYTES,
    PACKED_FROM_BYTES,
    Signer,
    WireError,
    decode,
    encode,
    greeting,
    packed,
    read_answer,
    refusal,
    session_key,
    welcome,
)
from paddock.local.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from paddock.agent.coordinator import Coordinator
    from paddock.agent.messages import Begin, ToMember
    from paddock.core.job import Job
    from paddock.local.loop import Loop

BACKLOG = 4096
FILES_RESERVED = 512  # descriptors that strangers cannot take from the ranks of this node
HANDSHAKE_SECONDS = 10.0
LEASE_STEP_SECONDS = 0.005  # leases are not looked at more often
GOODBYE_SECONDS = 3.0
ACCEPTS_PER_TURN = 64


class Server:
    """Owned by the loop's thread."""

    def __init__(
        self,
        job: Job,
        loop: Loop,
        coordinator: Coordinator,
        listener: socket.socket,
        *,
        key: bytes,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.job = job
        self.coordinator = coordinator
        self.lease_seconds = job.rendezvous.lease_seconds
        self.key = key
        self.tls = tls
        self.loop = loop
        self._listener = listener
        self._guests: set[Guest] = set()
        self._checked_at = monotonic()
        self._on_empty: Callable[[], None] | None = None
        self._hosts_cache: tuple[object, bytes] = (None, b"")
        self.guest_list = GuestList(() if key else job.rendezvous.ips, loop)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files_max = soft - min(FILES_RESERVED, soft // 2) if soft > 0 else 1 << 30
        listener.setblocking(False)
        loop.watch(listener.fileno(), READ, self._on_connect)
        self._watch_leases()

    def _on_connect(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of descriptors: those waiting stay in the backlog until some close.
                self.loop.at("accept", monotonic() + 0.2, self._accept_again)
                self.loop.unwatch(self._listener.fileno())
                return
            # The lowest free number is given out: it tells how many descriptors are in use.
            if sock.fileno() >= self._files_max and not self._drop_a_stranger():
                sock.close()
                continue
            try:
                self._guests.add(Guest(self, sock, str(address[0])))
            except OSError:  # it had gone before it was greeted
                sock.close()

    def _drop_a_stranger(self) -> bool:
        """Make room: the one that came first and has not shown the key yet has to go."""
        strangers = [g for g in self._guests if not g.is_member]
        if not strangers:
            return False
        oldest = min(strangers, key=lambda g: g.seen_at)
        oldest.drop()
        self.forget(oldest)
        return True

    def _accept_again(self) -> None:
        self.loop.watch(self._listener.fileno(), READ, self._on_connect)

    @property
    def members(self) -> int:
        """Nodes that are in, this one included."""
        return 1 + sum(1 for guest in self._guests if guest.is_member)

    def has(self, guest: Guest) -> bool:
        """Whether the connection is still there."""
        return guest in self._guests

    def forget(self, guest: Guest) -> None:
        """A connection is gone."""
        self._guests.discard(guest)
        if self._on_empty is not None and not self._guests:
            self._on_empty()

    def _watch_leases(self) -> None:
        """Expel members whose lease ended; but not for a pause of our own."""
        now = monotonic()
        step = self.lease_seconds / 4
        was_paused = now - self._checked_at > 2 * step
        self._checked_at = now
        again_at = now + step
        for guest in list(self._guests):
            if guest.is_member:
                if was_paused:
                    guest.seen_at = max(guest.seen_at, now - step)
                elif now - guest.seen_at >= self.lease_seconds:
                    guest.expel(f"is silent for {now - guest.seen_at:.1f} s (its lease is over)")
                    continue
                # A lease that ends before the next round is looked at when it ends.
                again_at = min(again_at, guest.seen_at + self.lease_seconds)
            elif now - guest.seen_at > HANDSHAKE_SECONDS:
                guest.expel("said nothing")
        self.loop.at("leases", max(again_at, now + LEASE_STEP_SECONDS), self._watch_leases)

    def end(self, done: Callable[[], None]) -> None:
        """Everybody was told that the job is over: call ``done`` when they have left."""
        self.loop.at("accept", None, self._accept_again)
        self.loop.unwatch(self._listener.fileno())
        self._listener.close()
        self.loop.at("leases", None, self._watch_leases)
        for guest in [g for g in self._guests if not g.is_member]:
            guest.expel("")
        if not self._guests:
            done()
            return
        self._on_empty = done
        self.loop.at("goodbye", monotonic() + GOODBYE_SECONDS, done)

    def abandon(self) -> None:
        """Stop coordinating at once: every connection is closed, without a verdict."""
        self.loop.at("accept", None, self._accept_again)
        self.loop.unwatch(self._listener.fileno())
        self._listener.close()
        self.loop.at("leases", None, self._watch_leases)
        for guest in list(self._guests):
            guest.drop()
        self._guests.clear()

    def encode_begin(self, order: Begin) -> bytes:
        """Begin for one member; the host list is written once for all of them."""
        if self._hosts_cache[0] is not order.hosts:
            text = encode(order)
            rest = text[text.index(b'"hosts":') :]
            if len(rest) >= PACKED_FROM_BYTES:
                rest = b'"hosts":' + packed(rest[len('"hosts":') : -1]) + b"}"
            self._hosts_cache = (order.hosts, rest)
        head = b'{"t":"Begin","attempt":%d,"uid":"%s","node_rank":%d,'
        return head % (order.attempt, order.uid.encode(), order.node_rank) + self._hosts_cache[1]


class Guest:
    """A connection; a member once it has shown the key. Implements messages.Link."""

    def __init__(self, server: Server, sock: socket.socket, address: str) -> None:
        self.server = server
        self.address = address
        self.is_member = False
        self.seen_at = monotonic()
        self._id = 0
        self._is_looked_up = False
        self._nonce = os.urandom(16).hex()
        self._in = Signer(b"", "")
        self._out = Signer(b"", "")
        self._connection = Connection(
            sock,
            server.loop,
            limit_bytes=GREETING_LIMIT_BYTES,
            on_line=self._on_line,
            on_closed=self._on_closed,
            tls=server.tls,
            server_side=True,
        )
        self._connection.send(greeting(server.job.job_id, self._nonce, has_key=bool(server.key)))

    def send(self, message: ToMember) -> None:
        """Send without blocking."""
        if type(message).__name__ == "Begin":
            text = self.server.encode_begin(message)  # type: ignore[arg-type]  # by name, above
        else:
            text = encode(message)
        self._connection.send(self._out.sign(text))

    def close(self) -> None:
        """Send what is queued and close."""
        self._connection.close()
        self.server.forget(self)

    def drop(self) -> None:
        """Close at once; the coordinator is not told."""
        self._connection.abort()

    def expel(self, why: str) -> None:
        """Close at once and report the member as lost."""
        self._connection.abort()
        self._on_closed(why)

    def _on_line(self, line: bytes) -> None:
        self.seen_at = monotonic()
        if not self.is_member:
            self._shake_hands(line)
            return
        message = decode(self._in.check(line))
        if isinstance(message, Ping):
            self.send(Pong(message.at_ns, monotonic_ns()))
        else:
            self.server.coordinator.receive(self._id, message)  # type: ignore[arg-type]  # a message to a member is ignored there

    def _shake_hands(self, line: bytes) -> None:
        if self._is_looked_up:
            raise WireError("it goes on before it was let in")
        self._is_looked_up = True
        self.server.guest_list.ask(self.address, lambda is_known: self._decide(line, is_known))

    def _decide(self, line: bytes, is_known: bool) -> None:
        """Let it in or turn it away."""
        server = self.server
        if not server.has(self):
            return  # it went while its name was looked up
        job_id = server.job.job_id
        try:
            if not is_known:
                raise WireError(
                    f"{self.address} is not in --ips and there is no job key", exit_code=2
                )
            if not server.key and server.members >= server.job.nnodes_max:
                raise WireError(
                    f"the job has its {server.job.nnodes_max} nodes, and without a job key no "
                    "others are let in",
                    hint="is another job using this --master address? set PADDOCK_TOKEN on every "
                    "node to let more nodes stand by",
                )
            nonce = read_answer(line, server.key, job_id, self._nonce)
        except WireError as error:
            error.exit_code = 2
            server.coordinator.tell_turned_away(self.address, error.message)
            self._connection.send(refusal(error))
            self._connection.close()
            server.forget(self)
            return
        session = session_key(server.key, self._nonce, nonce)
        self._in = Signer(session, "to coordinator")
        self._out = Signer(session, "to member")
        self._connection.send(
            welcome(
                server.key, job_id, self._nonce, nonce, server.coordinator.uid,
                server.lease_seconds,
            )
        )  # fmt: skip
        self._connection.set_limit(LINE_LIMIT_BYTES)
        self.is_member = True
        self._id = server.coordinator.attach(self)

    def _on_closed(self, why: str) -> None:
        self.server.forget(self)
        if self.is_member:
            self.is_member = False
            text = why if why.startswith(("is ", "did ")) else f"is gone ({why})"
            self.server.coordinator.lose(self._id, text)
