"""A server's state at one record, written as its part of a checkpoint while trainers go on.

Taking a cut stops writes for a moment: dense tables are copied. Of a sparse one, rows are put aside
when they first change, until their shard is written (SparseTable.begin_cut). And the way back.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.ps.consistency.positions import Positions
from paddock.ps.durable.checkpoint import open_checkpoint
from paddock.ps.durable.saving import write_part
from paddock.ps.optimizers.schedules import Rates
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.server.checks import open_ordered
from paddock.ps.server.held import HeldSparse

if TYPE_CHECKING:
    from paddock.ps.durable.arrays import Arrays
    from paddock.ps.server.engine import Engine
    from paddock.ps.server.store import Store

# A cut that nobody has begun to write for so long is given up.
CUT_SECONDS = 60.0


class Cut:
    """lsn: the newest record in it. facts: what all servers' cuts must agree on, and marks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        store = engine.store
        with engine.at_rest() as self.lsn:
            self.facts = store.progress()
            self._steps, self._rates = store.steps(), store.rates()
            # In an order that is the same on all servers.
            self._tables = sorted(store.tables, key=lambda held: held.spec.name)
            self._owned = {held.spec.name: list(held.owned) for held in self._tables}
            for held in self._tables:
                held.table.begin_cut(self.lsn, held.owned)
        self._written: dict[str, Any] | None = None
        self._timer = threading.Timer(CUT_SECONDS, self.end)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Put nothing more aside."""
        self._timer.cancel()
        for held in self._tables:
            with held.lock:
                held.table.end_cut()

    def write(
        self, order: dict[str, Any], *, index: int, server: int, epoch: int
    ) -> dict[str, Any]:
        """Write it, once; what write_part says. Raises PaddockError."""
        if self._written is not None:
            return self._written  # The order came twice: the connection broke.
        self._timer.cancel()
        directory, name, base = (str(order.get(key, "")) for key in ("directory", "name", "base"))
        try:
            self._written = write_part(
                directory,
                name,
                index=index,
                server=server,
                generation=epoch,
                specs=[held.spec for held in self._tables],
                owned=self._owned,
                take=self._take,
                state={"steps": self._steps, "rates": self._rates, "marks": self.facts["marks"]},
                base=open_checkpoint(directory, name=base) if base else None,
            )
        finally:
            self.end()
        if self.engine.log is not None:
            # A delta compares versions: after a power cut no other record may have these.
            self.engine.log.wait_durable(self.lsn)
        return self._written

    def _take(self, table: str, shard: int) -> tuple[int, Arrays]:
        held = self.engine.store.by_name[table]
        with held.lock.rows:
            try:
                return self.lsn, held.table.cut_state(shard)
            except KeyError as error:
                raise no_cut() from error


def no_cut() -> Refusal:
    """What is told when there is no cut to write, or none any more."""
    return Refusal(
        "deadline",
        "the state to be saved is not kept any more",
        hint="save again: another save has begun meanwhile, or the server was started again",
    )


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
    store.positions = Positions.from_marks(marks, is_sync=store.is_sync)


def load(store: Store, lsn: int, order: dict[str, Any]) -> None:
    """Take over this server's share of a checkpoint."""
    checkpoint = open_ordered(order)
    for held in store.tables:
        if not any(spec.name == held.spec.name for spec in checkpoint.specs):
            continue
        for shard in held.owned:
            if store.plan is None or store.plan.wants(held.spec.name, shard, lsn):
                state = checkpoint.read(held.spec.name, shard)
                if isinstance(held, HeldSparse):
                    # To deltas and replicas every row changes now, and some are gone.
                    state["version"] = np.full(len(state["keys"]), lsn, np.int64)
                    state["rewritten"] = np.array([lsn], np.int64)
                held.table.load_shard(shard, state)
