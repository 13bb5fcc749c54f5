"""history.jsonl: written whole, kept small, read past damage."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import pytest

from paddock.watch.history import (
    FILE,
    HistoryWriter,
    first_row,
    last_rows,
    latest_rows,
    read_history,
)


def row(at: float, kind: str = "sample", **more: object) -> dict[str, object]:
    needed = {"rank": 0, "cpu": 1.0} if kind == "sample" else {}
    return {"kind": kind, "at": at, **needed, **more}


def test_rows_come_back_in_order_of_time_from_all_nodes(tmp_path: Path) -> None:
    for name, times in (("a", (1.0, 3.0)), ("b", (2.0,))):
        writer = HistoryWriter(str(tmp_path / name))
        writer.add(*(row(at, "note", node=name) for at in times))
        writer.close()
    history = read_history([tmp_path / "a", tmp_path / "b", tmp_path / "none"])
    assert [each["node"] for each in history.rows] == ["a", "b", "a"]


def test_the_file_is_the_users_own(tmp_path: Path) -> None:
    HistoryWriter(str(tmp_path / FILE)).close()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        HistoryWriter(str(tmp_path / "link"))


def test_a_line_cut_short_by_a_crash_is_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(json.dumps(row(1.0, "note")).encode() + b'\n{"kind": "no')
    writer = HistoryWriter(str(path))
    writer.add(row(2.0, "note"))
    writer.close()
    history = read_history([path])
    assert [each["at"] for each in history.rows] == [1.0, 2.0]
    assert history.skipped == 1


@pytest.mark.parametrize(
    "line", [b"[]", b"1", b'{"kind": 1, "at": 2}', b'{"kind": "x"}', b'{"kind": "x", "at": "now"}',
             b'{"kind": "x", "at": 1e999}', b"\xff\xfe", b"[" * 5000,
             b'{"kind": "stall", "at": 1}', b'{"kind": "stall", "at": 1, "seconds": "long"}',
             b'{"kind": "waited", "at": 1, "seconds": NaN}',
             b'{"kind": "begin", "at": 1, "version": "two"}',
             b'{"kind": "attempt", "at": 1, "attempt": 0, "ranks": [["worker", "0", 1]]}',
             b'{"kind": "attempt", "at": 1, "attempt": 0, "ranks": 3}',
             b'{"kind": "progress", "at": 1, "rank": 0, "values": {"loss": "low"}}',
             b'{"kind": "progress", "at": 1, "rank": 0, "step": 1.5}',
             b'{"kind": "x", "at": 1e300}', b'{"kind": "x", "at": 1, "host": ["a"]}',
             b'{"kind": "progress", "at": 1, "rank": 0, "step": 1%s}' % (b"0" * 400),
             b'{"kind": "progress", "at": 1, "rank": 0, "values": {"a": 1%s}}' % (b"0" * 400),
             b'{"kind": "progress", "at": 1, "rank": 0, "profile": {}}',
             b'{"kind": "ps", "at": 1, "rank": 0, "is_primary": true, "tables": [[[0], 5]], '
             b'"rows": 1, "bytes": 1, "connections": 1, "lsn": 1, "pushes": 1, "pulls": 1}',
             b'{"kind": "ps", "at": 1, "rank": 0, "is_primary": true, "tables": [], '
             b'"rows": [], "bytes": 1, "connections": 1, "lsn": 1, "pushes": 1, "pulls": 1}']
)  # fmt: skip
def test_what_is_no_row_is_skipped(tmp_path: Path, line: bytes) -> None:
    (tmp_path / FILE).write_bytes(line + b"\n" + json.dumps(row(1.0)).encode() + b"\n\n")
    history = read_history([tmp_path / FILE])
    assert (len(history.rows), history.skipped) == (1, 1)


def test_a_fifo_in_place_of_a_history_holds_nobody_up(tmp_path: Path) -> None:
    """Its open would wait for a writer, and with it the page of all runs."""
    os.mkfifo(tmp_path / FILE)
    assert first_row(tmp_path / FILE) == {}
    assert read_history([str(tmp_path / FILE)]).rows == ()


def test_a_history_stays_small_and_keeps_what_happens_once(tmp_path: Path) -> None:
    path = tmp_path / FILE
    writer = HistoryWriter(str(path), bytes_max=20_000)
    for at in range(5000):
        writer.add(row(float(at), rank=at % 2, cpu=1.0))
        if at % 1000 == 0:
            writer.add(row(float(at), "attempt", attempt=at // 1000, ranks=[]))
    writer.close()
    assert path.stat().st_size <= 20_000
    history = read_history([path])
    assert [each["attempt"] for each in history.of("attempt")] == [0, 1, 2, 3, 4]
    times = [each["at"] for each in history.of("sample")]
    assert min(times) < 500 and max(times) > 4500, "the whole run is covered"
    assert {each["rank"] for each in history.of("sample")} == {0, 1}
    assert os.listdir(tmp_path) == [FILE]


def test_the_latest_of_each_rank_and_the_first_of_each_attempt_stay(tmp_path: Path) -> None:
    """A page shows the latest row of each rank, and the bill begins at the first of an attempt."""
    path = tmp_path / FILE
    writer = HistoryWriter(str(path), bytes_max=20_000)
    for step in range(3000):
        if step % 1000 == 0:
            writer.add(row(float(step), "attempt", attempt=step // 1000, ranks=[]))
        for rank in (0, 1):
            writer.add(row(float(step), "progress", rank=rank, step=step))
            found = {each["rank"]: each["step"] for each in read_tail(path)}
            assert found.get(rank) == step
    writer.close()
    assert {1000, 2000} <= {each["step"] for each in read_history([path]).of("progress")}


def read_tail(path: Path) -> list[dict[str, object]]:
    lines = path.read_bytes()[-400:].splitlines()[1:]
    return [each for line in lines if (each := json.loads(line))["kind"] == "progress"]


def test_a_newer_schema_is_told(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(row(1.0, "begin", version=7)) + "\n")
    assert read_history([tmp_path / FILE]).newest == 7


def test_a_disk_that_is_full_loses_rows_and_says_why(tmp_path: Path) -> None:
    writer = HistoryWriter(str(tmp_path / FILE))
    writer.add(row(1.0))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        writer.add(row(2.0), row(3.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    writer.add(row(4.0))
    writer.close()
    assert [each["at"] for each in read_history([tmp_path / FILE]).rows] == [1.0, 2.0, 4.0]


def test_a_history_that_was_removed_is_told(tmp_path: Path) -> None:
    writer = HistoryWriter(str(tmp_path / FILE))
    (tmp_path / FILE).unlink()
    writer.add(row(1.0))
    writer.close()
    assert writer.problem == "it was removed"


def test_two_launchers_of_one_host_are_two_nodes(tmp_path: Path) -> None:
    for run in ("a", "b"):
        writer = HistoryWriter(str(tmp_path / run))
        writer.add(row(1.0, "begin", host="vm", run=run))
        writer.close()
    rows = read_history([tmp_path / "a", tmp_path / "b"]).rows
    assert {each["node"] for each in rows} == {"vm", "vm/b"}


def test_a_row_that_is_written_after_its_time_is_no_clock_set_back(tmp_path: Path) -> None:
    """A node that waits for minutes writes when it began to; and when its backend gave it."""
    writer = HistoryWriter(str(tmp_path / FILE))
    writer.add(row(1000.0, "begin", host="vm"), row(500.0, "allocated"), row(600.0, "code_there"))
    writer.add(row(1400.0, "joined"), row(1001.0, "waited", seconds=400.0))
    writer.add(row(1401.0, "line", rank=0))
    writer.close()
    rows = read_history([tmp_path / FILE]).rows
    assert [each["at"] for each in rows] == [500.0, 600.0, 1000.0, 1001.0, 1400.0, 1401.0]


def _written(path: Path, *rows: dict[str, object]) -> Path:
    writer = HistoryWriter(str(path))
    writer.add(*rows)
    writer.close()
    return path


@pytest.mark.parametrize(
    ("kind", "after"),
    [(kind, after) for kind in ("stall", "held")
     for after in (f"{kind}_over", "attempt", "attempt_end", "end")],
)  # fmt: skip
def test_a_stall_lasts_until_ranks_move_or_an_attempt_ends(
    tmp_path: Path, kind: str, after: str
) -> None:
    """A run that was started again is not shown as stalled; samples go on meanwhile."""
    stall = row(3.0, kind, seconds=9.0, rank=0)
    samples = [row(4.0 + n) for n in range(2000)]  # and, while one is held, progress of others
    samples.append(row(3e3, "progress", rank=1))
    seen = row(1.0, "seen", name="progress", text="plain")
    path = _written(tmp_path / FILE, seen, row(2.0, "progress", rank=0), stall, *samples)
    assert latest_rows(path) == [stall, seen]
    _written(path, row(9e3, after, seconds=9.0, rank=0, attempt=0, ranks=[]), row(9e3))
    assert latest_rows(path) == [seen]


def test_a_stall_goes_on_while_its_ranks_are_debugged_and_let_go(tmp_path: Path) -> None:
    """Somebody attaches gdb to find the cause: the run still stands, with it and after it."""
    stall, held = row(1.0, "stall", seconds=9.0), [row(2.0, "held", rank=r) for r in range(2)]
    path = _written(tmp_path / FILE, stall, *held)
    assert latest_rows(path) == [stall, *held]
    for rank in range(2):
        _written(path, row(3.0, "held_over", rank=rank))
        assert latest_rows(path) == [stall, *held[rank + 1 :]]


@pytest.mark.parametrize("size", [0, 1, 700, 5000])
def test_the_last_rows_come_first_and_those_of_other_kinds_not_at_all(
    tmp_path: Path, size: int
) -> None:
    """Whatever the blocks are in which they are read; damaged lines are left out."""
    kinds = [("note", "sample")[n % 3 > 0] for n in range(size)]
    path = _written(tmp_path / FILE, *(row(float(n), kind) for n, kind in enumerate(kinds)))
    with path.open("a") as file:
        file.write('{"kind":"note","at":"x"}\n{"kind":"note","at":7')
    expected = [float(n) for n, kind in enumerate(kinds) if kind == "note"][::-1]
    assert [each["at"] for each in last_rows(path, ("note",))] == expected
    assert [*last_rows(tmp_path / "none", ("note",))] == []
