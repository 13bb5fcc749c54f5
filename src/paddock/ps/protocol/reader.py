"""Frames out of bytes as they come, whatever the cuts. Pure: the bytes come from the caller.

For tests, tools and slow paths. The server reads bodies straight into its own buffers and uses
the same decode and verify. The manner is that of h11: feed bytes, then ask until NEED_BYTES.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from paddock.ps.protocol.frames import HEADER_SIZE, FrameError, Header, decode, verify

if TYPE_CHECKING:
    from collections.abc import Iterator


class Frame(NamedTuple):
    """A whole frame. head: its 64 bytes as they came, for the log."""

    header: Header
    head: bytes
    body: bytes


class Pause(Enum):
    """Why there is no frame. ENDED: the other side has ended, or sent what is not a frame."""

    NEED_BYTES = "need bytes"
    ENDED = "ended"


NEED_BYTES = Pause.NEED_BYTES
ENDED = Pause.ENDED


class FrameReader:
    """Holds the bytes of a frame that is not whole yet, and what was fed since the last asking.

    The first bad byte is told once, as FrameError; after it the reader is dead: it takes no more
    bytes and gives ENDED.

    >>> from paddock.ps.protocol.frames import Op, encode
    >>> reader = FrameReader()
    >>> whole = encode(Header(Op.STATUS))
    >>> reader.feed(whole[:10])
    >>> reader.next_frame()
    <Pause.NEED_BYTES: 'need bytes'>
    >>> reader.feed(whole[10:])
    >>> reader.next_frame().header.op == Op.STATUS
    True
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._header: Header | None = None
        self._is_over = False
        self.is_dead = False

    @property
    def held(self) -> int:
        """Bytes kept."""
        return len(self._bytes)

    def feed(self, more: bytes | bytearray | memoryview) -> None:
        """Take bytes; none at all means that the other side has ended, as recv(2) has it."""
        if self._is_over:
            return
        if not len(more):
            self._is_over = True
            return
        self._bytes += more

    def next_frame(self) -> Frame | Pause:
        """The next whole frame, or why there is none. Raises FrameError once."""
        if self.is_dead:
            return ENDED
        try:
            return self._next()
        except FrameError:
            self.is_dead = self._is_over = True
            self._bytes = bytearray()
            raise

    def _next(self) -> Frame | Pause:
        if self._header is None and self.held >= HEADER_SIZE:
            self._header = decode(bytes(self._bytes[:HEADER_SIZE]))
        size = HEADER_SIZE + (0 if self._header is None else self._header.length)
        if self._header is None or self.held < size:
            if not self._is_over:
                return NEED_BYTES
            if self.held:
                raise FrameError(f"the other side ended after {self.held} of {size} bytes")
            return ENDED
        head, body = bytes(self._bytes[:HEADER_SIZE]), bytes(self._bytes[HEADER_SIZE:size])
        header = self._header
        verify(head, header, body)
        del self._bytes[:size]
        self._header = None
        return Frame(header, head, body)

    def frames(self, more: bytes | bytearray | memoryview = b"") -> Iterator[Frame]:
        """The whole frames there are, after feeding `more` if it is not empty."""
        if len(more):
            self.feed(more)
        while not isinstance(frame := self.next_frame(), Pause):
            yield frame
