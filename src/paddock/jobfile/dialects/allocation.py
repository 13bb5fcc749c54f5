"""The allocation of Slurm, MPI or PBS around us, and what follows from it for the job.

read_allocation: our rank, the size, the host of rank 0, from variables. apply_allocation: the
number of nodes, the node rank and the master from these; flags come first. resolve_hosts: the file
of hosts of PBS, the only I/O. Each process that srun or mpirun starts is a node of the job; several
on a host are several nodes. A job meant for several nodes without a rank in the allocation is a
problem, never a job of one.

Measured: Slurm 22.05, Open MPI 4.1.4. Read: srun(1) of Slurm 25.05 (OUTPUT ENVIRONMENT VARIABLES),
slurm.h (step numbers), "Environment variables" in the documents of Open MPI 5.0, MPICH
src/pm/hydra, pbs_environment of OpenPBS.
"""

from __future__ import annotations

from paddock.core.endpoint import is_host, join_endpoint, split_endpoint, split_scheme
from paddock.core.hosts import LOOPBACK
from paddock.core.job import ValueSource
from paddock.core.value import replace, value
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import NODE_LISTS, OTHER_MASTERS, ArgValue, is_set, to_integer
from paddock.jobfile.dialects.hostlist import expand_hosts, read_hostfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.job import Job
    from paddock.jobfile.args import EnvironmentReading

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
PROCESS_COUNTS = ("nproc_per_node", "server_num", "trainer_num", "heter_worker_num")
TRAINERS = "PADDLE_INIT_NUM_GRADIENT_SERVERS"
ALONE = "for this process alone: --standalone"
HOSTFILE_HINT = "add --master HOST:PORT, an address and a free port of the first host"


@value
class Allocation:
    """The rank and size of the processes that a resource manager started together.

    rank, size: of these; None where nothing says. local_rank, local_size: of those on this host; 0
    unknown.
    first: the host of rank 0, "" unknown; among: then the hosts that may be it. hostfile: a file
    that names the hosts, perhaps not on this host. job: a name that no other job has, "" where
    nothing gives one. port: derived from it, 0 without. idle: the nodes of an allocation in which
    nothing has been started but this. *_name: the variable that says so, job_name that of job and
    port.
    """

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
    job_name: str = ""


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
            return _of_mpi(env, kind, *names)
    if _first(env, SLURM_JOBS):
        return _of_slurm(env)
    if env.get(PMIX[1]):
        return _of_mpi(env, "pmix", *PMIX[1:])
    if env.get("PBS_NODEFILE"):
        return Allocation(hostfile=env["PBS_NODEFILE"], hosts_name="PBS_NODEFILE")
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
        return Allocation(idle=count, hosts_name=name)
    size_name = _first(env, SLURM_SIZES)
    rank, size = _place(env, "SLURM_PROCID", size_name or SLURM_SIZES[0])
    hosts_name = _first(env, ("SLURM_STEP_NODELIST", *SLURM_LISTS))
    hosts = _hosts(env, hosts_name)
    step = env[_first(env, SLURM_STEPS)]
    again = env.get("SLURM_RESTART_COUNT", "0")
    return Allocation(
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
        job_name=job,
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
    env: Mapping[str, str], kind: str, rank: str, size: str, local_rank: str, local_size: str
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
        job_name=job_name,
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


def apply_allocation(reading: EnvironmentReading) -> None:
    """Complete the values with our rank in the allocation around us, if there is one."""
    if any(reading.get(name) for name in SIGNS) and not _is_settled(reading):
        try:
            found = read_allocation(reading.env)
            if found is not None:
                _complete(reading, found)
        except UsageError as error:
            reading.problems.extend(error.problems)
    _check_trainers(reading)


def _is_settled(reading: EnvironmentReading) -> bool:
    """Return True if the user has given the nodes of the job."""
    values = reading.values
    if is_set(values, "standalone"):
        return True
    nnodes = values.get("nnodes")
    if nnodes is not None and ("rank" in values or nnodes.text.strip() == "1"):
        return True
    return not values.keys().isdisjoint(NODE_LISTS)


def _complete(reading: EnvironmentReading, found: Allocation) -> None:
    values = reading.values
    if found.rank is None:
        _check_idle(reading, found)
        return
    if found.size == 1:
        return
    if "file" in values:
        raise UsageError(
            f"{found.size_name}={found.size}, and -f runs its whole job in each of these processes",
            hint=f"start it once; {ALONE}",
        )
    if not _is_size_taken(reading, found):
        return
    _give(reading, "rank", str(found.rank), found.rank_name)
    _give(reading, "job_id", found.job, found.job_name)
    if found.local_size > 1:
        if values.keys().isdisjoint(PROCESS_COUNTS):
            _give(reading, "nproc_per_node", "1", found.local_name)
        _give(reading, "host_part", f"{found.local_rank}/{found.local_size}", found.local_name)
    _meet(reading, found)


def _check_idle(reading: EnvironmentReading, found: Allocation) -> None:
    """Refuse a single process in an allocation of several nodes, with none on the others."""
    if "nnodes" in reading.values:
        return
    if found.idle > 1:
        name = found.hosts_name
        raise UsageError(
            f"{found.idle} nodes are allocated ({name}={reading.get(name)}), and this is one "
            "process on one of them",
            hint=f"write srun paddock launch ...; {ALONE}",
        )
    if found.hostfile:
        _give(reading, "hostfile", found.hostfile, found.hosts_name)


def _is_size_taken(reading: EnvironmentReading, found: Allocation) -> bool:
    """Return True if the processes of the allocation are the nodes of the job."""
    given = reading.values.get("nnodes")
    if given is None and found.size is None:
        raise UsageError(
            f"{found.rank_name}={found.rank}, but no variable says of how many",
            hint=f"add --nnodes N; {ALONE}",
        )
    if given is None:
        _give(reading, "nnodes", str(found.size), found.size_name)
        return True
    low, _, high = given.text.partition(":")
    least, most = to_integer(low), to_integer(high or low)
    if least is None or most is None or found.size is None or least <= found.size <= most:
        return True
    reading.notes.append(
        f"{found.size_name}={found.size} is not used, nor the rank beside it: "
        f"{given.source.name} {given.text} is given"
    )
    return False


def _meet(reading: EnvironmentReading, found: Allocation) -> None:
    values = reading.values
    master = values.get("master")
    if master is not None:
        scheme, host = split_scheme(master.text.strip())
        if found.port and not scheme and is_host(host.strip("[]")) and not split_endpoint(host)[1]:
            text = join_endpoint(host.strip("[]"), found.port)
            values["master"] = ArgValue(text, master.source)
        return
    if not values.keys().isdisjoint(OTHER_MASTERS):
        return
    if found.first and found.port:
        _give(reading, "master", join_endpoint(found.first, found.port), found.hosts_name)
    elif found.among:
        _give(reading, "among", ",".join(found.among), found.hosts_name)
        _give(reading, "among_port", str(found.port), found.job_name)
    elif found.hostfile:
        _give(reading, "hostfile", found.hostfile, found.hosts_name)
        _give(reading, "among_port", str(found.port), found.job_name)
    else:
        size = f"{found.size_name}={found.size}" if found.size else found.rank_name
        raise UsageError(
            f"{size}, but no variable says where the first of these processes is",
            hint="add --master HOST:PORT, an address and a free port of the host of rank 0",
        )


def _give(reading: EnvironmentReading, name: str, text: str, variable: str) -> None:
    if text and name not in reading.values:
        source = ValueSource("environment", variable, reading.get(variable))
        reading.values[name] = ArgValue(text, source)


def _check_trainers(reading: EnvironmentReading) -> None:
    """Report a number of trainers, as scripts of Paddle 0.10 export it, that no flag explains."""
    number = to_integer(reading.get(TRAINERS)) or 1
    known = ("nnodes", *PROCESS_COUNTS, *NODE_LISTS, "standalone", "file")
    if number > 1 and reading.values.keys().isdisjoint(known):
        problem = Problem(
            f"{TRAINERS}={number}: nothing says how so many trainers are started",
            f"--nproc-per-node {number} on one machine, --nnodes and --master on several; {ALONE}",
        )
        reading.problems.append(problem)


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
                raise UsageError(what, hint=HOSTFILE_HINT) from error
    if is_placed:
        return replace(job, rendezvous=replace(job.rendezvous, among=hosts))
    if len(hosts) > 1:
        raise UsageError(
            f"PBS_NODEFILE={path} names {len(hosts)} hosts, and this is one process on one of them",
            hint=f"write mpirun -n {len(hosts)} -npernode 1 paddock launch ...; {ALONE}",
        )
    return job
