"""A program that calls MPI_Init, started by Paddock and not by mpirun.

    paddock launch --nproc-per-node 2 examples/mpi4py_hello.py

Without mpirun's daemon each process is an MPI world of its own (a "singleton"): MPI starts and ends
well, and the rank comes from the environment. For one world over all ranks use mpirun itself.
"""

import os

from mpi4py import MPI  # calls MPI_Init; MPI_Finalize is called at exit


def main() -> None:
    """Say which rank this is, by Paddock and by MPI."""
    rank, size = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"]
    world = MPI.COMM_WORLD
    total = world.allreduce(1)
    print(f"rank {rank} of {size}: MPI is up, its world has {total} process(es)", flush=True)


if __name__ == "__main__":
    main()
