"""A primary and its replica as processes of this machine, with a witness in this one."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.errors import PaddockError
from paddock.ps import Client
from paddock.ps.connection import FrameConnection, Identity, read_token
from paddock.ps.replication.witness import serve_witness
from paddock.ps.wire.frames import Header, Op
from ps.running import Job, eventually, free_ports

CAUGHT_UP_SECONDS = 30.0


@dataclass
class PairJob(Job):
    """One server of a job, twice. processes: 0 is started as the primary, 1 as its replica.

    advertised, witnesses: by process, what a server says of itself instead of its own endpoint,
    and where it asks for the lease. place: which server it is. listed: the endpoints of all
    servers, when there are others. token_file, tls_ca: what whoever asks them needs.
    """

    witness: str = ""
    witnesses: tuple[str, str] = ("", "")
    ack: str = "replica"
    advertised: tuple[str, str] = ("", "")
    place: int = 0
    listed: tuple[str, ...] = ()
    token_file: str = ""
    tls_ca: str = ""

    def servers(self) -> list[str]:
        """The servers of the job, as trainers are told them."""
        return list(self.listed) or ["|".join(self.endpoints)]

    def words(self, index: int) -> list[str]:
        """The flags of one of the two."""
        primary = self.advertised[0] or self.endpoints[0]
        return [
            f"--port={self.endpoints[index].rpartition(':')[2]}",
            f"--index={self.place}",
            f"--endpoints={','.join(self.servers())}",
            f"--num_gradient_servers={self.trainers}",
            f"--data-dir={self.data_dir(index)}",
            f"--ack={self.ack}",
            f"--witness={self.witnesses[index] or self.witness}",
            *([f"--replica-of={primary}"] if index else []),
            *([f"--advertise={self.advertised[index]}"] if self.advertised[index] else []),
            *self.flags,
        ]

    def client(self, trainer: int = 0, **options: Any) -> Client:
        """A trainer that knows both."""
        known = {
            "endpoints": self.servers(),
            "token_file": self.token_file or None,
            "tls_ca": self.tls_ca or None,
        }
        return super().client(trainer, **{**known, **options})

    def identity(self) -> Identity:
        """How this process introduces itself, as nobody of the job."""
        return Identity("default", 0, 1, "", read_token(self.token_file), self.tls_ca)

    def ask(self, index: int, op: Op, order: dict[str, Any]) -> dict[str, Any]:
        """What one of the two answers, whatever its role."""
        link = FrameConnection(self.endpoints[index], self.identity(), "admin", 5.0)
        try:
            link.stream.send(Header(op), json.dumps(order).encode())
            _, body = link.receive()
            found: dict[str, Any] = json.loads(bytes(body))
            return found
        finally:
            link.close()

    def state(self, index: int) -> dict[str, Any]:
        """What one of the two says of its place in the pair; {} when it does not answer."""
        try:
            found: dict[str, Any] = self.ask(index, Op.STATUS, {})["pair"]
            return found
        except PaddockError:
            return {}

    def digest(self, index: int) -> dict[str, int]:
        """The digests of the tables of one of the two."""
        found: dict[str, int] = self.ask(index, Op.CONTROL, {"do": "digest"})["tables"]
        return found

    def is_serving(self, index: int) -> bool:
        """Whether it is the primary and holds the lease."""
        try:
            return bool(self.ask(index, Op.STATUS, {})["role"] == "primary")
        except PaddockError:
            return False

    def wait_in_sync(self) -> int:
        """Wait until one serves and the other may be promoted; which one serves."""

        def found() -> list[int]:
            states = [self.state(index) for index in (0, 1)]
            if not all(state and state["is_in_sync"] for state in states):
                return []
            primary = [i for i in (0, 1) if states[i]["role"] == "primary"]
            if len(primary) != 1 or states[primary[0]]["in_sync"] != 2:
                return []
            return [primary[0] + 1]

        try:
            return int(eventually(found, "both in sync", CAUGHT_UP_SECONDS)[0]) - 1
        except AssertionError as error:
            raise AssertionError(f"{error}; {[self.state(i) for i in (0, 1)]}") from error


class Wall:
    """A way to a server that can be closed: what is sent then waits, as in a network that lost it.

    On 127.0.0.2, so that no Unix socket leads around it.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.is_open = threading.Event()
        self.is_open.set()
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.endpoint = f"127.0.0.2:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._lives = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._sockets.append(near)
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        self.is_open.wait()
        try:
            far = socket.create_connection(self.target, 5.0)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        self._sockets.append(far)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        life = self._lives
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.is_open.wait()
                if self._lives != life:
                    break
                sink.sendall(data)
        self.is_open.wait()
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Open again; what waited is lost, and its connections end."""
        self._lives += 1
        self.is_open.set()

    def close(self) -> None:
        """End every connection."""
        self.is_open.set()
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@contextlib.contextmanager
def walled(target: str) -> Iterator[Wall]:
    """A wall before a server; it ends with the block."""
    wall = Wall(target)
    try:
        yield wall
    finally:
        wall.close()


@contextlib.contextmanager
def witnessed(folder: Path, **secrets: Any) -> Iterator[str]:
    """The endpoint of a witness, which is a thread of this process. secrets: token, tls_cert."""
    port, ended, ready = free_ports(1)[0], threading.Event(), threading.Event()
    thread = threading.Thread(
        target=serve_witness,
        args=(ended,),
        kwargs={
            "port": port,
            "data_dir": str(folder / "witness"),
            "say": lambda line: None,
            "ready": lambda line: ready.set(),
            **secrets,
        },
    )
    thread.start()
    assert ready.wait(10)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        ended.set()
        thread.join(10)


@contextlib.contextmanager
def paired(
    folder: Path,
    trainers: int = 1,
    *flags: str,
    change: Callable[[PairJob], None] | None = None,
    **options: Any,
) -> Iterator[PairJob]:
    """A pair that is in sync; it ends with the block. change: called before they start."""
    with witnessed(folder) as witness:
        job = PairJob(folder, 2, trainers, flags, witness=witness, **options)
        try:
            if change is not None:
                change(job)
            job.start(0)
            job.start(1)
            job.wait_in_sync()
            yield job
        finally:
            job.end()


def seconds_until(fact: Any, limit: float = 30.0) -> float:
    """How long it takes until a fact holds."""
    began = time.monotonic()
    eventually(fact, "the fact", limit)
    return time.monotonic() - began
