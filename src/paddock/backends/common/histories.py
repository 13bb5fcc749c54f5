"""Copies of the histories of a job's hosts, in the entry of its run: each time what is new."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from paddock.errors import PaddockError, Problem, refuse

Host = TypeVar("Host")
Row = Mapping[str, Any]
ROUNDS_MAX = 16  # of one host's answers; a history is smaller


def fetch_histories(
    folder: Path,
    questions: Sequence[tuple[Host, Row]],
    ask_all: Callable[[Sequence[tuple[Host, Row]]], Sequence[Row | PaddockError]],
) -> list[Path]:
    """Copy the histories of all hosts into a folder; return the copies.

    A host that cannot be asked keeps its copy of before. Raises UsageError if no host can be, and
    no copy is there.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = _read_known(folder)
    left = [(str(at), target, row) for at, (target, row) in enumerate(questions)]
    problems: list[PaddockError] = []
    for _ in range(ROUNDS_MAX):
        asked = [(t, {**row, "known": known.get(node, {})}) for node, t, row in left]
        answers = ask_all(asked)
        problems += [answer for answer in answers if isinstance(answer, PaddockError)]
        again = []
        for question, answer in zip(left, answers, strict=True):
            if not isinstance(answer, PaddockError):
                _take(folder, question[0], known.setdefault(question[0], {}), answer)
                again += [] if answer["is_whole"] else [question]
        left = again
        if not left:
            break
    (folder / "known.json").write_text(json.dumps(known), "utf-8")
    found = [_path(folder, node, name) for node, files in known.items() for name in files]
    if not found and problems and len(problems) == len(questions):
        refuse([Problem(each.message, each.hint) for each in problems])
    return found


def _take(folder: Path, node: str, known: dict[str, Any], answer: Mapping[str, Any]) -> None:
    """Append a host's news to its copies; one that was replaced there begins anew."""
    for file in answer["files"]:
        name, data = str(file["name"]), str(file["text"]).encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | (0 if file["at"] else os.O_TRUNC)
        with open(os.open(_path(folder, node, name), flags, 0o600), "wb") as copy:
            copy.seek(0, os.SEEK_END)
            copy.write(data)
        known[name] = (file["inode"], int(file["at"]) + len(data))


def _path(folder: Path, node: str, name: str) -> Path:
    """Return the path of a copy: a name of ours, whatever the host's file is called."""
    return folder / f"{int(node)}-{name.encode().hex()[-160:]}.jsonl"


def _read_known(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "known.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
