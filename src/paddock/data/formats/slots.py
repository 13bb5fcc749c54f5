"""Slot text: `click:0 dense_feature:0.05 ... 1:737395 2:210498`, PaddleRec's own format.

A slot that occurs several times in a line has several values; one that is absent has the padding.
Fields are apart by blanks or tabs; an empty line is nothing. No I/O here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from paddock.data.batch import Bag, Batch, Ids, matrix_columns
from paddock.data.formats import slot_kernel as kernel
from paddock.data.formats.format import BAD_KEPT, Bad, Parsed, label_of, read_lines
from paddock.data.formats.numbers import plain_integer, plain_number
from paddock.errors import Problem, UsageError
from paddock.ps.jit import HAVE_NUMBA

_SHOWN_BYTES = 40


@dataclass(frozen=True)
class SlotFormat:
    """Slot text with these slots.

    sparse_slots: names; the first one is the label where `label` is None. dense_slots: (name,
    width). padding: the id, and the value, of an absent slot. label: its slot; "" where the data
    has none.

    >>> form = SlotFormat(("click", "1", "2"), (("price", 2),))
    >>> parsed = form.parse(b"click:1 price:0.5 price:2 1:7 2:8\\nclick:0 1:9 1:3\\n")
    >>> parsed.batch.label.tolist(), parsed.batch.dense["price"].tolist()
    ([1.0, 0.0], [[0.5, 2.0], [0.0, 0.0]])
    >>> parsed.batch.ids["2"].tolist(), parsed.batch.ids["1"].lengths.tolist()
    ([8, 0], [1, 2])
    """

    sparse_slots: tuple[str, ...]
    dense_slots: tuple[tuple[str, int], ...] = ()
    padding: int = 0
    label: str | None = None

    def __post_init__(self) -> None:
        names = [*self.sparse_slots, *(name for name, _ in self.dense_slots)]
        problems = [
            Problem(f"slot {name!r} is declared twice", "each slot has one line")
            for name in dict.fromkeys(names)
            if names.count(name) > 1
        ]
        problems += [
            Problem(f"slot {name!r} has width {width}, at least 1 is needed", "name:width")
            for name, width in self.dense_slots
            if width < 1
        ]
        problems += [
            Problem(f"slot {name!r} is no name", "a name has no blank and no colon")
            for name in names
            if not name or ":" in name or name.split() != [name]
        ]
        if self.label and dict(self.dense_slots).get(self.label, 1) > 1:
            problems.append(Problem(f"label {self.label!r} is wider than 1", "name another slot"))
        if problems:
            raise UsageError.of(problems)

    @property
    def label_slot(self) -> str:
        """The slot that is the label, "" for none."""
        return label_of(self.sparse_slots, self.label)

    @property
    def sparse(self) -> tuple[str, ...]:
        """The slots of ids, without the label."""
        return tuple(slot for slot in self.sparse_slots if slot != self.label_slot)

    @property
    def dense(self) -> tuple[tuple[str, int], ...]:
        """The slots of numbers, without the label."""
        return tuple(slot for slot in self.dense_slots if slot[0] != self.label_slot)

    def parse(self, block: bytes) -> Parsed:
        """The examples of the block."""
        return _parse_compiled(self, block) if HAVE_NUMBA else _parse_plain(self, block)


@lru_cache(64)
def _table(form: SlotFormat) -> kernel.SlotNames:
    """The declared slots; not to be changed."""
    kinds = [(slot, kernel.SPARSE, i, 1) for i, slot in enumerate(form.sparse)]
    column = 0
    for slot, width in form.dense:
        kinds.append((slot, kernel.DENSE, column, width))
        column += width
    if form.label_slot:
        kinds.append((form.label_slot, kernel.LABEL, 0, 1))
    room = len(kinds) + kernel.UNKNOWN_MAX
    letters = sum(len(slot.encode()) for slot, *_ in kinds) + kernel.UNKNOWN_BYTES
    table = kernel.SlotNames(
        np.zeros(letters, np.uint8),
        np.zeros((room, 5), np.int64),
        np.full(1 << (2 * room).bit_length(), -1, np.int64),
        np.full(room + 1, -1, np.int64),
    )
    for i, (slot, kind, column, width) in enumerate(kinds):
        name = np.frombuffer(slot.encode(), np.uint8)
        kernel.find_slot(name, 0, len(name), table, i)
        table.facts[i, kernel.KIND :] = kind, column, width
    return table


def _rows(form: SlotFormat, lines: int, values: int, slots: int) -> kernel.SlotRows:
    return kernel.SlotRows(
        np.empty((lines, len(form.sparse)), np.int64),
        np.empty((lines, sum(width for _, width in form.dense)), np.float32),
        np.zeros(lines, np.float32),
        np.empty((values, 3), np.int64),
        np.zeros((BAD_KEPT, 6), np.int64),
        np.zeros(slots, np.int64),
        np.zeros(slots, np.int64),
    )


def _parse_compiled(form: SlotFormat, block: bytes) -> Parsed:
    text = np.frombuffer(block, np.uint8)
    newlines, colons = kernel.count_marks(text)
    slots = kernel.SlotNames(*(part.copy() for part in _table(form)))
    rows = _rows(form, newlines + 1, colons, len(slots.facts))
    declared = len(form.sparse) + len(form.dense) + bool(form.label_slot)
    size, more, lines, bad_count, known = kernel.read_slots(
        text, slots, rows, form.padding, declared
    )
    names = [
        bytes(slots.names[begin : begin + size]).decode("utf-8", "replace")
        for begin, size in slots.facts[:known, :2].tolist()
    ]
    bad = tuple(_bad(form, block, names, *map(int, row)) for row in rows.bad[:bad_count])
    times = rows.seen[:known].tolist()
    seen = dict(zip(names[:declared], times[:declared], strict=True))
    unknown = {slot: n for slot, n in zip(names, times, strict=True) if n and slot not in seen}
    batch = _batch(form, rows, size, rows.more[:more])
    return Parsed(batch, lines, bad, bad_count, seen, unknown)


def _bad(
    form: SlotFormat, block: bytes, names: list[str], line: int, offset: int, reason: int,
    slot: int, begin: int, end: int,
) -> Bad:  # fmt: skip
    name = names[slot] if slot >= 0 else ""
    if reason == kernel.WRONG_WIDTH:
        text = b"%d" % begin
    else:
        text = block[begin:end]
        text = text if reason == kernel.NO_COLON else text.partition(b":")[2]
    return Bad(line, offset, _reason(form, reason, name, text))


def _reason(form: SlotFormat, reason: int, slot: str, text: bytes) -> str:
    shown = repr(text[:_SHOWN_BYTES].decode("utf-8", "replace"))
    if reason == kernel.NO_COLON:
        return f"{shown} is no slot:value"
    if reason == kernel.NO_INTEGER:
        return f"slot {slot!r}: {shown} is no integer id of 64 bits"
    if reason == kernel.NO_NUMBER:
        return f"slot {slot!r}: {shown} is no finite number"
    if reason == kernel.WRONG_WIDTH:
        width = dict(form.dense)[slot]
        return f"slot {slot!r} has {int(text)} values, {width} are declared"
    times = "no" if reason == kernel.NO_LABEL else "more than one"
    return f"{times} label {slot!r}"


def _batch(form: SlotFormat, rows: kernel.SlotRows, size: int, more: Ids) -> Batch:
    """The columns of the rows; slots that have several ids somewhere are Bags. more: see Rows."""
    matrix = rows.matrix[:size]
    several = set(np.unique(more[:, 1]).tolist())
    single = [i for i in range(len(form.sparse)) if i not in several]
    ids: dict[str, Ids | Bag] = {}
    for column in sorted(several):
        mine = more[more[:, 1] == column]
        lengths = np.bincount(mine[:, 0], minlength=size) + 1
        values = np.empty(int(lengths.sum()), np.int64)
        is_first = np.zeros(len(values), bool)
        is_first[np.cumsum(lengths) - lengths] = True
        # Both are in the order of the examples.
        values[is_first] = matrix[:, column]
        values[~is_first] = mine[:, 2]
        ids[form.sparse[column]] = Bag(values, lengths)
    if several:
        matrix = matrix[:, single]
    dense, begin = {}, 0
    for slot, width in form.dense:
        dense[slot] = rows.dense[:size, begin : begin + width]
        begin += width
    label = rows.label[: size if form.label_slot else 0]
    found = matrix_columns([form.sparse[i] for i in single], matrix)
    return Batch(size, {**found, **ids}, dense, label)


# ------------------------------------------------------------------------------- without numba


def _parse_plain(form: SlotFormat, block: bytes) -> Parsed:
    """The result of `_parse_compiled`, by splitting lines."""
    kinds = {slot.encode(): kernel.SPARSE for slot in form.sparse}
    kinds |= {slot.encode(): kernel.DENSE for slot, _ in form.dense}
    kinds |= {form.label_slot.encode(): kernel.LABEL} if form.label_slot else {}
    lines, parsed = read_lines(block, lambda line: _line(form, line.split(), kinds))
    rows = _rows(form, len(lines), 0, 0)
    more: list[tuple[int, int, int]] = []
    seen = dict.fromkeys((slot.decode() for slot in kinds), 0)
    unknown: Counter[str] = Counter()
    for row, found in enumerate(lines):
        for column, slot in enumerate(form.sparse):
            first, *rest = found.get(slot.encode(), [form.padding])
            rows.matrix[row, column] = int(first)
            more.extend((row, column, int(value)) for value in rest)
        column = 0
        for slot, width in form.dense:
            rows.dense[row, column : column + width] = found.get(slot.encode(), form.padding)
            column += width
        if form.label_slot:
            rows.label[row] = found[form.label_slot.encode()][0]
        for name, values in found.items():
            slot = name.decode("utf-8", "replace")
            if name in kinds:
                seen[slot] += 1
            else:
                unknown[slot] += len(values)
    batch = _batch(form, rows, len(lines), np.array(more, np.int64).reshape(-1, 3))
    return replace(parsed, batch=batch, seen=seen, unknown=unknown)


def _line(
    form: SlotFormat, fields: list[bytes], kinds: dict[bytes, int]
) -> dict[bytes, list[float]] | str | None:
    """The values of each slot of a line, or what is wrong with it; None of an empty one."""
    if not fields:
        return None
    found: dict[bytes, list[float]] = {}
    for field in fields:
        slot, colon, text = field.partition(b":")
        if not colon or not slot:
            return _reason(form, kernel.NO_COLON, "", field)
        kind = kinds.get(slot, kernel.UNKNOWN)
        value: float | None = 0
        if kind == kernel.SPARSE:
            value = plain_integer(text)
        elif kind != kernel.UNKNOWN:
            value = plain_number(text)
        if value is None:
            reason = kernel.NO_INTEGER if kind == kernel.SPARSE else kernel.NO_NUMBER
            return _reason(form, reason, slot.decode(), text)
        found.setdefault(slot, []).append(value)
        if kind == kernel.LABEL and len(found[slot]) > 1:
            return _reason(form, kernel.TWO_LABELS, slot.decode(), b"")
    for name, width in form.dense:
        count = len(found.get(name.encode(), ()))
        if count not in (0, width):
            return _reason(form, kernel.WRONG_WIDTH, name, b"%d" % count)
    if form.label_slot and form.label_slot.encode() not in found:
        return _reason(form, kernel.NO_LABEL, form.label_slot, b"")
    return found


LINES_MAX = 1000  # that are looked at
LABELS = ("click", "label", "clk")
FORMATS = ("slots", "criteo", "csv")
CRITEO_FIELDS = 40


def format_of(block: bytes) -> str:
    """The format of the first line, one of FORMATS; slots where there is no line.

    >>> format_of(b"click:1 1:7\\n"), format_of(b"1,2,3\\n")
    ('slots', 'csv')
    """
    line = next((line for line in block.split(b"\n") if line.strip()), b"")
    if line.count(b"\t") + 1 == CRITEO_FIELDS:
        return "criteo"
    words = line.split()
    return "slots" if all(word.find(b":") > 0 for word in words) else "csv"


def slots_of_lines(block: bytes) -> SlotFormat:
    """The slots of slot text: those with a fraction are dense.

    The label is one of LABELS, else the first slot if it is 0 or 1 in all lines, else none.

    >>> slots_of_lines(b"1:7 click:0 d:0.5 d:1\\n1:9 1:3 click:1 d:0.2 d:0\\n")
    SlotFormat(sparse_slots=('click', '1'), dense_slots=(('d', 2),), padding=0, label='click')
    """
    values: dict[str, set[bytes]] = {}
    widths: dict[str, int] = {}
    for line in block.split(b"\n")[:LINES_MAX]:
        count: Counter[str] = Counter()
        for word in line.split():
            name, colon, value = word.partition(b":")
            slot = name.decode("utf-8", "replace")
            if colon and slot:
                count[slot] += 1
                values.setdefault(slot, set()).add(value)
        for slot, width in count.items():
            widths[slot] = max(width, widths.get(slot, 0))
    slots = list(values)
    first = slots[0] if slots and values[slots[0]] <= {b"0", b"1"} else ""
    label = next((slot for slot in LABELS if slot in values), first)
    fractions = {
        slot
        for slot, found in values.items()
        if slot != label and not all(value.lstrip(b"-").isdigit() for value in found)
    }
    dense = tuple((slot, widths[slot]) for slot in slots if slot in fractions)
    ids = [slot for slot in slots if slot != label and slot not in fractions]
    return SlotFormat((label, *ids) if label else tuple(ids), dense, label=label)
