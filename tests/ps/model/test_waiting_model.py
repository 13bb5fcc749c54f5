"""Every order of calls, restarts and lost answers of trainers that wait: nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from paddock.ps.group.barriers import Barriers
from paddock.ps.group.messages import BarrierOpened, Output, Reach, Record, RequestRefused
from paddock.ps.group.state import GroupState
from paddock.ps.wire.errors import Code
from ps.model.explorer import Outcome, searched
from ps.model.waiting import Setting, Waiting

WORLDS_MAX = 20_000
THREE = (("begin", "step", "epoch", "end"),) * 3
UNEVEN = (("step", "last", "end"), ("step", "step", "last", "end"))
# Trainer 1 has more batches than N in each pass: in the first one, and in the second one.
PASSES = (
    ("step", "epoch", "step", "last", "end"),
    ("step", "step", "step", "epoch", "step", "step", "step", "last", "end"),
)
MORE = Setting("staleness", staleness=1, programs=PASSES, restarts=0)
LAST = (("begin", "step", "epoch", "step", "epoch", "step", "last", "end"),) * 2
BEHIND = Setting(
    "staleness", staleness=1, programs=(("step", "step", "last", "end"),) * 2, chief_restarts=1
)
SETTINGS: dict[str, Setting] = {
    **{
        f"{strategy}, {how}": Setting(
            strategy, replays=how == "replays", chief_restarts=1, lost_answers=1
        )
        for strategy in ("sync", "staleness", "async")
        for how in ("goes on", "replays")
    },
    **{
        f"{strategy}, a death": Setting(strategy, deaths=1, restarts=1)
        for strategy in ("sync", "staleness", "async", "half_async", "geo")
    },
    "sync, two are started again": Setting("sync", restarts=2),
    "sync, three trainers": Setting("sync", programs=THREE),
    "staleness=1": BEHIND,
    "uneven batches": Setting("sync", programs=UNEVEN, restarts=0, chief_restarts=1),
    **{
        f"{strategy}, uneven batches": replace(MORE, strategy=strategy, staleness=0)
        for strategy in ("staleness", "async", "half_async", "geo")
    },
    "staleness=1, uneven batches, the coordinator": replace(MORE, chief_restarts=1, lost_answers=1),
    "staleness=1, uneven batches, a trainer": replace(MORE, restarts=1),
    "staleness, three with uneven batches": replace(
        MORE, programs=(*PASSES, ("step", "step", "epoch", "step", "step", "last", "end"))
    ),
}


class OwnTurns(Barriers):
    """A trainer's own count says which turn it is at, as it was before the server counted."""

    def has_passed(self, reach: Reach) -> bool:
        return reach.turn <= self._turns.get(reach.name, 0)

    def complete(self, everyone: Iterable[int]) -> BarrierOpened | None:
        opened = super().complete(everyone)
        if opened is None:
            return None
        lowest = min(turn for _, _, turn in opened.passed)
        passed = tuple(one for one in opened.passed if one[2] <= lowest)
        return replace(opened, turn=lowest, passed=passed)

    def let_late_pass(self) -> list[Reach]:
        return []


class NobodyIsLate(Barriers):
    """A life that came late waits where nobody comes any more."""

    def let_late_pass(self) -> list[Reach]:
        return []


class NoRepeats(Barriers):
    """A question that is asked again is a new one."""

    def has_passed(self, reach: Reach) -> bool:
        return False


class NoClocks(GroupState):
    """Who waits at a barrier does not say how many steps it has done."""

    def _reach(self, event: Reach, now: float) -> list[Output]:
        outputs = super()._reach(event, now)
        self._clocks.pop(event.trainer, None)
        return outputs


class AllHoldBack(GroupState):
    """Who waits at a barrier counts among the slowest."""

    def _rests(self, trainer: int) -> bool:
        return False


class NobodyIsLevel(GroupState):
    """Who had fewer batches before a barrier is as far behind after it."""

    def apply(self, record: Record) -> list[Output]:
        outputs = super().apply(record)
        self._leads.clear()
        return outputs


class NobodyHoldsBack(GroupState):
    """Who computes does not count among the slowest."""

    def _rests(self, trainer: int) -> bool:
        return trainer not in self._waiting


class OnlyStepsHear(GroupState):
    """A failure is told to those that wait in step()."""

    def _refuse_all(self, code: Code, reason: str) -> list[Output]:
        deaf = set(self.barriers.waiting)
        told = super()._refuse_all(code, reason)
        return [one for one in told if isinstance(one, RequestRefused) and one.trainer not in deaf]


class NobodyLooks(GroupState):
    """That all wait for one another is no reason to say so."""

    def _tick_stuck(self, seconds: float) -> list[Output]:
        return []


MUTATIONS: dict[str, Setting] = {
    "turns of the trainers' own, sync": Setting("sync", barriers=OwnTurns),
    "turns of the trainers' own, staleness": Setting("staleness", programs=LAST, barriers=OwnTurns),
    "late ones wait, sync": Setting("sync", barriers=NobodyIsLate),
    "late ones wait, async": Setting("async", barriers=NobodyIsLate),
    "repeats are new": Setting("sync", barriers=NoRepeats, restarts=0, lost_answers=1),
    "clocks are not said": replace(BEHIND, group=NoClocks),
    "all hold back": replace(MORE, group=AllHoldBack),
    "nobody holds back": replace(MORE, group=NobodyHoldsBack),
    "nobody is level": replace(MORE, group=NobodyIsLevel),
    "only steps hear of a failure": Setting("sync", group=OnlyStepsHear, restarts=0, deaths=1),
    "in async nobody is lost": Setting("async", silent_seconds=0, restarts=0, deaths=1),
    "nobody looks who waits": replace(SETTINGS["uneven batches"], group=NobodyLooks),
}


def search(setting: Setting) -> Outcome:
    """All worlds of a setting."""
    model = Waiting(setting)
    return searched(
        model.first(), model.after, lambda world, _: model.complaint(world), worlds_max=WORLDS_MAX
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_whoever_waits_goes_on_or_is_told(name: str) -> None:
    """The real rules: every world within bounds is looked at, and none is at rest for ever."""
    outcome = search(SETTINGS[name])
    assert outcome.complaint == "", (outcome.complaint, outcome.trace)
    assert outcome.is_whole


@pytest.mark.parametrize("rule", MUTATIONS)
def test_the_search_finds_what_each_rule_of_waiting_prevents(rule: str) -> None:
    """With one rule as it was before, somebody waits for ever or is refused without a reason."""
    outcome = search(MUTATIONS[rule])
    assert outcome.complaint != "", f"not found in {outcome.worlds} worlds"
