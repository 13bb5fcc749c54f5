"""Report progress from within a rank: `paddock.report(step=10, loss=0.5)`.

The launcher gives each rank a pipe, PADDOCK_REPORT_FD. A report is a line of JSON in it; a program
in any language may write one: {"step": 10, "loss": 0.5}. A line is at most LINE_BYTES_MAX long.
"""

from __future__ import annotations

import json
from math import isfinite

from paddock.watch.pipe import LINE_BYTES_MAX, send_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.watch.progress import ProgressReading

WHOLE_MAX = 1e18  # a larger number is damage


def report(*, step: int | None = None, epoch: float | None = None, **values: float | int) -> bool:
    """Report this rank's progress to its launcher: `paddock top` and `paddock web` show it.

    values: any numbers by name, such as loss, lr, examples_per_second; a tensor of one element is a
    number as well. Waits for nothing: a report is dropped while the launcher is busy.

    Returns False if it was not sent: outside of `paddock launch`, or dropped.
    Raises TypeError for a value that is no number, ValueError for a report that is too long.
    """
    row: dict[str, float | int] = {}
    for name, number in {"step": step, "epoch": epoch, **values}.items():
        if number is not None:
            row[name] = _number(name, number)
    line = json.dumps(row).encode() + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"a report of {len(line)} bytes: at most {LINE_BYTES_MAX} are sent")
    return send_line(line)


def _number(name: str, number: object) -> float | int:
    if isinstance(number, int):
        return number
    try:
        found = float(number)  # type: ignore[arg-type]  # a tensor has __float__
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(number).__name__}, and no number") from error
    return found


def read_reports(data: bytes) -> ProgressReading | None:
    """The latest report among some; None where there is none.

    >>> read_reports(b'{"step": 3}').step
    3
    """
    from paddock.watch.progress import VALUES_MAX, ProgressReading

    for line in reversed(data.splitlines()):
        numbers = parse_report(line)
        if numbers is not None:
            step, epoch = numbers.pop("step", None), numbers.pop("epoch", None)
            whole = None if step is None or not abs(step) < WHOLE_MAX else int(step)
            known = epoch if epoch is not None and isfinite(epoch) else None
            values = (*numbers.items(),)[:VALUES_MAX]
            return ProgressReading("paddock.report", whole, epoch=known, values=values)
    return None


def parse_report(line: bytes) -> dict[str, float] | None:
    """The numbers of a report; None for a line that is none.

    >>> parse_report(b'{"step": 3, "loss": NaN, "who": "me"}')
    {'step': 3, 'loss': nan}
    """
    try:
        row = json.loads(line)
        found = {
            str(name)[:80]: number
            for name, number in row.items()
            if isinstance(number, float) or (type(number) is int and abs(number) < WHOLE_MAX)
        }
    except (ValueError, AttributeError, RecursionError):
        return None
    return found or None
