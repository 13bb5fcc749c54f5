"""JAX on real servers: rows in, gradients out, the numbers those of JAX alone."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps import Client, OptimizerSpec, SparseSpec
from ps.adapters.fake_client import FakeClient
from ps.adapters.served import servers

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402 - after jax is known to be there

from paddock.ps import jax as ps_jax  # noqa: E402

pytestmark = pytest.mark.real

SGD = OptimizerSpec("sgd", 1.0)
HASHED = 0x7A3F_91C2_5D00_1234
IDS = np.array([[3, -8, 3], [HASHED, 3, 99]])
MASK = np.array([[1, 1, 1], [1, 1, 0]])


def loss_of(rows: jax.Array, pooling: str) -> jax.Array:
    """Something with a different gradient everywhere."""
    pooled = rows if pooling == "none" else ps_jax.pool(rows, MASK, pooling)
    scale = jnp.linspace(1e3, 2e3, pooled.size).reshape(pooled.shape)
    return (pooled**3 * scale).sum()


@pytest.mark.parametrize("pooling", ["none", "sum", "mean"])
def test_gradients_are_those_of_a_weight_in_jax(pooling: str) -> None:
    """Repeated, negative and 63-bit ids; a padded place changes nothing."""
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        embed = ps_jax.Embedding(client, "t", 5, optimizer=SGD)
        keys, places = np.unique(IDS, return_inverse=True)
        weight = jnp.array(client.pull("t", keys))
        kept = jnp.array(MASK, jnp.float32)[..., None]
        by_hand = jax.grad(lambda w: loss_of(w[places.reshape(IDS.shape)] * kept, pooling))
        wanted = weight - by_hand(weight)
        rows, pushback = embed.pull(IDS, mask=MASK)
        pushback(jax.jit(jax.grad(loss_of), static_argnums=1)(rows, pooling))
        client.step()
        assert np.allclose(client.pull("t", keys), wanted, rtol=0, atol=1e-6)


def test_a_step_is_compiled_once_for_all_batches() -> None:
    """Shapes follow the ids' shape, not how many of them are distinct."""
    client = FakeClient()
    embed = ps_jax.Embedding(client, "t", 4, optimizer=SGD)
    compiled = []

    @jax.jit
    def step(rows: jax.Array) -> jax.Array:
        compiled.append(rows.shape)
        return rows.sum()

    for ids in ([[1, 1]], [[1, 2]], [[7, 8]]):
        step(embed.pull(np.array(ids))[0])
    assert compiled == [(1, 2, 4)]


def test_padded_places_are_neither_pulled_nor_pushed() -> None:
    """The padding id must not become a row that everything trains."""
    client = FakeClient()
    embed = ps_jax.Embedding(client, "t", 2, optimizer=SGD)
    rows, pushback = embed.pull(np.array([[1, 0], [2, 0]]), mask=np.array([[1, 0], [1, 0]]))
    assert np.array_equal(np.asarray(rows)[:, 1], np.zeros((2, 2)))
    pushback(jnp.ones_like(rows))
    ((_, keys, _),) = client.pushes
    assert keys.tolist() == [1, 2]


def test_parameters_of_a_pytree_follow_the_servers() -> None:
    """The tree that was pulled before stays as it was: JAX's arrays never change."""
    client = FakeClient()
    first = {"w": jnp.ones((2, 2)), "b": [jnp.zeros(2)]}
    dense = ps_jax.DenseParameters(client, first, optimizer=SGD)
    before = dense.params
    dense.push(jax.tree.map(jnp.ones_like, first))
    after = dense.pull()
    assert float(before["w"][0, 0]) == 1.0
    assert np.array_equal(np.asarray(after["w"]), np.zeros((2, 2)))
    assert np.array_equal(np.asarray(after["b"][0]), -np.ones(2))


def test_a_gradient_of_another_shape_is_refused() -> None:
    """It would be broadcast, and every row would learn the same."""
    _, pushback = ps_jax.Embedding(FakeClient(), "t", 2, optimizer=SGD).pull(np.array([1, 2]))
    with pytest.raises(UsageError, match=r"has shape \(2,\)"):
        pushback(jnp.ones(2))


def test_ids_that_jax_has_cut_are_told() -> None:
    """Without x64 a jax array of ids is int32."""
    embed = ps_jax.Embedding(FakeClient(), "t", 2, optimizer=SGD)
    with pytest.raises(UsageError, match="ids are int32"):
        embed.pull(jnp.array([1, 2]))
    assert embed.pull(np.array([1, 2], np.int32))[0].shape == (2, 2)


def test_a_collection_is_a_pytree_of_rows_and_takes_one_of_gradients() -> None:
    """All tables in one pull; a feature that two tables have is two leaves."""
    client = FakeClient()
    bags = [
        ps_jax.Bags(SparseSpec("user", 2, SGD), ("a",)),
        ps_jax.Bags(SparseSpec("item", 3, SGD), ("a", "b")),
    ]
    embed = ps_jax.EmbeddingCollection(client, bags)
    rows, pushback = embed.pull({"a": np.array([[5, 5]]), "b": np.array([7])})
    assert {name: one.shape for name, one in rows.items()} == {
        "a@user": (1, 2, 2),
        "a@item": (1, 2, 3),
        "b": (1, 3),
    }
    pushback(jax.grad(lambda tree: sum(one.sum() for one in tree.values()))(rows))
    assert [(name, keys.tolist(), grads[:, 0].tolist()) for name, keys, grads in client.pushes] == [
        ("user", [5], [2.0]),
        ("item", [5, 7], [2.0, 1.0]),
    ]
    with pytest.raises(UsageError, match="the gradient of 'b' has shape"):
        pushback({**rows, "b": np.zeros(3, np.float32)})


def test_a_table_without_an_optimizer_is_that_of_a_spec_without() -> None:
    """Also beside trainers of another framework, which declare it as a spec."""
    assert ps_jax.Embedding(FakeClient(), "t", 3).rows.spec == SparseSpec("t", 3)
