"""A program written for mpirun that reads Open MPI's variables and calls no MPI.

    paddock launch --nproc-per-node 2 examples/mpi_style.py

Many scripts find their share of the work like this. Each rank adds its share of 1..100 and says so;
the shares add up to 5050 for any number of processes.
"""

import os


def main() -> None:
    """Sum the numbers of 1..100 that belong to this rank."""
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    local_rank = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
    share = sum(range(rank + 1, 101, size))
    print(f"rank {rank} of {size} (local {local_rank}): share {share}", flush=True)


if __name__ == "__main__":
    main()
