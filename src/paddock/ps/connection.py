"""A connection to one server: connects, greets, proves, and says clearly why it could not.

One thread at a time uses a FrameConnection. It does not retry: ServerConnection decides that.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from paddock.errors import PaddockError, UsageError
from paddock.ps.endpoint import split_endpoint
from paddock.ps.stream import ERROR, ConnectionClosed, FrameStream, connect, connect_unix, os_reason
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import CorruptFrameError, FrameError, Header, Op
from paddock.ps.wire.handshake import NONCE_BYTES, Hello, Welcome, greeting_from, proof_of, same
from paddock.ps.wire.values import to_body
from paddock.ps.xxh3 import Buffer

# Answers on their way back, of frames that are posted: as many fit any socket's buffer.
ANSWERS_MAX = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's number and incarnation; 0 until server 0 has given one."""

    job: str
    trainer: int
    incarnation: int
    version: str
    token: bytes = b""
    tls_ca: str = ""


class FrameConnection:
    """A greeted connection. purpose: pull, push or control."""

    def __init__(self, endpoint: str, identity: Identity, purpose: str, seconds: float) -> None:
        self.endpoint = endpoint
        self._awaited = 0
        self._answers: deque[tuple[Header, Buffer]] = deque()
        host, port = split_endpoint(endpoint)
        try:
            sock = connect(host, int(port), seconds)
        except OSError as error:
            raise ConnectionClosed(f"cannot reach server {endpoint}: {os_reason(error)}") from error
        self.stream, self.welcome = self._greet(sock, identity, purpose, seconds)
        if self.welcome.unix and host in ("127.0.0.1", "localhost", "::1") and not identity.tls_ca:
            self._shorten(identity, purpose, seconds)

    def _greet(
        self, sock: socket.socket, identity: Identity, purpose: str, seconds: float
    ) -> tuple[FrameStream, Welcome]:
        """Say hello over a fresh connection; closes it when that fails."""
        try:
            if identity.tls_ca:
                sock = self._secure(sock, identity.tls_ca)
            stream = FrameStream(sock, seconds)
            return stream, self._introduce(stream, identity, purpose)
        except BaseException:
            sock.close()
            raise

    def _secure(self, sock: socket.socket, ca: str) -> socket.socket:
        context = ssl.create_default_context(cafile=ca)
        context.check_hostname = False  # The certificate names a job's key, not a host.
        try:
            return context.wrap_socket(sock)
        except (ConnectionError, TimeoutError, ssl.SSLEOFError) as error:
            raise ConnectionClosed(f"server {self.endpoint}: no TLS: {os_reason(error)}") from error
        except (ssl.SSLError, OSError) as error:
            raise RequestError(
                "auth",
                f"server {self.endpoint}: no TLS: {error}",
                hint=f"is it started with --tls-cert, and signed by {ca}?",
            ) from error

    def _introduce(self, stream: FrameStream, identity: Identity, purpose: str) -> Welcome:
        nonce = os.urandom(NONCE_BYTES).hex()
        hello = Hello(
            identity.version, identity.job, identity.trainer, identity.incarnation, purpose, nonce
        )
        stream.send(Header(Op.HELLO, trainer=identity.trainer), to_body(hello))
        try:
            header, body = stream.receive()
        except CorruptFrameError as error:
            raise ConnectionClosed(error.message) from error
        if header.flags & ERROR:
            raise RequestError.from_body(body)
        welcome = greeting_from(Welcome, body)
        if welcome.challenge:
            self._prove(stream, identity.token, nonce, welcome)
        elif identity.token:
            raise RequestError(
                "auth",
                f"server {self.endpoint} asks for no token, but one is set here",
                hint="start it with --token-file, or do without here",
            )
        return welcome

    def _prove(self, stream: FrameStream, token: bytes, nonce: str, welcome: Welcome) -> None:
        wrong = f"server {self.endpoint}: the token is not the server's"
        if not token:
            raise RequestError(
                "auth",
                f"server {self.endpoint} asks for a token",
                hint="Client(token_file=...), --token-file, or PADDOCK_PS_TOKEN_FILE",
            )
        if not same(welcome.proof, proof_of(token, "server", nonce, welcome.challenge)):
            raise RequestError("auth", wrong, hint="use the file that --token-file names there")
        stream.send(Header(Op.PROOF), proof_of(token, "trainer", nonce, welcome.challenge).encode())
        header, body = stream.receive()
        if header.flags & ERROR:
            raise RequestError.from_body(body)

    def _shorten(self, identity: Identity, purpose: str, seconds: float) -> None:
        """Change to the server's Unix socket when it is there: half the time for large frames."""
        try:
            sock = connect_unix(self.welcome.unix, seconds)
        except OSError:
            return  # Another network namespace; TCP goes on.
        try:
            stream, welcome = self._greet(sock, identity, purpose, seconds)
        except PaddockError:
            return
        if welcome.server_id != self.welcome.server_id:
            stream.close()
            return
        self.stream.close()
        self.stream = stream

    def post(self, header: Header, *body: Buffer) -> None:
        """Send one frame of many whose answers are received later.

        They are read meanwhile: a server that cannot send an answer takes no frame.
        """
        if self._awaited < ANSWERS_MAX:
            self._awaited += 1
        else:
            try:
                self._answers.append(self.stream.receive())
            except FrameError as error:
                raise ConnectionClosed(error.message) from error
        self.stream.send(header, *body)

    def receive(self, into: memoryview | None = None) -> tuple[Header, Buffer]:
        """The next answer; its body in `into`, if given. Raises RequestError when it is a no."""
        try:
            if self._answers:
                header, body = self._answers.popleft()
            else:
                header, body = self.stream.receive(into=into)
                self._awaited -= 1
        except FrameError as error:
            raise ConnectionClosed(error.message) from error
        if header.flags & ERROR:
            refusal = RequestError.from_body(body)
            if refusal.code == "not-primary":  # It is as good as gone.
                raise ConnectionClosed(refusal.message)
            raise refusal
        if into is not None and header.length > into.nbytes:
            raise ConnectionClosed(
                f"an answer of {header.length} bytes where {into.nbytes} were expected"
            )
        return header, body

    def close(self) -> None:
        """End the connection."""
        self.stream.close()


def read_token(path: str) -> bytes:
    """The secret in a file, b"" for no file. Raises UsageError."""
    if not path:
        return b""
    try:
        token = Path(path).read_bytes().strip()
    except OSError as error:
        raise UsageError(
            f"token file {path}: {error.strerror}", hint="a readable file with the servers' secret"
        ) from error
    if not token:
        raise UsageError(f"token file {path} is empty", hint="the servers' secret")
    return token
