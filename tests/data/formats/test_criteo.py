"""Criteo's raw lines: normalised as PaddleRec does, ids by a stable hash, both parsers agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.data.batch import matrix
from paddock.data.formats import criteo
from paddock.data.formats.criteo import CriteoFormat
from paddock.data.formats.format import Parsed
from paddock.data.formats.hashing import SHORT_BYTES, short_hash, text_id
from paddock.errors import UsageError
from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.xxh3 import xxh3

PARSERS = [criteo._parse_plain] + ([criteo._parse_compiled] if HAVE_NUMBA else [])


def parsed_same(block: bytes) -> Parsed:
    """What both parsers make of it; they agree."""
    one, *others = (parse(CriteoFormat(), block) for parse in PARSERS)
    for other in others:
        assert (one.lines, one.bad, one.bad_count) == (other.lines, other.bad, other.bad_count)
        assert one.batch.label.tolist() == other.batch.label.tolist()
        for slot, column in one.batch.ids.items():
            assert np.array_equal(column, other.batch.ids[slot])
        dense = other.batch.dense["dense_feature"]
        assert np.array_equal(one.batch.dense["dense_feature"], dense)
    return one


def line(label: str = "1", number: str = "5", category: str = "68fd1e64") -> bytes:
    """A line whose numbers, and whose categories, are the same."""
    return "\t".join([label, *[number] * 13, *[category] * 26]).encode()


@pytest.mark.skipif(not HAVE_NUMBA, reason="the compiled hash needs numba")
def test_the_short_hash_is_xxh3() -> None:
    """Whoever hashes elsewhere, in any language, gets the same ids."""
    rng = np.random.default_rng(1)
    for size in list(range(1, SHORT_BYTES + 1)) * 20:
        key = rng.integers(0, 256, SHORT_BYTES).astype(np.uint8)
        assert int(short_hash(key, size)) == xxh3(key[:size].tobytes())


def test_ids_are_these_for_ever() -> None:
    """Another hash would make every checkpoint trained on Criteo worthless."""
    batch = parsed_same(line()).batch
    assert [int(batch.ids[slot][0]) for slot in ("1", "2", "26")] == [594286, 286023, 58668]
    assert int(batch.ids["1"][0]) == xxh3(b"1468fd1e64") % 1000001


def test_numbers_are_moved_and_divided_and_not_clipped() -> None:
    """(x - min) / range; an empty one is 0."""
    dense = parsed_same(line(number="7") + b"\n" + line(number="")).batch.dense["dense_feature"]
    assert dense[0].tolist() == ((7 - criteo.MIN) / criteo.RANGE).astype(np.float32).tolist()
    assert dense[1].tolist() == [0.0] * 13


def test_the_ids_are_one_matrix() -> None:
    """26 slots, one array."""
    batch = parsed_same(line() + b"\n" + line("0")).batch
    assert np.shares_memory(matrix(batch, criteo.SLOTS), batch.ids["26"])
    assert batch.label.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("category", ["", "a", "0123456789abcd", "0123456789abcde", "x" * 300])
def test_categories_of_any_length_are_hashed(category: str) -> None:
    """Empty ones are a value as every other; long ones are hashed by the library."""
    batch = parsed_same(line(category=category) + b"\r\n").batch
    assert int(batch.ids["3"][0]) == text_id("16", category, 1000001)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (line().rpartition(b"\t")[0], "39 fields by tab, 40 are needed"),
        (line() + b"\tmore", "41 fields by tab, 40 are needed"),
        (b"only this", "1 fields by tab, 40 are needed"),
        (line(label="yes"), "label: 'yes' is no finite number"),
        (line(number="68fd1e64x"), "number 1: '68fd1e64x' is no finite number"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_kept(text: bytes, reason: str) -> None:
    """Which line, and why."""
    parsed = parsed_same(line() + b"\n\n" + text + b"\n" + line("0") + b"\n")
    (bad,) = parsed.bad
    assert (bad.line, bad.offset, bad.reason) == (2, len(line()) + 2, reason)
    assert parsed.batch.label.tolist() == [1.0, 0.0]


FIELD = st.sampled_from(["", "1", "-3", "2.5", "68fd1e64", "x", "a" * 20])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(FIELD, min_size=38, max_size=41).map("\t".join), max_size=3))
def test_the_compiled_parser_is_the_plain_one(lines: list[str]) -> None:
    """A machine without numba trains on the same examples."""
    head = "1" + "\t2" * 10 + "\t"
    assert parsed_same("\n".join(head + text[-60:] for text in lines).encode()).lines >= 0


def test_no_ids_at_all_is_refused() -> None:
    """A modulus of zero."""
    with pytest.raises(UsageError):
        CriteoFormat(0)
