"""Barriers open once for all, over lost answers and restarts."""

from __future__ import annotations

import json
from dataclasses import asdict

from paddock.ps.group.barriers import BARRIERS_MAX, Barriers
from paddock.ps.group.messages import BarrierOpened, Reach
from paddock.ps.wire.values import value_from


def waiting(barriers: Barriers, *trainers: int, name: str = "a", turn: int = 1) -> None:
    """Trainers wait at a barrier, each in its first life."""
    for trainer in trainers:
        barriers.waiting[trainer] = Reach(trainer, 1, 0, name, turn)


def test_a_barrier_opens_when_all_have_reached_it() -> None:
    """Nobody goes on before; everybody hears of it."""
    barriers = Barriers()
    waiting(barriers, 0, 2)
    assert barriers.complete((0, 1, 2)) is None
    waiting(barriers, 1, name="b")
    assert barriers.complete((0, 1, 2)) is None, "at another one"
    waiting(barriers, 1)
    opened = barriers.complete((0, 1, 2))
    assert opened == BarrierOpened("a", 1, ((0, 1, 1), (1, 1, 1), (2, 1, 1)))
    assert not barriers.has_passed(barriers.waiting[0]), "not before it is logged"
    barriers.apply(opened)
    assert barriers.waiting == {}


def test_a_lost_answer_is_given_again_after_a_restart() -> None:
    """The others are gone on and will never come back to this turn."""
    barriers = Barriers()
    barriers.apply(BarrierOpened("a", 1, ((0, 1, 1), (1, 1, 1))))
    barriers = value_from(Barriers, json.loads(json.dumps(asdict(barriers))))
    assert barriers.has_passed(Reach(1, 1, 0, "a", 1))
    assert not barriers.has_passed(Reach(1, 1, 0, "a", 2))
    assert not barriers.has_passed(Reach(1, 2, 0, "a", 1)), "another life"


def test_nothing_opens_while_there_are_no_members() -> None:
    """The first trainer must not pass alone before the second has joined."""
    barriers = Barriers()
    waiting(barriers, 0)
    assert barriers.complete(()) is None
    assert barriers.complete((0,)) is not None


def test_a_life_that_came_late_meets_who_waits_and_passes_what_is_past() -> None:
    """It has done no batch; "b" is new to all, "a" has opened; somebody waits at "c"."""
    barriers = Barriers()
    for name in ("a", "c"):
        barriers.apply(BarrierOpened(name, 3, ()))
    waiting(barriers, 0, name="c", turn=4)
    for name, passes in (("a", True), ("b", False), ("c", False)):
        barriers.waiting[1] = Reach(1, 2, 0, name, 1, is_fresh=True)
        assert [reach.trainer for reach in barriers.let_late_pass()] == [1] * passes
        barriers.waiting[1] = Reach(1, 2, 0, name, 4, is_fresh=True)
        assert barriers.let_late_pass() == [], "oftener than it has opened"
        barriers.waiting[1] = Reach(1, 2, 0, name, 1)
        assert barriers.let_late_pass() == [], "in the middle of its work"


def test_trainers_that_count_themselves_go_on_counting_with_new_servers() -> None:
    """A checkpoint brings them to epoch 7; who comes late to it afterwards passes."""
    barriers = Barriers()
    for trainer in (0, 1):
        barriers.waiting[trainer] = Reach(trainer, 1, 0, "epoch", 7, is_counted=True)
    opened = barriers.complete((0, 1))
    assert opened is not None and opened.turn == 7
    barriers.apply(opened)
    for turn, passes in ((7, True), (8, False)):
        barriers.waiting[1] = Reach(1, 2, 0, "epoch", turn, is_fresh=True, is_counted=True)
        assert bool(barriers.let_late_pass()) == passes


def test_names_cannot_be_made_without_end() -> None:
    """barrier(f"batch {i}") would fill the server's memory."""
    barriers = Barriers()
    for i in range(BARRIERS_MAX):
        barriers.apply(BarrierOpened(f"b{i}", 1, ()))
    assert not barriers.is_one_too_many("b0")
    assert barriers.is_one_too_many("one more")
