"""A server's state at one record, written while trainers go on: a snapshot, or a checkpoint's part.

Taking a cut stops writes for a moment: dense tables are copied. Of a sparse one, rows are put aside
when they first change, until their shard is written (SparseTable.begin_cut). And the way back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.ps.optimizers.schedules import Rates
from paddock.ps.server.checks import is_apart, open_ordered
from paddock.ps.server.tables import ServerSparseTable
from paddock.ps.spec import READY, DenseSpec
from paddock.ps.storage.checkpoint import Checkpoint, open_checkpoint
from paddock.ps.storage.saving import write_part
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.offsets import TrainerOffsets

if TYPE_CHECKING:
    from paddock.ps.server.engine import Engine
    from paddock.ps.server.store import Store
    from paddock.ps.spec import TableSpec
    from paddock.ps.storage.arrays import Arrays
    from paddock.ps.storage.spool import Spool

# A cut that nobody has begun to write for so long is given up.
CUT_SECONDS = 60.0
# The note that says which checkpoint was loaded last; others have a service's name before a "/".
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
        self.cut = SnapshotView(
            engine,
            lambda store: (store.progress(), store.steps(), store.rates(), _saved(store.kv)),
        )
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

    def write(
        self, order: dict[str, Any], spool: Spool, *, index: int, server: int, epoch: int
    ) -> dict[str, Any]:
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
                index=index,
                server=server,
                generation=epoch,
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


def _saved(notes: dict[str, Any]) -> dict[str, Any]:
    """The keys and values that a checkpoint has."""
    return {key: value for key, value in notes.items() if not key.startswith(JOB + "/")}


# ---------------------------------------------------------------------------------- the way back


def begin_from(store: Store, order: dict[str, Any]) -> None:
    """How many steps the tables of a checkpoint have behind them, and the trainers' data."""
    checkpoint = open_ordered(order)
    saved = [state.get("steps", {}) for state in checkpoint.states]
    set_rates = [state.get("rates", {}) for state in checkpoint.states]
    for spec in checkpoint.specs:
        held = store.by_name[spec.name]
        # A server that has no shard of a table has no steps.
        held.step = max((of[spec.name][0] for of in saved if spec.name in of), default=0)
        held.base = held.step - store.committed  # Sync goes on counting from there.
        rates = [of[spec.name] for of in set_rates if spec.name in of]
        if spec.optimizer.lr == held.spec.optimizer.lr:  # Else a new one is wanted.
            held.rates = Rates(rates[0]["lr"] if rates else None)
    # What was read since the save is read again.
    parts = [state.get("marks", {}) for state in checkpoint.states]
    marks = {t: (0, position, 0) for t, position in checkpoint.positions.items()}
    if len(parts) == store.servers:
        marks = parts[store.server]
    store.offsets = TrainerOffsets.from_marks(marks, is_sync=store.is_sync)
    if store.server == 0:  # Where services are; theirs is the cut taken first.
        stay = {key: store.kv[key] for key in store.kv if key.startswith((JOB + "/", READY_KEY))}
        store.kv = {**_ready(checkpoint), **checkpoint.states[0].get("notes", {}), **stay}
        store.kv[LOADED] = f"{checkpoint.name} {checkpoint.checksum}"


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


def load(store: Store, lsn: int, order: dict[str, Any]) -> None:
    """Take over this server's share of a checkpoint."""
    checkpoint = open_ordered(order)
    for held in store.tables:
        if not any(spec.name == held.spec.name for spec in checkpoint.specs):
            continue
        for shard in held.owned:
            state = checkpoint.read(held.spec.name, shard)
            if isinstance(held, ServerSparseTable):
                # To deltas and replicas every row changes now, and some are gone.
                state["version"] = np.full(len(state["keys"]), lsn, np.int64)
                state["rewritten"] = np.array([lsn], np.int64)
            held.table.load_shard(shard, state)
