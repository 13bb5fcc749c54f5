"""Cuts data into shards for workers: consecutive lines, shuffled ones, or by a key.

Nothing is held in memory but some blocks, so the data may be larger; the shards get their names
all at once (manifest.publishing).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddock.data.chunks import Chunk, DataFile, even_edges
from paddock.data.files import blocks, is_compressed, is_parquet, is_url, no_text
from paddock.data.formats.table import header_of
from paddock.data.manifest import Manifest, publishing, refuse_taken, write_manifest
from paddock.errors import PaddockError, Problem, UsageError, refuse
from paddock.ps.storage.files import remove_tree
from paddock.ps.xxh3 import xxh3

SEPARATORS = (b"\t", b",", b" ")

Key = Callable[[bytes], bytes | None]


def key_of(column: str, first_line: bytes) -> Key:
    """A function from a line to its value, None for a line without one.

    column: a field's number from 1, or a slot's name, with ':' behind it where it is a number.
    first_line: says what separates fields: tab, else comma, else blank.

    >>> key_of("2", b"1,ann,x")(b"0,bob,y"), key_of("7:", b"")(b"click:0 7:12 7:13 8:1")
    (b'bob', b'12 13')
    """
    start = column.removesuffix(":").encode() + b":"

    def values(line: bytes) -> bytes | None:
        found = [word[len(start) :] for word in line.split() if word.startswith(start)]
        return b" ".join(found) if found else None

    if not column.isdecimal():
        return values
    separator = next((sign for sign in SEPARATORS if sign in first_line), b" ")
    place = int(column) - 1

    def field(line: bytes) -> bytes | None:
        fields = line.rstrip(b"\r").split(separator, place + 1)
        return fields[place] if 0 <= place < len(fields) else None

    return field


RULES = ("lines", "bytes", "rows", "key")
COUNT_MAX = 100_000  # what five digits number
BLOCK = 4 << 20
BUCKET_BYTES = 64 << 20  # of lines that are shuffled in memory
HELD_BYTES = 64 << 20  # waiting to be appended to buckets or shards
NUMERIC = re.compile(rb"\s*[-+]?[\d.][\d.eE+-]*\s*")
# A field that begins with a quote; what Excel writes begins with a mark of UTF-8.
QUOTED = re.compile(rb'(?:^(?:\xef\xbb\xbf)?|[,;\t])"')
NUMBER = re.compile(r"-\d+(?=(\.\w+)*$)")

Progress = Callable[[int, int], None]
Place = tuple[int, int]  # number of a file, offset in it


@dataclass(frozen=True)
class SplitRequest:
    """Files to split, and how.

    by: one of RULES; rows are lines of text. key: a column (paddock.data.split). seed: shuffle the
    lines. is_legacy: lines // count + 1 in each shard, as the word2vec demo has it;
    there may be fewer shards than `count`. name: of the shards, before their numbers.
    """

    files: Sequence[DataFile]
    count: int
    directory: Path
    by: str = "lines"
    key: str | None = None
    seed: int | None = None
    is_legacy: bool = False
    name: str | None = None


def split(request: SplitRequest, progress: Progress) -> Manifest:
    """Write the shards and their manifest, all or nothing.

    progress: is told (bytes read, of how many). Raises: UsageError for what cannot be split so.
    """
    _refuse(request)
    names = shard_names(request)
    refuse_taken(request.directory, names)
    with publishing(request.directory, "shards") as directory:
        paths = [directory / name for name in names]
        if is_parquet(request.files[0].path):
            from paddock.data.split_parquet import split_parquet

            counts = split_parquet(request, paths, progress)
        else:
            counts = _split_text(request, paths, directory / ".spool", progress)
            remove_tree(directory / ".spool")
        facts: dict[str, object] = {"by": request.by}
        if request.key is not None:
            facts["key"] = request.key
        if request.seed is not None:
            facts["seed"] = request.seed
        facts["of"] = [{"path": file.path, "bytes": file.size} for file in request.files]
        unit = "rows" if is_parquet(names[0]) else "lines"
        by_name = dict(zip(names, counts, strict=False))
        return write_manifest(directory, "split", by_name, facts, unit)


def shard_names(request: SplitRequest) -> list[str]:
    """train.txt-00000 and so on; readers know Parquet by its ending: train-00000.parquet.

    >>> shard_names(SplitRequest([DataFile("d/train.txt.gz", 1)], 2, Path()))
    ['train.txt-00000', 'train.txt-00001']
    """
    first = request.files[0].path
    name = request.name or NUMBER.sub("", first.rstrip("/").rpartition("/")[2].removesuffix(".gz"))
    ending = ""
    if is_parquet(first):
        name, ending = name.removesuffix(".pq").removesuffix(".parquet"), ".parquet"
    return [f"{name}-{number:05d}{ending}" for number in range(request.count)]


def _refuse(request: SplitRequest) -> None:
    problems = []
    if not 1 <= request.count <= COUNT_MAX:
        problems.append(Problem(f"--count is {request.count}, the limits are 1 and {COUNT_MAX}"))
    if (request.by == "key") != (request.key is not None):
        problems.append(Problem("--by key needs a column", "--by key 1, or --by key NAME"))
    if request.seed is not None and (request.by not in ("lines", "rows") or request.is_legacy):
        problems.append(Problem("--seed shuffles lines", "leave --by out, and --legacy"))
    if request.seed is not None and request.seed < 0:
        problems.append(Problem(f"--seed is {request.seed}, at least 0 is needed"))
    if request.is_legacy and request.by != "lines":
        problems.append(Problem("--legacy is for --by lines", "leave one of them out"))
    if request.name is not None and (not request.name or "/" in request.name):
        problems.append(Problem(f"--name is '{request.name}'", "a file's name, without '/'"))
    tables = [file.path for file in request.files if is_parquet(file.path)]
    if tables and len(tables) < len(request.files):
        problems.append(Problem(f"'{tables[0]}' is Parquet, others are not", "split one kind"))
    if tables and (request.seed is not None or request.is_legacy):
        problems.append(Problem("--seed and --legacy are for text", "shuffle Parquet with Ray"))
    if problems:
        raise UsageError.of(problems)


# ------------------------------------------------------------------------------------------- text


def _split_text(
    request: SplitRequest, paths: list[Path], spool: Path, progress: Progress
) -> list[int]:
    """Write the shards, each behind the header of CSV; the lines of each."""
    refuse([problem for file in request.files if (problem := no_text(file.path)) is not None])
    refuse([problem for file in request.files if (problem := _cut_record(file)) is not None])
    spool.mkdir()
    total = sum(file.size for file in request.files)
    header = _header(request.files[0])
    for path in paths if header else ():
        path.write_bytes(header)
    if request.by == "key":
        counts = _by_key(request, header, paths, progress)
    elif request.seed is not None:
        counts = _shuffled(request, header, paths, spool, progress)
    else:
        sources = [_stored(file, header, spool, n) for n, file in enumerate(request.files)]
        if request.by == "bytes":
            edges = _byte_edges(sources, request.count)
            _copy_all(sources, edges, paths, progress, total)
            counts = [_newlines(path)[-1] - bool(header) for path in paths]
        else:
            edges, counts = _line_edges(sources, request)
            _copy_all(sources, edges, paths, progress, total)
    if not sum(counts):
        raise UsageError("the files have no lines", hint="nothing can be split")
    return [count + bool(header) for count in counts]


def _cut_record(file: DataFile) -> Problem | None:
    """The problem of a .csv with a quoted field of several lines: shards are cut between lines.

    Source: RFC 4180, 2.6. A quote within a field that does not begin with one is text.
    """
    line = 0
    for block in blocks(Chunk(file.path)) if _is_csv(file) else ():
        if b'"' in block:
            array = np.frombuffer(block, np.uint8)
            starts = np.concatenate(([0], np.flatnonzero(array == 10) + 1))
            quotes = np.searchsorted(starts, np.flatnonzero(array == 34), side="right") - 1
            for odd in np.flatnonzero(np.bincount(quotes) % 2).tolist():
                text = block[starts[odd] :].partition(b"\n")[0]
                if QUOTED.search(text):
                    what = f"{file.path}: line {line + odd + 1} ends within a quoted field:"
                    hint = "write each record as one line, or convert the file to Parquet"
                    return Problem(f"{what} a record of several lines would be cut in two", hint)
        line += block.count(b"\n")
    return None


def _is_csv(file: DataFile) -> bool:
    return file.path.removesuffix(".gz").endswith(".csv")


def _header(file: DataFile) -> bytes:
    """The first line of a .csv in which no field is a number: names of columns. Else nothing."""
    if not _is_csv(file):
        return b""
    line, newline, _ = next(blocks(Chunk(file.path), 1 << 16), b"").partition(b"\n")
    is_header = newline and not any(NUMERIC.fullmatch(name.encode()) for name in header_of(line))
    return line + newline if is_header else b""


def _blocks(file: DataFile, header: bytes) -> Iterator[bytes]:
    """The file's lines in blocks, without the header."""
    for number, block in enumerate(blocks(Chunk(file.path))):
        yield block if number else block.removeprefix(header)


def _newlines(path: Path) -> list[int]:
    """How many lines end before each multiple of BLOCK; the last counts all of the file's."""
    buffer = bytearray(BLOCK)
    array = np.frombuffer(buffer, np.uint8)
    found, last = [0], 10
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            while size < BLOCK and (more := file.readinto(memoryview(buffer)[size:])):
                size += more
            found.append(found[-1] + int(np.count_nonzero(array[:size] == 10)))
            last = buffer[size - 1]
    found[-1] += last != 10
    return found


def _line_edges(sources: Sequence[Path], request: SplitRequest) -> tuple[list[Place], list[int]]:
    """The begin and end of shards, by equal numbers of lines; the lines of each."""
    counted = [_newlines(path) for path in sources]
    firsts = np.cumsum([0, *(found[-1] for found in counted)]).tolist()
    total, count = firsts[-1], request.count
    if request.is_legacy:
        each = total // count + 1
        wants = [*range(0, total, each), total]
    else:
        _refuse_few(total, count)
        wants = even_edges(total, count)
    edges = []
    for line in wants[:-1]:
        number = bisect_right(firsts, line) - 1
        within = line - firsts[number]
        edges.append((number, _offset(sources[number], counted[number], within)))
    return [*edges, (len(sources), 0)], [high - low for low, high in pairwise(wants)]


def _offset(path: Path, counted: list[int], line: int) -> int:
    """The first byte of a line, counted from 0."""
    if line == 0:
        return 0
    # The line begins behind newline number `line`, counted from 1.
    block = bisect_left(counted, line) - 1
    return block * BLOCK + int(_ends(path, block)[line - counted[block] - 1]) + 1


@lru_cache(1)  # Many shards may begin in one block.
def _ends(path: Path, block: int) -> NDArray[np.int64]:
    """The offsets of a block's newlines, (n,) int64."""
    with path.open("rb") as file:
        file.seek(block * BLOCK)
        return np.flatnonzero(np.frombuffer(file.read(BLOCK), np.uint8) == 10)


def _refuse_few(lines: int, count: int) -> None:
    if lines < count:
        raise UsageError(
            f"{lines} lines for {count} shards: some would be empty", hint="use a lower --count"
        )


def _byte_edges(sources: Sequence[Path], count: int) -> list[Place]:
    """The begin and end of shards, by equal numbers of bytes, moved on to the next line."""
    sizes = [path.stat().st_size for path in sources]
    firsts = np.cumsum([0, *sizes]).tolist()
    edges: list[Place] = [(0, 0)]
    for i in range(1, count):
        at = firsts[-1] * i // count
        number = bisect_right(firsts, at) - 1
        edges.append(_line_begin(sources, number, at - firsts[number]))
    edges.append((len(sources), 0))
    if any(left >= right for left, right in pairwise(edges)):
        raise UsageError(
            f"{firsts[-1]} bytes for {count} shards: lines are too long or too few, some shards "
            "would be empty",
            hint="use a lower --count",
        )
    return edges


def _line_begin(sources: Sequence[Path], number: int, offset: int) -> Place:
    """The first line that begins at an offset or later; the next file where there is none."""
    if number >= len(sources) or offset == 0:
        return number, 0
    with sources[number].open("rb") as file:
        file.seek(offset - 1)
        file.readline()
        at = file.tell()
        return (number, at) if file.read(1) else (number + 1, 0)


def _copy_all(
    sources: Sequence[Path], edges: list[Place], paths: list[Path], progress: Progress, total: int
) -> None:
    done = 0
    for (low, begin), (high, end), path in zip(edges, edges[1:], paths, strict=False):
        with path.open("r+b" if path.exists() else "w+b", buffering=0) as target:
            target.seek(0, os.SEEK_END)
            for number in range(low, min(high + 1, len(sources))):
                first = begin if number == low else 0
                last = end if number == high else sources[number].stat().st_size
                if last <= first:
                    continue
                at = target.tell()
                if at and os.pread(target.fileno(), 1, at - 1) != b"\n":
                    target.write(b"\n")  # A file without a last newline does not run into the next.
                with sources[number].open("rb", buffering=0) as source:
                    while first < last:
                        size = min(BLOCK * 16, last - first)
                        sent = os.sendfile(target.fileno(), source.fileno(), first, size)
                        if not sent:
                            what = f"'{sources[number]}' became shorter while it was read"
                            raise PaddockError(what, hint="split it again")
                        first, done = first + sent, done + sent
                        progress(min(done, total), total)


def _stored(file: DataFile, header: bytes, spool: Path, number: int) -> Path:
    """The file's lines as a local file: itself, or a copy of what gz, a URL or CSV holds."""
    if not is_url(file.path) and not is_compressed(file.path) and not header:
        return Path(file.path)
    path = spool / f"{number:05d}"
    with path.open("wb") as target:
        target.writelines(_blocks(file, header))
    return path


# ------------------------------------------------------------------------------- shuffled, by key


class _Scatter:
    """Appends lines to many files, few of which are open."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._held: list[list[bytes]] = [[] for _ in paths]
        self._bytes = 0
        self.counts = [0] * len(paths)

    def add(self, number: int, line: bytes) -> None:
        self._held[number].append(line)
        self._bytes += len(line) + 1
        self.counts[number] += 1
        if self._bytes > HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        for path, lines in zip(self._paths, self._held, strict=True):
            with path.open("ab") as file:
                if lines:
                    file.write(b"\n".join(lines) + b"\n")
            lines.clear()
        self._bytes = 0


def _lines(
    request: SplitRequest, header: bytes, progress: Progress
) -> Iterator[tuple[str, list[bytes]]]:
    """The lines of each block without their newlines, and whose they are."""
    total, before = sum(file.size for file in request.files), 0
    for file in request.files:
        read = 0
        for block in _blocks(file, header):
            if block:
                yield file.path, block.removesuffix(b"\n").split(b"\n")
            read += len(block)
            if read < file.size:  # gz holds more than its bytes say.
                progress(before + read, total)
        before += file.size
        progress(before, total)


def _shuffled(
    request: SplitRequest, header: bytes, paths: list[Path], spool: Path, progress: Progress
) -> list[int]:
    """Each line goes to a drawn bucket, each bucket is shuffled: a uniform order of all lines."""
    rng = np.random.default_rng(request.seed)
    # gz holds more than its bytes say: about five times as much, of text.
    size = sum(file.size * (6 if is_compressed(file.path) else 1) for file in request.files)
    buckets = [spool / f"bucket-{number:05d}" for number in range(1 + size // BUCKET_BYTES)]
    scatter = _Scatter(buckets)
    for _, lines in _lines(request, header, progress):
        chosen = rng.integers(0, len(buckets), len(lines)).tolist()
        for number, line in zip(chosen, lines, strict=True):
            scatter.add(number, line)
    scatter.flush()
    total, count = sum(scatter.counts), request.count
    _refuse_few(total, count)
    counts = [high - low for low, high in pairwise(even_edges(total, count))]
    shard, left = 0, counts[0]
    for bucket in buckets:
        lines = bucket.read_bytes().split(b"\n")[:-1]
        bucket.unlink()
        order = rng.permutation(len(lines)).tolist()
        while order:
            part, order = order[:left], order[left:]
            with paths[shard].open("ab") as file:
                file.write(b"\n".join([lines[i] for i in part]) + b"\n")
            left -= len(part)
            if not left and shard + 1 < count:
                shard, left = shard + 1, counts[shard + 1]
    return counts


def _by_key(
    request: SplitRequest, header: bytes, paths: list[Path], progress: Progress
) -> list[int]:
    """All lines of a key's value go to one shard, in their order; a shard may be empty."""
    assert request.key is not None
    scatter = _Scatter(paths)
    names = header_of(header)
    column = str(names.index(request.key) + 1) if request.key in names else request.key
    path, number = "", 0
    for whose, lines in _lines(request, header, progress):
        if whose != path:
            path, number, key = whose, int(bool(header)), key_of(column, lines[0])
        for line in lines:
            number += 1
            value = key(line)
            if value is None:
                raise UsageError(
                    f"{path}:{number}: no column '{request.key}' in "
                    f"'{line[:60].decode('utf-8', 'replace')}'",
                    hint="a number counts fields from 1; NAME: is a slot of slot text, or a "
                    "column of .csv with a header",
                )
            scatter.add(xxh3(value) % request.count, line)
    scatter.flush()
    return scatter.counts
