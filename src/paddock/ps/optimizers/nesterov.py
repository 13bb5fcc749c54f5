"""nesterov: v = momentum * v + g; w -= lr * (g + momentum * v). Lazy as momentum is.

Source: Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html, in the form of
torch.optim.SGD(nesterov=True), where the weights kept are the ones looked ahead to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {"momentum": Option(0.9, high=1.0, above=True, below=True)}


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
            w[j] -= rate * (g[j] + keep * x)


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    keep = np.float32(options[0])
    v = block[:, dim:]
    v *= keep
    v += grads
    block[:, :dim] -= np.float32(lr) * (grads + keep * v)


RULE = Rule("nesterov", OPTIONS, _slots, loops, arrays)
