"""Trainers that wait for one another at a coordinator, as one hashable value, and every next value
of it.

The coordinator is the real one. Here is what a client does (ask, ask again, go on), what the shell
around the coordinator does (it tells of closed connections), and the faults: trainers and the
coordinator die and are started again, answers are lost, a trainer dies for good.

A program is a trainer's calls: "step", "end", or else a barrier's name. One that is started again
calls what stands before its first step, and goes on after the last step it has done.
"""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from paddock.ps.group import messages as w
from paddock.ps.group.barriers import Barriers
from paddock.ps.group.state import GroupState
from paddock.ps.strategies import CLOCKED
from paddock.ps.wire.values import value_from
from ps.group.replay import carried_out

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCHS = ("begin", "step", "epoch", "step", "epoch", "step", "end")
SILENT_SECONDS = 10.0
PATIENCE = 40  # ticks, of a second each


@dataclass(frozen=True)
class Setting:
    """The code under test, what the trainers do, and how many faults may happen.

    replays: a trainer that is started again calls all barriers anew, and leaves out the steps.
    """

    strategy: w.Strategy = "sync"
    staleness: int = 0
    programs: tuple[tuple[str, ...], ...] = (EPOCHS, EPOCHS)
    replays: bool = False
    restarts: int = 1
    chief_restarts: int = 0
    lost_answers: int = 0
    deaths: int = 0
    silent_seconds: float = SILENT_SECONDS
    group: type[GroupState] = GroupState
    barriers: type[Barriers] = Barriers


class Trainer(NamedTuple):
    """todo: what is left of the program. done: steps, of all lives. turns: of this life, by name.

    state: "joins" or "works" (it acts next), "asks" or "waits" (for an answer), "over" or "dead".
    fresh: this life has done no step.
    """

    life: int
    todo: tuple[str, ...]
    done: int = 0
    turns: tuple[tuple[str, int], ...] = ()
    state: str = "joins"
    fresh: bool = True


class World(NamedTuple):
    """used: restarts, coordinator restarts, lost answers, deaths."""

    group: bytes
    trainers: tuple[Trainer, ...]
    used: tuple[int, int, int, int] = (0, 0, 0, 0)
    wrong: str = ""


RESTART, CHIEF, LOST, DEATH = range(4)
NONE = (0, 0, 0, 0)
ACTS = ("joins", "works")
WAITS = {"joins": "asks", "works": "waits"}
ASKS_AGAIN = {"asks": "joins", "waits": "works"}


class Waiting:
    """All that may happen, within a setting."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.rules = w.GroupRules(
            setting.strategy,
            staleness=setting.staleness,
            trainers=len(setting.programs),
            silent_seconds=setting.silent_seconds,
        )

    @property
    def is_even(self) -> bool:
        """Whether all trainers have the same batches."""
        return len(set(self.setting.programs)) == 1

    def first(self) -> World:
        """Nobody has joined yet."""
        group = self.setting.group(self.rules)
        group.barriers = self.setting.barriers()
        trainers = tuple(Trainer(1, program) for program in self.setting.programs)
        return World(frozen(group), trainers)

    def after(self, world: World) -> Iterator[tuple[str, World]]:
        """Every next world, with what happened."""
        setting, used = self.setting, world.used
        for number, trainer in enumerate(world.trainers):
            who = f"trainer {number}.{trainer.life}"
            if trainer.state in ACTS:
                yield f"{who} {call(trainer)}", self.asked(world, number)
                if used[LOST] < setting.lost_answers and call(trainer) != "end":
                    label = f"{who} {call(trainer)}, and hears nothing"
                    yield label, self.asked(spend(world, LOST), number, deaf=True)
            if trainer.state != "over" and used[RESTART] < setting.restarts:
                fresh = Trainer(trainer.life + 1, setting.programs[number], trainer.done)
                after = self.parted(spend(world, RESTART), number, fresh)
                yield f"{who} is started again", after
            if trainer.state not in ("over", "dead", "joins") and used[DEATH] < setting.deaths:
                dead = trainer._replace(state="dead")
                yield f"{who} dies", self.parted(spend(world, DEATH), number, dead)
        if used[CHIEF] < setting.chief_restarts:
            yield "the coordinator is started again", self.chief_anew(spend(world, CHIEF))

    def chief_anew(self, world: World) -> World:
        """Only what is durable is left; the connections have closed: who waits asks again."""
        old = thawed(world.group)
        group = type(old).from_json(self.rules, old.to_json())
        group.barriers = value_from(type(old.barriers), asdict(old.barriers))
        trainers = tuple(t._replace(state=ASKS_AGAIN.get(t.state, t.state)) for t in world.trainers)
        return world._replace(group=frozen(group), trainers=trainers)

    def parted(self, world: World, number: int, trainer: Trainer) -> World:
        """The trainer is another one; the coordinator hears that the old one's connection
        closed."""
        group, life = thawed(world.group), world.trainers[number].life
        carried_out(group, w.ConnectionLost(number, life))
        return with_trainer(world, number, trainer)._replace(group=frozen(group))

    def rest(self, program: tuple[str, ...], done: int) -> tuple[str, ...]:
        """What a life calls that begins after so many steps."""
        steps = [at for at, call in enumerate(program) if call == "step"]
        if self.setting.replays:
            return tuple(name for at, name in enumerate(program) if at not in steps[:done])
        return program[: steps[0]] + program[steps[done - 1] + 1 if done else steps[0] :]

    def asked(self, world: World, number: int, *, deaf: bool = False) -> World:
        """A trainer's next call, and what all trainers hear of it. deaf: but this one."""
        trainer = world.trainers[number]
        if call(trainer) == "step" and self.setting.strategy not in CLOCKED:
            return with_trainer(world, number, gone_on(trainer))
        waits = trainer if deaf else trainer._replace(state=WAITS[trainer.state])
        world = with_trainer(world, number, waits)
        group, opened = thawed(world.group), list[w.BarrierOpened]()

        def write(record: w.Record) -> None:
            if isinstance(record, w.BarrierOpened):
                opened.append(record)

        replies = carried_out(group, event_of(number, trainer), write=write)
        world = self.judged(world._replace(group=frozen(group)), opened)
        for reply in replies:
            if not isinstance(reply, w.Fail) and not (deaf and reply.trainer == number):
                world = self.heard(world, reply)
        if call(trainer) == "end":
            world = with_trainer(world, number, trainer._replace(state="over", todo=()))
        return self.paced(world)

    def heard(self, world: World, reply: w.JoinAccepted | w.Release | w.RequestRefused) -> World:
        """A trainer goes on, if it is the life that is meant."""
        trainer = world.trainers[reply.trainer]
        if trainer.life != reply.incarnation or trainer.state not in ("asks", "waits"):
            return world  # It is dead, or hears what it knows.
        if isinstance(reply, w.RequestRefused):
            return world._replace(wrong=f"trainer {reply.trainer} is refused: {reply.reason}")
        if isinstance(reply, w.JoinAccepted):
            done = reply.step if self.setting.strategy in CLOCKED else trainer.done
            todo = self.rest(self.setting.programs[reply.trainer], done)
            begun = trainer._replace(state="works", done=done, todo=todo)
            return with_trainer(world, reply.trainer, begun)
        return with_trainer(world, reply.trainer, gone_on(trainer))

    def paced(self, world: World) -> World:
        """staleness: a trainer waits in step() while it is more than N batches before another one,
        counted from the last barrier, and no longer; who waits at a barrier holds up nobody.
        Without faults: of those the coordinator hears late."""
        at = [one.state for one in world.trainers]
        if self.setting.strategy != "staleness" or world.used != NONE or {"joins", "asks"} & {*at}:
            return world
        waits = [one.state == "waits" and call(one) == "step" for one in world.trainers]
        arrived = [
            since(self.setting.programs[n], one) + waits[n] for n, one in enumerate(world.trainers)
        ]
        going = [arrived[n] for n in range(len(at)) if waits[n] or at[n] == "works"]
        for n, count in enumerate(arrived):
            is_ahead = count - min(going, default=0) > self.setting.staleness
            if is_ahead != waits[n] and (waits[n] or at[n] == "works"):
                return world._replace(wrong=f"trainer {n} of {world.trainers}: ahead {is_ahead}")
        return world

    def judged(self, world: World, opened: list[w.BarrierOpened]) -> World:
        """Who meets at a barrier has done the same steps; a life that has done none aside."""
        for record in opened if self.is_even and self.setting.strategy in CLOCKED else ():
            met = [world.trainers[number] for number, _, _ in record.passed]
            if len({one.done for one in met if not one.fresh}) > 1:
                return world._replace(wrong=f"{record} of trainers at different steps: {met}")
        return world

    def complaint(self, world: World) -> str:
        """What is wrong with a world: an error, or a wait that nobody ends."""
        states = {trainer.state for trainer in world.trainers}
        if world.wrong or states & set(ACTS) or not states & {"asks", "waits"}:
            return world.wrong
        waits = {n for n, one in enumerate(world.trainers) if one.state in ("asks", "waits")}
        told = self.told_in_time(world, waits)
        if not waits <= told:
            return f"for ever: trainers {sorted(waits - told)} of {world.trainers}"
        # In sync nobody does a step alone.
        may_stick = "dead" in states or (self.setting.strategy == "sync" and not self.is_even)
        return "" if may_stick else f"all wait for one another: {world.trainers}"

    def told_in_time(self, world: World, waits: set[int]) -> set[int]:
        """Who hears something while time passes, and nobody but the coordinator can do anything."""
        group, told = thawed(world.group), set[int]()
        for now in map(float, range(1, PATIENCE)):
            for number in waits:
                group.handle(w.Heard(number, world.trainers[number].life), now)
            replies = carried_out(group, w.Tick(), now)
            told |= {one.trainer for one in replies if not isinstance(one, w.Fail)}
        return told


def call(trainer: Trainer) -> str:
    """What it does next."""
    return "join" if trainer.state == "joins" else trainer.todo[0]


def event_of(number: int, trainer: Trainer) -> w.Event:
    """What it says to the coordinator."""
    name, life = call(trainer), trainer.life
    if name == "join":
        return w.JoinRequest(number, life)
    if name == "end":
        return w.LeaveRequest(number, life)
    if name == "step":
        return w.Arrive(number, life, trainer.done + 1)
    turn = dict(trainer.turns).get(name, 0) + 1
    return w.Reach(number, life, trainer.done, name, turn, trainer.fresh)


def since(program: tuple[str, ...], trainer: Trainer) -> int:
    """Steps since the last barrier, of a first life."""
    passed = program[: len(program) - len(trainer.todo)]
    return next((n for n, name in enumerate(reversed(passed)) if name != "step"), len(passed))


def gone_on(trainer: Trainer) -> Trainer:
    """After the call that it was at."""
    name, *rest = trainer.todo
    is_step, turns = name == "step", dict(trainer.turns)
    if not is_step:
        turns[name] = turns.get(name, 0) + 1
    return trainer._replace(
        todo=tuple(rest), done=trainer.done + is_step, turns=tuple(sorted(turns.items())),
        state="works", fresh=trainer.fresh and not is_step,
    )  # fmt: skip


def with_trainer(world: World, number: int, trainer: Trainer) -> World:
    trainers = (*world.trainers[:number], trainer, *world.trainers[number + 1 :])
    return world._replace(trainers=trainers)


def spend(world: World, what: int) -> World:
    used = (*world.used[:what], world.used[what] + 1, *world.used[what + 1 :])
    return world._replace(used=used)


def frozen(group: GroupState) -> bytes:
    """The coordinator as a value: equal chiefs give equal bytes, but for rare cases that cost
    time."""
    for owner in (group, group.barriers):
        for name, facts in vars(owner).items():
            if isinstance(facts, dict):
                setattr(owner, name, dict(sorted(facts.items())))
    return pickle.dumps(group)


def thawed(group: bytes) -> GroupState:
    found: GroupState = pickle.loads(group)
    return found
