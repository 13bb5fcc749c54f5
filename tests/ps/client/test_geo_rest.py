"""geo shares 1/trainers of a difference: what is left goes when the trainer ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps import Client, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.spec import AccessorSpec, InitialSpec
from paddock.ps.strategies import explain
from ps.client.running import fleet

SGD = OptimizerSpec("sgd", 1.0)


def learn(client: Client) -> None:
    """One exchange after the key's only batch, and one more without it."""
    client.create(SparseSpec("rows", 1, SGD, InitialSpec("zeros")))
    client.create(DenseSpec("vector", 2, SGD))
    client.push("rows", [5], [[-1.0]])
    client.push_dense("vector", [-1.0, -1.0])
    client.flush()
    client.push("rows", [6], [[-1.0]])
    client.flush()


def served(client: Client) -> list[float]:
    """What the servers have of rows 5 and 6, and of the vector's first element."""
    client.create(SparseSpec("rows", 1, SGD, InitialSpec("zeros")))
    client.create(DenseSpec("vector", 2, SGD))
    return [*client.pull("rows", [5, 6])[:, 0].tolist(), float(client.pull_dense("vector")[0])]


@pytest.mark.parametrize(
    ("merge", "meanwhile"), [("mean", [0.25, 0.25, 0.4375]), ("sum", [1.0, 1.0, 1.0])]
)
def test_what_is_left_is_sent_when_the_client_is_closed(merge: str, meanwhile: list[float]) -> None:
    """Three quarters of what row 5 learned would die with the trainer."""
    with fleet(2, "--num_gradient_servers=4") as servers:
        options = {"strategy": "geo", "trainers": 4}
        first = servers.client(trainer=0, geo_merge=merge, **options)
        learn(first)
        with servers.client(trainer=1, **options) as other:
            assert served(other) == meanwhile
        first.close()
        with servers.client(trainer=2, **options) as other:
            assert served(other) == [1.0, 1.0, 1.0]


def test_the_rest_is_that_of_this_trainer_only() -> None:
    """What the others have sent is not sent again."""
    with fleet(1, "--num_gradient_servers=2") as servers:
        both = [servers.client(trainer=i, strategy="geo", trainers=2) for i in range(2)]
        for client in both:
            learn(client)
        for client in both:
            client.close()
        with servers.client(trainer=0, strategy="geo", trainers=2) as other:
            assert np.allclose(served(other), [2.0, 2.0, 2.0])


def test_the_rule_is_explained_and_misspellings_are_refused() -> None:
    """Nobody expects a fraction who is not told."""
    assert "1/trainers" in explain("geo")
    with fleet() as servers, pytest.raises(UsageError, match="geo_merge is 'all'"):
        servers.client(strategy="geo", geo_merge="all")


@pytest.mark.parametrize(
    "options",
    [
        {"admit_count": 3},
        {"admit_probability": 0.5},
        {"admit_score": 2.0, "statistics": True},
        {"unlock_score": 1.0, "statistics": True},
        {"statistics": True},
        {"statistics": True, "delete_score": 0.5},
    ],
)
def test_what_geo_cannot_honour_is_refused(options: dict[str, Any]) -> None:
    """Every key would get its row in silence, and memory that was to be bounded would grow."""
    spec = SparseSpec("rows", 3, SGD, accessor=AccessorSpec(**options))
    with fleet(1) as servers, servers.client(strategy="geo") as client:
        with pytest.raises(UsageError, match=rf"geo does not honour .*\b{next(iter(options))}\b"):
            client.create(spec)
        assert not client.tables
        client.create(SparseSpec("rows", 3, SGD, accessor=AccessorSpec(ttl_seconds=9)))
    with fleet(1) as servers, servers.client(strategy="half_async") as client:
        client.create(spec)
