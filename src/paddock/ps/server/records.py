"""The class of each record, and the records of a job: members, steps, what trainers have read.

table_records.py, snapshot_view.py and shards/records.py have the others.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from paddock.ps.group.messages import RECORDS as GROUP_RECORDS
from paddock.ps.group.messages import GroupRules, record_from_json
from paddock.ps.group.state import GroupState
from paddock.ps.server.log_record import LogRecord
from paddock.ps.server.snapshot_view import LoadRecord
from paddock.ps.server.table_records import (
    CreateRecord,
    PushDenseRecord,
    PushRecord,
    RateRecord,
    SetDenseRecord,
    SetRecord,
    ShrinkRecord,
)
from paddock.ps.server.tables import ServerSparseTable
from paddock.ps.shards.records import AdoptRecord, MoveRecord, PartRecord
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.wire.offsets import TrainerOffsets, check_offset
from paddock.ps.xxh3 import Buffer

if TYPE_CHECKING:
    from paddock.ps.group.messages import Output
    from paddock.ps.server.serve import Server
    from paddock.ps.server.store import Store
    from paddock.ps.server.tables import TableLock

STEP_MAX = 1 << 62
# Trainers that one server ever knows.
TRAINERS_MAX = 65536
# Incarnations of a trainer that one server may not have heard of.
INCARNATIONS_MAX = 1 << 16
NONCE_LENGTH_MAX = 64
AFTER_A_LOSS = (
    "start all servers with empty data directories, load a checkpoint, and start the job again; "
    "--ack disk survives a power cut"
)


class GroupRecord(LogRecord):
    """JOIN, LEAVE, EXPEL, OPEN, BEGIN: what the coordinator has decided (group/messages.py)."""

    from_clients = False

    def apply_meta(self, store: Store, lsn: int) -> list[Output]:
        if store.group is None:
            return []
        return store.group.apply(record_from_json(self.header.op, self.data))


class CommitRecord(GroupRecord):
    """COMMIT: a step of sync is done by these members; a trainer relays it from server 0.

    JSON {"step": n, "members": [[trainer, incarnation], ...]}, on server 0 perhaps with "ended":
    [[trainer, passes], ...], of which trainers hear (group/messages.py).
    """

    from_clients = True

    def check_sender(self, server: Server) -> None:
        if server.coordinator is not None:
            raise RequestError("usage", "the coordinator decides when a step is complete")

    def locks(self, store: Store) -> list[TableLock]:
        return [held.lock for held in store.tables]

    def check(self, store: Store) -> None:
        """Raises RequestError when it is not of the next step, or of one that is done."""
        step, members = self.data.get("step"), self.data.get("members")
        is_right = type(step) is int and 0 < step < STEP_MAX
        for pairs in (members, self.data.get("ended", [])):
            is_right &= isinstance(pairs, list)
            for pair in pairs if isinstance(pairs, list) else ():
                is_right &= isinstance(pair, list) and [type(part) for part in pair] == [int, int]
        if not is_right or self.data.keys() | {"ended"} != {"step", "members", "ended"}:
            raise RequestError("usage", f"commit of step {step!r} by {members!r}")
        newest = self.commit[0]
        if newest > store.committed + 1:
            raise _lost_steps(store, store.server, store.committed, newest)
        if newest > store.committed:
            self.check_incarnations(store)

    def check_incarnations(self, store: Store) -> None:
        """Refuses a commit of an incarnation whose next one gives to the same step: the coordinator
        began it anew."""
        step, members = self.commit[0], dict(self.commit[1])
        for held in store.tables:
            for trainer, incarnation in held.contributions.incarnations(step).items():
                if incarnation > members.get(trainer, incarnation):
                    raise RequestError(
                        "lost",
                        f"step {step} was committed before trainer {trainer} was started again, "
                        "and server 0 does not know of it: the end of its log is lost",
                        hint=AFTER_A_LOSS,
                    )

    @cached_property
    def commit(self) -> tuple[int, list[tuple[int, int]]]:
        """(step, members)."""
        return int(self.data["step"]), [(int(t), int(n)) for t, n in self.data["members"]]

    def is_done(self, store: Store) -> bool:
        return store.committed >= self.commit[0]

    def apply_meta(self, store: Store, lsn: int) -> list[Output]:
        step, members = self.commit
        store.committed = max(store.committed, step)
        store.offsets.settle(step, [trainer for trainer, _ in members])
        for held in store.tables:
            held.step = held.base + step
            held.rates.commit(step, members)
        return super().apply_meta(store, lsn)

    def apply(self, store: Store, lsn: int) -> None:
        """Applies what the members contributed; the same bits on any number of servers."""
        (step, members), now = self.commit, int(self.header.stamp)
        for held in store.tables:
            lr = held.rates.at(held.spec.optimizer, held.base + step - 1)
            if isinstance(held, ServerSparseTable):
                for one in held.contributions.merge(step, members, held.spec.merge):
                    held.table.push(
                        one.keys, one.rows, lr=lr, now=now, lsn=lsn, draw_seed=step,
                        shows=one.shows, clicks=one.clicks,
                    )  # fmt: skip
                continue
            for run in held.contributions.merge(step, members, held.spec.merge):
                held.table.push(*run, lr=lr)
        for held in store.tables:
            if held.ownership.leaving and not held.contributions.nbytes:
                held.ownership.grant()


class OffsetRecord(LogRecord):
    """COMMIT_OFFSET: how far a trainer has read its data."""

    numbered = True

    def check(self, store: Store) -> None:
        check_offset(self.data)

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.offsets.note(self.header.trainer, self.header.step, self.data)


class SkipRecord(LogRecord):
    """SKIP: a push was refused, and its number will not be used again."""

    numbered = True

    def apply_meta(self, store: Store, lsn: int) -> None:
        for held in store.tables:
            held.ownership.skipped(self.header)


class FenceRecord(LogRecord):
    """FENCE: a trainer begins as this incarnation; its earlier ones are refused from now on."""

    def check_sender(self, server: Server) -> None:
        newest, _ = server.store.incarnations.get(self.header.trainer, (0, ""))
        if server.coordinator is not None and self.header.incarnation > newest:
            raise RequestError("usage", "the coordinator numbers the incarnations of a trainer")

    def check(self, store: Store) -> None:
        """Refuses an incarnation of a trainer that is not its newest, and one that is far ahead.

        Server 0 numbers them one by one, so that is a number of nobody: it would put out all
        others.
        """
        given = self.data.get("states")
        if given is not None and not isinstance(given, list):
            raise RequestError("usage", f"the servers' states are {given!r}")
        if given is not None and store.states and given != store.states:
            pairs = list(zip(given, store.states, strict=False))
            lost = [str(i) for i, (here, known) in enumerate(pairs) if here != known]
            raise RequestError(
                "lost",
                f"server {', '.join(lost) or 'list'} is not as it was when this job began: its "
                f"tables are gone (server {store.server} has known it with another state)",
                hint="give it back its --data-dir, or start all servers anew and load a checkpoint",
            )
        # The last one of server 0, the coordinator; in sync no other server is further.
        done = self.data.get("step")
        if isinstance(done, int) and done < store.committed:
            raise _lost_steps(store, 0, done, store.committed)
        trainer, incarnation = self.header.trainer, self.header.incarnation
        newest, known = store.incarnations.get(trainer, (0, ""))
        nonce = self.data.get("nonce")
        if not isinstance(nonce, str | None) or len(nonce or "") > NONCE_LENGTH_MAX:
            raise RequestError(
                "usage",
                f"trainer {trainer}: a session nonce has {NONCE_LENGTH_MAX} letters at most",
            )
        if trainer not in store.incarnations and len(store.incarnations) >= TRAINERS_MAX:
            raise RequestError(
                "usage",
                f"trainer {trainer}: the server already knows {TRAINERS_MAX} trainers",
                hint="number trainers from 0; a restarted trainer keeps its number",
            )
        if incarnation > newest + INCARNATIONS_MAX:
            raise RequestError(
                "fenced", f"trainer {trainer}: no server gave it incarnation {incarnation}"
            )
        if incarnation < newest or (incarnation == newest and known != (nonce or "")):
            raise RequestError(
                "fenced",
                f"trainer {trainer}: incarnation {incarnation} is not its newest, {newest} is",
                hint="is another process running as this trainer? each needs its own "
                "PADDLE_TRAINER_ID",
                facts={"newest": newest},
            )

    def apply_meta(self, store: Store, lsn: int) -> None:
        trainer, incarnation = self.header.trainer, self.header.incarnation
        store.windows.fence(trainer, incarnation)
        store.closed.discard(trainer)
        store.states = store.states or list(self.data.get("states") or ())
        if incarnation >= store.incarnations.get(trainer, (0, ""))[0]:
            store.incarnations[trainer] = incarnation, str(self.data.get("nonce", ""))

    def answer(self, store: Store) -> dict[str, Any]:
        return {"loads": store.loads}


def _lost_steps(store: Store, lost: int, newest: int, job: int) -> RequestError:
    """Server `lost` came back from a log that ends too early."""
    return RequestError(
        "lost",
        f"the newest step of server {lost} is {newest}, the job is at {job} (server "
        f"{store.server} says): the end of its log is lost",
        hint=AFTER_A_LOSS,
        facts={"step": newest},
    )


class CloseRecord(LogRecord):
    """CLOSE: a trainer has closed its client; {"all"}: the job is over."""

    def check(self, store: Store) -> None:
        self.data  # noqa: B018  # Must be JSON.

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.closed.add(self.header.trainer)
        store.offsets.close(self.header.trainer)
        if self.data.get("all"):
            store.closed.clear()


class RulesRecord(LogRecord):
    """RULES: the strategy that all trainers of the job follow."""

    from_clients = False

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.rules = GroupRules(**self.data)
        store.group = GroupState(store.rules)
        if store.is_sync:
            store.offsets = TrainerOffsets.from_marks(store.offsets.marks(None), is_sync=True)


class KvRecord(LogRecord):
    """KV: what a hosted service remembers; null forgets a key."""

    from_clients = False

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.kv.update(self.data["set"])
        store.kv = {key: value for key, value in store.kv.items() if value is not None}


class TermRecord(LogRecord):
    """TERM: a server of a pair has become the primary."""

    from_clients = False

    def apply_meta(self, store: Store, lsn: int) -> None:
        store.recount_bytes()  # A replica does not count what its pushes take.
        store.history = (*store.history, (int(self.data["term"]), lsn - 1))


RECORDS: dict[int, type[LogRecord]] = {
    **dict.fromkeys(GROUP_RECORDS, GroupRecord),
    Op.CREATE: CreateRecord,
    Op.PUSH: PushRecord,
    Op.PUSH_DENSE: PushDenseRecord,
    Op.SET: SetRecord,
    Op.SET_DENSE: SetDenseRecord,
    Op.RATE: RateRecord,
    Op.SHRINK: ShrinkRecord,
    Op.COMMIT: CommitRecord,
    Op.COMMIT_OFFSET: OffsetRecord,
    Op.SKIP: SkipRecord,
    Op.FENCE: FenceRecord,
    Op.CLOSE: CloseRecord,
    Op.RULES: RulesRecord,
    Op.KV: KvRecord,
    Op.TERM: TermRecord,
    Op.LOAD: LoadRecord,
    Op.MOVE: MoveRecord,
    Op.ADOPT: AdoptRecord,
}
FROM_CLIENTS = frozenset(op for op, kind in RECORDS.items() if kind.from_clients)


def make_record(header: Header, body: Buffer) -> LogRecord:
    """The record in a frame. Raises RequestError when it has a number and must have none."""
    kind = RECORDS[header.op]
    if header.sequence and not kind.numbered:
        raise RequestError(
            "usage", f"frames of op {header.op} have no number, this one has {header.sequence}"
        )
    return (PartRecord if header.op == Op.ADOPT and header.count else kind)(header, body)
