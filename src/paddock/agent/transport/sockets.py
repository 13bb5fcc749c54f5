"""TCP sockets of a coordinator and its members: listeners and outgoing connections.

The one place of the agent that makes connections; tests/sim has the same without a network.
"""

from __future__ import annotations

import errno
import os
import resource
import socket

from paddock.agent.transport.connection import LineConnection
from paddock.core.endpoint import join_endpoint
from paddock.errors import UsageError
from paddock.local.loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from paddock.local.loop import Loop

BACKLOG = 4096
FILES_RESERVED = 512  # descriptors that strangers cannot take from the ranks of this node
ACCEPTS_PER_TURN = 64
ACCEPT_AGAIN_SECONDS = 0.2


class Network:
    """This host's network. Owned by the loop's thread."""

    def __init__(
        self, loop: Loop, server_tls: ssl.SSLContext | None, client_tls: ssl.SSLContext | None
    ) -> None:
        self._loop = loop
        self._server_tls = server_tls
        self._client_tls = client_tls

    def bind(self, address: str, port: int) -> Listener | None:
        """Bind a port of this host. A given one listens from here on, as two may bind it at once
        and only one listen. One that is chosen (0) does not yet: a node that connects too early is
        refused, not ignored.

        None when the address is not ours or the port is taken. Raises UsageError for the rest.
        """
        try:
            sock = _bound(address, port)
        except OSError as error:
            is_name = isinstance(error, socket.gaierror)
            if is_name or error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                return None
            raise UsageError(
                f"--master {join_endpoint(address, port)}: {error.strerror}",
                hint="ports below 1024 need root; choose another port",
            ) from error
        return Listener(sock, self._loop, self._server_tls)

    def dial(
        self,
        target: tuple[str, int],
        *,
        source: str,
        seconds: float,
        on_open: Callable[[LineConnection], None],
        on_failed: Callable[[str, bool], None],
    ) -> OutgoingConnection:
        """Connect; one of the two is called, later or at once.

        on_failed(why, is_refused): is_refused: the host answers, and no process listens there.
        """
        return OutgoingConnection(
            self._loop, self._client_tls, target, source, seconds, on_open, on_failed
        )


def _bound(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        if port:
            sock.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        sock.close()
        if isinstance(error, UnicodeError):
            raise OSError(errno.EADDRNOTAVAIL, "not an address") from error
        raise
    return sock


class Listener:
    """A bound port of this host; it accepts connections from open() on, until close()."""

    def __init__(self, sock: socket.socket, loop: Loop, tls: ssl.SSLContext | None) -> None:
        sock.setblocking(False)
        self.port = int(sock.getsockname()[1])
        self._sock: socket.socket | None = sock
        self._loop = loop
        self._tls = tls
        self._timer = f"accept {self.port}"
        self._on_connection: Callable[[LineConnection], None] | None = None
        self._make_room: Callable[[], bool] = lambda: False
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._files_max = soft - min(FILES_RESERVED, soft // 2) if soft > 0 else 1 << 30

    def open(
        self, on_connection: Callable[[LineConnection], None], make_room: Callable[[], bool]
    ) -> None:
        """Listen. make_room: called when descriptors run short; True if one was freed.

        Raises UsageError when another listens at a port that was chosen for us.
        """
        assert self._sock is not None
        self._on_connection = on_connection
        self._make_room = make_room
        try:
            self._sock.listen(BACKLOG)
        except OSError as error:
            raise UsageError(
                f"port {self.port}, where this node would coordinate: {error.strerror}",
                hint="another program took it since; start this node again",
            ) from error
        self._watch()

    def close(self) -> None:
        """Close the listener for good; connections that were made stay."""
        self._on_connection = None
        if self._sock is not None:
            self._unwatch()
            self._sock.close()
            self._sock = None

    def _watch(self) -> None:
        if self._sock is not None:
            self._loop.watch(self._sock.fileno(), READ, self._accept)

    def _unwatch(self) -> None:
        self._loop.at(self._timer, None, self._watch)
        if self._sock is not None:
            self._loop.unwatch(self._sock.fileno())

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._sock is None or self._on_connection is None:
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of descriptors: those waiting stay in the backlog until some close.
                self._unwatch()
                self._loop.at(self._timer, self._loop.now() + ACCEPT_AGAIN_SECONDS, self._watch)
                return
            # The lowest free number is given out: it tells how many descriptors are in use.
            if sock.fileno() >= self._files_max and not self._make_room():
                sock.close()
                continue
            connection = LineConnection(
                sock, self._loop, self._tls, str(address[0]), server_side=True
            )
            try:
                self._on_connection(connection)
            except OSError:  # it had gone before it was greeted
                sock.close()


class OutgoingConnection:
    """A connection that is being made."""

    def __init__(
        self,
        loop: Loop,
        tls: ssl.SSLContext | None,
        target: tuple[str, int],
        source: str,
        seconds: float,
        on_open: Callable[[LineConnection], None],
        on_failed: Callable[[str, bool], None],
    ) -> None:
        self._loop = loop
        self._tls = tls
        self._host = target[0]
        self._on_open = on_open
        self._on_failed = on_failed
        self._timer = f"dial {id(self)}"
        self._sock: socket.socket | None = None
        sock = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET)
        sock.setblocking(False)
        try:
            if source and (":" in source) == (":" in self._host):
                sock.bind((source, 0))
            result = sock.connect_ex(target)
        except OSError as error:
            sock.close()
            on_failed(error.strerror or str(error), error.errno == errno.ECONNREFUSED)
            return
        if result not in (0, errno.EINPROGRESS):
            sock.close()
            self._fail(result)
            return
        self._sock = sock
        loop.watch(sock.fileno(), WRITE, self._connected)
        loop.at(self._timer, loop.now() + seconds, self._timed_out)

    def cancel(self) -> None:
        """Stop connecting; no callback is called."""
        sock = self._take()
        if sock is not None:
            sock.close()

    def _take(self) -> socket.socket | None:
        sock, self._sock = self._sock, None
        self._loop.at(self._timer, None, self._timed_out)
        if sock is not None:
            self._loop.unwatch(sock.fileno())
        return sock

    def _timed_out(self) -> None:
        self.cancel()
        self._on_failed("no answer", False)

    def _fail(self, number: int) -> None:
        self._on_failed(os.strerror(number), number == errno.ECONNREFUSED)

    def _connected(self, _events: int) -> None:
        sock = self._take()
        assert sock is not None
        result = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        is_self = result == 0 and sock.getsockname() == sock.getpeername()
        if result or is_self:  # is_self: TCP connected to itself, no process listens there
            sock.close()
            self._fail(result or errno.ECONNREFUSED)
            return
        self._on_open(LineConnection(sock, self._loop, self._tls, self._host, server_side=False))
