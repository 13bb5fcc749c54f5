"""Reads slot text (`click:0 dense_feature:0.05 1:737395`) byte by byte; compiled by numba.

One rule: it allocates nothing and makes no text; `slots` gives it arrays and says what went wrong.
The next slot of a line is guessed from the line before, and only looked up where the guess fails.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Floats, Ids
from paddock.data.formats.format import BAD_KEPT
from paddock.data.formats.numbers import BLANK, NEWLINE, Text, read_integer, read_number, skip_field
from paddock.ps.jit import kernel

SPARSE, DENSE, LABEL, UNKNOWN = 0, 1, 2, 3
NO_COLON, NO_INTEGER, NO_NUMBER, NO_LABEL, TWO_LABELS, WRONG_WIDTH = 1, 2, 3, 4, 5, 6
BEGIN, SIZE, KIND, COLUMN, WIDTH = 0, 1, 2, 3, 4
COLON = 58
UNKNOWN_MAX = 256  # Names that are not declared are remembered up to here, of one block.
UNKNOWN_BYTES = 1 << 14  # of all of them
_FNV_START, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)

Index = NDArray[np.int64]


class SlotNames(NamedTuple):
    """The names of slots and what they are: the declared ones, then those found in the text.

    names: their bytes. facts: (slots, 5) BEGIN, SIZE of the name, KIND, COLUMN of the matrix or
    of dense where its values go, WIDTH of dense. bucket: hash -> slot, -1 for none. follower:
    slot -> the one that came after it last; the last one stands for the begin of a line.
    """

    names: Text
    facts: Index
    bucket: Index
    follower: Index


class SlotRows(NamedTuple):
    """Arrays for the examples. more: (n, 3) row, column, id: second and later ids of a slot."""

    matrix: Ids
    dense: Floats
    label: Floats
    more: Ids
    bad: Index  # (BAD_KEPT, 6): line, offset, reason, slot, begin (WIDTH: values), end
    seen: Index
    here: Index  # times that each slot is in this line


# Arrays are taken out of the tuples once a call: numba counts references at every access.


@kernel
def find_slot(text: Text, begin: int, end: int, slots: SlotNames, known: int) -> tuple[int, int]:
    """(the slot of that name, how many are known); a new one is kept, or -1. text: (n,) uint8."""
    names, facts, bucket = slots.names, slots.facts, slots.bucket
    code = _FNV_START
    for at in range(begin, end):
        code = (code ^ np.uint64(text[at])) * _FNV_PRIME
    mask = np.uint64(bucket.size - 1)
    place = (code ^ (code >> np.uint64(32))) & mask
    size = end - begin
    while bucket[place] >= 0:
        slot = bucket[place]
        if facts[slot, SIZE] == size and is_same(text, begin, names, facts[slot, BEGIN], size):
            return slot, known
        place = (place + np.uint64(1)) & mask
    start = facts[known - 1, BEGIN] + facts[known - 1, SIZE] if known > 0 else 0
    if known == len(facts) or start + size > len(names):
        return -1, known
    facts[known, BEGIN], facts[known, SIZE], facts[known, KIND] = start, size, UNKNOWN
    for at in range(size):
        names[start + at] = text[begin + at]
    bucket[place] = known
    return known, known + 1


@kernel
def is_same(text: Text, at: int, names: Text, begin: int, size: int) -> bool:
    """True when those bytes, (n,) uint8, are the name; both have so many."""
    for i in range(size):  # noqa: SIM110  # numba has no generators.
        if text[at + i] != names[begin + i]:
            return False
    return True


@kernel
def end_line(
    row: int, slots: SlotNames, rows: SlotRows, padding: int, declared: int
) -> tuple[int, int]:
    """(what is wrong or 0, the slot it is wrong with); absent slots get the padding."""
    facts, here, seen = slots.facts, rows.here, rows.seen
    matrix, dense = rows.matrix, rows.dense
    for slot in range(declared):
        times, kind, column = here[slot], facts[slot, KIND], facts[slot, COLUMN]
        if kind == DENSE:
            if times == 0:
                dense[row, column : column + facts[slot, WIDTH]] = padding
            elif times != facts[slot, WIDTH]:
                return WRONG_WIDTH, slot
        elif times == 0:
            if kind == LABEL:
                return NO_LABEL, slot
            matrix[row, column] = padding
    for slot in range(declared):
        seen[slot] += here[slot] > 0
    return 0, -1


@kernel
def read_line(
    text: Text, at: int, row: int, slots: SlotNames, rows: SlotRows, more: int, known: int
) -> tuple[int, int, int, int, int, int]:
    """(where it stopped, ids in `more`, slots known, what is wrong or 0, slot, its begin).

    text: (n,) uint8. The begin is -1 where the line is empty.
    """
    names, facts, follower = slots.names, slots.facts, slots.follower
    matrix, dense, label, later, here = rows.matrix, rows.dense, rows.label, rows.more, rows.here
    before, slot, start, ok = len(follower) - 1, -1, -1, True
    while at < text.size and text[at] != NEWLINE:
        if text[at] <= BLANK:
            at += 1
            continue
        start, slot = at, follower[before]
        colon = at + facts[slot, SIZE]
        if (
            slot < 0
            or colon >= text.size
            or text[colon] != COLON
            or not is_same(text, at, names, facts[slot, BEGIN], facts[slot, SIZE])
        ):
            colon = at
            while colon < text.size and text[colon] > BLANK and text[colon] != COLON:
                colon += 1
            if colon == at or colon == text.size or text[colon] != COLON:
                return at, more, known, NO_COLON, -1, start
            slot, known = find_slot(text, at, colon, slots, known)
            follower[before] = slot
            if slot < 0:
                at = skip_field(text, colon)
                continue
        before, kind, column, times = slot, facts[slot, KIND], facts[slot, COLUMN], here[slot]
        here[slot] = times + 1
        if kind == SPARSE:
            number, at, ok = read_integer(text, colon + 1)
            if not ok:
                return at, more, known, NO_INTEGER, slot, start
            if times == 0:
                matrix[row, column] = number
            else:
                later[more, 0], later[more, 1], later[more, 2] = row, column, number
                more += 1
        elif kind == UNKNOWN:
            at = skip_field(text, colon)
        else:
            value, at, ok = read_number(text, colon + 1)
            if not ok:
                return at, more, known, NO_NUMBER, slot, start
            if kind == LABEL:
                label[row] = value
                if times > 0:
                    return at, more, known, TWO_LABELS, slot, start
            elif times < facts[slot, WIDTH]:
                dense[row, column + times] = value
    return at, more, known, 0, slot, start


@kernel
def read_slots(
    text: Text, slots: SlotNames, rows: SlotRows, padding: int, declared: int
) -> tuple[int, int, int, int, int]:
    """(examples, ids in `more`, lines, bad lines, slots known) of a block, (n,) uint8."""
    at = row = more = line = bad = 0
    known, wrong = declared, rows.bad
    while at < text.size:
        begin, kept = at, more
        rows.here[:known] = 0
        at, more, known, reason, slot, start = read_line(text, at, row, slots, rows, more, known)
        if reason == 0 and start >= 0:
            reason, slot = end_line(row, slots, rows, padding, declared)
        if reason > 0:
            if bad < BAD_KEPT:
                wrong[bad, 0], wrong[bad, 1], wrong[bad, 2] = line, begin, reason
                wrong[bad, 3], wrong[bad, 4] = slot, start
                wrong[bad, 5] = skip_field(text, start)
                if reason == WRONG_WIDTH:
                    wrong[bad, 4] = rows.here[slot]
            bad += 1
            more = kept
            while at < text.size and text[at] != NEWLINE:
                at += 1
        elif start >= 0:
            for other in range(declared, known):
                rows.seen[other] += rows.here[other]
            row += 1
        line += 1
        at += 1  # The newline.
    return row, more, line, bad, known


@kernel
def count_marks(text: Text) -> tuple[int, int]:
    """(newlines, colons) of a block: no more lines and values than these are in it."""
    newlines = colons = 0
    for byte in text:
        newlines += byte == NEWLINE
        colons += byte == COLON
    return newlines, colons
