"""Gives shards to other servers, and asks what became of those that came: ownership.py in threads.

An order runs in the thread of whoever gave it, and goes on when that one is gone. One shard
leaves at a time.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.connection import FrameConnection
from paddock.ps.server.log_record import DELTA, LAST
from paddock.ps.server.tables import ServerSparseTable, ServerTable
from paddock.ps.shards.ownership import PART_BYTES, PHASES
from paddock.ps.spec import to_json
from paddock.ps.storage.arrays import encode_arrays
from paddock.ps.stream import ConnectionClosed
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op

if TYPE_CHECKING:
    from paddock.ps.server.serve import Server

# A server that does not answer for so long ends an attempt: pushes to the shard may wait for it.
SERVER_SECONDS = 10.0
# An attempt that was broken off is followed by another.
AGAIN_SECONDS = 0.1
# Between two looks at whether the step is over.
FREEZE_SECONDS = 0.002
# What came is asked after so often, and its giver has so long to answer.
LOOK_SECONDS = 0.25
FATE_SECONDS = 3.0
JOIN_SECONDS = 5.0
ORDER_SECONDS_MAX = 3600.0


@dataclass(slots=True)
class Migration:
    """A shard that leaves. table: its number on the other server. since: the newest record in
    what was sent. parts, sent: how many, of how many bytes. frozen: when pushes began to wait."""

    held: ServerTable
    shard: int
    version: int
    peer: ServerConnection
    until: float
    table: int = 0
    since: int = -1
    parts: int = 0
    sent: int = 0
    frozen: float = 0.0


class ShardMigrator:
    """The migrations of one server, from it and to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._leaves = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        """Begin to ask after what came."""
        self._thread.start()

    def stop(self) -> None:
        """The server ends: so do attempts."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    def _peer(self, index: int, seconds: float) -> ServerConnection:
        at, me = self.server.options.endpoints, self.server.identity
        return ServerConnection(index, at[index], me, seconds, purpose="admin", servers=len(at))

    # -------------------------------------------------------------------------------- the giver

    def move(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give a shard away; returns when it is done. Raises PaddockError when it cannot be, or
        not within "seconds"."""
        held, shard = self._named(order)
        to, seconds = order.get("to"), order.get("seconds", 0)
        mine = self.server.store.server
        others = [n for n in range(len(self.server.options.endpoints)) if n != mine]
        if to not in others or not isinstance(seconds, int | float):
            way = f"from server {mine} to {to!r} within {seconds!r} s"
            there = "the others are " + ", ".join(map(str, others)) if others else "it is alone"
            raise RequestError("usage", f"shard {shard} cannot move {way}", hint=there)
        until = time.monotonic() + min(ORDER_SECONDS_MAX, seconds)
        with self._leaves:
            while True:
                try:
                    return self._give(held, shard, to, until)
                except PaddockError as error:
                    is_passing = error.retryable or getattr(error, "code", "") == "deadline"
                    if not is_passing or time.monotonic() >= until:
                        raise
                    self._pause(AGAIN_SECONDS)

    def _named(self, order: dict[str, Any]) -> tuple[ServerTable, int]:
        held, shard = self.server.store.by_name.get(str(order.get("table"))), order.get("shard")
        if held is None:
            raise RequestError("unknown-table", f"there is no table {order.get('table')!r}")
        if not isinstance(shard, int) or not 0 <= shard < held.spec.shards:
            raise RequestError("usage", f"table {held.spec.name!r} has no shard {shard!r}")
        return held, shard

    def _give(self, held: ServerTable, shard: int, to: int, until: float) -> dict[str, Any]:
        ownership = held.ownership
        phases: tuple[str, ...] = PHASES
        with held.lock:
            if shard in ownership.owned:
                version = ownership.leave(shard, to, secrets.randbits(32))
            elif ownership.given.get(shard, (-1, 0))[0] == to:
                version, phases = ownership.given[shard][1], PHASES[-1:]
            else:
                raise RequestError(
                    "moved", f"shard {shard} of table {held.spec.name!r} is not here"
                )
        one = Migration(held, shard, version, self._peer(to, SERVER_SECONDS), until)
        try:
            one.table = int(one.peer.ask(Op.CREATE, to_json(held.spec))["table"])
            for phase in phases:
                self._pause(0.0)
                self.do(phase, one)
            waited = time.monotonic() - one.frozen if one.frozen else 0.0
            return {"bytes": one.sent, "seconds": waited}
        finally:
            with held.lock:
                ownership.stay(shard, version)
            one.peer.close()

    def do(self, phase: str, one: Migration) -> None:
        """Carry out a phase of PHASES."""
        getattr(self, f"_{phase}")(one)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise ConnectionClosed("the server is ending")

    def _copy(self, one: Migration) -> None:
        if isinstance(one.held, ServerSparseTable):  # Of a dense shard every push changes all.
            left = self._rest(one)
            while left > PART_BYTES and (now := self._rest(one)) < left / 2:
                left = now

    def _rest(self, one: Migration) -> int:
        """The other server gets what it lacks, on its disk if it has one. Returns its bytes."""
        with one.held.lock:
            lsn = self.server.engine.newest_lsn()
            arrays, is_all = one.held.table.shard_changes(one.shard, one.since)
        flags = 0 if is_all else DELTA
        whole = memoryview(b"".join(encode_arrays(arrays)[0]))
        head = one.shard.to_bytes(4, "little") + self.server.store.server.to_bytes(4, "little")
        places = range(0, len(whole), PART_BYTES)

        def once(link: FrameConnection) -> None:
            for number, at in enumerate(places, one.parts):
                last = LAST if at == places[-1] else 0
                header = Header(
                    Op.ADOPT, flags | last, one.table, number, count=1, step=one.version
                )
                link.post(header, head, whole[at : at + PART_BYTES])
            problem: RequestError | None = None
            for _ in places:
                try:
                    link.receive()
                except RequestError as refusal:  # The others' answers come all the same.
                    problem = problem or refusal
            if problem is not None:
                raise problem

        one.peer.retry("admin", once)
        one.parts += len(places)
        one.sent += len(whole)
        one.since = lsn
        return len(whole)

    def _freeze(self, one: Migration) -> None:
        held = one.held
        while True:
            with held.lock:
                busy = bool(held.contributions.nbytes)
                if held.ownership.freeze(one.shard, one.version, busy=busy):
                    break
            if time.monotonic() >= one.until:
                raise RequestError(
                    "deadline",
                    f"shard {one.shard} of table {held.spec.name!r} cannot move now: a step is "
                    "being gathered",
                    hint="try again later",
                )
            self._pause(FREEZE_SECONDS)
        one.frozen = time.monotonic()

    def _move(self, one: Migration) -> None:
        order = {"shard": one.shard, "to": one.peer.index, "version": one.version}
        self.server.engine.record(Op.MOVE, order, table=one.held.number)
        # After a power cut this server must not own it again.
        self.server.engine.make_durable()
        with one.held.lock:
            one.held.ownership.stay(one.shard, one.version)

    def _own(self, one: Migration) -> None:
        order = {"shard": one.shard, "version": one.version, "own": True, "step": one.held.step}
        try:
            one.peer.ask(Op.ADOPT, order, table=one.table)
        except PaddockError as error:
            raise RequestError(
                "deadline",
                f"shard {one.shard} of table {one.held.spec.name!r} is server {one.peer.index}'s "
                f"now, which has not taken it: {error.message}",
                hint="it takes it when it is up again; pushes and pulls of the shard wait for that",
            ) from error

    # -------------------------------------------------------------------------------- the taker

    def migration_status(self, order: dict[str, Any]) -> dict[str, Any]:
        """The status of an attempt of this server, for the target of the shard."""
        held, shard = self._named(order)
        with held.lock:
            fate = held.ownership.migration_status(shard, order.get("to"), order.get("version"))
            step = held.step
        self.server.engine.make_durable()  # A giver that comes back must not say otherwise.
        self.server.engine.check_serving()
        return {"fate": fate, "step": step}

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            if self.server.role != "primary":
                continue
            for held in list(self.server.store.tables):
                for shard in list(held.ownership.incoming):
                    try:
                        self._ask(held, shard)
                    except PaddockError as error:
                        what = f"table {held.spec.name!r}: shard {shard} on its way here"
                        self.server.say_once(f"{what}: {error.message}")

    def _ask(self, held: ServerTable, shard: int) -> None:
        """Own or forget what came, if its giver knows which."""
        with held.lock:
            one = held.ownership.incoming.get(shard)
        if one is None or one.source >= len(self.server.options.endpoints):
            return
        order = {"table": held.spec.name, "shard": shard, "version": one.version}
        with closing(self._peer(one.source, FATE_SECONDS)) as peer:
            told = peer.ask(Op.CONTROL, {"do": "fate", "to": self.server.store.server, **order})
        if told["fate"] != "coming":
            done = {**order, "own": told["fate"] == "given", "step": told["step"]}
            self.server.engine.record(Op.ADOPT, done, table=held.number)


# What is asked of it, by an admin and by the ShardMigrator of another server.
MOVES = {"move": ShardMigrator.move, "fate": ShardMigrator.migration_status}
