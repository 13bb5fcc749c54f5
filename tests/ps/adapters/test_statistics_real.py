"""Tables with statistics through torch, Paddle and JAX: clicks to learn, none to evaluate."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps import AccessorSpec, OptimizerSpec, SparseSpec
from ps.adapters.fake_client import FakeClient

pytestmark = pytest.mark.real

SPEC = SparseSpec("seen", 3, OptimizerSpec("sgd", 1.0), accessor=AccessorSpec(statistics=True))


@pytest.fixture(params=["torch", "paddle"])
def framework(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The framework, and its adapter."""
    pytest.importorskip(request.param)
    found = importlib.import_module(request.param)
    return found, importlib.import_module(f"paddock.ps.{request.param}")


def ids_of(module: Any, ids: Any, kind: str = "int64") -> Any:
    """A tensor of the framework."""
    make = getattr(module, "to_tensor", None) or module.tensor
    return make(ids, dtype=getattr(module, kind))


def rows_of(client: ps.Client) -> int:
    """How many rows the table has."""
    return sum(one["rows"] for one in client.status()[0]["tables"] if one["name"] == SPEC.name)


def test_a_table_with_statistics_is_evaluated_without_clicks(framework: tuple[Any, Any]) -> None:
    """A model that scores has no labels; the rows are those of a look-up with some."""
    module, adapter = framework
    with ps.local("half_async") as client:
        layer = adapter.Embedding(client, SPEC)
        ids = ids_of(module, [3, 9, 3])
        with_clicks = layer(ids, clicks=ids_of(module, [1.0, 0.0, 0.0], "float32"))
        with pytest.raises(UsageError, match="no clicks were given"):
            layer(ids)
        with module.no_grad():
            scored = layer(ids)
        layer.eval()
        judged = layer(ids)
        for rows in (scored, judged):
            assert np.array_equal(rows.numpy(), with_clicks.detach().numpy())
        client.step()
        assert rows_of(client) == 0  # Nothing was pushed.
        layer.train()
        layer(ids, clicks=ids_of(module, [1.0, 0.0, 0.0], "float32")).sum().backward()
        client.step()
        assert rows_of(client) == 2


def test_clicks_of_another_number_than_ids_are_told(framework: tuple[Any, Any]) -> None:
    """One label for each example is the usual slip: an example has several ids."""
    module, adapter = framework
    layer = adapter.Embedding(FakeClient(), SPEC)
    with pytest.raises(UsageError, match="2 clicks of 4 ids"):
        layer(ids_of(module, [[1, 2], [3, 4]]), clicks=ids_of(module, [1.0, 0.0], "float32"))


def test_padding_has_no_clicks_and_needs_none_to_be_evaluated(framework: tuple[Any, Any]) -> None:
    """A look-up with padding asks as any other."""
    module, adapter = framework
    client = FakeClient()
    layer = adapter.Embedding(client, SPEC, padding_idx=0)
    ids = ids_of(module, [[1, 0], [3, 0]])
    with pytest.raises(UsageError, match="2 clicks of 4 ids"):
        layer(ids, clicks=ids_of(module, [1.0, 0.0], "float32"))
    layer(ids, clicks=ids_of(module, [[1.0, 1.0], [0.0, 1.0]], "float32")).sum().backward()
    ((shows, clicks),) = client.statistics
    assert shows.tolist() == [1, 1] and clicks.tolist() == [1, 0]
    layer.eval()
    assert not layer(ids)[:, 1].numpy().any()


def test_each_bag_of_a_list_must_have_whole_ids(framework: tuple[Any, Any]) -> None:
    """Joined to other bags, True would be the id 1."""
    module, adapter = framework
    layer = adapter.Embedding(FakeClient(), "t", 3, pooling="sum")
    with pytest.raises(UsageError, match="keys are bool"):
        layer([ids_of(module, [5, 6]), ids_of(module, [True], "bool")])
    with pytest.raises(UsageError, match="offsets are float32"):
        layer(ids_of(module, [5, 6]), ids_of(module, [0.0, 1.7], "float32"))


def test_lengths_of_a_collection_must_be_whole_numbers(framework: tuple[Any, Any]) -> None:
    """A fraction would move the bags behind it."""
    module, adapter = framework
    bags = [adapter.Bags(SparseSpec("t", 3), ("a",))]
    layer = adapter.EmbeddingCollection(FakeClient(), bags)
    lengths = ids_of(module, [1.5, 1.5], "float32")
    with pytest.raises(UsageError, match="lengths are float32"):
        layer(adapter.KeyedJagged(["a"], ids_of(module, [1, 2, 3]), lengths))


def test_jax_evaluates_without_clicks_and_counts_those_of_unpadded_ids() -> None:
    """look_up() pushes nothing; with a mask, clicks have the shape of the ids."""
    pytest.importorskip("jax")
    from paddock.ps import jax as ps_jax

    client = FakeClient()
    embed = ps_jax.Embedding(client, SPEC)
    ids, mask = np.array([[3, 9], [3, 0]]), np.array([[1, 1], [1, 0]])
    rows, pushback = embed.pull(ids, mask=mask, clicks=np.array([[1, 0], [1, 1]]))
    assert np.array_equal(embed.look_up(ids, mask=mask), rows)
    with pytest.raises(UsageError, match="no clicks were given"):
        embed.pull(ids)
    with pytest.raises(UsageError, match="keys are no array"):
        embed.look_up([[1], [2, 3]])  # type: ignore[arg-type]
    pushback(np.zeros((2, 2, 3), np.float32))
    ((shows, clicks),) = client.statistics
    assert shows.tolist() == [2, 1] and clicks.tolist() == [2, 0]
