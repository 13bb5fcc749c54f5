"""The progress meter: its states by a clock that is turned, and real commands on a terminal."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.watch.meter import ProgressMeter
from watched import CLEAR, OnTerminal, launched, left_on

if TYPE_CHECKING:
    from pathlib import Path

SLEEPS = "import time\ntime.sleep(600)\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setenv("TERM", "xterm")
    return Clock()


# What each stream has after so many seconds, with a look every quarter of a second.
STATES = {
    ("terminal", 1.75): 0,
    ("terminal", 2.0): 1,
    ("terminal", 4.0): 9,
    ("pipe", 9.75): 0,
    ("pipe", 10.0): 1,
    ("pipe", 35.0): 3,
    ("dumb", 10.0): 1,
    ("quiet", 35.0): 0,
}


@pytest.mark.parametrize(("kind", "seconds"), STATES)
def test_when_a_line_comes(
    kind: str, seconds: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the first two seconds; a terminal's line is rewritten, a pipe has one in ten."""
    stream = io.StringIO() if kind == "pipe" else Terminal()
    if kind == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    meter = ProgressMeter("splitting", stream=stream, now=clock, is_quiet=kind == "quiet")
    for look in range(1, int(seconds * 4) + 1):
        clock.now = 100.0 + look / 4
        meter(look, 1000)
        meter.tick()
    text = stream.getvalue()
    assert len(re.findall("paddock: splitting, ", text)) == STATES[kind, seconds]
    assert ("\n" in text) == (kind in ("pipe", "dumb") and text != "")
    meter.clear()
    assert stream.getvalue() == text + CLEAR * (kind == "terminal" and text != "")


def test_what_a_line_tells(clock: Clock) -> None:
    """Done of all, the rate and the time left; what is not known is left out."""
    meter = ProgressMeter("reading", "files", stream=Terminal(), now=clock)
    clock.now += 5
    assert meter.line() == "paddock: reading, 5 s"
    meter.text = "a.txt"
    assert meter.line() == "paddock: reading, 5 s, a.txt"
    meter(0, 4)
    assert meter.line() == "paddock: reading, 0 of 4 files, 5 s, a.txt"
    meter(1, 4)
    assert meter.line() == "paddock: reading, 1 of 4 files, 15 s left, a.txt"
    meter(50, 0)
    assert meter.line() == "paddock: reading, 50 files, 10/s, a.txt"
    meter.begin("copying", total=2000, done=1000)
    clock.now += 2
    meter.add(100)
    meter.add(total=1000)
    assert meter.line() == "paddock: copying, 1,100 of 3,000 files, 50/s, 38 s left"
    meter(3001, 3000)
    assert meter.line().endswith(", 0 s left")


def test_the_rate_is_without_what_came_before_the_first(clock: Clock) -> None:
    """A minute of compiling tells nothing of the time left."""
    meter = ProgressMeter("training", stream=Terminal(), now=clock)
    clock.now += 60
    meter(10, 100)
    meter.tick()
    clock.now += 1
    meter(20, 100)
    assert meter.line() == "paddock: training, 20 of 100, 10/s, 8 s left"


def test_other_output_stands_on_lines_of_its_own(clock: Clock) -> None:
    """The line is cleared for it, and comes again below."""
    stream = Terminal()
    meter = ProgressMeter("waiting", stream=stream, now=clock)
    clock.now += 3
    meter.tick()
    with meter.aside():
        stream.write("news\n")
    meter.tick()
    clock.now += 1
    meter.tick()
    shown = f"{CLEAR}paddock: waiting, 3 s\r{CLEAR}news\n{CLEAR}paddock: waiting, 4 s\r"
    assert stream.getvalue() == shown


def test_a_pipe_that_others_write_to_needs_no_line(clock: Clock) -> None:
    """Only ten seconds of silence are worth one."""
    stream = io.StringIO()
    meter = ProgressMeter("training", stream=stream, now=clock)
    for _ in range(5):
        clock.now += 9
        meter.tick()
        meter.clear()
    assert stream.getvalue() == ""


def test_a_stream_that_is_gone_stops_nothing(clock: Clock) -> None:
    """The work is more than its line."""
    stream = Terminal()
    meter = ProgressMeter("working", stream=stream, now=clock)
    stream.close()
    clock.now += 3
    meter.tick()
    meter.clear()
    meter(1, 2)
    assert meter.line() == "paddock: working, 1 of 2, 3 s left"


def test_a_stderr_that_was_closed_before_the_start_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`paddock data generate ... 2>&-`: Python has no stream then."""
    monkeypatch.setattr("sys.stderr", None)
    with ProgressMeter("working") as meter:
        meter(1, 2)
    assert "1 of 2" in meter.line()


# ------------------------------------------------------------------------------ on a real terminal


@pytest.mark.limit(90)
def test_generated_data_is_counted_and_ctrl_c_leaves_no_line(tmp_path: Path) -> None:
    """`paddock data generate` with more than it will make."""
    words = ("data", "generate", "criteo", "--out", "c", "--examples", "900000000")
    command = OnTerminal(*words, cwd=tmp_path)
    shown = command.until(lambda text: text.count("paddock: generating, ") > 3)
    line = r"paddock: generating, [\d,]+ of 900,000,000 examples, [\d,]+"
    assert len(re.findall(line, shown)) > 2
    assert max(map(len, shown.split(CLEAR))) <= 60
    code, shown = command.end(signal.SIGINT)
    assert code == 130
    assert not [line for line in left_on(shown) if "generating" in line]


@pytest.mark.limit(90)
def test_wait_says_what_it_waits_for(tmp_path: Path) -> None:
    """Of a run that goes on; its end is shown where the line was."""
    with launched(tmp_path, SLEEPS, flags=("--nproc-per-node", "2")) as run:
        run.wait_row("attempt")
        command = OnTerminal("wait", run.run_id, cwd=tmp_path)
        command.until(lambda text: f"s, {run.run_id} is running (2 ranks up)" in text)
        run.paddock("stop", run.run_id)
        code, shown = command.end()
    assert code == 143
    assert left_on(shown)[0].startswith(f"{run.run_id}: stopped, exit code 143")
    assert "waiting" not in "".join(left_on(shown))


@pytest.mark.limit(90)
def test_a_pipe_gets_a_line_and_json_none(tmp_path: Path) -> None:
    """On stderr, after ten seconds."""
    with launched(tmp_path, SLEEPS, flags=("--nproc-per-node", "1")) as run:
        run.wait_row("attempt")
        argv = [sys.executable, "-m", "paddock", "wait", run.run_id]
        plain, program = (
            subprocess.Popen(
                each, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
            )
            for each in (argv, [*argv, "--json"])
        )
        with plain, program:
            assert plain.stderr is not None
            first = plain.stderr.readline()
            run.paddock("stop", run.run_id)
            (out, rest), (_, of_program) = plain.communicate(), program.communicate()
    assert re.fullmatch(rf"paddock: waiting, \d+ s, {run.run_id} is running \(1 rank up\)\n", first)
    assert "\x1b" not in first + rest + out and "stopped" in out
    assert of_program == ""
