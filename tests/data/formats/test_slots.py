"""Slot text: what a line may hold, what is no example, and that both parsers agree."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.batch import Bag, matrix
from paddock.data.formats import slots
from paddock.data.formats.format import BAD_KEPT, Coverage, Parsed
from paddock.data.formats.slots import SlotFormat
from paddock.errors import UsageError
from paddock.ps.jit import HAVE_NUMBA

FORM = SlotFormat(("click", "1", "22"), (("dense", 2), ("age", 1)), padding=7)
PARSERS = [slots._parse_plain] + ([slots._parse_compiled] if HAVE_NUMBA else [])


def parsed_same(form: SlotFormat, block: bytes) -> Parsed:
    """What both parsers make of it; they agree."""
    one, *others = (parse(form, block) for parse in PARSERS)
    for other in others:
        assert as_lists(one) == as_lists(other)
    return one


def as_lists(parsed: Parsed) -> tuple[object, ...]:
    """All of it, comparable."""
    batch = parsed.batch
    ids = {
        slot: (c.values.tolist(), c.lengths.tolist()) if isinstance(c, Bag) else c.tolist()
        for slot, c in batch.ids.items()
    }
    dense = {slot: column.tolist() for slot, column in batch.dense.items()}
    rest = (parsed.lines, parsed.bad, parsed.bad_count, parsed.seen, parsed.unknown)
    return batch.size, ids, dense, batch.label.tolist(), *rest


def test_a_line_gives_label_ids_and_numbers() -> None:
    """The format of PaddleRec's samples: the first sparse slot is the label."""
    batch = parsed_same(FORM, b"click:1 dense:0.5 dense:-2e1 age:3 1:5 22:6\n").batch
    assert (batch.size, batch.label.tolist(), list(batch.ids)) == (1, [1.0], ["1", "22"])
    assert batch.dense["dense"].tolist() == [[0.5, -20.0]]
    assert batch.dense["age"].dtype == np.float32
    assert [column.tolist() for column in batch.ids.values()] == [[5], [6]]


def test_an_absent_slot_has_the_padding() -> None:
    """As PaddleRec's own reader does, for ids and for numbers."""
    batch = parsed_same(FORM, b"click:0 1:5\nclick:0").batch
    assert batch.ids["1"].tolist() == [5, 7]
    assert batch.ids["22"].tolist() == [7, 7]
    assert batch.dense["dense"].tolist() == [[7, 7], [7, 7]]


def test_a_repeated_slot_is_a_bag_and_the_others_stay_columns() -> None:
    """Multi-hot: the ids of an example in their order, one padding where there is none."""
    batch = parsed_same(FORM, b"click:0 1:5 22:1 1:3 1:4\nclick:1 22:2\nclick:1 1:9\n").batch
    bag = batch.ids["1"]
    assert isinstance(bag, Bag)
    assert (bag.values.tolist(), bag.lengths.tolist()) == ([5, 3, 4, 7, 9], [3, 1, 1])
    assert batch.ids["22"].tolist() == [1, 2, 7]


def test_slots_of_one_id_are_one_matrix_without_a_copy() -> None:
    """A model takes (examples, slots) ids; gathering 26 columns would cost as much as parsing."""
    batch = FORM.parse(b"click:0 1:5 22:6\nclick:1 1:8 22:9\n").batch
    both = matrix(batch, ["1", "22"])
    assert both.tolist() == [[5, 6], [8, 9]]
    assert np.shares_memory(both, batch.ids["22"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"click:0 nothing", "'nothing' is no slot:value"),
        (b"click:0 :4", "':4' is no slot:value"),
        (b"click:0 1:x7", "slot '1': 'x7' is no integer id of 64 bits"),
        (b"click:0 1:", "slot '1': '' is no integer id of 64 bits"),
        (b"click:0 1:4:5", "slot '1': '4:5' is no integer id of 64 bits"),
        (b"click:0 1:18446744073709551616", "slot '1': '18446744073709551616' is no integer"),
        (b"click:0 1:-9223372036854775809", "slot '1': '-9223372036854775809' is no integer"),
        (b"click:0 age:nan", "slot 'age': 'nan' is no finite number"),
        (b"click:0 age:1e999", "slot 'age': '1e999' is no finite number"),
        (b"click:0 age:.", "slot 'age': '.' is no finite number"),
        (b"click:0 dense:1", "slot 'dense' has 1 values, 2 are declared"),
        (b"click:0 dense:1 dense:1 dense:1", "slot 'dense' has 3 values, 2 are declared"),
        (b"1:4 22:5", "no label 'click'"),
        (b"click:0 click:1", "more than one label 'click'"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_kept(line: bytes, reason: str) -> None:
    """A traceback in the middle of a terabyte would help nobody."""
    good = b"click:1 1:3 1:4 22:5\n"
    parsed = parsed_same(FORM, good + line + b"\n" + good)
    (bad,) = parsed.bad
    assert (bad.line, bad.offset, parsed.bad_count) == (1, len(good), 1)
    assert bad.reason.startswith(reason)
    assert parsed.batch.size == 2
    assert parsed.batch.ids["1"].values.tolist() == [3, 4, 3, 4]


def test_bad_lines_beyond_the_limit_are_counted() -> None:
    """A file of another format has as many bad lines as lines."""
    parsed = parsed_same(FORM, b"what\n" * (BAD_KEPT + 50))
    assert (len(parsed.bad), parsed.bad_count, parsed.batch.size) == (BAD_KEPT, BAD_KEPT + 50, 0)


def test_blanks_tabs_carriage_returns_and_empty_lines_are_no_matter() -> None:
    """Files made on Windows, and those with a blank at the end of lines, are read."""
    parsed = parsed_same(FORM, b"\n  \r\nclick:1\t1:4  22:5 \r\n\n")
    assert (parsed.batch.size, parsed.lines, parsed.bad) == (1, 4, ())
    assert parsed.batch.ids["22"].tolist() == [5]


def test_ids_beyond_the_signed_wrap() -> None:
    """Paddle's feature signs are unsigned 64 bits; the tables' ids are signed."""
    batch = parsed_same(FORM, b"click:0 1:18446744073709551615 22:-9223372036854775808").batch
    assert [column.tolist() for column in batch.ids.values()] == [[-1], [-(1 << 63)]]


def test_slots_that_are_declared_or_seen_alone_are_counted() -> None:
    """The samples say dense_feature, the old config dense_var: all numbers would be padding."""
    form = SlotFormat(("click", "1"), (("dense_var", 1),))
    coverage = Coverage()
    coverage.add(parsed_same(form, b"click:0 dense_feature:1 1:2\n" * 3))
    assert coverage.seen == {"click": 3, "1": 3, "dense_var": 0}
    assert coverage.unknown == {"dense_feature": 3}
    assert "the data has 'dense_feature'" in coverage.warnings()[0]


def test_a_format_without_label_takes_every_line() -> None:
    """Data to be scored has none."""
    form = SlotFormat(("1", "2"), label="")
    batch = parsed_same(form, b"1:4\n2:5\n").batch
    assert (batch.size, len(batch.label), list(batch.ids)) == (2, 0, ["1", "2"])


def test_an_empty_block_has_no_examples() -> None:
    """A chunk may hold the middle of one long line only."""
    assert parsed_same(FORM, b"").batch.size == 0


def test_more_names_than_are_remembered_do_no_harm() -> None:
    """A column of free text with colons in it is not a reason to stop."""
    line = b" ".join(b"word%d:1" % i for i in range(1000))
    parsed = slots.SlotFormat(("click",)).parse(b"click:1 " + line + b" " + b"x" * 200 + b":1\n")
    assert (parsed.batch.size, parsed.bad) == (1, ())
    assert parsed.unknown["word0"] == 1


def test_a_format_is_a_value_that_travels() -> None:
    """It goes to the processes that parse."""
    assert pickle.loads(pickle.dumps(FORM)) == FORM


def test_all_that_is_wrong_with_the_declaration_is_said_at_once() -> None:
    """Exit code 2, before any file is opened."""
    with pytest.raises(UsageError) as caught:
        SlotFormat(("a", "a", "b:c"), (("d", 0),))
    assert len(caught.value.problems) == 3


WORDS = st.sampled_from(
    (
        *("click:1", "click:0", "1:12", "1:-4", "22:007", "22:+5", "dense:.5", "dense:1."),
        *("age:12345678901234567890123", "age:1e-3", "age:1e-320", "age:e5", "age:1e"),
        *("x:1", "1:", "1", ":", ""),
    )
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=6).map("\n".join))
def test_the_compiled_parser_is_the_plain_one(text: str) -> None:
    """A machine without numba trains on the same examples."""
    assert parsed_same(FORM, text.encode()).lines >= 0


@settings(max_examples=300, deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(-1e6, 1e6))
def test_numbers_are_read_as_python_reads_them(value: float) -> None:
    """To float32, in both parsers."""
    for parse in PARSERS:
        found = parse(FORM, b"click:0 age:%r" % value).batch.dense["age"][0, 0]
        assert found == np.float32(value)
