"""Tests side by side: each worker has a network of its own, and some tests have the machine alone.

Ports and abstract sockets of two workers never collide, and names of hosts are looked up in
/etc/hosts alone, so that no test depends on a name server. Where that is not allowed (not root),
workers share the machine's network and depend on ports being picked free.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import socket
import struct
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# <linux/sched.h>, <linux/mount.h>, <linux/sockios.h>, <linux/if.h>
CLONE_NEWNET, CLONE_NEWNS = 0x40000000, 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
NOT_ALLOWED = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS)
SWITCH = Path("/etc/nsswitch.conf")


def leave_network() -> bool:
    """Move this thread, and what it starts from now on, to a network that has loopback only.

    Returns: whether it was allowed. Threads that run already stay where they are.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.unshare(CLONE_NEWNET | CLONE_NEWNS))
    except OSError as error:
        if error.errno in NOT_ALLOWED:
            return False
        raise
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
    # Without this our mounts would be the machine's as well.
    _checked(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None))
    said = SWITCH.read_text("utf-8") if SWITCH.exists() else ""
    text = re.sub(r"(?m)^hosts:.*$", "hosts: files", said)
    if text != said:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as names:
            names.write(text)
            names.flush()
            os.chmod(names.name, 0o644)
            _checked(libc.mount(names.name.encode(), bytes(SWITCH), None, MS_BIND, None))
    return True


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Turns:
    """Who may run: any number of tests side by side, or one that has the machine alone."""

    def __init__(self, path: Path) -> None:
        """path: a file that all workers of a run know."""
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """No more turns for this worker; others that wait for one are not disturbed."""
        os.close(self._fd)
        self._path.unlink(missing_ok=True)

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Wait for a turn and hold it. The kernel gives it back when the worker dies."""
        fcntl.flock(self._fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
