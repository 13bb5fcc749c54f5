"""The coordinator's listener: accepts members, checks their key, finds silent ones (heartbeats).

A node is lost when its lease ends: when it has sent no heartbeat (Heartbeat) for that long.
"""

from __future__ import annotations

import os

from paddock.agent.transport.wire import (
    GREETING_LIMIT_BYTES,
    LINE_LIMIT_BYTES,
    Signer,
    WireError,
    decode,
    encode,
    greeting,
    read_answer,
    refusal,
    session_key,
    welcome,
)
from paddock.core.rendezvous.messages import Envelope, Heartbeat, HeartbeatAck
from paddock.local.facts.addresses import addresses_of, canonical, in_thread, is_numeric

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from paddock.agent.coordinator import MemberLink
    from paddock.agent.transport.connection import LineConnection
    from paddock.agent.transport.sockets import Listener
    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import Ending
    from paddock.local.loop import Loop

    class LinkOwner(Protocol):
        """The owner of a server's links: a coordinator, or a redirector."""

        uid: str

        def attach(self, link: MemberLink) -> int: ...
        def receive(self, member: int, envelope: Envelope) -> None: ...
        def lose(self, member: int, ending: Ending, detail: str = "") -> None: ...
        def tell_turned_away(self, who: str, why: str) -> None: ...


HANDSHAKE_SECONDS = 10.0
LEASE_STEP_SECONDS = 0.005  # leases are not checked more often
GOODBYE_SECONDS = 3.0


class CoordinatorServer:
    """The server of a leader. Owned by the loop's thread."""

    def __init__(
        self, job: Job, loop: Loop, coordinator: LinkOwner, listener: Listener, *, key: bytes
    ) -> None:
        self.job = job
        self.coordinator = coordinator
        self.lease_seconds = job.rendezvous.lease_seconds
        self.key = key
        self.loop = loop
        self.allow_list = AllowList(() if key else job.rendezvous.ips, loop)
        self._listener = listener
        self._pending: set[PendingConnection] = set()
        self._checked_at = loop.now()
        self._steady_at = 0.0
        self._on_empty: Callable[[], None] | None = None
        self._written: tuple[Envelope | None, bytes] = (None, b"")
        listener.open(
            lambda made: self._pending.add(PendingConnection(self, made)), self._make_room
        )
        self._watch_leases()

    def _make_room(self) -> bool:
        """Drop the oldest connection that has not shown the key; return True if there was one."""
        strangers = [g for g in self._pending if not g.is_member]
        if not strangers:
            return False
        oldest = min(strangers, key=lambda g: g.seen_at)
        oldest.drop()
        self.forget(oldest)
        return True

    @property
    def members(self) -> int:
        """The number of nodes that are in, this one included."""
        return 1 + sum(1 for pending in self._pending if pending.is_member)

    @property
    def room(self) -> int:
        """The connections that a job without a key takes: members that rejoin may be in twice."""
        return self.job.nnodes_max * (2 if self.job.is_elastic else 1)

    def has(self, pending: PendingConnection) -> bool:
        return pending in self._pending

    def forget(self, pending: PendingConnection) -> None:
        self._pending.discard(pending)
        if self._on_empty is not None and not self._pending:
            self._on_empty()

    def write(self, envelope: Envelope) -> bytes:
        """The line of an envelope; one that goes to all members is encoded once."""
        if envelope is not self._written[0]:
            self._written = (envelope, encode(envelope))
        return self._written[1]

    @property
    def steady_at(self) -> float:
        """The monotonic second before which no attempt may start, after a standstill: by then the
        messages in the sockets are read and the leases checked, so that lost nodes are known.
        """
        now = self.loop.now()
        stands_still = now - self._checked_at > self.lease_seconds / 2
        return now + self.lease_seconds if stands_still else self._steady_at

    def _watch_leases(self) -> None:
        """Expel silent members: no heartbeat for a lease; but not for a pause of our own."""
        now = self.loop.now()
        step = self.lease_seconds / 4
        was_paused = now - self._checked_at > 2 * step
        self._checked_at = now
        if was_paused:
            self._steady_at = now + self.lease_seconds
        again_at = now + step
        for pending in list(self._pending):
            if pending.is_member:
                if was_paused:
                    pending.seen_at = max(pending.seen_at, now - step)
                elif now - pending.seen_at >= self.lease_seconds:
                    pending.expel("silent", f"{now - pending.seen_at:.1f}")
                    continue
                # A lease that ends before the next round is checked when it ends.
                again_at = min(again_at, pending.seen_at + self.lease_seconds)
            elif now - pending.seen_at > HANDSHAKE_SECONDS:
                pending.expel("cut", "said nothing")
        self.loop.at("leases", max(again_at, now + LEASE_STEP_SECONDS), self._watch_leases)

    def end(self, done: Callable[[], None]) -> None:
        """Close the listener after the job's end; call ``done`` when the members have left."""
        self._close_listener()
        for pending in [g for g in self._pending if not g.is_member]:
            pending.drop()
            self._pending.discard(pending)
        if not self._pending:
            done()
            return
        self._on_empty = done
        self.loop.at("goodbye", self.loop.now() + GOODBYE_SECONDS, done)

    def abandon(self) -> None:
        """Stop coordinating at once: every connection is closed, without a verdict."""
        self._close_listener()
        self.loop.at("goodbye", None, self._watch_leases)
        self._on_empty = None
        for pending in list(self._pending):
            pending.drop()
        self._pending.clear()

    def _close_listener(self) -> None:
        self._listener.close()
        self.loop.at("leases", None, self._watch_leases)


class PendingConnection:
    """A connection; a member once it has shown the key. Implements coordinator.MemberLink."""

    def __init__(self, server: CoordinatorServer, connection: LineConnection) -> None:
        self.server = server
        self.address = connection.address
        self.is_member = False
        self.seen_at = server.loop.now()
        self._id = 0
        self._is_looked_up = False
        self._nonce = os.urandom(16).hex()
        self._in = Signer(b"", "")
        self._out = Signer(b"", "")
        self._connection = connection
        connection.begin(GREETING_LIMIT_BYTES, self._on_line, self._on_closed)
        connection.send(greeting(server.job.job_id, self._nonce, has_key=bool(server.key)))

    def send(self, envelope: Envelope) -> None:
        self._connection.send(self._out.sign(self.server.write(envelope)))

    def close(self) -> None:
        self._connection.close()
        self.server.forget(self)

    @property
    def silent_seconds(self) -> float:
        return self.server.loop.now() - self.seen_at

    def drop(self) -> None:
        """Close at once; the coordinator is not told."""
        self._connection.abort()

    def expel(self, ending: Ending, detail: str) -> None:
        """Close at once and report the member as lost."""
        self._connection.abort()
        self._lose(ending, detail)

    def _on_line(self, line: bytes) -> None:
        self.seen_at = self.server.loop.now()
        if not self.is_member:
            self._shake_hands(line)
            return
        envelope = decode(self._in.check(line))
        if isinstance(envelope.message, Heartbeat):
            ack = HeartbeatAck(envelope.message.at_ns, self.server.loop.now_ns())
            text = encode(Envelope(envelope.uid, envelope.attempt, ack))
            self._connection.send(self._out.sign(text))
        else:
            self.server.coordinator.receive(self._id, envelope)

    def _shake_hands(self, line: bytes) -> None:
        if self._is_looked_up:
            raise WireError("it goes on before it was let in")
        self._is_looked_up = True
        self.server.allow_list.ask(self.address, lambda is_known: self._decide(line, is_known))

    def _decide(self, line: bytes, is_known: bool) -> None:
        """Let the connection in as a member, or turn it away."""
        server = self.server
        if not server.has(self):
            return  # it went while its name was looked up
        job_id = server.job.job_id
        try:
            if not is_known:
                raise WireError(
                    f"{self.address} is not in --ips and there is no job key", exit_code=2
                )
            if not server.key and server.members >= server.room:
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

    def _on_closed(self, why: str, is_orderly: bool) -> None:
        self._lose("closed" if is_orderly else "cut", why)

    def _lose(self, ending: Ending, detail: str) -> None:
        self.server.forget(self)
        if self.is_member:
            self.is_member = False
            self.server.coordinator.lose(self._id, ending, detail)


class AllowList:
    """The addresses that may join without a job key: those of --ips, and of the names in it.

    Names are looked up when an unknown address connects: the pods of a job get their addresses one
    after the other. Looking up can take long, so a thread does it, one at a time.
    """

    def __init__(self, ips: Sequence[str], loop: Loop) -> None:
        self._loop = loop
        self._addresses = {canonical(ip) for ip in ips if is_numeric(ip)}
        self._names = [ip for ip in ips if not is_numeric(ip)]
        self._found: set[str] = set()  # by the last look at the names
        self._waiting: list[tuple[str, Callable[[bool], None]]] = []

    def ask(self, address: str, then: Callable[[bool], None]) -> None:
        """Call then(True) if this address may join, else then(False): now, or after a lookup."""
        address = canonical(address)
        is_open = not self._addresses and not self._names
        if is_open or address in self._addresses or address in self._found:
            then(True)
        elif not self._names:
            then(False)
        else:
            self._waiting.append((address, then))
            if len(self._waiting) == 1:
                self._look_up()

    def _look_up(self) -> None:
        waiting = len(self._waiting)

        def ask() -> list[str]:
            return [address for name in self._names for address in addresses_of(name)]

        in_thread(ask, self._loop.post, lambda found: self._answer(found, waiting))

    def _answer(self, found: list[str], count: int) -> None:
        """Answer the addresses that waited before the lookup; look up again for later ones."""
        self._found = set(found)
        told, self._waiting = self._waiting[:count], self._waiting[count:]
        for address, then in told:
            then(address in self._found)
        if self._waiting:
            self._look_up()
