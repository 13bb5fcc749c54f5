"""What a run says on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from paddock.data.manifest import write_manifest
from paddock.rec.report import TrainingReport
from paddock.rec.settings import Reading
from paddock.rec.sources import examples

CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_with_what_is_left_of_the_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the second epoch on, which is as long as the first one was."""
    monkeypatch.setenv("TERM", "xterm")
    now = [0.0]
    out = Terminal()
    report = TrainingReport(out, 1, lambda: now[0])
    for epoch in range(2):
        report.begin(0, f"epoch {epoch}")
        for number in range(4):
            now[0] += 1
            report.batch(epoch, number, 10, {"loss": 0.5}, {})
            report.meter.tick()
        report.end(epoch, {"loss": 0.5}, 40, 0, report.seconds())
    first, second, rest = out.getvalue().split("\n")
    *shown, ended = first.replace("\r" + CLEAR, CLEAR).split(CLEAR)[1:]
    assert shown == [
        f"paddock: epoch 0, {n}0 examples, 10/s, loss 0.5000, batch {n - 1}" for n in (2, 3, 4)
    ]
    assert ended.startswith("epoch 0 done")
    *shown, ended = second.replace("\r" + CLEAR, CLEAR).split(CLEAR)[1:]
    assert shown == [
        f"paddock: epoch 1, {n}0 of 40 examples, 10/s, {4 - n} s left, loss 0.5000, batch {n - 1}"
        for n in (1, 2, 3, 4)
    ]
    assert (ended.startswith("epoch 1 done"), rest) == (True, "")


def test_an_epoch_that_is_done_counts_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint takes its time, and examples were none of it."""
    monkeypatch.setenv("TERM", "xterm")
    now = [0.0]
    out = Terminal()
    report = TrainingReport(out, 1, lambda: now[0])
    report.begin(0, "epoch 0")
    now[0] += 4
    report.batch(0, 0, 10, {"loss": 0.5}, {})
    report.end(0, {"loss": 0.5}, 10, 0, report.seconds())
    now[0] += 5
    report.meter.tick()
    assert out.getvalue().split("\n")[-1].strip("\r") == f"{CLEAR.strip()}paddock: saving, 5 s"


def test_a_pipe_has_a_line_for_every_so_many_batches() -> None:
    """Programs read them: they are as they were."""
    now = [0.0]
    out = io.StringIO()
    report = TrainingReport(out, 2, lambda: now[0])
    for number in range(4):
        now[0] += 1
        report.batch(0, number, 10, {"loss": 0.5}, {})
    assert out.getvalue().splitlines() == [
        f"epoch 0, batch {n}, loss 0.5000, 10 examples/s" for n in (0, 2)
    ]


def test_what_is_left_of_an_epoch_is_told_at_the_pace_since_the_restart() -> None:
    """Examples of a life before took none of the seconds of this one."""
    now = [0.0]
    report = TrainingReport(Terminal(), 1, lambda: now[0])
    report.expected = 100
    report.begin(50)
    now[0] = 5.0
    report.batch(0, 5, 10, {"loss": 0.5}, {})
    assert report.meter.line() == (
        "paddock: training, 60 of 100 examples, 2/s, 20 s left, loss 0.5000, batch 5"
    )


def test_manifests_tell_how_long_the_first_epoch_is(tmp_path: Path) -> None:
    """Of all data or of none: a part would be told as the whole."""
    parts = [tmp_path / "a", tmp_path / "b"]
    for part in parts:
        part.mkdir()
    counts = {"part-0": 30, "part-1": 10}
    for name, lines in counts.items():
        (parts[0] / name).write_text("1\n" * lines)
    write_manifest(parts[0], "split", counts, {}, "lines")
    assert examples(Reading((str(parts[0]),), 8)) == 40
    assert examples(Reading(tuple(map(str, parts)), 8)) == 0
