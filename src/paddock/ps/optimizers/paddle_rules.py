"""Rules that compute what Paddle's own kernels do, where those differ from the usual formulas."""

from __future__ import annotations

import numpy as np

from paddock.ps.jit import F32, F64, I64, choose, kernel


@kernel
def paddle_sparse_adam(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """adam whose correction is one for all rows, and comes with the rate (schedules.Rate).

        m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g * g
        w -= lr * m / (sqrt(v) + epsilon * correction)

    values: (capacity, width) float32; grads: (n, dim).
    idle: the table is a dense one, in which a gradient of 0 is that of a row that no example had;
    its epsilon is as it is.
    Source: paddlepaddle 3.3, phi/kernels/funcs/adam_functors.h, SparseAdamFunctor, which counts
    the steps of a table, whichever rows they had.
    """
    dim = grads.shape[1]
    one, zero = np.float32(1.0), np.float32(0.0)
    keep1, keep2 = np.float32(options[0]), np.float32(options[1])
    # In float32: of 0.999 that is a hundred-thousandth less than 0.001.
    gain1, gain2 = one - keep1, one - keep2
    rate = np.float32(lr)
    epsilon = np.float32(options[2]) * np.float32(options[4])
    idle = np.float32(options[2]) if options[3] > 0.0 else epsilon
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, m, v = row[:dim], row[dim : 2 * dim], row[2 * dim : 3 * dim]
        for j in range(dim):
            x = keep1 * m[j] + gain1 * g[j]
            y = keep2 * v[j] + gain2 * (g[j] * g[j])
            m[j] = x
            v[j] = y
            w[j] -= rate * (x / (np.sqrt(y) + choose(g[j] == zero, idle, epsilon)))


@kernel
def paddle_adam(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """adam with its powers of beta kept as float32, as Paddle has them.

        w -= lr * sqrt(1 - p2) / (1 - p1) * m / (sqrt(v) + epsilon * sqrt(1 - p2));
        p1 *= beta1; p2 *= beta2

    Early in training 1 - p2 has few digits left: a model compared with one that Paddle trained
    shows it in the fifth digit of a step.
    Source: paddlepaddle 3.3, phi/kernels/cpu/adam_kernel.cc, funcs/adam_functors.h.
    """
    dim = grads.shape[1]
    one = np.float32(1.0)
    keep1, keep2 = np.float32(options[0]), np.float32(options[1])
    gain1, gain2 = one - keep1, one - keep2
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, m, v = row[:dim], row[dim : 2 * dim], row[2 * dim : 3 * dim]
        root = np.sqrt(one - row[3 * dim + 1])
        rate = np.float32(lr) * root / (one - row[3 * dim])
        epsilon = np.float32(options[2]) * root
        for j in range(dim):
            x = keep1 * m[j] + gain1 * g[j]
            y = keep2 * v[j] + gain2 * (g[j] * g[j])
            m[j] = x
            v[j] = y
            w[j] -= rate * (x / (np.sqrt(y) + epsilon))
        row[3 * dim] *= keep1
        row[3 * dim + 1] *= keep2


@kernel
def paddle_rmsprop(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """s = rho * s + (1 - rho) * g * g; b = momentum * b + lr * g / sqrt(s + epsilon); w -= b.

    values: (capacity, width), grads: (n, dim), float32. epsilon is under the root,
    and the rate within the velocity.
    Source: paddlepaddle 3.3, phi/kernels/impl/rmsprop_kernel_impl.h.
    """
    dim = grads.shape[1]
    rate, epsilon, momentum = np.float32(lr), np.float32(options[1]), np.float32(options[2])
    keep, gain = np.float32(options[0]), np.float32(1.0 - options[0])
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, s, b = row[:dim], row[dim : 2 * dim], row[2 * dim : 3 * dim]
        for j in range(dim):
            x = keep * s[j] + gain * (g[j] * g[j])
            s[j] = x
            y = momentum * b[j] + rate * g[j] / np.sqrt(x + epsilon)
            b[j] = y
            w[j] -= y
