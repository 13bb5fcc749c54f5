"""Criteo's raw TSV: a label, 13 integers, 26 categories, as PaddleRec's readers take it.

A number is (x - MIN) / RANGE, 0 where it is empty, not clipped. A category is XXH3 of the text of
its column (14 to 39) and its value, modulo `ids`. The slots are named as in the slot text made of
the same data: `1` ... `26` and `dense_feature`, so a model takes either. No I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch, Floats, Ids, matrix_columns
from paddock.data.formats.format import BAD_KEPT, Bad, Parsed, read_lines
from paddock.data.formats.hashing import SHORT_BYTES, short_hash, text_id
from paddock.data.formats.numbers import NEWLINE, Text, plain_number, read_number
from paddock.errors import UsageError
from paddock.ps.jit import HAVE_NUMBA, kernel

# Source: PaddleRec, models/rank/dnn, readers of the raw data.
MIN = np.array([0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], np.float64)
RANGE = np.array([20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50], np.float64)
NUMBERS, CATEGORIES = len(MIN), 26
FIELDS = 1 + NUMBERS + CATEGORIES
IDS = 1000001
DENSE_SLOT = "dense_feature"
SLOTS = tuple(str(i + 1) for i in range(CATEGORIES))
TAB, RETURN = 9, 13
NO_FIELDS, NO_NUMBER = 1, 2
_SHOWN_BYTES = 40


class _Rows(NamedTuple):
    """Arrays for the examples. long: (n, 4) row, column, begin and end of texts to be hashed."""

    matrix: Ids
    dense: Floats
    label: Floats
    long: NDArray[np.int64]
    bad: NDArray[np.int64]  # (BAD_KEPT, 6): line, offset, reason, field, begin, end
    key: Text


@dataclass(frozen=True)
class CriteoFormat:
    """Criteo's raw lines; `ids` is how many ids there are.

    >>> line = b"1" + b"\\t2" * 13 + b"\\t68fd1e64" * 26 + b"\\n"
    >>> batch = CriteoFormat().parse(line).batch
    >>> batch.ids["1"].tolist(), batch.dense["dense_feature"][0, :2].tolist()
    ([594286], [0.10000000149011612, 0.008291874080896378])
    """

    ids: int = IDS

    def __post_init__(self) -> None:
        if self.ids < 1:
            raise UsageError(f"ids is {self.ids}, at least 1 is needed", hint=f"PaddleRec: {IDS}")

    def parse(self, block: bytes) -> Parsed:
        """The examples of the block."""
        return _parse_compiled(self, block) if HAVE_NUMBA else _parse_plain(self, block)


def _batch(matrix: Ids, dense: Floats, label: Floats) -> Batch:
    return Batch(len(label), matrix_columns(SLOTS, matrix), {DENSE_SLOT: dense}, label)


def _seen(size: int) -> dict[str, int]:
    return dict.fromkeys(("label", DENSE_SLOT, *SLOTS), size)


def _reason(reason: int, field: int, text: bytes) -> str:
    if reason == NO_FIELDS:
        return f"{field} fields by tab, {FIELDS} are needed"
    name = "label" if field == 0 else f"number {field}"
    return f"{name}: {text[:_SHOWN_BYTES].decode('utf-8', 'replace')!r} is no finite number"


def _parse_compiled(form: CriteoFormat, block: bytes) -> Parsed:
    text = np.frombuffer(block, np.uint8)
    lines = block.count(b"\n") + 1
    rows = _Rows(
        np.empty((lines, CATEGORIES), np.int64), np.empty((lines, NUMBERS), np.float32),
        np.empty(lines, np.float32), np.empty((len(block) // SHORT_BYTES + 1, 4), np.int64),
        np.zeros((BAD_KEPT, 6), np.int64), np.zeros(SHORT_BYTES, np.uint8),
    )  # fmt: skip
    size, lines, long, bad_count = _read_lines(text, rows, form.ids)
    for row, column, begin, end in rows.long[:long].tolist():
        name = str(column + 1 + NUMBERS)
        rows.matrix[row, column] = text_id(name, block[begin:end], form.ids)
    bad = tuple(
        Bad(line, offset, _reason(reason, field, block[begin:end]))
        for line, offset, reason, field, begin, end in rows.bad[:bad_count].tolist()
    )
    batch = _batch(rows.matrix[:size], rows.dense[:size], rows.label[:size])
    return Parsed(batch, lines, bad, bad_count, _seen(size))


@kernel
def _read_lines(text: Text, rows: _Rows, ids: int) -> tuple[int, int, int, int]:
    """(examples, lines, long texts, bad lines) of a block."""
    at = row = line = long = bad = 0
    wrong = rows.bad
    while at < text.size:
        begin, kept = at, long
        is_empty = text[at] == NEWLINE or (
            text[at] == RETURN and (at + 1 == text.size or text[at + 1] == NEWLINE)
        )
        reason = 0
        if not is_empty:
            at, field, reason, long = _read_line(text, at, row, rows, ids, long)
        start = at
        while at < text.size and text[at] != NEWLINE:
            at += 1
        if reason > 0:
            if bad < BAD_KEPT:
                fields = 1
                for i in range(begin, at):
                    fields += text[i] == TAB
                if fields != FIELDS:
                    reason, field = NO_FIELDS, fields
                end = start
                while end < text.size and text[end] != TAB and text[end] != NEWLINE:
                    end += 1
                wrong[bad, 0], wrong[bad, 1], wrong[bad, 2] = line, begin, reason
                wrong[bad, 3], wrong[bad, 4], wrong[bad, 5] = field, start, end
            bad += 1
            long = kept
        elif not is_empty:
            row += 1
        line += 1
        at += 1  # The newline.
    return row, line, long, bad


@kernel
def _read_line(
    text: Text, at: int, row: int, rows: _Rows, ids: int, long: int
) -> tuple[int, int, int, int]:
    """(where it ended, or where the bad field begins; that field; what is wrong or 0; long)."""
    matrix, dense, label, later, key = rows.matrix, rows.dense, rows.label, rows.long, rows.key
    for field in range(1 + NUMBERS):
        start = at
        value, ok = 0.0, True
        if field > 0 and at < text.size and text[at] == TAB:
            value = MIN[field - 1]
        else:
            value, at, ok = read_number(text, at)
        if not ok:
            return start, field, NO_NUMBER, long
        if at == text.size or text[at] != TAB:
            return start, field, NO_FIELDS, long
        if field > 0:
            dense[row, field - 1] = (value - MIN[field - 1]) / RANGE[field - 1]
        else:
            label[row] = value
        at += 1
    modulus = np.uint64(ids)
    for column in range(CATEGORIES):
        start, number = at, column + 1 + NUMBERS
        key[0], key[1], size = 48 + number // 10, 48 + number % 10, 2
        while at < text.size and text[at] != TAB and text[at] != NEWLINE and text[at] != RETURN:
            if size < SHORT_BYTES:
                key[size] = text[at]
            size += 1
            at += 1
        if size <= SHORT_BYTES:
            matrix[row, column] = np.int64(short_hash(key, size) % modulus)
        else:
            later[long, 0], later[long, 1], later[long, 2], later[long, 3] = row, column, start, at
            long += 1
        is_last = column == CATEGORIES - 1
        if at < text.size and text[at] == RETURN and is_last:
            at += 1
        if is_last != (at == text.size or text[at] == NEWLINE):
            return start, column, NO_FIELDS, long
        at += not is_last
    return at, 0, 0, long


def _parse_plain(form: CriteoFormat, block: bytes) -> Parsed:
    """The result of `_parse_compiled`, by splitting lines."""

    def row(line: bytes) -> tuple[list[float], list[int]] | str | None:
        fields = line.removesuffix(b"\r").split(b"\t")
        values = _numbers(fields) if fields != [b""] else None
        if values is None or isinstance(values, str):
            return values
        return values, [text_id(str(i), fields[i], form.ids) for i in range(1 + NUMBERS, FIELDS)]

    lines, parsed = read_lines(block, row)
    numbers = np.array([numbers for numbers, _ in lines]).reshape(-1, 1 + NUMBERS)
    batch = _batch(
        np.array([ids for _, ids in lines], np.int64).reshape(-1, CATEGORIES),
        ((numbers[:, 1:] - MIN) / RANGE).astype(np.float32),
        numbers[:, 0].astype(np.float32),
    )
    return replace(parsed, batch=batch, seen=_seen(len(lines)))


def _numbers(fields: list[bytes]) -> list[float] | str:
    """The label and the numbers, or what is wrong with the line."""
    if len(fields) != FIELDS:
        return _reason(NO_FIELDS, len(fields), b"")
    values = []
    for i, text in enumerate(fields[: 1 + NUMBERS]):
        value = MIN[i - 1] if i and not text else plain_number(text)
        if value is None:
            return _reason(NO_NUMBER, i, text)
        values.append(float(value))
    return values
