"""A TCP proxy that knows frames, and does to the n-th of a kind what networks do.

It listens on 127.0.0.2: a client does not take that for its own machine, so no Unix socket leads
around the proxy.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.ps.wire.frames import HEADER_SIZE, FrameFlag, Op, decode

Kind = Literal["cut", "cut in the middle", "delay", "damage", "silence"]
Way = Literal["up", "down"]


@dataclass
class Fault:
    """What befalls the `nth` frame (from 1) of an op on its way up to, or down from, the server.

    cut: the connection ends before the frame. cut in the middle: after `at` of its bytes.
    delay: by `seconds`. damage: the byte `at` is another one. silence: neither this frame nor
    anything after it passes on this connection, which stays open.
    """

    kind: Kind
    way: Way
    op: Op
    nth: int = 1
    at: int = 40
    seconds: float = 0.0
    happened: threading.Event = field(default_factory=threading.Event)


class _End(Exception):
    """The connection ends here."""


class _HalfEnd(_End):
    """One direction of it does."""


class Proxy:
    """Stands before one server. faults: each happens once."""

    def __init__(self, target: str, faults: Sequence[Fault] = ()) -> None:
        host, _, port = target.rpartition(":")
        self.target = host, int(port)
        self.faults = list(faults)
        self.greeting = b""
        self.pushes: list[bytes] = []  # Every push that came from the client, whole.
        self.said: list[list[bytes]] = []  # All that each connection's client has sent, by frame.
        self._listener = socket.create_server(("127.0.0.2", 0))
        self.endpoint = f"127.0.0.2:{self._listener.getsockname()[1]}"
        self._chance: random.Random | None = None
        self._share = 0.0
        self._seen: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.target, 5.0)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            self._sockets += [client, server]
            self.said.append([])
            for words in (("up", client, server, self.said[-1]), ("down", server, client, None)):
                thread = threading.Thread(target=self._pass, args=words, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(
        self, way: Way, source: socket.socket, sink: socket.socket, said: list[bytes] | None
    ) -> None:
        try:
            while True:
                frame = read_frame(source)
                if said is not None:
                    said.append(frame)
                self._treat(way, frame, sink)
        except _HalfEnd:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
        except (_End, OSError):
            for sock in (source, sink):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _treat(self, way: Way, frame: bytes, sink: socket.socket) -> None:
        op = decode(frame[:HEADER_SIZE]).op
        with self._lock:
            if way == "up" and op == Op.HELLO:
                self.greeting = frame
            if way == "up" and op in (Op.PUSH, Op.PUSH_DENSE):
                self.pushes.append(frame)
            self._seen[way, op] += 1
            count = self._seen[way, op]
            if self._chance is not None and self._chance.random() < self._share:
                # Up, the server never hears of it; down, it has been done and nobody is told.
                raise _HalfEnd if self._chance.random() < 0.3 else _End
            due = [f for f in self.faults if (f.way, f.op, f.nth) == (way, op, count)]
        for fault in due:
            fault.happened.set()
            frame = self._strike(fault, frame, sink)
        sink.sendall(frame)

    def _strike(self, fault: Fault, frame: bytes, sink: socket.socket) -> bytes:
        if fault.kind == "delay":
            self._stopped.wait(fault.seconds)
        elif fault.kind == "damage":
            at = min(fault.at, len(frame) - 1)
            return frame[:at] + bytes([frame[at] ^ 0x10]) + frame[at + 1 :]
        elif fault.kind == "silence":
            self._stopped.wait()
            raise _End
        else:
            if fault.kind == "cut in the middle":
                sink.sendall(frame[: min(fault.at, len(frame) - 1)])
            raise _End
        return frame

    def lose(self, share: float, seed: int) -> None:
        """From now on this share of all frames is lost, and their connections, or a half, end."""
        self._share, self._chance = share, random.Random(seed)

    def replay(self, seed: int) -> list[bool]:
        """Send every push that passed once more, shuffled, over a connection of its own.

        Whether the server called each a repeat.
        """
        frames = list(self.pushes)
        random.Random(seed).shuffle(frames)
        repeated = []
        with socket.create_connection(self.target, 5.0) as sock:
            sock.settimeout(20.0)
            sock.sendall(self.greeting)
            read_frame(sock)
            for frame in frames:
                sock.sendall(frame)
                answer = decode(read_frame(sock)[:HEADER_SIZE])
                assert not answer.flags & FrameFlag.ERROR
                repeated.append(bool(answer.flags & FrameFlag.REPEATED))
        return repeated

    def close(self) -> None:
        """End every connection."""
        self._stopped.set()
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for sock in (self._listener, *self._sockets):
            sock.close()


def read_frame(sock: socket.socket) -> bytes:
    """The next whole frame. Raises _End when there is none."""
    head = _exactly(sock, HEADER_SIZE)
    return head + _exactly(sock, decode(head).length)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise _End
        data += more
    return bytes(data)


@contextlib.contextmanager
def proxied(target: str, *faults: Fault) -> Iterator[Proxy]:
    """A proxy before a server; it ends with the block."""
    proxy = Proxy(target, faults)
    try:
        yield proxy
    finally:
        proxy.close()
