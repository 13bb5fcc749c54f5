"""Help and tables fit the terminal, 60 to 200 columns, and no word is broken."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from paddock.backends.text import status_lines
from paddock.backends.types import JobStatus, NodeStatus

if TYPE_CHECKING:
    from pathlib import Path


def on_a_terminal(columns: int, folder: Path, *words: str, code: int = 0) -> list[str]:
    """The lines of a command on a terminal so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [sys.executable, "-m", "paddock", *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder) as child:
        os.close(theirs)
        found = b""
        try:
            while data := os.read(ours, 65536):
                found += data
        except OSError:  # EIO: the other side has gone
            pass
        os.close(ours)
    assert child.returncode == code, found
    return found.decode().splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize(
    "words",
    [
        ("launch", "--rdzv_endpoint", "x:1", "--nproc_per_nodes", "2", "--log_lev", "no", "a.py"),
        ("status", "a-run-of-which-nothing-is-known-here", "and-another-one"),
    ],
)
def test_errors_fit_the_terminal(columns: int, words: tuple[str, ...], tmp_path: Path) -> None:
    """What is wrong, and each hint below it."""
    shown = on_a_terminal(columns, tmp_path, *words, code=2)
    wide = on_a_terminal(200, tmp_path, *words, code=2)
    assert all(len(line) < columns or len(line.split()) == 1 for line in shown)
    assert " ".join(shown).split() == " ".join(wide).split()
    assert shown[0].startswith("paddock: error: ")


def test_what_a_command_says_fits_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only errors did, and the terminal broke words of all other lines."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = on_a_terminal(60, tmp_path, "list")
    assert len(shown) == 2 and max(map(len, shown)) < 60
    assert shown[0].startswith("paddock: no runs yet; ")


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_help_fits_the_terminal_and_loses_no_word(columns: int, tmp_path: Path) -> None:
    """At 60 columns the terminal broke words in the middle."""
    for words in (["--help"], ["launch", "--help"], ["launch", "--help-all"], ["submit", "--help"],
                  ["explain", "--nnodes", "2", "train.py"]):  # fmt: skip
        shown = on_a_terminal(columns, tmp_path, *words)
        wide = on_a_terminal(200, tmp_path, *words)
        assert max(map(len, shown)) <= columns, words
        assert " ".join(shown).split() == " ".join(wide).split()


def test_the_common_flags_come_first_and_are_few(tmp_path: Path) -> None:
    """--nproc_per_node stood on line 38 of 165."""
    lines = on_a_terminal(100, tmp_path, "launch", "--help")
    assert len(lines) <= 45
    first = lines[lines.index("Common flags:") + 1]
    assert first.startswith("  --nproc-per-node")


def test_a_status_keeps_its_columns_and_cuts_the_last() -> None:
    """The note gives way; host and state stay whole."""
    nodes = (NodeStatus("node-with-a-long-name", "running", note="a sentence of many words" * 4),)
    why = "waits for two of the hosts of which nothing has been heard for a while"
    lines = status_lines("ssh:job", JobStatus("running", 0.0, nodes=nodes, why=why), 0.0, width=60)
    assert max(len(line) for text in lines for line in text.split("\n")) <= 60
    assert "node-with-a-long-name  running" in lines[-1] and lines[-1].endswith("…")
