"""A connection to the relay, which is started when there is none; and the pipe in ssh's place.

    python -m paddock.backends.ray.client CLUSTER NAME NODE HOLDER SECONDS COMMAND

passes its standard input to the command on a node, and brings the output. The relay sends frames: a
length, and so many bytes; after one of length 0, a line of JSON with the command's code and errors.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from paddock import __version__
from paddock.backends.ray.plan import cluster_text
from paddock.backends.ssh.channel import own_folder
from paddock.errors import PaddockError, UsageError
from paddock.local.output.console import write_all

HEAD_BYTES = 4
CHUNK_BYTES = 1 << 18
START_SECONDS = 30  # Ray's own limit is a minute or more
ANSWER_SECONDS = 30
HELLO_SECONDS = 60  # until an actor has begun


class RelayConnection:
    """A connection to the relay of a cluster. Raises UsageError if Ray cannot be reached."""

    def __init__(self, cluster: str) -> None:
        path, since = socket_path(cluster), time.time()
        with open(f"{path}.lock", "a+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of several commands one starts it
            try:
                self.socket = _connected(path)
            except OSError:
                lock.seek(0)
                # Another that has tried meanwhile has left its error.
                said = lock.read() if os.fstat(lock.fileno()).st_mtime > since else ""
                row = json.loads(said) if said else _start(cluster, path)
                if "error" in row:
                    lock.truncate(0)
                    lock.write(json.dumps(row))
                    raise UsageError(row["error"], hint=row.get("hint", "")) from None
                self.socket = _connected(path)
        self.file: BinaryIO = self.socket.makefile("rb")

    def send(self, row: dict[str, Any]) -> None:
        self.socket.sendall(json.dumps(row).encode() + b"\n")

    def receive(self, seconds: int | None = None) -> dict[str, Any]:
        """Return the next line. Raises UsageError: the error that it tells, or the relay's end.

        seconds: its time limit.
        """
        self.socket.settimeout(seconds)
        try:
            line = self.file.readline()
        except TimeoutError as error:
            what = f"Ray has not answered for {seconds} s"
            raise UsageError(what, hint="ray status must work here") from error
        self.socket.settimeout(None)
        if not line:
            raise PaddockError("the connection to Ray was lost", hint="ray status")
        row: dict[str, Any] = json.loads(line)
        if "error" in row:
            raise UsageError(str(row["error"]), hint=str(row.get("hint", "")))
        return row

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def ask(cluster: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the relay's answer of one line. Raises UsageError."""
    relay = RelayConnection(cluster)
    try:
        relay.send(row)
        return relay.receive(ANSWER_SECONDS)
    finally:
        relay.close()


def socket_path(cluster: str) -> str:
    folder = own_folder("paddock-ray")
    if not folder:
        raise UsageError("no directory of yours is there for a socket", hint="set XDG_RUNTIME_DIR")
    address = os.environ.get("RAY_ADDRESS", cluster) if cluster == "auto" else cluster
    key = json.dumps([address, sys.executable, __version__])
    return f"{folder}/{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _connected(path: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(path)
    except OSError:
        found.close()
        raise
    return found


def _start(cluster: str, path: str) -> dict[str, Any]:
    """Start the relay, which outlives us; return what it says."""
    import paddock

    parts = (str(Path(paddock.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, parts))}
    with open(f"{path}.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "paddock.backends.ray.relay", cluster, path],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=env, cwd="/",
            start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        if not select.select([process.stdout], [], [], START_SECONDS)[0]:
            process.kill()
            process.wait()
            return {"error": f"{cluster_text(cluster)} has not answered for {START_SECONDS} s",
                    "hint": "ray status must work here"}  # fmt: skip
        line = process.stdout.readline()
    row: dict[str, Any] = json.loads(line) if line else {"error": f"Ray ended: {path}.log"}
    return row


def main(argv: list[str]) -> int:
    """Be the pipe of one connection; return the command's code."""
    cluster, name, node, holder, seconds, command = argv
    row = {"op": "connect", "name": name, "node": node, "holder": holder, "command": command,
           "seconds": int(seconds)}  # fmt: skip
    try:
        relay = RelayConnection(cluster)
        relay.send(row)
        relay.receive(int(seconds) + 2)  # the relay has its own limit
        threading.Thread(target=_send_input, args=(relay.socket,), daemon=True).start()
        while size := int.from_bytes(_read(relay.file, HEAD_BYTES), "big"):
            write_all(1, _read(relay.file, size))
        end = relay.receive()
    except PaddockError as error:
        sys.stderr.write(f"{error.message}\t{error.hint}\n")
        return error.exit_code
    except BrokenPipeError:
        return 0
    sys.stderr.write(end["errors"])
    return int(end["code"])


def _send_input(target: socket.socket) -> None:
    try:
        while data := os.read(0, CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the other side has ended: main tells


def _read(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise PaddockError("the connection to Ray was lost", hint="ray status")
    return data


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
