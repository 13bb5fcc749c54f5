"""The control socket of a launcher: it answers with the state of the job, and takes `stop`.

local/runs/control.py asks, and describes what is said. Nothing here blocks: a client that is slow,
silent or not this user's is dropped.
"""

from __future__ import annotations

import os
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, socket

from paddock.local.loop import READ, WRITE
from paddock.local.runs.entry import CONTROL, json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.agent.view import JobView
    from paddock.local.loop import Loop
    from paddock.local.output.streams import OutputThread

CLIENTS_MAX = 32
REQUEST_BYTES_MAX = 4096
REQUEST_SECONDS = 10.0
UNSENT_BYTES_MAX = 1 << 22
PAUSE_SECONDS = 0.1  # between two rows of events


class ControlServer:
    """The server on the control socket. Owned by the loop's thread. stop(now): ends the job."""

    def __init__(
        self, loop: Loop, output: OutputThread, view: JobView, stop: Callable[[bool], None]
    ) -> None:
        self.path = ""
        self._loop = loop
        self._output = output
        self._view = view
        self._stop = stop
        self._listener: socket | None = None
        self._clients: set[_ControlConnection] = set()
        self._is_due = False
        view.on_change.append(self._on_change)

    def open(self, folder: str, name: str = CONTROL) -> None:
        """Listen in a directory of ours. Raises OSError."""
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)
        folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        path = os.path.join(folder, name)
        try:
            if os.path.lexists(path):  # of a launcher that was killed
                os.unlink(path)
            listener.bind(f"/proc/self/fd/{folder_fd}/{name}")  # 107 bytes at most (unix(7))
            os.chmod(path, 0o600)  # before anybody can connect
            listener.listen(CLIENTS_MAX)
        except OSError:
            listener.close()
            raise
        finally:
            os.close(folder_fd)
        self.path, self._listener = path, listener
        self._loop.watch(listener.fileno(), READ, self._accept)

    def _accept(self, _events: int) -> None:
        assert self._listener is not None
        try:
            # As socket.socket.accept does; socket costs 4 ms where ranks may wait.
            fd, _ = self._listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        connection = socket(AF_UNIX, SOCK_STREAM, 0, fd)
        connection.setblocking(False)
        credentials = connection.getsockopt(1, 17, 12)  # SOL_SOCKET, SO_PEERCRED of Linux
        is_ours = int.from_bytes(credentials[4:8], "little") == os.geteuid()
        if not is_ours or len(self._clients) >= CLIENTS_MAX:
            connection.close()
            return
        client = _ControlConnection(connection, self._loop.now() + REQUEST_SECONDS)
        self._clients.add(client)
        self._watch(client, READ)
        self._loop.at("control", client.until, self._drop_silent)

    def _drop_silent(self) -> None:
        now = self._loop.now()
        for client in list(self._clients):
            if not client.is_following and client.until <= now:
                self._drop(client)
        if self._clients:
            self._loop.at("control", now + REQUEST_SECONDS, self._drop_silent)

    def _on_client(self, client: _ControlConnection, events: int) -> None:
        if events & WRITE:
            self._send(client, b"")
        if not events & ~WRITE or client not in self._clients:
            return
        try:
            data = client.connection.recv(REQUEST_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        client.heard += data
        if not data or len(client.heard) > REQUEST_BYTES_MAX:
            self._drop(client)
            return
        *lines, client.heard = client.heard.split(b"\n")
        for line in lines:
            if client not in self._clients:
                return  # it hung up on the answer before
            client.until = self._loop.now() + REQUEST_SECONDS
            self._answer(client, line)

    def _answer(self, client: _ControlConnection, line: bytes) -> None:
        import json  # for the first client

        try:
            request = json.loads(line)
            op = request["op"]
        except (ValueError, TypeError, LookupError, RecursionError):
            op, request = "", {}
        if op == "status":
            self._send_row(client)
        elif op == "events":
            client.is_following = True
            self._send_row(client, {"event": "status"})
        elif op == "stop":
            self._stop(bool(request.get("now")))
            self._send(client, b'{"ok": true}\n')
        else:
            self._send(client, b'{"error": "no such request: send status, stop or events"}\n')

    def _on_change(self) -> None:
        if not self._is_due and any(client.is_following for client in self._clients):
            self._is_due = True
            self._loop.at("control-events", self._loop.now() + PAUSE_SECONDS, self._tell_all)

    def _tell_all(self) -> None:
        self._is_due = False
        for client in self._clients:
            if client.is_following:
                self._send_row(client, {"event": "status"})

    def _send_row(
        self, client: _ControlConnection, head: Mapping[str, object] | None = None
    ) -> None:
        """Send status.json's row; made in the output thread, as thousands of ranks take a while."""
        make, now = self._view.row(), self._loop.wall()

        def work() -> None:
            data = json_text({**(head or {}), **make(), "now": now}).encode() + b"\n"
            self._loop.post(lambda: self._send(client, data))

        self._output.do(work)

    def _watch(self, client: _ControlConnection, events: int) -> None:
        fd = client.connection.fileno()
        self._loop.watch(fd, events, lambda found: self._on_client(client, found))

    def _send(self, client: _ControlConnection, data: bytes) -> None:
        """Send, unless the client has gone; one that does not take it is dropped."""
        if client not in self._clients:
            return
        client.unsent += data
        try:
            while client.unsent:
                client.unsent = client.unsent[client.connection.send(client.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        if len(client.unsent) > UNSENT_BYTES_MAX:
            self._drop(client)
        else:
            self._watch(client, WRITE if client.unsent else READ)  # one that does not read waits

    def _drop(self, client: _ControlConnection) -> None:
        self._clients.discard(client)
        self._loop.unwatch(client.connection.fileno())
        client.connection.close()

    def close(self, exit_code: int) -> None:
        """Send the exit code to clients that follow, and close the listener."""
        followers = [client for client in self._clients if client.is_following]
        if followers:
            row = {"event": "status", **self._view.row()(), "now": self._loop.wall()}
            end = {"event": "end", "code": exit_code}
            data = "".join(f"{json_text(each)}\n" for each in (row, end)).encode()
            for client in followers:
                self._send(client, data)
        for client in list(self._clients):
            self._drop(client)
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None
            try:
                os.unlink(self.path)
            except OSError:
                pass  # its directory was removed


class _ControlConnection:
    """A client's connection. until: the monotonic second when a silent one is dropped."""

    def __init__(self, connection: socket, until: float) -> None:
        self.connection = connection
        self.until = until
        self.heard = b""
        self.unsent = b""
        self.is_following = False
