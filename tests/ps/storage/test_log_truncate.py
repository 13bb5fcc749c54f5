"""A log that is cut behind a record: a deposed primary's last records were never acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import PaddockError
from paddock.ps.storage.log import RecordLog
from paddock.ps.wire.frames import Header, Op

SEGMENT = 700  # a few records each


def written(path: Path, count: int) -> RecordLog:
    """A log of `count` records of 64 + 36 bytes."""
    log = RecordLog(path, server=7, segment_bytes=SEGMENT)
    for number in range(1, count + 1):
        log.append(Header(Op.PUSH, count=number), b"x" * 36)
    return log


def counts(log: RecordLog, first: int = 1) -> list[int]:
    """What tells the records apart."""
    return [header.count for _, header, _ in log.read(first)] if log.last >= first else []


@settings(max_examples=40)
@given(count=st.integers(0, 25), data=st.data())
def test_records_behind_the_cut_are_gone_and_others_follow(
    count: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In any segment; the log goes on, and so it does after a restart."""
    end = data.draw(st.integers(0, count))
    path = tmp_path_factory.mktemp("log")
    log = written(path, count)
    log.truncate(end)
    assert log.last == end
    assert counts(log) == list(range(1, end + 1))
    for number in (101, 102, 103):
        log.append(Header(Op.PUSH, count=number), b"y" * 50)
    assert counts(log) == [*range(1, end + 1), 101, 102, 103]
    assert counts(log, end + 2) == [102, 103]
    log.wait_durable(log.last)
    log.close()
    again = RecordLog(path, server=7, segment_bytes=SEGMENT)
    assert counts(again) == [*range(1, end + 1), 101, 102, 103]
    assert not again.warnings
    again.close()


def test_a_follower_finds_every_record_wherever_it_begins(tmp_path: Path) -> None:
    """The newest are found by their own offsets, old ones by the marks."""
    log = written(tmp_path, 600)
    assert all(counts(log, first) == list(range(first, 601)) for first in range(1, 601, 23))
    log.close()


def test_a_cut_below_the_log_is_refused(tmp_path: Path) -> None:
    """Records that a snapshot took the place of cannot be the end."""
    log = written(tmp_path, 25)
    log.cut(20)
    with pytest.raises(PaddockError, match="it cannot end with 3"):
        log.truncate(3)
    log.close()
