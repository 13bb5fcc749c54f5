"""Which server gets which rows of a table and elements of a vector, and the frames of them. Pure.

A piece is (server, start, stop): what of the columns goes into one frame. Columns are distinct
keys and what belongs to each, or the elements of a vector.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.ps.spec import DenseSpec, TableSpec
from paddock.ps.stream import raw
from paddock.ps.table.sharding import group
from paddock.ps.wire.frames import BODY_MAX, FrameFlag, Header, Op
from paddock.ps.xxh3 import Buffer

if TYPE_CHECKING:
    from paddock.ps.client.server_group import Pull

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]
Column = NDArray[Any]
FrameRange = tuple[int, int, int]
Runs = Sequence[tuple[int, int]]
LAST = int(FrameFlag.LAST)
# Rows of one frame: the server applies one while the next is on its way.
ROWS_MAX = 16384
# Elements of a pushed frame of several dense shards, for the same reason.
ELEMENTS_MAX = 1 << 18
DENSE_OPS: dict[int, int] = {Op.PULL: Op.PULL_DENSE, Op.PUSH: Op.PUSH_DENSE, Op.SET: Op.SET_DENSE}


@dataclass(slots=True)
class RemoteTable:
    """A table and its routing. numbers: what each server calls it. owners: server of each shard.

    ahead: a pull that is on its way. parts: by server, the step and how many frames it has had.
    pulled: (keys (n,) int64, distinct, inverse) of the last pull, for the push that follows it.
    versions: of the vector as it was pulled last, by server; none where parts of it differ.
    """

    spec: TableSpec
    numbers: Sequence[int]
    owners: NDArray[np.int32]
    ahead: Pull | None = None
    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    pulled: tuple[Keys, Keys, NDArray[np.int32]] | None = None
    versions: dict[int, int] = field(default_factory=dict)


def partition(
    remote: RemoteTable, columns: list[Column], runs: Runs | None = None
) -> tuple[list[Column], list[FrameRange]]:
    """Columns in the order of servers, and the pieces of a push.

    columns: [keys (n,) int64, gradients (n, dim) float32, ...], or [the vector, (size,) float32].
    runs: of the vector, None: all.
    """
    spec = remote.spec
    if isinstance(spec, DenseSpec):
        return columns, partition_vector(
            remote, [(0, spec.size)] if runs is None else runs, ELEMENTS_MAX
        )
    most = min(ROWS_MAX, BODY_MAX // (8 + 4 * (spec.dim + len(columns) - 2)))
    order, pieces = partition_rows(remote, columns[0], most)
    return columns if order is None else [column[order] for column in columns], pieces


def partition_rows(
    remote: RemoteTable, keys: Keys, most: int
) -> tuple[Keys | None, list[FrameRange]]:
    """(order, pieces): the keys in the order of their servers; order None: as they are."""
    order, bounds, pieces = None, [0, len(keys)], list[FrameRange]()
    if len(remote.numbers) > 1:
        order, ends = group(keys, remote.owners, len(remote.numbers))
        bounds = ends.tolist()
    for server, (begin, stop) in enumerate(pairwise(bounds)):
        for start in range(begin, stop, most):
            pieces.append((server, start, min(start + most, stop)))
    return order, pieces


def partition_vector(remote: RemoteTable, runs: Runs, most: int) -> list[FrameRange]:
    """Whole shards of one server, next to one another, that fit a frame. runs: of whole shards."""
    assert isinstance(remote.spec, DenseSpec)
    starts, found = remote.spec.starts, list[FrameRange]()
    for begin, end in runs:
        for shard in range(bisect_left(starts, begin), bisect_left(starts, end)):
            server, start, stop = int(remote.owners[shard]), *remote.spec.range(shard)
            before = found[-1] if found else (-1, 0, 0)
            if (before[0], before[2]) == (server, start) and stop - before[1] <= most:
                found[-1] = (server, before[1], stop)
            elif stop > start:
                found.append((server, start, stop))
    return found


def frames(
    remote: RemoteTable,
    op: int,
    columns: list[Column],
    pieces: list[FrameRange],
    flags: int,
    *,
    begin: int = 0,
) -> Iterator[tuple[int, Header, list[Buffer]]]:
    """(server, header, body) of each piece. flags: LAST for the last one to a server alone.

    begin: of the vector, where the columns begin.
    """
    is_dense = isinstance(remote.spec, DenseSpec)
    last = {server: start for server, start, _ in pieces}
    for server, start, stop in pieces:
        header = Header(
            DENSE_OPS.get(op, op) if is_dense else op,
            flags if last[server] == start else flags & ~LAST,
            remote.numbers[server],
            count=stop - start,
        )
        body: list[Buffer] = [raw(column[start - begin : stop - begin]) for column in columns]
        if is_dense:
            body.insert(0, start.to_bytes(8, "little"))
        yield server, header, body
