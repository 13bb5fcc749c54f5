"""A coordinator's door and members on loopback, all on one loop: for tests."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import TYPE_CHECKING

from paddock.agent.coordinator import Coordinator, CoordinatorEvents
from paddock.agent.transport.client import ClientEvents, CoordinatorClient
from paddock.agent.transport.server import CoordinatorServer
from paddock.agent.transport.sockets import Network
from paddock.agent.transport.wire import answer, session_key
from paddock.core.job import Entrypoint, Job, Rendezvous
from paddock.core.value import replace
from paddock.local.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.core.rendezvous.messages import Ending, Envelope, ToMember
    from paddock.errors import PaddockError

KEY = b"the-job-key"
UID = "u1d"
WAIT_SECONDS_MAX = 20.0


def job_of(nnodes: int, *, lease_seconds: float = 30.0, ips: tuple[str, ...] = ()) -> Job:
    """A job of several nodes."""
    rendezvous = Rendezvous(
        kind="tcp", host="127.0.0.1", port=1, lease_seconds=lease_seconds, ips=ips
    )
    job = Job(Entrypoint("script", "train.py"), job_id="mnist")
    return replace(job, nnodes_min=nnodes, nnodes_max=nnodes, rendezvous=rendezvous)


class Ear:
    """A client and everything it told us."""

    def __init__(self, room: Room, target: tuple[str, int], key: bytes, job_id: str) -> None:
        self.joined: list[tuple[str, str]] = []
        self.messages: list[ToMember] = []
        self.lost: list[tuple[Ending, str]] = []
        self.failed: list[PaddockError] = []
        self.waiting: list[str] = []
        self.refused: list[bool] = []
        self.client = CoordinatorClient(
            room.loop,
            room.net,
            job_id,
            target,
            key=key,
            join_timeout_seconds=room.join_seconds,
            events=Heard(self),
        )


class Heard(ClientEvents):
    """Writes down what a client tells."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear

    def joined(self, seen_as: str, uid: str) -> None:
        """As agent/transport/client.py."""
        self.ear.joined.append((seen_as, uid))

    def on_envelope(self, envelope: Envelope) -> None:
        """As agent/transport/client.py."""
        self.ear.messages.append(envelope.message)  # type: ignore[arg-type]  # to us

    def lost(self, ending: Ending, why: str, _seconds_left: float) -> None:
        """As agent/transport/client.py."""
        self.ear.lost.append((ending, why))

    def failed(self, error: PaddockError) -> None:
        """As agent/transport/client.py."""
        self.ear.failed.append(error)

    def waiting(self, _where: str, why: str) -> None:
        """As agent/transport/client.py."""
        self.ear.waiting.append(why)

    def refused(self) -> None:
        """As agent/transport/client.py."""
        self.ear.refused.append(True)


class Room:
    """A loop with what is on it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.net = Network(self.loop, None, None)
        self.join_seconds = WAIT_SECONDS_MAX
        self.ears: list[Ear] = []
        self.socks: list[socket.socket] = []
        self.server: CoordinatorServer | None = None
        self.coordinator: Coordinator | None = None

    def serve(self, job: Job, key: bytes = KEY) -> tuple[str, int]:
        """Open a coordinator's door; returns its address."""
        listener = self.net.bind("127.0.0.1", 0)
        assert listener is not None
        self.coordinator = Coordinator(job, self.loop, UID, events=CoordinatorEvents())
        self.server = CoordinatorServer(job, self.loop, self.coordinator, listener, key=key)
        return "127.0.0.1", listener.port

    def listen(self) -> tuple[socket.socket, tuple[str, int]]:
        """A port of a program that is no coordinator."""
        listener = self.keep(socket.create_server(("127.0.0.1", 0), backlog=1024))
        listener.settimeout(WAIT_SECONDS_MAX)
        return listener, ("127.0.0.1", int(listener.getsockname()[1]))

    def join(self, target: tuple[str, int], *, key: bytes = KEY, job_id: str = "mnist") -> Ear:
        """A member that tries to get in."""
        ear = Ear(self, target, key, job_id)
        self.ears.append(ear)
        return ear

    def connect(self, target: tuple[str, int]) -> socket.socket:
        """A connection of a program that is no member."""
        sock = self.keep(socket.create_connection(target))
        sock.setblocking(False)
        return sock

    def keep(self, sock: socket.socket) -> socket.socket:
        """Close it after the test."""
        self.socks.append(sock)
        return sock

    def run_until(self, is_so: Callable[[], object]) -> None:
        """Turn the loop until then, with a limit."""
        limit = time.monotonic() + WAIT_SECONDS_MAX

        def look() -> None:
            if is_so():
                self.loop.stop()
                return
            assert time.monotonic() < limit, "it never came to be"
            self.loop.at("look", time.monotonic() + 0.005, look)

        self.loop.at("look", time.monotonic(), look)
        self.loop.run()

    def read_line(self, sock: socket.socket) -> bytes:
        """A line that comes on a connection; b"" when it is closed."""
        data = bytearray()

        def came() -> bool:
            try:
                more = sock.recv(1)
            except BlockingIOError:
                return False
            except OSError:
                return True
            data.extend(more)
            return not more or data.endswith(b"\n")

        self.run_until_each(came)
        return bytes(data)

    def run_until_each(self, is_so: Callable[[], bool]) -> None:
        """As run_until, but asks again at once while there is progress."""
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < limit, "it never came to be"
            self.loop.at("turn", time.monotonic() + 0.001, self.loop.stop)
            self.loop.run()

    def shake_hands(self, sock: socket.socket, key: bytes = KEY) -> tuple[bytes, bytes]:
        """Become a member by hand; returns our answer and the session's key."""
        nonce = str(json.loads(self.read_line(sock))["nonce"])
        mine = os.urandom(16).hex()
        line = answer(key, "mnist", nonce, mine)
        sock.send(line)
        assert json.loads(self.read_line(sock))["welcome"] is True
        return line, session_key(key, nonce, mine)

    def close(self) -> None:
        """Free everything."""
        for ear in self.ears:
            ear.client.close()
        server, self.server = self.server, None
        if server is not None:
            self.loop.at("look", None, self.loop.stop)
            gone: list[bool] = []
            for sock in self.socks:
                sock.close()
            self.run_until_each(lambda: self._ended(server, gone))
        for sock in self.socks:
            sock.close()
        self.loop.close()

    def _ended(self, server: CoordinatorServer, gone: list[bool]) -> bool:
        if not gone:
            gone.append(False)
            server.end(lambda: gone.append(True))
        return gone[-1]
