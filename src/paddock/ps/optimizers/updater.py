"""Applies one table's optimizer to rows of its arena: guards, rule, bound. Keeps no state itself.

A row is float32[width]: dim weights, then each slot of dim floats, then the per-row scalars. A
shard of a dense table is one row whose dim is the shard's length.
"""

from __future__ import annotations

import numpy as np

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
        self._clips = (float(spec.clip_value), float(spec.clip_norm))
        self._decays = (float(spec.l1), float(spec.l2))
        self._guarded = any((*self._clips, *self._decays))

    def apply(self, values: F32, rows: I64, grads: F32, lr: float | Rate) -> None:
        """Updates values[rows] in place.

        Args: values: (capacity, width) float32, C-contiguous. rows: (n,) int64, distinct, each
        below capacity (not checked here). grads: (n, dim) float32, C-contiguous and writable;
        clipping and l1/l2 overwrite them. lr: of this step (schedules.py).
        """
        assert values.shape[1] == self.width and values.flags.c_contiguous
        assert grads.shape == (len(rows), self.dim) and grads.flags.carray
        assert values.dtype == grads.dtype == np.float32 and rows.dtype == np.int64
        rate = lr if isinstance(lr, Rate) else Rate(lr)
        lr = float(rate.lr) if self._rule.rate is None else self._rule.rate
        options = self._options
        if rate.correction != 1.0 and "correction" in self._rule.options:  # It is the last one.
            options = np.append(options[:-1], rate.correction)
        if self._compiled:
            if self._guarded:
                guards.before(values, rows, grads, self._clips, self._decays)
            self._rule.loops(values, rows, grads, lr, options)
            if self.spec.bound:
                guards.bound(values, rows, self.dim, float(self.spec.bound))
        elif len(rows) == 1:  # A dense shard is updated where it is, not copied there and back.
            self._apply_arrays(values[rows[0] : rows[0] + 1], grads, lr, options)
        else:
            block = values[rows]
            self._apply_arrays(block, grads, lr, options)
            values[rows] = block

    def _apply_arrays(self, block: F32, grads: F32, lr: float, options: F64) -> None:
        """Updates block (n, width) as one row of arrays: (n, dim), and (n, 1) of the scalars."""
        ends = np.cumsum([self.dim] + [1 if slot.per_row else self.dim for slot in self.slots])
        columns = np.split(block, ends[:-1], axis=1)
        values, array_grads = np.empty((1, len(columns)), object), grads[None, None]
        for number, column in enumerate(columns):
            values[0, number] = column
        # Infinite gradients overflow silently, as they do in the compiled loops.
        with np.errstate(all="ignore"):
            if self._guarded:
                plain(guards.before)(values, _FIRST, array_grads, self._clips, self._decays)
            if self._rule.arrays:
                self._rule.arrays(block, grads, lr, options)
            else:
                plain(self._rule.loops)(values, _FIRST, array_grads, lr, options)
            if self.spec.bound:
                plain(guards.bound)(values, _FIRST, 1, float(self.spec.bound))
        for column, value in zip(columns, values[0], strict=True):
            if value is not column:  # A loop that assigns an element has put another there.
                column[...] = value
