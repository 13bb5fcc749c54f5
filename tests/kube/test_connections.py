"""The library's HTTP/1.1 keeps what we rely on, by the client that open_http makes, byte for byte:
framing, connections used again, and every way to break.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import httpx2
import pytest
from lightkube.config.kubeconfig import KubeConfig

from paddock.kube import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMIT_SECONDS = 20.0
HEAD_BYTES = 512 * 1024  # more than a client should read of one head
PATIENT = httpx2.Timeout(10.0)


class Server:
    """Gives the same bytes to every request; counts connections and keeps requests.

    closes: whether it ends the connection after each answer.
    """

    def __init__(self, answer: bytes, *, closes: bool = False) -> None:
        self.answer = answer
        self.closes = closes
        self.connections = 0
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length or b"0")))
                writer.write(self.answer)
                await writer.drain()
                if self.closes:
                    writer.close()
                    return


@contextlib.asynccontextmanager
async def talking(
    server: Server, *, keep_seconds: float = 30.0, limits: httpx2.Timeout = PATIENT
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of that server."""
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    config = KubeConfig.from_server(server.url).get()
    assert config is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "KEEP_SECONDS", keep_seconds)
        client = connect.open_http(config)
    client.timeout = limits
    try:
        yield client
    finally:
        await client.aclose()
        listener.close()
        for writer in server.writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # sleep: no time, only a turn for the ends of connections


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run it, not for ever."""

    async def limited() -> None:
        await asyncio.wait_for(scenario(), LIMIT_SECONDS)

    asyncio.run(limited())


def body_of(answer: bytes, *, closes: bool = True, limits: httpx2.Timeout = PATIENT) -> bytes:
    """What a client reads of that answer. Raises httpx2.TransportError."""
    bodies: list[bytes] = []

    async def scenario() -> None:
        async with talking(Server(answer, closes=closes), limits=limits) as client:
            bodies.append((await client.get("/")).content)

    run(scenario)
    return bodies[0]


# ----------------------------------------------------------------------------------------- framing


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (OK, b"ok"),
        (b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
            b"2;name=value\r\nok\r\nA \r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
            b"ok0123456789",
        ),
    ],
)
def test_answer_is_read_to_its_end(answer: bytes, expected: bytes) -> None:
    """Each way in which RFC 9112 lets a server say how long a body is."""
    assert body_of(answer) == expected


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/2 200 OK\r\n\r\n", httpx2.RemoteProtocolError),
        (b"SSH-2.0-OpenSSH\r\n\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 many OK\r\n\r\n", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", httpx2.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * HEAD_BYTES, httpx2.RemoteProtocolError),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\nok\r\n",
            httpx2.RemoteProtocolError,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
            httpx2.RemoteProtocolError,
        ),
    ],
)
def test_nonsense_and_halves_are_errors(answer: bytes, error: type[Exception]) -> None:
    """Half an answer must never look like a whole one: a list would lose its end."""
    with pytest.raises(error):
        body_of(answer)


def test_large_body_arrives_whole() -> None:
    """A page of 500 pods has megabytes."""
    text = b"0123456789abcdef" * 300_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text)
    assert body_of(head + text) == text


def test_request_is_sent_as_it_was_made() -> None:
    """Path and query keep their escapes; the body has its length."""

    async def scenario() -> None:
        server = Server(OK)
        async with talking(server) as client:
            await client.post("/api/a%2Fb", params={"labelSelector": "a in (b)"}, content=b"{}")
        (request,) = server.requests
        first, *_ = request.split(b"\r\n")
        assert first == b"POST /api/a%2Fb?labelSelector=a+in+%28b%29 HTTP/1.1"
        assert b"Content-Length: 2\r\n" in request
        assert f"Host: {server.url.removeprefix('http://')}\r\n".encode() in request
        assert request.endswith(b"\r\n\r\n{}")

    run(scenario)


# ------------------------------------------------------------------------------------- connections


def test_connection_is_used_again() -> None:
    """A TLS handshake costs more than a call."""

    async def scenario() -> None:
        server = Server(OK)
        async with talking(server) as client:
            for _ in range(5):
                assert (await client.get("/")).content == b"ok"
            assert server.connections == 1
            await asyncio.gather(*(client.get("/") for _ in range(3)))
            assert server.connections == 3
            await asyncio.gather(*(client.get("/") for _ in range(3)))
            assert server.connections == 3

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
def test_connection_that_will_be_closed_is_not_used_again(answer: bytes) -> None:
    """The next call on it would be lost."""

    async def scenario() -> None:
        server = Server(answer)
        async with talking(server) as client:
            for _ in range(3):
                await client.get("/")
        assert server.connections == 3

    run(scenario)


def test_connection_that_the_server_closed_is_not_used_again() -> None:
    """A restarted API server closes all of them; no call may fail because of that."""

    async def scenario() -> None:
        server = Server(OK)
        async with talking(server) as client:
            await asyncio.gather(*(client.get("/") for _ in range(4)))
            for writer in server.writers:
                writer.close()
                await writer.wait_closed()
            await client.get("/")  # made by another connection than those four
            assert server.connections == 5

    run(scenario)


def test_old_connection_is_not_used_again() -> None:
    """Load balancers forget connections silently; a young one is safe."""

    async def scenario() -> None:
        server = Server(OK)
        async with talking(server, keep_seconds=0.0) as client:
            for _ in range(3):
                await client.get("/")
        assert server.connections == 3

    run(scenario)


def test_connection_of_a_half_read_answer_is_not_used_again() -> None:
    """The rest of that answer would be taken for the next one."""

    async def scenario() -> None:
        server = Server(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok")
        async with talking(server) as client:
            async with client.stream("GET", "/") as response:
                assert await anext(response.aiter_raw()) == b"ok"
            server.answer = OK
            assert (await client.get("/")).content == b"ok"
        assert server.connections == 2

    run(scenario)


# ------------------------------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    "begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nok", b"HTTP/1.0 200 OK\r\n\r\nok"]
)
def test_silence_has_a_limit_everywhere(begin: bytes) -> None:
    """Before the head and in the body, also of one that lasts until the end."""
    with pytest.raises(httpx2.ReadTimeout):
        body_of(begin, closes=False, limits=httpx2.Timeout(10.0, read=0.05))


def test_request_that_is_not_read_has_a_limit() -> None:
    """A hanging server takes what fits into its buffers, and no more."""

    async def scenario() -> None:
        async def never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server.writers.append(writer)

        server = Server(OK)
        server.serve = never_reads  # type: ignore[method-assign]  # this one does nothing
        async with talking(server, limits=httpx2.Timeout(10.0, write=0.1)) as client:
            with pytest.raises(httpx2.WriteTimeout):
                await client.post("/", content=b"x" * 64 * 1024 * 1024)

    run(scenario)


def test_cancelled_call_ends_its_connection() -> None:
    """Its answer may still come, to nobody."""

    async def scenario() -> None:
        server = Server(b"")
        async with talking(server) as client:
            call = asyncio.ensure_future(client.get("/"))
            while not server.requests:
                await asyncio.sleep(0)  # sleep: no time, only a turn for the others
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            server.answer = OK
            await client.get("/")
            assert server.connections == 2

    run(scenario)


def test_plain_server_is_no_tls_server() -> None:
    """The wrong port in a kubeconfig."""

    async def scenario() -> None:
        async def answers_anything(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            server.writers.append(writer)
            await reader.read(1)
            writer.write(OK)

        server = Server(OK)
        server.serve = answers_anything  # type: ignore[method-assign]  # TLS has no lines
        async with talking(server) as client:
            url = str(client.base_url).replace("http:", "https:")
            with pytest.raises(httpx2.ConnectError):
                await client.get(url)

    run(scenario)
