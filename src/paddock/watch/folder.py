"""Ask launchers on other hosts for stacks through files, where hosts share a job's directory.

A control socket reaches nobody on another host. stacks.ask has the newest question, a line of JSON;
each launcher reads it at every look, and writes its answer into a file of its own. Both files
are there from the launcher's start and are written in place: NFS finds new text when a file is
opened, and a new file much later (nfs(5), DATA AND METADATA COHERENCE).
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

QUESTION, ANSWER = "stacks.ask", "stacks.of."
ANSWER_SECONDS = 10.0
NATIVE_SECONDS = 45.0
FILE_BYTES_MAX = 1 << 26
FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class StacksMailbox:
    """The launcher's side of the files in a directory."""

    def __init__(self, folder: str) -> None:
        """Make the files. Raises OSError."""
        self._folder = folder
        self._question = os.path.join(folder, QUESTION)
        self._answer = os.path.join(folder, f"{ANSWER}{os.uname().nodename}.{os.getpid()}")
        _write(self._answer, {})
        os.close(os.open(self._question, os.O_WRONLY | FLAGS, 0o600))
        self._asked = _read(self._question).get("id")  # an old one

    def question(self) -> Mapping[str, Any] | None:
        """Return a question that is new: its id, and whether stacks are to be native."""
        row = _read(self._question)
        if row.get("id") in (None, self._asked):
            return None
        self._asked = row.get("id")
        return row

    def answer(self, row: Mapping[str, object]) -> None:
        """Answer the latest question. A disk that is full keeps the answer."""
        try:
            _write(self._answer, {**row, "id": self._asked})
        except OSError:
            return

    def close(self) -> None:
        """Remove the answer: nobody waits for this launcher; the last one removes the question."""
        try:
            os.unlink(self._answer)
            if not any(name.startswith(ANSWER) for name in os.listdir(self._folder)):
                os.unlink(self._question)
        except OSError:
            return  # its directory was removed


def ask_folders(folders: list[Path], *, native: bool) -> list[dict[str, Any]]:
    """The answers of all launchers that have files in these directories; [] without any.

    One that is silent for long has an answer with its host and the problem. Raises OSError.
    """
    asked = f"{os.getpid()}.{time.time_ns()}"
    seconds = NATIVE_SECONDS if native else ANSWER_SECONDS
    waiting = [path for folder in folders for path in sorted(folder.glob(f"{ANSWER}*"))]
    for folder in {path.parent for path in waiting}:
        _write(str(folder / QUESTION), {"id": asked, "native": native})
    until, found = time.monotonic() + seconds, []
    while waiting:
        for path in list(waiting):
            row = _read(str(path))
            if row.get("id") == asked:
                found.append(dict(row))
            elif time.monotonic() > until:
                host = path.name.removeprefix(ANSWER).rpartition(".")[0]
                problem = f"no answer within {seconds:g} s"
                found.append({"host": host, "stacks": [], "problem": problem})
            elif path.exists():
                continue
            waiting.remove(path)
        # sleep: a file on another host's disk wakes nobody
        time.sleep(0.1 if waiting else 0.0)
    return found


def _read(path: str) -> Mapping[str, Any]:
    """The row of a file; {} while it is written, and where it is damaged."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            row = json.loads(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _write(path: str, row: Mapping[str, object]) -> None:
    with open(os.open(path, os.O_WRONLY | FLAGS, 0o600), "w", encoding="utf-8") as file:
        file.truncate()
        file.write(json.dumps(row))
