"""MPI-like programs: rank and size under the names that mpirun and mpiexec export.

For programs that read the environment (shell scripts, data loaders, Horovod-style helpers). There
is no MPI run time behind it: MPI_Init gives every process a world of its own, of size 1
(docs/decisions/0002-jax-and-mpi-in-one-environment.md).

Source: https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html (OMPI_COMM_WORLD_*),
MPICH src/pm/hydra (PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The MPI-like environment of one worker; empty for other roles."""
    if proc.role != "worker":
        return {}
    rank, size = str(proc.rank), str(world.size)
    local_rank, local_size = str(proc.local_rank), str(world.local_size(proc))
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_LOCAL_RANK": local_rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": local_size,
        # Open MPI's "node rank" is the rank among the processes of the node, not of the nodes.
        "OMPI_COMM_WORLD_NODE_RANK": local_rank,
        "OMPI_UNIVERSE_SIZE": size,
        "PMI_RANK": rank,
        "PMI_SIZE": size,
        "MPI_LOCALRANKID": local_rank,
        "MPI_LOCALNRANKS": local_size,
    }
