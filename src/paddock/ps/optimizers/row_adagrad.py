"""row_adagrad: s += mean(g * g); w -= lr * g / (sqrt(s) + epsilon), one accumulator per row.

Costs 4 bytes of state a row in place of 4 * dim. Near to Paddle's SparseAdaGradSGDRule with
initial = initial_g2sum and lr = learning_rate * sqrt(initial_g2sum), but not equal to it: that one
divides by the accumulator from before this gradient (sparse_sgd_rule.cc, UpdateValueWork).

Source: Mudigere et al. 2022 (row-wise AdaGrad), https://arxiv.org/abs/2104.05158.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.lanes import square_sum, square_sums
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {"epsilon": Option(1e-10, above=True), "initial": Option(0.0)}


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    return (Slot("square_mean_sum", options["initial"], per_row=True),)


# Rows are taken so many at a time: their accumulators are then fetched from memory together, not
# one after the other behind a sum. Over twice as fast where rows are not in the cache.
TOGETHER = 64


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    rate = np.float32(lr)
    epsilon = np.float32(options[0])
    steps = np.empty(TOGETHER, np.float32)
    for start in range(0, rows.shape[0], TOGETHER):
        count = min(TOGETHER, rows.shape[0] - start)
        for k in range(count):
            steps[k] = np.float32(square_sum(grads[start + k]) / max(dim, 1))
        for k in range(count):
            s = values[rows[start + k], dim] + steps[k]
            values[rows[start + k], dim] = s
            steps[k] = rate / (np.sqrt(s) + epsilon)
        for k in range(count):
            g = grads[start + k]
            w = values[rows[start + k], :dim]
            step = steps[k]
            for j in range(dim):
                w[j] -= step * g[j]


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    s = block[:, dim]
    s += (square_sums(grads) / max(dim, 1)).astype(np.float32)
    step = np.float32(lr) / (np.sqrt(s) + np.float32(options[0]))
    block[:, :dim] -= step[:, None] * grads


RULE = Rule("row_adagrad", OPTIONS, _slots, loops, arrays)
