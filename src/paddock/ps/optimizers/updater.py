"""Applies one table's optimizer to rows of its arena: guards, rule, bound. Keeps no state itself.

A row is float32[width]: dim weights, then each slot of dim floats, then the per-row scalars. A
shard of a dense table is one row whose dim is the shard's length.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps import jit
from paddock.ps.jit import F32, F64, I64, plain
from paddock.ps.optimizers import guards
from paddock.ps.optimizers.rules import RULES, check_optimizer
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.spec import OptimizerSpec

_FIRST = np.zeros(1, np.int64)


class Updater:
    """An optimizer for rows of one dim; without numba it has the same bits, slower.

    Raises: UsageError with every problem of the spec.

    >>> updater = Updater(OptimizerSpec("adagrad", options={"initial": 0.5}), dim=2)
    >>> updater.width, updater.initial_state.tolist()
    (4, [0.5, 0.5])
    """

    def __init__(self, spec: OptimizerSpec, dim: int) -> None:
        problems = check_optimizer(spec)
        if problems:
            raise UsageError.of(problems)
        self.spec = spec
        self.dim = dim
        self._compiled = jit.HAVE_NUMBA
        self._rule = RULES[spec.name]
        options = self._rule.complete(spec.options)
        self._options = np.array(list(options.values()), np.float64)
        self.slots = tuple(s for s in self._rule.slots if not s.when or options[s.when])
        # state after the weights, float32 (width - dim,)
        sizes = np.array([1 if slot.per_row else dim for slot in self.slots], np.int64)
        first = np.array([options.get(slot.initial, 0.0) for slot in self.slots], np.float32)
        self.initial_state: F32 = np.repeat(first, sizes)
        self.width = dim + len(self.initial_state)
        ends = [0, dim, *(dim + np.cumsum(sizes)).tolist()]
        self._columns = list(itertools.starmap(slice, itertools.pairwise(ends)))
        self._clips = (float(spec.clip_value), float(spec.clip_norm))
        self._decays = (float(spec.l1), float(spec.l2))
        self._guarded = any((*self._clips, *self._decays))

    def apply(self, values: F32, rows: I64, grads: F32, lr: Rate, *, distinct: bool = True) -> None:
        """Updates values[rows] in place.

        Args: values: (capacity, width) float32, C-contiguous. rows: (n,) int64, each below
        capacity (not checked here). grads: (n, dim) float32, C-contiguous and writable; clipping
        and l1/l2 overwrite them. lr: of this step (schedules.py). distinct: False: a row may
        repeat, and the rule takes its gradients in turn, as the compiled loops always do.
        """
        assert values.shape[1] == self.width and values.flags.c_contiguous
        assert grads.shape == (len(rows), self.dim) and grads.flags.carray
        assert values.dtype == grads.dtype == np.float32 and rows.dtype == np.int64
        rate = float(lr.lr) if self._rule.rate is None else self._rule.rate
        options = self._options
        if lr.correction != 1.0 and "correction" in self._rule.options:  # It is the last one.
            options = np.append(options[:-1], lr.correction)
        if not self._compiled:
            # Infinite gradients overflow silently, as they do in the compiled loops.
            with np.errstate(all="ignore"):
                self._apply_arrays(values, rows, grads, rate, options, distinct)
            return
        if self._guarded:
            guards.before(values, rows, grads, self._clips, self._decays)
        self._rule.loops(values, rows, grads, rate, options)
        if self.spec.bound:
            guards.bound(values, rows, self.dim, float(self.spec.bound))

    def _apply_arrays(
        self, values: F32, rows: I64, grads: F32, rate: float, options: F64, distinct: bool
    ) -> None:
        """Updates values[rows] without numba, as ``apply`` does."""
        # A dense shard is updated where it is, not copied there and back.
        block = values[rows[0] : rows[0] + 1] if len(rows) == 1 else values[rows]
        if self._guarded:
            weights = _as_row([block[:, : self.dim]])
            plain(guards.before)(weights, _FIRST, grads[None, None], self._clips, self._decays)
        if distinct:
            self._run_rule(block, grads, rate, options)
        else:
            left = np.arange(len(rows))
            while len(left):
                turn = left[np.unique(rows[left], return_index=True)[1]]
                block = values[rows[turn]]
                self._run_rule(block, grads[turn], rate, options)
                values[rows[turn]] = block
                left = np.setdiff1d(left, turn)
            block = values[rows]
        if self.spec.bound:
            weights = _as_row([block[:, : self.dim]])
            plain(guards.bound)(weights, _FIRST, 1, float(self.spec.bound))
            block[:, : self.dim] = weights[0, 0]
        if len(rows) != 1:
            values[rows] = block

    def _run_rule(self, block: F32, grads: F32, rate: float, options: F64) -> None:
        """Updates block (n, width) by the rule alone."""
        if self._rule.arrays:
            self._rule.arrays(block, grads, rate, options)
            return
        columns = [block[:, column] for column in self._columns]
        values = _as_row(columns)
        plain(self._rule.loops)(values, _FIRST, grads[None, None], rate, options)
        for column, value in zip(columns, values[0], strict=True):
            if value is not column:  # A loop that assigns an element has put another there.
                column[...] = value


def _as_row(columns: list[F32]) -> NDArray[Any]:
    """The loops get one row of arrays: (n, dim) of the weights and slots, (n, 1) of scalars."""
    row = np.empty((1, len(columns)), object)
    for number, column in enumerate(columns):
        row[0, number] = column
    return row
