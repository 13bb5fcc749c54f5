"""A made-up network for the agent's own code: what transport/sockets.py offers, without a socket.

A connection keeps its order as TCP does; different connections do not. What a cut holds back
arrives when it heals. Whoever writes to an end that is closed gets a reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.node import Node
    from sim.world import World

NO_ANSWER = "no answer"
REFUSED = "Connection refused"


class Net:
    """One launcher's way to others."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.launch = node.launch_count

    def bind(self, address: str, port: int) -> Listener | None:
        world = self.node.world
        if address and address != self.node.address:
            return None
        if not port:
            port = world.next_port(1)
        if (self.node.address, port) in world.listen_ports:
            return None
        listener = Listener(self.node, port)
        world.listen_ports[self.node.address, port] = listener
        return listener

    def dial(
        self,
        target: tuple[str, int],
        *,
        source: str,
        seconds: float,
        on_open: Callable[[End], None],
        on_failed: Callable[[str, bool], None],
    ) -> Dial:
        del source
        return Dial(self.node, target, seconds, on_open, on_failed)


class Listener:
    """A port. It is gone with its launcher."""

    def __init__(self, node: Node, port: int) -> None:
        self.node = node
        self.launch = node.launch_count
        self.port = port
        self.is_open = False
        self._on_connection: Callable[[End], None] = lambda _connection: None

    def open(self, on_connection: Callable[[End], None], make_room: Callable[[], bool]) -> None:
        del make_room
        self._on_connection = on_connection
        self.is_open = True

    def close(self) -> None:
        self.is_open = False
        if self.node.world.listen_ports.get((self.node.address, self.port)) is self:
            del self.node.world.listen_ports[self.node.address, self.port]

    def accept(self, connection: End) -> None:
        if self.node.lives and self.launch == self.node.launch_count:
            self.node.loop.call(lambda: self._on_connection(connection))


class Dial:
    """A connection that is being made."""

    def __init__(
        self,
        node: Node,
        target: tuple[str, int],
        seconds: float,
        on_open: Callable[[End], None],
        on_failed: Callable[[str, bool], None],
    ) -> None:
        self.is_wanted = True
        self._on_failed = on_failed
        world, loop = node.world, node.loop
        there = world.host_at(target[0])
        door = world.listen_ports.get(target)
        is_cut = (
            there is None
            or not there.is_on
            or (there is not node and (node.cuts or there.cuts))
            or world.are_apart(node, there)
        )
        if is_cut:
            world.after(seconds, lambda: loop.call(lambda: self._fail(NO_ANSWER)))
        elif door is None or not door.is_open:
            world.after(world.delay(), lambda: loop.call(lambda: self._fail(REFUSED)))
        else:
            ends = Pipe(world, node, door.node).ends

            def opened() -> None:
                if self.is_wanted and not door.is_open:
                    self._fail(REFUSED)
                elif self.is_wanted:
                    self.is_wanted = False
                    ends[0].address, ends[1].address = target[0], node.address
                    on_open(ends[0])
                    door.accept(ends[1])

            world.after(world.delay(), lambda: loop.call(opened))

    def _fail(self, why: str) -> None:
        if self.is_wanted:
            self.is_wanted = False
            self._on_failed(why, why == REFUSED)

    def cancel(self) -> None:
        self.is_wanted = False


class Pipe:
    """The two ends of a connection: that of the one who dialled, and the other."""

    def __init__(self, world: World, here: Node, there: Node) -> None:
        self.world = world
        self.ends = (End(self, here), End(self, there))
        for end, other in (self.ends, self.ends[::-1]):
            end.other = other
        world.pipes.append(self)


class End:
    """One end; stands for agent/transport/connection.py."""

    other: End
    address: str

    def __init__(self, pipe: Pipe, node: Node) -> None:
        self.pipe = pipe
        self.node = node
        self.loop = node.loop
        self.is_open = True
        self._last = 0.0  # nothing arrives before what was sent before
        self._held: list[Callable[[], None]] = []
        self._unheard: list[bytes] = []
        self._on_line: Callable[[bytes], None] | None = None
        self._on_closed: Callable[[str, bool], None] = lambda _why, _is_orderly: None

    @property
    def local_address(self) -> str:
        return self.node.address

    def set_limit(self, limit_bytes: int) -> None:
        del limit_bytes

    def begin(
        self,
        limit_bytes: int,
        on_line: Callable[[bytes], None],
        on_closed: Callable[[str, bool], None],
    ) -> None:
        del limit_bytes
        self._on_line, self._on_closed = on_line, on_closed
        unheard, self._unheard = self._unheard, []
        for data in unheard:
            self._hear(data)

    # ------------------------------------------------------------------- sending

    def send(self, data: bytes) -> None:
        if self.is_open:
            self._post(lambda: self.other.arrive(data))

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._post(lambda: self.other.end("connection closed", is_orderly=True))

    def abort(self) -> None:
        """As agent/transport/connection.py: the other end hears that it broke."""
        if self.is_open:
            self.is_open = False
            self._post(lambda: self.other.end("connection lost (reset)", is_orderly=False))

    def reset(self) -> None:
        """It breaks here; the other end learns of it when it speaks."""
        self.end("connection lost (Connection reset by peer)", is_orderly=False)

    def _post(self, call: Callable[[], None]) -> None:
        """Let something happen at the other end, in order."""
        world = self.pipe.world
        is_cut = "out" in self.node.cuts or "in" in self.other.node.cuts
        is_cut |= world.are_apart(self.node, self.other.node)
        if is_cut and self.node is not self.other.node:
            self._held.append(call)
            return
        at = max(world.now + world.delay(), self._last)
        self._last = at
        world.at(at, call)

    def heal(self) -> None:
        held, self._held = self._held, []
        for call in held:
            self._post(call)

    # ----------------------------------------------------------------- receiving

    def arrive(self, data: bytes) -> None:
        if not self.node.is_on:
            return  # nobody answers
        if not self.is_open:
            other = self.other  # a reset comes back
            self._post(lambda: other.end("connection lost (Broken pipe)", is_orderly=False))
            return
        self.loop.call(lambda: self._hear(data))

    def _hear(self, data: bytes) -> None:
        if self._on_line is None:
            self._unheard.append(data)
            return
        for line in data.split(b"\n")[:-1]:
            if self.is_open:
                self._on_line(line)

    def end(self, why: str, *, is_orderly: bool) -> None:
        """The other end was closed, or it broke."""
        if self.is_open and self.node.is_on:
            self.is_open = False
            self.loop.call(lambda: self._on_closed(why, is_orderly))
