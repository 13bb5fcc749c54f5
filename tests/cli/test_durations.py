"""One grammar of durations, and one of sizes, for every flag of every command."""

from __future__ import annotations

import pytest

from paddock.cli.completion import every_command
from paddock.command_line import Flag, to_seconds
from paddock.ps.server.options import _size

EVERY = [(command.name, one) for command in every_command() for one in command.table.flags]
OLD = ("SECONDS", "TIME", "BYTES")


def test_every_duration_and_size_has_one_word_in_the_help() -> None:
    """SECONDS, TIME and BYTES stood for the same; LIMIT is sbatch's own grammar."""
    assert [(c, f.name) for c, f in EVERY if f.metavar.partition("[")[0] in OLD] == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("0.5", 0.5), ("500ms", 0.5), ("5m", 300), ("1h30m", 5400), ("1d", 86400)],
)
def test_every_duration_takes_the_same_words(text: str, seconds: float) -> None:
    """By the kind of the flag, which reads with to_seconds, whatever the command."""
    durations: list[Flag] = [f for _, f in EVERY if f.metavar == "DURATION"]
    assert len(durations) > 5 and to_seconds(text) == seconds
    assert {f.kind for f in durations} == {"seconds"}


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("512M", 512 << 20), ("8GiB", 8 << 30)])
def test_sizes_have_units(text: str, size: int) -> None:
    """Those of paddock pserver."""
    assert _size(text) == size
