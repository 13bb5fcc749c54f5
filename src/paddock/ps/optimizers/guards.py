"""Clipping and bounds: of gradients before any rule, of weights after it; each only when asked.

Order: clip each element, clip each row's norm, add l1 and l2, [rule], keep within the bound.
A row of a dense table is a shard, so there clip_norm limits each shard's part of the gradient.

A sum depends on its order. That of a row's squares is fixed as eight interleaved float64 lanes,
which a processor adds at once, then lane i with lane i + 4, then pairs, then the rest of the row
one by one. The square of a float32 is exact in float64.

numba does not see that this file changed when it loads a caller's cached code: whoever changes
it removes the ``__pycache__`` of this folder.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddock.ps.jit import F32, F64, I64, choose, in_kernels, kernel, part

LANES = 8


def square_sums(grads: F32) -> F64:
    """Sum of the squares of each row of (n, dim): (n,) float64."""
    rows, dim = grads.shape
    whole = dim // LANES * LANES
    squares = grads.astype(np.float64)
    squares *= squares
    lanes = squares[:, :whole].reshape(rows, whole // LANES, LANES).sum(axis=1)
    half = lanes[:, :4] + lanes[:, 4:]
    quarter = half[:, :2] + half[:, 2:]
    total: F64 = quarter[:, 0] + quarter[:, 1]
    for column in range(whole, dim):
        total += squares[:, column]
    return total


def square_sum(row: F32) -> Any:
    """The sum of squares in kernels: of a row (dim,), or of rows (1, n, dim) a column (n, 1)."""
    return square_sums(row[0])[:, None]


@in_kernels(square_sum)
def _square_sum(row: F32) -> Any:
    whole = row.shape[0] // 8 * 8
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
    for j in range(0, whole, 8):
        x0, x1 = np.float64(row[j + 0]), np.float64(row[j + 1])
        x2, x3 = np.float64(row[j + 2]), np.float64(row[j + 3])
        x4, x5 = np.float64(row[j + 4]), np.float64(row[j + 5])
        x6, x7 = np.float64(row[j + 6]), np.float64(row[j + 7])
        a0 += x0 * x0
        a1 += x1 * x1
        a2 += x2 * x2
        a3 += x3 * x3
        a4 += x4 * x4
        a5 += x5 * x5
        a6 += x6 * x6
        a7 += x7 * x7
    total = ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
    for x in row[whole:]:
        total += np.float64(x) * np.float64(x)
    return total


@part
def _within(x: Any, limit: np.float32) -> Any:
    x = choose(x > limit, limit, x)
    return choose(x < -limit, -limit, x)


@kernel
def before(
    values: F32, rows: I64, grads: F32, clips: tuple[float, float], decays: tuple[float, float]
) -> None:
    """Changes grads (n, dim) in place. clips: value, norm; decays: l1, l2; 0 is none."""
    dim = grads.shape[1]
    limit, zero = np.float32(clips[0]), np.float32(0.0)
    l1, l2 = np.float32(decays[0]), np.float32(decays[1])
    for i in range(rows.shape[0]):
        g = grads[i]
        if clips[0] > 0.0:
            for j in range(dim):
                g[j] = _within(g[j], limit)
        if clips[1] > 0.0:
            norm = np.sqrt(square_sum(g))
            scale = np.float32(choose(norm > clips[1], clips[1] / norm, 1.0))
            for j in range(dim):
                g[j] *= scale
        if decays[0] > 0.0 or decays[1] > 0.0:
            w = values[rows[i], :dim]
            for j in range(dim):
                x = w[j]
                side = choose(x > zero, l1, choose(x < zero, -l1, zero))
                g[j] = g[j] + (side + l2 * x)


@kernel
def bound(values: F32, rows: I64, dim: int, limit: float) -> None:
    """Puts weights, values[rows, :dim] of float32, back into [-limit, limit]; a NaN stays one."""
    most = np.float32(limit)
    for i in range(rows.shape[0]):
        w = values[rows[i], :dim]
        for j in range(dim):
            w[j] = _within(w[j], most)
