"""Dedupe windows: what is applied once stays applied once, over repeats, restarts and gaps."""

from __future__ import annotations

import json
import random

import pytest

from paddock.ps.wire.windows import AHEAD_MAX, SequenceStatus, Windows


def test_a_repeat_is_told_from_a_new_push() -> None:
    """A lost acknowledgement makes the trainer send again; that must not train twice."""
    windows = Windows()
    assert windows.mark_applied(3, 10, 1) is SequenceStatus.FRESH
    assert windows.check(3, 10, 1) is SequenceStatus.REPEAT
    assert windows.mark_applied(3, 10, 1) is SequenceStatus.REPEAT
    assert windows.check(3, 10, 2) is SequenceStatus.FRESH


def test_pushes_may_come_out_of_order() -> None:
    """Two connections of one trainer overtake one another."""
    windows = Windows()
    for sequence in (3, 1, 2, 5):
        assert windows.mark_applied(0, 1, sequence) is SequenceStatus.FRESH
    assert windows.to_json()["0"][1] == 3
    assert windows.check(0, 1, 5) is SequenceStatus.REPEAT
    assert windows.check(0, 1, 4) is SequenceStatus.FRESH


def test_a_gap_is_bounded_not_remembered_for_ever() -> None:
    """A trainer that skips a number must not make the server keep all later ones."""
    windows = Windows()
    for sequence in range(2, AHEAD_MAX + 2):
        windows.mark_applied(0, 1, sequence)
    last = AHEAD_MAX + 1
    assert windows.mark_applied(0, 1, last) is SequenceStatus.TOO_FAR
    assert len(windows.to_json()["0"][2]) == AHEAD_MAX - 1
    windows.mark_applied(0, 1, 1)
    assert windows.to_json()["0"][1] == AHEAD_MAX
    assert windows.check(0, 1, last) is SequenceStatus.FRESH


def test_a_newer_incarnation_fences_the_older() -> None:
    """Of two processes that call themselves trainer 0, the older one's late frames are void."""
    windows = Windows()
    windows.mark_applied(0, 5, 1)
    assert windows.mark_applied(0, 6, 1) is SequenceStatus.FRESH
    assert windows.check(0, 5, 2) is SequenceStatus.STALE
    assert windows.mark_applied(0, 5, 2) is SequenceStatus.STALE
    assert windows.to_json()["0"][1] == 1
    assert windows.to_json()["0"][0] == 6


def test_joining_fences_before_the_first_push() -> None:
    """A join alone must keep the dead process's frames, still in some buffer, from applying."""
    windows = Windows()
    windows.mark_applied(0, 5, 1)
    assert windows.fence(0, 6)
    assert windows.check(0, 5, 2) is SequenceStatus.STALE
    assert not windows.fence(0, 6)
    assert not windows.fence(0, 4)


def test_a_check_changes_nothing_at_all() -> None:
    """A frame that is refused after the check must leave no trace."""
    windows = Windows()
    windows.mark_applied(0, 5, 1)
    before = windows.to_json()
    for incarnation in (4, 5, 6):
        for sequence in (1, 2, 9, 10**9):
            windows.check(0, incarnation, sequence)
            windows.check(7, incarnation, sequence)
    assert windows.to_json() == before


@pytest.mark.parametrize("seed", range(20))
def test_any_traffic_applies_each_push_exactly_once(seed: int) -> None:
    """Duplicates, reorderings and snapshots at random points: each sequence is FRESH once."""
    rng = random.Random(seed)
    windows = Windows()
    waiting = [s for s in range(1, 200) for _ in range(rng.randint(1, 3))]
    waiting.sort(key=lambda s: s + rng.uniform(0, 30))
    applied = []
    for sequence in waiting:
        if windows.mark_applied(1, 1, sequence) is SequenceStatus.FRESH:
            applied.append(sequence)
        if rng.random() < 0.1:
            windows = Windows.from_json(json.loads(json.dumps(windows.to_json())))
    assert sorted(applied) == list(range(1, 200))
    assert windows.to_json() == {"1": [1, 199, []]}
