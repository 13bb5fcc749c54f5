"""A member's connection to its coordinator: handshake, heartbeats for its lease, clock offset.

state        event                       next         actions
----------   -------------------------   ----------   ------------------------------------
connecting   connected                   greeting     none
connecting   refused, unreachable        connecting   again after a pause, to the deadline
greeting     the coordinator's nonce     proving      prove the key
proving      welcome                     joined       keep the lease
proving      refused                     ended        exit code and hint of the coordinator
joined       connection closed, broken   lost         none
joined       lease over, no heartbeat ack  lost         this node's processes are killed first
"""

from __future__ import annotations

import os

from paddock.agent.transport.wire import (
    GREETING_LIMIT_BYTES,
    LINE_LIMIT_BYTES,
    Signer,
    WireError,
    answer,
    decode,
    encode,
    read_greeting,
    read_welcome,
    session_key,
)
from paddock.core.endpoint import join_endpoint
from paddock.core.job import LEASE_SECONDS
from paddock.core.rendezvous.messages import Envelope, Heartbeat, HeartbeatAck
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.transport.connection import LineConnection
    from paddock.agent.transport.sockets import Network, OutgoingConnection
    from paddock.core.attempt.exits import Exit
    from paddock.core.rendezvous.messages import Ending
    from paddock.local.loop import Loop

RETRY_FIRST_SECONDS = 0.05
RETRY_MAX_SECONDS = 1.0
CONNECT_SECONDS = 5.0
LIMIT_HINT = "start the command on that node; check the address, the port and the firewall between \
the nodes"
GREETING_SECONDS = 5.0
GREETING_SECONDS_MIN = 0.5
SILENT_TIMES_MAX = 3
FENCE_SHARE = 0.92  # a member gives up its lease a little before the coordinator takes it
CLOCK_SAMPLES = 8


class ClientEvents:
    """The events of a client, for its owner; each does nothing unless overridden."""

    def joined(self, seen_as: str, uid: str) -> None:
        """The coordinator accepted this node, which it sees at address seen_as."""

    def on_envelope(self, envelope: Envelope) -> None:
        """The coordinator sent an order."""

    def lost(self, ending: Ending, why: str, seconds_left: float) -> None:
        """The coordinator is lost; seconds_left: of our lease."""

    def failed(self, error: PaddockError) -> None:
        """The coordinator cannot be reached, or refuses this node."""

    def waiting(self, where: str, why: str) -> None:
        """The coordinator does not answer yet."""

    def refused(self) -> None:
        """The coordinator's host answers, and no process listens there."""


class CoordinatorClient:
    """A member's client. Owned by the loop's thread. is_search: failures are not printed."""

    def __init__(
        self,
        loop: Loop,
        net: Network,
        job_id: str,
        target: tuple[str, int],
        *,
        key: bytes,
        join_timeout_seconds: float,
        events: ClientEvents,
        is_search: bool = False,
        source: str = "",
    ) -> None:
        self.target = target
        self.uid = ""
        self._timer = f"client {id(self)} "
        self._loop = loop
        self._net = net
        self._job_id = job_id
        self._key = key
        self._source = source
        self._events = events
        self._limit_seconds = join_timeout_seconds
        self._is_search = is_search  # one address of many: the search prints its failure
        self._deadline = self._loop.now() + join_timeout_seconds
        self._pause = RETRY_FIRST_SECONDS
        self._has_reported_waiting = False
        self._silent_times = 0
        self._connection: LineConnection | None = None
        self._dial: OutgoingConnection | None = None  # a connection that is being made
        self._nonce = ""
        self._server_nonce = ""
        self._state = "connecting"
        self._in = Signer(b"", "")
        self._out = Signer(b"", "")
        self._lease = 0.0
        self._lease_until = 0.0
        self._clock: list[tuple[int, int]] = []  # (round trip ns, offset ns), newest last
        self._connect()

    # -------------------------------------------------------------- connecting

    def _connect(self) -> None:
        self._state = "connecting"
        seconds = min(max(0.0, self._deadline - self._loop.now()), CONNECT_SECONDS)
        self._dial = self._net.dial(
            self.target,
            source=self._source,
            seconds=seconds,
            on_open=self._connected,
            on_failed=self._not_connected,
        )

    def _not_connected(self, why: str, is_refused: bool) -> None:
        if is_refused:
            self._events.refused()
        if self._state == "connecting":
            self._retry(why)

    def _connected(self, connection: LineConnection) -> None:
        self._dial, self._connection = None, connection
        self._state = "greeting"
        now = self._loop.now()
        limit = min(now + GREETING_SECONDS, max(now + GREETING_SECONDS_MIN, self._deadline))
        self._loop.at(self._timer + "connect", limit, self._no_greeting)
        try:
            connection.begin(GREETING_LIMIT_BYTES, self._on_line, self._on_closed)
        except OSError as error:  # it has gone again
            self._connection = None
            self._retry(error.strerror or str(error))

    def _no_greeting(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._silent_times += 1
        why = "the program there accepts connections but is not a Paddock coordinator"
        is_late = self._loop.now() >= self._deadline
        if self._silent_times < SILENT_TIMES_MAX or is_late:  # it may be one that stands still
            self._retry(why)
            return
        hint = "is the --master port taken by another program? choose another port"
        self._end(WireError(why, hint=hint, exit_code=2))

    def _retry(self, why: str) -> None:
        now = self._loop.now()
        if now >= self._deadline:
            waited = f"no coordinator answered within {self._limit_seconds:g} s"
            text = f"{waited} (--join-timeout): {why}" if not self._is_search else why
            self._end(PaddockError(text, hint=LIMIT_HINT, exit_code=EXIT_DEADLINE))
            return
        if not self._has_reported_waiting:
            self._has_reported_waiting = True
            if not self._is_search:
                self._events.waiting(join_endpoint(*self.target), why)
        self._loop.at(
            self._timer + "connect", min(now + self._pause, self._deadline), self._connect
        )
        self._pause = min(self._pause * 2, RETRY_MAX_SECONDS)

    def _end(self, error: PaddockError) -> None:
        self._state = "ended"
        self._loop.at(self._timer + "connect", None, self._connect)
        flag = "" if self._is_search else "--master "
        error.message = f"{flag}{join_endpoint(*self.target)}: {error.message}"
        self._events.failed(error)

    # ---------------------------------------------------------------- speaking

    def _on_line(self, line: bytes) -> None:
        if self._state == "joined":
            envelope = decode(self._in.check(line))
            if isinstance(envelope.message, HeartbeatAck):
                self._on_heartbeat_ack(envelope.message)
            elif self._loop.now() < self._lease_until:
                self._events.on_envelope(envelope)
            else:  # after a standstill: an order to a node that is taken for dead
                self._on_lease_over()
            return
        try:
            self._shake_hands(line)
        except WireError as error:
            if error.exit_code == 125:
                error.exit_code = 2
            if self._connection is not None:
                self._connection.abort()
            self._end(error)

    def _shake_hands(self, line: bytes) -> None:
        assert self._connection is not None
        if self._state == "greeting":
            self._server_nonce = read_greeting(line, self._job_id, self._key)
            self._nonce = os.urandom(16).hex()
            self._connection.send(answer(self._key, self._job_id, self._server_nonce, self._nonce))
            self._state = "proving"  # greeting -> proving
            return
        self.uid, self._lease = read_welcome(
            line, self._key, self._job_id, self._server_nonce, self._nonce
        )
        session = session_key(self._key, self._server_nonce, self._nonce)
        self._in = Signer(session, "to member")
        self._out = Signer(session, "to coordinator")
        self._connection.set_limit(LINE_LIMIT_BYTES)
        self._state = "joined"  # proving -> joined
        self._loop.at(self._timer + "connect", None, self._connect)
        self._lease_until = self._loop.now() + self._lease * FENCE_SHARE
        self._send_heartbeat()  # first: from now on exits have the coordinator's time
        self._events.joined(self._connection.local_address, self.uid)

    def send(self, envelope: Envelope) -> None:
        if self._state == "joined" and self._connection is not None:
            self._connection.send(self._out.sign(encode(envelope)))

    def close(self, *, breaks: bool = False) -> None:
        """Close: what was sent before still arrives. breaks: by a reset."""
        self._state = "ended"
        for name in ("connect", "heartbeat", "lease"):
            self._loop.at(self._timer + name, None, self._connect)
        if self._dial is not None:
            self._dial.cancel()
            self._dial = None
        if self._connection is not None:
            (self._connection.abort if breaks else self._connection.close)()
            self._connection = None

    # ------------------------------------------------------- lease and clock

    def _send_heartbeat(self) -> None:
        if self._state != "joined":
            return
        self.send(Envelope(self.uid, -1, Heartbeat(self._loop.now_ns())))
        # No rarer with a lease of minutes: they compare clocks, and date silence.
        again_at = self._loop.now() + min(self._lease, LEASE_SECONDS) / 4
        self._loop.at(self._timer + "heartbeat", again_at, self._send_heartbeat)
        self._loop.at(self._timer + "lease", self._lease_until, self._on_lease_over)

    def _on_heartbeat_ack(self, ack: HeartbeatAck) -> None:
        now_ns = self._loop.now_ns()
        round_trip = now_ns - ack.at_ns
        offset = ack.now_ns - (ack.at_ns + now_ns) // 2
        self._clock = [*self._clock, (round_trip, offset)][-CLOCK_SAMPLES:]
        # The lease is renewed from when the heartbeat was sent.
        self._lease_until = ack.at_ns / 1e9 + self._lease * FENCE_SHARE
        self._loop.at(self._timer + "lease", self._lease_until, self._on_lease_over)

    def translate(self, exit_: Exit) -> Exit:
        """The same exit with its times on the coordinator's clock."""
        if not self._clock:
            return exit_
        round_trip, offset = min(self._clock)
        return replace(
            exit_,
            at_ns=exit_.at_ns + offset,
            error_at_ns=exit_.error_at_ns + offset if exit_.error_at_ns else 0,
            uncertainty_ns=round_trip // 2,
        )

    def _on_lease_over(self) -> None:
        """Fence this node: its lease is over, and the coordinator takes it for dead."""
        if self._state == "joined":
            self._lose("silent", f"silent for {self._lease:g} s")

    def _on_closed(self, why: str, is_orderly: bool) -> None:
        if self._state == "joined":
            self._lose("closed" if is_orderly else "cut", why)
        elif self._state in ("greeting", "proving"):
            self._connection = None
            self._retry(why)

    def _lose(self, ending: Ending, why: str) -> None:
        self.close(breaks=True)
        self._state = "lost"  # joined -> lost
        self._events.lost(ending, why, max(0.0, self._lease_until - self._loop.now()))
