"""What outlives a launch with ``--warm keep``: the warm server, and what has to be known of it.

The launcher is started anew after each launch, by exec(2): it stays the parent of its children,
and no state of one launch reaches the next but what is written here.
"""

from __future__ import annotations

import json
import os

from paddock.core.job import Command
from paddock.local.warm.process import WarmProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.local.loop import Loop


class Rest:
    """A warm server between two launches, ready to fork.

    command, env: it was started with. differing: names of variables that it did not get.
    loaded: what it has imported, in took seconds. skipped: what it was not to import.
    files: of these modules. stamp: of the files, when they were read.
    """

    def __init__(self, process: WarmProcess, command: Command) -> None:
        self.process = process
        self.command = command
        self.env: dict[str, str] = {}
        self.differing: list[str] = []
        self.loaded: tuple[str, ...] = ()
        self.skipped: list[str] = []
        self.took = 0.0
        self.files: list[str] = []
        self.stamp = ""


class Kept:
    """The loop of a launcher that stays, and the warm server that the last launch has left."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.rest: Rest | None = None

    def write(self) -> int:
        """Into a file in memory, which an exec(2) leaves open."""
        fd = os.memfd_create("paddock-kept", 0)
        rest = self.rest
        row = None
        if rest is not None:
            row = {**vars(rest), "process": rest.process.leave(), "command": vars(rest.command)}
        with open(fd, "w", encoding="ascii", closefd=False) as f:
            json.dump(row, f)
        return fd

    def read(self, fd: int) -> None:
        """What write() has left; closes the file."""
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, encoding="ascii") as f:
            row = json.load(f)
        if row is None:
            return
        process = WarmProcess(self.loop)
        process.take_over(row.pop("process"))
        words = row.pop("command")
        command = Command(**{**words, "args": tuple(words["args"])})
        self.rest = Rest(process, command)
        vars(self.rest).update({**row, "loaded": tuple(row["loaded"])})
