"""Wide & deep click prediction, JAX on the parameter server.

    paddock launch --server-num 2 --worker-num 2 examples/ps/wide_deep_jax.py --strategy sync

README.md beside it says what it prints.
"""

from itertools import pairwise

import criteo_like
import jax
import jax.numpy as jnp
import numpy as np
from report import Report

from paddock import ps
from paddock.ps import jax as ps_jax

Params = list[tuple[jax.Array, jax.Array]]


def first_params(sizes: list[int]) -> Params:
    """Weights and biases of an MLP."""
    rng = np.random.default_rng(0)
    draws = [
        rng.uniform(-1, 1, pair).astype(np.float32) / pair[0] ** 0.5 for pair in pairwise(sizes)
    ]
    return [(jnp.array(w), jnp.zeros(w.shape[1], jnp.float32)) for w in draws]


def logits(wide: jax.Array, deep: jax.Array, params: Params, dense: jax.Array) -> jax.Array:
    """(batch,) from rows (batch, 26, 1) and (batch, 26, dim), and the numbers."""
    x = jnp.concatenate([deep.reshape(len(deep), -1), dense], 1)
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = params[-1]
    return (wide.sum(1) + x @ weight + bias).squeeze(1)


def loss_of(
    wide: jax.Array, deep: jax.Array, params: Params, dense: jax.Array, label: jax.Array
) -> jax.Array:
    """Mean cross entropy of clicks."""
    z = logits(wide, deep, params, dense)
    return jnp.mean(jnp.maximum(z, 0) - z * label + jnp.log1p(jnp.exp(-jnp.abs(z))))


def main() -> None:
    """Train, then judge."""
    options = criteo_like.options(__doc__)
    step = jax.jit(jax.value_and_grad(loss_of, argnums=(0, 1, 2)))
    with ps.Client(strategy=options.strategy, staleness=options.staleness) as client:
        adam = ps.OptimizerSpec("adam", options.lr)
        wide = ps_jax.Embedding(client, "wide", 1, optimizer=adam)
        deep = ps_jax.Embedding(client, "deep", options.dim, optimizer=adam)
        inputs = criteo_like.SLOTS * options.dim + criteo_like.NUMBERS
        params = ps_jax.DenseParameters(client, first_params([inputs, 64, 32, 1]), optimizer=adam)
        report = Report(options)
        for ids, dense, label in criteo_like.batches(options):
            wide_rows, push_wide = wide.pull(ids)
            deep_rows, push_deep = deep.pull(ids)
            loss, grads = step(wide_rows, deep_rows, params.params, dense, label)
            push_wide(grads[0])
            push_deep(grads[1])
            params.push(grads[2])
            client.step()
            params.pull()
            report.batch(loss.item, len(label))

        ids, dense, label = criteo_like.test_set(options)

        def score() -> object:
            rows = wide.look_up(ids), deep.look_up(ids)
            return np.asarray(logits(*rows, params.pull(), dense))

        report.end(client, score, label)


if __name__ == "__main__":
    main()
