"""Contributions of trainers to a sync step of one table, held apart until its COMMIT.

Then it is added up: the same bits for any cut, any timing. Float addition is not associative, so
its order is part of the result: a trainer's rows in the order of (part, row), then the trainers'
sums in the order of trainers; in float32, from zero; the mean by one division at the end.

Not thread-safe: the table's lock is held. `add` and `merge` are carried out from records and
refuse nothing: what cannot be held is refused before it is logged (log_record.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from paddock.ps.jit import F32, I64
from paddock.ps.table.sharding import sum_by, unique


class SparseGradients(NamedTuple):
    """Rows by key, of one frame or of more. shows, clicks: float32[n]; both, or none is given."""

    keys: I64
    rows: F32
    shows: F32 | None = None
    clicks: F32 | None = None


class DenseGradients(NamedTuple):
    """Elements start to start + len(grads) of the table."""

    start: int
    grads: F32

    @property
    def stop(self) -> int:
        """The index after the last element."""
        return self.start + len(self.grads)


P = TypeVar("P", SparseGradients, DenseGradients)


def _nbytes(pieces: Iterable[P]) -> int:
    return sum(a.nbytes for piece in pieces for a in piece if isinstance(a, np.ndarray))


class PendingGradients(Generic[P]):
    """Pieces by step, trainer and part; the newest incarnation of each trainer only.

    committed: the server's last committed step when the table is made.
    """

    _piece: type[P]

    def __init__(self, committed: int = 0) -> None:
        self.committed = committed
        self.nbytes = 0
        self._steps: dict[int, dict[int, tuple[int, dict[int, P]]]] = {}

    def incarnations(self, step: int) -> dict[int, int]:
        """The (trainer, incarnation) of each that has given something to the step."""
        return {trainer: newest for trainer, (newest, _) in self._steps.get(step, {}).items()}

    def add(self, step: int, member: tuple[int, int], part: int, piece: P) -> bool:
        """Hold a copy of a frame's piece. False when it changed nothing (late, fenced, repeated).

        member: (trainer, incarnation). part: which frame of the trainer's step; the order of
        parts is the order of addition.
        """
        trainer, incarnation = member
        if step <= self.committed:
            return False
        held = self._steps.setdefault(step, {})
        newest, parts = held.get(trainer, (incarnation, {}))
        if incarnation < newest:
            return False
        if incarnation > newest:
            self.nbytes -= _nbytes(parts.values())
            parts = {}
        held[trainer] = incarnation, parts
        if part in parts:
            return False
        copies: list[Any] = []
        for a in piece:
            if isinstance(a, np.ndarray):
                self.nbytes += a.nbytes
                a = a.copy()
            copies.append(a)
        parts[part] = self._piece._make(copies)
        return True

    def merge(self, step: int, members: Iterable[tuple[int, int]], how: str) -> list[P]:
        """The step's gradients, and forget them; [] when there is nothing (left) to apply.

        A sparse table gets one piece, with distinct keys in the order of (trainer, part, row) first
        seen, and sums of shows and clicks; a dense one the runs of elements that somebody gave, in
        order. how: sum, or mean, which divides by the number of members, whatever each gave.
        """
        incarnations = sorted(members)
        return self._merged(self._take(step, incarnations), how, len(incarnations))

    def _merged(self, trainers: list[list[P]], how: str, members: int) -> list[P]:
        """trainers: in order, each with its pieces in order. members: what mean divides by."""
        raise NotImplementedError

    def _take(self, step: int, members: list[tuple[int, int]]) -> list[list[P]]:
        """Per member that gave something, in their order, its pieces by part; all else is dropped.

        [] when the step was committed before.
        """
        if step <= self.committed:
            return []
        self.committed = step
        held = self._steps.get(step, {})
        taken = []
        for trainer, incarnation in members:
            newest, parts = held.get(trainer, (incarnation, {}))
            if newest == incarnation and parts:
                taken.append([parts[i] for i in sorted(parts)])
        for old in [s for s in self._steps if s <= step]:
            for _, parts in self._steps.pop(old).values():
                self.nbytes -= _nbytes(parts.values())
        return taken

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(JSON, arrays: keys (n,) int64, others float32) for a snapshot; equal of equal states."""
        whose: list[list[int]] = []
        arrays: dict[str, np.ndarray] = {}
        for step, held in sorted(self._steps.items()):
            for trainer, (incarnation, parts) in sorted(held.items()):
                for part in sorted(parts):
                    for name, a in parts[part]._asdict().items():
                        if a is not None:
                            arrays[f"{len(whose)}.{name}"] = np.asarray(a)
                    whose.append([step, trainer, incarnation, part])
        return {"committed": self.committed, "pieces": whose}, arrays

    def restore(self, data: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Take over what to_arrays gave: JSON and arrays, keys (n,) int64 and others float32."""
        self.committed = data["committed"]
        for i, (step, trainer, incarnation, part) in enumerate(data["pieces"]):
            found = (arrays.get(f"{i}.{name}") for name in self._piece._fields)
            plain = (a if a is None or a.ndim else int(a) for a in found)
            self.add(step, (trainer, incarnation), part, self._piece._make(plain))


# ---------------------------------------------------------------------------------------- adding up


def added_up(pieces: list[SparseGradients], *, from_zero: bool = False) -> SparseGradients:
    """The rows with distinct keys, in the order first seen, each the sum of its rows in order."""
    keys, inverse = unique(np.concatenate([piece.keys for piece in pieces]))
    if len(pieces) == 1 and len(keys) == len(inverse) and not from_zero:
        return pieces[0]
    rows = np.zeros((len(keys), pieces[0].rows.shape[1]), np.float32)
    statistics = np.zeros((2, len(keys), 1), np.float32)
    at = 0
    for piece in pieces:
        mine = inverse[at : at + len(piece.keys)]
        at += len(mine)
        sum_by(mine, len(keys), piece.rows, out=rows)
        for total, given in zip(statistics, (piece.shows, piece.clicks), strict=True):
            if given is not None:
                sum_by(mine, len(keys), given[:, None], out=total)
    if all(piece.shows is None for piece in pieces):
        return SparseGradients(keys, rows)
    return SparseGradients(keys, rows, *statistics[:, :, 0])


def _add_trainer(total: F32, start: int, pieces: list[DenseGradients]) -> None:
    """total += one trainer's pieces; where these overlap, their own sum is taken first."""
    ends = sorted((p.start, p.stop) for p in pieces)
    is_apart = all(a[1] <= b[0] for a, b in pairwise(ends))
    own = total if is_apart else np.zeros_like(total)
    for p in pieces:
        own[p.start - start : p.stop - start] += p.grads
    if not is_apart:
        total += own


class SparseContributions(PendingGradients[SparseGradients]):
    """The pending gradients of a sparse table.

    >>> held = SparseContributions()
    >>> one = SparseGradients(np.array([5]), np.ones((1, 1), np.float32))
    >>> held.add(1, (0, 7), 0, one), held.add(1, (1, 8), 0, one)
    (True, True)
    >>> [merged.rows.tolist() for merged in held.merge(1, [(0, 7), (1, 8)], "mean")]
    [[[1.0]]]
    """

    _piece = SparseGradients

    def keys(self) -> list[I64]:
        """The keys of all pieces that are held, (n,) int64 each."""
        of_trainers = [parts for held in self._steps.values() for _, parts in held.values()]
        return [piece.keys for parts in of_trainers for piece in parts.values()]

    def _merged(
        self, trainers: list[list[SparseGradients]], how: str, members: int
    ) -> list[SparseGradients]:
        if not trainers:
            return []
        whole = [added_up(pieces) for pieces in trainers]
        merged = added_up(whole, from_zero=True)  # So that -0.0 is 0.0 however many gave a key.
        if how == "mean":
            np.divide(merged.rows, np.float32(members), out=merged.rows)
        return [merged]


class DenseContributions(PendingGradients[DenseGradients]):
    """The pending gradients of a dense table, or of the part of it that is here.

    >>> held = DenseContributions()
    >>> held.add(1, (0, 7), 0, DenseGradients(2, np.ones(3, np.float32)))
    True
    >>> [(run.start, run.grads.tolist()) for run in held.merge(1, [(0, 7), (1, 8)], "mean")]
    [(2, [0.5, 0.5, 0.5])]
    """

    _piece = DenseGradients

    def _merged(
        self, trainers: list[list[DenseGradients]], how: str, members: int
    ) -> list[DenseGradients]:
        runs: list[tuple[int, int]] = []  # The ranges covered, joined where they touch.
        given = ((p.start, p.stop) for pieces in trainers for p in pieces if len(p.grads))
        for start, stop in sorted(given):
            if runs and start <= runs[-1][1]:
                runs[-1] = runs[-1][0], max(stop, runs[-1][1])
            else:
                runs.append((start, stop))
        merged = []
        for start, stop in runs:
            total = np.zeros(stop - start, np.float32)
            for pieces in trainers:
                _add_trainer(total, start, [p for p in pieces if start <= p.start < stop])
            if how == "mean":
                total /= np.float32(members)
            merged.append(DenseGradients(start, total))
        return merged
