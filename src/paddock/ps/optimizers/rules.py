"""The optimizers: their formulas, options and state; what is wrong with a table's choice of one.

To add one: its loops, and a row in RULES. Each is lazy: a row not pushed stays as it is. Where
``arrays`` is not given the loops run on arrays, so they choose, but do not branch on an element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paddock.errors import Problem, UsageError
from paddock.ps.honoured import without_effect
from paddock.ps.jit import F32, F64, I64, choose, kernel, part
from paddock.ps.optimizers.guards import square_sum, square_sums
from paddock.ps.optimizers.paddle_rules import paddle_adam, paddle_rmsprop, paddle_sparse_adam
from paddock.ps.optimizers.rule import OptimizerRule, Option, Slot
from paddock.ps.spec import OptimizerSpec, TableSpec, check_fields, check_spec


@kernel
def _sgd(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """w -= lr * g.

    Source: Robbins and Monro 1951, https://doi.org/10.1214/aoms/1177729586; torch.optim.SGD.
    """
    dim = grads.shape[1]
    rate = np.float32(lr)
    for i in range(rows.shape[0]):
        g, w = grads[i], values[rows[i], :dim]
        for j in range(dim):
            w[j] -= rate * g[j]


@kernel
def _momentum(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """v = momentum * v + g; w -= lr * v.

    Source: Polyak 1964, https://doi.org/10.1016/0041-5553(64)90137-5; torch.optim.SGD(momentum).
    """
    dim = grads.shape[1]
    rate, keep = np.float32(lr), np.float32(options[0])
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, v = row[:dim], row[dim : 2 * dim]
        for j in range(dim):
            x = keep * v[j] + g[j]
            v[j] = x
            w[j] -= rate * x


@kernel
def _nesterov(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """v = momentum * v + g; w -= lr * (g + momentum * v).

    Source: Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html, in the form
    of torch.optim.SGD(nesterov=True), where the weights kept are the ones looked ahead to.
    """
    dim = grads.shape[1]
    rate, keep = np.float32(lr), np.float32(options[0])
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, v = row[:dim], row[dim : 2 * dim]
        for j in range(dim):
            x = keep * v[j] + g[j]
            v[j] = x
            w[j] -= rate * (g[j] + keep * x)


@kernel
def _adagrad(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """s += g * g; w -= lr * g / (sqrt(s) + epsilon), an accumulator per element.

    Source: Duchi, Hazan and Singer 2011, https://jmlr.org/papers/v12/duchi11a.html;
    torch.optim.Adagrad (whose lr_decay is the schedule inverse_time).
    """
    dim = grads.shape[1]
    rate, epsilon = np.float32(lr), np.float32(options[0])
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, s = row[:dim], row[dim : 2 * dim]
        for j in range(dim):
            x = s[j] + g[j] * g[j]
            s[j] = x
            w[j] -= rate * g[j] / (np.sqrt(x) + epsilon)


# Rows are taken so many at a time: their accumulators are then fetched from memory together, not
# one after the other behind a sum. Over twice as fast where rows are not in the cache.
TOGETHER = 64


@kernel
def _row_adagrad(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """s += mean(g * g); w -= lr * g / (sqrt(s) + epsilon), one accumulator per row.

    Costs 4 bytes of state a row in place of 4 * dim. Near to Paddle's SparseAdaGradSGDRule with
    initial = initial_g2sum and lr = learning_rate * sqrt(initial_g2sum), but not equal to it: that
    one divides by the accumulator from before this gradient (sparse_sgd_rule.cc, UpdateValueWork).

    Source: Mudigere et al. 2022 (row-wise AdaGrad), https://arxiv.org/abs/2104.05158.
    """
    dim = grads.shape[1]
    rate, epsilon = np.float32(lr), np.float32(options[0])
    steps = np.empty(TOGETHER, np.float32)
    for start in range(0, rows.shape[0], TOGETHER):
        count = min(TOGETHER, rows.shape[0] - start)
        for k in range(count):
            steps[k] = np.float32(square_sum(grads[start + k]) / max(dim, 1))
        for k in range(count):
            s = values[rows[start + k], dim] + steps[k]
            values[rows[start + k], dim] = s
            steps[k] = rate / (np.sqrt(s) + epsilon)
        for k in range(count):
            g, w, step = grads[start + k], values[rows[start + k], :dim], steps[k]
            for j in range(dim):
                w[j] -= step * g[j]


def _row_adagrad_arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    s = block[:, dim]
    s += (square_sums(grads) / max(dim, 1)).astype(np.float32)
    step = np.float32(lr) / (np.sqrt(s) + np.float32(options[0]))
    block[:, :dim] -= step[:, None] * grads


@part
def _corrected(steps: int, lr: float, options: F64) -> tuple[Any, Any]:
    """(rate, epsilon) of adam for a row of this age."""
    # beta^t by repeated squaring: a libm's pow may differ in the last bit from another's.
    power1 = power2 = 1.0
    square1, square2 = options[0], options[1]
    while steps > 0:
        if steps & 1:
            power1 *= square1
            power2 *= square2
        square1 *= square1
        square2 *= square2
        steps >>= 1
    # Both sides of the fraction times sqrt(1 - beta2^t): one multiplication less.
    root = math.sqrt(1.0 - power2)
    return np.float32(lr * root / (1.0 - power1)), np.float32(options[2] * root)


@kernel
def _adam(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """Each row counts its own steps; a row pushed at every one gets what torch.optim.Adam gives.

        m += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g * g; t += 1
        w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    t is kept as float32, exact up to 16,777,216; both corrections are 1 in float32 long before
    that for beta2 up to 0.999999. adamw: w *= 1 - lr * weight_decay before it, apart from the
    gradient; options[3], where there is one.

    Source: Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, Algorithm 1; torch.optim.Adam.
    adamw: Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101, Algorithm 2.
    """
    dim = grads.shape[1]
    gain1 = np.float32(1.0 - options[0])
    keep2 = np.float32(options[1])
    gain2 = np.float32(1.0 - options[1])
    keep = np.float32(1.0 - lr * options[3]) if options.shape[0] > 3 else np.float32(1.0)
    steps, rate, epsilon = 0, np.float32(0.0), np.float32(0.0)
    for i in range(rows.shape[0]):
        row = values[rows[i]]
        row[3 * dim] += np.float32(1.0)
        if int(row[3 * dim]) != steps:  # Rows of one batch often have one age.
            steps = int(row[3 * dim])
            rate, epsilon = _corrected(steps, lr, options)
        g, w, m, v = grads[i], row[:dim], row[dim : 2 * dim], row[2 * dim : 3 * dim]
        for j in range(dim):
            x = m[j] + gain1 * (g[j] - m[j])
            y = keep2 * v[j] + gain2 * (g[j] * g[j])
            m[j] = x
            v[j] = y
            w[j] = keep * w[j] - rate * x / (np.sqrt(y) + epsilon)


def _adam_arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    w, m, v = block[:, :dim], block[:, dim : 2 * dim], block[:, 2 * dim : 3 * dim]
    block[:, 3 * dim] += np.float32(1.0)
    ages, where = np.unique(block[:, 3 * dim], return_inverse=True)
    corrected = [_corrected(int(age), lr, options) for age in ages]
    rate, epsilon = np.array(corrected, np.float32).reshape(-1, 2)[where].T[:, :, None]
    m += np.float32(1.0 - options[0]) * (grads - m)
    v *= np.float32(options[1])
    v += np.float32(1.0 - options[1]) * (grads * grads)
    w *= np.float32(1.0 - lr * options[3]) if len(options) > 3 else np.float32(1.0)
    w -= rate * m / (np.sqrt(v) + epsilon)


@kernel
def _rmsprop(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """s = alpha * s + (1 - alpha) * g * g; w -= lr * g / (sqrt(s) + epsilon).

    centered: a takes the mean of g in the same way and sqrt(s - a * a) is used.
    momentum above 0: b = momentum * b + g / (...) and w -= lr * b.
    Each of the four forms has its own inner loop, so that each is one pass.

    Source: Tieleman and Hinton 2012, lecture 6e,
    https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; centered: Graves
    2013, https://arxiv.org/abs/1308.0850; torch.optim.RMSprop (epsilon after the root).
    """
    dim = grads.shape[1]
    rate, zero = np.float32(lr), np.float32(0.0)
    alpha, gain = np.float32(options[0]), np.float32(1.0 - options[0])
    epsilon, keep = np.float32(options[1]), np.float32(options[2])
    centered = options[3] > 0.0
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, s = row[:dim], row[dim : 2 * dim]
        second = row[2 * dim : 3 * dim]  # Empty where the form has no such slot.
        third = row[3 * dim : 4 * dim]
        if centered and options[2] > 0.0:
            for j in range(dim):
                s[j] = alpha * s[j] + gain * (g[j] * g[j])
                second[j] += gain * (g[j] - second[j])
                # Rounding can leave a square below zero where all gradients were equal.
                x = np.maximum(s[j] - second[j] * second[j], zero)
                third[j] = keep * third[j] + g[j] / (np.sqrt(x) + epsilon)
                w[j] -= rate * third[j]
        elif centered:
            for j in range(dim):
                s[j] = alpha * s[j] + gain * (g[j] * g[j])
                second[j] += gain * (g[j] - second[j])
                x = np.maximum(s[j] - second[j] * second[j], zero)
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


# Below it 1 / lr times a float32 sum may be infinite; such a rate learns nothing anyway.
RATE_MIN = 1e-12
# Keeps 0 / 0 out where both roots are zero; far below the root of the least square that counts.
TINY = 1e-30


@kernel
def _ftrl(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    """FTRL-Proximal: weights follow from the sums z and n, and are exactly 0 while |z| <= l1.

        sigma = (sqrt(n + g * g) - sqrt(n)) / lr; z += g - sigma * w; n += g * g
        w = 0 where |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / lr + l2)

    lr is the paper's alpha. Weights are a function of z and n, so a first value other than zero is
    forgotten at the first push: use the initializer zeros. While the learning rate is 0 (the start
    of a warm-up) nothing changes.

    Source: McMahan et al. 2013, https://doi.org/10.1145/2487575.2488200, Algorithm 1.
    """
    if lr < RATE_MIN:
        return
    dim = grads.shape[1]
    inverse, tiny, zero = np.float32(1.0 / lr), np.float32(TINY), np.float32(0.0)
    beta, l1, l2 = np.float32(options[0]), np.float32(options[1]), np.float32(options[2])
    for i in range(rows.shape[0]):
        g, row = grads[i], values[rows[i]]
        w, z, n = row[:dim], row[dim : 2 * dim], row[2 * dim : 3 * dim]
        for j in range(dim):
            square = g[j] * g[j]
            more = n[j] + square
            root = np.sqrt(more)
            # The difference of the roots without its cancellation.
            sigma = inverse * (square / (root + np.sqrt(n[j]) + tiny))
            x = z[j] + (g[j] - sigma * w[j])
            z[j] = x
            n[j] = more
            over = choose(x > zero, x - l1, x + l1)
            w[j] = choose(abs(x) <= l1, zero, -over / (inverse * (beta + root) + l2))


def _fraction(default: float, *, above: bool = False) -> Option:
    return Option(default, high=1.0, above=above, below=True)


def _positive(default: float) -> Option:
    return Option(default, above=True)


_ADAGRAD = {"epsilon": _positive(1e-10), "initial": Option(0.0)}
_ADAM = {"beta1": _fraction(0.9), "beta2": _fraction(0.999), "epsilon": _positive(1e-8)}
_MOMENTS = (Slot("first_moment"), Slot("second_moment"))
_ADAM_STATE = (*_MOMENTS, Slot("steps", per_row=True))
_POWERS = tuple(Slot(f"{beta}_power", initial=beta, per_row=True) for beta in ("beta1", "beta2"))

_ALL = (
    OptimizerRule("sgd", _sgd),
    OptimizerRule("momentum", _momentum, {"momentum": _fraction(0.9)}, (Slot("velocity"),)),
    OptimizerRule(
        "nesterov", _nesterov, {"momentum": _fraction(0.9, above=True)}, (Slot("velocity"),)
    ),
    OptimizerRule("adagrad", _adagrad, _ADAGRAD, (Slot("square_sum", initial="initial"),)),
    OptimizerRule(
        "row_adagrad",
        _row_adagrad,
        _ADAGRAD,
        (Slot("square_mean_sum", initial="initial", per_row=True),),
        _row_adagrad_arrays,
    ),
    OptimizerRule("adam", _adam, _ADAM, _ADAM_STATE, _adam_arrays),
    OptimizerRule(
        "adamw",
        _adam,
        {**_ADAM, "weight_decay": Option(0.01)},
        _ADAM_STATE,
        _adam_arrays,
        refuses={"l2": "adamw decays by its option weight_decay; adam takes l2"},
    ),
    OptimizerRule(
        "rmsprop",
        _rmsprop,
        {
            "alpha": _fraction(0.99),
            "epsilon": _positive(1e-8),
            "momentum": _fraction(0.0),
            "centered": Option(0.0, flag=True),
        },
        (Slot("square_mean"), Slot("mean", when="centered"), Slot("velocity", when="momentum")),
    ),
    OptimizerRule(
        "adam_told",
        paddle_sparse_adam,
        {
            **_ADAM,
            "idle": Option(0.0, flag=True),
            "correction": Option(1.0, high=1.0, above=True),  # until a rate brings another
        },
        _MOMENTS,
    ),
    OptimizerRule("paddle_adam", paddle_adam, _ADAM, (*_MOMENTS, *_POWERS)),
    OptimizerRule(
        "paddle_rmsprop",
        paddle_rmsprop,
        {"rho": _fraction(0.95), "epsilon": _positive(1e-6), "momentum": _fraction(0.0)},
        (Slot("square_mean"), Slot("velocity")),
    ),
    OptimizerRule(
        "ftrl",
        _ftrl,
        {"beta": Option(1.0), "l1": Option(0.0), "l2": Option(0.0), "initial": Option(0.0)},
        (Slot("z"), Slot("n", initial="initial")),
        refuses={name: f"ftrl has its own: options {name}" for name in ("l1", "l2")},
    ),
    # w += g, without a learning rate: differences (geo) and counted statistics. Source: the rule
    # "sum" of Paddle 2.6's dense tables, which its geo strategy uses.
    OptimizerRule(
        "sum",
        _sgd,
        rate=-1.0,
        # They are added to a gradient, which is subtracted: with an added one they would grow w.
        refuses=dict.fromkeys(("l1", "l2"), "sum adds what is pushed; choose sgd for a decay"),
    ),
)
RULES: dict[str, OptimizerRule] = {rule.name: rule for rule in _ALL}


def check_table(spec: TableSpec) -> None:
    """Raises UsageError with all that is wrong with the spec, or with its optimizer.

    >>> from paddock.ps.spec import DenseSpec
    >>> check_table(DenseSpec("bias", 4))
    """
    problems = check_spec(spec) or [*check_optimizer(spec.optimizer), *without_effect(spec)]
    if problems:
        raise UsageError.of(problems)


def check_optimizer(spec: OptimizerSpec) -> list[Problem]:
    """Everything wrong with the spec: learning rate, schedule, guards, rule, options.

    >>> [p.message for p in check_optimizer(OptimizerSpec("adam", options={"beta1": 1.5}))]
    ["optimizer 'adam': beta1 is 1.5"]
    """
    found = check_fields(spec, "optimizer")
    rule = RULES.get(spec.name)
    if rule is None:
        hint = "one of " + ", ".join(RULES)
        return [*found, Problem(f"optimizer {spec.name!r} is unknown", hint)]
    for name, hint in rule.refuses.items():
        if value := getattr(spec, name):
            found.append(Problem(f"optimizer {spec.name!r} does not take {name} {value!r}", hint))
    return found + rule.check(spec.options)
