"""What a run says on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

from paddock.data.manifest import Manifest, Shard, write_manifest
from paddock.rec.known import examples
from paddock.rec.report import Report
from paddock.rec.settings import Reading


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_with_what_is_left_of_the_epoch() -> None:
    """From the second epoch on, which is as long as the first one was."""
    now = [0.0]
    out = Terminal()
    report = Report(out, 1, lambda: now[0])
    for epoch in range(2):
        report.begin()
        for number in range(4):
            now[0] += 1
            report.batch(epoch, number, 10, lambda: {"loss": 0.5})
        report.end(epoch, {"loss": 0.5}, 40, 0, report.seconds())
    shown = [
        part.strip() for part in out.getvalue().replace("\n", "\r").split("\r") if part.strip()
    ]
    assert shown[:4] == [f"epoch 0, batch {n}, loss 0.5000, 10 examples/s" for n in range(4)]
    assert shown[4].startswith("epoch 0 done")
    assert [line.rpartition("examples/s")[2] for line in shown[5:9]] == [
        ", 25%, 3 s left", ", 50%, 2 s left", ", 75%, 1 s left", ", 100%, 0 s left"
    ]  # fmt: skip
    assert out.getvalue().count("\n") == 2


def test_what_is_left_of_an_epoch_is_told_at_the_pace_since_the_restart() -> None:
    """Examples of a life before took none of the seconds of this one."""
    now = [0.0]
    out = Terminal()
    report = Report(out, 1, lambda: now[0])
    report.expected = 100
    report.begin(50)
    now[0] = 5.0
    report.batch(0, 5, 10, lambda: {"loss": 0.5})
    assert out.getvalue() == "epoch 0, batch 5, loss 0.5000, 2 examples/s, 60%, 20 s left"


def test_manifests_tell_how_long_the_first_epoch_is(tmp_path: Path) -> None:
    """Of all data or of none: a part would be told as the whole."""
    parts = [tmp_path / "a", tmp_path / "b"]
    for part in parts:
        part.mkdir()
    shards = (Shard("part-0", 30, 300, "0" * 16), Shard("part-1", 10, 100, "0" * 16))
    write_manifest(parts[0], Manifest("split", shards, {}, "lines"))
    assert examples(Reading((str(parts[0]),), 8)) == 40
    assert examples(Reading(tuple(map(str, parts)), 8)) == 0
