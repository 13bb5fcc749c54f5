"""A server's state at one record, written while trainers go on: a snapshot, or a checkpoint's part.

Taking a cut stops writes for a moment: dense tables are copied. Of a sparse one, rows are put aside
when they first change, until their shard is written (SparseTable.begin_cut).

And the way back: the record that loads a checkpoint. An order to save or load one is {"directory",
"name"} with, to load, "checksum".
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.errors import PaddockError
from paddock.ps.optimizers.schedules import Rates
from paddock.ps.server.log_record import LogRecord
from paddock.ps.server.tables import ServerSparseTable
from paddock.ps.spec import READY, DenseSpec
from paddock.ps.storage.checkpoint import Checkpoint, check_specs, open_checkpoint
from paddock.ps.storage.saving import see_checkpoint, write_part
from paddock.ps.storage.spool import SAVE
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.offsets import TrainerOffsets

if TYPE_CHECKING:
    from paddock.ps.server.engine import Engine
    from paddock.ps.server.serve import Server
    from paddock.ps.server.store import Store
    from paddock.ps.server.tables import TableLock
    from paddock.ps.spec import TableSpec
    from paddock.ps.storage.arrays import Arrays
    from paddock.ps.storage.spool import Spool

# A cut that nobody has begun to write for so long is given up.
CUT_SECONDS = 60.0
# The key that says which checkpoint was loaded last; others have a service's name before a "/".
LOADED = "loaded"
# The service whose keys are in no checkpoint, and stay when one is loaded.
JOB = "job"
READY_KEY = "kv/" + READY


class SnapshotView:
    """lsn: the newest record in it. facts: what `look` found at it. owned: shards by table."""

    def __init__(self, engine: Engine, look: Callable[[Store], Any]) -> None:
        self.engine = engine
        store = engine.store
        with engine.at_rest() as self.lsn:
            self.facts = look(store)
            self.owned = {held.spec.name: list(held.owned) for held in store.tables}
            self._tables = {
                held.spec.name: (held, held.table.begin_cut(self.lsn, held.owned))
                for held in store.tables
            }

    @property
    def specs(self) -> list[TableSpec]:
        """The specs of the tables, by number."""
        return [held.spec for held, _ in self._tables.values()]

    def take(self, table: str, shard: int) -> Arrays:
        """A shard as it was, once. Raises RequestError."""
        held, cut = self._tables[table]
        with held.lock.rows:
            try:
                return held.table.cut_state(cut, shard)  # type: ignore[arg-type]
            except KeyError as error:
                raise no_snapshot_view() from error

    def end(self) -> None:
        """Put nothing more aside."""
        for held, cut in self._tables.values():
            with held.lock:
                held.table.end_cut(cut)  # type: ignore[arg-type]


class Save:
    """A cut that is a server's part of a checkpoint."""

    def __init__(self, engine: Engine) -> None:
        def look(store: Store) -> tuple[dict[str, Any], ...]:
            notes = {k: value for k, value in store.kv.items() if not k.startswith(JOB + "/")}
            return store.progress(), store.steps(), store.rates(), notes

        self.cut = SnapshotView(engine, look)
        # progress: what all servers' cuts must agree on, and marks.
        self.progress, *rest = self.cut.facts
        self._state = dict(zip(("steps", "rates", "notes"), rest, strict=True))
        self._written: dict[str, Any] | None = None
        self._timer = threading.Timer(CUT_SECONDS, self.cut.end)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """It is not wanted any more."""
        self._timer.cancel()
        self.cut.end()

    def write(self, order: dict[str, Any], spool: Spool, *, server: int) -> dict[str, Any]:
        """Write it, once; what write_part says, and the files that a client is to read from the
        spool, whole, where the directory is not seen here. Raises PaddockError.
        """
        if self._written is not None:
            return self._written  # The order came twice: the connection broke.
        self._timer.cancel()
        directory, name, base = (str(order.get(key, "")) for key in ("directory", "name", "base"))
        cut = self.cut
        try:
            is_spooled = is_apart(order)
            if is_spooled:
                directory, base = str(spool.begin_save(name)), ""
            self._written = write_part(
                directory,
                name,
                index=cut.engine.store.server,
                server=server,
                generation=cut.engine.replication.term,
                lsn=cut.lsn,
                # In an order that is the same on all servers.
                specs=sorted(cut.specs, key=lambda spec: spec.name),
                owned=cut.owned,
                take=cut.take,
                state={**self._state, "marks": self.progress["marks"]},
                base=open_checkpoint(directory, name=base) if base else None,
            )
            if is_spooled:
                self._written["files"] = spool.files_of_save()
        finally:
            self.end()
        if cut.engine.log is not None:
            # A delta compares versions: after a power cut no other record may have these.
            cut.engine.log.wait_durable(cut.lsn)
        return self._written


def no_snapshot_view() -> RequestError:
    """The error when there is no view to write, or none any more."""
    return RequestError(
        "deadline",
        "the state to be saved is not kept any more",
        hint="save again: another save began, a push needed memory, or the server was restarted",
    )


# --------------------------------------------------------------------------------------- orders


def check_save(order: dict[str, Any], spool: Spool, server: int) -> dict[str, Any]:
    """{"sees"}: this server can write its part of a checkpoint there; else to its spool.

    Raises RequestError or PaddockError.
    """
    _check_texts(order, "directory", "name")
    if is_apart(order):
        spool.begin_save(order["name"])
        spool.forget(SAVE)
        return {"sees": False}
    see_checkpoint(order["directory"], order["name"], server)
    return {"sees": True}


def is_apart(order: dict[str, Any]) -> bool:
    """True when a save is fetched by a client whose directory this server does not see."""
    parent = os.path.join(order["directory"], order["name"] + ".tmp")
    return bool(order.get("fetch")) and not os.path.isdir(parent)


def check_load(store: Store, order: dict[str, Any], spool: Spool | None) -> dict[str, Any]:
    """As LoadRecord's check; or {"into"}, where the files may be sent that are not to be seen here.

    Raises RequestError, UsageError or DamageError.
    """
    _check_texts(order, "directory", "name", "checksum")
    is_here = os.path.isdir(os.path.join(order["directory"], order["name"]))
    if spool is not None and order.get("send") and not is_here:
        return {"into": str(spool.begin_load(order["checksum"]))}
    _check_checkpoint(store, _open_ordered(order))
    return {}


def _check_texts(order: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(order.get(name), str):
            raise RequestError("usage", f"a checkpoint's {name} is {order.get(name)!r}")


def _open_ordered(order: dict[str, Any]) -> Checkpoint:
    """The checkpoint that an order names. Raises RequestError, UsageError or DamageError."""
    _check_texts(order, "directory", "name", "checksum")
    checkpoint = open_checkpoint(order["directory"], name=order["name"])
    if checkpoint.checksum != order["checksum"]:
        raise RequestError(
            "value",
            f"checkpoint {checkpoint.path} is not the one that was asked for",
            hint="was it written anew meanwhile? load again",
        )
    return checkpoint


def _check_checkpoint(store: Store, checkpoint: Checkpoint) -> None:
    """Raises RequestError, UsageError or DamageError when it cannot be loaded here."""
    missing = [spec.name for spec in checkpoint.specs if spec.name not in store.by_name]
    if missing:
        # Made before, so that their locks are held: a snapshot must not fall in between.
        raise RequestError(
            "usage",
            f"server {store.server} has no table {missing[0]!r}, which the checkpoint has",
            hint="create the checkpoint's tables on every server, then load",
        )
    for held in store.tables:
        if not held.ownership.is_idle:
            raise RequestError(
                "usage",
                f"a shard of table {held.spec.name!r} is on its way between servers",
                hint="load again; if it lasts, is a server down? paddock ps status",
            )
    owned = {spec.name: store.by_name[spec.name].owned for spec in checkpoint.specs}
    checkpoint.verify(owned)
    check_specs(checkpoint, [held.spec for held in store.tables])
    _check_room_for(store, checkpoint)
    if any(held.contributions.nbytes for held in store.tables):
        raise RequestError(
            "usage",
            "a checkpoint cannot be loaded in the middle of a step",
            hint="load before the first push of a step, from one trainer, then barrier()",
        )


def _check_room_for(store: Store, checkpoint: Checkpoint) -> None:
    """A checkpoint that the memory limit does not allow is refused before it is read."""
    if not store.memory_limit_bytes:
        return
    saved = {spec.name for spec in checkpoint.specs}
    needed = 0
    for held in store.tables:
        name = held.spec.name
        if isinstance(held, ServerSparseTable) and name in saved:
            rows = sum(len(checkpoint.keys(name, shard)) for shard in held.owned)
            needed += rows * held.table.row_bytes
        else:
            needed += held.table.nbytes
    if needed > store.memory_limit_bytes:
        what = f"with its share of {checkpoint.path} it would hold {needed}"
        raise store.is_full(what, "or add servers")


class LoadRecord(LogRecord):
    """LOAD: the server takes over its share of a checkpoint."""

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint. Raises RequestError, UsageError or DamageError."""
        return _open_ordered(self.data)

    def locks(self, store: Store) -> list[TableLock]:
        return [held.lock for held in store.tables]

    def check(self, store: Store) -> None:
        _check_checkpoint(store, self.checkpoint)

    def apply_meta(self, store: Store, lsn: int) -> None:
        """Applies how many steps the tables have behind them, and the trainers' data."""
        checkpoint = self.checkpoint
        saved = [state.get("steps", {}) for state in checkpoint.states]
        set_rates = [state.get("rates", {}) for state in checkpoint.states]
        for spec in checkpoint.specs:
            held = store.by_name[spec.name]
            # A server that has no shard of a table has no steps.
            held.step = max((of[spec.name][0] for of in saved if spec.name in of), default=0)
            held.base = held.step - store.committed  # Sync goes on counting from there.
            rates = [of[spec.name] for of in set_rates if spec.name in of]
            if spec.optimizer.lr == held.spec.optimizer.lr:  # Else a new one is wanted.
                held.rates = Rates()
                if rates:  # Of before, the correction is told anew with the next rate.
                    held.rates = Rates(rates[0]["lr"], rates[0].get("correction", 1.0))
        # What was read since the save is read again.
        parts = [state.get("marks", {}) for state in checkpoint.states]
        marks = {t: (0, position, 0) for t, position in checkpoint.positions.items()}
        if len(parts) == store.servers:
            marks = parts[store.server]
        store.offsets = TrainerOffsets.from_marks(marks, is_sync=store.is_sync)
        if store.server == 0:  # Where services are; theirs is the cut taken first.
            kept = (JOB + "/", READY_KEY)
            stay = {key: value for key, value in store.kv.items() if key.startswith(kept)}
            store.kv = {**_ready(checkpoint), **checkpoint.states[0].get("notes", {}), **stay}
            store.kv[LOADED] = f"{checkpoint.name} {checkpoint.checksum}"

    def apply(self, store: Store, lsn: int) -> None:
        names = {spec.name for spec in self.checkpoint.specs}
        for held in store.tables:
            for shard in held.owned if held.spec.name in names else ():
                state = self.checkpoint.read(held.spec.name, shard)
                if isinstance(held, ServerSparseTable):
                    # To deltas and replicas every row changes now, and some are gone.
                    state["version"] = np.full(len(state["keys"]), lsn, np.int64)
                    state["rewritten"] = np.array([lsn], np.int64)
                held.table.load_shard(shard, state)
        store.loads += 1  # Under the tables' locks: who pulls new rows is told.

    def after_write(self, server: Server) -> None:
        if server.snapshots is None:
            return
        try:
            server.snapshots.take()
        except PaddockError as error:
            server.snapshots.ask()
            raise RequestError(
                "disk",
                f"the checkpoint is loaded, but this server needs {self.data['directory']} to "
                f"start again: {error.message}",
                hint="keep the checkpoint; free space and load it again, or wait for the server's "
                "next snapshot (paddock ps snapshot)",
            ) from error


def _ready(checkpoint: Checkpoint) -> dict[str, Any]:
    """The tables that have their first values, by checkpoints of before, as keys.

    There a table beside them, of one element, said so: "X.ready" of X, "rec.rows" of the rows.
    """
    names = [
        spec.name for spec in checkpoint.specs if isinstance(spec, DenseSpec) and spec.size == 1
    ]
    return {
        READY_KEY + name.removesuffix(".ready"): True
        for name in names
        if (name.endswith(".ready") or name == "rec.rows")
        and checkpoint.read(name, 0)["values"][0, 0]
    }
