"""ftrl (FTRL-Proximal): weights follow from the sums z and n, and are exactly 0 while |z| <= l1.

    sigma = (sqrt(n + g * g) - sqrt(n)) / lr; z += g - sigma * w; n += g * g
    w = 0 where |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / lr + l2)

lr is the paper's alpha. Weights are a function of z and n, so a first value other than zero is
forgotten at the first push: use the initializer zeros. While the learning rate is 0 (the start of
a warm-up) nothing changes.

Source: McMahan et al. 2013, https://doi.org/10.1145/2487575.2488200, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {
    "beta": Option(1.0),
    "l1": Option(0.0),
    "l2": Option(0.0),
    "initial": Option(0.0),
}
# Below it 1 / lr times a float32 sum may be infinite; such a rate learns nothing anyway.
RATE_MIN = 1e-12
# Keeps 0 / 0 out where both roots are zero; far below the root of the least square that counts.
TINY = 1e-30


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    return (Slot("z"), Slot("n", options["initial"]))


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    if lr < RATE_MIN:
        return
    dim = grads.shape[1]
    inverse = np.float32(1.0 / lr)
    beta = np.float32(options[0])
    l1 = np.float32(options[1])
    l2 = np.float32(options[2])
    tiny = np.float32(TINY)
    zero = np.float32(0.0)
    for i in range(rows.shape[0]):
        g = grads[i]
        row = values[rows[i]]
        w = row[:dim]
        z = row[dim : 2 * dim]
        n = row[2 * dim : 3 * dim]
        for j in range(dim):
            square = g[j] * g[j]
            more = n[j] + square
            root = np.sqrt(more)
            # The difference of the roots without its cancellation.
            sigma = inverse * (square / (root + np.sqrt(n[j]) + tiny))
            x = z[j] + (g[j] - sigma * w[j])
            z[j] = x
            n[j] = more
            over = x - l1 if x > zero else x + l1
            w[j] = zero if abs(x) <= l1 else -over / (inverse * (beta + root) + l2)


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    if lr < RATE_MIN:
        return
    dim = grads.shape[1]
    inverse = np.float32(1.0 / lr)
    beta, l1, l2 = (np.float32(x) for x in options[:3])
    w, z, n = block[:, :dim], block[:, dim : 2 * dim], block[:, 2 * dim :]
    square = grads * grads
    more = n + square
    root = np.sqrt(more)
    sigma = inverse * (square / (root + np.sqrt(n) + np.float32(TINY)))
    z += grads - sigma * w
    n[:] = more
    over = np.where(z > 0, z - l1, z + l1)
    w[:] = np.where(np.abs(z) <= l1, np.float32(0.0), -over / (inverse * (beta + root) + l2))


RULE = Rule(
    "ftrl",
    OPTIONS,
    _slots,
    loops,
    arrays,
    refuses={name: f"ftrl has its own: options {name}" for name in ("l1", "l2")},
)
