"""The pipe in which a process reports to its launcher: lines of JSON, each written whole or not."""

from __future__ import annotations

import os
import stat

VARIABLE = "PADDOCK_REPORT_FD"
LINE_BYTES_MAX = 4096  # PIPE_BUF of Linux: such a line is written whole or not at all


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
