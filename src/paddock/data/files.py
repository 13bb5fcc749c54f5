"""Finds files of data, cuts them into chunks and reads a chunk as blocks of whole lines.

One rule: a line belongs to the chunk it begins in, so chunks of any length give each line once.
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import IO, Any, cast

from paddock.data.chunks import GENERATED, MANIFEST, Chunk, DataFile
from paddock.errors import PaddockError, Problem, UsageError, extra_hint

BLOCK_BYTES = 2 << 20
LINE_BYTES_MAX = 64 << 20
END_OF_FILE = 1 << 62
CHUNK_BYTES = 64 << 20
# What stands in directories of data without being data: Hadoop's and our own markers.
MARKERS = (MANIFEST, "done", "donefile", "to.hadoop.done")
MARKER_ENDS = (".done", ".donefile", ".crc", ".tmp", "~")
GLOB_SIGNS = frozenset("*?[")
# How files begin that are no text, whatever their names; bzip2's first block begins with pi.
BEGINNINGS = (
    (re.compile(rb"\x1f\x8b\x08"), "gzip data", "name it *.gz"),
    (re.compile(rb"BZh[1-9]\x31\x41\x59\x26"), "bzip2 data", "unpack it, or pack it with gzip"),
    (re.compile(rb"\xfd7zXZ\0"), "xz data", "unpack it, or pack it with gzip"),
    (re.compile(rb"\x28\xb5\x2f\xfd"), "Zstandard data", "unpack it, or pack it with gzip"),
    (re.compile(rb"\x04\x22\x4d\x18"), "LZ4 data", "unpack it, or pack it with gzip"),
    (re.compile(rb"PK\x03\x04"), "a ZIP archive", "unpack it"),
    (re.compile(rb"PAR1"), "Parquet", "name it *.parquet"),
    (re.compile(rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff"), "UTF-16 or UTF-32", "convert it to UTF-8"),
)


# ------------------------------------------------------------------------------------------- find


def find_files(paths: Iterable[str | os.PathLike[str]]) -> list[DataFile]:
    """The files of `paths`, each once: those of one path sorted, the paths in their order.

    paths: files, directories (their own files, not those of directories below; without hidden
    ones, those that begin with `_`, and markers), globs, URLs that fsspec opens, and
    `generated:KIND?...` (generate/write.py).

    Raises: UsageError naming every path that is missing, or has no file.
    """
    found: dict[str, DataFile] = {}
    problems: list[Problem] = []
    for given in paths:
        path = os.fspath(given)
        try:
            if path.startswith(GENERATED):
                from paddock.data.generate.write import generated

                path = generated(path)
            files = _remote(path) if is_url(path) else _local(path)
        except UsageError as error:
            problems += error.problems
            continue
        for file in files:  # ./part-0 is part-0.
            name = file.path if is_url(file.path) else os.path.abspath(file.path)
            found.setdefault(name, file)
    if problems:
        raise UsageError.of(problems)
    if not found:
        raise UsageError("no paths of data are given", hint="name a file or a directory")
    return list(found.values())


def is_url(path: str) -> bool:
    """True for a URL, which fsspec opens.

    >>> is_url("s3://bucket/part-0"), is_url("train/part-0")
    (True, False)
    """
    return "://" in path


def is_elsewhere(path: str) -> bool:
    """True for data outside of the file system: a URL, or generated when it is read.

    >>> is_elsewhere("s3://b/x"), is_elsewhere("generated:criteo?seed=1"), is_elsewhere("data")
    (True, True, False)
    """
    return is_url(path) or path.startswith(GENERATED)


def is_data_name(name: str) -> bool:
    """True when a file of that name in a directory is data.

    >>> [name for name in ("part-0", ".part-0", "_SUCCESS", "part-0.done") if is_data_name(name)]
    ['part-0']
    """
    hidden = name.startswith((".", "_"))
    return not hidden and name.lower() not in MARKERS and not name.endswith(MARKER_ENDS)


def _local(path: str) -> list[DataFile]:
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            names = sorted(e.path for e in entries if is_data_name(e.name) and e.is_file())
        if not names:
            raise _empty(path)
    elif os.path.isfile(path):
        names = [path]
    elif os.path.exists(path):
        raise UsageError(f"'{path}' is a pipe or a device", hint="write it to a file first")
    elif GLOB_SIGNS & set(path):
        found = glob.glob(path, recursive=True)
        names = sorted(n for n in found if is_data_name(os.path.basename(n)) and os.path.isfile(n))
        if not names:
            raise UsageError(f"no file matches '{path}'", hint="check the glob")
    else:
        raise _missing(path)
    return [DataFile(name, os.stat(name).st_size) for name in names]


def _remote(url: str) -> list[DataFile]:
    system, path = _file_system(url)
    try:
        if GLOB_SIGNS & set(path):
            known = system.glob(path, detail=True)
            listed = [known[name] for name in sorted(known)]
        elif system.isdir(path):
            listed = sorted(system.ls(path, detail=True), key=lambda entry: str(entry["name"]))
        else:
            return [DataFile(url, int(system.info(path)["size"]))]
    except FileNotFoundError:
        raise _missing(url) from None
    except OSError as error:
        raise UsageError(f"'{url}' cannot be read: {error}", hint="check the URL") from error
    files = [
        DataFile(system.unstrip_protocol(entry["name"]), int(entry["size"]))
        for entry in listed
        if entry["type"] == "file" and is_data_name(entry["name"].rpartition("/")[2])
    ]
    if not files:
        raise _empty(url)
    return files


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        message = f"'{url}' is a URL, and fsspec is not installed"
        raise UsageError(message, hint=f"{extra_hint('data')}, or name local files") from None
    try:
        return cast("tuple[Any, str]", fsspec.core.url_to_fs(url))
    except (ImportError, ValueError) as error:  # ImportError: s3fs and so on is not installed.
        raise UsageError(f"'{url}' cannot be opened: {error}", hint="check the scheme") from error


def _missing(path: str) -> UsageError:
    hint = "name files, directories or globs of data; paddock data generate makes some"
    return UsageError(f"'{path}' does not exist", hint=hint)


def _empty(path: str) -> UsageError:
    hint = "hidden files, those that begin with '_' and done markers are no data"
    return UsageError(f"directory '{path}' has no file of data", hint=hint)


# -------------------------------------------------------------------------------------------- cut


def is_compressed(path: str) -> bool:
    """True for a compressed file, which is read from its beginning only."""
    return path.endswith(".gz")


def is_parquet(path: str) -> bool:
    """True for a Parquet file, which has row groups in place of lines."""
    return path.endswith((".parquet", ".pq"))


class Chunks(Sequence[Chunk]):
    """The chunks of files, of about `chunk_bytes`, in the order of the files; none of an empty one.

    Each is made when it is asked for: a million of them take no memory. A file that cannot be cut
    is one chunk. Text is not read: a chunk's first and last line are found by who reads it.
    Raises: UsageError for Parquet where pyarrow is not installed.
    """

    def __init__(self, files: Sequence[DataFile], chunk_bytes: int = CHUNK_BYTES) -> None:
        self.files = files
        self._bytes = chunk_bytes
        # Those that are not cut by arithmetic alone.
        self._cut: dict[int, list[Chunk]] = {}
        for number, file in enumerate(files):
            if is_parquet(file.path):
                self._cut[number] = _row_groups(file, chunk_bytes)
            elif is_compressed(file.path):
                self._cut[number] = [Chunk(file.path)] if file.size else []
        counts = (
            len(self._cut[i]) if i in self._cut else -(-file.size // chunk_bytes)
            for i, file in enumerate(files)
        )
        self._ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Chunk:  # type: ignore[override]  # no slices
        if not 0 <= index < len(self):
            raise IndexError(index)
        place = bisect_right(self._ends, index)
        index -= self._ends[place - 1] if place else 0
        if place in self._cut:
            return self._cut[place][index]
        # Parts of the same length, rather than a short one at the end.
        file, count = self.files[place], -(-self.files[place].size // self._bytes)
        return Chunk(file.path, file.size * index // count, file.size * (index + 1) // count)

    def digest(self) -> str:
        """A digest of the list of chunks: equal for equal files, cut alike. 16 hex digits."""
        told = hashlib.sha256(str(self._bytes).encode())
        for file in self.files:
            told.update(f"\0{file.path}\0{file.size}".encode())
        return told.hexdigest()[:16]


def _row_groups(file: DataFile, chunk_bytes: int) -> list[Chunk]:
    with open_parquet(file.path) as table:
        facts = table.metadata
        sizes = [facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)]
    chunks, start, filled = [], 0, 0
    for number, size in enumerate(sizes):
        filled += size
        if filled >= chunk_bytes or number + 1 == len(sizes):
            chunks.append(Chunk(file.path, start, number + 1))
            start, filled = number + 1, 0
    return chunks


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """The file as a pyarrow.parquet.ParquetFile. Raises: UsageError without pyarrow."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        message = f"'{path}' is Parquet, and pyarrow is not installed"
        raise UsageError(message, hint=extra_hint("data")) from None
    with open_file(path) as file:
        try:
            table = parquet.ParquetFile(file, pre_buffer=False)
        except ArrowInvalid as error:
            raise PaddockError(f"'{path}' is no Parquet file: {error}") from error
        yield table


# ------------------------------------------------------------------------------------------- read


def open_file(path: str) -> IO[bytes]:
    """A file as it is stored, without a buffer where it is local."""
    if is_url(path):
        system, name = _file_system(path)
        return cast("IO[bytes]", system.open(name, "rb"))
    try:
        return open(path, "rb", buffering=0)
    except OSError as error:
        raise PaddockError(f"'{path}' cannot be opened: {error.strerror}") from error


def blocks(chunk: Chunk, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The lines that begin in a chunk, in blocks of about `block_bytes` that end with a line.

    Only the last line of a file may have no newline. gz is read as what it holds.
    Raises: PaddockError for a file that cannot be read, is cut off, has a line too long, or
    begins as one that is no text.
    """
    with open_file(chunk.path) as file:
        if is_compressed(chunk.path):
            with gzip.open(file) as text:
                yield from _text_of(cast("IO[bytes]", text), chunk, block_bytes)
        else:
            yield from _text_of(file, chunk, block_bytes)


def _text_of(file: IO[bytes], chunk: Chunk, block_bytes: int) -> Iterator[bytes]:
    for number, block in enumerate(lines_of(file, chunk, block_bytes)):
        # Only a chunk at the beginning can tell: newlines are in packed data, too.
        for pattern, what, hint in BEGINNINGS if number == chunk.start == 0 else ():
            if pattern.match(block):
                message = f"'{chunk.path}' is {what}, and no lines of text"
                raise PaddockError(message, hint=hint)
        yield block


def no_text(path: str) -> Problem | None:
    """The problem of a file that begins as one that is no text, or cannot be read."""
    try:
        next(blocks(Chunk(path), 1 << 10), b"")
    except PaddockError as error:
        return Problem(error.message, error.hint)
    return None


def lines_of(file: IO[bytes], chunk: Chunk, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """As `blocks`, of an open file or pipe; a chunk without an end is all of it."""
    path, end = chunk.path, chunk.end if chunk.end >= 0 else END_OF_FILE
    rest, at = b"", 0
    is_within = chunk.start == 0
    if not is_within:
        # A line begins at `start` if a newline stands before it.
        at = chunk.start - 1
        file.seek(at)
    while data := _read(file, block_bytes, path):
        begin, at = at, at + len(data)
        if not is_within:
            skipped = data.find(b"\n") + 1
            if at >= end and not skipped:
                return
            if not skipped:
                continue
            begin, data, is_within = begin + skipped, data[skipped:], True
            if begin >= end:
                return
        # The line that holds byte end - 1 is the last one; it ends there or further on.
        last = data.find(b"\n", max(0, end - 1 - begin)) if at >= end else -1
        if last >= 0:
            yield rest + data[: last + 1]
            return
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
        if len(rest) > LINE_BYTES_MAX:
            message = f"'{path}' has a line of more than {LINE_BYTES_MAX} bytes"
            raise PaddockError(message, hint="is it text? Parquet is named *.parquet, gzip *.gz")
    if at < end != END_OF_FILE:
        message = f"'{path}' ends at byte {at}, and had at least {end} when it was listed"
        raise PaddockError(message, hint="data must not change while it is read")
    if rest:
        yield rest


def _read(file: IO[bytes], size: int, path: str) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error) as error:  # OSError: gzip.BadGzipFile, too.
        raise PaddockError(f"'{path}' cannot be read: {error}", hint="is it whole?") from error
