"""Barriers open once for all, over lost answers and restarts; positions survive half a step."""

from __future__ import annotations

import json

import pytest

from paddock.ps.consistency.barriers import (
    BARRIERS_MAX,
    POSITIONS_KEPT,
    Barriers,
    Opened,
    Positions,
    position_objection,
)


def test_a_barrier_opens_when_all_have_reached_it() -> None:
    """Nobody goes on before; everybody hears of it."""
    barriers = Barriers()
    assert barriers.reach("a", 1, 0, (0, 1, 2)) is None
    assert barriers.reach("a", 1, 2, (0, 1, 2)) is None
    assert barriers.reach("a", 1, 2, (0, 1, 2)) is None
    opened = barriers.reach("a", 1, 1, (0, 1, 2))
    assert opened == Opened("a", 1)
    assert not barriers.is_open("a", 1), "not before it is logged"
    assert barriers.apply(opened) == [0, 1, 2]
    assert barriers.is_open("a", 1)
    assert not barriers.is_open("a", 2)


def test_a_lost_answer_is_given_again_after_a_restart() -> None:
    """The others are gone on and will never come back to this turn."""
    barriers = Barriers()
    barriers.reach("a", 1, 0, (0, 1))
    opened = barriers.reach("a", 1, 1, (0, 1))
    assert opened is not None
    barriers.apply(opened)
    barriers = Barriers.from_json(json.loads(json.dumps(barriers.to_json())))
    assert barriers.is_open("a", 1)
    assert barriers.reach("a", 1, 1, (0, 1)) is None


def test_a_barrier_does_not_wait_for_those_who_left() -> None:
    """The last one to be waited for is expelled: the others go on."""
    barriers = Barriers()
    barriers.reach("a", 1, 0, (0, 1))
    assert barriers.recheck((0, 1)) == []
    barriers.withdraw(1)
    assert barriers.recheck((0,)) == [Opened("a", 1)]


def test_a_dead_trainer_does_not_wait_at_a_barrier() -> None:
    """Its next life has to come there itself."""
    barriers = Barriers()
    barriers.reach("a", 1, 1, (0, 1))
    barriers.withdraw(1)
    assert barriers.reach("a", 1, 0, (0, 1)) is None
    assert barriers.reach("a", 1, 1, (0, 1)) == Opened("a", 1)


def test_nothing_opens_while_there_are_no_members() -> None:
    """The first trainer must not pass alone before the second has joined."""
    barriers = Barriers()
    assert barriers.reach("a", 1, 0, ()) is None
    assert barriers.recheck(()) == []
    assert barriers.recheck((0,)) == [Opened("a", 1)]


def test_a_restarted_trainer_catches_up() -> None:
    """It counts its turns from 1 and must not wait for what is long open."""
    barriers = Barriers()
    barriers.apply(Opened("a", 3))
    assert [barriers.is_open("a", turn) for turn in (1, 2, 3, 4)] == [True, True, True, False]


@pytest.mark.parametrize(("name", "turn"), [("", 1), ("x" * 201, 1), ("a", 0)])
def test_a_nonsensical_barrier_is_refused(name: str, turn: int) -> None:
    """An empty name is a client's mistake, not a barrier."""
    no = Barriers().objection(name, turn)
    assert no is not None and no.code == "usage"


def test_names_cannot_be_made_without_end() -> None:
    """barrier(f"batch {i}") would fill the server's memory."""
    barriers = Barriers()
    for i in range(BARRIERS_MAX):
        barriers.apply(Opened(f"b{i}", 1))
    assert barriers.objection("b0", 2) is None
    no = barriers.objection("one more", 1)
    assert no is not None and "1000 names" in no.message


def test_a_position_of_an_uncommitted_step_does_not_count() -> None:
    """A trainer dies in step 8: its next life reads the batch of step 8 again."""
    positions = Positions()
    for step in (6, 7, 8):
        positions.note(0, step, {"offset": 10 * step})
    positions = Positions.from_json(json.loads(json.dumps(positions.to_json())))
    assert positions.at(0, committed=7) == {"offset": 70}
    positions.note(0, 8, {"offset": 81})
    assert positions.at(0, committed=8) == {"offset": 81}
    assert positions.at(1, committed=8) is None


def test_positions_do_not_grow_with_steps() -> None:
    """A snapshot holds a few per trainer."""
    positions = Positions()
    for step in range(100):
        positions.note(0, step, step)
    assert len(positions.to_json()["0"]) == POSITIONS_KEPT
    assert positions.at(0, committed=98) == 98


def test_a_trainer_that_counts_anew_is_believed() -> None:
    """Under async a restarted trainer's steps begin again; its last word is what counts."""
    positions = Positions()
    positions.note(0, 500, "far")
    positions.note(0, 1, "again")
    assert positions.at(0) == "again"


@pytest.mark.parametrize("bad", [{"offset": float("nan")}, {1, 2}, "x" * 5000])
def test_a_position_that_is_no_small_json_is_refused(bad: object) -> None:
    """It would make the log or the snapshot unreadable, or large."""
    assert position_objection(bad) is not None
