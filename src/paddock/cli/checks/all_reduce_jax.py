"""The script that each rank of ``paddock check --framework jax`` runs; no module imports it.

    all_reduce_jax.py DEVICE_KIND     ("cpu", or what each rank has one of)

import_module, because nothing of Paddock imports a framework or needs one to be type-checked.
"""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    jax = import_module("jax")
    if sys.argv[1] == "cpu":
        jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize()
    count = jax.local_device_count()
    own = jax.numpy.full((count, 1), (jax.process_index() + 1.0) / count)
    total = jax.pmap(lambda part: jax.lax.psum(part, "all"), axis_name="all")(own)
    found = float(total.addressable_data(0).ravel()[0])
    if found != 3.0:
        sys.exit(f"the all-reduce of 1 and 2 gave {found}")
    if jax.process_index() == 0:
        sys.stdout.write(f"\npaddock-check {jax.default_backend()} xla\n")
