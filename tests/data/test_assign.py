"""Static assignment deals each file to one worker, by the rules users know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.assign import RULES, assign
from paddock.data.chunks import DataFile
from paddock.errors import UsageError


def pieces(*names: str) -> list[DataFile]:
    """Files of 10 bytes."""
    return [DataFile(name, 10) for name in names]


def dealt(found: list[DataFile], workers: int, rule: str) -> list[list[str]]:
    """The names each worker has."""
    return [[piece.path for piece in part] for part in assign(found, workers, rule).parts]


def test_modulo_is_the_number_of_the_name() -> None:
    """The v0.10 rule: suffix % count == id, whatever the order of the list."""
    shards = pieces("d/train.txt-00003", "d/train.txt-00000", "d/train.txt-00001", "x/part-2.gz")
    assert dealt(shards, 2, "modulo") == [
        ["d/train.txt-00000", "x/part-2.gz"],
        ["d/train.txt-00003", "d/train.txt-00001"],
    ]


def test_modulo_without_numbers_goes_by_place() -> None:
    """One name without a number, and all go by their place: numbers and places never mix."""
    assert dealt(pieces("a-1", "b", "c-0"), 2, "modulo") == [["a-1", "c-0"], ["b"]]


def test_blocks_give_the_first_workers_the_rest() -> None:
    """PaddleRec's rule: the sorted list, contiguous, the remainder to the first."""
    assert dealt(pieces("c", "a", "b", "e", "d"), 3, "blocks") == [["a", "b"], ["c", "d"], ["e"]]


def test_size_gives_the_largest_first() -> None:
    """Sizes 7, 5, 4, 4 over two workers: 7 + 4 and 5 + 4."""
    found = [DataFile("a", 4), DataFile("b", 7), DataFile("c", 4), DataFile("d", 5)]
    plan = assign(found, 2, "size")
    assert [plan.bytes_of(worker) for worker in (0, 1)] == [11, 9]
    assert plan.remarks() == []


@given(
    sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=40),
    workers=st.integers(1, 40),
    rule=st.sampled_from(sorted(RULES)),
)
def test_every_plan_is_disjoint_and_complete(sizes: list[int], workers: int, rule: str) -> None:
    """Each file has one worker and each worker a file, or the plan is refused."""
    found = [DataFile(f"part-{number:05d}", size) for number, size in enumerate(sizes)]
    if workers > len(found):
        with pytest.raises(UsageError, match="would have nothing to read"):
            assign(found, workers, rule)
        return
    parts = assign(found, workers, rule).parts
    assert sorted(p.path for part in parts for p in part) == [p.path for p in found]
    assert all(parts)


def test_fewer_files_than_workers_may_be_repeated() -> None:
    """Shared round-robin is a choice, and the plan says so."""
    plan = assign(pieces("a", "b"), 3, repeat=True)
    assert [[piece.path for piece in part] for part in plan.parts] == [["a"], ["b"], ["a"]]
    assert "several workers" in plan.remarks()[0]


def test_numbers_with_gaps_that_starve_a_worker_are_refused() -> None:
    """part-0, part-2 modulo 2 gives worker 1 nothing; it would end at once or hang."""
    with pytest.raises(UsageError, match="no file to worker 1") as caught:
        assign(pieces("part-0", "part-2"), 2, "modulo")
    assert "blocks" in caught.value.hint


def test_an_uneven_plan_is_told() -> None:
    """The slowest worker decides how long a pass takes."""
    plan = assign([DataFile("a", 100), DataFile("b", 1), DataFile("c", 1)], 3)
    assert "worker 0 reads 2.9 times the mean" in plan.remarks()[0]


def test_all_problems_are_told_together() -> None:
    """A wrong rule, no workers, no files, a file twice."""
    with pytest.raises(UsageError) as caught:
        assign(pieces("a", "a"), 0, "modulus")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("rule", RULES)
def test_many_files_are_dealt_in_one_go(rule: str) -> None:
    """Each was compared with each: a hundred thousand took hours."""
    plan = assign([DataFile(f"part-{number}", 1) for number in range(100_000)], 10_000, rule)
    assert [len(part) for part in plan.parts] == [10] * 10_000
