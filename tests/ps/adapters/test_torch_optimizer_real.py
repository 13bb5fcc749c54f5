"""What torch does with an optimizer: schedulers, groups, closures, GradScaler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps import Client
from paddock.ps.fleet import DistributedOptimizer

torch = pytest.importorskip("torch")
from paddock.ps import torch as ps_torch  # noqa: E402 - after torch is known to be there

pytestmark = pytest.mark.real

schedulers = torch.optim.lr_scheduler


class Model(torch.nn.Module):
    """A table and a dense layer."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.rows = ps_torch.Embedding(client, "t", 2, optimizer="sgd", lr=0.5)
        self.mlp = torch.nn.Linear(2, 1)

    def loss(self) -> torch.Tensor:
        """That the rows' gradient is the same in each step."""
        return self.rows(torch.tensor([1, 2])).sum() + self.mlp(torch.ones(2)).sum()


@pytest.fixture
def client() -> Iterator[Client]:
    with ps.local() as one:
        yield one


@pytest.fixture
def model(client: Client) -> Model:
    return Model(client)


@pytest.fixture
def trainer(client: Client, model: Model) -> ps_torch.Trainer:
    return ps_torch.Trainer(client, model, optimizer="sgd", lr=0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda it: schedulers.LambdaLR(it, [lambda n: 0.5**n, lambda n: 0.25**n]),
        lambda it: schedulers.MultiplicativeLR(it, lambda _: 0.5),
        lambda it: schedulers.OneCycleLR(it, [0.5, 0.3], total_steps=9, cycle_momentum=False),
        lambda it: schedulers.CosineAnnealingWarmRestarts(it, 3),
        lambda it: schedulers.SequentialLR(
            it, [schedulers.ConstantLR(it), schedulers.ExponentialLR(it, 0.5)], [2]
        ),
        lambda it: schedulers.ReduceLROnPlateau(it, patience=0),
        lambda it: torch.optim.swa_utils.SWALR(it, 0.05),
    ],
    ids=["lambda", "product", "onecycle", "restarts", "sequential", "plateau", "swa"],
)
def test_each_scheduler_of_torch_reaches_the_tables(
    client: Client, model: Model, trainer: ps_torch.Trainer, make: Callable[[Any], Any]
) -> None:
    """Each group's rate is that of its table: a step of SGD shows it."""
    scheduler = make(trainer.optimizer)
    for _ in range(4):
        rates = [group["lr"] for group in trainer.optimizer.param_groups]
        before = client.pull("t", [1]), model.mlp.bias.item()
        trainer.step(model.loss())
        after = client.pull("t", [1]), model.mlp.bias.item()
        assert np.allclose(before[0] - after[0], rates[0], atol=1e-6)
        assert before[1] - after[1] == pytest.approx(rates[1], abs=1e-6)
        is_plateau = isinstance(scheduler, schedulers.ReduceLROnPlateau)
        scheduler.step(*([1.0] if is_plateau else []))


def test_a_rate_written_into_one_group_is_that_tables(
    client: Client, model: Model, trainer: ps_torch.Trainer
) -> None:
    """As people warm up by hand."""
    trainer.optimizer.param_groups[0]["lr"] = 0.125
    before = client.pull("t", [1])
    trainer.step(model.loss())
    assert np.allclose(before - client.pull("t", [1]), 0.125)


def add_group(trainer: ps_torch.Trainer) -> None:
    """A head that came later."""
    trainer.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]})


def decay(trainer: ps_torch.Trainer) -> None:
    """What torch's optimizers would read at the next step."""
    trainer.optimizer.param_groups[0]["weight_decay"] = 0.1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (add_group, "takes no more parameter groups: .*make the Trainer then"),
        (decay, "table 't' has weight_decay=0.1: its optimizer is on the servers.*l2="),
    ],
)
def test_what_no_server_would_act_on_is_refused(
    client: Client,
    model: Model,
    trainer: ps_torch.Trainer,
    change: Callable[[ps_torch.Trainer], None],
    text: str,
) -> None:
    """Groups and their options would be there, and do nothing."""
    before = client.pull("t", [1])
    with pytest.raises(UsageError, match=text):
        change(trainer)
        trainer.step(model.loss())
    assert np.array_equal(client.pull("t", [1]), before)


def test_a_scaled_loss_is_not_pushed_as_it_is(model: Model, trainer: ps_torch.Trainer) -> None:
    """step() is not told of the scaler, which begins with 65,536; other factors are the user's."""
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(UsageError, match="multiplied by 65536, as by GradScaler"):
        trainer.step(scaler.scale(model.loss()))
    for factor in (65536, 65536.0, torch.tensor(512.0), torch.tensor(65537.0)):
        trainer.step(model.loss() * factor)


def step_of_scaler(optimizer: Any) -> None:
    """As its documentation has it, with something else for the optimizer."""
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    scaler.step(optimizer)


@pytest.mark.parametrize(
    "ask",
    [
        step_of_scaler,
        lambda it: it.param_groups,
        lambda it: it.state_dict(),
        lambda it: it.add_param_group({}),
    ],
    ids=["scaler", "groups", "state", "add"],
)
def test_who_takes_another_for_the_optimizer_is_told_which_it_is(
    client: Client, model: Model, trainer: ps_torch.Trainer, ask: Callable[[Any], object]
) -> None:
    """An AttributeError, as tools expect that ask with hasattr(), but with a sentence."""
    with pytest.raises(AttributeError, match=r"a Trainer has no .*: give trainer.optimizer"):
        ask(trainer)
    distributed = DistributedOptimizer(torch.optim.SGD(model.mlp.parameters(), 0.5), model)
    with pytest.raises(AttributeError, match=r"fleet's optimizer has no .*trainer.optimizer of a"):
        ask(distributed)


def test_fleets_optimizer_drops_a_batch_and_calls_a_closure(client: Client, model: Model) -> None:
    """zero_grad() after backward() leaves a batch out; it did nothing."""
    optimizer = DistributedOptimizer(torch.optim.SGD(model.mlp.parameters(), 0.5), model)
    optimizer.zero_grad()
    optimizer.begin(client)
    rows, bias = client.pull("t", [1]), model.mlp.bias.item()
    (100 * model.loss()).backward()

    def closure() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss()
        loss.backward()
        return loss

    assert optimizer.step(closure).shape == ()
    assert np.allclose(rows - client.pull("t", [1]), 0.5, atol=1e-6)
    assert bias - model.mlp.bias.item() == pytest.approx(0.5)
