"""Sums of squares of rows, the same bits from numba loops and from numpy.

A sum depends on its order. Here it is fixed as eight interleaved float64 lanes, which a processor
adds at once, then lane i with lane i + 4, then pairs, then the rest of the row one by one. The
square of a float32 is exact in float64.

numba does not see that this file changed when it loads a caller's cached code: whoever changes
it removes the ``__pycache__`` of this folder.
"""

from __future__ import annotations

import numpy as np

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64

LANES = 8


@kernel
def square_sum(row: F32) -> float:
    """Sum of the squares of one row (dim,), in float64."""
    whole = row.shape[0] // 8 * 8
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
    for j in range(0, whole, 8):
        x0 = np.float64(row[j + 0])
        x1 = np.float64(row[j + 1])
        x2 = np.float64(row[j + 2])
        x3 = np.float64(row[j + 3])
        x4 = np.float64(row[j + 4])
        x5 = np.float64(row[j + 5])
        x6 = np.float64(row[j + 6])
        x7 = np.float64(row[j + 7])
        a0 += x0 * x0
        a1 += x1 * x1
        a2 += x2 * x2
        a3 += x3 * x3
        a4 += x4 * x4
        a5 += x5 * x5
        a6 += x6 * x6
        a7 += x7 * x7
    total: float = ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
    for x in row[whole:]:
        total += np.float64(x) * np.float64(x)
    return total


def square_sums(grads: F32) -> F64:
    """The same of each row of (n, dim): (n,) float64."""
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
