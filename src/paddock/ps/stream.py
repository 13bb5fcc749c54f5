"""Frames over a connected socket, blocking, with as few copies and system calls as it takes.

One Stream belongs to one thread at a time. Bodies are read straight into the caller's array.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import struct
import sys
import time
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.wire.frames import (
    BODY_MAX,
    HEADER_SIZE,
    CorruptFrameError,
    FrameError,
    FrameFlag,
    Header,
    decode,
    encode,
    pack,
)
from paddock.ps.xxh3 import Buffer, xxh3

ERROR = int(FrameFlag.ERROR)
# What is read with a header at once: a small frame is one system call, not two.
READ_AHEAD_BYTES = 4096
# A frame up to this size is sent from one buffer: copying it is sooner than a list of pieces.
SMALL_BYTES = 4096
# Where a header has them.
_OP_AT, _LENGTH_AT = 5, 16
# Two frames in flight fit; Linux doubles it and caps it at net.core.{r,w}mem_max.
SOCKET_BUFFER_BYTES = 4 << 20
# Half-open connections are noticed by the kernel: idle, interval, count (tcp(7)).
KEEPALIVE = (15, 5, 3)
# What a peer that is refused may take to read why.
FINISH_SECONDS = 1.0


class ConnectionClosed(PaddockError):
    """The other side has ended the connection."""


class ReadTimeout(PaddockError):
    """Nothing came within the deadline."""


class FrameStream:
    """A connected socket that speaks frames.

    silence_seconds: the longest wait for a single read or write to move at all. deadline: all reads
    end by then (monotonic), however often something comes; None: as they wait.
    """

    def __init__(self, sock: socket.socket, silence_seconds: float) -> None:
        sock.settimeout(None)  # MSG_WAITALL needs a socket that blocks; the kernel keeps the time.
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self.is_tls = isinstance(sock, ssl.SSLSocket)
        # Read and not taken yet: [start, end). A header lies here until the next one is asked for.
        self._ahead = memoryview(bytearray(READ_AHEAD_BYTES))
        self._start = self._end = 0
        self.deadline: float | None = None
        self.set_silence(silence_seconds)

    def set_silence(self, seconds: float) -> None:
        """Change the longest wait; 0 waits for ever."""
        if self.is_tls:  # OpenSSL tries again where a read gave up; Python's own limit ends it.
            self._sock.settimeout(seconds or None)
            return
        whole = int(seconds)
        value = struct.pack("ll", whole, int((seconds - whole) * 1e6))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def peek(self, size: int) -> bytes:
        """The next bytes, at most so many, which stay to be read. Raises OSError."""
        return self._sock.recv(size, socket.MSG_PEEK)

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS from here on, as the server. Raises ssl.SSLError, OSError."""
        sock = context.wrap_socket(self._sock, server_side=True, do_handshake_on_connect=False)
        self._sock, self.is_tls = sock, True
        if self.deadline is not None:
            self.set_silence(max(self.deadline - time.monotonic(), 0.001))
        sock.do_handshake()

    def fileno(self) -> int:
        """The descriptor, -1 once closed."""
        return self._sock.fileno()

    def send(
        self, header: Header, *body: Buffer, before: bytes = b"", is_sealed: bool = False
    ) -> None:
        """Send one frame; the body's pieces are not copied. before: small encoded frames.

        is_sealed: the header has length and checksum of the body already, and stays as it is.
        """
        head = before + (pack(header) if is_sealed else encode(header, *body))
        try:
            wanted = len(head) + sum(map(len, body))
            if self.is_tls or wanted <= SMALL_BYTES:
                self._sock.sendall(b"".join((head, *body)))
                return
            sent = self._sock.sendmsg((head, *body))
            if sent < wanted:  # It has waited for silence_seconds, or a signal came.
                self._sock.sendall(memoryview(b"".join((head, *body)))[sent:])
        except (BlockingIOError, TimeoutError):
            raise ReadTimeout("the other side takes no data") from None
        except OSError as error:
            text = f"the connection broke while sending: {os_reason(error)}"
            raise ConnectionClosed(text) from error

    def receive(
        self, most: int = BODY_MAX, into: memoryview | None = None
    ) -> tuple[Header, bytearray | memoryview]:
        """The next frame and its body, of at most so many bytes, in memory of its own; or at the
        start of `into`, where it fits there and is no error. Raises ConnectionClosed, ReadTimeout
        or FrameError.
        """
        while self._end - self._start < HEADER_SIZE:
            self._read()
        head = self._ahead[self._start : self._start + HEADER_SIZE]
        self._start += HEADER_SIZE
        header = decode(head)
        size = header.length
        if size > most:
            text = f"a frame announces {size} bytes, at most {most} are taken here"
            raise FrameError(text)
        body: bytearray | memoryview
        if into is None or size > into.nbytes or header.flags & ERROR:
            body = bytearray(size)
        else:
            body = into[:size]
        done = min(size, self._end - self._start)
        if done:
            body[:done] = self._ahead[self._start : self._start + done]
            self._start += done
        while done < size:
            rest = memoryview(body)[done:]
            done += self._read(rest, 0 if self.is_tls else socket.MSG_WAITALL)
        if xxh3(head[:-8], body) != header.checksum:
            raise CorruptFrameError("a frame was damaged on its way: its checksum does not fit")
        return header, body

    def _read(self, into: memoryview | None = None, flags: int = 0) -> int:
        """A single system call; the bytes read, at least one. Without `into` what has come is read
        ahead, as far as it fits behind what was not taken yet."""
        view = into
        if view is None:
            self._end -= self._start
            if self._end:
                self._ahead[: self._end] = self._ahead[self._start : self._start + self._end]
            self._start = 0
            view = self._ahead[self._end :]
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise ReadTimeout("it took too long")
            self.set_silence(max(left, 0.001))
        try:
            got = self._sock.recv_into(view, view.nbytes, flags)
        except (BlockingIOError, TimeoutError):
            raise ReadTimeout("no answer came in time") from None
        except OSError as error:
            raise ConnectionClosed(f"the connection broke: {os_reason(error)}") from error
        if got == 0:
            raise ConnectionClosed("the other side closed the connection")
        if into is None:
            self._end += got
        return got

    def wait_readable(self, seconds: float) -> bool:
        """True when a read would not have to wait, within so many seconds."""
        if self._start < self._end:
            return True
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        if self._sock.fileno() < 0:
            raise ConnectionClosed("the connection was closed")
        return self._polled(select.POLLIN, seconds)

    def _polled(self, event: int, seconds: float = 0.0) -> bool:
        poll = select.poll()
        poll.register(self._sock, event)
        return bool(poll.poll(seconds * 1000))

    def read_ready(self) -> bool:
        """Read what has come, without a wait, as far as it fits; whether anything did."""
        try:
            self._read(flags=socket.MSG_DONTWAIT)
        except (ReadTimeout, ConnectionClosed):
            return False
        return True

    def has_small(self, op: int) -> bool:
        """True when a whole frame of this op has been read, and an answer of as many bytes as fit
        with it would not have to wait."""
        at = self._start
        if self._end - at < HEADER_SIZE or self._ahead[at + _OP_AT] != op:
            return False
        length = int.from_bytes(self._ahead[at + _LENGTH_AT : at + _LENGTH_AT + 4], "little")
        if self._end - at < HEADER_SIZE + length:
            return False
        return self._polled(select.POLLOUT)

    @property
    def is_empty(self) -> bool:
        """True when nothing has been read that was not taken."""
        return self._start == self._end

    def is_gone(self) -> bool:
        """True when the other side has ended the connection, without reading from it."""
        return self._polled(select.POLLRDHUP)

    def interrupt(self) -> None:
        """End both directions from another thread, so that a blocked read or write returns."""
        with suppress(OSError):  # It had ended already.
            self._sock.shutdown(socket.SHUT_RDWR)

    def finish(self) -> None:
        """Close after a last frame. What came unread is read, or the kernel would reset the
        connection, and the frame could be lost with it."""
        deadline = time.monotonic() + FINISH_SECONDS
        with suppress(OSError):  # The other side was quicker.
            self.set_silence(FINISH_SECONDS)
            if not self.is_tls:
                self._sock.shutdown(socket.SHUT_WR)
            while self._sock.recv(1 << 16) and time.monotonic() < deadline:
                pass
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


def raw(array: NDArray[Any]) -> memoryview:
    """The bytes of a C-contiguous array, not copied.

    >>> import numpy as np
    >>> raw(np.zeros((0, 4), np.float32)).nbytes, raw(np.ones(2, np.float32)).nbytes
    (0, 8)
    """
    return array.data.cast("B") if array.size else memoryview(b"")


def os_reason(error: OSError) -> str:
    """The system's words for an error, in lower case, without its number.

    >>> os_reason(ConnectionRefusedError(111, "Connection refused"))
    'connection refused'
    """
    return (error.strerror or (os.strerror(error.errno) if error.errno else str(error))).lower()


def connect(host: str, port: int, seconds: float) -> socket.socket:
    """A TCP connection with large buffers. Raises OSError."""
    sock = socket.create_connection((host, port), timeout=seconds)
    try:
        if sock.getsockname() == sock.getpeername():  # Raises when the other side has gone again.
            # On one machine, a connect to a port that nobody listens on can meet itself.
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        enlarge(sock)
        keep_alive(sock)
    except OSError:
        sock.close()
        raise
    return sock


def connect_unix(name: str, seconds: float) -> socket.socket:
    """A connection to an abstract Unix socket (unix(7)) of this machine. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    enlarge(sock)
    try:
        sock.connect("\0" + name)
    except OSError:
        sock.close()
        raise
    return sock


def keep_alive(sock: socket.socket) -> None:
    """Have the kernel ask whether the other machine is still there."""
    idle, interval, count = KEEPALIVE
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform.startswith("linux"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)


def enlarge(sock: socket.socket) -> None:
    """Ask for buffers that hold a whole frame."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
