"""Requests and answers between a submitter and a host: a line of JSON, then so many raw bytes.

    {"op": "start", ..., "bytes": 0}\n
    {"re": "start", "error": "", ..., "bytes": 12}\nhello, world

The same on both sides. The standard library only.
"""

from __future__ import annotations

import json
import os
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

LINE_LIMIT_BYTES = 16 << 20
BYTES_LIMIT = 64 << 20  # of one message: larger things come in several
CHUNK_BYTES = 1 << 18


class WireEnded(Exception):  # nothing is wrong: the other side has gone
    """The other side has closed the connection."""


class Wire:
    """The end of a connection. Reads with a time limit; writes block."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._buffer = bytearray()
        self._left = 0  # bytes of the last message's body that have not been read
        self.heard_at = time.monotonic()

    def send(self, row: dict[str, Any], data: bytes | memoryview = b"") -> None:
        """Send one message. Raises BrokenPipeError."""
        head = json.dumps({**row, "bytes": len(data)}).encode() + b"\n"
        if len(data) < CHUNK_BYTES:
            self.write(head + data)
        else:
            self.write(head)
            self.write(bytes(data))

    def receive(self, seconds: float | None = None) -> tuple[dict[str, Any], bytes] | None:
        """Return the next message; None when no byte of it comes for so many seconds.

        Raises WireEnded; ValueError for bytes that are not a message.
        """
        row = self.receive_row(seconds)
        if row is None:
            return None
        if self._left > BYTES_LIMIT:
            raise ValueError(f"{self._left} bytes in one message")
        while len(self._buffer) < self._left:
            if not self._fill(seconds):
                return None
        return row, b"".join(self.body())

    def receive_row(self, seconds: float | None = None) -> dict[str, Any] | None:
        """Return the next message's row; what was not read of the last body is passed over."""
        for _ in self.body():
            pass
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > LINE_LIMIT_BYTES:
                raise ValueError("a line without end")
            if not self._fill(seconds):
                return None
        try:
            row = json.loads(bytes(self._buffer[:end]))
        except RecursionError as error:
            raise ValueError("too deep") from error
        if not isinstance(row, dict):
            raise ValueError("not an object")
        size = row.pop("bytes", 0)
        if type(size) is not int or size < 0:
            raise ValueError(f"{size!r} bytes in one message")
        del self._buffer[: end + 1]
        self._left = size
        return row

    def body(self) -> Iterator[bytes]:
        """Yield the body of the last message, as it comes. Raises WireEnded."""
        while self._left:
            if not self._buffer:
                self._fill(None)
            piece = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
            self._left -= len(piece)
            yield piece

    def listen(self) -> None:
        """Read what has come, without waiting; not while a message is being received."""
        self._fill(0.0)

    def write(self, data: bytes) -> None:
        """Write raw bytes of a message whose head gives their number. Raises BrokenPipeError."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._write_fd, view) :]

    def _fill(self, seconds: float | None) -> bool:
        if seconds is not None and not select.select([self._read_fd], [], [], seconds)[0]:
            return False
        found = os.read(self._read_fd, CHUNK_BYTES)
        if not found:
            raise WireEnded
        self._buffer += found
        self.heard_at = time.monotonic()
        return True
