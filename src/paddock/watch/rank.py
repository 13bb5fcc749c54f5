"""Report progress from within a rank: `paddock.report(step=10, loss=0.5)`.

The launcher gives each rank and server a pipe, PADDOCK_REPORT_FD. A report is a line of JSON in it,
written whole or not; a program in any language may write one: {"step": 10, "loss": 0.5}.
"""

from __future__ import annotations

import json
import os
import stat

VARIABLE = "PADDOCK_REPORT_FD"
LINE_BYTES_MAX = 4096  # PIPE_BUF of Linux: such a line is written whole or not at all


def report(*, step: int | None = None, epoch: float | None = None, **values: float | int) -> bool:
    """Report this rank's progress to its launcher: `paddock top` and `paddock web` show it.

    values: any numbers by name, such as loss, lr, examples_per_second; a tensor of one element is a
    number as well. One named steps is how many steps there will be. Waits for nothing: a report is
    dropped while the launcher is busy.

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
        return float(number)  # type: ignore[arg-type]  # a tensor has __float__
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(number).__name__}, and no number") from error


def send_line(line: bytes) -> bool:
    """Send a line. Waits for nothing; False if it was not sent: no launcher, or a busy one."""
    fd = _descriptor()
    try:
        return fd >= 0 and os.write(fd, line) == len(line)
    except OSError:
        return False  # full, or the launcher is gone


def _descriptor() -> int:
    """The launcher's pipe; -1 without one. A program that a rank started may not have inherited
    it, and may use the number for a file of its own.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        fd = int(text)
        is_ours = stat.S_ISFIFO(os.fstat(fd).st_mode) and not os.get_blocking(fd)
    except (ValueError, OSError):
        return -1
    return fd if is_ours else -1
