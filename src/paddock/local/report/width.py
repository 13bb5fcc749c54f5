"""The width of this terminal, texts and tables fitted to it, and what commands say there.

No word is broken: words go to the next line, and a table's last column is cut.
"""

from __future__ import annotations

import os
import re
import sys

from paddock.local.report.text import wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

NARROWEST, WIDEST = 60, 200
USUAL = 100  # where nothing says how wide it is
UNKNOWN_ROOM = 80  # of a last cell that has an end, where no width is known
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


def beside(head: str, text: str, indent: int, width: int) -> list[str]:
    """Text beside its head; below it where the head is long.

    >>> for line in beside("  -a", "one two three", 6, 14): print(line)
      -a  one two
          three
    """
    if head and len(head) >= indent:
        return [*reflowed(head, width), *beside("", text, indent, width)]
    return wrapped(f"{head:{indent}}{text}".rstrip(), width, " " * indent).split("\n")


def reflowed(line: str, width: int | None) -> list[str]:
    """A line as several, if it is too wide; what stands in a second column goes below the first.

    >>> for line in reflowed("  paddock launch train.py       one process", 30): print(line)
      paddock launch train.py
          one process
    """
    if width is None or len(line) <= width:
        return [line]
    blanks = " " * (len(line) - len(line.lstrip()))
    found = IN_TWO.match(line)
    if found is None:
        return wrapped(line, width, blanks and blanks + " " * HANGING).split("\n")
    below = beside("", found[3], len(blanks) + HANGING - 2, width)
    return [*reflowed(blanks + found[2], width), *below]


def fitted(rows: Sequence[Sequence[str]], width: int | None, ends: Sequence[str] = ()) -> list[str]:
    """A table, a text a row: columns as wide as their widest cell, the last one cut to fit.

    Where there is hardly any room for the last column, it stands on a line of its own. ends: one
    for each row, after its last cell, of which a third of the room is kept at least.

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
    ends = ends or [""] * len(rows)
    longest = max(len(row[-1]) + len(end) for row, end in zip(rows, ends, strict=True))
    is_below = width is not None and before + longest > width and width - before < LAST_MIN
    room = UNKNOWN_ROOM if width is None else width - 2 if is_below else width - before
    lines = []
    for row, end in zip(rows, ends, strict=True):
        *cells, last = row
        if end:
            last = cut(last, max(room - len(end), room // 3)) + end
        if width is not None:
            last = cut(last, room)
        line = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=False))
        if is_below and cells:
            line = line.rstrip() + (f"\n  {last}" if last else "")
        else:
            line = f"{line}  {last}" if cells else last
        lines.append(line.rstrip())
    return lines


def cut(text: str, room: int) -> str:
    """A text cut to a width.

    >>> cut("python train.py", 9), cut("train.py", 9)
    ('python t…', 'train.py')
    """
    return text if len(text) <= room else text[: max(room - 1, 1)] + "…"


def say(text: str) -> None:
    """Print a line for people on stderr, within the terminal; stdout is for the result."""
    from paddock.local.report.reporter import fit_terminal

    sys.stderr.write(fit_terminal(f"paddock: {text}\n"))
    sys.stderr.flush()
