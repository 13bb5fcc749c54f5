"""What trainers contributed to a sync step of one table, held apart until the step is committed.

How they are added up is in merge.py; it does not depend on the order of arrival.

Not thread-safe: the table's lock is held. `add` and `merge` are carried out from records and
refuse nothing; `objection` is asked before logging.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from paddock.ps.consistency.merge import (
    DensePiece,
    Floats,
    Keys,
    Merge,
    MergedDense,
    MergedSparse,
    SparsePiece,
    merge_dense,
    merge_sparse,
)
from paddock.ps.protocol.refusals import Refusal

# A trainer pushes step s + 1 after it has seen s committed, perhaps not by this server yet.
STEPS_AHEAD_MAX = 2

P = TypeVar("P", SparsePiece, DensePiece)


class _Held(Generic[P]):
    """Pieces by step, trainer and part; the newest incarnation of each trainer only.

    committed: the server's last committed step when the table is made.
    """

    def __init__(self, committed: int = 0) -> None:
        self.committed = committed
        self.nbytes = 0
        self._steps: dict[int, dict[int, tuple[int, dict[int, P]]]] = {}

    def objection(self, step: int, more_bytes: int, limit_bytes: int) -> Refusal | None:
        """Why a contribution cannot be taken now. limit_bytes: 0 is no limit."""
        if step > self.committed + STEPS_AHEAD_MAX:
            return Refusal(
                "behind",
                f"a contribution to step {step}, but step {self.committed} is the last one known",
                facts={"step": self.committed},
            )
        if limit_bytes and self.nbytes + more_bytes > limit_bytes:
            return Refusal(
                "memory",
                f"contributions of a step take {self.nbytes + more_bytes} bytes, "
                f"the limit is {limit_bytes}",
                hint="smaller batches, more servers, or a higher --memory-limit",
            )
        return None

    def lives(self, step: int) -> dict[int, int]:
        """Who has given something to the step: trainer, incarnation."""
        return {trainer: life for trainer, (life, _) in self._steps.get(step, {}).items()}

    def _add(self, step: int, trainer: int, incarnation: int, part: int, piece: P) -> bool:
        if step <= self.committed:
            return False
        held = self._steps.setdefault(step, {})
        life, parts = held.get(trainer, (incarnation, {}))
        if incarnation < life:
            return False
        if incarnation > life:
            self.nbytes -= sum(old.nbytes for old in parts.values())
            parts = {}
        held[trainer] = incarnation, parts
        if part in parts:
            return False
        parts[part] = piece
        self.nbytes += piece.nbytes
        return True

    def _take(self, step: int, members: list[tuple[int, int]]) -> list[list[P]] | None:
        """Per member that gave something, in their order, its pieces by part; all else is dropped.

        None when the step was committed before.
        """
        if step <= self.committed:
            return None
        self.committed = step
        held = self._steps.get(step, {})
        taken = []
        for trainer, incarnation in members:
            life, parts = held.get(trainer, (incarnation, {}))
            if life == incarnation and parts:
                taken.append([parts[i] for i in sorted(parts)])
        for old in [s for s in self._steps if s <= step]:
            for _, parts in self._steps.pop(old).values():
                self.nbytes -= sum(piece.nbytes for piece in parts.values())
        return taken

    def drop(self, trainer: int, incarnation: int) -> int:
        """Forget what this life of the trainer, and older ones, gave; the bytes it took."""
        before = self.nbytes
        for held in self._steps.values():
            life, parts = held.get(trainer, (incarnation + 1, {}))
            if life <= incarnation:
                self.nbytes -= sum(piece.nbytes for piece in parts.values())
                del held[trainer]
        return before - self.nbytes

    def _each(self) -> list[tuple[list[int], P]]:
        return [
            ([step, trainer, life, part], parts[part])
            for step, held in sorted(self._steps.items())
            for trainer, (life, parts) in sorted(held.items())
            for part in sorted(parts)
        ]


class SparseContributions(_Held[SparsePiece]):
    """Of a sparse table with rows of `dim`.

    >>> held = SparseContributions(1)
    >>> one = np.ones((1, 1), np.float32)
    >>> held.add(1, (0, 7), 0, np.array([5]), one), held.add(1, (1, 8), 0, np.array([5]), one)
    (True, True)
    >>> held.merge(1, [(0, 7), (1, 8)], "mean").grads.tolist()
    [[1.0]]
    """

    def __init__(self, dim: int, committed: int = 0) -> None:
        super().__init__(committed)
        self.dim = dim

    def add(
        self,
        step: int,
        member: tuple[int, int],
        part: int,
        keys: Keys,
        grads: Floats,
        *,
        shows: Floats | None = None,
        clicks: Floats | None = None,
    ) -> bool:
        """Hold a copy of a frame's rows. False when it changed nothing (late, fenced, repeated).

        member: (trainer, incarnation). part: which frame of the trainer's step; the order of
        parts is the order of addition. keys: int64[n], may repeat. grads: float32[n, dim].
        """
        piece = SparsePiece(
            np.array(keys, np.int64),
            np.array(grads, np.float32).reshape(len(keys), self.dim),
            None if shows is None else np.array(shows, np.float32),
            None if clicks is None else np.array(clicks, np.float32),
        )
        return self._add(step, *member, part, piece)

    def merge(
        self, step: int, members: Iterable[tuple[int, int]], how: Merge
    ) -> MergedSparse | None:
        """The step's gradients, and forget them; None when there is nothing (left) to apply.

        mean divides by the number of members, whether or not they gave something to a key.
        """
        lives = sorted(members)
        trainers = self._take(step, lives)
        return merge_sparse(trainers, how, len(lives)) if trainers else None

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(JSON, arrays) for a snapshot; equal states give equal bytes."""
        arrays: dict[str, np.ndarray] = {}
        each = self._each()
        for i, (_, piece) in enumerate(each):
            arrays[f"{i}.keys"], arrays[f"{i}.grads"] = piece.keys, piece.grads
            if piece.shows is not None and piece.clicks is not None:
                arrays[f"{i}.shows"], arrays[f"{i}.clicks"] = piece.shows, piece.clicks
        return {"committed": self.committed, "pieces": [who for who, _ in each]}, arrays

    @classmethod
    def from_arrays(
        cls, dim: int, data: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> SparseContributions:
        """What to_arrays gave."""
        held = cls(dim, data["committed"])
        for i, (step, trainer, life, part) in enumerate(data["pieces"]):
            shows, clicks = arrays.get(f"{i}.shows"), arrays.get(f"{i}.clicks")
            piece = SparsePiece(arrays[f"{i}.keys"], arrays[f"{i}.grads"], shows, clicks)
            held._add(step, trainer, life, part, piece)
        return held


class DenseContributions(_Held[DensePiece]):
    """Of a dense table, or of the part of it that is here.

    >>> held = DenseContributions()
    >>> held.add(1, (0, 7), 0, 2, np.ones(3, np.float32))
    True
    >>> [(run.start, run.grads.tolist()) for run in held.merge(1, [(0, 7), (1, 8)], "mean")]
    [(2, [0.5, 0.5, 0.5])]
    """

    def add(self, step: int, member: tuple[int, int], part: int, start: int, grads: Floats) -> bool:
        """Hold a copy of a frame's elements. False when it changed nothing.

        member: (trainer, incarnation). part: as for sparse rows. grads: float32[n].
        """
        return self._add(step, *member, part, DensePiece(start, np.array(grads, np.float32)))

    def merge(self, step: int, members: Iterable[tuple[int, int]], how: Merge) -> list[MergedDense]:
        """The step's gradients by runs of elements somebody gave, in order; and forget them."""
        lives = sorted(members)
        trainers = self._take(step, lives) or []
        return merge_dense(trainers, how, len(lives))

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """(JSON, arrays) for a snapshot; equal states give equal bytes."""
        each = self._each()
        arrays = {f"{i}.grads": piece.grads for i, (_, piece) in enumerate(each)}
        pieces = [[*who, piece.start] for who, piece in each]
        return {"committed": self.committed, "pieces": pieces}, arrays

    @classmethod
    def from_arrays(cls, data: dict[str, Any], arrays: dict[str, np.ndarray]) -> DenseContributions:
        """What to_arrays gave."""
        held = cls(data["committed"])
        for i, (step, trainer, life, part, start) in enumerate(data["pieces"]):
            held._add(step, trainer, life, part, DensePiece(start, arrays[f"{i}.grads"]))
        return held
