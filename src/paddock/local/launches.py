"""The ``paddock launch`` of this user that run on this machine, as /proc shows them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Launch(NamedTuple):
    """pid: whom signals reach. seconds: since it was started. words: all of them, secrets too."""

    pid: int
    seconds: float
    words: tuple[str, ...]


def running_launches(proc: Path = Path("/proc")) -> list[Launch]:
    """The newest first."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        try:
            if folder.stat().st_uid != os.getuid():
                continue
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")[:-1]
            if command := launched(words):
                # Behind the name, which may hold anything: state, parent, ..., start in ticks.
                facts = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                found[int(folder.name)] = (int(facts[1]), int(facts[19]), command)
        except (OSError, IndexError):
            continue  # it has ended meanwhile
    now = float((proc / "uptime").read_text().split()[0]) if found else 0.0
    tick = os.sysconf("SC_CLK_TCK")
    # A launcher is the child of its guardian, and has the same words.
    return sorted(
        (
            Launch(pid, now - ticks / tick, command)
            for pid, (parent, ticks, command) in found.items()
            if parent not in found
        ),
        key=lambda launch: launch.seconds,
    )


def launched(words: list[str]) -> tuple[str, ...]:
    """What a process with these words launches; () for one that is no launcher.

    >>> launched(["/v/bin/python", "/v/bin/paddock", "launch", "--nproc_per_node", "2", "t.py"])
    ('--nproc_per_node', '2', 't.py')
    >>> launched(["python3", "-m", "paddock", "launch", "t.py"])
    ('t.py',)
    >>> launched(["vi", "paddock", "launch"]), launched(["python", "-c", "...", "fleetrun", "t.py"])
    ((), ())
    """
    for at, word in enumerate(words[:4]):
        name = os.path.basename(word)
        if name == "fleetrun" or (name == "paddock" and words[at + 1 : at + 2] == ["launch"]):
            is_python = "python" in os.path.basename(words[0]) and "-c" not in words[:at]
            begin = at + 1 if name == "fleetrun" else at + 2
            return tuple(words[begin:]) if at == 0 or is_python else ()
    return ()
