"""Where a trainer's data goes on, after half a step, a crash or a load; what is left out then."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from paddock.errors import PaddockError
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.offsets import (
    OFFSETS_KEPT,
    OffsetMark,
    OffsetProgress,
    TrainerOffsets,
    check_offset,
    is_exact,
    lowest,
)
from paddock.ps.wire.values import value_from


def test_a_position_of_an_uncommitted_step_does_not_count() -> None:
    """A trainer dies in step 8: its next life reads the batch of step 8 again."""
    positions = TrainerOffsets()
    for step in (6, 7, 8):
        positions.note(0, step, {"offset": 10 * step})
    positions = value_from(TrainerOffsets, json.loads(json.dumps(asdict(positions))))
    assert positions.at(0, committed=7) == {"offset": 70}
    positions.note(0, 8, {"offset": 81})
    assert positions.at(0, committed=8) == {"offset": 81}
    assert positions.at(1, committed=8) is None


def test_positions_do_not_grow_with_steps() -> None:
    """A snapshot holds a few per trainer."""
    positions = TrainerOffsets()
    for step in range(100):
        positions.note(0, step, step)
    assert len(asdict(positions)["_notes"][0]) == OFFSETS_KEPT
    assert positions.at(0, committed=98) == 98


def test_a_trainer_that_counts_anew_is_believed() -> None:
    """Under async a restarted trainer's steps begin again; its last word is what counts."""
    positions = TrainerOffsets()
    positions.note(0, 500, "far")
    positions.note(0, 1, "again")
    assert positions.at(0) == "again"


@pytest.mark.parametrize("bad", [{"offset": float("nan")}, {1, 2}, "x" * 5000])
def test_a_position_that_is_no_small_json_is_refused(bad: object) -> None:
    """It would make the log or the snapshot unreadable, or large."""
    with pytest.raises(RequestError, match="a data position"):
        check_offset(bad)


def test_pushes_are_counted_from_the_newest_position_on() -> None:
    """Those of a life that does not count make the number 0: better twice than never."""
    positions = TrainerOffsets()
    positions.count(0, 0)
    assert positions.marks(None) == {}
    positions.count(0, 1)
    positions.note(0, 1, "a")
    positions.count(0, 1)
    positions.count(0, 2)
    positions = value_from(TrainerOffsets, json.loads(json.dumps(asdict(positions))))
    assert positions.mark(0) == OffsetMark(1, "a", 2)
    positions.count(0, 0)
    assert positions.mark(0) == OffsetMark(1, "a", 0)


def test_after_a_move_nothing_is_counted_until_the_next_position() -> None:
    """Frames are cut by the owners of shards."""
    positions = TrainerOffsets()
    positions.note(0, 1, "a")
    positions.lose_count()
    positions.count(0, 5)
    assert positions.mark(0) == OffsetMark(1, "a", 0)
    positions.note(0, 2, "b")
    positions.count(0, 1)
    assert positions.mark(0) == OffsetMark(2, "b", 1)


def test_a_trainer_that_ended_well_without_a_position_begins_anew() -> None:
    """The next job on these servers is not its next life."""
    positions = TrainerOffsets()
    positions.count(0, 7)
    positions.close(0)
    assert positions.mark(0) == OffsetMark()
    positions.note(0, 1, "a")
    positions.count(0, 7)
    positions.close(0)
    assert positions.mark(0) == OffsetMark(1, "a", 7)


def test_the_next_life_leaves_out_what_each_server_has() -> None:
    """It goes on from the lowest position; a server that is ahead gets nothing before its own."""
    progress = OffsetProgress(3)
    assert (
        progress.begin([OffsetMark(1, "a", 2), OffsetMark(2, "b", 1), OffsetMark(1, "a", 0)]) == "a"
    )
    assert [progress.next_frame(0) for _ in range(4)] == [None, None, 3, 4]
    assert [progress.next_frame(1) for _ in range(4)] == [None] * 4
    assert progress.next_frame(2) == 1
    assert progress.note("b") == [0, 2]
    assert [progress.next_frame(1) for _ in range(2)] == [None, 2]
    assert progress.note("c") == [0, 1, 2]


def test_other_batches_than_before_are_refused() -> None:
    """Leaving out the pushes of the batches before would lose these."""
    progress = OffsetProgress(2)
    progress.begin([OffsetMark(1, "a"), OffsetMark(2, "b")])
    with pytest.raises(
        PaddockError, match="position 2 of this trainer is 'x', in its previous incarnation"
    ):
        progress.note("x")


def test_which_servers_can_go_on_exactly() -> None:
    """As many as saved; others when all were at one position, and nothing was pushed since."""
    even, ahead = {"0": OffsetMark(1, "a")}, {"0": OffsetMark(2, "b")}
    assert lowest([ahead, even]) == even
    assert is_exact([even, even], 3)
    assert not is_exact([even, ahead], 3)
    assert not is_exact([{"0": OffsetMark(1, "a", 3)}] * 2, 3)
    assert is_exact([even, ahead], 2)
    assert is_exact([{"0": OffsetMark(0, "of sync")}, {}], 3)
