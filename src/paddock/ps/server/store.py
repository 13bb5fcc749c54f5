"""The state of one server: tables, identities, steps. A fold over records.

A record's class (records.py) says what it changes. ``apply_meta`` and ``apply`` carry out a logged
record and cannot fail: Store's ``apply_meta`` what belongs to the server as a whole, in the order
of the log; the record's ``apply`` what belongs to tables, with their locks held. Recovery and
replicas call the same two. Nothing here reads a clock or draws a random number.
"""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from paddock.ps.group.messages import GroupRules
from paddock.ps.group.state import GroupState
from paddock.ps.optimizers.schedules import Rates
from paddock.ps.optimizers.updater import Updater
from paddock.ps.server.tables import ServerDenseTable, ServerSparseTable, ServerTable
from paddock.ps.shards import records
from paddock.ps.shards.ownership import ShardOwnership
from paddock.ps.spec import SparseSpec, TableSpec
from paddock.ps.table.contributions import DenseContributions, SparseContributions
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.memory import machine_bytes
from paddock.ps.table.sharding import deal
from paddock.ps.table.sparse import SparseTable
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.offsets import TrainerOffsets
from paddock.ps.wire.values import to_json, value_from
from paddock.ps.wire.windows import Windows

if TYPE_CHECKING:
    from paddock.ps.group.messages import Output
    from paddock.ps.server.log_record import LogRecord

Kind = TypeVar("Kind", ServerSparseTable, ServerDenseTable)


class Store:
    """The state of one server. server, servers: its number, and how many there are."""

    def __init__(self, server: int, servers: int, *, memory_limit_bytes: int = 0) -> None:
        self.server = server
        self.servers = servers
        self.memory_limit_bytes = memory_limit_bytes
        self._counting = threading.Lock()  # of bytes_left, which pushes of any table change
        self.clear()

    def clear(self) -> None:
        """Know nothing: the state before the first record."""
        self.bytes_left = 0  # So many fit for certain; below 0: counted when they are asked for.
        self.tables: list[ServerTable] = []
        self.by_name: dict[str, ServerTable] = {}
        self.windows = Windows()
        # The ids of all servers' states, in order, as the first trainer found them.
        self.states: list[str] = []
        # Of each trainer's process: its incarnation, and a number drawn by it.
        self.incarnations: dict[int, tuple[int, str]] = {}
        # Trainers that have closed their client, and have not begun again.
        self.closed: set[int] = set()
        self.rules: GroupRules | None = None
        self.group: GroupState | None = None
        self.committed = 0  # the newest step of sync
        # Which call of shrink() a shard has seen last, by "table.shard": asked again, it is done.
        self.rounds: dict[str, object] = {}
        self.dropped: dict[str, int] = {}  # rows it dropped
        self.offsets = TrainerOffsets()
        self.loads = 1  # and one for each checkpoint taken over; 0 in an answer: not known
        self.kv: dict[str, Any] = {}  # of what is hosted here; services.py
        # Of a server of a pair: (term, position of its record) of each primary; replication/.
        self.history: tuple[tuple[int, int], ...] = ()

    # ------------------------------------------------------------------------------ what is here

    @overload
    def find(self, number: int) -> ServerTable: ...
    @overload
    def find(self, number: int, kind: type[Kind]) -> Kind: ...
    def find(self, number: int, kind: Any = object) -> Any:
        """The table with this number, and of this kind. Raises RequestError."""
        if number >= len(self.tables):
            raise RequestError(
                "unknown-table",
                f"server {self.server} has no table number {number}",
                hint="create it first: client.create(SparseSpec(...))",
            )
        held = self.tables[number]
        if isinstance(held, kind):
            return held
        is_sparse = isinstance(held, ServerSparseTable)
        why = "is sparse: rows are asked by key" if is_sparse else "is dense: it has no keys"
        raise RequestError("usage", f"table {held.spec.name!r} {why}")

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take, with what is held apart for a step."""
        total = 0
        for held in self.tables:
            total += held.table.nbytes + held.contributions.nbytes + held.ownership.nbytes
        return total

    def has_bytes(self, needed: int) -> bool:
        """True when so many more bytes fit for certain.

        They are counted anew only when those that were asked for since would not all have:
        counting takes longer than a small push.
        """
        limit = self.memory_limit_bytes
        with self._counting:
            self.bytes_left -= needed
            if self.bytes_left < 0 and limit:
                self.bytes_left = limit - self.nbytes - needed
                if self.bytes_left < 0:  # A snapshot can be written later; its writer is told.
                    for held in self.tables:
                        held.table.end_cut()
                    self.bytes_left = limit - self.nbytes - needed
            return self.bytes_left >= 0 or not limit

    def recount_bytes(self, *, at_once: bool = False) -> None:
        """The bytes that fit are counted anew, now or when they are asked for."""
        with self._counting:
            self.bytes_left = self.memory_limit_bytes - self.nbytes if at_once else 0

    def is_full(self, what: str, hint: str) -> RequestError:
        """The error when the memory limit is reached."""
        limit = self.memory_limit_bytes or machine_bytes()
        return RequestError(
            "memory",
            f"server {self.server} holds {self.nbytes} bytes, the limit is {limit}: {what}",
            hint=f"raise --memory-limit, {hint}",
        )

    def gets_no_memory(self, what: str, error: MemoryError, hint: str = "") -> RequestError:
        """The error when the system gives no memory."""
        return RequestError(
            "memory",
            f"server {self.server} holds {self.nbytes} bytes and gets no memory for {what}: "
            f"{error}",
            hint=f"raise the limit on its memory (ulimit -v, overcommit), add servers{hint}",
        )

    def describe(self, held: ServerTable) -> dict[str, Any]:
        """A table's facts, for people and programs."""
        facts: dict[str, Any] = {
            "name": held.spec.name,
            "kind": held.spec.kind,
            "optimizer": held.spec.optimizer.name,
            "lr": held.spec.optimizer.lr if held.rates.lr is None else held.rates.lr,
            "step": held.step,
            "bytes": held.table.nbytes,
        }
        if isinstance(held, ServerSparseTable):
            return {**facts, "dim": held.spec.dim, "rows": held.table.rows}
        return {**facts, "size": held.spec.size}

    def progress(self) -> dict[str, Any]:
        """{"step": of the job, "committed": in sync, "marks": of each trainer's data after it,
        "loads": checkpoints taken over}."""
        return {
            "step": max((held.step for held in self.tables), default=0),
            "committed": self.committed,
            "loads": self.loads,
            "marks": self.offsets.marks(self.committed if self.is_sync else None),
        }

    @property
    def is_sync(self) -> bool:
        """True when pushes are held apart until their step is committed."""
        return self.rules is not None and self.rules.strategy == "sync"

    def digests(self) -> dict[str, int]:
        """A hash of each table's content here, whatever the order in which it came about.

        Those of several servers add up, modulo 2 ** 64.
        """
        return {held.spec.name: held.table.digest() for held in self.tables}

    # ----------------------------------------------------------------------------------- records

    def apply_meta(self, lsn: int, record: LogRecord) -> list[Output]:
        """Applies what a logged record changes of the server as a whole, in the order of the log;
        what the coordinator has to say then."""
        header = record.header
        if header.sequence:
            self.windows.mark_applied(header.trainer, header.incarnation, header.sequence)
        return record.apply_meta(self, lsn) or []

    def add_table(self, spec: TableSpec) -> ServerTable:
        """The table with this spec; made when it is not here."""
        held = self.by_name.get(spec.name)
        if held is not None:
            return held
        number = len(self.tables)
        owned = list(deal(spec.shards, self.servers)[self.server])
        ownership = ShardOwnership(spec.name, self.server, owned, spec.shards)
        if isinstance(spec, SparseSpec):
            table = SparseTable(spec, Updater(spec.optimizer, spec.dim))
            held = ServerSparseTable(number, spec, table, SparseContributions(), owned, ownership)
        else:
            dense = DenseTable(spec, owned)
            held = ServerDenseTable(number, spec, dense, DenseContributions(), owned, ownership)
        records.fit(held)
        held.contributions.committed = held.step = self.committed
        held.base = 0
        self.by_name[spec.name] = held
        self.tables.append(held)
        return held

    # ---------------------------------------------------------------------------------- recovery

    def state_values(self) -> dict[str, Any]:
        """The state without rows of tables, JSON-ready; contributions are beside it, as arrays."""
        return {
            "windows": self.windows.to_json(),
            "states": self.states,
            "incarnations": {str(t): list(known) for t, known in sorted(self.incarnations.items())},
            "closed": sorted(self.closed),
            "committed": self.committed,
            "rounds": dict(self.rounds),
            "history": [list(one) for one in self.history],
            "rules": None if self.rules is None else asdict(self.rules),
            "group": None if self.group is None else self.group.to_json(),
            "offsets": to_json(self.offsets),
            "kv": dict(self.kv),
            "loads": self.loads,
            "steps": self.steps(),
            "rates": self.rates(),
            "moves": {held.spec.name: held.ownership.to_json() for held in self.tables},
            "contributions": {
                held.spec.name: held.contributions.to_arrays()[0] for held in self.tables
            },
        }

    def steps(self) -> dict[str, list[int]]:
        """[batches seen, those before this job's first] by table."""
        return {held.spec.name: [held.step, held.base] for held in self.tables}

    def rates(self) -> dict[str, dict[str, Any]]:
        """The learning rates that were set, by table."""
        return {held.spec.name: to_json(held.rates) for held in self.tables}

    def state_arrays(self) -> dict[str, np.ndarray]:
        """Keys (n,) int64 and gradients (n, dim) float32 of the contributions, and parts of shards
        on their way, uint8; by table number and name."""
        return {
            f"{held.number}.{name}": array
            for held in self.tables
            for name, array in (
                *held.contributions.to_arrays()[1].items(),
                *held.ownership.to_arrays().items(),
            )
        }

    def restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over what state_values and state_arrays gave; the tables are made already.

        Args: arrays: uint8, int64 and float32, by the names that state_arrays gave them.
        """
        self.windows = Windows.from_json(values["windows"])
        self.states = list(values["states"])
        self.incarnations = {int(t): (n, nonce) for t, (n, nonce) in values["incarnations"].items()}
        self.closed = set(values["closed"])
        self.committed = values["committed"]
        self.rounds = dict(values["rounds"])
        self.history = tuple((term, first) for term, first in values["history"])
        if values["rules"] is not None:
            self.rules = GroupRules(**values["rules"])
            self.group = GroupState.from_json(self.rules, values["group"])
        self.offsets = value_from(TrainerOffsets, values["offsets"])
        self.kv = dict(values["kv"])
        self.loads = values.get("loads", 1)  # A snapshot of an older release has none.
        for held in self.tables:
            name, mine = held.spec.name, _of(held, arrays)
            held.ownership.restore(values["moves"][name], mine)
            records.fit(held)
            held.step, held.base = values["steps"][name]
            held.rates = value_from(Rates, values["rates"][name])
            held.contributions.restore(values["contributions"][name], mine)


def _of(held: ServerTable, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{held.number}."
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
