"""Runs a command in a terminal of its own and keeps what it showed: when, which text, which colour.

A line is kept as it was when it was left; what a program wrote over before that is not.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

COLUMNS, ROWS = 64, 40  # a phone shows it without a magnifying glass
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])")
INKS = {"31": "bad", "32": "good", "33": "back", "34": "forward", "36": "forward", "90": "quiet"}


@dataclass(frozen=True)
class Piece:
    """Letters of one look. ink: a name of svg.COLOURS, "" for the usual one."""

    text: str
    ink: str = ""
    is_bold: bool = False


@dataclass(frozen=True)
class Line:
    """A line of the terminal, and when it was complete, in seconds."""

    at: float
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """Without its colours."""
        return "".join(piece.text for piece in self.pieces)


class Terminal:
    """A command in a terminal, from `began` on. The argument: the clock's time that counts as 0."""

    def __init__(
        self, command: Sequence[object], *, cwd: Path, env: Mapping[str, str], began: float
    ) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        env = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env}
        self._clock = began
        self.began = time.monotonic() - began
        self._heard: list[tuple[float, str]] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            list(map(str, command)), cwd=cwd, env=env,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,))
        self._reader.start()

    def _read(self, ours: int) -> None:
        rest = b""
        while True:
            try:
                new = os.read(ours, 1 << 16)
            except OSError:  # EIO: nobody has the terminal any more
                new = b""
            whole, newline, rest = (rest + new).rpartition(b"\n")
            if not new:
                whole, newline, rest = rest, b"", b""
            with self._changed:
                if whole or newline:
                    text = (whole + newline).decode("utf-8", "replace")
                    self._heard.append((time.monotonic() - self._clock, text))
                self._changed.notify_all()
            if not new:
                os.close(ours)
                return

    def wait_for(self, wanted: str, seconds: float) -> None:
        """Wait until the terminal has shown this text."""

        def is_shown() -> bool:
            return any(wanted in text for _, text in self._heard) or not self._reader.is_alive()

        with self._changed:
            self._changed.wait_for(is_shown, seconds)
            shown = "".join(text for _, text in self._heard)
        assert wanted in shown, f"never saw '{wanted}':\n{shown}"

    def end(self, seconds: float) -> list[Line]:
        """Wait for the end of the command; all that it showed."""
        self.process.wait(seconds)
        self._reader.join(seconds)
        return [line for at, text in self._heard for line in lines_of(at, text)]


def lines_of(at: float, text: str) -> list[Line]:
    """Whole lines, with their colours; what is written over is as it was at last."""
    lines: list[Line] = []
    row: list[tuple[str, str, bool]] = []
    column, ink, is_bold, end = 0, "", False, 0
    for match in [*ESCAPE.finditer(text), None]:
        for letter in text[end : match.start() if match else len(text)]:
            row[column : column + 1] = [(letter, ink, is_bold)]
            column += 1
        if match is None:
            break
        end = match.end()
        if match[3] == "\n":
            lines.append(Line(at, pieces_of(row)))
            row, column = [], 0
        elif match[3] == "\r":
            column = 0
        elif match[2] == "K":
            del row[0 if match[1] == "2" else column :]
        elif match[2] == "m":
            for code in match[1].split(";"):
                ink = (
                    ""
                    if code in ("", "0", "39")
                    else INKS.get(code, "quiet" if code == "2" else ink)
                )
                is_bold = code == "1" or (is_bold and code not in ("", "0", "22"))
    return [*lines, Line(at, pieces_of(row))] if row else lines


def pieces_of(row: list[tuple[str, str, bool]]) -> tuple[Piece, ...]:
    """Neighbours of one look together."""
    pieces: list[Piece] = []
    for letter, ink, is_bold in row:
        if pieces and (pieces[-1].ink, pieces[-1].is_bold) == (ink, is_bold):
            pieces[-1] = Piece(pieces[-1].text + letter, ink, is_bold)
        else:
            pieces.append(Piece(letter, ink, is_bold))
    return tuple(pieces)
