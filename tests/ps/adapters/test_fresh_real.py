"""The dense values that a framework computes with are the servers', whoever changed them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from paddock.ps import Client
from ps.adapters.served import together
from ps.running import inside

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

INPUT = [[1.0, 2.0], [3.0, 4.0]]


class Model(Protocol):
    """A layer of 2 x 1 weights, in one framework."""

    def __init__(self, client: Client) -> None: ...
    def weights(self) -> list[float]: ...
    def judge(self) -> list[float]: ...
    def begin(self) -> Any: ...
    def end(self, batch: Any) -> None: ...


class Torch:
    """torch.nn.Linear."""

    def __init__(self, client: Client) -> None:
        import torch

        from paddock.ps import torch as ps_torch

        self.torch, self.model = torch, torch.nn.Linear(2, 1, bias=False)
        self.trainer = ps_torch.Trainer(client, self.model, optimizer="sgd", lr=0.25)

    def weights(self) -> list[float]:
        return self.model.weight.reshape(-1).tolist()

    def judge(self) -> list[float]:
        with self.torch.no_grad():
            return self.model(self.torch.eye(2)).reshape(-1).tolist()

    def begin(self) -> Any:
        return self.model(self.torch.tensor(INPUT)).sum()

    def end(self, batch: Any) -> None:
        self.trainer.step(batch)


class Paddle:
    """paddle.nn.Linear."""

    def __init__(self, client: Client) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
            import paddle
        from paddock.ps import paddle as ps_paddle

        self.paddle, self.model = paddle, paddle.nn.Linear(2, 1, bias_attr=False)
        self.trainer = ps_paddle.Trainer(client, self.model, optimizer="sgd", lr=0.25)

    def weights(self) -> list[float]:
        return self.model.weight.reshape([-1]).tolist()

    def judge(self) -> list[float]:
        self.model.eval()
        answer = self.model(self.paddle.eye(2)).reshape([-1]).tolist()
        self.model.train()
        return answer

    def begin(self) -> Any:
        return self.model(self.paddle.to_tensor(INPUT)).sum()

    def end(self, batch: Any) -> None:
        self.trainer.step(batch)


class Jax:
    """A pytree of one array."""

    def __init__(self, client: Client) -> None:
        import jax
        import jax.numpy as jnp

        from paddock.ps import jax as ps_jax

        self.client, self.jax, self.jnp = client, jax, jnp
        first = {"w": jnp.array([0.5, -0.5])}
        self.dense = ps_jax.DenseParameters(client, first, optimizer="sgd", lr=0.25)

    def weights(self) -> list[float]:
        return self.dense.params["w"].tolist()

    def judge(self) -> list[float]:
        return self.dense.refresh()["w"].tolist()

    def begin(self) -> Any:
        return self.jax.grad(lambda p: (self.jnp.array(INPUT) @ p["w"]).sum())(self.dense.params)

    def end(self, batch: Any) -> None:
        self.dense.push(batch)
        self.client.step()
        self.dense.pull()


Pair = tuple[list[Client], list[Model]]


@pytest.fixture(params=[Torch, Paddle, Jax])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two trainers of async, each with its copy of one model, on two servers."""
    pytest.importorskip(request.param.__name__.lower())
    with inside(2, 2) as endpoints, ExitStack() as stack:
        clients = [
            stack.enter_context(Client(endpoints, trainer=trainer, trainers=2))
            for trainer in range(2)
        ]
        models: list[Any] = [None, None]

        def make(trainer: int) -> None:
            models[trainer] = request.param(clients[trainer])

        together(2, make)
        yield clients, models


def learn(client: Client, model: Model) -> None:
    """One batch, which has arrived at the servers."""
    model.end(model.begin())
    client.flush()


def server_values(client: Client) -> list[float]:
    """The vector as the servers have it."""
    return client.pull_dense("dense").tolist()


def requests(client: Client) -> int:
    """Pulls and pushes, questions after versions too, that the servers have had."""
    return sum(status["pulls"] + status["pushes"] for status in client.status())


def test_load_is_seen_by_who_loads_and_by_who_waits_for_it(pair: Pair, tmp_path: Path) -> None:
    """No forward, no step and no pull lies between: the parameters themselves are read."""
    clients, models = pair
    saved = models[0].weights()
    clients[0].save(tmp_path)
    for client, model in zip(clients, models, strict=True):
        learn(client, model)
    assert server_values(clients[0]) != saved
    clients[0].load(tmp_path)
    assert models[0].weights() == saved
    together(2, lambda trainer: clients[trainer].barrier("loaded"))
    assert models[1].weights() == saved
    learn(clients[1], models[1])  # From there.
    assert server_values(clients[1]) == pytest.approx([saved[0] - 1.0, saved[1] - 1.5])


def test_an_evaluation_is_of_what_the_servers_have_by_then(pair: Pair) -> None:
    """Another trainer goes on; nothing is pulled where nothing has changed."""
    clients, models = pair
    before = models[1].judge()
    learn(clients[0], models[0])
    assert models[1].judge() == server_values(clients[1]) != before
    counts = [requests(clients[0])]
    for look in (lambda: server_values(clients[1]), models[1].judge):
        look()
        counts.append(requests(clients[0]))
    assert counts[2] - counts[1] == counts[1] - counts[0]  # Asked, but not pulled behind it.


def test_a_batch_behind_a_bare_step_computes_with_the_newest_values(pair: Pair) -> None:
    """As at an epoch's end, where the data of this trainer ended first."""
    clients, models = pair
    learn(clients[0], models[0])
    clients[1].step()
    models[1].begin()
    assert models[1].weights() == server_values(clients[1])


def test_a_meeting_is_a_reason_to_look_but_not_within_a_batch(pair: Pair) -> None:
    """all_reduce() of a loss between forward and backward leaves the batch its values."""
    clients, models = pair
    learn(clients[0], models[0])
    before = models[1].weights() if not isinstance(models[1], Jax) else None
    together(2, lambda trainer: clients[trainer].all_reduce([1.0]))
    if before is not None:
        assert models[1].weights() == before
    models[1].begin()
    assert models[1].weights() == server_values(clients[1])


def test_a_step_that_learns_asks_nothing_more(pair: Pair) -> None:
    """It sends what its push and its pull send by themselves."""
    client, model = pair[0][0], pair[1][0]
    learn(client, model)
    counts = [requests(client)]
    for _ in range(3):
        learn(client, model)
    counts.append(requests(client))
    for _ in range(3):
        client.push_dense("dense", [1.0, 1.0])
        client.step()
        client.pull_dense("dense")
        client.flush()
    counts.append(requests(client))
    assert counts[2] - counts[1] == counts[1] - counts[0]


def test_a_copy_of_a_model_has_values_of_its_own(pair: Pair) -> None:
    """An average of weights, say, is not overwritten when it is evaluated."""
    clients, models = pair
    if isinstance(models[1], Jax):
        pytest.skip("pytrees are never changed in place")
    twin, before = copy.deepcopy(models[1].model), models[1].judge()
    learn(clients[0], models[0])
    eye = np.eye(2, dtype=np.float32)
    framework = getattr(models[1], "torch", None)
    twin.eval()
    given = framework.from_numpy(eye) if framework else models[1].paddle.to_tensor(eye)
    assert twin(given).reshape([-1]).tolist() == before


def test_a_model_can_be_judged_when_its_client_is_closed(pair: Pair) -> None:
    """Its parameters are here; there is nobody left to ask."""
    clients, models = pair
    weights = models[1].weights()
    clients[1].close()
    assert models[1].judge() == weights


def test_a_second_trainer_of_a_model_takes_it_over(pair: Pair) -> None:
    """With a table of its own: the first one's values do not come back."""
    clients, models = pair
    if isinstance(models[1], Jax):
        pytest.skip("a pytree is nobody's")

    def make(trainer: int) -> None:
        kind = type(models[trainer].trainer)
        models[trainer].trainer = kind(clients[trainer], models[trainer].model, table="other")

    together(2, make)
    weights = models[1].weights()
    clients[0].set_dense("dense", [7.0, 7.0])
    together(2, lambda trainer: clients[trainer].barrier())
    assert models[1].judge() == models[1].weights() == weights
