"""Every order of phases, deaths, late and lost frames of a move: one owner, and each push once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.ps.shards.ownership import (
    PHASES,
    IncomingShard,
    MigrationStatus,
    OutgoingShard,
    ShardOwnership,
    Shards,
)
from paddock.ps.wire.frames import Header
from ps.model.explorer import Outcome, searched
from ps.model.moving import Moving, Setting, World

WORLDS_MAX = 12_000
HEAL_EVERY = 5
COPIED = ("0 is to give", "copy", "1 gets part 0 of 0")
SENT = (*COPIED, "freeze", "rest", "1 gets part 1 of 0")
GIVEN = (*SENT, "move")
OWNED = (*GIVEN, "own", "1 gets own 0, in silence", "0 is done")
AGAIN = ("0 is to give", "copy", "0 gives up", "0 is to give", "copy")
ONE = Setting(orders=1, pushes=1, deaf=0)
POWER = replace(ONE, power=True, deaths=2)
LATE = (*AGAIN, "1 gets part 0 of 1", "freeze", "rest", "1 gets part 1 of 1")
SETTINGS: dict[str, Setting] = {
    "from the start": Setting(deaths=2),
    "in parts": Setting(cuts=3, pushes=1),
    "no deaths, lost answers": Setting(deaths=0, deaf=2, pushes=3),
    "deaths while it is sent": Setting(script=COPIED, deaths=2),
    "deaths when it is given": Setting(script=GIVEN, deaths=2),
    "an attempt after another": Setting(script=AGAIN),
    "late frames of another attempt": Setting(script=(*LATE, "move"), deaths=2),
    "there and back": Setting(script=OWNED, orders=3, records=10),
    "power cuts": POWER,
    "power cuts when it was sent": replace(POWER, script=SENT),
    "power cuts when it is given": replace(POWER, script=GIVEN),
}


class OpenFreeze(ShardOwnership):
    """Pushes to a frozen shard go on."""

    def check_push(self, header: Header, shards: Shards) -> None:
        self.check_pull(shards)


class NoCheck(ShardOwnership):
    """What is not frozen, or of another attempt, is given."""

    def check_give(self, shard: int, version: int) -> None:
        return


class Replaced(ShardOwnership):
    """The first part of any attempt replaces what came of another."""

    def check_part(self, shard: int, version: int, part: int) -> None:
        one = self.incoming.get(shard)
        if one is None or one.version == version or part:
            super().check_part(shard, version, part)

    def receive(
        self, shard: int, arrival: IncomingShard, data: bytes, *, adds: bool, ends: bool
    ) -> None:
        if shard in self.incoming and self.incoming[shard].version != arrival.version:
            del self.incoming[shard]
        super().receive(shard, arrival, data, adds=adds, ends=ends)


class NeverComing(ShardOwnership):
    """An attempt that goes on is taken for one that is over."""

    def migration_status(self, shard: int, to: object, version: object) -> MigrationStatus:
        found = super().migration_status(shard, to, version)
        return "gone" if found == "coming" else found


class GivenSoon(ShardOwnership):
    """An attempt that goes on is taken for one that was carried out."""

    def migration_status(self, shard: int, to: object, version: object) -> MigrationStatus:
        found = super().migration_status(shard, to, version)
        return "given" if found == "coming" else found


class OneVersion(ShardOwnership):
    """All attempts have the same version."""

    def leave(self, shard: int, to: int, nonce: int) -> int:
        return super().leave(shard, to, 0)


class AnyOrder(ShardOwnership):
    """A part that does not follow is taken."""

    def check_part(self, shard: int, version: int, part: int) -> None:
        return


class ToldSoon(ShardOwnership):
    """Trainers are told of the new owner before MOVE is on the disk."""

    def give(self, shard: int, to: int, version: int) -> None:
        super().give(shard, to, version)
        self.leaving.pop(shard, None)

    @property
    def leaving(self) -> dict[int, OutgoingShard]:
        """Of those that are here."""
        return {s: one for s, one in self.attempts.items() if s in self.owned}

    @leaving.setter
    def leaving(self, found: dict[int, OutgoingShard]) -> None:
        self.attempts = found


MUTATIONS: dict[str, Setting] = {
    "pushes go on while it is frozen": Setting(ownership=OpenFreeze, script=COPIED),
    "it is not frozen": Setting(ownership=NoCheck, phases=("copy", "rest", "move", "own")),
    "the rest is left out": Setting(phases=("copy", "freeze", "move", "own")),
    "own comes before move": replace(
        ONE, phases=("copy", "freeze", "rest", "own", "move"), script=SENT
    ),
    "a late part replaces what came": Setting(ownership=Replaced, script=(*LATE, "move")),
    "what goes on is forgotten": Setting(ownership=NeverComing, script=COPIED),
    "what goes on is owned": Setting(ownership=GivenSoon),
    "attempts have one version": Setting(ownership=OneVersion),
    "parts come in any order": Setting(ownership=AnyOrder, cuts=2),
    "nobody asks": Setting(asks=False, script=COPIED),
    "the giver's disk may lack its move": replace(POWER, keeps=(False, True), script=GIVEN),
    "the taker's disk may lack what came": replace(POWER, keeps=(True, False), script=GIVEN),
    "trainers hear of a move that may be lost": replace(POWER, ownership=ToldSoon, script=GIVEN),
}


def search(setting: Setting) -> Outcome:
    """Worlds of a setting, breadth first; every fifth must come to rest when left alone."""
    model = Moving(setting)

    def judge(world: World, count: int) -> str:
        return model.complaint(world) or (model.healed(world) if count % HEAL_EVERY == 0 else "")

    return searched(model.first(), model.after, judge, worlds_max=WORLDS_MAX)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_shard_has_one_owner_and_each_push_once(name: str) -> None:
    """The real rules and phases: nothing is wrong in the worlds that were looked at."""
    outcome = search(SETTINGS[name])
    assert outcome.complaint == "", (outcome.complaint, outcome.trace)
    assert outcome.is_whole or outcome.worlds >= WORLDS_MAX


@pytest.mark.parametrize("rule", MUTATIONS)
def test_the_search_finds_what_each_rule_of_moves_prevents(rule: str) -> None:
    """With one rule switched off a shard has two owners or none, or a push is lost or doubled."""
    outcome = search(MUTATIONS[rule])
    assert outcome.complaint != "", f"not found in {outcome.worlds} worlds"


def test_the_phases_are_those_that_the_model_knows() -> None:
    """A new phase must be put into the model."""
    assert PHASES == ("copy", "freeze", "rest", "move", "own")
