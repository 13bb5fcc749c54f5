"""A user's paddle.optimizer as rules of the servers that compute the same numbers.

What Paddle 3.3 does with the gradient of an Embedding(sparse=True), found by running it (CPU):

    SGD, Adagrad               only the batch's rows change; as with a dense gradient
    Adam, lazy_mode=True       only the batch's rows; the correction is that of the next step
    Adam                       all rows change, those not in the batch by a gradient of zero
    Momentum, RMSProp          all rows, as with a dense gradient
    any with L1 or L2 decay    all rows (Adam refuses)
    AdamW, Adamax, Adadelta    an error

Rows on servers change when they are pushed. So where all rows move (`moves_idle`) a table is
either kept as a dense one, with the same numbers, or its idle rows stand still: server_trainer.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paddock.errors import Problem, UsageError
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.spec import OptimizerSpec
from paddock.rec.models import paddle_private as private

CLIPS = ("ClipGradByGlobalNorm", "ClipGradByNorm", "ClipGradByValue")
AT_ONCE = 1 << 16  # steps whose powers are in memory together


@dataclass(frozen=True)
class OptimizerRules:
    """The servers' rules of an optimizer.

    dense, rows: of parameters with dense and with sparse gradients.
    correction: what the servers are told for a rate at a step (1 is the first), where their rule
    leaves the correction to the trainers.
    """

    dense: OptimizerSpec
    rows: OptimizerSpec
    moves_idle: bool = False
    correction: Callable[[float, int], Rate] | None = None
    clip: Any = None


class AdamCorrection:
    """The correction of Paddle's sparse Adam: rate * sqrt(1 - beta2^t) / (1 - beta1^t).

    t is one ahead of the step: its kernel multiplies the powers before it uses them. They are
    float32, which at first is a hundred-thousandth of the rate: a run compared with another one
    shows it.
    """

    def __init__(self, beta1: float, beta2: float) -> None:
        self._betas = np.array([beta1, beta2], np.float32)
        self._at, self._powers = 0, self._betas

    def __call__(self, rate: float, step: int) -> Rate:
        if step < self._at:
            self._at, self._powers = 0, self._betas
        while self._at < step:
            # float32, one after the other.
            factors = np.full((1 + min(step - self._at, AT_ONCE), 2), self._betas)
            factors[0] = self._powers
            self._powers = np.multiply.accumulate(factors)[-1]
            self._at += len(factors) - 1
        one, two = np.float32(1.0) - self._powers
        root = np.sqrt(two)
        return Rate(float(np.float32(rate) * root / one), float(root) or 1.0)


def rules_of(optimizer: Any) -> OptimizerRules:
    """The rules of an optimizer. Raises UsageError naming what the servers cannot do."""
    kind, listed = type(optimizer).__name__, private.parameters_of(optimizer)
    problems = [
        Problem(f"{kind}: {name} has no equal on the servers", "leave it out, or train alone")
        for name in ("amsgrad", "lr_ratio")
        if private.setting_or_none(optimizer, name)
    ]
    clip = private.setting_or_none(optimizer, "grad_clip")
    if clip is not None and type(clip).__name__ not in CLIPS:
        problems.append(Problem(f"{kind}: {type(clip).__name__}", "one of " + ", ".join(CLIPS)))
    if not listed or isinstance(listed[0], dict):
        problems.append(Problem(f"{kind}: groups of parameters", "parameters=model.parameters()"))
    elif clip is not None and not all(getattr(one, "need_clip", True) for one in listed):
        problems.append(Problem(f"{kind}: need_clip=False", "all parameters are clipped together"))
    if kind not in KINDS:
        problems.append(
            Problem(f"{kind} has no equal on the servers", "one of " + ", ".join(KINDS))
        )
    if problems:
        raise UsageError.of(problems)
    return replace(KINDS[kind](optimizer, base_rate(optimizer)), clip=clip)


def clip_gradients(grads: list[Any], clip: Any) -> None:
    """Changes arrays in place as Paddle's clip does tensors.

    Source: paddlepaddle 3.3, nn/clip.py: global: clip / max(norm, clip) of all; by norm: of each.
    """
    kind = type(clip).__name__
    if kind == "ClipGradByValue":
        for grad in grads:
            np.clip(grad, clip.min, clip.max, out=grad)
        return
    groups = [grads] if kind == "ClipGradByGlobalNorm" else [[grad] for grad in grads]
    for group in groups:
        norm = float(np.sqrt(sum(float(np.square(grad, dtype=np.float64).sum()) for grad in group)))
        if norm > clip.clip_norm:
            for grad in group:
                grad *= np.float32(clip.clip_norm / norm)


def base_rate(optimizer: Any) -> float:
    """The rate that tables are declared with: of a scheduler its first."""
    lr = private.rate_of(optimizer)
    return float(lr.base_lr if callable(lr) else lr)


def decay_of(parameter: Any, optimizer: Any) -> tuple[float, float]:
    """(l1, l2) of a parameter: its own regularizer, else the optimizer's."""
    own = getattr(parameter, "regularizer", None)
    regularizer = own or getattr(optimizer, "regularization", None)
    if regularizer is None:
        # Momentum takes L2Decay into its kernel.
        return 0.0, float(private.setting_or_none(optimizer, "regularization_coeff") or 0.0)
    coefficient = float(private.coefficient_of(regularizer))
    return (coefficient, 0.0) if "L1" in type(regularizer).__name__ else (0.0, coefficient)


def times_of(parameter: Any) -> float:
    """The factor of a parameter's rate, by ParamAttr(learning_rate=...)."""
    return float(getattr(parameter, "optimize_attr", {}).get("learning_rate", 1.0))


def own_rule(spec: OptimizerSpec, parameter: Any, optimizer: Any) -> OptimizerSpec:
    """The rule of one parameter: its own rate and decay count."""
    times = times_of(parameter)
    l1, l2 = decay_of(parameter, optimizer)
    if spec.name == "adamw":
        decays = private.setting(optimizer, "apply_decay_param_fun")
        kept = decays is None or decays(parameter.name)
        options = {**spec.options, "weight_decay": spec.options["weight_decay"] * kept}
        return replace(spec, lr=spec.lr * times, options=options)
    return replace(spec, lr=spec.lr * times, l1=l1, l2=l2)


def _sgd(optimizer: Any, lr: float) -> OptimizerRules:
    spec = OptimizerSpec("sgd", lr)
    return OptimizerRules(spec, spec)


def _momentum(optimizer: Any, lr: float) -> OptimizerRules:
    options = private.numbers(optimizer, "momentum")
    if not options["momentum"]:
        return _sgd(optimizer, lr)
    name = "nesterov" if private.setting(optimizer, "use_nesterov") else "momentum"
    spec = OptimizerSpec(name, lr, options)
    return OptimizerRules(spec, spec, moves_idle=True)


def _adam(optimizer: Any, lr: float) -> OptimizerRules:
    options = private.numbers(optimizer, "beta1", "beta2", "epsilon")

    rows = OptimizerSpec("adam_told", lr, options)
    dense = OptimizerSpec("paddle_adam", lr, options)
    is_eager = not private.setting(optimizer, "lazy_mode")
    correction = AdamCorrection(options["beta1"], options["beta2"])
    return OptimizerRules(dense, rows, is_eager, correction)


def _adamw(optimizer: Any, lr: float) -> OptimizerRules:
    options = private.numbers(optimizer, "beta1", "beta2", "epsilon", "weight_decay")
    spec = OptimizerSpec("adamw", lr, options)
    # Alone its sparse gradients are an error; here rows have their own.
    return OptimizerRules(spec, spec)


def _adagrad(optimizer: Any, lr: float) -> OptimizerRules:
    options = {
        **private.numbers(optimizer, "epsilon"),
        "initial": float(optimizer.initial_accumulator_value),
    }
    spec = OptimizerSpec("adagrad", lr, options)
    return OptimizerRules(spec, spec)


def _rmsprop(optimizer: Any, lr: float) -> OptimizerRules:
    if private.setting(optimizer, "centered"):
        raise UsageError("RMSProp: centered has no equal on the servers", hint="centered=False")
    options = private.numbers(optimizer, "rho", "epsilon", "momentum")
    spec = OptimizerSpec("paddle_rmsprop", lr, options)
    return OptimizerRules(spec, spec, moves_idle=True)


KINDS: dict[str, Callable[[Any, float], OptimizerRules]] = {
    "SGD": _sgd,
    "Momentum": _momentum,
    "Adam": _adam,
    "AdamW": _adamw,
    "Adagrad": _adagrad,
    "RMSProp": _rmsprop,
}
