"""The optimizers' formulas in float64, one element at a time where it matters: slow and plain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

A = NDArray[np.float64]
# A reference takes w (n, dim), the gradients of each step, lr, the options, and gives w back.
Reference = Callable[[A, list[A], float, dict[str, float]], A]


def sgd(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    for g in steps:
        w = w - lr * g
    return w


def add(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    for g in steps:
        w = w + g
    return w


def momentum(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    v = np.zeros_like(w)
    for g in steps:
        v = o["momentum"] * v + g
        w = w - lr * v
    return w


def nesterov(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    v = np.zeros_like(w)
    for g in steps:
        v = o["momentum"] * v + g
        w = w - lr * (g + o["momentum"] * v)
    return w


def adagrad(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    s = np.full_like(w, o["initial"])
    for g in steps:
        s = s + g**2
        w = w - lr * g / (np.sqrt(s) + o["epsilon"])
    return w


def row_adagrad(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    s = np.full(len(w), o["initial"])
    for g in steps:
        s = s + (g**2).mean(axis=1)
        w = w - lr * g / (np.sqrt(s) + o["epsilon"])[:, None]
    return w


def adam(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(steps, start=1):
        w = w * (1 - lr * o.get("weight_decay", 0.0))
        m = o["beta1"] * m + (1 - o["beta1"]) * g
        v = o["beta2"] * v + (1 - o["beta2"]) * g**2
        m_hat, v_hat = m / (1 - o["beta1"] ** t), v / (1 - o["beta2"] ** t)
        w = w - lr * m_hat / (np.sqrt(v_hat) + o["epsilon"])
    return w


def adam_told(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for g in steps:
        m = o["beta1"] * m + (1 - o["beta1"]) * g
        v = o["beta2"] * v + (1 - o["beta2"]) * g**2
        w = w - lr * m / (np.sqrt(v) + o["epsilon"])  # 0.05 as float32 tells no root.
    return w


def paddle_rmsprop(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    s, b = np.zeros_like(w), np.zeros_like(w)
    for g in steps:
        s = o["rho"] * s + (1 - o["rho"]) * g**2
        b = o["momentum"] * b + lr * g / np.sqrt(s + o["epsilon"])
        w = w - b
    return w


def rmsprop(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    s, a, b = np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    for g in steps:
        s = o["alpha"] * s + (1 - o["alpha"]) * g**2
        a = o["alpha"] * a + (1 - o["alpha"]) * g
        spread = s - a**2 if o["centered"] else s
        b = o["momentum"] * b + g / (np.sqrt(spread) + o["epsilon"])
        w = w - lr * b
    return w


def ftrl(w: A, steps: list[A], lr: float, o: dict[str, float]) -> A:
    """McMahan et al. 2013, Algorithm 1: predict, then update, one coordinate at a time."""
    result = w.copy()
    for at in np.ndindex(w.shape):
        z, n, wi = 0.0, o["initial"], w[at]
        for g in steps:
            gi = g[at]
            sigma = (np.sqrt(n + gi**2) - np.sqrt(n)) / lr
            z, n = z + gi - sigma * wi, n + gi**2
            if abs(z) <= o["l1"]:
                wi = 0.0
            else:
                wi = -(z - np.sign(z) * o["l1"]) / ((o["beta"] + np.sqrt(n)) / lr + o["l2"])
        result[at] = wi
    return result


REFERENCES: dict[str, Reference] = {
    "sgd": sgd,
    "momentum": momentum,
    "nesterov": nesterov,
    "adagrad": adagrad,
    "row_adagrad": row_adagrad,
    "adam": adam,
    "adamw": adam,
    "adam_told": adam_told,
    "paddle_adam": adam,
    "paddle_rmsprop": paddle_rmsprop,
    "rmsprop": rmsprop,
    "ftrl": ftrl,
    "sum": add,
}
