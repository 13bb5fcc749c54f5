"""The state of one server: tables, identities, steps. A fold over records.

``check`` refuses a frame before it is logged. ``note`` and ``apply`` carry out a logged record and
cannot fail: ``note`` what belongs to the server as a whole, in the order of the log; ``apply`` what
belongs to tables, with their locks held. Recovery and replicas call the same two. Nothing here
reads a clock or draws a random number.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from paddock.errors import PaddockError
from paddock.ps.consistency.barriers import Barriers, Opened, Positions, position_objection
from paddock.ps.consistency.contributions import DenseContributions, SparseContributions
from paddock.ps.consistency.step_words import Output, Rules, record_from_json
from paddock.ps.consistency.steps import Chief
from paddock.ps.durable.checkpoint import Checkpoint, check_specs, open_checkpoint
from paddock.ps.durable.snapshot import Plan
from paddock.ps.optimizers.schedules import learning_rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.protocol.frames import Header, Op
from paddock.ps.protocol.identity import Windows
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.server import handover
from paddock.ps.server.bodies import (
    CONTRIBUTION,
    DELTA,
    LAST,
    STATISTICS,
    Body,
    dense_part,
    json_part,
    sparse_part,
)
from paddock.ps.server.moves import Moves
from paddock.ps.spec import DenseSpec, SparseSpec, TableSpec, from_json, shard_range, to_json
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.finite import check_finite
from paddock.ps.table.memory import physical_bytes
from paddock.ps.table.sharding import deal, shard_of
from paddock.ps.table.sparse import SparseTable

OF_THE_CHIEF = (Op.JOIN, Op.LEAVE, Op.EXPEL, Op.COMMIT)
OF_ONE_TABLE = (Op.PUSH, Op.PUSH_DENSE, Op.SET, Op.SET_DENSE, Op.SHRINK, Op.MOVE, Op.ADOPT)


@dataclass(slots=True)
class HeldSparse:
    """A sparse table of this server.

    step: batches that its optimizer has seen. base: those of them before this job's first, when
    it began with a checkpoint.
    """

    number: int
    spec: SparseSpec
    table: SparseTable
    contributions: SparseContributions
    owned: list[int]
    moves: Moves
    lock: threading.Lock = field(default_factory=threading.Lock)
    step: int = 0
    base: int = 0


@dataclass(slots=True)
class HeldDense:
    """A dense table, or the shards of it that are this server's."""

    number: int
    spec: DenseSpec
    table: DenseTable
    contributions: DenseContributions
    owned: list[int]
    moves: Moves
    lock: threading.Lock = field(default_factory=threading.Lock)
    step: int = 0
    base: int = 0


Held = HeldSparse | HeldDense


class Noted(NamedTuple):
    """step: of the table, before the record. outputs: what the chief says to it."""

    step: int
    outputs: list[Output]


class Store:
    """What one server knows. server, servers: its place among them."""

    def __init__(self, server: int, servers: int, *, memory_limit_bytes: int = 0) -> None:
        self.server = server
        self.servers = servers
        self.memory_limit_bytes = memory_limit_bytes
        self.clear()

    def clear(self) -> None:
        """Know nothing: the state before the first record."""
        self.tables: list[Held] = []
        self.by_name: dict[str, Held] = {}
        self.windows = Windows()
        # The ids of all servers' states, in order, as the first trainer found them.
        self.states: list[str] = []
        # Of each trainer's process: its incarnation, and a number drawn by it.
        self.lives: dict[int, tuple[int, str]] = {}
        self.rules: Rules | None = None
        self.chief: Chief | None = None
        self.committed = 0  # the newest step of sync
        self.barriers = Barriers()
        self.positions = Positions()
        # Of a server of a pair: (epoch, position of its record) of each primary; replication.py.
        self.history: tuple[tuple[int, int], ...] = ()
        # In recovery: what shards hold already.
        self.plan: Plan | None = None

    # ------------------------------------------------------------------------------ what is here

    def find(self, number: int) -> Held:
        """The table with this number. Raises Refusal."""
        if number < len(self.tables):
            return self.tables[number]
        raise Refusal(
            "unknown-table",
            f"server {self.server} has no table number {number}",
            hint="create it first: client.create(SparseSpec(...))",
        )

    def sparse(self, number: int) -> HeldSparse:
        """The sparse table with this number. Raises Refusal."""
        held = self.find(number)
        if isinstance(held, HeldDense):
            raise Refusal("usage", f"table {held.spec.name!r} is dense: it has no keys")
        return held

    def dense(self, number: int) -> HeldDense:
        """The dense table with this number. Raises Refusal."""
        held = self.find(number)
        if isinstance(held, HeldSparse):
            raise Refusal("usage", f"table {held.spec.name!r} is sparse: rows are asked by key")
        return held

    @property
    def nbytes(self) -> int:
        """Bytes that the tables take, with what is held apart for a step."""
        return sum(
            held.table.nbytes + held.contributions.nbytes + held.moves.nbytes
            for held in self.tables
        )

    def describe(self, held: Held) -> dict[str, Any]:
        """One table, for people and programs."""
        facts: dict[str, Any] = {
            "name": held.spec.name,
            "kind": held.spec.kind,
            "optimizer": held.spec.optimizer.name,
            "step": held.step,
            "bytes": held.table.nbytes,
        }
        if isinstance(held, HeldSparse):
            return {**facts, "dim": held.spec.dim, "rows": held.table.rows}
        return {**facts, "size": held.spec.size}

    def progress(self) -> dict[str, Any]:
        """{"step": of the job, "positions": of each trainer's data after it}."""
        step = max((held.step for held in self.tables), default=0)
        is_sync = self.rules is not None and self.rules.strategy == "sync"
        committed = self.committed if is_sync else None
        trainers = self.positions.to_json()
        return {
            "step": step,
            "positions": {t: self.positions.at(int(t), committed) for t in trainers},
        }

    def digests(self) -> dict[str, int]:
        """A hash of each table's content here, whatever the order in which it came about.

        Those of several servers add up, modulo 2 ** 64.
        """
        return {held.spec.name: held.table.digest() for held in self.tables}

    # ------------------------------------------------------------------------------------ checks

    def locks(self, header: Header) -> list[threading.Lock]:
        """The locks under which the record is checked, logged and applied, in order."""
        if header.op in OF_ONE_TABLE:
            return [self.find(header.table).lock]
        if header.op in (Op.COMMIT, Op.LOAD):
            return [held.lock for held in self.tables]
        return []

    def is_done(self, header: Header, body: Body) -> bool:
        """Whether a record without an identity of its own has been applied already."""
        if header.op == Op.CREATE:
            return json_part(body).get("name") in self.by_name
        if header.op in (Op.MOVE, Op.ADOPT):
            return handover.is_done(self.find(header.table), header, body)
        if header.op != Op.COMMIT:
            return False
        step = int(json_part(body)["step"])
        return self.committed >= step

    def answer(self, header: Header, body: Body) -> dict[str, Any] | None:
        """What a JSON answer says, to the first asking and to repeats."""
        if header.op == Op.CREATE:
            held = self.by_name[json_part(body)["name"]]
            # Who owns a shard is told where it is not the one who did at the start.
            owned = {"owned": list(held.owned)} if held.moves.active else {}
            return {"table": held.number, **owned}
        return None

    def check(self, header: Header, body: Body) -> None:
        """Raises Refusal when the frame cannot be applied. Changes nothing."""
        op = header.op
        if op in (Op.PUSH, Op.SET):
            self._check_sparse(header, body)
        elif op in (Op.PUSH_DENSE, Op.SET_DENSE):
            self._check_dense(header, body)
        elif op == Op.CREATE:
            self._check_create(body)
        elif op == Op.LOAD:
            self.check_load(json_part(body))
        elif op == Op.COMMIT:
            _check_commit(json_part(body))
        elif op == Op.FENCE:
            facts = json_part(body)
            self._check_states(facts.get("states"))
            self.check_life(header.trainer, header.incarnation, facts.get("life"))
        elif op == Op.POSITION:
            no = position_objection(json_part(body))
            if no is not None:
                raise no
        elif op == Op.SHRINK:
            shard = json_part(body).get("shard")
            held = self.sparse(header.table)
            if not isinstance(shard, int) or not 0 <= shard < held.spec.shards:
                raise Refusal("usage", f"shrink of shard {shard!r}")
            if held.moves.active:
                held.moves.check_push(header, np.array([shard]))
        elif op in (Op.MOVE, Op.ADOPT):
            self._check_room_to_adopt(op, len(body))
            handover.check(self.find(header.table), header, body, self.server, self.servers)

    def check_life(self, trainer: int, incarnation: int, life: object) -> None:
        """Refuses a second process with the incarnation of another.

        Incarnations are tenths of seconds: a process that was killed and started again within one
        would number its pushes as the dead one did, and they would pass for repeats.
        """
        known = self.lives.get(trainer)
        if known is not None and known[0] == incarnation and known[1] != (life or ""):
            raise Refusal(
                "fenced",
                f"trainer {trainer} has been started twice at the same moment",
                hint="is another process running as this trainer? each needs its own "
                "PADDLE_TRAINER_ID",
                facts={"twin": True},
            )

    def _check_states(self, given: object) -> None:
        """given: the ids of all servers' states, as a trainer that joins has found them."""
        if not isinstance(given, list) or not self.states or given == self.states:
            return
        pairs = list(zip(given, self.states, strict=False))
        lost = [str(i) for i, (here, known) in enumerate(pairs) if here != known]
        raise Refusal(
            "lost",
            f"server {', '.join(lost) or 'list'} is not as it was when this job began: its tables "
            f"are gone (server {self.server} has known it with another state)",
            hint="give it back its --data-dir, or start all servers anew and load a checkpoint",
        )

    def _check_sparse(self, header: Header, body: Body) -> None:
        held = self.sparse(header.table)
        part = sparse_part(header, body, held.spec.dim)
        if held.moves.active:
            held.moves.check_push(header, shard_of(part.keys, held.spec.shards))
        check_finite(held.spec.name, part.rows, part.keys)
        for column in (part.shows, part.clicks):
            if column is not None:
                check_finite(held.spec.name, column, part.keys)
        if header.flags & STATISTICS and not held.spec.accessor.statistics:
            raise Refusal(
                "usage",
                f"table {held.spec.name!r} keeps no statistics, but shows or clicks were pushed",
                hint="AccessorSpec(statistics=True)",
            )
        if header.flags & CONTRIBUTION:
            self._check_contribution(held, header, len(body))
            return
        limit, table = self.memory_limit_bytes, held.table
        if not table.has_room(part.keys):
            raise Refusal(
                "memory",
                f"table {held.spec.name!r} has {table.rows} rows on server {self.server}, "
                f"max_rows is {held.spec.max_rows}",
                hint="raise max_rows, or let it evict: eviction='lru'",
            )
        left = limit - self.nbytes if limit else None
        if left is not None and not table.has_room(part.keys, bytes_left=max(0, left)):
            raise Refusal(
                "memory",
                f"server {self.server} holds {self.nbytes} bytes, the limit is {limit}: "
                f"no row can be added to table {held.spec.name!r}",
                hint="raise --memory-limit, add servers, or use max_rows with eviction='lru'",
            )

    def _check_dense(self, header: Header, body: Body) -> None:
        held = self.dense(header.table)
        start, values = dense_part(header, body)
        stop = start + len(values)
        if held.moves.active:
            held.moves.check_push(header, handover.dense_shards(held.spec, start, stop))
        check_finite(held.spec.name, values, None)
        if not held.table.holds_whole(start, stop):
            raise Refusal(
                "value",
                f"table {held.spec.name!r}: elements {start} to {stop} are no whole shards of "
                f"server {self.server}",
            )
        if header.flags & CONTRIBUTION:
            self._check_contribution(held, header, len(body))

    def _check_contribution(self, held: Held, header: Header, size: int) -> None:
        limit = self.memory_limit_bytes
        left = max(1, limit - self.nbytes + held.contributions.nbytes) if limit else 0
        no = held.contributions.objection(header.step, size, left)
        if no is not None:
            raise no

    def _check_create(self, body: Body) -> None:
        try:
            spec = from_json(json_part(body))
            Updater(spec.optimizer, 1)
        except (ValueError, PaddockError) as error:
            raise Refusal(
                "usage", getattr(error, "message", str(error)), hint=getattr(error, "hint", "")
            ) from error
        here = self.by_name.get(spec.name)
        if here is None and isinstance(spec, DenseSpec):
            self._check_room_for_dense(spec)
        if here is not None and here.spec != spec:
            told, wanted = to_json(here.spec), to_json(spec)
            differ = [name for name in told if told.get(name) != wanted.get(name)]
            raise Refusal(
                "spec",
                f"table {spec.name!r} was declared otherwise: "
                + ", ".join(f"{n} is {told.get(n)}, asked {wanted.get(n)}" for n in differ),
                hint="every trainer must declare a table in the same way",
            )

    def _check_room_for_dense(self, spec: DenseSpec) -> None:
        """A dense table takes all its memory when it is made."""
        shards = deal(spec.shards, self.servers)[self.server]
        start = shard_range(spec.size, spec.shards, shards.start)[0]
        stop = shard_range(spec.size, spec.shards, max(shards.stop - 1, shards.start))[1]
        needed = 4 * Updater(spec.optimizer, 1).width * (stop - start if shards else 0)
        limit = self.memory_limit_bytes or physical_bytes()
        if needed > limit - self.nbytes:
            raise Refusal(
                "memory",
                f"table {spec.name!r} takes {needed} bytes on server {self.server}, which holds "
                f"{self.nbytes} of {limit}",
                hint="raise --memory-limit, add servers, or is its size wrong?",
            )

    # ----------------------------------------------------------------------------------- records

    def note(self, lsn: int, header: Header, body: Body) -> Noted:
        """What a record means for the server as a whole, in the order of the log."""
        op = header.op
        if op == Op.FENCE:
            self.windows.fence(header.trainer, header.incarnation)
            facts = json_part(body)
            self.states = self.states or list(facts.get("states") or ())
            if header.incarnation >= self.lives.get(header.trainer, (0, ""))[0]:
                self.lives[header.trainer] = header.incarnation, str(facts.get("life", ""))
        if op == Op.SKIP:
            for held in self.tables:
                held.moves.skipped(header)
        if header.sequence:
            self.windows.note(header.trainer, header.incarnation, header.sequence)
        if op in (Op.PUSH, Op.PUSH_DENSE) and not header.flags & CONTRIBUTION:
            held = self.tables[header.table]
            before = held.step
            held.step += bool(header.flags & LAST)
            return Noted(before, [])
        if op == Op.LOAD:
            self._begin_from(json_part(body))
        if op == Op.COMMIT:
            self.committed = max(self.committed, int(json_part(body)["step"]))
            for held in self.tables:
                held.step = held.base + int(json_part(body)["step"])
        if op in OF_THE_CHIEF and self.chief is not None:
            return Noted(0, self.chief.apply(record_from_json(op, json_part(body))))
        if op == Op.RULES:
            self.rules = Rules(**json_part(body))
            self.chief = Chief(self.rules)
        elif op == Op.POSITION:
            self.positions.note(header.trainer, header.step, json_part(body))
        elif op == Op.EPOCH:
            self.history = (*self.history, (int(json_part(body)["epoch"]), lsn - 1))
        elif op == Op.OPEN:
            self.barriers.apply(Opened(**json_part(body)))
        elif op == Op.CREATE:
            self.add_table(from_json(json_part(body)))
        return Noted(0, [])

    def apply(self, lsn: int, header: Header, body: Body, step: int) -> dict[str, Any] | None:
        """Carry out a record that was checked. Returns what a JSON answer says, if anything."""
        op = header.op
        if op == Op.PUSH:
            self._push(lsn, header, body, step)
        elif op == Op.PUSH_DENSE:
            self._push_dense(lsn, header, body, step)
        elif op == Op.SET:
            held = self.sparse(header.table)
            part = sparse_part(header, body, held.spec.dim)
            here = self._wanted(held, lsn, part.keys)
            held.table.set(part.keys[here], part.rows[here], now=int(header.stamp), lsn=lsn)
        elif op == Op.SET_DENSE:
            dense = self.dense(header.table)
            for start, values in self._wanted_runs(dense, lsn, *dense_part(header, body)):
                dense.table.set(start, values)
        elif op == Op.COMMIT:
            self._commit(lsn, header, body)
        elif op == Op.LOAD:
            self._load(lsn, json_part(body))
        elif op in (Op.MOVE, Op.ADOPT):
            handover.apply(self.find(header.table), lsn, header, body, self.plan)
        elif op == Op.SHRINK:
            return self._shrink(lsn, header, body)
        return self.answer(header, body)

    def add_table(self, spec: TableSpec) -> Held:
        """The table with this spec; made when it is not here."""
        held = self.by_name.get(spec.name)
        if held is not None:
            return held
        number = len(self.tables)
        owned = list(deal(spec.shards, self.servers)[self.server])
        moves = Moves(spec.name, self.server, owned, spec.shards)
        if isinstance(spec, SparseSpec):
            table = SparseTable(spec, Updater(spec.optimizer, spec.dim))
            held = HeldSparse(number, spec, table, SparseContributions(spec.dim), owned, moves)
        else:
            dense = DenseTable(spec, _updaters(spec, owned))
            held = HeldDense(number, spec, dense, DenseContributions(), owned, moves)
        handover.fit(held)
        held.contributions.committed = held.step = self.committed
        held.base = 0
        self.by_name[spec.name] = held
        self.tables.append(held)
        return held

    def _push(self, lsn: int, header: Header, body: Body, step: int) -> None:
        held = self.sparse(header.table)
        part = sparse_part(header, body, held.spec.dim)
        if header.flags & CONTRIBUTION:
            held.contributions.add(
                header.step,
                (header.trainer, header.incarnation),
                header.part,
                part.keys,
                part.rows,
                shows=part.shows,
                clicks=part.clicks,
            )
            return
        here = self._wanted(held, lsn, part.keys)
        if isinstance(here, np.ndarray):
            part = part.where(here)
        now = int(header.stamp)
        if header.flags & DELTA:
            held.table.add(part.keys, part.rows, now=now, lsn=lsn)
            return
        lr = learning_rate(held.spec.optimizer, step)
        held.table.push(
            part.keys, part.rows, lr=lr, now=now, lsn=lsn, shows=part.shows, clicks=part.clicks
        )

    def _push_dense(self, lsn: int, header: Header, body: Body, step: int) -> None:
        held = self.dense(header.table)
        start, values = dense_part(header, body)
        if header.flags & CONTRIBUTION:
            member = (header.trainer, header.incarnation)
            held.contributions.add(header.step, member, header.part, start, values)
            return
        lr = learning_rate(held.spec.optimizer, step)
        for at, run in self._wanted_runs(held, lsn, start, values):
            if header.flags & DELTA:
                held.table.add(at, run)
            else:
                held.table.push(at, run, lr=lr)

    def _commit(self, lsn: int, header: Header, body: Body) -> None:
        """Apply what the members contributed to a step; the same bits on any number of servers."""
        data = json_part(body)
        step, members = int(data["step"]), [(int(t), int(life)) for t, life in data["members"]]
        for held in self.tables:
            lr = learning_rate(held.spec.optimizer, held.base + step - 1)
            merge = "mean" if held.spec.merge == "mean" else "sum"
            if isinstance(held, HeldSparse):
                one = held.contributions.merge(step, members, merge)  # type: ignore[arg-type]
                if one is None:
                    continue
                here = self._wanted(held, lsn, one.keys)
                held.table.push(
                    one.keys[here],
                    np.ascontiguousarray(one.grads[here]),
                    lr=lr,
                    now=int(header.stamp),
                    lsn=lsn,
                    shows=None if one.shows is None else one.shows[here],
                    clicks=None if one.clicks is None else one.clicks[here],
                )
                continue
            for run in held.contributions.merge(step, members, merge):  # type: ignore[arg-type]
                for at, values in self._wanted_runs(held, lsn, run.start, run.grads):
                    held.table.push(at, values, lr=lr)
        for held in self.tables:
            if held.moves.wishes and not held.contributions.nbytes:
                held.moves.grant()

    def _shrink(self, lsn: int, header: Header, body: Body) -> dict[str, Any]:
        held = self.sparse(header.table)
        shard = int(json_part(body)["shard"])
        if self.plan is not None and not self.plan.wants(held.spec.name, shard, lsn):
            return {"dropped": 0}
        return {"dropped": held.table.shrink(shard, now=int(header.stamp), lsn=lsn)}

    # ------------------------------------------------------------------------------- checkpoints

    def check_load(self, order: dict[str, Any]) -> None:
        """Raises Refusal, UsageError or DamageError when the checkpoint cannot be loaded here."""
        checkpoint = _open(order)
        missing = [spec.name for spec in checkpoint.specs if spec.name not in self.by_name]
        if missing:
            # Made before, so that their locks are held: a snapshot must not fall in between.
            raise Refusal(
                "usage",
                f"server {self.server} has no table {missing[0]!r}, which the checkpoint has",
                hint="create the checkpoint's tables on every server, then load",
            )
        for held in self.tables:
            handover.check_load(held)
        owned = {spec.name: self.by_name[spec.name].owned for spec in checkpoint.specs}
        checkpoint.verify(owned)
        check_specs(checkpoint, [held.spec for held in self.tables])
        self._check_room_for(checkpoint)
        if any(held.contributions.nbytes for held in self.tables):
            raise Refusal(
                "usage",
                "a checkpoint cannot be loaded in the middle of a step",
                hint="load before the first push of a step, from one trainer, then barrier()",
            )

    def _check_room_for(self, checkpoint: Checkpoint) -> None:
        """A checkpoint that the memory limit does not allow is refused before it is read."""
        if not self.memory_limit_bytes:
            return
        known = {spec.name for spec in checkpoint.specs}
        needed = sum(h.table.nbytes for h in self.tables if h.spec.name not in known)
        for spec in checkpoint.specs:
            held = self.by_name[spec.name]
            if isinstance(held, HeldDense):
                needed += held.table.nbytes
                continue
            rows = sum(len(checkpoint.keys(spec.name, shard)) for shard in held.owned)
            needed += rows * held.table.row_bytes
        if needed > self.memory_limit_bytes:
            raise Refusal(
                "memory",
                f"server {self.server}: its share of {checkpoint.path} takes {needed} bytes, the "
                f"limit is {self.memory_limit_bytes}",
                hint="raise --memory-limit, or add servers",
            )

    def _check_room_to_adopt(self, op: int, size: int) -> None:
        """A part of a shard that comes is held twice for a moment."""
        limit = self.memory_limit_bytes
        if op == Op.ADOPT and limit and self.nbytes + 2 * size > limit:
            raise Refusal(
                "memory",
                f"server {self.server} holds {self.nbytes} bytes, the limit is {limit}: it cannot "
                "take another shard",
                hint="raise --memory-limit there, or move the shard elsewhere",
            )

    def _begin_from(self, order: dict[str, Any]) -> None:
        """How many steps the tables of a checkpoint have behind them, and the trainers' data."""
        checkpoint = _open(order)
        steps: dict[str, int] = {}
        for state in checkpoint.states:  # A server that has no shard of a table has no steps.
            for name, (step, _) in state.get("steps", {}).items():
                steps[name] = max(step, steps.get(name, 0))
        for spec in checkpoint.specs:
            held = self.by_name[spec.name]
            held.step = steps.get(spec.name, 0)
            held.base = held.step - self.committed  # Sync goes on counting from there.
        self.positions = Positions()  # What was read since the save is read again.
        for trainer, position in checkpoint.positions.items():
            if position is not None:
                self.positions.note(int(trainer), 0, position)

    def _load(self, lsn: int, order: dict[str, Any]) -> None:
        checkpoint = _open(order)
        for held in self.tables:
            if not any(spec.name == held.spec.name for spec in checkpoint.specs):
                continue
            for shard in held.owned:
                if self.plan is None or self.plan.wants(held.spec.name, shard, lsn):
                    state = checkpoint.read(held.spec.name, shard)
                    if isinstance(held, HeldSparse):
                        # To deltas and replicas every row changes now, and some are gone.
                        state["version"] = np.full(len(state["keys"]), lsn, np.int64)
                        state["rewritten"] = np.array([lsn], np.int64)
                    held.table.load_shard(shard, state)

    # ---------------------------------------------------------------------------------- recovery

    def _wanted(self, held: HeldSparse, lsn: int, keys: np.ndarray) -> Any:
        """An index of the keys whose shards lack this record; a slice of all when none is known."""
        if self.plan is None or lsn > self.plan.settled:
            return slice(None)
        return self.plan.wanted(held.spec.name, shard_of(keys, held.spec.shards), lsn)

    def _wanted_runs(
        self, held: HeldDense, lsn: int, start: int, values: np.ndarray
    ) -> list[tuple[int, np.ndarray]]:
        """The parts of a dense frame, by shard, whose shards lack this record."""
        if self.plan is None or lsn > self.plan.settled:
            return [(start, values)]
        found = []
        for shard in range(held.spec.shards):
            begin, end = shard_range(held.spec.size, held.spec.shards, shard)
            if start <= begin < end <= start + len(values) and self.plan.wants(
                held.spec.name, shard, lsn
            ):
                found.append((begin, values[begin - start : end - start]))
        return found

    def state_values(self) -> dict[str, Any]:
        """What is no table's rows, JSON-ready; contributions are beside it, as arrays."""
        return {
            "windows": self.windows.to_json(),
            "states": self.states,
            "lives": {str(t): list(life) for t, life in sorted(self.lives.items())},
            "committed": self.committed,
            "history": [list(one) for one in self.history],
            "rules": None if self.rules is None else asdict(self.rules),
            "chief": None if self.chief is None else self.chief.to_json(),
            "positions": self.positions.to_json(),
            "barriers": self.barriers.to_json(),
            "steps": {held.spec.name: [held.step, held.base] for held in self.tables},
            "moves": {held.spec.name: held.moves.to_json() for held in self.tables},
            "contributions": {
                held.spec.name: held.contributions.to_arrays()[0] for held in self.tables
            },
        }

    def state_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the contributions, by table number."""
        return {
            f"{held.number}.{name}": array
            for held in self.tables
            for name, array in (
                *held.contributions.to_arrays()[1].items(),
                *held.moves.to_arrays().items(),
            )
        }

    def restore_shards(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """First of restore: which shards are here; the tables are made already."""
        for held in self.tables:
            start = f"{held.number}."
            mine = {n[len(start) :]: a for n, a in arrays.items() if n.startswith(start)}
            if held.spec.name in values["moves"]:
                held.moves.restore(values["moves"][held.spec.name], mine)
            handover.fit(held)

    def restore(self, values: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over what state_values and state_arrays gave; the tables are made already."""
        self.windows = Windows.from_json(values["windows"])
        self.states = list(values.get("states", ()))
        self.lives = {int(t): (n, life) for t, (n, life) in values.get("lives", {}).items()}
        self.committed = values["committed"]
        self.history = tuple((epoch, first) for epoch, first in values.get("history", ()))
        if values["rules"] is not None:
            self.rules = Rules(**values["rules"])
            self.chief = Chief.from_json(self.rules, values["chief"])
        self.positions = Positions.from_json(values["positions"])
        self.barriers = Barriers.from_json(values["barriers"])
        for held in self.tables:
            held.step, held.base = values["steps"].get(held.spec.name, (0, 0))
            data = values["contributions"].get(held.spec.name)
            if data is None:
                continue
            start = f"{held.number}."
            mine = {n[len(start) :]: a for n, a in arrays.items() if n.startswith(start)}
            if isinstance(held, HeldSparse):
                held.contributions = SparseContributions.from_arrays(held.spec.dim, data, mine)
            else:
                held.contributions = DenseContributions.from_arrays(data, mine)


def _check_commit(data: dict[str, Any]) -> None:
    """Raises Refusal when the body is not {"step": n, "members": [[trainer, incarnation], ...]}."""
    step, members = data.get("step"), data.get("members")
    is_right = isinstance(step, int) and isinstance(members, list)
    for member in members if isinstance(members, list) else ():
        is_right &= isinstance(member, list) and [type(part) for part in member] == [int, int]
    if not is_right or data.keys() != {"step", "members"}:
        raise Refusal("usage", f"commit of step {step!r} by {members!r}")


def _open(order: dict[str, Any]) -> Checkpoint:
    for name in ("directory", "name", "checksum"):
        if not isinstance(order.get(name), str):
            raise Refusal("usage", f"a checkpoint's {name} is {order.get(name)!r}")
    checkpoint = open_checkpoint(order["directory"], name=order["name"])
    if checkpoint.checksum != order["checksum"]:
        raise Refusal(
            "value",
            f"checkpoint {checkpoint.path} is not the one that was asked for",
            hint="was it written anew meanwhile? load again",
        )
    return checkpoint


def _updaters(spec: DenseSpec, owned: list[int]) -> dict[int, Updater]:
    """The optimizer of each shard that is here; of equal shards it is the same one."""
    made: dict[int, Updater] = {}
    found = {}
    for shard in owned:
        start, end = shard_range(spec.size, spec.shards, shard)
        if end - start not in made:
            made[end - start] = Updater(spec.optimizer, end - start)
        found[shard] = made[end - start]
    return found
