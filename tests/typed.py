"""A command on a terminal of its own: what it prints is waited for, and then something is typed."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path

SECONDS = 25.0


class Terminal:
    """A command with a terminal of its own, as a person has it: what it prints, what is typed."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.master, slave = os.openpty()
        env = {**os.environ, "TERM": "dumb", "PYTHON_COLORS": "0", "HOME": str(cwd)}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *words],
            cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        self.text = ""

    def until(self, wanted: str) -> str:
        """Read until this is printed; returns all before it since the last time."""
        end = time.monotonic() + SECONDS
        while wanted not in self.text:
            assert select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0], (
                f"not printed: {wanted!r}, but {self.text!r}"
            )
            try:
                data = os.read(self.master, 65536)
            except OSError:  # EIO: nobody has it any more
                data = b""
            assert data, f"ended without {wanted!r}: {self.text!r}"
            self.text += data.decode().replace("\r\n", "\n")
        before, _, self.text = self.text.partition(wanted)
        return before

    def type(self, text: str) -> None:
        """Type a line, or a control character."""
        os.write(self.master, text.encode() if text and text < " " else f"{text}\n".encode())

    def end(self) -> int:
        """The exit code, once all has been read."""
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                break
            if not data:
                break
            self.text += data.decode().replace("\r\n", "\n")
        return self.process.wait(SECONDS)
