"""From a data directory to a running state: the newest whole snapshot, then the log.

Also the way back: snapshots while writes go on, and the log cut behind them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paddock.errors import PaddockError, UsageError
from paddock.ps.server.engine import Ack, Engine
from paddock.ps.server.records import make_record
from paddock.ps.server.snapshot_view import SnapshotView
from paddock.ps.server.store import Store
from paddock.ps.storage.files import read_json, write_json, writing
from paddock.ps.storage.log import RecordLog, read_identity
from paddock.ps.storage.snapshot import (
    Snapshot,
    SnapshotState,
    log_floor,
    newest_snapshot,
    save_snapshot,
)

# Beside the log: which server of which job this is.
PLACE = "place.json"


def new_server_id() -> int:
    """64 random bits, not 0: the name of a server's state."""
    return secrets.randbits(64) | 1


def record_place(directory: str, index: int, servers: int, job: str) -> None:
    """Write down, or compare, which server of which job a data directory is.

    Which shards are here follows from the place: another one would lose rows without a word.
    Raises UsageError.
    """
    if not directory:
        return
    path = Path(directory) / PLACE
    mine = {"server": index, "servers": servers, "job": job}
    if path.exists():
        found, _ = read_json(path, "place")
        if any(found.get(name) != value for name, value in mine.items()):
            raise UsageError(
                f"{directory} holds server {found.get('server')} of {found.get('servers')} of job "
                f"{found.get('job')!r}, this is server {index} of {servers} of job {job!r}",
                hint="for another number of servers: save a checkpoint, start with empty "
                "directories, load it",
            )
        return
    with writing("cannot use the data directory", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, mine)


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
    head = read_identity(path) if path.is_dir() else None
    snapshot, warnings = newest_snapshot(path)
    server = snapshot.server if snapshot else head.server if head else new_server_id()
    log = RecordLog(path, server=server, start=1 if snapshot is None else snapshot.state.lsn + 1)
    for line in (*warnings, *log.warnings):
        say(line)
    if snapshot is not None:
        snapshot.check_log(log.first, log.last, path)
    engine = Engine(store, log, ack, clock)
    try:
        count = fill(engine, snapshot)
    except MemoryError as error:
        raise PaddockError(
            f"{path}: what it holds does not fit into this machine's memory: {error}",
            hint="start it where there is more, or fewer servers beside it",
        ) from error
    if store.group is not None:
        store.group.forget()
    if snapshot is not None or count:
        rows = sum(getattr(held.table, "rows", 0) for held in store.tables)
        say(
            f"recovered {len(store.tables)} tables, {rows} rows, from "
            f"{'snapshot ' + str(snapshot.state.lsn) if snapshot else 'no snapshot'} and "
            f"{count} records in {time.monotonic() - started:.2f} s"
        )
    return engine, server


def fill(engine: Engine, snapshot: Snapshot | None) -> int:
    """Give an empty store what the snapshot and the log behind it say; how many records.

    Nobody else uses the store. Raises PaddockError when the two do not fit together.
    """
    store, log = engine.store, engine.log
    assert log is not None
    if snapshot is None and log.first > 1 and log.last >= log.first:
        raise PaddockError(
            f"{log.directory}: the log begins at record {log.first}, and there is no snapshot "
            "before it",
            hint="was a snap-* directory removed? restore it, or load a checkpoint elsewhere",
        )
    engine.lsn = 0
    if snapshot is not None:
        for spec in snapshot.specs:
            store.add_table(spec)
        store.restore(snapshot.state.values, snapshot.state.arrays)
        for entry in snapshot.shards:
            store.by_name[entry.table].table.load_shard(entry.shard, snapshot.read(entry))
        engine.lsn = snapshot.state.lsn
    first = engine.lsn + 1
    for lsn, header, body in log.read(first) if log.last >= first else ():
        engine.lsn = lsn
        record = make_record(header, body)
        store.apply_meta(lsn, record)
        record.apply(store, lsn)
    return engine.lsn + 1 - first


class Snapshots:
    """Writes a snapshot whenever the log has grown by `every` bytes. One at a time."""

    def __init__(
        self, engine: Engine, directory: str, server: int, every: int, say: Callable[[str], None]
    ) -> None:
        self.engine = engine
        self.directory = directory
        self.server = server
        self.every = every
        self.say = say
        self._floor = engine.log.nbytes if engine.log is not None else 0
        # Held while snapshots are written or removed, and the log is cut.
        self.lock = threading.Lock()
        self._is_asked = False
        self._keep = 2

    def is_due(self) -> bool:
        """True when the log has grown enough, or somebody asked."""
        log = self.engine.log
        if log is None:
            return False
        return self._is_asked or 0 < self.every <= log.nbytes - self._floor

    def ask(self, *, keep: int = 2) -> None:
        """Have one written soon; keep: as of `take`."""
        self._is_asked, self._keep = True, min(self._keep, keep)

    def take(self, keep: int = 2) -> int:
        """Write a snapshot now, and cut the log behind it; its lsn. Raises PaddockError.

        keep: snapshots that stay, this one included; fewer, if whoever asked wants fewer.
        """
        log = self.engine.log
        assert log is not None
        with self.lock:
            self._is_asked, keep = False, min(keep, self._keep)
            log.roll()
            cut = SnapshotView(
                self.engine, lambda store: (store.state_values(), store.state_arrays())
            )
            try:
                save_snapshot(
                    self.directory,
                    server=self.server,
                    specs=cut.specs,
                    owned=cut.owned,
                    state=SnapshotState(cut.lsn, *cut.facts),
                    take=cut.take,
                    make_durable=log.wait_durable,
                    keep=keep,
                )
            finally:
                cut.end()
            log.cut(self.engine.replication.keep_from(log_floor(self.directory)))
            self._floor, self._keep = log.nbytes, 2
            return cut.lsn
