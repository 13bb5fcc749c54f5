"""Ends and removes what one test cluster made, knowing nothing but its folder.

The folder says it all: `owner` is the process that made it, `pids/NAME` its programs, `groups` its
control groups (and so its containers). A process is named by pid and start time, so a pid that the
kernel has given to somebody else is left alone. Nothing is found by matching names.

    python sweep.py FOLDER     wait for the end of standard input, then sweep: this is the guard,
                               started with every cluster, that outlives a test session's kill -9

This file imports the standard library only and runs by its path: the guard must be small.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PREFIX = "paddock-cluster-"
CGROUPS = Path("/sys/fs/cgroup")
GONE_SECONDS_MAX = 15.0


def stamp(pid: int) -> str:
    """A process' identity: its pid and when it started. Empty when it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    # proc(5): the name, in parentheses, may hold anything; state is field 3, start time field 22.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else f"{pid} {fields[19]}"


def is_alive(stamped: str) -> bool:
    """Whether the process with this identity still runs."""
    pid = stamped.partition(" ")[0]
    return pid.isdigit() and stamp(int(pid)) == stamped.strip()


def hierarchies() -> list[Path]:
    """Where control groups are made: one folder with version 2, one per controller with 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    folders = [p for p in CGROUPS.iterdir() if (p / "cgroup.procs").exists()]
    # `cpu -> cpu,cpuacct` on many distributions: one of both names is enough.
    return sorted({p.resolve() for p in folders})


def pids_in(group: str) -> set[int]:
    """Every process of a control group and those below it, in any hierarchy."""
    found: set[int] = set()
    for root in hierarchies():
        for file in (root / group).rglob("cgroup.procs"):
            try:
                found.update(int(word) for word in file.read_text("utf-8").split())
            except OSError:  # the group has just gone
                continue
    return found


def kill_group(group: str) -> None:
    """kill -9 to every process of a control group; comes back when all are gone."""
    wait_until(lambda: not _killed(pids_in(group)))


def sweep(folder: Path) -> None:
    """End every program and container of this cluster, remove its groups and its folder."""
    groups = _lines(folder / "groups")
    stamps = [line for file in sorted((folder / "pids").glob("*")) for line in _lines(file)]
    for stamped in stamps:
        if is_alive(stamped):
            _killed([int(stamped.partition(" ")[0])])
    for group in groups:
        kill_group(group)
    wait_until(lambda: not any(map(is_alive, stamps)))
    for group in groups:
        wait_until(lambda group=group: _removed(group))  # type: ignore[misc]
    # A name first that no other sweep knows: a second one finds nothing to do.
    gone = folder.with_name(f"{folder.name}.gone")
    try:
        folder.rename(gone)
    except FileNotFoundError:
        return
    wait_until(lambda: _emptied(gone))


def sweep_stale() -> None:
    """Remove what earlier sessions left whose process and guard were both killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if folder.name.endswith(".gone"):
            _emptied(folder)
        elif (owner := _lines(folder / "owner")) and not any(map(is_alive, owner)):
            sweep(folder)  # without an owner it is just being made


def wait_until(done: Callable[[], bool]) -> bool:
    """Whether it was done within GONE_SECONDS_MAX."""
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)  # sleep: the ends of processes that are not ours wake nobody here
    return True


def _killed(pids: Iterable[int]) -> list[int]:
    """Send SIGKILL; returns those that were there to get it."""
    found = []
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        if stamp(pid):
            found.append(pid)
    return found


def _removed(group: str) -> bool:
    """Remove a control group and those below it; False while one of them is busy."""
    for root in hierarchies():
        below = sorted((root / group).rglob("*/"), reverse=True)
        for folder in [*(p for p in below if p.is_dir()), root / group]:
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # busy: its last process is still going
                return False
    return True


def _emptied(folder: Path) -> bool:
    """Remove a folder; False when something in it is still held."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text("utf-8").splitlines() if line]
    except OSError:
        return []


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep(Path(sys.argv[1]))
