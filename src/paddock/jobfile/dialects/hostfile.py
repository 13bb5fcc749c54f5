"""The hosts of a job that only a file names: PBS_NODEFILE. Does I/O: reads that file."""

from __future__ import annotations

from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.jobfile.dialects.hostlist import read_hostfile
from paddock.jobfile.dialects.placement import ALONE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Job

MASTER = "add --master HOST:PORT, an address and a free port of the first host"


def resolve_hosts(job: Job) -> Job:
    """The job with the hosts of its hostfile. Raises UsageError where they are needed and cannot be
    read, and where nothing has been started on the others.
    """
    path = job.rendezvous.hostfile
    is_placed = job.rendezvous.kind == "tcp"
    hosts: tuple[str, ...] = ()
    if is_placed and job.rendezvous.node_rank == 0:
        hosts = ("localhost",)  # the others look for us
    else:
        try:
            with open(path, encoding="utf-8") as file:
                hosts = tuple(machine.host for machine in read_hostfile(file.read()))
        except (OSError, UnicodeError, UsageError) as error:
            if is_placed:
                why = getattr(error, "strerror", None) or error
                what = f"PBS_NODEFILE={path} cannot be read: {why}"
                raise UsageError(what, hint=MASTER) from error
    if is_placed:
        return replace(job, rendezvous=replace(job.rendezvous, among=hosts))
    if len(hosts) > 1:
        raise UsageError(
            f"PBS_NODEFILE={path} names {len(hosts)} hosts, and this is one process on one of them",
            hint=f"write mpirun -n {len(hosts)} -npernode 1 paddock launch ...; {ALONE}",
        )
    return job
