"""Several hosts' logs as one stream: order in our time, prefixes, and what a terminal may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.backends.merge import (
    around,
    clock_ahead_ns,
    for_terminal,
    merge,
    prefixed,
    read_query,
)
from paddock.backends.types import LogChunk, LogQuery
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_lines_are_ordered_by_our_clock() -> None:
    """The second host's is 100 ns ahead."""
    one = [(10, "a rank 0", b"a\n"), (30, "a rank 0", b"c\n")]
    two = [(120, "b rank 1", b"b\n"), (140, "b rank 1", b"d\n")]
    found = [(piece.at_ns, piece.data) for piece in merge([(one, 0), (two, 100)])]
    assert found == [(10, b"a\n"), (20, b"b\n"), (30, b"c\n"), (40, b"d\n")]


def test_a_row_without_lines_lets_the_others_go_on() -> None:
    """A silent host holds nobody up, and is not shown."""
    taken = []

    def busy() -> Iterator[tuple[int, str, bytes]]:
        for at in (10, 20, 30):
            taken.append(at)
            yield at, "a", b"%d\n" % at

    silent = [(15, "", b""), (25, "", b""), (100, "", b"")]
    stream = merge([(busy(), 0), (silent, 0)])
    assert next(stream).at_ns == 10
    assert taken == [10]
    assert [piece.at_ns for piece in stream] == [20, 30]


def test_a_host_whose_times_go_back_holds_up_nobody() -> None:
    """It may be broken, or lie."""
    odd = [(50, "a", b"1\n"), (10, "a", b"2\n"), (60, "a", b"3\n")]
    even = [(55, "b", b"x\n")]
    assert [piece.data for piece in merge([(odd, 0), (even, 0)])] == [
        b"1\n", b"2\n", b"x\n", b"3\n",
    ]  # fmt: skip


def test_the_quickest_answer_tells_the_clock_best() -> None:
    """Half of its way back is all that can be wrong."""
    ahead = 7_000_000
    samples = [(0, ahead + 900, 1000), (2000, 2000 + ahead + 5, 2010), (9000, ahead + 9001, 9900)]
    assert clock_ahead_ns(samples) == ahead


def test_every_line_has_its_label_before_it() -> None:
    """Empty ones, too."""
    pieces = [LogChunk(1, "h rank 0", b"a\n\nb\n"), LogChunk(2, "h rank 1", b"c\n")]
    assert b"".join(prefixed(pieces)) == (
        b"[h rank 0] a\n[h rank 0] \n[h rank 0] b\n[h rank 1] c\n"
    )


def test_lines_that_go_to_a_file_are_as_they_were_written() -> None:
    """A log is evidence."""
    data = bytes(range(256)).replace(b"\n", b"") + b"\n"
    assert b"".join(prefixed([LogChunk(1, "h", data)])) == b"[h] " + data


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"plain\ttext\n", b"plain\ttext\n"),
        ("温度 é\n".encode(), "温度 é\n".encode()),
        (b"\x1b[1;31mred\x1b[0m\n", b"\x1b[1;31mred\x1b[0m\x1b[0m\n"),
        (b"\x1b[31mred\n", b"\x1b[31mred\x1b[0m\n"),
        (b"\x1b[2J\x1b[H\n", b"^[[2J^[[H\n"),
        (b"\x1b]52;c;cm0gLXJm\x07\n", b"^[]52;c;cm0gLXJm^G\n"),
        (b"\x1bP$q\x1b\\\n", b"^[P$q^[\\\n"),
        ("\x9b2J\x9d0;x\x9c\n".encode(), b"?2J?0;x?\n"),
        (b"\x9b2J\n", "\ufffd2J\n".encode()),
        (b"10%\r20%\r30%\n", b"30%\n"),
        (b"of dos\r\n", b"of dos\n"),
        (b"a\x08\x08b\x00\x7f\n", b"a^H^Hb^@^?\n"),
    ],
)
def test_a_terminal_sees_text_and_colours_and_obeys_nothing_else(
    written: bytes, shown: bytes
) -> None:
    """No title, no clipboard, no cursor; a colour ends with its line."""
    assert for_terminal(written) == shown
    assert b"".join(prefixed([LogChunk(1, "h", written)], is_terminal=True)) == b"[h] " + shown


def test_a_label_is_text_and_short() -> None:
    """A host tells its own name."""
    (line,) = prefixed([LogChunk(1, "h\x1b]0;x\x07\n\u202e\x9b rank 0", b"a\n")])
    assert line == b"[h?]0;x???? rank 0] a\n"
    (line,) = prefixed([LogChunk(1, "x" * 1000, b"a\n")])
    assert len(line) < 100


def test_the_last_lines_are_those_of_all_hosts_together() -> None:
    """Up to where the first host has no more for now."""
    one = [(10, "a", b"1\n2\n"), (40, "", b""), (50, "a", b"5\n6\n7\n")]
    two = [(20, "b", b"3\n"), (30, "b", b"4\n"), (60, "", b"")]
    for tail, wanted in ((2, "3 4 5 6 7"), (3, "2 3 4 5 6 7"), (0, "5 6 7")):
        found = b"".join(piece.data for piece in merge([(one, 0), (two, 0)], tail))
        assert found.decode().split() == wanted.split()


def test_what_is_asked_for_is_read() -> None:
    """Ranks, and a time before now."""
    assert read_query() == LogQuery()
    assert read_query(rank=" 3, 0 ", since="1h30m", now=10_000.0, follow=True) == LogQuery(
        (3, 0), 4600.0, 0.0, follow=True
    )
    assert read_query(tail="100").tail == 100
    assert around(LogQuery((1,), since=90.0), 100.0, 5.0) == LogQuery((1,), 95.0, 105.0)
    assert around(LogQuery(since=98.0), 100.0, 5.0) == LogQuery((), 98.0, 105.0)


@pytest.mark.parametrize(
    "words",
    [{"rank": "x"}, {"rank": "0,"}, {"rank": "-1"}, {"since": "5x"}, {"tail": "x"}, {"tail": "-1"}],
)
def test_what_cannot_be_read_is_refused(words: dict[str, str]) -> None:
    """With what to write instead."""
    with pytest.raises(UsageError) as caught:
        read_query(**words, now=1.0)  # type: ignore[arg-type]  # all of them are texts
    assert caught.value.hint
