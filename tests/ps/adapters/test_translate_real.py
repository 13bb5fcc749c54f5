"""A framework's optimizer as a rule of the servers: the same numbers, or an error."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps.optimizers.rules import check_optimizer
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec
from paddock.ps.translate import framework_of, spec_of

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
    paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.real

STEPS = 5
TORCH: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.8, "nesterov": True}),
    ("Adam", {"betas": (0.8, 0.99), "eps": 1e-6}),
    ("AdamW", {"weight_decay": 0.1}),
    ("Adagrad", {"initial_accumulator_value": 0.1}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.5, "centered": True}),
]
PADDLE: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}),
    ("Momentum", {"momentum": 0.9}),
    ("Momentum", {"momentum": 0.9, "use_nesterov": True}),
    ("Adam", {"beta1": 0.8, "epsilon": 1e-6}),
    ("AdamW", {"weight_decay": 0.1}),
    ("Adagrad", {"epsilon": 1e-6, "initial_accumulator_value": 0.1}),
]


def gradients() -> list[np.ndarray]:
    """The same few gradients for everybody."""
    rng = np.random.default_rng(5)
    return [rng.normal(size=6).astype(np.float32) for _ in range(STEPS)]


def on_the_server(spec: OptimizerSpec, first: np.ndarray) -> np.ndarray:
    """Where the servers' rule takes the values."""
    assert check_optimizer(spec) == []
    updater = Updater(spec, len(first))
    values = np.zeros((1, updater.width), np.float32)
    values[0, : len(first)] = first
    values[0, len(first) :] = updater.initial_state
    for grad in gradients():
        updater.apply(values, np.zeros(1, np.int64), grad.reshape(1, -1).copy(), Rate(spec.lr))
    return values[0, : len(first)]


@pytest.mark.parametrize(("name", "options"), TORCH)
def test_the_rule_computes_what_torch_computes(name: str, options: dict[str, Any]) -> None:
    """fleet.distributed_optimizer(torch.optim...) may not change the training."""
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
    first = weight.detach().numpy().copy()
    optimizer = getattr(torch.optim, name)([weight], lr=0.05, **options)
    for grad in gradients():
        weight.grad = torch.from_numpy(grad)
        optimizer.step()
    got = on_the_server(spec_of(optimizer), first)
    assert np.allclose(got, weight.detach().numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), PADDLE)
def test_the_rule_computes_what_paddle_computes(name: str, options: dict[str, Any]) -> None:
    """The same for Paddle's optimizers, of which some read alike and compute otherwise."""
    paddle.set_device("cpu")
    layer = paddle.nn.Linear(6, 1, bias_attr=False)
    first = layer.weight.numpy().reshape(-1).copy()
    optimizer = getattr(paddle.optimizer, name)(
        learning_rate=0.05, parameters=layer.parameters(), **options
    )
    for grad in gradients():
        loss = (layer.weight.reshape([-1]) * paddle.to_tensor(grad)).sum()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    got = on_the_server(spec_of(optimizer), first)
    assert np.allclose(got, layer.weight.numpy().reshape(-1), rtol=0, atol=1e-6)


def test_what_the_servers_cannot_compute_is_refused() -> None:
    """The nearest rule would train something else."""
    weight = torch.nn.Parameter(torch.ones(2))
    parameters = paddle.nn.Linear(1, 1).parameters()
    for optimizer, match in (
        (torch.optim.Adam([weight], amsgrad=True), "amsgrad"),
        (torch.optim.LBFGS([weight]), "weight_decay|this optimizer"),
        (paddle.optimizer.RMSProp(0.1, parameters=parameters), "this optimizer"),
        (paddle.optimizer.Adam(parameters=parameters, weight_decay=0.1), "regularizer"),
    ):
        with pytest.raises(UsageError, match=match):
            spec_of(optimizer)
    with pytest.raises(UsageError, match="neither torch nor paddle"):
        framework_of(3)
