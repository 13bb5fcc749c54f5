"""The coordinator in random worlds: lost and repeated messages, kills, restarts; and its small
rules.

The stories beside this file (scenarios/) show what happens; here it is shown to hold always.
"""

from __future__ import annotations

import json
import random

import pytest

from paddock.errors import PaddockError
from paddock.ps.group import messages as w
from paddock.ps.group.state import HISTORY, GroupState
from paddock.ps.strategies import STRATEGIES, explain
from ps.group.replay import carried_out


class Trainer:
    """One trainer's process: what a client does. claim: the last step it has arrived at."""

    def __init__(self, number: int, incarnation: int) -> None:
        self.number = number
        self.incarnation = incarnation
        self.done: int | None = None  # None until it is welcome
        self.claim = 0
        self.is_over = False

    def say(self) -> w.Event:
        """What it sends now, or sends again."""
        if self.done is None:
            return w.JoinRequest(self.number, self.incarnation)
        self.claim = self.done + 1
        return w.Arrive(self.number, self.incarnation, self.claim, self.claim // 4)


class World:
    """Trainers, a coordinator, its log, and an unreliable network between them."""

    def __init__(self, seed: int, rules: w.GroupRules) -> None:
        self.rng = random.Random(seed)
        self.rules = rules
        self.group = GroupState(rules)
        self.log: list[w.Record] = []
        self.now = 0.0
        self.incarnations = 100
        self.trainers = {n: self.started(n) for n in range(rules.trainers)}
        self.lives = {(t.number, t.incarnation): t for t in self.trainers.values()}
        self.commits: dict[int, w.StepCommitted] = {}

    def started(self, number: int) -> Trainer:
        self.incarnations += 1
        return Trainer(number, self.incarnations)

    def write(self, record: w.Record) -> None:
        if isinstance(record, w.StepCommitted):
            assert record.step == len(self.commits) + 1
            assert len({number for number, _ in record.members}) == len(record.members)
            for member in record.members:
                assert self.lives[member].claim >= record.step, "it had not arrived"
            before = self.commits.get(record.step - 1, w.StepCommitted(0, ()))
            ended, said = dict(record.ended), dict(before.ended)
            assert ended.keys() >= said.keys() and all(ended[t] >= said[t] for t in said)
            for number, _ in record.members:
                assert ended.get(number, 0) >= record.step // 4, "what it said is lost"
            self.commits[record.step] = record
        op, data = w.record_to_json(record)
        assert w.record_from_json(op, json.loads(json.dumps(data))) == record
        self.log.append(record)

    def tell(self, event: w.Event, *, lossy: bool) -> None:
        for _ in range(1 + (lossy and self.rng.random() < 0.2)):
            replies = carried_out(self.group, event, self.now, self.write)
            for reply in replies:
                if not (lossy and self.rng.random() < 0.3):
                    self.hear(reply)

    def hear(self, reply: w.Reply) -> None:
        assert not isinstance(reply, w.Fail)
        trainer = self.lives[reply.trainer, reply.incarnation]
        is_alive = self.trainers.get(trainer.number) is trainer
        if isinstance(reply, w.RequestRefused):
            assert reply.code in ("fenced", "expelled"), reply
            if is_alive:  # The launcher starts it anew.
                self.kill(trainer.number)
            return
        if reply.commit is not None:
            assert reply.commit == self.commits[reply.commit.step], "two truths"
        if isinstance(reply, w.JoinAccepted):
            trainer.done = reply.step if trainer.done is None else trainer.done
        elif trainer.done is not None and reply.step == trainer.done + 1:
            self.check_release(trainer, reply)
            trainer.done = reply.step

    def check_release(self, trainer: Trainer, reply: w.Release) -> None:
        if self.rules.strategy == "sync":
            assert reply.commit is not None and reply.commit.step == reply.step
        elif self.rules.strategy == "staleness":
            for number, life in self.group.members:
                floor = reply.step - self.rules.staleness
                assert self.lives[number, life].claim >= floor or self.joins(number, floor)

    def joins(self, number: int, floor: int) -> bool:
        """Whether the trainer has not arrived yet, and starts near enough."""
        return self.group._members[number].joined >= floor

    def kill(self, number: int) -> None:
        fresh = self.started(number)
        self.trainers[number] = fresh
        self.lives[number, fresh.incarnation] = fresh

    def restart_chief(self) -> None:
        before = self.group.to_json()
        if self.rng.random() < 0.5:
            self.group = GroupState.from_json(self.rules, json.loads(json.dumps(before)))
        else:
            self.group = GroupState(self.rules)
            for record in self.log:
                self.group.apply(record)
            self.group.forget()
        assert self.group.to_json() == before

    def run(self, turns: int, *, lossy: bool) -> None:
        for _ in range(turns):
            self.now += self.rng.uniform(0, 1)
            chance = self.rng.random()
            if lossy and chance < 0.02:
                self.restart_chief()
            elif lossy and chance < 0.05:
                self.kill(self.rng.choice(list(self.trainers)))
            elif chance < 0.3:
                self.tell(w.Tick(), lossy=lossy)
            elif chance < 0.32 and lossy:
                self.now += self.rng.uniform(0, 30)
            else:
                trainer = self.rng.choice(list(self.trainers.values()))
                self.tell(trainer.say(), lossy=lossy)


RULES = [
    w.GroupRules("sync", trainers=1, silent_seconds=0),
    w.GroupRules("sync", trainers=3, silent_seconds=0),
    w.GroupRules("sync", trainers=3, silent_seconds=8, gather_seconds=20, on_silence="rescale"),
    w.GroupRules("staleness", staleness=0, trainers=2, silent_seconds=0),
    w.GroupRules("staleness", staleness=3, trainers=3, silent_seconds=0),
    w.GroupRules("staleness", staleness=1, trainers=3, silent_seconds=8, on_silence="rescale"),
    w.GroupRules("async", trainers=2, silent_seconds=8, on_silence="rescale"),
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_no_world_breaks_a_promise_or_stops(rules: w.GroupRules) -> None:
    """One truth per step, made of those who arrived; the bound holds; and it always goes on."""
    for seed in range(15):
        world = World(seed, rules)
        world.run(600, lossy=True)
        world.run(200, lossy=False)  # All find their places again.
        before = {n: (t, t.done or 0) for n, t in world.trainers.items()}
        world.run(300, lossy=False)
        for number, (trainer, done) in before.items():
            if rules.on_silence == "fail":
                assert world.trainers[number] is trainer
            if world.trainers[number] is trainer:
                assert (trainer.done or 0) > done, f"seed {seed}: trainer {number} stands still"


def group_of_two() -> GroupState:
    """Two members of sync."""
    group = GroupState(w.GroupRules(trainers=2, on_silence="rescale"))
    for trainer in (0, 1):
        carried_out(group, w.JoinRequest(trainer, 1))
    return group


def test_a_commit_says_who_is_through_with_its_data() -> None:
    """It belongs to the step: all trainers learn it with the same one, and it stays so."""
    group = group_of_two()
    carried_out(group, w.Arrive(0, 1, 1, ended=3))
    replies = carried_out(group, w.Arrive(1, 1, 1))
    assert [reply.commit.ended for reply in replies if isinstance(reply, w.Release)] == [
        ((0, 3),),
        ((0, 3),),
    ]
    carried_out(group, w.Arrive(0, 1, 2))
    carried_out(group, w.Arrive(1, 1, 2, ended=3))
    assert group.last_commit == w.StepCommitted(2, ((0, 1), (1, 1)), ((0, 3), (1, 3)))
    (welcome,) = [
        reply
        for reply in carried_out(group, w.JoinRequest(1, 2))
        if isinstance(reply, w.JoinAccepted)
    ]
    assert welcome.commit == group.last_commit, "who is started again is told"


def test_what_a_trainer_said_before_it_died_in_a_step_is_void() -> None:
    """Its next incarnation does the step anew, and says it again when it is so."""
    group = group_of_two()
    carried_out(group, w.Arrive(0, 1, 1, ended=3))
    carried_out(group, w.JoinRequest(0, 2))
    carried_out(group, w.Arrive(0, 2, 1))
    carried_out(group, w.Arrive(1, 1, 1))
    assert group.last_commit == w.StepCommitted(1, ((0, 2), (1, 1)))


def test_who_is_expelled_stays_through_with_its_data_or_not() -> None:
    """The others go on, and wait for it at the end of a pass as if it were there."""
    group = group_of_two()
    carried_out(group, w.Arrive(0, 1, 1, ended=1))
    carried_out(group, w.Arrive(1, 1, 1))
    group.apply(w.MemberExpelled(0, 1, "silent"))
    restored = GroupState.from_json(group.rules, json.loads(json.dumps(group.to_json())))
    for one in (group, restored):
        carried_out(one, w.Arrive(1, 1, 2, ended=2))
        assert one.last_commit == w.StepCommitted(2, ((1, 1),), ((0, 1), (1, 2)))


def test_only_the_last_commits_are_kept() -> None:
    """The coordinator's state does not grow with the steps."""
    group = GroupState(w.GroupRules(trainers=1))
    carried_out(group, w.JoinRequest(0, 1))
    for step in range(1, 100):
        carried_out(group, w.Arrive(0, 1, step))
    assert group.step == 99
    assert len(group.to_json()["_history"]) == HISTORY
    assert isinstance(group.handle(w.Arrive(0, 1, 99), 0.0)[0], w.Release)
    (no,) = group.handle(w.Arrive(0, 1, 2), 0.0)
    assert isinstance(no, w.RequestRefused)


def test_a_record_that_cannot_be_logged_changes_nothing() -> None:
    """Disk full at a commit: nobody is released; when the trainer asks again it is tried again."""
    group = GroupState(w.GroupRules(trainers=1))
    carried_out(group, w.JoinRequest(0, 1))
    before = group.to_json()

    def full(record: w.Record) -> None:
        raise PaddockError("no space left")

    for _ in range(2):
        with pytest.raises(PaddockError):
            carried_out(group, w.Arrive(0, 1, 1), write=full)
        assert group.to_json() == before
    replies = carried_out(group, w.Arrive(0, 1, 1))
    assert replies == [w.Release(0, 1, 1, w.StepCommitted(1, ((0, 1),)))]


def test_applying_a_record_twice_is_harmless() -> None:
    """A trainer relays a commit that the server has; a replica gets a record again."""
    group = GroupState(w.GroupRules(trainers=2))
    records = [
        w.MemberJoined(0, 1, 0),
        w.MemberJoined(1, 1, 0),
        w.StepCommitted(1, ((0, 1), (1, 1))),
    ]
    records += [w.MemberLeft(1, 1, 1), w.MemberExpelled(0, 1, "silent")]
    for record in records:
        group.apply(record)
        once = group.to_json()
        group.apply(record)
        assert group.to_json() == once


def test_nobody_is_waited_for_at_a_barrier_while_gathering() -> None:
    """A barrier before the others have come would open for the first alone."""
    group = GroupState(w.GroupRules(trainers=2))
    group.apply(w.MemberJoined(0, 1, 0))
    assert group.everyone == ()
    group.apply(w.MemberJoined(1, 1, 0))
    assert group.everyone == (0, 1)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (w.GroupRules("synch"), "'synch' is unknown"),  # type: ignore[arg-type]  # what users type
        (w.GroupRules("staleness", staleness=-1), "staleness is -1"),
        (w.GroupRules("sync", staleness=2), "but strategy is 'sync'"),
        (w.GroupRules(silent_seconds=float("nan")), "silent_seconds is nan"),
        (w.GroupRules(on_silence="wait"), "on_silence is 'wait'"),
    ],
)
def test_wrong_rules_are_told_by_name(rules: w.GroupRules, told: str) -> None:
    """A typing error in a strategy must not become another strategy."""
    (problem,) = w.check_rules(rules)
    assert told in problem.message
    assert problem.hint


def test_every_strategy_is_explained_in_one_sentence() -> None:
    """The user hears what is gained and what is given up."""
    for strategy in STRATEGIES:
        said = explain(strategy, staleness=2)
        assert "you give up" in said
        assert said.endswith(".") and ". " not in said
        assert "{" not in said
    with pytest.raises(PaddockError, match="one of sync"):
        explain("ssp")
