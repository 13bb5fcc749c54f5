"""Sum over all processes with JAX, on the processor or on whatever devices JAX finds.

    paddock launch --nproc-per-node 2 examples/jax_psum.py

`jax.distributed.initialize()` is called with no argument: coordinator, number of processes and
own index come from the environment. Every process contributes its rank + 1, so that two print 3.
"""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize()


def main() -> None:
    """Sum rank + 1 over the processes, twice: once gathered, once with psum."""
    rank, world_size = jax.process_index(), jax.process_count()
    print(f"rank {rank} of {world_size} is up, {jax.device_count()} devices", flush=True)
    own = jnp.array([rank + 1.0])

    gathered = multihost_utils.process_allgather(own)
    print(f"rank {rank}: gathered {sorted(float(v) for v in gathered.ravel())}", flush=True)

    # One value per local device; psum adds over every device of every process.
    per_device = jnp.repeat(own, jax.local_device_count())[:, None]
    total = jax.pmap(lambda v: jax.lax.psum(v, "all"), axis_name="all")(per_device)
    print(f"rank {rank}: psum {float(total.addressable_data(0).ravel()[0]):g}", flush=True)


if __name__ == "__main__":
    main()
