"""Another trainer loads a checkpoint, and nobody waits for it: rows say so where they come from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest

from paddock.ps import Client, DenseSpec, SparseSpec
from paddock.ps.spec import OptimizerSpec
from ps.adapters.served import together
from ps.running import inside

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

IDS = np.array([3, 5, 8, 3], np.int64)


class Model(Protocol):
    """A dense layer on the rows of a table, which adds up the rows and its own weights."""

    def __init__(self, client: Client) -> None: ...
    def look_up(self) -> Any: ...
    def weights(self) -> list[float]: ...
    def learn(self) -> None: ...


class Torch:
    """A layer before the rows and a layer behind them."""

    def __init__(self, client: Client) -> None:
        import torch

        from paddock.ps import torch as ps_torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.before = torch.nn.Linear(2, 2)
                self.words = ps_torch.Embedding(client, "words", 2, optimizer="sgd")
                self.behind = torch.nn.Linear(2, 1)

            def forward(self, ids: Any) -> Any:
                return self.behind(self.before(torch.ones(len(ids), 2)).tanh() * self.words(ids))

        self.torch, self.model = torch, Net()
        self.trainer = ps_torch.Trainer(client, self.model, optimizer="sgd", lr=0.25)

    def look_up(self) -> Any:
        return self.model(self.torch.from_numpy(IDS)).sum()

    def weights(self) -> list[float]:
        return self.trainer.dense.flat.tolist()

    def learn(self) -> None:
        self.trainer.step(self.look_up())


class Paddle:
    """As Torch."""

    def __init__(self, client: Client) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
            import paddle
        from paddock.ps import paddle as ps_paddle

        class Net(paddle.nn.Layer):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.before = paddle.nn.Linear(2, 2)
                self.words = ps_paddle.Embedding(client, "words", 2, optimizer="sgd")
                self.behind = paddle.nn.Linear(2, 1)

            def forward(self, ids: Any) -> Any:
                before = self.before(paddle.ones([len(ids), 2])).tanh()
                return self.behind(before * self.words(ids))

        self.paddle, self.model = paddle, Net()
        self.trainer = ps_paddle.Trainer(client, self.model, optimizer="sgd", lr=0.25)

    def look_up(self) -> Any:
        return self.model(self.paddle.to_tensor(IDS)).sum()

    def weights(self) -> list[float]:
        return self.trainer.dense.flat.tolist()

    def learn(self) -> None:
        self.trainer.step(self.look_up())


class Jax:
    """A pytree of one array, read behind the rows."""

    def __init__(self, client: Client) -> None:
        import jax.numpy as jnp

        from paddock.ps import jax as ps_jax

        self.client, self.jnp = client, jnp
        self.words = ps_jax.Embedding(client, "words", 2, optimizer="sgd")
        first = {"w": jnp.array([0.5, -0.5])}
        self.dense = ps_jax.DenseParameters(client, first, optimizer="sgd", lr=0.25)

    def look_up(self) -> Any:
        rows, self.pushback = self.words.pull(IDS)
        return rows

    def weights(self) -> list[float]:
        return self.dense.params["w"].tolist()

    def learn(self) -> None:
        rows = self.look_up()
        self.pushback(self.jnp.ones_like(rows))
        self.dense.push({"w": self.jnp.ones(2)})
        self.client.step()
        self.dense.pull()


Pair = tuple[list[Client], list[Model]]


@pytest.fixture(params=[(kind, how) for kind in (Torch, Paddle, Jax) for how in ("async", "geo")])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two trainers, each with its copy of one model, on two servers."""
    kind, strategy = request.param
    pytest.importorskip(kind.__name__.lower())
    with inside(2, 2) as endpoints, ExitStack() as stack:
        clients = [
            stack.enter_context(Client(endpoints, trainer=trainer, trainers=2, strategy=strategy))
            for trainer in range(2)
        ]
        models: list[Any] = [None, None]

        def make(trainer: int) -> None:
            models[trainer] = kind(clients[trainer])

        together(2, make)
        yield clients, models


def test_the_first_batch_behind_a_load_of_another_has_its_dense_values(
    pair: Pair, tmp_path: Path
) -> None:
    """It has no barrier, no evaluation and no step behind the load; also the very first batch."""
    clients, models = pair
    saved = models[0].weights()
    clients[0].save(tmp_path)
    models[0].learn()
    clients[0].flush()
    together(2, lambda trainer: clients[trainer].barrier("learned"))
    assert models[1].weights() != saved
    clients[0].load(tmp_path)
    models[1].look_up()
    assert models[1].weights() == saved
    models[1].learn()  # No framework objects to parameters that changed within a forward.
    clients[1].flush()
    assert clients[1].pull_dense("dense").tolist() != saved


@pytest.fixture
def geo() -> Iterator[list[Client]]:
    """Two trainers of geo that exchange when they are asked to."""
    with inside(2, 2) as endpoints, ExitStack() as stack:
        yield [
            stack.enter_context(
                Client(endpoints, trainer=trainer, trainers=2, strategy="geo", geo_step=1000)
            )
            for trainer in range(2)
        ]


def declare(clients: list[Client]) -> None:
    """A table of rows and a vector."""
    sgd = OptimizerSpec("sgd", lr=1.0)
    for client in clients:
        client.create(SparseSpec("words", 2, optimizer=sgd))
        client.create(DenseSpec("dense", 4, optimizer=sgd))


def values(client: Client) -> list[list[float]]:
    """What this trainer computes with."""
    return [client.pull("words", IDS).reshape(-1).tolist(), client.pull_dense("dense").tolist()]


def train(client: Client) -> None:
    """A batch in this trainer's copies."""
    client.push("words", IDS[:3], np.ones((3, 2), np.float32))
    client.push_dense("dense", np.ones(4, np.float32))
    client.step()


@pytest.mark.parametrize("how", ["barrier", "flush", "all_reduce", "new row"])
def test_copies_of_geo_are_those_of_another_trainers_load(
    geo: list[Client], tmp_path: Path, how: str
) -> None:
    """With what had been learned on the values of before the load, sent or not."""
    declare(geo)
    saved = values(geo[0])
    geo[0].save(tmp_path)
    for client in geo:
        train(client)
    assert values(geo[1]) != saved
    geo[0].load(tmp_path)
    if how == "flush":
        geo[1].flush()
    elif how == "new row":
        geo[1].pull("words", [77])
    elif how == "barrier":
        together(2, lambda trainer: geo[trainer].barrier("loaded"))
    else:
        together(2, lambda trainer: geo[trainer].all_reduce([1.0]))
    assert [values(client) for client in geo] == [saved, saved]
    geo[1].flush()
    assert [values(client) for client in geo] == [saved, saved]


def test_copies_of_geo_stay_what_they_are_where_nobody_loads(geo: list[Client]) -> None:
    """What is not sent yet is learned, not lost, whatever makes a trainer look."""
    declare(geo)
    values(geo[1])
    train(geo[1])
    learned = values(geo[1])
    geo[1].pull("words", [77])
    together(2, lambda trainer: geo[trainer].all_reduce([1.0]))
    assert values(geo[1]) == learned
    geo[1].flush()
    assert values(geo[1]) == learned
