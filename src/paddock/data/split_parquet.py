"""Cuts Parquet into shards: whole row groups, rows, or by a column. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paddock.data.chunks import even_edges
from paddock.data.files import open_parquet
from paddock.errors import UsageError
from paddock.ps.xxh3 import xxh3

if TYPE_CHECKING:
    from paddock.data.split import Progress, SplitRequest


def split_parquet(request: SplitRequest, paths: list[Path], progress: Progress) -> list[int]:
    """Write the shards; the rows of each.

    by `lines` or `bytes`: whole row groups, each to the shard in which its middle row lies.
    """
    from pyarrow import parquet

    groups: list[tuple[str, int, int]] = []  # file, number and rows of each row group
    for file in request.files:
        with open_parquet(file.path) as table:
            for number in range(table.metadata.num_row_groups):
                groups.append((file.path, number, table.metadata.row_group(number).num_rows))
    schema = _schema(request)
    rows = [count for _, _, count in groups]
    total = sum(rows)
    few = len(groups) if request.by in ("lines", "bytes") else total
    if few < len(paths) and request.by != "key":
        what = "row groups" if request.by in ("lines", "bytes") else "rows"
        raise UsageError(
            f"{few} {what} for {len(paths)} shards: some would be empty",
            hint="use --by rows, or a lower --count",
        )
    counts = [0] * len(paths)
    done = 0
    with ExitStack() as stack:
        writers = [stack.enter_context(parquet.ParquetWriter(path, schema)) for path in paths]
        for (path, number, count), shards in zip(groups, _whole(rows, len(paths)), strict=True):
            with open_parquet(path) as source:
                table = source.read_row_group(number)
            for shard, part in _parts(request, table, done, total, shards):
                if len(part):
                    writers[shard].write_table(part)
                    counts[shard] += len(part)
            done += count
            progress(done, total)
    return counts


def _schema(request: SplitRequest) -> Any:
    found = []
    for file in request.files:
        with open_parquet(file.path) as table:
            found.append(table.schema_arrow)
        if not found[0].equals(found[-1]):
            first = request.files[0].path
            raise UsageError(f"'{file.path}' has other columns than '{first}'", hint="split apart")
    if request.key is not None and request.key not in found[0].names:
        raise UsageError(f"no column '{request.key}'", hint=f"one of {', '.join(found[0].names)}")
    return found[0]


def _whole(rows: list[int], count: int) -> list[int]:
    """The shard of each row group: in order, about equal rows, none empty if there are enough.

    >>> _whole([10, 10, 10, 90], 3)
    [0, 0, 1, 2]
    """
    found: list[int] = []
    total, done, shard = sum(rows), 0, 0
    for number, size in enumerate(rows):
        wants = min(count - 1, int((done + size / 2) * count / max(total, 1)))
        # Not more than one further, and no shard left without a group.
        shard = min(max(shard, wants), found[-1] + 1 if found else 0)
        shard = max(shard, count - (len(rows) - number))
        found.append(shard)
        done += size
    return found


def _parts(
    request: SplitRequest, table: Any, done: int, total: int, whole: int
) -> Iterator[tuple[int, Any]]:
    """The shards of a row group's rows, and the rows."""
    count = request.count
    if request.by == "key":
        values = table.column(request.key).to_pylist()
        shards = np.array([xxh3(str(value).encode()) % count for value in values], np.int64)
        for shard in np.unique(shards).tolist():
            yield shard, table.take(np.flatnonzero(shards == shard))
    elif request.by == "rows":
        for shard, (begin, end) in enumerate(pairwise(even_edges(total, count))):
            low, high = max(begin - done, 0), min(end - done, len(table))
            if low < high:
                yield shard, table.slice(low, high - low)
    else:
        yield whole, table
