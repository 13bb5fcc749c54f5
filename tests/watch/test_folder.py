"""Stacks asked for by files, where no socket reaches: damaged ones, silent ones, their end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from paddock.errors import UsageError
from paddock.watch import folder
from paddock.watch.folder import ANSWER, QUESTION, StacksMailbox, ask_folders

if TYPE_CHECKING:
    from pathlib import Path


def test_a_question_is_taken_once_and_a_damaged_one_never(tmp_path: Path) -> None:
    mailbox = StacksMailbox(str(tmp_path))
    assert mailbox.question() is None
    (question,) = tmp_path.glob(f"{QUESTION}*")
    for text in ('{"id": "1", "nat', "[1]", "[" * 100_000, "\0"):
        question.write_text(text)
        assert mailbox.question() is None
    question.write_text('{"id": "1", "native": true}')
    assert mailbox.question() == {"id": "1", "native": True}
    assert mailbox.question() is None
    question.write_text('{"id": "2", "nat')
    assert mailbox.question() is None


def test_a_launcher_that_is_silent_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed, or its host does not answer; the others' answers are not lost for it."""
    monkeypatch.setattr(folder, "ANSWER_SECONDS", 0.2)
    (tmp_path / f"{ANSWER}node7.123").write_text('{"id": "old", "stacks": []}')
    said = [{"host": "node7", "stacks": [], "problem": "no answer within 0.2 s"}]
    assert ask_folders("train", [tmp_path], native=False) == said


def test_no_launcher_is_no_answer_and_nothing_is_left(tmp_path: Path) -> None:
    first = StacksMailbox(str(tmp_path))
    assert sorted(path.stat().st_mode & 0o777 for path in tmp_path.iterdir()) == [0o600] * 2
    first.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="no launcher of train answers now"):
        ask_folders("train", [tmp_path], native=False)
    assert list(tmp_path.iterdir()) == []


def test_two_commands_that_ask_at_once_are_both_answered(tmp_path: Path) -> None:
    """The second one's question replaces the first one's before the launcher has read it."""
    mailbox = StacksMailbox(str(tmp_path))
    (question,) = tmp_path.glob(f"{QUESTION}*")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask_folders, "train", [tmp_path], native=False)
        while question.read_text() in ("", "{}"):
            assert not first.done()
        question.write_text('{"id": "second", "native": false}')
        while not first.done():
            if mailbox.question() is not None:
                mailbox.answer({"host": "node7", "stacks": []})
    (row,) = first.result()
    assert (row["host"], row.get("problem")) == ("node7", None)
