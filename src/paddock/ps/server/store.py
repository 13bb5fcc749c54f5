"""The state of one server: tables, identities, steps. A fold over records.

checks.py refuses a frame before it is logged. ``apply_meta`` and ``apply`` carry out a logged
record and cannot fail: ``apply_meta`` what belongs to the server as a whole, in the order of the
log; ``apply`` what belongs to tables, with their locks held. Recovery and replicas call the same
two. Nothing here reads a clock or draws a random number.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from paddock.ps.group.messages import RECORDS, GroupRules, Output, record_from_json
from paddock.ps.group.state import GroupState
from paddock.ps.optimizers.schedules import Rates, learning_rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.server.bodies import (
    CONTRIBUTION,
    DELTA,
    LAST,
    Body,
    dense_part,
    json_part,
    sparse_part,
)
from paddock.ps.server.snapshot_view import begin_from, load
from paddock.ps.server.tables import ServerDenseTable, ServerSparseTable, ServerTable, TableLock
from paddock.ps.shards import records
from paddock.ps.shards.ownership import ShardOwnership
from paddock.ps.spec import SparseSpec, TableSpec, from_json
from paddock.ps.table.contributions import (
    DenseContributions,
    DensePiece,
    SparseContributions,
)
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sharding import deal
from paddock.ps.table.sparse import SparseTable
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.wire.offsets import TrainerOffsets
from paddock.ps.wire.values import to_json, value_from
from paddock.ps.wire.windows import Windows

OF_ONE_TABLE = (Op.PUSH, Op.PUSH_DENSE, Op.SET, Op.SET_DENSE, Op.SHRINK, Op.MOVE, Op.ADOPT, Op.RATE)


class MetaResult(NamedTuple):
    """lr: of an update by the record. outputs: what the coordinator says to it."""

    lr: float
    outputs: list[Output]


class Store:
    """The state of one server. server, servers: its number, and how many there are."""

    def __init__(self, server: int, servers: int, *, memory_limit_bytes: int = 0) -> None:
        self.server = server
        self.servers = servers
        self.memory_limit_bytes = memory_limit_bytes
        self.clear()

    def clear(self) -> None:
        """Know nothing: the state before the first record."""
        self._left = 0
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
        self.kv: dict[str, Any] = {}  # of what is hosted here; services.py
        # Of a server of a pair: (epoch, position of its record) of each primary; replication/.
        self.history: tuple[tuple[int, int], ...] = ()

    # ------------------------------------------------------------------------------ what is here

    def find(self, number: int) -> ServerTable:
        """The table with this number. Raises RequestError."""
        if number < len(self.tables):
            return self.tables[number]
        raise RequestError(
            "unknown-table",
            f"server {self.server} has no table number {number}",
            hint="create it first: client.create(SparseSpec(...))",
        )

    def sparse(self, number: int) -> ServerSparseTable:
        """The sparse table with this number. Raises RequestError."""
        held = self.find(number)
        if isinstance(held, ServerDenseTable):
            raise RequestError("usage", f"table {held.spec.name!r} is dense: it has no keys")
        return held

    def dense(self, number: int) -> ServerDenseTable:
        """The dense table with this number. Raises RequestError."""
        held = self.find(number)
        if isinstance(held, ServerSparseTable):
            raise RequestError(
                "usage", f"table {held.spec.name!r} is sparse: rows are asked by key"
            )
        return held

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take, with what is held apart for a step."""
        return sum(
            held.table.nbytes + held.contributions.nbytes + held.ownership.nbytes
            for held in self.tables
        )

    def has_bytes(self, needed: int) -> bool:
        """True when so many more bytes fit for certain.

        They are counted anew only when those that were asked for since would not all have:
        counting takes longer than a small push.
        """
        self._left -= needed
        if self._left < 0 and self.memory_limit_bytes:
            self._left = self.memory_limit_bytes - self.nbytes - needed
            if self._left < 0:  # A snapshot can be written later; whoever writes one is told.
                for held in self.tables:
                    held.table.end_cut()
                self._left = self.memory_limit_bytes - self.nbytes - needed
        return self._left >= 0 or not self.memory_limit_bytes

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
        """{"step": of the job, "committed": in sync, "marks": of each trainer's data after it}."""
        return {
            "step": max((held.step for held in self.tables), default=0),
            "committed": self.committed,
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

    # ------------------------------------------------------------------------------------ checks

    def locks(self, header: Header) -> list[TableLock]:
        """The locks under which the record is checked, logged and applied, in order."""
        if header.op in OF_ONE_TABLE:
            return [self.find(header.table).lock]
        if header.op in (Op.COMMIT, Op.LOAD):
            return [held.lock for held in self.tables]
        return []

    def is_done(self, header: Header, body: Body) -> bool:
        """True when a record without an identity of its own has been applied already."""
        if header.op == Op.CREATE:
            return json_part(body).get("name") in self.by_name
        if header.op == Op.SHRINK:
            data = json_part(body)
            return bool(self.rounds.get(f"{header.table}.{data['shard']}") == data.get("round", ""))
        if header.op in (Op.MOVE, Op.ADOPT):
            return records.is_done(self.find(header.table), header, body)
        if header.op != Op.COMMIT:
            return False
        step = int(json_part(body)["step"])
        return self.committed >= step

    def answer(self, header: Header, body: Body) -> dict[str, Any] | None:
        """The JSON answer to a record, the same for repeats."""
        if header.op == Op.CREATE:
            held = self.by_name[json_part(body)["name"]]
            # Who owns a shard is told where it is not the one who did at the start.
            owned = {"owned": list(held.owned)} if held.ownership.active else {}
            return {"table": held.number, **owned}
        if header.op == Op.SHRINK:
            return {"dropped": self.dropped.get(f"{header.table}.{json_part(body)['shard']}", 0)}
        return None

    # ----------------------------------------------------------------------------------- records

    def apply_meta(self, lsn: int, header: Header, body: Body) -> MetaResult:
        """Applies what a record changes of the server as a whole, in the order of the log."""
        op = header.op
        if op == Op.FENCE:
            self.windows.fence(header.trainer, header.incarnation)
            facts = json_part(body)
            self.closed.discard(header.trainer)
            self.states = self.states or list(facts.get("states") or ())
            if header.incarnation >= self.incarnations.get(header.trainer, (0, ""))[0]:
                self.incarnations[header.trainer] = header.incarnation, str(facts.get("life", ""))
        if op == Op.CLOSE:
            self.closed.add(header.trainer)
            self.offsets.close(header.trainer)
            if json_part(body).get("all"):
                self.closed.clear()
        if op == Op.SHRINK:
            data = json_part(body)
            self.rounds[f"{header.table}.{data['shard']}"] = data.get("round")
        if op == Op.SKIP:
            for held in self.tables:
                held.ownership.skipped(header)
        if header.sequence:
            self.windows.mark_applied(header.trainer, header.incarnation, header.sequence)
        if op in (Op.PUSH, Op.PUSH_DENSE) and not header.flags & CONTRIBUTION:
            held = self.tables[header.table]
            self.offsets.count(header.trainer, header.step)
            before = held.step
            held.step += bool(header.flags & LAST)
            return MetaResult(learning_rate(held.spec.optimizer, before, held.rates.lr), [])
        if op == Op.RATE:
            held, lr = self.tables[header.table], float(json_part(body)["lr"])
            if not header.flags & CONTRIBUTION:
                held.rates.lr = lr
            elif header.step > self.committed:
                held.rates.note(header.step, (header.trainer, header.incarnation), lr)
        if op == Op.LOAD:
            begin_from(self, json_part(body))
        if op == Op.COMMIT:
            step, members = _of_commit(body)
            self.committed = max(self.committed, step)
            self.offsets.settle(step, [trainer for trainer, _ in members])
            for held in self.tables:
                held.step = held.base + step
                held.rates.commit(step, members)
        if op in RECORDS and self.group is not None:
            return MetaResult(0, self.group.apply(record_from_json(op, json_part(body))))
        if op == Op.RULES:
            self.rules = GroupRules(**json_part(body))
            self.group = GroupState(self.rules)
            if self.is_sync:
                marks = self.offsets.marks(None)
                self.offsets = TrainerOffsets.from_marks(marks, is_sync=True)
        elif op == Op.COMMIT_OFFSET:
            self.offsets.note(header.trainer, header.step, json_part(body))
        elif op == Op.KV:
            self.kv.update(json_part(body)["set"])
            self.kv = {key: value for key, value in self.kv.items() if value is not None}
        elif op == Op.MOVE or (op == Op.ADOPT and not header.count):
            self.offsets.lose_count()
        elif op == Op.TERM:
            self.history = (*self.history, (int(json_part(body)["epoch"]), lsn - 1))
        elif op == Op.CREATE:
            self.add_table(from_json(json_part(body)))
        return MetaResult(0, [])

    def apply(self, lsn: int, header: Header, body: Body, lr: float) -> dict[str, Any] | None:
        """Carry out a record that was checked. Returns what a JSON answer says, if anything."""
        op = header.op
        if op not in (Op.PUSH, Op.PUSH_DENSE):
            self._left = 0  # Counted anew.
        if op == Op.PUSH:
            self._push(lsn, header, body, lr)
        elif op == Op.PUSH_DENSE:
            self._push_dense(header, body, lr)
        elif op == Op.SET:
            held = self.sparse(header.table)
            part = sparse_part(header, body, held.spec.dim)
            held.table.set(part.keys, part.rows, now=int(header.stamp), lsn=lsn)
        elif op == Op.SET_DENSE:
            self.dense(header.table).table.set(*dense_part(header, body))
        elif op == Op.COMMIT:
            self._commit(lsn, header, body)
        elif op == Op.LOAD:
            load(self, lsn, json_part(body))
        elif op in (Op.MOVE, Op.ADOPT):
            records.apply(self.find(header.table), lsn, header, body)
        elif op == Op.SHRINK:
            return self._shrink(lsn, header, body)
        return self.answer(header, body)

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

    def _push(self, lsn: int, header: Header, body: Body, lr: float) -> None:
        held = self.sparse(header.table)
        part = sparse_part(header, body, held.spec.dim)
        if header.flags & CONTRIBUTION:
            member = (header.trainer, header.incarnation)
            held.contributions.add(header.step, member, header.part, part)
            return
        now = int(header.stamp)
        if header.flags & DELTA:
            held.table.add(part.keys, part.rows, now=now, lsn=lsn)
            return
        held.table.push(
            part.keys, part.rows, lr=lr, now=now, lsn=lsn, shows=part.shows, clicks=part.clicks
        )

    def _push_dense(self, header: Header, body: Body, lr: float) -> None:
        held = self.dense(header.table)
        start, values = dense_part(header, body)
        if header.flags & CONTRIBUTION:
            member = (header.trainer, header.incarnation)
            held.contributions.add(header.step, member, header.part, DensePiece(start, values))
            return
        if header.flags & DELTA:
            held.table.add(start, values)
        else:
            held.table.push(start, values, lr=lr)

    def _commit(self, lsn: int, header: Header, body: Body) -> None:
        """Apply what the members contributed to a step; the same bits on any number of servers."""
        step, members = _of_commit(body)
        for held in self.tables:
            lr = learning_rate(held.spec.optimizer, held.base + step - 1, held.rates.lr)
            if isinstance(held, ServerSparseTable):
                for one in held.contributions.merge(step, members, held.spec.merge):
                    held.table.push(
                        one.keys, one.rows, lr=lr, now=int(header.stamp), lsn=lsn, coin=step,
                        shows=one.shows, clicks=one.clicks,
                    )  # fmt: skip
                continue
            for run in held.contributions.merge(step, members, held.spec.merge):
                held.table.push(run.start, run.grads, lr=lr)
        for held in self.tables:
            if held.ownership.leaving and not held.contributions.nbytes:
                held.ownership.grant()

    def _shrink(self, lsn: int, header: Header, body: Body) -> dict[str, Any]:
        held = self.sparse(header.table)
        shard = int(json_part(body)["shard"])
        dropped = held.table.shrink(shard, now=int(header.stamp), lsn=lsn)
        self.dropped[f"{header.table}.{shard}"] = dropped
        return {"dropped": dropped}

    # ---------------------------------------------------------------------------------- recovery

    def state_values(self) -> dict[str, Any]:
        """The state without rows of tables, JSON-ready; contributions are beside it, as arrays."""
        return {
            "windows": self.windows.to_json(),
            "states": self.states,
            "lives": {str(t): list(known) for t, known in sorted(self.incarnations.items())},
            "closed": sorted(self.closed),
            "committed": self.committed,
            "rounds": dict(self.rounds),
            "history": [list(one) for one in self.history],
            "rules": None if self.rules is None else asdict(self.rules),
            "chief": None if self.group is None else self.group.to_json(),
            "positions": to_json(self.offsets),
            "notes": dict(self.kv),
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
        """The arrays of the contributions, by table number."""
        return {
            f"{held.number}.{name}": array
            for held in self.tables
            for name, array in (
                *held.contributions.to_arrays()[1].items(),
                *held.ownership.to_arrays().items(),
            )
        }

    def restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over what state_values and state_arrays gave; the tables are made already."""
        self.windows = Windows.from_json(values["windows"])
        self.states = list(values.get("states", ()))
        self.incarnations = {
            int(t): (n, nonce) for t, (n, nonce) in values.get("lives", {}).items()
        }
        self.closed = set(values.get("closed", ()))
        self.committed = values["committed"]
        self.rounds = dict(values.get("rounds", {}))
        self.history = tuple((epoch, first) for epoch, first in values.get("history", ()))
        if values["rules"] is not None:
            self.rules = GroupRules(**values["rules"])
            self.group = GroupState.from_json(self.rules, values["chief"])
        self.offsets = value_from(TrainerOffsets, values["positions"])
        self.kv = dict(values.get("notes", {}))
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


def _of_commit(body: Body) -> tuple[int, list[tuple[int, int]]]:
    """(step, members) of a COMMIT."""
    data = json_part(body)
    return int(data["step"]), [(int(t), int(incarnation)) for t, incarnation in data["members"]]
