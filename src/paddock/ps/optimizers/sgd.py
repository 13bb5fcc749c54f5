"""sgd: w -= lr * g.

Source: Robbins and Monro 1951, https://doi.org/10.1214/aoms/1177729586; torch.optim.SGD.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Rule, Slot


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    return ()


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    rate = np.float32(lr)
    for i in range(rows.shape[0]):
        g = grads[i]
        w = values[rows[i], :dim]
        for j in range(dim):
            w[j] -= rate * g[j]


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    block -= np.float32(lr) * grads


RULE = Rule("sgd", {}, _slots, loops, arrays)
