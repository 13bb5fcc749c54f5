"""When the lines of a log came: records that tell of every byte, whatever happens to them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from paddock.local.output.times import RECORD_BYTES, RESOLUTION_NS, SUFFIX, LineTimes, read_times

if TYPE_CHECKING:
    from pathlib import Path

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def times_of(path: Path, offset: int = 0, rank: int = 3, attempt: int = 0) -> LineTimes:
    """The times of a log that a worker begins to write."""
    fd = os.open(f"{path}{SUFFIX}", APPEND, 0o600)
    return LineTimes(fd, offset, "worker", rank, attempt)


def records(path: Path) -> list[tuple[int, int, tuple[str, int, int] | None]]:
    """What is written down."""
    with open(f"{path}{SUFFIX}", "rb") as file:
        return list(read_times(file.read()))


def append(times: LineTimes, log: int, data: bytes) -> None:
    """As the output thread does."""
    times.stamp(log, len(data))
    os.write(log, data)


def test_every_chunk_has_its_offset_and_its_time(tmp_path: Path) -> None:
    """Chunks within a millisecond share a record, and the process is named before them."""
    path = tmp_path / "workerlog.0"
    log, times = os.open(path, APPEND), times_of(path)
    before = time.time_ns()
    append(times, log, b"one\n")
    time.sleep(2 * RESOLUTION_NS / 1e9)  # sleep: longer than a record is for
    append(times, log, b"two\n")
    append(times, log, b"three\n")
    times.close()
    os.close(log)
    begin, began, *chunks = records(path)
    assert begin == (0, 0, ("worker", 3, 0)) and began[0] == 0
    assert [offset for offset, _, _ in chunks][:2] == [0, 4]
    assert before <= chunks[0][1] <= chunks[1][1] - RESOLUTION_NS <= time.time_ns()


def test_a_later_attempt_begins_where_the_log_had_got_to(tmp_path: Path) -> None:
    """Its rank may be another one."""
    path = tmp_path / "workerlog.0"
    path.write_bytes(b"of before\n")
    log, times = os.open(path, APPEND), times_of(path, 10, 5, 2)
    append(times, log, b"one\n")
    times.close()
    os.close(log)
    assert [(offset, who) for offset, _, who in records(path)] == [
        (10, ("worker", 5, 2)), (10, None), (10, None),
    ]  # fmt: skip


def test_a_torn_record_does_not_shift_those_after_it(tmp_path: Path) -> None:
    """A full disk took half of it."""
    path = tmp_path / "workerlog.0"
    (tmp_path / f"workerlog.0{SUFFIX}").write_bytes(b"\1" * (RECORD_BYTES + 5))
    times_of(path, 7).close()
    assert [(offset, who) for offset, _, who in records(path)][1:] == [
        (7, ("worker", 3, 0)), (7, None),
    ]  # fmt: skip


def test_what_did_not_arrive_is_not_counted(tmp_path: Path) -> None:
    """The next chunk is where the file really ends."""
    path = tmp_path / "workerlog.0"
    log, times = os.open(path, APPEND), times_of(path)
    times.stamp(log, 1000)  # and then the disk was full
    times.lose()
    time.sleep(2 * RESOLUTION_NS / 1e9)  # sleep: longer than a record is for
    append(times, log, b"one\n")
    times.close()
    os.close(log)
    assert [offset for offset, _, _ in records(path)] == [0, 0, 0, 0]


def test_times_that_cannot_be_written_cost_no_line(tmp_path: Path) -> None:
    """The log is what counts."""
    log = os.open(tmp_path / "workerlog.0", APPEND)
    times = LineTimes(os.open("/dev/full", os.O_WRONLY), 0, "worker", 0, 0)
    append(times, log, b"one\n")
    times.close()
    os.close(log)
    assert (tmp_path / "workerlog.0").read_bytes() == b"one\n"
