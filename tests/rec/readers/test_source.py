"""The batches of an epoch: every example once, in order, and exactly where it stopped."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.data.batch import Bag
from paddock.data.chunks import Chunk
from paddock.data.files import Chunks, find_files
from paddock.data.formats.slots import SlotFormat
from paddock.errors import PaddockError, UsageError
from paddock.rec.learner import SourceBatch
from paddock.rec.readers import read_ahead, source
from paddock.rec.readers.read_ahead import ReadAhead
from paddock.rec.readers.source import ChunkSource
from paddock.rec.settings import Reading

FORM = SlotFormat(("click", "1"))
COUNT = 100


@pytest.fixture
def chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Chunk]:
    """COUNT examples whose id is their number, in three files (one of them gz), many units."""
    monkeypatch.setattr(read_ahead, "UNIT_BYTES", 40)
    lines = [f"click:{i % 2} 1:{i}\n".encode() for i in range(COUNT)]
    (tmp_path / "a").write_bytes(b"".join(lines[:37]))
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"".join(lines[37:60])))
    (tmp_path / "c").write_bytes(b"".join(lines[60:]))
    return list(Chunks(find_files([tmp_path]), 130))


def ids(item: SourceBatch) -> list[int]:
    """The examples of a batch."""
    column = item.batch.ids["1"]
    assert not isinstance(column, Bag)
    assert len(column) == item.size == len(item.batch.label)
    return [int(i) for i in column]


def flat(batches: list[list[int]]) -> list[int]:
    """The examples of all batches."""
    return [i for batch in batches for i in batch]


def all_ids(items: Iterator[SourceBatch]) -> list[list[int]]:
    """Those of all batches."""
    return [ids(item) for item in items]


def test_batches_go_over_the_borders_of_chunks_and_files(chunks: list[Chunk]) -> None:
    """Only the last one is small."""
    found = all_ids(ChunkSource(FORM, chunks, Reading((), 8)).open(0, None))
    assert [len(batch) for batch in found] == [8] * 12 + [4]
    assert flat(found) == list(range(COUNT))


def test_the_last_small_batch_can_be_dropped(chunks: list[Chunk]) -> None:
    """As PaddleRec's 2.x trainer does."""
    found = all_ids(ChunkSource(FORM, chunks, Reading((), 8, drop_last=True)).open(0, None))
    assert flat(found) == list(range(96))


@pytest.mark.parametrize("shuffle", [0, 20, 1000])
def test_every_position_goes_on_with_the_next_example(chunks: list[Chunk], shuffle: int) -> None:
    """A worker that is started again trains no example twice and leaves none out."""
    data = ChunkSource(FORM, chunks, Reading((), 8, shuffle=shuffle), seed=5)
    items = list(data.open(3, None))
    batches = [ids(item) for item in items]
    assert sorted(flat(batches)) == list(range(COUNT))
    for number, item in enumerate(items):
        position = json.loads(json.dumps(item.position))
        assert all_ids(data.open(3, position)) == batches[number + 1 :]


def test_shuffling_differs_from_epoch_to_epoch_and_not_from_run_to_run(
    chunks: list[Chunk],
) -> None:
    """Seeded: the same run twice is the same run."""
    data = ChunkSource(FORM, chunks, Reading((), 8, shuffle=50), seed=5)
    first, again, other = (all_ids(data.open(epoch, None)) for epoch in (0, 0, 1))
    assert first == again
    assert first != other
    assert flat(first) != list(range(COUNT))


@pytest.mark.parametrize("with_threads", [False, True])
@pytest.mark.limit(60)
def test_processes_and_threads_hand_over_the_same_batches(
    chunks: list[Chunk], monkeypatch: pytest.MonkeyPatch, with_threads: bool
) -> None:
    """Order is kept, positions are the same; also from the middle."""
    monkeypatch.setattr(source, "PARALLEL", (type(FORM),) if with_threads else ())
    alone = list(ChunkSource(FORM, chunks, Reading((), 8)).open(0, None))
    beside = ChunkSource(FORM, chunks, Reading((), 8, loader_processes=2))
    shared = list(beside.open(0, None))
    assert [ids(item) for item in shared] == [ids(item) for item in alone]
    assert [item.position for item in shared] == [item.position for item in alone]
    assert all_ids(beside.open(0, alone[6].position)) == [ids(item) for item in alone[7:]]


@pytest.mark.parametrize("shuffle", [0, 20])
def test_a_leased_chunk_goes_on_behind_any_example(chunks: list[Chunk], shuffle: int) -> None:
    """Its order is that of the epoch, whoever reads it, and from wherever."""
    files = find_files([str(Path(chunks[0].path).parent)])
    lot = ChunkSource(FORM, Chunks(files, 130), Reading((), 8, shuffle=shuffle), seed=5).chunk_set()
    every = [list(lot.read(1, number, 0)) for number in range(lot.chunks)]
    found = [ids(SourceBatch(*lot.make(parts), None)) for parts in every if parts]
    assert sorted(flat(found)) == list(range(COUNT))
    assert (flat(found) == list(range(COUNT))) == (not shuffle)
    for number, parts in enumerate(found):
        for skip in range(len(parts)):
            assert (
                ids(SourceBatch(*lot.make(list(lot.read(1, number, skip))), None)) == parts[skip:]
            )


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.limit(60)
def test_a_bad_line_stops_with_file_and_line(tmp_path: Path, processes: int) -> None:
    """Which line of which file, and exit code 2."""
    path = tmp_path / "part-0"
    path.write_bytes(b"click:1 1:5\n" * 200 + b"\nclick:1 1:x\n" + b"click:1 1:5\n" * 200)
    data = ChunkSource(
        FORM,
        [Chunk(str(path), 0, 60), Chunk(str(path), 60, 5000)],
        Reading((), 8, loader_processes=processes),
    )
    with pytest.raises(UsageError, match=r"part-0:202: slot '1': 'x' is no integer id"):
        list(data.open(0, None))


def test_some_bad_lines_can_be_allowed(tmp_path: Path) -> None:
    """They are counted."""
    (tmp_path / "a").write_bytes(b"click:1 1:5\nno\nclick:1 1:6\n")
    data = ChunkSource(FORM, list(Chunks(find_files([tmp_path]))), Reading((), 8, bad_max=1))
    assert all_ids(data.open(0, None)) == [[5, 6]]
    assert data.bad_count == 1


def test_slots_that_do_not_fit_are_told_once(tmp_path: Path) -> None:
    """The dense slot of the samples has another name than the one in the old configs."""
    (tmp_path / "a").write_bytes(b"click:1 1:5 dense_feature:1\n")
    told: list[str] = []
    form = SlotFormat(("click", "1"), (("dense_var", 1),))
    data = ChunkSource(form, list(Chunks(find_files([tmp_path]))), Reading((), 8), warn=told.append)
    for epoch in (0, 1):
        assert len(list(data.open(epoch, None))) == 1
    assert len(told) == 2
    assert "'dense_feature'" in told[0]


@pytest.mark.parametrize("threads", [0, 2])
def test_a_source_that_is_left_ends_its_threads(chunks: list[Chunk], threads: int) -> None:
    """Leaving a loop early is not a leak."""
    before = threading.active_count()
    items = ChunkSource(FORM, chunks, Reading((), 2, loader_processes=threads)).open(0, None)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_what_reading_ahead_raises_is_raised_in_its_turn() -> None:
    """The values before it are good."""

    def values() -> Iterator[int]:
        yield 1
        raise PaddockError("gone")

    ahead = iter(ReadAhead(values(), 4))
    assert next(ahead) == 1
    with pytest.raises(PaddockError, match="gone"):
        next(ahead)


def test_what_is_no_position_is_refused() -> None:
    """A checkpoint of something else."""
    with pytest.raises(PaddockError, match="no position"):
        next(ChunkSource(FORM, [], Reading((), 2)).open(0, [1, 2]))
