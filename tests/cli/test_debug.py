"""`paddock debug`: real ranks under a real pdb, on a real terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SECONDS = 25.0
TRAIN = """\
import itertools, os, sys, time
rank = int(os.environ["RANK"])
total = 0
for step in range(3):
    total += step + rank
    print(f"step {step} total {total}")
if "fail" in sys.argv and rank == 1:
    raise ValueError(f"wrong total {total}")
if "wait" in sys.argv:
    while not os.path.exists("go"):
        time.sleep(0.01)
if "native" in sys.argv and rank == 1:
    sum(itertools.repeat(0))
if "breakpoint" in sys.argv:
    breakpoint()
print("done", rank)
"""


class Terminal:
    """A command with a terminal of its own, as a person has it: what it prints, what is typed."""

    def __init__(self, *words: str, cwd: Path) -> None:
        self.master, slave = os.openpty()
        env = {**os.environ, "TERM": "dumb", "PYTHON_COLORS": "0", "HOME": str(cwd)}
        self.process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "paddock", "debug", *words],
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
        os.write(self.master, text.encode() if text < " " else f"{text}\n".encode())

    def answer(self, line: str) -> str:
        """What pdb prints for a line: up to the next prompt."""
        self.type(line)
        self.until(line)
        return self.until("(Pdb rank 1) ").strip()

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def terminal(folder: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """Two ranks, the second of which is debugged; arguments of the script are the parameter."""
    words = ("--rank", "1", "--nproc-per-node", "2", *request.param.split())
    found = Terminal(*words, cwd=folder)
    found.until("(Pdb rank 1) ")
    yield found
    if found.process.poll() is None:
        found.process.kill()
        found.process.wait()
    os.close(found.master)


@pytest.mark.parametrize("terminal", ["train.py", "-m train"], indirect=True)
def test_a_rank_stops_at_a_breakpoint_and_both_ranks_finish(
    terminal: Terminal, folder: Path
) -> None:
    """The heart of it: pdb has the terminal, the rank's output its log, the other rank waits."""
    terminal.answer("b 6")
    assert "train.py(6)" in terminal.answer("c")
    assert terminal.answer("p total, rank") == "(1, 1)"
    terminal.answer("clear 1")
    terminal.type("c")
    assert terminal.end() == 0
    assert "done 1" in terminal.text
    assert "done · 2 ranks" in terminal.text
    assert "done 1" in (folder / "log" / "workerlog.1").read_text()
    assert "Pdb" not in (folder / "log" / "workerlog.1").read_text()


@pytest.mark.parametrize("terminal", ["train.py wait"], indirect=True)
def test_ctrl_c_interrupts_the_rank(terminal: Terminal, folder: Path) -> None:
    """As pdb has it: the job goes on, and at the prompt nothing but a new one comes."""
    terminal.type("c")
    terminal.until("step 2 total 6")
    terminal.type("\x03")
    assert "Program interrupted" in terminal.until("(Pdb rank 1) ")
    assert terminal.answer("p step") == "2"
    terminal.type("\x03")
    terminal.until("(Pdb rank 1) ")
    (folder / "go").touch()
    terminal.type("c")
    assert terminal.end() == 0


@pytest.mark.parametrize("terminal", ["train.py native"], indirect=True)
def test_ctrl_c_typed_twice_ends_a_job_whose_rank_is_in_native_code(terminal: Terminal) -> None:
    """Python takes a signal between two of its own instructions, which do not come here."""
    terminal.type("c")
    terminal.until("step 2 total 6")
    terminal.type("\x03")
    terminal.until("Ctrl-C again ends the job")
    terminal.type("\x03")
    assert terminal.end() == 130


@pytest.mark.parametrize("terminal", ["train.py"], indirect=True)
def test_quit_ends_the_job(terminal: Terminal) -> None:
    terminal.type("q")
    assert terminal.end() == 130
    assert "stopped" in terminal.text


@pytest.mark.parametrize("terminal", ["train.py fail"], indirect=True)
def test_an_uncaught_exception_ends_in_pdb_where_it_was_raised(terminal: Terminal) -> None:
    """The frames are the script's own, and the job then fails as it would have without pdb."""
    printed = terminal.answer("c")
    assert "ValueError: wrong total 6" in printed
    assert "pdb_rank" not in printed
    assert "train.py(8)" in printed
    assert terminal.answer("p total") == "6"
    terminal.type("q")
    assert terminal.end() == 1
    assert "rank 1" in terminal.text


@pytest.mark.parametrize("terminal", ["train.py breakpoint"], indirect=True)
def test_breakpoint_stops_the_debugged_rank_alone(terminal: Terminal) -> None:
    """The other rank has no terminal: its breakpoint() does nothing."""
    terminal.answer("c")
    assert terminal.answer("p step") == "2"
    terminal.type("c")
    assert terminal.end() == 0
