"""How wide a line may be on this terminal, and texts and tables made to fit it.

No word is broken: words go to the next line, and a table's last column is cut.
"""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TextIO

NARROWEST, WIDEST = 60, 200
USUAL = 100  # where nothing says how wide it is
LAST_MIN = 12  # narrower than this, the last column of a table goes below the others
HANGING = 6
IN_TWO = re.compile(r"^(\s*)(\S.*?\S)\s{2,}(\S.*)$")  # "  command      what it does"


def terminal_width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal behind the stream (stdout), else $COLUMNS; None where neither is
    known: the reader may be a program, for which nothing is cut. 60 to 200.
    """
    found = 0
    stream = stream or sys.stdout
    try:
        if stream.isatty():
            found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        pass  # closed, or no terminal after all
    if not found:
        text = os.environ.get("COLUMNS", "")
        found = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return min(max(found, NARROWEST), WIDEST) if found else None


def wrapped(head: str, text: str, indent: int, width: int) -> Iterator[str]:
    """Text beside its head; below it where the head is long.

    >>> for line in wrapped("  -a", "one two three", 6, 14): print(line)
      -a  one two
          three
    """
    line = head.ljust(indent)
    if len(line) > indent or (head == line and head):
        yield from reflowed(head, width)
        line = " " * indent
    is_empty = True
    for word in text.split(" "):
        if not is_empty and len(line) + 1 + len(word) > width:
            yield line.rstrip()
            line, is_empty = " " * indent, True
        line += word if is_empty else " " + word
        is_empty = False
    yield line.rstrip()


def reflowed(line: str, width: int) -> Iterator[str]:
    """One line as several, if it is too wide; what stands in a second column goes below the first.

    >>> for line in reflowed("  paddock launch train.py       one process", 30): print(line)
      paddock launch train.py
          one process
    """
    if len(line) <= width:
        yield line
        return
    blanks = " " * (len(line) - len(line.lstrip()))
    found = IN_TWO.match(line)
    if found is not None and found[2]:
        yield from reflowed(blanks + found[2], width)
        yield from wrapped("", found[3], len(blanks) + HANGING - 2, width)
        return
    first, *rest = line.split()
    now = blanks + first
    for word in rest:
        if len(now) + 1 + len(word) > width:
            yield now
            now = blanks + (" " * HANGING if blanks else "") + word
        else:
            now += " " + word
    yield now


def fitted(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """A table, a text a row: columns as wide as their widest cell, the last one cut to fit.

    Where there is hardly any room for the last column, it stands on a line of its own.

    >>> print(*fitted([("id", "what"), ("train-3f2a", "python train.py --lr 0.1")], 30), sep="\\n")
    id          what
    train-3f2a  python train.py -…
    >>> print(*fitted([("id", "what"), ("train-3f2a", "python train.py")], 20), sep="\\n")
    id
      what
    train-3f2a
      python train.py
    """
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    is_below = width is not None and before + widths[-1] > width and width - before < LAST_MIN
    lines = []
    for row in rows:
        *cells, last = row
        line = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=False))
        if is_below and cells:
            assert width is not None
            line = line.rstrip() + (f"\n  {_cut(last, width - 2)}" if last else "")
        else:
            room = len(last) if width is None else width - before
            line = f"{line}  {_cut(last, room)}" if cells else _cut(last, room)
        lines.append(line.rstrip())
    return lines


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"
