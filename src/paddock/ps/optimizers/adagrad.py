"""adagrad: s += g * g; w -= lr * g / (sqrt(s) + epsilon), an accumulator per element.

Source: Duchi, Hazan and Singer 2011, https://jmlr.org/papers/v12/duchi11a.html;
torch.optim.Adagrad (whose lr_decay is the schedule inverse_time).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {"epsilon": Option(1e-10, above=True), "initial": Option(0.0)}


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    return (Slot("square_sum", options["initial"]),)


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    rate = np.float32(lr)
    epsilon = np.float32(options[0])
    for i in range(rows.shape[0]):
        g = grads[i]
        w = values[rows[i], :dim]
        s = values[rows[i], dim : 2 * dim]
        for j in range(dim):
            x = s[j] + g[j] * g[j]
            s[j] = x
            w[j] -= rate * g[j] / (np.sqrt(x) + epsilon)


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    s = block[:, dim:]
    s += grads * grads
    block[:, :dim] -= np.float32(lr) * grads / (np.sqrt(s) + np.float32(options[0]))


RULE = Rule("adagrad", OPTIONS, _slots, loops, arrays)
