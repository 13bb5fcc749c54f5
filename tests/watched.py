"""Real launches for the tests of the watch: a script, its launcher, and its history; and commands
on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SECONDS_MAX = 100.0
CLEAR = "\r\x1b[K"

STUCK = """\
import os, sys, threading, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, how = dist.get_rank(), sys.argv[1]
def read_the_wrong_shard():
    if how == "sleep":
        while True: time.sleep(0.01)
    if how == "loop":
        while True: pass
    if how == "lock":
        lock = threading.Lock(); lock.acquire(); lock.acquire()
    if how == "pipe":
        os.read(os.pipe()[0], 1)
t = torch.ones(1000)
for step in range(10**9):
    if step == 40 and rank == 2 and how != "never":
        read_the_wrong_shard()
    dist.all_reduce(t); t /= 4
    time.sleep(0.1)
    if step % 10 == 0 and rank == 0: print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
"""


class WatchedRun:
    """A launch of a script. folder: its working directory."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process

    @property
    def run_id(self) -> str:
        """Its id, once it has a history."""
        return self.wait(lambda: [p.parent.name for p in self._histories()])[0]

    def _histories(self) -> list[Path]:
        return sorted(self.folder.glob("log/runs/*/history.jsonl"))

    def rows(self, *kinds: str) -> list[dict[str, Any]]:
        """The whole rows of these kinds until now; of all without any."""
        lines = [line for path in self._histories() for line in path.read_text().splitlines(True)]
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [row for row in found if not kinds or row["kind"] in kinds]

    def wait(self, is_true: Callable[[], Any], seconds: float = SECONDS_MAX) -> Any:
        """Wait until something is true; returns it."""
        until = time.monotonic() + seconds
        while not (found := is_true()):
            assert time.monotonic() < until, f"not within {seconds:g} s: {self.rows('stall')}"
            time.sleep(0.1)  # sleep: a file's growth wakes nobody
        return found

    def wait_row(self, kind: str) -> dict[str, Any]:
        """The first row of a kind, once it is there."""
        row: dict[str, Any] = self.wait(lambda: self.rows(kind))[0]
        return row

    def pid_of(self, rank: int) -> int:
        """The process of a rank."""
        pids = {r[1]: r[2] for r in self.wait_row("attempt")["ranks"]}
        return int(pids[rank])

    def paddock(self, *words: str) -> str:
        """What a command prints on stdout; it must end well."""
        argv = [sys.executable, "-m", "paddock", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def launched(
    folder: Path,
    script: str,
    *words: str,
    flags: tuple[str, ...],
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
) -> Iterator[WatchedRun]:
    """Launch a script; it is stopped in the end. env: more variables. stdin: as of Popen."""
    (folder / "train.py").write_text(script)
    argv = [python, "-m", "paddock", "launch", *flags, "train.py", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    with (folder / "out.txt").open("w") as out:
        process = subprocess.Popen(
            argv, cwd=folder, stdin=stdin, stdout=out, stderr=out, env=env, text=True
        )
    try:
        yield WatchedRun(folder, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdin is not None:
            process.stdin.close()


class OnTerminal:
    """A command on a terminal of its own."""

    def __init__(self, *words: str, cwd: Path, columns: int = 60) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "paddock", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def until(self, is_true: Callable[[str], object], seconds: float = 60) -> str:
        """What was shown, once that is true."""
        end = time.monotonic() + seconds
        while not is_true(self.text) and time.monotonic() < end:
            if select.select([self._ours], [], [], 0.2)[0] and not self._read():
                break
        assert is_true(self.text), self.text
        return self.text

    def end(self, number: int = 0) -> tuple[int, str]:
        """Its exit code and what was shown, after a signal."""
        if number:
            self.process.send_signal(number)
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(30), self.text

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # EIO: the other side has gone
            data = b""
        self.text += data.decode()
        return bool(data)


def left_on(text: str) -> list[str]:
    """The lines that stay on a terminal. Where colorama is, it resets colours at the exit."""
    lines = text.removesuffix("\x1b[0m").replace("\r\n", "\n").split("\n")
    return [line.split(CLEAR)[-1] for line in lines if line.split(CLEAR)[-1].strip()]
