"""Ask a launcher on its control socket; agent/control.py answers.

A request is a line of JSON, and so is each answer:

    {"op": "status"}                 the row of status.json, with "state" and "pids"
    {"op": "stop", "now": false}     {"ok": true}: it was told to end; now: without grace
    {"op": "events"}                 a status row at once and after each change, until
                                     {"event": "end", "code": 0}

The socket is 0600, and both sides talk to their own user only.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

ANSWER_SECONDS = 5.0
LINE_BYTES_MAX = 1 << 26


class NoLauncherError(PaddockError):
    """The control socket has no listener: the launcher has ended, or has none."""


def ask(path: str, op: str, *, seconds: float = ANSWER_SECONDS, **more: object) -> dict[str, Any]:
    """The answer to one request. Raises NoLauncherError, or PaddockError for one that is silent."""
    with _connected(path, seconds) as stream:
        for answer in _answers(path, stream, op, more):
            return answer
    raise NoLauncherError(f"the launcher at {path} hung up: it ends, or has many clients")


def follow(path: str, *, silence_seconds: float | None = None) -> Iterator[dict[str, Any]]:
    """The events of a launcher, until it has ended. Raises as ask()."""
    with _connected(path, silence_seconds) as stream:
        yield from _answers(path, stream, "events", {})


def _answers(
    path: str, stream: socket.socket, op: str, more: dict[str, object]
) -> Iterator[dict[str, Any]]:
    try:
        stream.sendall(json.dumps({"op": op, **more}).encode() + b"\n")
        with stream.makefile("rb") as lines:
            while (line := lines.readline(LINE_BYTES_MAX)).endswith(b"\n"):
                row = json.loads(line)
                if "error" in row:
                    raise PaddockError(f"the launcher at {path} answers: {row['error']}")
                yield row
    except TimeoutError as error:
        hint = "it may be stopped (SIGSTOP) or very busy: try again"
        raise PaddockError(
            f"the launcher at {path} has not answered for {stream.gettimeout():g} s", hint=hint
        ) from error
    except (OSError, ValueError) as error:
        raise NoLauncherError(f"the launcher at {path} has ended ({error})") from error


@contextmanager
def _connected(path: str, timeout: float | None) -> Iterator[socket.socket]:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout)
    try:
        with short_path(path) as short:
            client.connect(short)
        uid = peer_uid(client)
    except OSError as error:
        client.close()
        raise NoLauncherError(f"no launcher listens at {path} ({error.strerror})") from error
    with client:
        if uid != os.geteuid():
            raise PaddockError(f"the socket {path} belongs to user {uid}, and you are another")
        yield client


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """A path of at most 107 bytes to the same socket, however deep its directory lies (unix(7))."""
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def peer_uid(connection: Any) -> int:
    """The user id of the process at the other end (unix(7), SO_PEERCRED)."""
    credentials = connection.getsockopt(1, 17, 12)  # SOL_SOCKET, SO_PEERCRED of Linux
    return int.from_bytes(credentials[4:8], "little")
