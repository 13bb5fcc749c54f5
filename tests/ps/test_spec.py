"""Specs that are refused: told with every problem, and in no time."""

from __future__ import annotations

import json

import pytest

from paddock.errors import UsageError
from paddock.ps.spec import (
    DenseSpec,
    OptimizerSpec,
    ScheduleSpec,
    SparseSpec,
    check_spec,
    from_json,
)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('"size": 10, "parts": [-1, 11]', "2 parts have 10 elements of 10"),
        ('"size": Infinity', "size is inf"),
        ('"size": 10, "parts": [Infinity]', "parts is (inf,)"),
        ('"size": "10"', "size is '10'"),
        ('"size": -1', "size is -1"),
    ],
)
def test_a_dense_spec_of_impossible_lengths_is_refused(given: str, told: str) -> None:
    """Its shards were counted before its lengths were looked at: the first three took for ever."""
    with pytest.raises(UsageError) as caught:
        from_json(json.loads(f'{{"kind": "dense", "name": "w", {given}}}'))
    assert any(told in problem.message for problem in caught.value.problems)


def test_every_problem_is_told_with_its_place() -> None:
    """Of the inner specs too, and of values that do not fit together."""
    schedule = ScheduleSpec("piecewise", every=0, boundaries=(5,), values=(1.0,))
    found = check_spec(SparseSpec("t", 0, OptimizerSpec(lr=-1.0, schedule=schedule), shards=3))
    assert [problem.message for problem in found] == [
        "table 't': dim is 0",
        "table 't': optimizer: lr is -1.0",
        "table 't': optimizer: schedule: every is 0",
        "table 't': optimizer: schedule: values is (1.0,)",
        "table 't': shards is 3",
    ]
    assert all(problem.hint for problem in found)


def test_a_whole_spec_has_no_problem() -> None:
    """Parts, an empty one among them, and shards that come of them."""
    spec = DenseSpec("w", 1 << 20, parts=(1 << 20, 0))
    assert (check_spec(spec), spec.shards) == ([], 16)
