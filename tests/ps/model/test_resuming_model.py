"""Every moment at which a trainer may die, or a checkpoint be cut: each push is applied once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paddock.ps.wire.offsets import OffsetMark, OffsetProgress, TrainerOffsets
from ps.model.explorer import Outcome, searched
from ps.model.resuming import Resuming, Setting

WORLDS_MAX = 60_000
SETTINGS = {"two deaths": Setting(), "a checkpoint": Setting(((0, 1), (1, 0)), deaths=0, loads=1)}


class FromTheHighest(OffsetProgress):
    """It goes on where one server is, not where all are."""

    def begin(self, marks: Sequence[OffsetMark], *, again: bool = True) -> Any:
        super().begin(marks, again=again)
        highest = max(marks, key=lambda mark: mark.number)
        self.number = highest.number
        return highest.position


class SendsAll(OffsetProgress):
    """What servers have is sent once more."""

    def next_frame(self, server: int) -> int | None:
        super().next_frame(server)
        return self._frames[server]


class OnlyPositions(OffsetProgress):
    """Pushes since the last position are not looked at."""

    def begin(self, marks: Sequence[OffsetMark], *, again: bool = True) -> Any:
        return super().begin([mark._replace(frames=0) for mark in marks], again=again)


class ServerZeroKnows(OffsetProgress):
    """A position is told to one server, as it was before."""

    def note(self, position: Any) -> list[int]:
        return [server for server in super().note(position) if server == 0]


class ToldAgain(OffsetProgress):
    """A server that is ahead hears of the position again, and forgets what it has since then."""

    def note(self, position: Any) -> list[int]:
        super().note(position)
        return list(range(len(self._has)))


class GoesOnCounting(TrainerOffsets):
    """A position does not begin the count of pushes anew."""

    def note(self, trainer: int, number: int, position: Any) -> None:
        frames = self._frames.get(trainer)
        super().note(trainer, number, position)
        if frames is not None:
            self._frames[trainer] = frames


MUTATIONS = {
    "goes on from the highest position": Setting(progress=FromTheHighest),
    "sends all again": Setting(progress=SendsAll),
    "looks at positions only": Setting(progress=OnlyPositions),
    "one server has the positions": Setting(progress=ServerZeroKnows),
    "positions are told again": Setting(progress=ToldAgain),
    "servers go on counting": Setting(positions=GoesOnCounting),
    "the life before is not fenced": Setting(fences=False),
    "positions are saved before rows": Setting(deaths=0, loads=1, cuts_at_once=False),
}


def search(setting: Setting) -> Outcome:
    """All worlds of a setting."""
    model = Resuming(setting)
    return searched(
        model.first(), model.after, lambda world, _: model.complaint(world), worlds_max=WORLDS_MAX
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_each_push_is_applied_once(name: str) -> None:
    """The real rules: every world within bounds is looked at."""
    outcome = search(SETTINGS[name])
    assert outcome.complaint == "", (outcome.complaint, outcome.trace)
    assert outcome.is_whole, outcome.worlds


@pytest.mark.parametrize("rule", MUTATIONS)
def test_the_search_finds_what_each_rule_of_positions_prevents(rule: str) -> None:
    """With one rule left out, a push is lost or applied twice."""
    outcome = search(MUTATIONS[rule])
    assert outcome.complaint != "", f"not found in {outcome.worlds} worlds"
