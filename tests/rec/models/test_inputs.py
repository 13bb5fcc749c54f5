"""Columns of a batch as models read them."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.data.batch import Bag, Batch
from paddock.errors import UsageError
from paddock.rec.models.inputs import Hyper, dense_of, fields_of, sequence_of

A = np.array([1, 2, 3])
B = Bag(np.array([10, 11, 20, 21, 22]), np.array([2, 0, 3]))


def test_slots_of_one_id_are_a_matrix() -> None:
    """What look-ups are fastest with; the Criteo reader gives it as it is."""
    found = fields_of(Batch(3, {"1": A, "2": A * 10}), 2)
    assert found.lengths is None
    assert found.values.tolist() == [[1, 10], [2, 20], [3, 30]]
    sole = fields_of(Batch(3, {"C": found.values}), 2)
    assert sole.lengths is None
    assert sole.values is not None
    assert sole.values.tolist() == found.values.tolist()


def test_ids_of_several_slots_stand_example_by_example() -> None:
    """Bags of any length, none too, beside slots of one id and of two."""
    pairs = np.array([[7, 8], [9, 9], [5, 4]])
    found = fields_of(Batch(3, {"a": A, "b": B, "c": pairs}), 3)
    assert found.lengths is not None
    assert found.lengths.tolist() == [[1, 2, 2], [1, 0, 2], [1, 3, 2]]
    assert found.values.tolist() == [1, 10, 11, 7, 8, 2, 9, 9, 3, 20, 21, 22, 5, 4]
    assert found.starts.tolist() == [0, 1, 3, 5, 6, 6, 8, 9, 12]


def test_a_sequence_keeps_its_newest_ids() -> None:
    """Cut at the front, padded behind."""
    ids, there = sequence_of(Batch(3, {"h": B}), "h", 2)
    assert ids.tolist() == [[10, 11], [0, 0], [21, 22]]
    assert there.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert sequence_of(Batch(3, {"h": B}), "h", 9)[0].shape == (3, 3)


def test_numbers_stand_side_by_side() -> None:
    """Several dense slots are one input."""
    one = np.ones((2, 1), np.float32)
    batch = Batch(2, dense={"a": one, "b": np.zeros((2, 2), np.float32)})
    assert dense_of(batch, 3).tolist() == [[1, 0, 0], [1, 0, 0]]


def test_columns_that_do_not_fit_are_named() -> None:
    """The slots there are, the number wanted, the key that says it."""
    batch = Batch(3, {"a": A, "b": B})
    with pytest.raises(UsageError, match=r"2 slots of ids \(a, b\), the model takes 3") as caught:
        fields_of(batch, 3)
    assert "sparse_inputs_slots" in caught.value.hint
    with pytest.raises(UsageError, match="0 numbers for each example, the model takes 13"):
        dense_of(batch, 13)
    with pytest.raises(UsageError, match="no slot 'hist'"):
        sequence_of(batch, "hist", 3)


def test_hyper_parameters_have_the_type_of_their_default() -> None:
    """YAML reads 1e-3 as a text; a width of 8.5 is a mistake."""
    hyper = Hyper(
        {"optimizer": {"learning_rate": "1e-3"}, "dim": 8.5, "sizes": [1, "b"], "n": True}
    )
    assert hyper("optimizer.learning_rate", 0.1) == 0.001
    for name, default in (("dim", 8), ("n", 8)):
        with pytest.raises(UsageError, match=f"hyper_parameters.{name} is .*not a int"):
            hyper(name, default)
    with pytest.raises(UsageError, match="not a list of whole numbers"):
        hyper("sizes", [1])
    with pytest.raises(UsageError, match="not a list of numbers"):
        hyper("sizes", [0.5])
    assert Hyper({"values": [1, "1e-3", 0.5]})("values", [0.5]) == [1.0, 0.001, 0.5]
