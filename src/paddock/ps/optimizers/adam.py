"""adam, lazy: a row not pushed keeps its moments, and each row counts its own steps.

    m += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g * g; t += 1
    w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

A row pushed at every step gets what torch.optim.Adam gives. t is kept as float32, exact up to
16,777,216; both corrections are 1 in float32 long before that for beta2 up to 0.999999.

Source: Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, Algorithm 1; torch.optim.Adam.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {
    "beta1": Option(0.9, high=1.0, below=True),
    "beta2": Option(0.999, high=1.0, below=True),
    "epsilon": Option(1e-8, above=True),
}


def slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    """The two moments, and the row's steps."""
    return (Slot("first_moment"), Slot("second_moment"), Slot("steps", per_row=True))


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """Of adamw too: options[3], where there is one, is its weight_decay."""
    dim = grads.shape[1]
    gain1 = np.float32(1.0 - options[0])
    keep2 = np.float32(options[1])
    gain2 = np.float32(1.0 - options[1])
    keep = np.float32(1.0 - lr * options[3]) if options.shape[0] > 3 else np.float32(1.0)
    steps = 0
    rate = np.float32(0.0)
    epsilon = np.float32(0.0)
    for i in range(rows.shape[0]):
        row = values[rows[i]]
        row[3 * dim] += np.float32(1.0)
        if int(row[3 * dim]) != steps:  # Rows of one batch often have one age.
            steps = int(row[3 * dim])
            # beta^t by repeated squaring: a libm's pow may differ in the last bit from another's.
            left = steps
            power1 = power2 = 1.0
            square1 = options[0]
            square2 = options[1]
            while left > 0:
                if left & 1:
                    power1 *= square1
                    power2 *= square2
                square1 *= square1
                square2 *= square2
                left >>= 1
            # Both sides of the fraction times sqrt(1 - beta2^t): one multiplication less.
            root = math.sqrt(1.0 - power2)
            rate = np.float32(lr * root / (1.0 - power1))
            epsilon = np.float32(options[2] * root)
        g = grads[i]
        w = row[:dim]
        m = row[dim : 2 * dim]
        v = row[2 * dim : 3 * dim]
        for j in range(dim):
            x = m[j] + gain1 * (g[j] - m[j])
            y = keep2 * v[j] + gain2 * (g[j] * g[j])
            m[j] = x
            v[j] = y
            w[j] = keep * w[j] - rate * x / (np.sqrt(y) + epsilon)


def _power(factor: float, exponent: int) -> float:
    """factor ** exponent by repeated squaring, in the order of the loops."""
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= factor
        factor *= factor
        exponent >>= 1
    return result


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    """Of adamw too."""
    dim = grads.shape[1]
    beta1, beta2, tiny = (float(x) for x in options[:3])
    keep = np.float32(1.0 - lr * float(options[3])) if len(options) > 3 else np.float32(1.0)
    w, m, v = block[:, :dim], block[:, dim : 2 * dim], block[:, 2 * dim : 3 * dim]
    block[:, 3 * dim] += np.float32(1.0)
    ages, where = np.unique(block[:, 3 * dim], return_inverse=True)
    roots = [math.sqrt(1.0 - _power(beta2, int(age))) for age in ages]
    rates = [
        lr * root / (1.0 - _power(beta1, int(age))) for age, root in zip(ages, roots, strict=True)
    ]
    rate = np.array(rates, np.float32)[where][:, None]
    epsilon = np.array([tiny * root for root in roots], np.float32)[where][:, None]
    m += np.float32(1.0 - beta1) * (grads - m)
    v *= np.float32(beta2)
    v += np.float32(1.0 - beta2) * (grads * grads)
    w *= keep
    w -= rate * m / (np.sqrt(v) + epsilon)


RULE = Rule("adam", OPTIONS, slots, loops, arrays)
