"""A stream in one process: each record once a pass, and its state."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paddock.data import stream
from paddock.errors import PaddockError, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of lines of different lengths, one without a newline at its end; one is empty."""
    rng = random.Random(5)
    for file, count in enumerate((100, 1, 0, 57)):
        lines = [f"{file}-{i}-" + "x" * rng.randrange(40) for i in range(count)]
        (tmp_path / f"part-{file}").write_text(
            "\n".join(lines) + "\n" * (file % 2 == 0 and count > 0)
        )
    return tmp_path


def lines_of(folder: Path) -> Counter[str]:
    """All lines."""
    return Counter(line for file in sorted(folder.iterdir()) for line in file.read_text().split())


@pytest.mark.parametrize("chunk_bytes", [1, 50, 333, 1 << 20])
@pytest.mark.parametrize("seed", [None, 3])
def test_pass_has_each_line_once_in_full_batches(
    folder: Path, chunk_bytes: int, seed: int | None
) -> None:
    """Whatever the chunks, and batches go over their borders."""
    data = stream(folder, 8, chunk_bytes=chunk_bytes, seed=seed)
    for _ in range(2):
        batches = list(data)
        assert Counter(line for batch in batches for line in batch) == lines_of(folder)
        short = [len(batch) for batch in batches if len(batch) < 8]
        assert len(short) <= 1


def test_state_of_any_batch_goes_on_behind_it(folder: Path) -> None:
    """A checkpoint of a script of its own: JSON, and the rest of the pass is exact."""
    whole = list(stream(folder, 8, chunk_bytes=200, passes=2)) * 1
    for stop in range(len(whole)):
        first = stream(folder, 8, chunk_bytes=200, passes=2)
        seen: list[Any] = []
        for batch in first:
            seen.append(batch)
            if len(seen) > stop:
                break
        state = json.loads(json.dumps(first.state_dict()))
        second = stream(folder, 8, chunk_bytes=200, passes=2)
        second.load_state_dict(state)
        rest = [list(second) for _ in second.epochs()]
        assert seen + rest[0] == whole
        assert Counter(line for b in rest[-1] for line in b) == lines_of(folder)


def test_loop_that_is_left_goes_on_with_the_batch_that_was_not_used(folder: Path) -> None:
    """To ask for the next batch says that the one before was used, and nothing else does."""
    data = stream(folder, 8, chunk_bytes=200)
    seen = []
    for batch in data:
        if len(seen) == 3:
            break
        seen.append(batch)
    assert Counter(line for b in [*seen, *data] for line in b) == lines_of(folder)


def test_chunk_that_cannot_be_parsed_is_set_aside_and_named(folder: Path) -> None:
    """Others are read; the records before it in its chunk are, too."""

    def parse(lines: list[str]) -> list[str]:
        if any(line.startswith("0-50-") for line in lines):
            raise ValueError("line 50 is bad")
        return lines

    data = stream(folder, 8, chunk_bytes=500, parse=parse)
    with pytest.warns(UserWarning, match=r"1 chunks were set aside: .*part-0.*line 50 is bad"):
        seen = Counter(line for batch in data for line in batch)
    lost = lines_of(folder) - seen
    report = data.report()
    assert not seen - lines_of(folder)
    assert any(line.startswith("0-50-") for line in lost)
    assert report["records"] == seen.total()
    assert [one["reason"] for one in report["aside"]] == ["ValueError: line 50 is bad"]


def test_a_pass_of_which_nothing_can_be_read_fails(tmp_path: Path) -> None:
    """Text of another encoding: the loop had no turn, and the model was what it began as."""
    (tmp_path / "part-0").write_bytes("\u4e2d\n".encode("gbk"))
    with pytest.raises(PaddockError, match=r"nothing of the data could be read; .*part-0.*utf-8"):
        list(stream(tmp_path, 8))


def test_chunk_set_aside_fails_the_job_where_none_may_be(folder: Path) -> None:
    """aside=0: the error names the chunk."""
    (folder / "part-0").write_bytes(b"\xff\xff\n" * 10)  # and no mark of UTF-16
    with pytest.raises(PaddockError, match=r"part-0.*UnicodeDecodeError"):
        list(stream(folder, 8, aside=0))


def test_file_that_shrank_is_an_error_and_not_silence(folder: Path) -> None:
    """A position behind the end of a chunk means that the file is another one."""
    path = folder / "part-0"
    text = path.read_text()
    data = stream(path, 8, aside=0)
    for count, _ in enumerate(data):
        if count == 9:
            break
    state = data.state_dict()
    path.write_text("\n" + text[:10].ljust(len(text) - 1))
    again = stream(path, 8, aside=0)
    again.load_state_dict(state)
    with pytest.raises(PaddockError, match="fewer than were trained"):
        list(again)


def test_bad_arguments_are_told_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And several processes without a client would each read everything."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UsageError) as caught:
        stream(folder, 0, tries=0)
    assert [p.message.partition(":")[0] for p in caught.value.problems] == [
        "batch_size is 0",
        "tries is 0",
        "4 processes train together (WORLD_SIZE), and this stream has no client",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(stream(folder, 50, alone=True))


def test_state_of_other_files_is_refused(folder: Path) -> None:
    """A position means nothing in other chunks."""
    state = stream(folder).state_dict()
    with pytest.raises(UsageError, match="other files"):
        stream(folder, chunk_bytes=3).load_state_dict(state)
