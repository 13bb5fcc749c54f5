"""rmsprop: s = alpha * s + (1 - alpha) * g * g; w -= lr * g / (sqrt(s) + epsilon).

centered: a takes the mean of g in the same way and sqrt(s - a * a) is used.
momentum above 0: b = momentum * b + g / (...) and w -= lr * b. Slots are kept only for what is on.

Source: Tieleman and Hinton 2012, lecture 6e,
https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; centered: Graves 2013,
https://arxiv.org/abs/1308.0850; torch.optim.RMSprop (epsilon after the root).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Option, Rule, Slot

OPTIONS = {
    "alpha": Option(0.99, high=1.0, below=True),
    "epsilon": Option(1e-8, above=True),
    "momentum": Option(0.0, high=1.0, below=True),
    "centered": Option(0.0, flag=True),
}


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    slots = [Slot("square_mean")]
    if options["centered"]:
        slots.append(Slot("mean"))
    if options["momentum"]:
        slots.append(Slot("velocity"))
    return tuple(slots)


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """Each of the four forms has its own inner loop, so that each is one pass."""
    dim = grads.shape[1]
    rate = np.float32(lr)
    alpha = np.float32(options[0])
    gain = np.float32(1.0 - options[0])
    epsilon = np.float32(options[1])
    keep = np.float32(options[2])
    zero = np.float32(0.0)
    centered = options[3] > 0.0
    for i in range(rows.shape[0]):
        g = grads[i]
        row = values[rows[i]]
        w = row[:dim]
        s = row[dim : 2 * dim]
        second = row[2 * dim : 3 * dim]  # Empty where the form has no such slot.
        third = row[3 * dim : 4 * dim]
        if centered and options[2] > 0.0:
            for j in range(dim):
                s[j] = alpha * s[j] + gain * (g[j] * g[j])
                second[j] += gain * (g[j] - second[j])
                x = s[j] - second[j] * second[j]
                x = zero if x < zero else x
                third[j] = keep * third[j] + g[j] / (np.sqrt(x) + epsilon)
                w[j] -= rate * third[j]
        elif centered:
            for j in range(dim):
                s[j] = alpha * s[j] + gain * (g[j] * g[j])
                second[j] += gain * (g[j] - second[j])
                x = s[j] - second[j] * second[j]
                x = zero if x < zero else x
                w[j] -= rate * (g[j] / (np.sqrt(x) + epsilon))
        elif options[2] > 0.0:
            for j in range(dim):
                s[j] = alpha * s[j] + gain * (g[j] * g[j])
                second[j] = keep * second[j] + g[j] / (np.sqrt(s[j]) + epsilon)
                w[j] -= rate * second[j]
        else:
            for j in range(dim):
                s[j] = alpha * s[j] + gain * (g[j] * g[j])
                w[j] -= rate * (g[j] / (np.sqrt(s[j]) + epsilon))


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    gain = np.float32(1.0 - options[0])
    s = block[:, dim : 2 * dim]
    s *= np.float32(options[0])
    s += gain * (grads * grads)
    spread = s
    if options[3]:
        a = block[:, 2 * dim : 3 * dim]
        a += gain * (grads - a)
        # Rounding can leave a square below zero where all gradients were equal.
        spread = np.maximum(s - a * a, np.float32(0.0))
    step = grads / (np.sqrt(spread) + np.float32(options[1]))
    if options[2]:
        b = block[:, -dim:] if dim else block[:, :0]
        b *= np.float32(options[2])
        b += step
        step = b
    block[:, :dim] -= np.float32(lr) * step


RULE = Rule("rmsprop", OPTIONS, _slots, loops, arrays)
