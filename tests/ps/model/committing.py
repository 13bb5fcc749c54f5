"""Two servers and trainers in sync, as one hashable value, and every next value of it.

A server is its log: the real Store carries it out, the real checks say what comes into it. Server 0
has the real GroupState. Here are what a client does, and the faults: trainers are started again,
and a server comes back without the end of its log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from paddock.ps.group import messages as w
from paddock.ps.group.state import GroupState
from paddock.ps.server.records import make_record
from paddock.ps.server.store import Store
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec, to_json
from paddock.ps.table.sharding import shard_of
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from ps.group.replay import carried_out
from ps.model.waiting import frozen, thawed

Record = tuple[Header, bytes]
Log = tuple[Record, ...]
TABLE = SparseSpec(
    "t", 1, OptimizerSpec("sgd", 1.0), initial=InitialSpec("zeros"), shards=2, merge="sum"
)
RULES = w.GroupRules("sync", trainers=2, silent_seconds=0)
# Of each server, keys that it has: a shard each.
KEYS = [np.flatnonzero(shard_of(np.arange(8), 2) == server) for server in range(2)]
CREATED: Log = ((Header(Op.CREATE), json.dumps(to_json(TABLE)).encode()),)
WORKS = ("joins", "pushes to 0", "pushes to 1", "arrives", "carries")


@dataclass(frozen=True)
class Setting:
    """steps: of the job; played: those that are done before anything may fail.

    restarts: of trainers; all_at_once: they happen after a loss only. losses: the servers that may
    lose the end of their log. lost_commits: how many steps are lost with it. One at server 1 is
    not always found: with every trainer started anew, nobody knows what else was in that log.
    """

    steps: int = 1
    played: int = 0
    restarts: int = 1
    all_at_once: bool = False
    losses: tuple[int, ...] = ()
    lost_commits: int = 2


class Trainer(NamedTuple):
    """step: the one it works at. acknowledged: its pushes, by server. commit: to be carried."""

    life: int = 1
    state: str = "joins"
    step: int = 0
    acknowledged: tuple[int, int] = (0, 0)
    commit: bytes = b""


class World(NamedTuple):
    """lost: whether a log has lost its end."""

    logs: tuple[Log, Log]
    group: bytes
    trainers: tuple[Trainer, Trainer] = (Trainer(), Trainer())
    restarts: int = 0
    lost: bool = False


@cache
def store_of(server: int, log: Log) -> Store:
    """A server that has carried out this log. It is not changed any more."""
    store = Store(server, 2)
    for lsn, (header, body) in enumerate(log, 1):
        record = make_record(header, bytearray(body))
        store.apply_meta(lsn, record)
        record.apply(store, lsn)
    return store


def first() -> World:
    """Nobody has joined yet."""
    rules = (Header(Op.RULES), json.dumps({"strategy": "sync", "trainers": 2}).encode())
    return World(((*CREATED, rules), CREATED), frozen(GroupState(RULES)))


def begun(setting: Setting) -> World:
    """Where the search begins: some steps are done."""
    world = first()
    while any(trainer.step <= setting.played for trainer in world.trainers if setting.played):
        for number, trainer in enumerate(world.trainers):
            if trainer.step <= setting.played and trainer.state in WORKS:
                world = acted(setting, world, number)
    return world


def written(world: World, server: int, header: Header, body: bytes) -> World:
    """A server takes a record, or has it already. Raises RequestError."""
    log = world.logs[server]
    store = store_of(server, log)
    record = make_record(header, bytearray(body))
    record.check(store)
    if record.is_done(store):
        return world
    logs = list(world.logs)
    logs[server] = (*log, (header, body))
    return world._replace(logs=(logs[0], logs[1]))


def told(world: World, event: w.Event) -> World:
    """The coordinator hears something; those whom it answers go on."""
    group, kept = thawed(world.group), [world]

    def write(record: w.Record) -> None:
        op, data = w.record_to_json(record)
        kept[0] = written(kept[0], 0, Header(op), json.dumps(data).encode())

    replies = carried_out(group, event, write=write)
    world = kept[0]._replace(group=frozen(group))
    for reply in replies:
        if isinstance(reply, w.Fail):
            continue
        trainer = world.trainers[reply.trainer]
        if trainer.life != reply.incarnation or trainer.state != "waits":
            continue
        if isinstance(reply, w.RequestRefused):
            world = having(world, reply.trainer, trainer._replace(state="stopped"))
        elif isinstance(reply, w.JoinAccepted):
            world = joined(world, reply.trainer, reply)
        else:
            assert reply.commit is not None
            commit = json.dumps(w.record_to_json(reply.commit)[1]).encode()
            world = having(world, reply.trainer, trainer._replace(state="carries", commit=commit))
    return world


def joined(world: World, number: int, reply: w.JoinAccepted) -> World:
    """What a client does when it has been given its place (strategy.py)."""
    trainer = world.trainers[number]
    facts = json.dumps({"states": ["a", "b"], "nonce": f"{trainer.life:x}", "step": reply.step})
    try:
        for server in (0, 1):
            header = Header(Op.FENCE, trainer=number, incarnation=trainer.life)
            world = written(world, server, header, facts.encode())
        if reply.commit is not None:
            commit = json.dumps(w.record_to_json(reply.commit)[1]).encode()
            world = written(world, 1, Header(Op.COMMIT), commit)
    except RequestError:
        return having(world, number, trainer._replace(state="stopped"))
    return having(world, number, trainer._replace(state="pushes to 0", step=reply.step + 1))


def acted(setting: Setting, world: World, number: int) -> World:
    """A trainer's next call."""
    trainer = world.trainers[number]
    if trainer.state == "joins":
        waits = having(world, number, trainer._replace(state="waits"))
        return told(waits, w.JoinRequest(number, trainer.life))
    if trainer.state == "arrives":
        waits = having(world, number, trainer._replace(state="waits"))
        return told(waits, w.Arrive(number, trainer.life, trainer.step))
    try:
        if trainer.state == "carries":
            world = written(world, 1, Header(Op.COMMIT), trainer.commit)
            is_over = trainer.step == setting.steps
            after = trainer._replace(
                state="over" if is_over else "pushes to 0", step=trainer.step + 1, commit=b""
            )
            return having(world, number, after)
        return pushed(world, number, int(trainer.state[-1]))
    except RequestError:
        return having(world, number, trainer._replace(state="stopped"))


def lr_of(step: int, life: int) -> float:
    """The learning rate that this life of a trainer sets for a step."""
    return float(step + life)


def pushed(world: World, number: int, server: int) -> World:
    """A rate and a push for a step, to a server that still is the one it was.

    Raises RequestError.
    """
    trainer = world.trainers[number]
    windows, sent = store_of(server, world.logs[server]).windows, trainer.acknowledged[server]
    if windows.newest(number, trainer.life) < sent or str(number) not in windows.to_json():
        raise RequestError("lost", "ServerConnection._recognise says so")
    keys = KEYS[server]
    header = Header(
        Op.RATE, flags=int(FrameFlag.CONTRIBUTION), sequence=sent + 1, trainer=number,
        incarnation=trainer.life, step=trainer.step,
    )  # fmt: skip
    rate = {"lr": lr_of(trainer.step, trainer.life), "correction": 1.0}
    world = written(world, server, header, json.dumps(rate).encode())
    header = header._replace(op=Op.PUSH, count=len(keys), sequence=sent + 2)
    body = keys.tobytes() + np.full(len(keys), -1.0, np.float32).tobytes()
    world = written(world, server, header, body)
    acknowledged = list(trainer.acknowledged)
    acknowledged[server] = sent + 2
    state = "arrives" if server else "pushes to 1"
    after = trainer._replace(state=state, acknowledged=(acknowledged[0], acknowledged[1]))
    return having(world, number, after)


def after(setting: Setting, world: World) -> Iterator[tuple[str, World]]:
    """Every next world, with what happened."""
    may_restart = world.restarts < setting.restarts and (world.lost or not setting.all_at_once)
    for number, trainer in enumerate(world.trainers):
        if trainer.state in WORKS:
            yield f"trainer {number} {trainer.state}", acted(setting, world, number)
        if may_restart and trainer.state not in ("over", "joins"):
            fresh = having(world, number, Trainer(trainer.life + 1))
            yield f"trainer {number} again", fresh._replace(restarts=world.restarts + 1)
    for server in setting.losses if not world.lost else ():
        log = world.logs[server]
        commits = [at for at, (header, _) in enumerate(log) if header.op == Op.COMMIT]
        if len(commits) >= setting.lost_commits:
            yield (
                f"server {server} loses its end",
                shortened(world, server, commits[-setting.lost_commits]),
            )


def shortened(world: World, server: int, end: int) -> World:
    """A server comes back with the first records of its log; who waited at the coordinator asks
    again."""
    logs = list(world.logs)
    logs[server] = logs[server][:end]
    world = world._replace(logs=(logs[0], logs[1]), lost=True)
    if server == 0:
        kept = store_of(0, logs[0]).group
        assert kept is not None
        world = world._replace(group=frozen(GroupState.from_json(RULES, kept.to_json())))
        for number, trainer in enumerate(world.trainers):
            if trainer.state == "waits":
                state = "arrives" if trainer.step else "joins"
                world = having(world, number, trainer._replace(state=state))
    return world


def complaint(world: World) -> str:
    """What is wrong with a world: a server's rows are not those of its steps, or of the job's.

    Of a step the rate is that of its first member.
    """
    found: dict[int, bytes] = {}
    for server, log in enumerate(world.logs):
        store, rows = store_of(server, log), np.empty((len(KEYS[server]), 1), np.float32)
        store.tables[0].table.pull(KEYS[server], rows)
        wanted: dict[int, float] = {}
        for header, body in log:
            if header.op == Op.COMMIT:
                step, members = json.loads(body).values()
                wanted[step] = 2.0 * lr_of(step, members[0][1])
                if found.setdefault(step, body) != body:
                    return f"step {step} is {found[step]!r} at one server, {body!r} at the other"
        if set(rows.ravel().tolist()) != {sum(wanted.values())}:
            return f"server {server} is at step {store.committed} with rows {rows.ravel()}"
    return ""


def having(world: World, number: int, trainer: Trainer) -> World:
    trainers = list(world.trainers)
    trainers[number] = trainer
    return world._replace(trainers=(trainers[0], trainers[1]))
