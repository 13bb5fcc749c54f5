"""HTTP/1.1 over asyncio's streams, as a transport of httpx2; TLS, if any, is asyncio's.

Why not httpx2's own: measured on creates of pods, 2.3 ms of a processor a call against 0.8 with
this, and an operator makes them by the hundred. httpx2 stays in front of it for credentials and
limits, and does everything where a proxy is set (connect.py). Only what an API server and what may
stand in front of one send is spoken: no pipelining; what follows an upgrade is a body.

Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterator

HEAD_MAX = 256 * 1024  # bytes of all headers together
PIECE_MAX = 256 * 1024  # bytes of a body that are handed on at once
# What the streams raise when the other side is gone or talks nonsense.
BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)
Origin = tuple[str, str, int]  # scheme, host, port


class Http1Transport(httpx2.AsyncBaseTransport):
    """Connections that are kept for a while, the last used first. It sets no limit on their number.

    keep_seconds: for how long an idle one is used again.
    """

    def __init__(self, context: ssl.SSLContext, *, keep_seconds: float) -> None:
        self._context = context
        self._keep_seconds = keep_seconds
        self._idle: list[Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; comes back with the head of the answer. Raises httpx2.TransportError."""
        limits = request.extensions.get("timeout", {})
        url = request.url
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        connection = self._take(origin) or await self._connect(origin, limits.get("connect"))
        try:
            head = [b"%s %s HTTP/1.1" % (request.method.encode(), url.raw_path)]
            head += [b"%s: %s" % pair for pair in request.headers.raw]
            text = b"\r\n".join([*head, b"", b""]) + request.content
            await connection.send(text, limits.get("write"))
            version, status, headers = await connection.read_head(limits.get("read"))
            named = {name.lower(): value.lower() for name, value in headers}
            body = Body(self, connection, _framing(status, named), limits.get("read"))
        except BaseException:
            connection.abort()
            raise
        body.may_be_kept = version == b"HTTP/1.1" and named.get(b"connection") != b"close"
        return httpx2.Response(status, headers=headers, stream=body, request=request)

    async def aclose(self) -> None:
        """End all idle connections; the others end with their answers."""
        self._keep_seconds = 0.0
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # The loop takes note of the ends.

    def keep(self, connection: Connection) -> None:
        """Take back a connection whose answer was read to its end."""
        now = asyncio.get_running_loop().time()
        connection.idle_since = now
        self._idle.append(connection)
        while self._idle and now - self._idle[0].idle_since >= self._keep_seconds:
            self._idle.pop(0).abort()

    def _take(self, origin: Origin) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            is_young = now - connection.idle_since < self._keep_seconds
            if is_young and connection.origin == origin and connection.is_open:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin, seconds: float | None) -> Connection:
        scheme, host, port = origin
        context = self._context if scheme == "https" else None
        try:
            streams = await asyncio.wait_for(
                asyncio.open_connection(
                    host, port, ssl=context, limit=HEAD_MAX, happy_eyeballs_delay=0.25
                ),
                seconds,
            )
        except asyncio.TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection within {seconds:g} s") from error
        except (OSError, ValueError) as error:
            raise httpx2.ConnectError(str(error)) from error
        return Connection(origin, *streams)


class Connection:
    """A connection, which carries one request at a time."""

    def __init__(
        self, origin: Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self.reader = reader
        self._writer = writer
        self._is_late = False

    @property
    def is_open(self) -> bool:
        """False when the other side has closed it, even if the loop does not know yet."""
        if self.reader.at_eof() or self._writer.transport.is_closing():
            return False
        asked = select.poll()
        asked.register(self._writer.get_extra_info("socket"), select.POLLIN)
        return not asked.poll(0)  # Nothing may come on an idle connection but its end.

    def abort(self) -> None:
        """End it without a word; nothing that is still to be sent matters."""
        self._writer.transport.abort()

    async def send(self, text: bytes, seconds: float | None) -> None:
        """Send all of it. Raises httpx2.WriteError, WriteTimeout."""
        with self.limit(seconds, httpx2.WriteTimeout, httpx2.WriteError):
            self._writer.write(text)
            await self._writer.drain()

    async def read_head(
        self, seconds: float | None
    ) -> tuple[bytes, int, list[tuple[bytes, bytes]]]:
        """(version, status, headers) of the answer. Raises httpx2.TransportError."""
        with self.limit(seconds, httpx2.ReadTimeout, httpx2.RemoteProtocolError):
            while True:
                first, *rest = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
                version, status = first.split(b" ", 2)[:2]
                if not version.startswith(b"HTTP/1."):
                    raise ValueError(f"this is not HTTP/1: {first[:40]!r}")
                if not 100 <= int(status) < 200 or status == b"101":  # 1xx announce the answer.
                    break
        pairs = (line.partition(b":") for line in rest)
        return version, int(status), [(name, value.strip()) for name, _, value in pairs]

    @contextlib.contextmanager
    def limit(
        self,
        seconds: float | None,
        late: type[httpx2.TransportError],
        broken: type[httpx2.TransportError],
    ) -> Iterator[None]:
        """Abort the connection when what is inside takes longer; say what happened by httpx2."""
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        try:
            yield
        except BROKEN as error:
            if self._is_late:
                raise late(f"nothing within {seconds:g} s") from error
            raise broken(str(error) or type(error).__name__) from error
        else:
            if self._is_late:  # What looks like the end was our own abort.
                raise late(f"nothing within {seconds:g} s")
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self) -> None:
        self._is_late = True
        self.abort()


class Body(httpx2.AsyncByteStream):
    """The body of an answer, as it comes. size: bytes, -1 until the end, -2 in chunks."""

    def __init__(
        self, transport: Http1Transport, connection: Connection, size: int, seconds: float | None
    ) -> None:
        self.may_be_kept = True
        self._transport = transport
        self._connection = connection
        self._size = size
        self._seconds = seconds
        self._is_read = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pieces of the body, as soon as they are there."""
        if self._size == CHUNKED:
            while True:
                size = (await self._line()).partition(b";")[0].strip()
                try:
                    left = int(size, 16)
                except ValueError as error:
                    text = f"{size[:20]!r} is no size of a chunk"
                    raise httpx2.RemoteProtocolError(text) from error
                if not left:
                    break
                async for piece in self._exactly(left):
                    yield piece
                await self._line()
            while await self._line():  # trailers, which nobody wants
                pass
        elif self._size == UNTIL_END:
            self.may_be_kept = False
            while piece := await self._piece(PIECE_MAX):
                yield piece
        else:
            async for piece in self._exactly(self._size):
                yield piece
        self._is_read = True

    async def aclose(self) -> None:
        """Keep the connection for another request, or end it in the middle of this answer."""
        if (self._is_read or self._size == 0) and self.may_be_kept:
            self._transport.keep(self._connection)
        else:
            self._connection.abort()

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            piece = await self._piece(min(size, PIECE_MAX))
            if not piece:
                raise httpx2.RemoteProtocolError(f"the answer ended {size} bytes early")
            size -= len(piece)
            yield piece

    async def _line(self) -> bytes:
        with self._connection.limit(self._seconds, httpx2.ReadTimeout, httpx2.RemoteProtocolError):
            return (await self._connection.reader.readuntil(b"\r\n"))[:-2]

    async def _piece(self, size: int) -> bytes:
        with self._connection.limit(self._seconds, httpx2.ReadTimeout, httpx2.ReadError):
            return await self._connection.reader.read(size)


UNTIL_END = -1
CHUNKED = -2


def _framing(status: int, headers: dict[bytes, bytes]) -> int:
    """How long the body is (RFC 9112, 6.3). Raises httpx2.RemoteProtocolError."""
    if status in (204, 304):
        return 0
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        return CHUNKED
    length = headers.get(b"content-length")
    if length is None:
        return UNTIL_END
    if not length.isdigit():
        raise httpx2.RemoteProtocolError(f"content-length {length[:20]!r} is no number")
    return int(length)
