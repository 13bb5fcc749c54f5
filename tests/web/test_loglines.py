"""Windows of logs: each line once, hostile lines harmless, equal lines folded."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from paddock.backends.types import LogChunk
from paddock.web import loglines
from paddock.web.loglines import LogPlace, LogWindow, clean_line, read_window
from web.made import BEGAN, make_run, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from paddock.backends.types import LogQuery

END = BEGAN + 100


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of few lines."""
    monkeypatch.setattr(loglines, "LINES", 7)


def reading(tmp_path: Path) -> Callable[[LogQuery], Iterable[LogChunk]]:
    """The log of a run of two ranks: bursts at one time, lines torn between two times, pauses."""
    ones = [(n * 0.7, b"".join(b"a%d.%d\n" % (n, k) for k in range(n % 5))) for n in range(1, 40)]
    torn = [(n * 1.1, (b"b%d\nto" if n % 2 else b"rn%d\n") % n) for n in range(1, 31)]
    run = make_run(tmp_path, "train-1", logs={0: ones, 1: torn})
    source = source_of(tmp_path)
    return lambda query: source.log_chunks(run, query)


def texts(window: LogWindow) -> list[str]:
    """What a window shows."""
    return [line.text for line in window.lines]


@pytest.mark.parametrize("search", ["", "a1"])
def test_older_and_newer_windows_have_each_line_once(
    tmp_path: Path, small: None, search: str
) -> None:
    """However many lines have one time: a page that skips lines hides the one that matters."""
    read = reading(tmp_path)
    whole = texts(read_window(read, until=END, search=search, after=LogPlace(0), is_folded=False))
    loglines.LINES = 10_000
    whole = texts(read_window(read, until=END, search=search, after=LogPlace(0), is_folded=False))
    loglines.LINES = 7
    assert len(whole) > 20

    windows, before = [], None
    while True:
        window = read_window(read, until=END, search=search, before=before, is_folded=False)
        windows.insert(0, texts(window))
        before = window.older
        if before is None:
            break
    assert [text for window in windows for text in window] == whole

    found, after = [], LogPlace(0)
    while after is not None:
        window = read_window(read, until=END, search=search, after=after, is_folded=False)
        found += texts(window)
        after = window.newer
    assert found == whole


def test_a_window_and_the_one_before_it_meet(tmp_path: Path, small: None) -> None:
    """`newer` of a window leads to the first line of the one that it came from."""
    read = reading(tmp_path)
    last = read_window(read, until=END, is_folded=False)
    older = read_window(read, until=END, before=last.older, is_folded=False)
    again = read_window(read, until=END, after=older.newer, is_folded=False)
    assert texts(again) == texts(last)


def test_equal_lines_of_many_ranks_are_one(tmp_path: Path) -> None:
    """A thousand ranks that say the same fill no page, and a rank's own repeats stay."""
    logs = {rank: [(1.0, b"loading\n"), (2.0, b"rank %d\nx\nx\n" % rank)] for rank in range(40)}
    run = make_run(tmp_path, "train-1", logs=logs)
    source = source_of(tmp_path)
    window = read_window(lambda query: source.log_chunks(run, query), until=END)
    counts = {line.text: len(line.labels) for line in window.lines}
    assert counts["loading"] == 40
    assert sum(len(line.labels) for line in window.lines if line.text == "x") == 80
    assert sum(line.text.startswith("rank") for line in window.lines) == 40


def test_a_window_of_folded_lines_reaches_further_back(tmp_path: Path, small: None) -> None:
    """Folding happens before the limit, not after."""
    logs = {rank: [(n * 0.01, b"step %d\n" % n) for n in range(30)] for rank in range(3)}
    run = make_run(tmp_path, "train-1", logs=logs)
    source = source_of(tmp_path)
    window = read_window(lambda query: source.log_chunks(run, query), until=END)
    assert len(window.lines) >= 7 / 2
    assert all(len(line.labels) == 3 for line in window.lines[1:])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"<script>alert(1)</script>", "<script>alert(1)</script>"),  # the template escapes it
        (b"\x1b]0;title\x07\x1b[2Jgone\x1b[31mred\x1b[0m", "^[]0;title^G^[[2Jgonered"),
        (b"10%\r20%\r30%", "30%"),
        ("a\u202eb\u200bc\u2028d".encode(), "a?b?c?d"),
        (b"\xff\xfe\x00 \x85", "\ufffd\ufffd^@ \ufffd"),
        ("步 1 损失 0.5\tok".encode(), "步 1 损失 0.5\tok"),
    ],
)
def test_a_hostile_line_is_harmless_text(data: bytes, text: str) -> None:
    """No control character, no change of direction, no other line."""
    assert clean_line(data) == (text, 0)


def test_a_line_of_ten_megabytes_is_cut_and_says_so(tmp_path: Path) -> None:
    """A page with it whole would stop the browser."""
    run = make_run(tmp_path, "train-1", logs={0: [(1.0, b"A" * 10_000_000 + b"\nend\n")]})
    source = source_of(tmp_path)
    window = read_window(lambda query: source.log_chunks(run, query), until=END)
    assert window.lines[-1].text == "end"
    assert all(len(line.text) <= loglines.LETTERS_MAX for line in window.lines)
    shown = sum(len(line.text) + line.cut_bytes for line in window.lines)
    assert shown == 10_000_000 + len("end")


def test_places_that_are_no_places_are_ignored() -> None:
    """They come from an address that anybody can type."""
    for text in ("", "x", "1.x", "-1", "1.-1", "9" * 30, "1." + "9" * 30, "١"):
        assert LogPlace.read(text) is None or LogPlace.read(text) >= LogPlace(0)
    assert all(a < b for a, b in pairwise([LogPlace(1), LogPlace(1, 1), LogPlace(2)]))
