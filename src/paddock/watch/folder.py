"""Ask launchers for stacks through files: a control socket reaches nobody on another host.

Each launcher has a file with the newest question to it, a line of JSON, which it reads at every
look, and one with its answer. Both are there from its start and are written in place: NFS finds new
text when a file is opened, and a new file much later (nfs(5), DATA AND METADATA COHERENCE).
"""

from __future__ import annotations

import json
import os
import time

from paddock.errors import PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

QUESTION, ANSWER = "stacks.ask.", "stacks.of."  # then the host's name, ".", the launcher's pid
ANSWER_SECONDS = 10.0
NATIVE_SECONDS = 45.0
FILE_BYTES_MAX = 1 << 26
FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class StacksMailbox:
    """The launcher's side of the files in a directory."""

    def __init__(self, folder: str) -> None:
        """Make the files. Raises OSError."""
        own = f"{os.uname().nodename}.{os.getpid()}"
        self._question, self._answer = (f"{folder}/{n}{own}" for n in (QUESTION, ANSWER))
        for path in (self._question, self._answer):
            _write(path, {})
        self._asked: object = None

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
        """Remove the files: nobody waits for this launcher."""
        try:
            os.unlink(self._answer)
            os.unlink(self._question)
        except OSError:
            return  # its directory was removed


def ask_folders(
    name: str, folders: list[Path], *, native: bool, host: str = "*"
) -> list[dict[str, Any]]:
    """The answers of all launchers of a run that have files in these directories.

    One that is silent for long has an answer with its host and the problem. Raises PaddockError.
    """
    asked = f"{os.getpid()}.{time.time_ns()}"
    seconds = NATIVE_SECONDS if native else ANSWER_SECONDS
    waiting = [path for folder in folders for path in sorted(folder.glob(f"{ANSWER}{host}.*"))]
    if not waiting:
        hint = "a launcher answers from its second second until its end"
        raise UsageError(f"no launcher of {name} answers now", hint=hint)

    def ask(question: str) -> None:
        try:
            _write(question, {"id": asked, "native": native})
        except OSError as error:
            raise PaddockError(f"{error.filename}: {error.strerror}") from error

    questions = {path: str(path).replace(f"/{ANSWER}", f"/{QUESTION}") for path in waiting}
    for question in questions.values():
        ask(question)
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
                newest = _read(questions[path]).get("id")
                if newest not in (None, asked) and newest == row.get("id"):
                    ask(questions[path])  # another command asked after us, and was answered
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
