"""Which slots data has: as the user declares them, or as the first lines show. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from paddock.errors import UsageError

LINES_MAX = 1000  # that are looked at
LABELS = ("click", "label", "clk")
FORMATS = ("slots", "criteo", "csv")
CRITEO_FIELDS = 40


@dataclass(frozen=True)
class Slots:
    """sparse: names, the label first where there is one. dense: (name, width)."""

    sparse: tuple[str, ...]
    dense: tuple[tuple[str, int], ...] = ()
    has_label: bool = True


def read_slots(sparse: str | None, dense: str | None) -> Slots | None:
    """Slots as config files write them; None where neither is given.

    >>> read_slots("click 1 2", "dense_feature:13")
    Slots(sparse=('click', '1', '2'), dense=(('dense_feature', 13),), has_label=True)

    Raises: UsageError for a width that is no number.
    """
    if not sparse and not dense:
        return None
    found = []
    for word in _words(dense or ""):
        name, _, width = word.partition(":")
        if not width.isdecimal():
            raise UsageError(f"dense slot '{word}' has no width", hint="write name:width")
        found.append((name, int(width)))
    return Slots(tuple(_words(sparse or "")), tuple(found))


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def format_of(block: bytes) -> str:
    """What the first line looks like: one of FORMATS; slots where there is none.

    >>> format_of(b"click:1 1:7\\n"), format_of(b"1,2,3\\n")
    ('slots', 'csv')
    """
    line = next((line for line in block.split(b"\n") if line.strip()), b"")
    if line.count(b"\t") + 1 == CRITEO_FIELDS:
        return "criteo"
    words = line.split()
    return "slots" if all(word.find(b":") > 0 for word in words) else "csv"


def slots_of_lines(block: bytes) -> Slots:
    """The slots of slot text: those with a fraction are dense.

    The label is one of LABELS, else the first slot if it is 0 or 1 in all lines, else none.

    >>> slots_of_lines(b"1:7 click:0 d:0.5 d:1\\n1:9 1:3 click:1 d:0.2 d:0\\n")
    Slots(sparse=('click', '1'), dense=(('d', 2),), has_label=True)
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
    return Slots((label, *ids) if label else tuple(ids), dense, bool(label))
