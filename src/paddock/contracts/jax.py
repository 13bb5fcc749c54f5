"""JAX: lets a bare `jax.distributed.initialize()` find coordinator, size, id and devices.

Source: jax 0.10.2, jax/_src/distributed.py (State.initialize) and
jax/_src/clusters/ompi_cluster.py. The coordinator comes from JAX_COORDINATOR_ADDRESS; size and id
only from a detected cluster, and the one detected from the environment alone is Open MPI, by the
presence of OMPI_MCA_orte_hnp_uri. Why that is safe for programs that call MPI_Init:
docs/decisions/0002-jax-and-mpi-in-one-environment.md.
"""

from __future__ import annotations

from paddock.core.endpoint import split_endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The JAX environment of one worker; empty for other roles.

    JAX_NUM_PROCESSES and JAX_PROCESS_ID are not read by jax 0.10; scripts that pass the
    arguments by hand commonly look there.
    """
    if proc.role != "worker":
        return {}
    coordinator = world.plan.jax_coordinator
    address, port = split_endpoint(coordinator)
    scheme = f"tcp6://[{address}]" if ":" in address else f"tcp://{address}"
    found = {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_COORDINATOR_PORT": port,
        "JAX_NUM_PROCESSES": str(world.size),
        "JAX_PROCESS_ID": str(proc.rank),
        "OMPI_MCA_orte_hnp_uri": f"0.0;{scheme}:{port}",
        "OMPI_COMM_WORLD_SIZE": str(world.size),
        "OMPI_COMM_WORLD_RANK": str(proc.rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(proc.local_rank),
    }
    if proc.device_indices:
        # Else jax takes device number OMPI_COMM_WORLD_LOCAL_RANK, wrong for a process
        # that owns all devices of its node or a later share of them.
        found["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, proc.device_indices))
    return found
