"""momentum: v = momentum * v + g; w -= lr * v. Rows not pushed keep v as it is (lazy).

Source: Polyak 1964, https://doi.org/10.1016/0041-5553(64)90137-5; torch.optim.SGD(momentum).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {"momentum": Option(0.9, high=1.0, below=True)}


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    return (Slot("velocity"),)


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    rate = np.float32(lr)
    keep = np.float32(options[0])
    for i in range(rows.shape[0]):
        g = grads[i]
        w = values[rows[i], :dim]
        v = values[rows[i], dim : 2 * dim]
        for j in range(dim):
            x = keep * v[j] + g[j]
            v[j] = x
            w[j] -= rate * x


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    v = block[:, dim:]
    v *= np.float32(options[0])
    v += grads
    block[:, :dim] -= np.float32(lr) * v


RULE = Rule("momentum", OPTIONS, _slots, loops, arrays)
