"""A torch or Paddle optimizer as the server's rule that does the same. Reads, changes nothing.

Where no rule computes the same numbers the answer is an error, never the nearest one.
"""

from __future__ import annotations

from typing import Any

from paddock.errors import UsageError
from paddock.ps.spec import OptimizerSpec

_HINT = "give the table an OptimizerSpec instead; its fields are in paddock.ps.spec"


def framework_of(thing: object) -> str:
    """ "torch" or "paddle": whose class (or base class) the object is of. Raises UsageError."""
    for cls in type(thing).__mro__:
        name = cls.__module__.split(".")[0]
        if name in ("torch", "paddle"):
            return name
    raise UsageError(
        f"{type(thing).__name__} is of neither torch nor paddle",
        hint="with JAX: paddock.ps.jax.DenseParameters(client, params, optimizer=...)",
    )


def spec_of(optimizer: Any) -> OptimizerSpec:
    """The spec of a torch.optim or paddle.optimizer object. Raises UsageError."""
    if framework_of(optimizer) == "torch":
        return _of_torch(optimizer)
    return _of_paddle(optimizer)


def _refuse(optimizer: Any, what: str) -> UsageError:
    name = f"{type(optimizer).__module__.split('.')[0]}'s {type(optimizer).__name__}"
    return UsageError(f"{name}: {what} has no equal on the servers", hint=_HINT)


def _of_torch(optimizer: Any) -> OptimizerSpec:
    # torch 2.15, torch/optim/{sgd,adam,adamw,adagrad,rmsprop}.py: names of the defaults.
    groups = optimizer.param_groups
    if len(groups) != 1:
        raise _refuse(optimizer, f"having {len(groups)} parameter groups")
    found = {name: value for name, value in groups[0].items() if name != "params"}
    for name in ("amsgrad", "maximize", "dampening", "lr_decay"):
        if found.get(name):
            raise _refuse(optimizer, f"{name}={found[name]}")
    kind, lr = type(optimizer).__name__, float(found["lr"])
    l2 = float(found.get("weight_decay", 0.0))
    if kind == "SGD":
        return _sgd(lr, float(found["momentum"]), bool(found["nesterov"]), l2)
    if kind in ("Adam", "AdamW"):
        beta1, beta2 = found["betas"]
        options = {"beta1": beta1, "beta2": beta2, "epsilon": found["eps"]}
        if kind == "AdamW" or found.get("decoupled_weight_decay"):
            return OptimizerSpec("adamw", lr, {**options, "weight_decay": l2})
        return OptimizerSpec("adam", lr, options, l2=l2)
    if kind == "Adagrad":
        options = {"epsilon": found["eps"], "initial": float(found["initial_accumulator_value"])}
        return OptimizerSpec("adagrad", lr, options, l2=l2)
    if kind == "RMSprop":
        options = {"alpha": found["alpha"], "epsilon": found["eps"]}
        options.update(momentum=float(found["momentum"]), centered=float(found["centered"]))
        return OptimizerSpec("rmsprop", lr, options, l2=l2)
    raise _refuse(optimizer, "this optimizer")


def _of_paddle(optimizer: Any) -> OptimizerSpec:
    # paddlepaddle 3.3.1, python/paddle/optimizer/*.py: attributes, as there are no getters.
    kind, lr = type(optimizer).__name__, optimizer._learning_rate
    lr = float(lr.base_lr if callable(lr) else lr)  # Of a scheduler: fleet follows it.
    for name, what in (
        ("_grad_clip", "a gradient clip"),
        ("regularization", "a regularizer"),
        ("_regularization_coeff", "a regularizer"),
        ("_amsgrad", "amsgrad"),
        ("_apply_decay_param_fun", "apply_decay_param_fun"),
        ("_lr_ratio", "lr_ratio"),
    ):
        if getattr(optimizer, name, None):
            raise _refuse(optimizer, what)
    if kind == "SGD":
        return _sgd(lr, 0.0, False, 0.0)
    if kind == "Momentum":
        return _sgd(lr, optimizer._momentum, bool(optimizer._use_nesterov), 0.0)
    if kind in ("Adam", "AdamW"):
        options = {
            "beta1": float(optimizer._beta1),
            "beta2": float(optimizer._beta2),
            "epsilon": float(optimizer._epsilon),
        }
        if kind == "Adam":
            return OptimizerSpec("adam", lr, options)
        return OptimizerSpec("adamw", lr, {**options, "weight_decay": optimizer._weight_decay})
    if kind == "Adagrad":
        options = {
            "epsilon": optimizer._epsilon,
            "initial": float(optimizer.initial_accumulator_value),
        }
        return OptimizerSpec("adagrad", lr, options)
    # RMSProp too: Paddle adds epsilon under the root, the servers (as torch) beside it.
    raise _refuse(optimizer, "this optimizer")


def _sgd(lr: float, momentum: float, nesterov: bool, l2: float) -> OptimizerSpec:
    if not momentum:
        return OptimizerSpec("sgd", lr, l2=l2)
    return OptimizerSpec("nesterov" if nesterov else "momentum", lr, {"momentum": momentum}, l2=l2)
