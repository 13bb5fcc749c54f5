"""One host's logs as one stream: order, restarts, what grows, and what is damaged."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from paddock.backends.node import logs
from paddock.backends.node.logs import rows
from paddock.backends.types import LogQuery
from paddock.local.output.times import RECORD_BYTES, ROLES, SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NS = 1_000_000_000
THEN = (int(time.time()) - 1000) * NS  # all of these tests is past
ALL = LogQuery()
FOLLOW = LogQuery(follow=True)


class Written:
    """A log and its times, as a launcher writes them; times in seconds after THEN."""

    def __init__(self, path: Path, *, has_times: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.times = path.with_name(path.name + SUFFIX)
        self.has_times = has_times
        path.touch()

    def _record(self, first: int, second: int) -> None:
        if self.has_times:
            with self.times.open("ab") as file:
                file.write(first.to_bytes(8, "little") + second.to_bytes(8, "little"))

    def begin(self, rank: int, role: str = "worker", attempt: int = 0) -> Written:
        """A process starts."""
        who = ROLES.index(role) << 56 | attempt << 32 | rank
        self._record((1 << 63) | self.path.stat().st_size, who)
        return self

    def say(self, at: float, data: bytes) -> Written:
        """It writes a chunk."""
        self._record(self.path.stat().st_size, THEN + int(at * NS))
        with self.path.open("ab") as file:
            file.write(data)
        return self


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's log directory."""
    return tmp_path / "log"


def told(
    tmp_path: Path, query: LogQuery = ALL, *, is_shared: bool = False
) -> list[tuple[float, str, bytes]]:
    """The rows, with times as they were said."""
    found = rows(str(tmp_path), query, host="h2", is_shared=is_shared)
    return [((at - THEN) / NS, label, data) for at, label, data in found]


def test_lines_come_in_the_order_in_which_they_were_written(tmp_path: Path, folder: Path) -> None:
    """Whichever process wrote them."""
    Written(folder / "workerlog.0").begin(2).say(1, b"a\n").say(4, b"d\n")
    Written(folder / "workerlog.1").begin(3).say(2, b"b\nbb\n").say(3, b"c\n")
    Written(folder / "serverlog.0").begin(0, "ps").say(2.5, b"s\n")
    assert told(tmp_path) == [
        (1, "h2 rank 2", b"a\n"), (2, "h2 rank 3", b"b\nbb\n"), (2.5, "h2 server 0", b"s\n"),
        (3, "h2 rank 3", b"c\n"), (4, "h2 rank 2", b"d\n"),
    ]  # fmt: skip


def test_a_line_in_two_chunks_is_told_once_whole(tmp_path: Path, folder: Path) -> None:
    """As of when it was complete; a last one without newline at the end."""
    Written(folder / "workerlog.0").begin(0).say(1, b"a\nb").say(2, b"b").say(3, b"\nc")
    assert [(at, data) for at, _, data in told(tmp_path)] == [
        (1, b"a\n"),
        (3, b"bb\n"),
        (3, b"c\n"),
    ]


def test_another_attempt_may_have_another_rank(tmp_path: Path, folder: Path) -> None:
    """The same file, another process; what the first left unended is its own line."""
    log = Written(folder / "workerlog.0").begin(1).say(1, b"one")
    log.begin(0, attempt=1).say(2, b"\n----- attempt 1 -----\n").say(3, b"two\n")
    assert told(tmp_path) == [
        (1, "h2 rank 1", b"one\n"), (2, "h2 rank 0", b"\n----- attempt 1 -----\n"),
        (3, "h2 rank 0", b"two\n"),
    ]  # fmt: skip
    assert [data for _, _, data in told(tmp_path, LogQuery(ranks=(1,)))] == [b"one\n"]


def test_only_some_ranks_are_told(tmp_path: Path, folder: Path) -> None:
    """They are ranks of workers."""
    Written(folder / "workerlog.0").begin(4).say(1, b"4\n")
    Written(folder / "workerlog.1").begin(5).say(1, b"5\n")
    Written(folder / "serverlog.0").begin(5, "ps").say(1, b"s\n")
    assert [data for _, _, data in told(tmp_path, LogQuery(ranks=(5, 9)))] == [b"5\n"]


def test_a_span_of_time_begins_and_ends_with_whole_lines(tmp_path: Path, folder: Path) -> None:
    """A line that began before is left out."""
    log = Written(folder / "workerlog.0").begin(0)
    log.say(1, b"a\nb").say(2, b"b\nc\n").say(3, b"d\n").say(4, b"e\n")
    then = THEN / NS
    query = LogQuery(since=then + 1.5, until=then + 3.5)
    assert [data for _, _, data in told(tmp_path, query)] == [b"c\n", b"d\n"]
    later = LogQuery(since=then + 3.5)
    assert [data for _, _, data in told(tmp_path, later)] == [b"e\n"]


@pytest.mark.parametrize(
    ("tail", "said"),
    [(0, []), (1, [b"3\n"]), (2, [b"2\n", b"3\n"]), (9, [b"a\n", b"1\n", b"2\n", b"3\n"])],
)
def test_only_the_last_lines_of_all_logs_are_told(
    tmp_path: Path, folder: Path, tail: int, said: list[bytes]
) -> None:
    Written(folder / "workerlog.0").begin(0).say(1, b"a\n").say(3, b"2\n3")
    Written(folder / "workerlog.1").begin(1).say(2, b"1\n")
    assert [data for _, _, data in told(tmp_path, LogQuery(tail=tail))] == said


def test_what_follows_the_last_lines_is_told_whole(tmp_path: Path, folder: Path) -> None:
    log = Written(folder / "workerlog.0").begin(0).say(1, b"1\n2\n")

    def grow(_seconds: float) -> None:
        log.say(2, b"3\n4\n")

    ends = iter((False, True))
    query = LogQuery(follow=True, tail=1)
    found = rows(str(tmp_path), query, is_over=lambda: next(ends), nap=grow)
    assert [data for _, _, data in found if data] == [b"2\n", b"3\n4\n"]


def test_hosts_that_share_a_directory_are_told_apart(tmp_path: Path, folder: Path) -> None:
    """By the directories below log."""
    Written(folder / "node-b" / "workerlog.0").begin(1).say(2, b"b\n")
    Written(folder / "node-a" / "workerlog.0").begin(0).say(1, b"a\n")
    found = [(label, data) for _, label, data in told(tmp_path, is_shared=True)]
    assert found == [("node-a rank 0", b"a\n"), ("node-b rank 1", b"b\n")]


def test_a_log_without_times_is_told_as_of_its_last_change(tmp_path: Path, folder: Path) -> None:
    """Under its own name: whose it is nobody wrote down."""
    log = Written(folder / "workerlog.7", has_times=False).say(0, b"a\nb\nc")
    os.utime(log.path, ns=(THEN + 5 * NS, THEN + 5 * NS))
    assert told(tmp_path) == [(5, "h2 workerlog.7", b"a\nb\n"), (5, "h2 workerlog.7", b"c\n")]
    assert told(tmp_path, LogQuery(ranks=(7,))) == []


@pytest.mark.parametrize("kept", range(RECORD_BYTES * 4))
def test_times_that_were_cut_short_cost_no_line(tmp_path: Path, folder: Path, kept: int) -> None:
    """The disk was full, or the host went down."""
    log = Written(folder / "workerlog.0").begin(0).say(1, b"a\n").say(2, b"b\n").say(3, b"c\n")
    log.times.write_bytes(log.times.read_bytes()[:kept])
    assert b"".join(data for _, _, data in told(tmp_path)) == b"a\nb\nc\n"


@pytest.mark.parametrize("seed", range(20))
def test_times_of_nonsense_cost_no_line(tmp_path: Path, folder: Path, seed: int) -> None:
    """Times never go back, and never into the future."""
    from random import Random

    log = Written(folder / "workerlog.0").begin(0).say(1, b"a\n").say(2, b"b\n").say(3, b"c\n")
    data = bytearray(log.times.read_bytes())
    rng = Random(seed)
    for _ in range(6):
        data[rng.randrange(RECORD_BYTES, len(data))] = rng.randrange(256)
    log.times.write_bytes(data)
    found = told(tmp_path)
    assert b"".join(data for _, _, data in found) == b"a\nb\nc\n"
    times = [at for at, _, _ in found]
    assert times == sorted(times) and times[-1] <= (time.time_ns() - THEN) / NS


def test_a_link_is_not_followed(tmp_path: Path, folder: Path) -> None:
    """A job may have put it there."""
    (tmp_path / "secret").write_bytes(b"key\n")
    folder.mkdir()
    (folder / "workerlog.0").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "workerlog.1")
    (folder / "elsewhere").symlink_to("/")
    assert told(tmp_path) == []


def test_a_long_line_is_told_in_parts(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept in memory without end."""
    monkeypatch.setattr(logs, "LINE_BYTES", 100)
    monkeypatch.setattr(logs, "BLOCK_BYTES", 64)
    Written(folder / "workerlog.0").begin(0).say(1, b"x" * 300 + b"\n")
    found = b"".join(data for _, _, data in told(tmp_path))
    assert found.replace(b"\n", b"") == b"x" * 300 and found.count(b"\n") == 3


# ------------------------------------------------------------------------------- following


class Followed:
    """A stream that is asked for one round after another."""

    def __init__(self, tmp_path: Path) -> None:
        self.is_over = False
        self._rows = rows(
            str(tmp_path), FOLLOW, host="h", is_over=lambda: self.is_over, nap=lambda _: None
        )
        self.last_ns = 0

    def round(self) -> list[bytes]:
        """What came until it says that nothing older will come, or ends."""
        found = []
        for at_ns, label, data in self._rows:
            assert at_ns >= self.last_ns
            self.last_ns = at_ns
            if not label:
                break
            found.append(data)
        return found


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    """It begins before anything is there."""
    made = Followed(tmp_path)
    assert made.round() == []
    yield made


def test_a_log_is_followed_from_before_it_is_there(folder: Path, followed: Followed) -> None:
    """Whole lines only, until the job has ended."""
    log = Written(folder / "workerlog.0").begin(0).say(1, b"a\nb")
    assert followed.round() == [b"a\n"]
    assert followed.round() == []
    log.say(2, b"b\nc")
    assert followed.round() == [b"bb\n"]
    Written(folder / "workerlog.1").begin(1).say(2, b"x\n")
    assert followed.round() == [b"x\n"]
    log.say(3, b"c")
    followed.is_over = True
    assert followed.round() == [b"cc\n"]
    assert followed.round() == []


def test_a_record_whose_bytes_are_still_to_come_waits(folder: Path, followed: Followed) -> None:
    """It is written first."""
    log = Written(folder / "workerlog.0").begin(0).say(1, b"a\n").say(2, b"")
    assert followed.round() == [b"a\n"]
    with log.path.open("ab") as file:
        file.write(b"b\n")
    assert followed.round() == [b"b\n"]


def test_a_log_that_was_emptied_is_told_from_its_beginning(
    folder: Path, followed: Followed
) -> None:
    """The next run began with --log_overwrite."""
    log = Written(folder / "workerlog.0").begin(0).say(1, b"before\n")
    assert followed.round() == [b"before\n"]
    log.path.write_bytes(b"")
    log.times.write_bytes(b"")
    log.begin(0).say(2, b"now\n")
    assert followed.round() == [b"now\n"]
