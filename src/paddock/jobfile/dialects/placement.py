"""Complete a job with its allocation: number of nodes, node rank, master; flags come first.

A job meant for several nodes without a rank in the allocation is a problem, never a job of one.
"""

from __future__ import annotations

from paddock.core.endpoint import is_host, join_endpoint, split_endpoint, split_scheme
from paddock.core.job import ValueSource
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import ArgValue, is_set
from paddock.jobfile.dialects.allocation import SIGNS, read_allocation
from paddock.jobfile.reader import to_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.jobfile.dialects.allocation import Allocation
    from paddock.jobfile.environment import EnvironmentReading

MEETINGS = ("master", "elastic_server", "rdzv_endpoint", "master_addr")
LISTS = ("ips", "servers", "trainers", "heter_workers")  # they name the nodes themselves
PROCESS_COUNTS = ("nproc_per_node", "server_num", "trainer_num", "heter_worker_num")
TRAINERS = "PADDLE_INIT_NUM_GRADIENT_SERVERS"
ALONE = "for this process alone: --standalone"


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
    is_one = nnodes is not None and nnodes.text.strip() == "1"
    return is_one or ("rank" in values and nnodes is not None) or any(n in values for n in LISTS)


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
    _give(reading, "job_id", found.job, found.kind_name)
    if found.local_size > 1:
        if not any(name in values for name in PROCESS_COUNTS):
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
    if any(name in values for name in MEETINGS):
        return
    if found.first and found.port:
        _give(reading, "master", join_endpoint(found.first, found.port), found.hosts_name)
    elif found.among:
        _give(reading, "among", ",".join(found.among), found.hosts_name)
        _give(reading, "among_port", str(found.port), found.kind_name)
    elif found.hostfile:
        _give(reading, "hostfile", found.hostfile, found.hosts_name)
        _give(reading, "among_port", str(found.port), found.kind_name)
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
    values = reading.values
    is_said = any(n in values for n in ("nnodes", *PROCESS_COUNTS, *LISTS, "standalone", "file"))
    if number > 1 and not is_said:
        problem = Problem(
            f"{TRAINERS}={number}: nothing says how so many trainers are started",
            f"--nproc-per-node {number} on one machine, --nnodes and --master on several; {ALONE}",
        )
        reading.problems.append(problem)
