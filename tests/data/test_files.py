"""Files are found, cut and read so that each line is read once."""

from __future__ import annotations

import gzip
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.data.chunks import Chunk, DataFile
from paddock.data.files import Chunks, blocks, find_files
from paddock.errors import PaddockError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def names_of(files: list[DataFile]) -> list[str]:
    """The last parts of paths."""
    return [file.path.rpartition("/")[2] for file in files]


def test_a_directory_gives_its_data_sorted(tmp_path: Path) -> None:
    """Hidden files, markers, the manifest and directories below are no data."""
    for name in ("b", "a", ".hidden", "_SUCCESS", "manifest.json", "a.done", "donefile"):
        (tmp_path / name).write_bytes(b"1\n")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "c").write_bytes(b"1\n")
    files = find_files([tmp_path])
    assert names_of(files) == ["a", "b"]
    assert [file.size for file in files] == [2, 2]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    """A glob and a directory that overlap must not train a file twice."""
    for name in ("part-1", "part-0", "other"):
        (tmp_path / name).write_bytes(b"1\n")
    again = (str(tmp_path / "part-0"), f"{tmp_path}/./part-0", f"{tmp_path}/../{tmp_path.name}")
    found = find_files([str(tmp_path / "part-*"), *again, tmp_path])
    assert names_of(found) == ["part-0", "part-1", "other"]


def test_all_missing_paths_are_told_at_once(tmp_path: Path) -> None:
    """One run shows every typing error; an empty directory is one."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError) as caught:
        find_files([str(tmp_path / "none"), str(tmp_path / "empty"), str(tmp_path / "x*")])
    messages = [problem.message for problem in caught.value.problems]
    assert [message.rpartition("/")[2] for message in messages] == [
        "none' does not exist",
        "empty' has no file of data",
        "x*'",
    ]
    assert caught.value.exit_code == 2


def test_a_pipe_is_no_file_of_data(tmp_path: Path) -> None:
    """Its size is 0, so it was read as an empty file: <(zcat part.gz)."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe' is a pipe or a device"):
        find_files([tmp_path / "pipe"])


@pytest.mark.parametrize("length", [0, 3, 11, 12, 13])
def test_a_file_that_became_shorter_is_told(tmp_path: Path, length: int) -> None:
    """What was missing was no record, and the pass was over: lost without a word."""
    path = tmp_path / "part-0"
    path.write_bytes(b"one\ntwo\nthree\nfour\n")
    chunks = list(Chunks([DataFile(str(path), 19)], 10))
    os.truncate(path, length)
    with pytest.raises(PaddockError, match="data must not change while it is read"):
        for chunk in chunks:
            list(blocks(chunk))


def test_no_path_at_all_is_refused() -> None:
    """An empty list is never "all of nothing"."""
    with pytest.raises(UsageError, match="no paths"):
        find_files([])


def test_a_url_is_read_through_fsspec() -> None:
    """Directories, globs and files of another file system work as local ones do."""
    fsspec = pytest.importorskip("fsspec", reason="fsspec is optional")
    memory = fsspec.filesystem("memory")
    memory.pipe({"/days/part-0": b"a\nb\n", "/days/part-1": b"c\n", "/days/_SUCCESS": b""})
    for given_path in ("memory://days", "memory://days/part-*", "memory:///days/"):
        assert names_of(find_files([given_path])) == ["part-0", "part-1"]
    (file,) = find_files(["memory://days/part-0"])
    assert file.size == 4
    read = [b"".join(blocks(chunk)) for chunk in Chunks([file], 2)]
    assert read == [b"a\n", b"b\n"]
    with pytest.raises(UsageError, match="does not exist"):
        find_files(["memory://days/part-7"])


def test_an_unknown_scheme_is_a_usage_error() -> None:
    """fsspec's own message is kept, the traceback is not."""
    pytest.importorskip("fsspec", reason="fsspec is optional")
    with pytest.raises(UsageError, match="cannot be opened"):
        find_files(["nonsense://days"])


@given(
    lengths=st.lists(st.integers(0, 9), max_size=12),
    ends_with_newline=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    block_bytes=st.integers(1, 16),
)
def test_every_line_belongs_to_one_chunk(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    ends_with_newline: bool,
    cuts: list[int],
    block_bytes: int,
) -> None:
    """Whatever the cuts, the chunks' blocks in order are the file, cut behind newlines."""
    text = b"\n".join(bytes([97 + i]) * n for i, n in enumerate(lengths))
    text += b"\n" if ends_with_newline and text else b""
    path = tmp_path_factory.mktemp("lines") / "f"
    path.write_bytes(text)
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    read = b""
    for start, end in pairwise(edges):
        for block in blocks(Chunk(str(path), start, end), block_bytes):
            assert block.endswith(b"\n") or read + block == text
            assert start <= len(read) < end or not read.endswith(b"\n")
            read += block
    assert read == text


def test_files_are_cut_into_chunks_of_like_length(tmp_path: Path) -> None:
    """Chunks are of about the length asked for; gz is one, an empty file none."""
    files = [DataFile("a", 100), DataFile("b", 0), DataFile("c.gz", 1000)]
    assert list(Chunks(files, 40)) == [
        Chunk("a", 0, 33),
        Chunk("a", 33, 66),
        Chunk("a", 66, 100),
        Chunk("c.gz"),
    ]


def test_gzip_is_read_as_text(tmp_path: Path) -> None:
    """Several members, as `cat a.gz b.gz` makes them, are one text."""
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree"))
    assert b"".join(blocks(Chunk(str(path)), 4)) == b"one\ntwo\nthree"


@pytest.mark.parametrize("damage", [slice(0, -9), slice(3, None)])
def test_a_damaged_gzip_is_named(tmp_path: Path, damage: slice) -> None:
    """A file that was cut off or is something else is never read in part and taken for whole."""
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n" * 100)[damage])
    with pytest.raises(PaddockError, match=r"f\.gz' cannot be read"):
        list(blocks(Chunk(str(path))))


def test_parquet_is_cut_by_row_groups(tmp_path: Path) -> None:
    """A chunk of Parquet is a range of row groups."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    path = str(tmp_path / "f.parquet")
    parquet.write_table(arrow.table({"x": list(range(100))}), path, row_group_size=25)
    (file,) = find_files([path])
    assert list(Chunks([file], 1)) == [Chunk(path, i, i + 1) for i in range(4)]
    assert list(Chunks([file], 1 << 30)) == [Chunk(path, 0, 4)]
    (tmp_path / "bad.parquet").write_bytes(b"no parquet, but long enough")
    with pytest.raises(PaddockError, match="no Parquet file"):
        list(Chunks(find_files([tmp_path / "bad.parquet"])))
