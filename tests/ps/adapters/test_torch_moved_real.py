"""Parameters that are moved, cast or replaced after their Trainer was made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paddock.errors import UsageError
from ps.adapters.fake_client import FakeClient

torch = pytest.importorskip("torch")
from paddock.ps import torch as ps_torch  # noqa: E402 - after torch is known to be there

pytestmark = pytest.mark.real


def make() -> tuple[FakeClient, torch.nn.Sequential, ps_torch.Trainer]:
    """A model with running statistics, a frozen parameter and a Trainer."""
    client, model = (
        FakeClient(),
        torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1)),
    )
    model[1].bias.requires_grad_(False)
    return client, model, ps_torch.Trainer(client, model, optimizer="sgd", lr=0.5)


def step(model: torch.nn.Module, trainer: ps_torch.Trainer) -> None:
    """One batch."""
    trainer.step(model(torch.tensor([[1.0, 2.0], [3.0, 5.0]])).pow(2).sum())


def test_parameters_and_buffers_that_were_moved_go_on_learning() -> None:
    """to() gives a parameter other memory, and a module another tensor for a buffer."""
    _, straight, trainer = make()
    _, moved, other = make()
    moved.load_state_dict(straight.state_dict())
    step(straight, trainer)
    step(moved, other)
    moved._apply(torch.Tensor.clone)  # What to(another device) does to a module.
    for _ in range(2):
        step(straight, trainer)
        step(moved, other)
    for name, tensor in straight.state_dict().items():
        if name != "0.num_batches_tracked":
            assert torch.equal(moved.state_dict()[name], tensor), name


def cast(model: torch.nn.Sequential) -> None:
    """All of a model in another dtype."""
    model.double()


def replace(model: torch.nn.Sequential) -> None:
    """A new head, as for fine-tuning."""
    model[1] = torch.nn.Linear(2, 1)


def unfreeze(model: torch.nn.Sequential) -> None:
    """After some epochs."""
    model[1].bias.requires_grad_(True)


def assign(model: torch.nn.Sequential) -> None:
    """Other values, in other memory."""
    model[1].weight.data = torch.ones(1, 2)


def clamp(model: torch.nn.Sequential) -> None:
    """A constraint after each step."""
    with torch.no_grad():
        model[1].weight.clamp_(0.0, 0.01)


def initialise(model: torch.nn.Sequential) -> None:
    """Later than the Trainer was made."""
    torch.nn.init.constant_(model[1].weight, 3.0)


def train_otherwise(model: torch.nn.Sequential) -> None:
    """A second optimizer over the dense parameters."""
    model[1].weight.grad = torch.ones(1, 2)
    torch.optim.SGD([model[1].weight], lr=0.5).step()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (cast, "'0.weight' became torch.float64"),
        (replace, "'1.weight' was replaced, added or unfrozen"),
        (unfreeze, "'1.bias' was replaced, added or unfrozen"),
        (assign, "'1.weight' got other values"),
        (clamp, "'1.weight' got other values"),
        (initialise, "'1.weight' got other values"),
        (train_otherwise, "'1.weight' got other values"),
    ],
)
def test_a_parameter_that_the_servers_would_not_train_is_named(
    change: Callable[[torch.nn.Sequential], None], text: str
) -> None:
    """It would keep its value for good, or its new value be lost with the next pull."""
    client, model, trainer = make()
    step(model, trainer)
    before = client.vectors["dense"].copy()
    change(model)
    dtype = model[0].weight.dtype
    loss = model(torch.tensor([[1.0, 2.0], [3.0, 5.0]], dtype=dtype)).pow(2).sum()
    with pytest.raises(UsageError, match=text):
        trainer.step(loss)
    assert client.vectors["dense"].tolist() == before.tolist()
    assert client.steps == 1


def test_a_change_in_place_that_keeps_the_values_is_none() -> None:
    """As of DistributedDataParallel, which broadcasts the parameters when it is made."""
    client, model, trainer = make()
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(one.clone())
    step(model, trainer)
    assert client.steps == 1


@pytest.mark.parametrize("change", [assign, clamp, initialise])
def test_values_given_to_the_servers_are_learned_from(
    change: Callable[[torch.nn.Sequential], None],
) -> None:
    """trainer.dense.set() is what the refusal hints at."""
    client, model, trainer = make()
    change(model)
    trainer.dense.set()
    step(model, trainer)
    assert torch.equal(model[1].weight.reshape(-1), torch.from_numpy(client.vectors["dense"][4:6]))
