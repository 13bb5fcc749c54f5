"""Adds up what several trainers gave to one step. The same bits for any cut, any timing.

Float addition is not associative, so its order is part of the result: a trainer's rows in the
order of (part, row), then the trainers' sums in the order of trainers; in float32, from zero;
the mean by one division at the end. numba and numpy give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paddock.ps.jit import HAVE_NUMBA, kernel
from paddock.ps.table.sharding import sum_by, unique

Keys = NDArray[np.int64]
Floats = NDArray[np.float32]
Merge = Literal["mean", "sum"]


@kernel
def _add_rows(out: Floats, at: NDArray[np.int32], rows: Floats) -> None:
    for i in range(at.size):
        to = at[i]
        for column in range(out.shape[1]):
            out[to, column] += rows[i, column]


def add_rows(
    out: Floats, at: NDArray[np.int32], rows: Floats, *, compiled: bool = HAVE_NUMBA
) -> None:
    """out[at] += rows, for distinct `at`; C-contiguous (., dim) float32."""
    if compiled:
        _add_rows(out, at, rows)
    else:
        out[at] += rows


@dataclass(frozen=True, slots=True)
class SparsePiece:
    """The rows of one frame. shows, clicks: float32[n], or None for all zero."""

    keys: Keys
    grads: Floats
    shows: Floats | None = None
    clicks: Floats | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        statistics = [a.nbytes for a in (self.shows, self.clicks) if a is not None]
        return self.keys.nbytes + self.grads.nbytes + sum(statistics)


@dataclass(frozen=True, slots=True)
class DensePiece:
    """Elements start to start + len(grads) of the table."""

    start: int
    grads: Floats

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.grads.nbytes

    @property
    def stop(self) -> int:
        """One past the last element."""
        return self.start + len(self.grads)


@dataclass(frozen=True, slots=True)
class MergedSparse:
    """One gradient per key. keys: distinct, in the order of (trainer, part, row) first seen.

    shows, clicks: sums whatever the merge, None when nobody gave any.
    """

    keys: Keys
    grads: Floats
    shows: Floats | None
    clicks: Floats | None


def merge_sparse(trainers: list[list[SparsePiece]], how: Merge, members: int) -> MergedSparse:
    """trainers: in order, each with its pieces in order; at least one piece in all.

    members: what mean divides by, whether or not they all gave something to a key.
    """
    sums = [sum_of_pieces(pieces) for pieces in trainers]
    keys, inverse = unique(np.concatenate([one.keys for one in sums]))
    grads = np.zeros((len(keys), sums[0].grads.shape[1]), np.float32)
    statistics = np.zeros((2, len(keys), 1), np.float32)
    at = 0
    for one in sums:
        mine = inverse[at : at + len(one.keys)]
        at += len(one.keys)
        add_rows(grads, mine, one.grads)
        for total, given in zip(statistics, (one.shows, one.clicks), strict=True):
            if given is not None:
                add_rows(total, mine, np.ascontiguousarray(given)[:, None])
    if how == "mean":
        grads /= np.float32(members)
    if all(one.shows is None for one in sums):
        return MergedSparse(keys, grads, None, None)
    return MergedSparse(keys, grads, statistics[0, :, 0], statistics[1, :, 0])


def sum_of_pieces(pieces: list[SparsePiece]) -> SparsePiece:
    """The rows with distinct keys, in the order first seen. At least one piece."""
    whole = pieces[0] if len(pieces) == 1 else _joined(pieces)
    keys, inverse = unique(whole.keys)
    if len(keys) == len(whole.keys):
        return whole
    return SparsePiece(
        keys,
        sum_by(inverse, len(keys), whole.grads),
        *(
            None if a is None else sum_by(inverse, len(keys), a[:, None])[:, 0]
            for a in (whole.shows, whole.clicks)
        ),
    )


def _joined(pieces: list[SparsePiece]) -> SparsePiece:
    shows = clicks = None
    if any(p.shows is not None for p in pieces):
        zeros = [np.zeros(len(p.keys), np.float32) for p in pieces]
        pairs = list(zip(pieces, zeros, strict=True))
        shows = np.concatenate([z if p.shows is None else p.shows for p, z in pairs])
        clicks = np.concatenate([z if p.clicks is None else p.clicks for p, z in pairs])
    return SparsePiece(
        np.concatenate([p.keys for p in pieces]),
        np.concatenate([p.grads for p in pieces]),
        shows,
        clicks,
    )


@dataclass(frozen=True, slots=True)
class MergedDense:
    """Gradients of elements that lie together."""

    start: int
    grads: Floats


def merge_dense(trainers: list[list[DensePiece]], how: Merge, members: int) -> list[MergedDense]:
    """Runs of elements that somebody gave, in order. Arguments as for merge_sparse."""
    merged = []
    for start, stop in _runs([p for pieces in trainers for p in pieces]):
        total = np.zeros(stop - start, np.float32)
        for pieces in trainers:
            _add_trainer(total, start, [p for p in pieces if start <= p.start < stop])
        if how == "mean":
            total /= np.float32(members)
        merged.append(MergedDense(start, total))
    return merged


def _runs(pieces: list[DensePiece]) -> list[tuple[int, int]]:
    """The ranges covered, joined where they touch, in order."""
    runs: list[tuple[int, int]] = []
    for start, stop in sorted((p.start, p.stop) for p in pieces if len(p.grads)):
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(stop, runs[-1][1])
        else:
            runs.append((start, stop))
    return runs


def _add_trainer(total: Floats, start: int, pieces: list[DensePiece]) -> None:
    """total += one trainer's pieces; where these overlap, their own sum is taken first."""
    ends = sorted((p.start, p.stop) for p in pieces)
    if all(a[1] <= b[0] for a, b in pairwise(ends)):
        for p in pieces:
            total[p.start - start : p.stop - start] += p.grads
        return
    own = np.zeros_like(total)
    for p in pieces:
        own[p.start - start : p.stop - start] += p.grads
    total += own
