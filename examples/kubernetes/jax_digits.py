"""Handwritten digits with JAX, one world over all pods.

`jax.distributed.initialize()` is called without an argument: the operator sets
JAX_COORDINATOR_ADDRESS, and the variables from which JAX takes the number of processes and its own.

    python jax_digits.py
    paddock launch jax_digits.py
"""

import digits
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

EPOCHS = 30
BATCH = 96  # of the whole job, at most
RATE = 0.5


def first_weights() -> dict:
    """An MLP of 64, 64 and 10; the same on every process."""
    keys = jax.random.split(jax.random.key(0), 2)
    return {
        "hidden": jax.random.normal(keys[0], (64, 64)) / 8,
        "hidden_bias": jnp.zeros(64),
        "out": jax.random.normal(keys[1], (64, 10)) / 8,
        "out_bias": jnp.zeros(10),
    }


def logits(weights: dict, images: jax.Array) -> jax.Array:
    """Scores of the ten classes."""
    hidden = jax.nn.relu(images @ weights["hidden"] + weights["hidden_bias"])
    return hidden @ weights["out"] + weights["out_bias"]


def loss_of(weights: dict, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Cross entropy, the mean over the whole job's batch."""
    chances = jax.nn.log_softmax(logits(weights, images))
    return -chances[jnp.arange(len(labels)), labels].mean()


@jax.jit
def step(weights: dict, images: jax.Array, labels: jax.Array) -> tuple[dict, jax.Array]:
    """One step of gradient descent. XLA adds over all processes, since the batch is split."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda w, s: w - RATE * s, weights, slopes), loss


def main() -> None:
    """Train on all processes, judge on the first."""
    jax.distributed.initialize()
    rank, size = jax.process_index(), jax.process_count()
    print(f"rank {rank} of {size} is up, {jax.device_count()} devices", flush=True)
    mesh = Mesh(jax.devices(), "batch")
    split = NamedSharding(mesh, PartitionSpec("batch"))
    weights = jax.device_put(first_weights(), NamedSharding(mesh, PartitionSpec()))
    data = digits.load()
    train_x, train_y = data.train_x.reshape(-1, 64), data.train_y.astype(np.int32)
    batch = BATCH // jax.device_count() * jax.device_count()
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(train_x))
        for first in range(0, len(order) - batch + 1, batch):
            mine = order[first : first + batch].reshape(size, -1)[rank]
            images = jax.make_array_from_process_local_data(split, train_x[mine])
            labels = jax.make_array_from_process_local_data(split, train_y[mine])
            weights, loss = step(weights, images, labels)
        print(f"rank {rank} epoch {epoch + 1} loss {float(loss):.4f}", flush=True)
    if rank == 0:
        own = jax.tree.map(lambda w: w.addressable_data(0), weights)
        guess = np.asarray(logits(own, data.test_x.reshape(-1, 64)).argmax(1))
        print(f"accuracy {(guess == data.test_y).mean():.3f} on {len(guess)} unseen digits")


if __name__ == "__main__":
    main()
