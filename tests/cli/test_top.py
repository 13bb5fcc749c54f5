"""The plain board of `paddock top`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from paddock.cli.main import main
from paddock.cli.top import BoardSource, board_lines
from web.made import BEGAN, history_rows, make_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("columns", [1, 10, 60, 80, 160])
def test_hostile_text_stays_in_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    """A line is a row of the screen: neither a long one nor its text moves the cursor."""
    bad = "\x1b[2J\r\n\u202e\ud800"
    rows = history_rows(ranks=40)
    for rank in rows[1]["ranks"]:
        rank[0] = f"worker{bad}"
    rows[-1] |= {"rate": 1.0, "unit": bad, "values": {"loss": float("nan")}, "profile": bad}
    rows.append({"kind": "exit", "at": BEGAN + 40, "rank": 1, "how": bad})
    rows.append({"kind": "seen", "at": BEGAN + 40, "name": bad, "text": bad})
    make_run(tmp_path, "train-1", rows, why=f"rank 1 {bad}".encode("utf-8", "replace").decode())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lines = board_lines(BoardSource(("train-1",)).look(), time.time(), 24, columns)
    assert len(lines) <= 24
    assert [line for line in lines if not line.isprintable() or len(line) > max(columns, 2)] == []


def test_each_rank_is_one_line_of_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The width of most terminals: what says nothing, and then the node, is left out."""
    rows = history_rows(ranks=8, host="gpu-node-17.cluster.example")
    make_run(tmp_path, "pretrain-large-1", rows, end="succeeded", why="")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lines = board_lines(BoardSource(("pretrain-large-1",)).look(), time.time(), 24, 80)
    assert len(lines) == 2 + 2 + 1 + 8, lines
    assert lines[4].split()[:3] == ["rank", "state", "step"]


def test_the_bill_of_a_run_without_a_history_is_no_fault_of_paddock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of less than a second has none: exit code 2, as for other runs that do not fit."""
    make_run(tmp_path, "train-1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["bill", "train-1"])
    assert "train-1 has no history" in capsys.readouterr().err
