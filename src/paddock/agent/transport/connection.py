"""A TCP connection on the loop: non-blocking, buffered, optionally TLS. Lines in, lines out."""

from __future__ import annotations

import socket
import struct
from collections import deque
from contextlib import suppress

from paddock.agent.transport.wire import LineReader, WireError
from paddock.local.loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from paddock.local.loop import Loop

READ_BYTES = 1 << 18
# Linux, not named in Python 3.10: a connection with little on its way sends again at a steady pace
# (2.6.34), and never pauses for longer than this many ms (6.15; 1000 is the least it takes).
TCP_THIN_LINEAR_TIMEOUTS, TCP_RTO_MAX_MS = 16, 44
RESEND_PAUSE_MAX_MS = 1000
OUT_LIMIT_BYTES = 64 << 20


class LineConnection:
    """A connection that carries lines, from begin() on. Owned by the loop's thread.

    address: the other side's.
    """

    _on_line: Callable[[bytes], None]

    def __init__(
        self,
        sock: socket.socket,
        loop: Loop,
        tls: ssl.SSLContext | None,
        address: str,
        *,
        server_side: bool,
    ) -> None:
        self.address = address
        self._sock = sock
        self._loop = loop
        self._tls = tls
        self._server_side = server_side
        self._on_closed: Callable[[str, bool], None] = _ignore
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
        self._is_open = True
        self._closes_when_sent = False
        self._shakes_hands = tls is not None

    def begin(
        self,
        limit_bytes: int,
        on_line: Callable[[bytes], None],
        on_closed: Callable[[str, bool], None],
    ) -> None:
        """Read from now on. Raises OSError when the other side has gone already.

        on_line(line): called for each line; on_closed(why, is_orderly): called once. is_orderly:
        the other side closed it, or its kernel when it died. Otherwise it broke (also when the
        other side died with something unread), and the other side need not know.
        """
        self._reader = LineReader(limit_bytes)
        self._on_line, self._on_closed = on_line, on_closed
        self._sock.setblocking(False)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _resend_soon(self._sock)
        if self._tls is not None:
            self._sock = self._tls.wrap_socket(
                self._sock,
                server_side=self._server_side,
                do_handshake_on_connect=False,
                server_hostname=None if self._server_side else self.address,
            )
        self._watch()

    def _watch(self) -> None:
        is_writing = self._shakes_hands or self._out
        self._loop.watch(self._sock.fileno(), READ | (WRITE if is_writing else 0), self._on_ready)

    @property
    def local_address(self) -> str:
        """The address the other side sees."""
        return str(self._sock.getsockname()[0])

    def set_limit(self, limit_bytes: int) -> None:
        """Allow longer lines, once the other side is authenticated."""
        self._reader.limit_bytes = limit_bytes

    def send(self, data: bytes) -> None:
        """Queue bytes and send what the kernel takes; closes a connection that does not drain."""
        if not self._is_open:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > OUT_LIMIT_BYTES:
            self._fail(f"did not take {self._out_bytes} bytes")
        elif len(self._out) == 1 and not self._shakes_hands:
            self._flush()

    def close(self) -> None:
        """Send what is queued, then close; on_closed is not called."""
        self._on_closed = _ignore
        if self._out and self._is_open:
            self._closes_when_sent = True
        else:
            self._shut()

    def abort(self) -> None:
        """Reset the connection: only a launcher that ended, or was asked to go, closes in order."""
        self._on_closed = _ignore
        self._break()

    def _on_ready(self, events: int) -> None:
        try:
            if self._shakes_hands and not self._shake_hands():
                return
            if events & ~WRITE:
                self._read()
            if self._is_open and self._out:
                self._flush()
        except WireError as error:
            self._fail(error.message)
        except OSError as error:
            self._fail(f"connection lost ({error.strerror or error})")

    def _shake_hands(self) -> bool:
        import ssl

        assert isinstance(self._sock, ssl.SSLSocket)
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.watch(self._sock.fileno(), READ, self._on_ready)
            return False
        except ssl.SSLWantWriteError:
            self._watch()
            return False
        self._shakes_hands = False
        self._watch()
        return True

    def _read(self) -> None:
        while self._is_open:
            try:
                data = self._sock.recv(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                    return
                raise
            if not data:
                self._fail("connection closed", is_orderly=True)
                return
            for line in self._reader.feed(data):
                if self._is_open:
                    self._on_line(line)
            if len(data) < READ_BYTES and not hasattr(self._sock, "pending"):
                return

    def _flush(self) -> None:
        while self._out:
            try:
                sent = self._sock.send(self._out[0])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                    break
                self._fail(f"connection lost ({error.strerror or error})")
                return
            self._out_bytes -= sent
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]
        if not self._is_open:
            return
        self._watch()
        if not self._out and self._closes_when_sent:
            self._shut()

    def _fail(self, why: str, *, is_orderly: bool = False) -> None:
        on_closed, self._on_closed = self._on_closed, _ignore
        if is_orderly:
            self._shut()
        else:
            self._break()
        on_closed(why, is_orderly)

    def _break(self) -> None:
        """Close with a reset, so that the other side does not take this launcher for dead."""
        if self._is_open:
            linger = struct.pack("ii", 1, 0)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._shut()

    def _shut(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.unwatch(self._sock.fileno())
            self._sock.close()


def _resend_soon(sock: socket.socket) -> None:
    """Have the kernel send again soon what a broken network swallowed.

    TCP doubles its pause with each try. Without this a network that was away for 1.6 s is found
    again after 3 s, when a lease of 3 s is over.
    """
    for option, setting in (
        (TCP_THIN_LINEAR_TIMEOUTS, 1),
        (TCP_RTO_MAX_MS, RESEND_PAUSE_MAX_MS),
    ):
        with suppress(OSError):  # an older kernel, or another one: heartbeats come later
            sock.setsockopt(socket.IPPROTO_TCP, option, setting)


def _ignore(_why: str, _is_orderly: bool) -> None:
    return
