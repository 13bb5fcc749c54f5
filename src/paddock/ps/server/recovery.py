"""From a data directory to a running state: the newest whole snapshot, then the log.

Also the way back: snapshots while writes go on, and the log cut behind them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paddock.errors import PaddockError
from paddock.ps.durable.log import Log, read_identity
from paddock.ps.durable.snapshot import State, log_floor, newest_snapshot, save_snapshot
from paddock.ps.server.engine import Ack, Engine
from paddock.ps.server.store import Store


def new_server_id() -> int:
    """64 random bits, not 0: the name of a server's state."""
    return secrets.randbits(64) | 1


def open_engine(
    store: Store,
    directory: str,
    ack: Ack,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.time,
) -> tuple[Engine, int]:
    """(engine with what the directory holds, the id of that state). "" keeps nothing."""
    if not directory:
        return Engine(store, None, ack, clock), new_server_id()
    started = time.monotonic()
    path = Path(directory)
    snapshot, warnings = newest_snapshot(path)
    head = read_identity(path) if path.is_dir() else None
    server = snapshot.server if snapshot else head.server if head else new_server_id()
    first = 1 if snapshot is None else snapshot.plan.first
    log = Log(path, server=server, start=first)
    for line in (*warnings, *log.warnings):
        say(line)
    if snapshot is not None:
        snapshot.plan.check_log(log.first, log.last, path)
        for spec in snapshot.specs:
            store.add_table(spec)
        for entry in snapshot.shards:
            store.by_name[entry.table].table.load_shard(entry.shard, snapshot.read(entry))
        store.restore(snapshot.state.values, snapshot.state.arrays)
        store.plan = snapshot.plan
    engine = Engine(store, log, ack, clock)
    count = 0
    if snapshot is None and log.first > 1 and log.last >= log.first:
        raise PaddockError(
            f"{path}: the log begins at record {log.first}, and there is no snapshot before it",
            hint="was a snap-* directory removed? restore it, or load a checkpoint elsewhere",
        )
    for lsn, header, body in log.read(first) if log.last >= first else ():
        engine.replay(lsn, header, body)
        count += 1
    engine.lsn = max(engine.lsn, first - 1 if snapshot is None else snapshot.state.lsn)
    store.plan = None
    if store.chief is not None:
        store.chief.forget()
    if snapshot is not None or count:
        rows = sum(getattr(held.table, "rows", 0) for held in store.tables)
        say(
            f"recovered {len(store.tables)} tables, {rows} rows, from "
            f"{'snapshot ' + str(snapshot.state.lsn) if snapshot else 'no snapshot'} and "
            f"{count} records in {time.monotonic() - started:.2f} s"
        )
    return engine, server


class Snapshots:
    """Writes a snapshot whenever the log has grown by `every` bytes. One at a time."""

    def __init__(
        self,
        engine: Engine,
        directory: str,
        server: int,
        every: int,
        say: Callable[[str], None],
    ) -> None:
        self.engine = engine
        self.directory = directory
        self.server = server
        self.every = every
        self.say = say
        self._floor = engine.log.nbytes if engine.log is not None else 0
        self._lock = threading.Lock()
        self._is_asked = False

    def is_due(self) -> bool:
        """Whether the log has grown enough, or somebody asked."""
        log = self.engine.log
        if log is None:
            return False
        return self._is_asked or 0 < self.every <= log.nbytes - self._floor

    def ask(self) -> None:
        """Have one written soon."""
        self._is_asked = True

    def take(self) -> int:
        """Write a snapshot now, and cut the log behind it; its lsn. Raises PaddockError."""
        store, log = self.engine.store, self.engine.log
        assert log is not None
        with self._lock:
            self._is_asked = False
            snapshot = save_snapshot(
                self.directory,
                server=self.server,
                generation=0,
                specs=lambda: [held.spec for held in store.tables],
                owned=lambda: {held.spec.name: list(held.owned) for held in store.tables},
                take_state=self._state,
                take=self.engine.copy_shard,
                make_durable=log.wait_durable,
            )
            log.cut(log_floor(self.directory))
            self._floor = log.nbytes
            return snapshot.state.lsn

    def _state(self) -> State:
        with self.engine.at_rest() as lsn:
            return State(lsn, self.engine.store.state_values(), self.engine.store.state_arrays())
