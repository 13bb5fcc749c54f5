"""A shard that changes hands between two servers, as one hashable value, and its next values.

The rules are the real ones: ownership.py, and the records of shards/records.py; a
server is the fold of its log. Here is what the threads around them do (an attempt goes through
PHASES, who holds what came asks), one trainer that pushes, and the faults: servers die and are
started again, with the power also what their disks lack goes; frames are lost, late or come twice.

Whatever was sent stays in the mail: it may come at any time, any number of times, or never.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from paddock.ps.server.log_record import DELTA, LAST
from paddock.ps.server.records import make_record
from paddock.ps.shards.ownership import PHASES, OutgoingShard, ShardOwnership
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.storage.arrays import encode_arrays
from paddock.ps.table.sparse import SparseTable
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.wire.windows import SequenceStatus, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = SparseSpec("words", 1, OptimizerSpec("sgd", 0.1), shards=1)
SHARD = np.array([0])
LIFE = 1
HEAL_ROUNDS = 12


@dataclass(frozen=True)
class Setting:
    """The code under test, and how much may happen. orders: attempts, there and back.

    cuts: parts of what is sent. records: of one log. script: what happens first.
    power: what dies has lost its power, too. keeps: whether giver and taker wait for their disks.
    """

    ownership: type[ShardOwnership] = ShardOwnership
    phases: tuple[str, ...] = PHASES
    orders: int = 2
    pushes: int = 2
    deaths: int = 1
    deaf: int = 1
    power: bool = False
    keeps: tuple[bool, bool] = (True, True)
    asks: bool = True
    cuts: int = 1
    records: int = 7
    script: tuple[str, ...] = ()


class Record(NamedTuple):
    """As in a log. A push: the number of it is its one key."""

    header: Header
    body: bytes


class Attempt(NamedTuple):
    """phase: the next one. missing: numbers of parts that are not acknowledged."""

    version: int
    phase: int = 0
    since: int = -1
    parts: int = 0
    missing: frozenset[int] = frozenset()
    is_frozen: bool = False


class Server(NamedTuple):
    """durable: how many records a power cut leaves."""

    log: tuple[Record, ...] = ()
    durable: int = 0
    is_up: bool = True
    attempt: Attempt | None = None


class Mail(NamedTuple):
    """A frame that was sent, to a server."""

    to: int
    record: Record


class Trainer(NamedTuple):
    """done: pushes that were acknowledged. at: the server it takes for the owner. numbers: the last
    one used with each. is_deaf: it sends the newest again, for it has heard no answer."""

    done: int = 0
    at: int = 0
    numbers: tuple[int, int] = (0, 0)
    is_deaf: bool = False


class World(NamedTuple):
    """lost: pushes that went with the power of a server that had not said they are on its disk.

    used: orders, deaths, answers lost.
    """

    servers: tuple[Server, Server] = (Server(), Server())
    mail: frozenset[Mail] = frozenset()
    trainer: Trainer = Trainer()
    lost: frozenset[int] = frozenset()
    used: tuple[int, int, int] = (0, 0, 0)


ORDERS, DEATHS, DEAF = range(3)


class Rows(SparseTable):
    """How often each push was applied, and in which record; of one shard."""

    def __init__(self) -> None:
        self.counts: dict[int, float] = {}
        self.versions: dict[int, int] = {}

    def add_push(self, number: int, lsn: int) -> None:
        """One more."""
        self.counts[number] = self.counts.get(number, 0) + 1
        self.versions[number] = lsn

    def shard_changes(self, shard: int, since: int) -> tuple[dict[str, Any], bool]:
        """As SparseTable's."""
        keys = sorted(key for key, lsn in self.versions.items() if lsn > since)
        values = np.array([[self.counts[key]] for key in keys], np.float32).reshape(-1, 1)
        return {"keys": np.array(keys, np.int64), "values": values}, since < 0

    def check_state(self, shard: int, state: Any) -> None:
        """As SparseTable's: rows of one float."""
        assert state["values"].shape == (len(state["keys"]), 1), (shard, state)

    def load_shard(self, shard: int, state: Any, *, merge: bool = False) -> None:
        """As SparseTable's."""
        if not merge:
            self.drop_shard(shard)
        for key, value, lsn in zip(state["keys"], state["values"], state["version"], strict=True):
            self.counts[int(key)] = float(value[0])
            self.versions[int(key)] = int(lsn)

    def drop_shard(self, shard: int) -> None:
        """As SparseTable's."""
        self.counts.clear()
        self.versions.clear()


class Node(NamedTuple):
    """What the records of a server say."""

    held: Any
    windows: Windows


def store_of(index: int, held: Any) -> Any:
    """A store of this one table; it has no limit, and counts nothing that trainers have read."""
    return SimpleNamespace(find=lambda _: held, server=index, servers=2, memory_limit_bytes=0)


class Moving:
    """All that may happen, within a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.node = lru_cache(maxsize=None)(self._node)

    def _node(self, index: int, log: tuple[Record, ...]) -> Node:
        """The fold over a log."""
        if not log:
            owned = [] if index else [0]
            moves = self.setting.ownership(SPEC.name, index, owned, SPEC.shards)
            held = SimpleNamespace(spec=SPEC, table=Rows(), ownership=moves, step=0)
            windows = Windows()
            windows.fence(0, LIFE)
            return Node(held, windows)
        before = self.node(index, log[:-1])
        node = Node(deepcopy(before.held), Windows.from_json(before.windows.to_json()))
        header, body = log[-1]
        if header.op == Op.PUSH:
            node.windows.mark_applied(0, LIFE, header.sequence)
            node.held.table.add_push(header.count, len(log))
        else:
            make_record(header, body).apply(store_of(index, node.held), len(log))
        return node

    def held(self, world: World, index: int) -> Any:
        """The table, with what is volatile of it."""
        server = world.servers[index]
        held = self.node(index, server.log).held
        one, held.ownership.leaving = server.attempt, {}
        if one is not None and one.phase < len(self.setting.phases):
            held.ownership.leaving = {0: OutgoingShard(1 - index, one.version, one.is_frozen)}
        held.ownership._changed()
        return held

    # -------------------------------------------------------------------------------- what happens

    def first(self) -> World:
        """The world after the script."""
        world = World()
        for what in self.setting.script:
            world = dict(self.after(world))[what]
        return world

    def after(self, world: World) -> Iterator[tuple[str, World]]:
        """Every next world, with what happened."""
        setting, used = self.setting, world.used
        for index, server in enumerate(world.servers):
            if not server.is_up:
                yield f"{index} starts", put(world, index, server._replace(is_up=True))
                continue
            if server.attempt is None and used[ORDERS] < setting.orders:
                yield from self.ordered(world, index)
            if server.attempt is not None:
                yield from self.goes_on(world, index)
                if not self.is_giving(server.attempt):
                    yield f"{index} gives up", put(world, index, server._replace(attempt=None))
            if setting.asks:
                yield from self.asks(world, index)
            if used[DEATHS] < setting.deaths:
                yield f"{index} dies", self.dead(spend(world, DEATHS), index)
        for one in world.mail:
            yield from self.delivered(world, one)
        yield from self.pushed(world)

    def ordered(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        """An owner is told to give the shard to the other."""
        moves = self.held(world, index).ownership
        if 0 in moves.owned:
            version = moves.leave(0, 1 - index, world.used[ORDERS])
            begun = world.servers[index]._replace(attempt=Attempt(version))
            yield f"{index} is to give", put(spend(world, ORDERS), index, begun)

    def goes_on(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        """An attempt's next phase, once all it has sent is acknowledged."""
        server = world.servers[index]
        one = server.attempt
        assert one is not None
        if one.missing:
            return
        if one.phase == len(self.setting.phases):
            yield f"{index} is done", put(world, index, server._replace(attempt=None))
            return
        phase, after = self.setting.phases[one.phase], attempting(server, phase=one.phase + 1)
        order = {"shard": 0, "to": 1 - index, "version": one.version, "own": True, "step": 0}
        record = Record(Header(Op.MOVE), json.dumps(order).encode())
        if phase in ("copy", "rest"):
            yield phase, self.sent(world, index, after)
        elif phase == "freeze":
            yield phase, put(world, index, attempting(after, is_frozen=True))
        elif phase == "move":
            if written := self.written(put(world, index, after), index, record):
                yield phase, written
        else:
            kept = put(world, index, disk(after, self.setting.keeps[0]))
            yield phase, post(kept, 1 - index, record._replace(header=Header(Op.ADOPT)))

    def is_giving(self, one: Attempt) -> bool:
        """Whether MOVE is logged, and waited for until it is on the disk."""
        return self.setting.phases[one.phase - 1 : one.phase] == ("move",)

    def sent(self, world: World, index: int, server: Server) -> World:
        """The other gets the rows that it lacks, in two parts."""
        one = server.attempt
        assert one is not None
        arrays, is_all = self.held(world, index).table.shard_changes(0, one.since)
        whole = b"".join(encode_arrays(arrays)[0])
        flags, head = 0 if is_all else DELTA, bytes(4) + index.to_bytes(4, "little")
        most = -(-len(whole) // self.setting.cuts)
        places = range(0, len(whole), most)
        for number, at in enumerate(places, one.parts):
            last = LAST if at == places[-1] else 0
            header = Header(Op.ADOPT, flags | last, 0, number, 1, step=one.version)
            world = post(world, 1 - index, Record(header, head + whole[at : at + most]))
        parts = one.parts + len(places)
        missing = frozenset(range(one.parts, parts))
        after = attempting(server, since=len(server.log), parts=parts, missing=missing)
        return put(world, index, after)

    def written(self, world: World, index: int, record: Record) -> World | None:
        """A record is logged, if it may be and has not been; None when it is refused."""
        store, server = store_of(index, self.held(world, index)), world.servers[index]
        try:
            one = make_record(record.header, record.body)
            if one.is_done(store):
                return world
            one.check(store)
        except RequestError:
            return None
        return put(world, index, server._replace(log=(*server.log, record)))

    def delivered(self, world: World, mail: Mail) -> Iterator[tuple[str, World]]:
        """A frame comes; its sender hears the answer, or not."""
        if not world.servers[mail.to].is_up:
            return
        header, what = mail.record.header, f"{mail.to} gets {name(mail.record)}"
        after = self.written(world, mail.to, mail.record)
        if after is not None and len(after.servers[mail.to].log) > self.setting.records:
            return
        if after is not None:
            yield f"{what}, in silence", after
        giver = (after or world).servers[1 - mail.to]
        one = giver.attempt
        if header.count and one is not None and one.version == header.step:
            if after is None:
                failed = put(world, 1 - mail.to, giver._replace(attempt=None))
                yield f"{what}, and says no", failed
            else:
                heard = attempting(giver, missing=one.missing - {header.part})
                taker = after.servers[mail.to]
                if header.flags & LAST:
                    taker = disk(taker, self.setting.keeps[1])
                yield what, put(put(after, mail.to, taker), 1 - mail.to, heard)

    def asks(self, world: World, index: int) -> Iterator[tuple[str, World]]:
        """Who holds what came asks its giver. The answer takes its time, as a frame."""
        giver = world.servers[1 - index]
        one = self.held(world, index).ownership.incoming.get(0)
        if one is None or not giver.is_up:
            return
        fate = self.held(world, 1 - index).ownership.migration_status(0, index, one.version)
        if fate != "coming":
            order = {"shard": 0, "version": one.version, "own": fate == "given", "step": 0}
            told = Record(Header(Op.ADOPT), json.dumps(order).encode())
            kept = put(world, 1 - index, disk(giver, self.setting.keeps[0]))
            yield f"{index} hears: {fate}", post(kept, index, told)

    def dead(self, world: World, index: int) -> World:
        """Its threads are gone; with the power also what is not on its disk."""
        server = world.servers[index]
        kept = server.durable if self.setting.power else len(server.log)
        gone = {r.header.count for r in server.log[kept:] if r.header.op == Op.PUSH}
        dead = Server(server.log[:kept], min(server.durable, kept), is_up=False)
        return put(world, index, dead)._replace(lost=world.lost | gone)

    def pushed(self, world: World) -> Iterator[tuple[str, World]]:
        """The trainer's next push, or once more the one whose answer it has not heard."""
        trainer = world.trainer
        at, number = trainer.at, trainer.done + 1
        if number > self.setting.pushes or world.lost or not world.servers[at].is_up:
            return  # Who has lost acknowledged pushes is found out, and the job ends.
        sequence = trainer.numbers[at] + (not trainer.is_deaf)
        numbers = (sequence, trainer.numbers[1]) if at == 0 else (trainer.numbers[0], sequence)
        used = trainer._replace(numbers=numbers, is_deaf=False)
        server = world.servers[at]
        heard = used._replace(done=number)
        windows = self.node(at, server.log).windows
        if windows.check(0, LIFE, sequence) is SequenceStatus.REPEAT:
            yield "a repeat", world._replace(trainer=heard)
            return
        try:
            self.held(world, at).ownership.check_push(Header(Op.PUSH), SHARD)
        except RequestError as refusal:
            owners: Any = refusal.facts["owners"]
            yield "sent away", world._replace(trainer=used._replace(at=owners.get("0", at)))
            return
        record = Record(Header(Op.PUSH, count=number, sequence=sequence), b"")
        after = put(world, at, server._replace(log=(*server.log, record)))
        yield f"push {number}", after._replace(trainer=heard)
        if world.used[DEAF] < self.setting.deaf:
            deaf = used._replace(is_deaf=True)
            yield f"push {number}, unheard", spend(after, DEAF)._replace(trainer=deaf)

    # ------------------------------------------------------------------------------- what is wrong

    def owners(self, world: World) -> list[int]:
        """Who has the shard."""
        return [i for i in (0, 1) if 0 in self.node(i, world.servers[i].log).held.ownership.owned]

    def complaint(self, world: World) -> str:
        """Which invariant a world breaks."""
        owners = self.owners(world)
        if len(owners) > 1:
            return "two servers own the shard"
        for index in owners:
            counts = self.node(index, world.servers[index].log).held.table.counts
            twice = [push for push, count in counts.items() if count > 1]
            missing = set(range(1, world.trainer.done + 1)) - set(counts) - world.lost
            if twice or missing:
                return f"server {index} applied {twice} twice, and lacks {sorted(missing)}"
        return ""

    def healed(self, world: World) -> str:
        """Why a world, left alone by faults, comes to no rest with one owner and every push."""
        patient = Moving(Setting(**{**vars(self.setting), "deaths": 0, "deaf": 0, "records": 99}))
        patient.node = self.node
        up = tuple(server._replace(is_up=True) for server in world.servers)
        world = world._replace(servers=up)
        for _ in range(HEAL_ROUNDS):
            # Of what was under way only that comes which is sent again.
            missing = [one for one in world.mail if is_missing(world, one)]
            world = world._replace(mail=frozenset(missing))
            for index in (0, 1):
                for _, after in patient.asks(world, index) if self.setting.asks else ():
                    world = after
            for index in (0, 1):
                if world.servers[index].attempt is not None:
                    for _, after in patient.goes_on(world, index):
                        world = after
            for one in sorted(world.mail, key=lambda one: one.record.header.part):
                for _, after in list(patient.delivered(world, one))[-1:]:
                    world = after
            for _, after in list(patient.pushed(world))[:1]:
                world = after
            if complaint := self.complaint(world):
                return complaint
        if not self.owners(world):
            return "nobody owns the shard"
        if any(self.node(i, s.log).held.ownership.incoming for i, s in enumerate(world.servers)):
            return "what came is not forgotten"
        if world.trainer.done < self.setting.pushes and not world.lost:
            return f"push {world.trainer.done + 1} waits for ever"
        return ""


def is_missing(world: World, mail: Mail) -> bool:
    """Whether it is a part that its giver waits to hear of."""
    one, header = world.servers[1 - mail.to].attempt, mail.record.header
    is_its = one is not None and bool(header.count) and one.version == header.step
    return is_its and one is not None and header.part in one.missing


def put(world: World, index: int, server: Server) -> World:
    """The world with this server."""
    one, two = world.servers
    return world._replace(servers=(server, two) if index == 0 else (one, server))


def spend(world: World, what: int) -> World:
    """One more of what may happen a few times."""
    used = tuple(n + (i == what) for i, n in enumerate(world.used))
    return world._replace(used=used)  # type: ignore[arg-type]


def post(world: World, to: int, record: Record) -> World:
    """A frame is under way."""
    return world._replace(mail=world.mail | {Mail(to, record)})


def disk(server: Server, keeps: bool) -> Server:
    """Its log is on its disk."""
    return server._replace(durable=len(server.log)) if keeps else server


def attempting(server: Server, **changes: Any) -> Server:
    """A server whose attempt has come so far."""
    assert server.attempt is not None
    return server._replace(attempt=server.attempt._replace(**changes))


def name(record: Record) -> str:
    """A frame in a trace."""
    header = record.header
    if header.count:
        return f"part {header.part} of {header.step & 0xFF}"
    order = json.loads(record.body)
    return f"{'own' if order['own'] else 'forget'} {order['version'] & 0xFF}"
