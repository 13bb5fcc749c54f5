"""Batches are joined, cut and ordered as lists of examples would be."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.batch import Bag, Batch, join, matrix, take
from paddock.data.formats.slots import SlotFormat
from paddock.errors import UsageError

FORM = SlotFormat(("y", "a", "b"), (("x", 1),))
Example = tuple[int, list[int], int]
EXAMPLES = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 9), max_size=3), st.just(4))
)


def batch_of(examples: list[Example]) -> Batch:
    """A block with these examples: `a` is a bag where any has several."""
    lines = (
        f"y:{label} x:{b} b:{b} " + " ".join(f"a:{i}" for i in ids) for label, ids, b in examples
    )
    return FORM.parse("\n".join(lines).encode()).batch


def examples_of(batch: Batch) -> list[Example]:
    """The examples of a batch, the padding as it stands there."""
    column = batch.ids["a"]
    if isinstance(column, Bag):
        ends = np.cumsum(column.lengths).tolist()
        spans = zip([0, *ends], ends, strict=False)
        rows = [column.values[begin:end].tolist() for begin, end in spans]
    else:
        rows = [[int(i)] for i in column]
    assert batch.dense["x"].shape == (batch.size, 1)
    others = batch.ids["b"]
    assert isinstance(others, np.ndarray)
    return list(zip(map(int, batch.label), rows, map(int, others), strict=True))


@settings(max_examples=150, deadline=None)
@given(st.lists(EXAMPLES, min_size=1, max_size=4), st.integers(0, 12), st.integers(0, 12))
def test_joining_cutting_ordering_and_sending_is_as_with_lists(
    blocks: list[list[Example]], start: int, length: int
) -> None:
    """Whatever blocks have one id in each example, and others several."""
    expected = [(y, ids or [0], b) for block in blocks for y, ids, b in block]
    whole = join([batch_of(block) for block in blocks])
    assert whole.size == len(expected)
    if not expected:
        return
    assert examples_of(whole) == expected
    start = min(start, len(expected))
    part = whole[start : start + length]
    assert examples_of(part) == expected[start : start + length]
    order = np.random.default_rng(1).permutation(len(expected))
    assert examples_of(take(whole, order)) == [expected[i] for i in order]
    sent = pickle.loads(pickle.dumps(part))
    assert examples_of(sent) == expected[start : start + length]
    assert matrix(sent, ["b"]).base is not None


def test_slots_in_another_order_or_of_different_origin_are_copied() -> None:
    """What is not side by side in memory is put there."""
    batch = batch_of([(1, [5], 4), (0, [6], 4)])
    assert matrix(batch, ["b", "a"]).tolist() == [[4, 5], [4, 6]]
    apart = Batch(2, {"p": np.array([1, 2]), "q": np.array([[3, 4], [5, 6]])})
    assert matrix(apart, ["p", "q"]).tolist() == [[1, 3, 4], [2, 5, 6]]


def test_a_slot_without_one_id_in_each_example_is_refused() -> None:
    """A model of one id for each slot, and data with several; or a slot that is not there."""
    batch = batch_of([(1, [5, 6], 4)])
    with pytest.raises(UsageError, match="'a' has several ids"):
        matrix(batch, ["a"])
    with pytest.raises(UsageError, match="'c' is not in the data"):
        matrix(batch, ["c"])
