"""What is done to gradients before any rule and to weights after it; each part only when asked.

Order: clip each element, clip each row's norm, add l1 and l2, [rule], keep within the bound.
A row of a dense table is a shard, so there clip_norm limits each shard's part of the gradient.
"""

from __future__ import annotations

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.lanes import square_sum, square_sums
from paddock.ps.optimizers.rule import F32, I64
from paddock.ps.spec import OptimizerSpec


def has_before(spec: OptimizerSpec) -> bool:
    """Whether the spec asks for a change of the gradients."""
    return bool(spec.clip_value or spec.clip_norm or spec.l1 or spec.l2)


@kernel
def before_loops(
    values: F32,
    rows: I64,
    grads: F32,
    clips: tuple[float, float],
    decays: tuple[float, float],
) -> None:
    """Changes grads (n, dim) in place. clips: value, norm; decays: l1, l2; 0 is none."""
    dim = grads.shape[1]
    limit = np.float32(clips[0])
    l1 = np.float32(decays[0])
    l2 = np.float32(decays[1])
    zero = np.float32(0.0)
    for i in range(rows.shape[0]):
        g = grads[i]
        if clips[0] > 0.0:
            for j in range(dim):
                x = g[j]
                x = limit if x > limit else x
                g[j] = -limit if x < -limit else x
        if clips[1] > 0.0:
            norm = np.sqrt(square_sum(g))
            if norm > clips[1]:
                scale = np.float32(clips[1] / norm)
                for j in range(dim):
                    g[j] *= scale
        if decays[0] > 0.0 or decays[1] > 0.0:
            w = values[rows[i], :dim]
            for j in range(dim):
                x = w[j]
                side = l1 if x > zero else zero
                side = -l1 if x < zero else side
                g[j] = g[j] + (side + l2 * x)


def before_arrays(
    block: F32, grads: F32, clips: tuple[float, float], decays: tuple[float, float]
) -> None:
    """before_loops on gathered rows: block (n, width), grads (n, dim) changed in place."""
    if clips[0] > 0.0:
        limit = np.float32(clips[0])
        np.minimum(grads, limit, out=grads)
        np.maximum(grads, -limit, out=grads)
    if clips[1] > 0.0:
        norms = np.sqrt(square_sums(grads))
        long = norms > clips[1]
        grads[long] *= (clips[1] / norms[long]).astype(np.float32)[:, None]
    if decays[0] > 0.0 or decays[1] > 0.0:
        w = block[:, : grads.shape[1]]
        grads += np.float32(decays[0]) * np.sign(w) + np.float32(decays[1]) * w


@kernel
def bound_loops(values: F32, rows: I64, dim: int, bound: float) -> None:
    """Puts the weights of the rows back into [-bound, bound]; a NaN stays one."""
    limit = np.float32(bound)
    for i in range(rows.shape[0]):
        w = values[rows[i], :dim]
        for j in range(dim):
            x = w[j]
            x = limit if x > limit else x
            w[j] = -limit if x < -limit else x


def bound_arrays(block: F32, dim: int, bound: float) -> None:
    """bound_loops on gathered rows."""
    limit = np.float32(bound)
    w = block[:, :dim]
    np.minimum(w, limit, out=w)
    np.maximum(w, -limit, out=w)
