"""The format and the slots of data, detected from its first lines. No I/O here."""

from __future__ import annotations

from collections import Counter

from paddock.data.formats.slots import SlotFormat

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
