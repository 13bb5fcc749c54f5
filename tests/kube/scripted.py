"""An HTTP server on loopback that does what a script says, byte for byte, one answer a connection.

Every answer closes its connection unless it says otherwise, so that what is half-sent ends there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from lightkube.config.kubeconfig import KubeConfig

from paddock.kube.client import PODS, Change, KubeError, Query
from paddock.kube.http_client import HttpClient, HttpOptions, open_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    Script = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class ScriptedServer:
    """Answers with the scripts in order, the last one again and again; keeps what was asked."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.asked: list[Asked] = []
        self.url = ""
        self.gone = asyncio.Event()  # a client has closed its connection
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            asked = await _read(reader)
            self.asked.append(asked)
            script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
            await script(asked, writer)
            await writer.drain()
            if script is not silence:
                writer.close()
            await reader.read()
            self.gone.set()

    def hang_up(self) -> None:
        """End what is still open."""
        for writer in self._writers:
            if not writer.transport.is_closing():
                writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Asked(
        method, parts.path, dict(parse_qsl(parts.query)), headers, json.loads(body or b"null")
    )


@contextlib.asynccontextmanager
async def talking(
    *scripts: Script, options: HttpOptions | None = None
) -> AsyncIterator[tuple[ScriptedServer, HttpClient]]:
    """A server with these scripts, and a client of it."""
    scripted = ScriptedServer(*scripts)
    listener = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    config = KubeConfig.from_server(scripted.url).get()
    assert config is not None
    client = open_client(config, options)
    try:
        yield scripted, client
    finally:
        await client.close()
        listener.close()
        scripted.hang_up()


def answer(status: int, body: object = None, **headers: str) -> Script:
    """A whole answer. body: bytes as they are, anything else as JSON. headers: "_" for "-"."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def script(_: Asked, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(content)}", "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)

    return script


def refusal(status: int, reason: str, message: str, **more: object) -> Script:
    """A Status. more: retry_after (a header), details."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
    body |= {"reason": reason, "message": message, "details": more.get("details", {})}
    after = more.get("retry_after")
    return answer(status, body, **({"Retry_After": str(after)} if after is not None else {}))


def stream(*pieces: bytes, ends: bool = True) -> Script:
    """A watch's answer in chunks. ends False: the connection is cut before the last chunk."""

    async def script(_: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if ends:
            writer.write(b"0\r\n\r\n")

    return script


async def silence(_: Asked, writer: asyncio.StreamWriter) -> None:
    """Begin a watch's answer and never say anything again."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


async def hangs_up(_: Asked, writer: asyncio.StreamWriter) -> None:
    """Close the connection without a word."""


def event(kind: str, document: object) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


POD = {"metadata": {"name": "a", "resourceVersion": "7"}, "status": {"phase": "Running"}}
ADDED = event("ADDED", POD)


def after(
    script: Script, ask: Callable[[HttpClient], Coroutine[Any, Any, T]], options: Any = None
) -> tuple[Any, T | KubeError]:
    """(the first request, what the call gave or raised) with a server that does that."""

    async def scenario() -> tuple[Any, T | KubeError]:
        async with talking(script, options=options) as (server, client):
            try:
                result: T | KubeError = await ask(client)
            except KubeError as error:
                result = error
            return server.asked[0] if server.asked else None, result

    return asyncio.run(scenario())


async def get_a(client: HttpClient) -> Any:
    """Get one pod."""
    return await client.get(PODS, "ml", "a")


async def watched(client: HttpClient) -> tuple[list[Change[Any]], KubeError | None]:
    """All changes of a watch, and the error that it ended with."""
    seen = []
    try:
        async for change in client.watch(
            PODS, Query("ml", labels="a=b"), resource_version="5", timeout_seconds=300.5
        ):
            seen.append(change)
    except KubeError as error:
        return seen, error
    return seen, None
