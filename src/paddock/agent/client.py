"""A member's way to its coordinator: connect, prove the key, keep the lease, know the clock.

state        event                       next
----------   -------------------------   --------------------------------------------------
connecting   connected                   greeting
connecting   refused, unreachable        connecting (again after a pause) until the deadline
greeting     the coordinator's nonce     proving
proving      welcome                     joined
proving      refused                     ended (exit code and hint of the coordinator)
joined       connection closed           lost
joined       lease over without a pong   lost (this node's processes are killed first)
"""

from __future__ import annotations

import errno
import os
import socket
from time import monotonic, monotonic_ns

from paddock.agent.connection import Connection
from paddock.agent.messages import Ping, Pong
from paddock.agent.wire import (
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
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, PaddockError
from paddock.local.loop import WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from paddock.agent.messages import ToCoordinator, ToMember
    from paddock.core.exits import Exit
    from paddock.local.loop import Loop

RETRY_FIRST_SECONDS = 0.05
RETRY_MAX_SECONDS = 1.0
GREETING_SECONDS = 5.0
SILENT_TIMES_MAX = 3
FENCE_SHARE = 0.92  # a member gives up its lease a little before the coordinator takes it
CLOCK_SAMPLES = 8


class Client:
    """Owned by the loop's thread.

    on_joined(address, uid): the coordinator accepted us and sees us as ``address``.
    on_message(message): an order. on_lost(why, is_silent): the coordinator is gone.
    on_failed(error): it cannot be reached or does not want us.
    """

    def __init__(
        self,
        loop: Loop,
        job_id: str,
        target: tuple[str, int],
        *,
        key: bytes,
        join_timeout_seconds: float,
        on_joined: Callable[[str, str], None],
        on_message: Callable[[ToMember], None],
        on_lost: Callable[[str, bool], None],
        on_failed: Callable[[PaddockError], None],
        on_waiting: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
        source: str = "",
    ) -> None:
        self.target = target
        self.uid = ""
        self._timer = f"client {id(self)} "
        self._loop = loop
        self._job_id = job_id
        self._key = key
        self._tls = tls
        self._source = source
        self._on_joined = on_joined
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._on_waiting = on_waiting
        self._limit_seconds = join_timeout_seconds
        self._limit_flag = "--join-timeout"
        self._limit_hint = (
            "start the command on that node; check the address, the port and the firewall "
            "between the nodes"
        )
        self._deadline = monotonic() + join_timeout_seconds
        self._pause = RETRY_FIRST_SECONDS
        self._said_waiting = False
        self._silent_times = 0
        self._connection: Connection | None = None
        self._attempt: socket.socket | None = None  # a connection that is being made
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
        host, port = self.target
        self._state = "connecting"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            if self._source and (":" in self._source) == (":" in host):
                sock.bind((self._source, 0))
            result = sock.connect_ex((host, port))
        except OSError as error:
            sock.close()
            self._retry(error.strerror or str(error))
            return
        if result not in (0, errno.EINPROGRESS):
            sock.close()
            self._retry(os.strerror(result))
            return
        self._attempt = sock
        self._loop.watch(sock.fileno(), WRITE, lambda _events: self._connected(sock))
        limit = min(self._deadline, monotonic() + 5.0)
        self._loop.at(self._timer + "connect", limit, lambda: self._timed_out(sock))

    def _timed_out(self, sock: socket.socket) -> None:
        self._attempt = None
        self._loop.unwatch(sock.fileno())
        sock.close()
        self._retry("no answer")

    def _connected(self, sock: socket.socket) -> None:
        self._attempt = None
        self._loop.unwatch(sock.fileno())
        result = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        is_self = result == 0 and sock.getsockname() == sock.getpeername()
        if result or is_self:  # is_self: TCP connected to itself, nobody listens there
            sock.close()
            self._retry(os.strerror(result or errno.ECONNREFUSED))
            return
        self._state = "greeting"
        self._loop.at(self._timer + "connect", monotonic() + GREETING_SECONDS, self._no_greeting)
        self._connection = Connection(
            sock,
            self._loop,
            limit_bytes=GREETING_LIMIT_BYTES,
            on_line=self._on_line,
            on_closed=self._on_closed,
            tls=self._tls,
            server_name=self.target[0],
        )

    def _no_greeting(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._silent_times += 1
        why = "the program there accepts connections but is not a Paddock coordinator"
        if self._silent_times < SILENT_TIMES_MAX:  # or it is one, and busy or stopped just now
            self._retry(why)
            return
        hint = "is the --master port taken by another program? choose another port"
        self._end(WireError(why, hint=hint, exit_code=2))

    def _retry(self, why: str) -> None:
        now = monotonic()
        if now >= self._deadline:
            self._end(
                PaddockError(
                    f"no coordinator answered within {self._limit_seconds:g} s "
                    f"({self._limit_flag}): {why}",
                    hint=self._limit_hint,
                    exit_code=EXIT_DEADLINE,
                )
            )
            return
        if not self._said_waiting:
            self._said_waiting = True
            self._on_waiting(why)
        self._loop.at(
            self._timer + "connect", min(now + self._pause, self._deadline), self._connect
        )
        self._pause = min(self._pause * 2, RETRY_MAX_SECONDS)

    def _end(self, error: PaddockError) -> None:
        self._state = "ended"
        self._loop.at(self._timer + "connect", None, self._connect)
        host, port = self.target
        error.message = f"--master {host}:{port}: {error.message}"
        self._on_failed(error)

    # ---------------------------------------------------------------- speaking

    def _on_line(self, line: bytes) -> None:
        if self._state == "joined":
            message = decode(self._in.check(line))
            if isinstance(message, Pong):
                self._on_pong(message)
            else:
                self._on_message(message)  # type: ignore[arg-type]  # a message to the coordinator is ignored there
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
        self._lease_until = monotonic() + self._lease * FENCE_SHARE
        self._on_joined(self._connection.local_address, self.uid)
        self._ping()

    def send(self, message: ToCoordinator) -> None:
        """Send without blocking; into the void when the coordinator is gone."""
        if self._state == "joined" and self._connection is not None:
            self._connection.send(self._out.sign(encode(message)))

    def close(self) -> None:
        """Leave: what was sent before still arrives."""
        self._state = "ended"
        for name in ("connect", "ping", "fence"):
            self._loop.at(self._timer + name, None, self._connect)
        if self._attempt is not None:
            self._loop.unwatch(self._attempt.fileno())
            self._attempt.close()
            self._attempt = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------- lease and clock

    def _ping(self) -> None:
        if self._state != "joined":
            return
        self.send(Ping(monotonic_ns()))
        self._loop.at(self._timer + "ping", monotonic() + self._lease / 4, self._ping)
        self._loop.at(self._timer + "fence", self._lease_until, self._fence)

    def _on_pong(self, pong: Pong) -> None:
        now_ns = monotonic_ns()
        round_trip = now_ns - pong.at_ns
        offset = pong.now_ns - (pong.at_ns + now_ns) // 2
        self._clock = [*self._clock, (round_trip, offset)][-CLOCK_SAMPLES:]
        self._lease_until = pong.at_ns / 1e9 + self._lease * FENCE_SHARE
        self._loop.at(self._timer + "fence", self._lease_until, self._fence)

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

    @property
    def clock_offset_seconds(self) -> float:
        """How far the coordinator's clock is ahead of ours."""
        return min(self._clock)[1] / 1e9 if self._clock else 0.0

    def _fence(self) -> None:
        """The coordinator takes us for dead now, or will at once."""
        if self._state == "joined":
            self._lose(f"silent for {self._lease:g} s", is_silent=True)

    def _on_closed(self, why: str) -> None:
        if self._state == "joined":
            self._lose(why, is_silent=False)
        elif self._state in ("greeting", "proving"):
            self._connection = None
            self._retry(why)

    def _lose(self, why: str, *, is_silent: bool) -> None:
        self._state = "lost"  # joined -> lost
        for name in ("connect", "ping", "fence"):
            self._loop.at(self._timer + name, None, self._connect)
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._on_lost(why, is_silent)

    def reconnect(self, target: tuple[str, int], timeout_seconds: float) -> None:
        """After a loss: try again, there, for so long."""
        self.target = target
        self._clock = []
        self._limit_seconds = timeout_seconds
        self._limit_flag = "--elastic_timeout"
        self._limit_hint = "its launcher or its host ended: start the job again"
        self._deadline = monotonic() + timeout_seconds
        self._pause = RETRY_FIRST_SECONDS
        self._connect()
