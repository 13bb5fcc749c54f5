"""The lock of a log directory: a single job writes there at a time.

flock(2) ends with its holder. Some file systems have none (ENOLCK, ENOTSUP, ENOSYS: NFS without
lockd, Lustre mounted without flock, some of FUSE and 9p); there a file made with O_EXCL says who
writes, and stays when its owner is killed:

    .paddock/owner.N    boot id, pid namespace, pid and start time of the job that writes

A file whose owner is known to be gone, since it was a process of this machine, is passed over and
number N + 1 is made; so of two that find it one wins. Of an owner elsewhere nothing is known: its
directory is left alone, and the message names the file to delete.
"""

from __future__ import annotations

import os

PREFIX = "owner."


class DirectoryLock:
    """The lock of a directory. is_held: this process may write there. hint: why not."""

    def __init__(
        self, fd: int = -1, path: str = "", *, is_held: bool = True, hint: str = ""
    ) -> None:
        self.is_held = is_held
        self.hint = hint
        self._fd = fd
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
        if self._path:
            _remove(self._path)
        self._fd, self._path = -1, ""


def lock(fd: int, folder: str) -> DirectoryLock:
    """Lock by flock(2) of this open file, which is kept or closed, or else by an owner file."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return DirectoryLock(is_held=False)
    except OSError:
        os.close(fd)
        return _own(folder)
    return DirectoryLock(fd)


def _own(folder: str) -> DirectoryLock:
    numbers = sorted(
        int(name[len(PREFIX) :])
        for name in os.listdir(folder)
        if name.startswith(PREFIX) and name[len(PREFIX) :].isdigit()
    )
    paths = [os.path.join(folder, f"{PREFIX}{number}") for number in numbers]
    for path in paths:
        if not _is_gone(path):
            hint = f" (locks do not work there: if that job is gone, delete {path})"
            return DirectoryLock(is_held=False, hint=hint)
    mine = os.path.join(folder, f"{PREFIX}{numbers[-1] + 1 if numbers else 1}")
    try:
        fd = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return DirectoryLock(is_held=False)
    try:
        os.write(fd, process_text(os.getpid()).encode())
    finally:
        os.close(fd)
    for path in paths:
        _remove(path)
    return DirectoryLock(path=mine)


def process_text(pid: int) -> str:
    """The identity of a process of this machine, which no later process has; "" when it has ended.

    Source: proc(5), /proc/sys/kernel/random/boot_id and field 22 of /proc/pid/stat.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
        if fields[0] == "Z":  # ended; the init of some containers reaps nothing
            return ""
        started = fields[19]
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            boot = f.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {pid} {started}\n"
    except OSError:
        return ""


def uptime_seconds() -> float:
    """Seconds since this machine was booted, which no change of the clock moves; 0.0: unknown.

    Source: proc_uptime(5).
    """
    try:
        with open("/proc/uptime", encoding="ascii") as f:
            return float(f.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0


def _is_gone(path: str) -> bool:
    """True when the owner was a process of this machine that has ended. Half a file is no proof."""
    try:
        with open(path, encoding="ascii", errors="replace") as f:
            text = f.read()
    except OSError:
        return False
    return is_gone(text) is True


def is_gone(text: str) -> bool | None:
    """Return True if the process of a process_text() has ended; None if that is unknown here."""
    words = text.split()
    ours = process_text(os.getpid()).split()
    if len(words) != 4 or not ours or not words[2].isdigit():
        return None
    if words[0] != ours[0] or words[1] != ours[1]:
        return None  # another boot or machine, or another container
    return process_text(int(words[2])) != text


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # another process was quicker
