"""The allocation of Slurm, MPI or PBS around us: our rank, the size, the host of rank 0. Pure.

Each process that srun or mpirun starts is a node of the job; several on a host are several nodes.

Measured: Slurm 22.05, Open MPI 4.1.4. Read: srun(1) of Slurm 25.05 (OUTPUT ENVIRONMENT VARIABLES),
slurm.h (step numbers), "Environment variables" in the documents of Open MPI 5.0, MPICH
src/pm/hydra, pbs_environment of OpenPBS.
"""

from __future__ import annotations

from paddock.core.hosts import LOOPBACK
from paddock.core.value import value
from paddock.errors import UsageError
from paddock.jobfile.dialects.hostlist import expand_hosts
from paddock.jobfile.reader import to_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    Kind = Literal["slurm", "openmpi", "mvapich", "pmi", "pmix", "pbs"]

# Kind, then the variables of rank, size, rank and size on the host. The first one found counts:
# mpirun inside Slurm starts its daemons with srun, whose variables are those of the daemon.
MPI = (
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mvapich", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)  # fmt: skip
PMIX = ("pmix", "PMIX_RANK", "", "", "")  # its size is not in the environment
MPI_JOBS = ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PBS_JOBID")
SLURM_SIZES = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
SLURM_STEPS = ("SLURM_STEP_ID", "SLURM_STEPID")
SLURM_JOBS = ("SLURM_JOB_ID", "SLURM_JOBID")
SLURM_NODE_COUNTS = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
SLURM_LISTS = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
# Numbers of steps above are no srun: the batch script, salloc's shell (slurm.h).
FIRST_SPECIAL_STEP = 0xFFFFFFF0
SIGNS = (*SLURM_JOBS, *(name for row in MPI for name in row[1:3]), PMIX[1], "PBS_NODEFILE")
PORTS = (20_000, 10_000)  # first, count: below those that Linux gives away (32768)


@value
class Allocation:
    """The rank and size of the processes that a resource manager started together.

    rank, size: of these; None where nothing says. local_rank, local_size: of those on this host; 0
    unknown.
    first: the host of rank 0, "" unknown; among: then the hosts that may be it. hostfile: a file
    that names the hosts, perhaps not on this host. job: a name that no other job has, "" where
    nothing gives one. port: derived from it, 0 without. idle: the nodes of an allocation in which
    nothing has been started but this. *_name: the variable that says so, kind_name that of job and
    port.
    """

    kind: Kind
    rank: int | None = None
    size: int | None = None
    local_rank: int = 0
    local_size: int = 0
    first: str = ""
    among: tuple[str, ...] = ()
    hostfile: str = ""
    job: str = ""
    port: int = 0
    idle: int = 1
    rank_name: str = ""
    size_name: str = ""
    local_name: str = ""
    hosts_name: str = ""
    kind_name: str = ""


def read_allocation(env: Mapping[str, str]) -> Allocation | None:
    """Read our allocation; None without a resource manager. Raises UsageError if half is missing.

    >>> env = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1",
    ...        "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "h[1-2]"}
    >>> found = read_allocation(env)
    >>> found.rank, found.size, found.first, found.port
    (1, 2, 'h1', 20112)
    """
    for kind, *names in MPI:
        if any(env.get(name) for name in names[:2]):
            of_srun = [env.get("SLURM_PROCID"), env.get(_first(env, SLURM_SIZES))]
            if kind == "pmi" and _is_step(env) and of_srun == [env.get(n) for n in names[:2]]:
                break  # srun speaks PMI, too, and knows the hosts
            return _of_mpi(env, kind, *names)  # type: ignore[arg-type]  # rows of MPI
    if _first(env, SLURM_JOBS):
        return _of_slurm(env)
    if env.get(PMIX[1]):
        return _of_mpi(env, "pmix", *PMIX[1:])
    if env.get("PBS_NODEFILE"):
        return Allocation("pbs", hostfile=env["PBS_NODEFILE"], hosts_name="PBS_NODEFILE")
    return None


def port_of(job: str, step: int = 0) -> int:
    """The rendezvous port of a job's processes. Jobs whose numbers are near each other have
    different ones.
    """
    number = to_integer(job)
    if number is None:
        number = 0
        for letter in job:
            number = (number * 31 + ord(letter)) % 1_000_003
    return PORTS[0] + (number * 16 + step) % PORTS[1]


def _of_slurm(env: Mapping[str, str]) -> Allocation:
    job = _first(env, SLURM_JOBS)
    job_id = env[job]
    if not _is_step(env):
        count = _number(env, _first(env, SLURM_NODE_COUNTS)) or 1
        name = _first(env, SLURM_LISTS) or _first(env, SLURM_NODE_COUNTS)
        return Allocation("slurm", idle=count, hosts_name=name)
    size_name = _first(env, SLURM_SIZES)
    rank, size = _place(env, "SLURM_PROCID", size_name or SLURM_SIZES[0])
    hosts_name = _first(env, ("SLURM_STEP_NODELIST", *SLURM_LISTS))
    hosts = _hosts(env, hosts_name)
    step = env[_first(env, SLURM_STEPS)]
    again = env.get("SLURM_RESTART_COUNT", "0")
    return Allocation(
        "slurm",
        rank=rank,
        size=size,
        local_rank=_number(env, "SLURM_LOCALID") or 0,
        local_size=_tasks_here(env),
        first=LOOPBACK if len(hosts) == 1 else hosts[0] if hosts else "",
        job=f"slurm-{job_id}.{step}" + (f".r{again}" if again != "0" else ""),
        port=port_of(job_id, to_integer(step) or 0),
        rank_name="SLURM_PROCID",
        size_name=size_name,
        local_name="SLURM_STEP_TASKS_PER_NODE",
        hosts_name=hosts_name,
        kind_name=job,
    )


def _is_step(env: Mapping[str, str]) -> bool:
    """Return True if srun started us, and not sbatch or salloc: their SLURM_PROCID is 0 at best."""
    step = to_integer(env.get(_first(env, SLURM_STEPS), ""))
    return step is not None and step < FIRST_SPECIAL_STEP and bool(_first(env, SLURM_JOBS))


def _tasks_here(env: Mapping[str, str]) -> int:
    """The tasks here: SLURM_STEP_TASKS_PER_NODE, as 2(x3),1, at our SLURM_NODEID; 0: unknown."""
    at = to_integer(env.get("SLURM_NODEID", ""))
    if at is None:
        return 0
    for item in env.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        count, _, times = item.partition("(x")
        at -= to_integer(times.rstrip(")")) or 1
        if at < 0:
            return to_integer(count) or 0
    return 0


def _of_mpi(
    env: Mapping[str, str], kind: Kind, rank: str, size: str, local_rank: str, local_size: str
) -> Allocation:
    place = _place(env, rank, size)
    here = _number(env, local_size) or 0
    # Each mpirun has a number of its own; of Open MPI 5 it is a name.
    job_name = _first(env, (*MPI_JOBS[:2], *SLURM_JOBS, MPI_JOBS[2]))
    job = env.get(job_name, "")
    job_word = "".join(c if c.isalnum() or c in "-._" else "-" for c in job)[:100]
    hosts_name = _first(env, ("OMPI_MCA_orte_node_regex", *SLURM_LISTS))
    first, among = "", _hosts(env, hosts_name)
    if here and here == place[1]:
        first, among, hosts_name = LOOPBACK, (), local_size
    return Allocation(
        kind,
        rank=place[0],
        size=place[1],
        local_rank=_number(env, local_rank) or 0,
        local_size=here,
        first=first,
        among=among if job else (),
        hostfile=env.get("PBS_NODEFILE", "") if job and not (first or among) else "",
        job=f"{kind}-{job_word}" if job else "",
        port=port_of(job) if job else 0,
        rank_name=rank,
        size_name=size,
        local_name=local_size,
        hosts_name=hosts_name or "PBS_NODEFILE",
        kind_name=job_name,
    )


def _hosts(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    if not env.get(name):
        return ()
    try:
        return tuple(dict.fromkeys(expand_hosts(env[name])))
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", hint="name the first host: --master host:port"
                         ) from error  # fmt: skip


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((name for name in names if env.get(name)), "")


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    number = to_integer(text)
    if number is None or number < 0:
        raise UsageError(f"{name}={text}: not a whole number", hint="it is set by srun or mpirun")
    return number


def _place(env: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int | None]:
    """Our rank and the size, None where it is not told. Raises UsageError without a usable rank."""
    rank, size = _number(env, rank_name), _number(env, size_name)
    hint = "give --nnodes, --rank and --master, or --standalone for this process alone"
    if rank is None:
        raise UsageError(f"{size_name}={env.get(size_name, '')}, but {rank_name} is not set, so "
                         "this process does not know which of them it is", hint=hint)  # fmt: skip
    if size is not None and rank >= size:
        raise UsageError(f"{rank_name}={rank} is not below {size_name}={size}", hint=hint)
    return rank, size
