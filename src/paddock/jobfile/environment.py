"""The job's values from environment variables, as the named texts that the flags give.

A flag wins over a variable, as in torchrun, mpirun and srun. The exceptions are the variables by
which a platform tells a pod its place: WINNING, IN_A_PADDLEJOB, and lists of endpoints. Paddle's
launcher lets every variable of MAPPING win; one command line serves all pods of a job, so only for
these there is no other way. Among variables: MAPPING, then FALLBACKS, then PET_*
(dialects/torchrun.py), then the place that Slurm and mpirun gave (dialects/allocation.py).
"""

from __future__ import annotations

from paddock.core.endpoint import (
    ETCD_PORT,
    join_endpoint,
    parse_endpoint,
    split_endpoint,
    without_login,
)
from paddock.core.job import ValueSource
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import TORCHRUN_RANK, ArgValue, EnvironmentReading
from paddock.jobfile.flags import FLAGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Variable and flag. Of two for one flag the later wins (args_envs.py, paddle 3.3.1).
MAPPING = tuple((variable, flag.name) for flag in FLAGS for variable in flag.env)
# These win over the flag wherever they are set; paddle-operator and PaddleCloud set them.
WINNING = ("PADDLE_TRAINER_ID", "POD_IP")
# These win over the flag in a pod of a PaddleJob, whose size and meeting point the operator knows.
IN_A_PADDLEJOB = ("PADDLE_MASTER", "PADDLE_NNODES")
PADDLEJOB_SIGN = "PADDOCK_JOB_UID"  # operator/environment.py
# Used where neither the command line nor MAPPING says anything: fleet/elastic/manager.py,
# fleet/launch.py.
FALLBACKS = (
    ("PADDLE_ELASTIC_SERVER", "elastic_server"),
    ("PADDLE_ELASTIC_JOB_ID", "job_id"),
    ("PADDLE_ELASTIC_NP", "nnodes"),
    ("FLAGS_START_PORT", "start_port"),
    ("FLAGS_FIXED_PORT", "fixed_port"),
    ("PORT_RANGE", "port_range"),
    ("PADDOCK_WARM", "warm"),
    ("PADDOCK_CONSOLE", "console"),
    ("PADDOCK_DEBUG_RANKS", "debug_ranks"),
)
TORCHRUN_PREFIXES = ("PET_", "TORCHELASTIC_LOG_LINE", "TORCH_ELASTIC_")
# What srun and mpirun set, and a script of Paddle 0.10 (jobfile/dialects/allocation.py).
ALLOCATION_PREFIXES = ("SLURM_", "OMPI_COMM_", "PMI_", "PMIX_", "MV2_COMM_", "PBS_", "PADDLE_INIT_")
DEFAULT_MASTER_PORT = 6768  # plugins/__init__.py, collective_compatible
DEFAULT_CLOUD_PORT = 6170  # fleet/cloud_utils.py
OPERATOR_PORTS = 20  # paddle-operator: p-0..p-19


def apply_environment(values: dict[str, ArgValue], env: Mapping[str, str]) -> EnvironmentReading:
    """Apply every rule of this file to the values of the command line.

    >>> r = apply_environment({}, {"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:6170,10.0.0.2:6170"})
    >>> {name: given.text for name, given in r.values.items()}
    {'master': '10.0.0.1:6170', 'nnodes': '2'}
    """
    reading = EnvironmentReading(values, env)
    is_pod = bool(reading.get(PADDLEJOB_SIGN))
    for variable, name in MAPPING:
        text = reading.get(variable)
        if not text or (variable == "PADDLE_TRAINER_ID" and text.startswith("-")):
            continue
        is_winner = variable in WINNING or (is_pod and variable in IN_A_PADDLEJOB)
        (reading.override if is_winner else reading.fill)(name, variable, text)
    _apply_fallbacks(reading)
    if any(name.startswith(TORCHRUN_PREFIXES) for name in env):
        from paddock.jobfile.dialects.torchrun import apply_pet  # only for those who use torchrun's

        apply_pet(reading)
    if not _apply_operator_ps(reading) and not _apply_endpoints(reading):
        _apply_cloud(reading)
    is_placed = any(name.startswith(ALLOCATION_PREFIXES) for name in reading.env)
    if is_placed and not (reading.is_nested or reading.get(TORCHRUN_RANK)):
        from paddock.jobfile.dialects.allocation import apply_allocation  # only in an allocation

        apply_allocation(reading)
    reading.notes += [
        f"{variable}={without_login(reading.get(variable))} wins over {', '.join(flags)} "
        "(--ignore-env: the flags win)"
        for variable, flags in reading.overridden.items()
    ]
    return reading


def _apply_fallbacks(reading: EnvironmentReading) -> None:
    service = reading.get("PADDLE_ELASTIC_ETCD_SERVICE_HOST")
    for variable, name in FALLBACKS:
        text = reading.get(variable)
        if variable == "PADDLE_ELASTIC_SERVER" and not text and service:
            variable = "PADDLE_ELASTIC_ETCD_SERVICE_HOST"
            port = reading.get("PADDLE_ELASTIC_ETCD_SERVICE_PORT") or ETCD_PORT
            text = join_endpoint(service, port)
        if not text or name in reading.values:
            continue
        meetings = ("master", "elastic_server", "rdzv_endpoint")
        if variable == "PADDLE_ELASTIC_NP" and reading.values.keys().isdisjoint(meetings):
            reading.notes.append(
                f"PADDLE_ELASTIC_NP={text} is not used: neither PADDLE_ELASTIC_SERVER nor "
                "--master says where the nodes meet"
            )
            continue
        reading.fill(name, variable, text)
    level = reading.get("PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL")
    if level in ("1", "2") and "elastic_level" not in reading.values:
        reading.fill("elastic_level", "PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL", "1")


def _apply_endpoints(reading: EnvironmentReading) -> bool:
    """PADDLE_TRAINER_ENDPOINTS and DISTRIBUTED_TRAINER_ENDPOINTS; the latter wins."""
    is_found = False
    for variable in ("PADDLE_TRAINER_ENDPOINTS", "DISTRIBUTED_TRAINER_ENDPOINTS"):
        text = reading.get(variable)
        if not text:
            continue
        is_found = True
        # An elastic job meets at its etcd; how many nodes there are today does not fix its size.
        is_elastic = "elastic_server" in reading.values
        if is_elastic or reading.get("PADDLE_LAUNCH_WITH_ARGS") not in ("", "0"):
            continue
        endpoints = _items(text)
        if not endpoints:
            reading.problems.append(Problem(f"{variable}={text}: names no endpoint"))
            continue
        hosts = [split_endpoint(e)[0] for e in endpoints]
        # Pods that share a host have the same endpoint (Host mode of paddle-operator).
        is_shared = len(set(endpoints)) < len(endpoints)
        nnodes = len(endpoints) if is_shared else len(set(hosts))
        master = endpoints[0]
        if master in (hosts[0], f"[{hosts[0]}]"):
            master = join_endpoint(hosts[0], DEFAULT_MASTER_PORT)
        reading.override("master", variable, master)
        reading.override("nnodes", variable, str(nnodes))
        if not is_shared and _is_cloud(reading):
            _apply_cloud_ports(reading, master)
    return is_found


def _apply_cloud(reading: EnvironmentReading) -> None:
    """Apply PaddleCloud's variables without an endpoint list: all four must be there."""
    nodes = _items(reading.get("PADDLE_TRAINERS"))
    has_meeting = "master" in reading.values or "elastic_server" in reading.values
    if len(nodes) < 2 or has_meeting or not _is_cloud(reading):
        return
    port = reading.get("PADDLE_PORT") or str(DEFAULT_CLOUD_PORT)
    ips = reading.values.get("ips")
    if ips is not None and ips.text == ",".join(nodes):
        del reading.values["ips"]
    reading.set_aside("ips", "PADDLE_TRAINERS")
    master = join_endpoint(nodes[0], port)
    reading.override("master", "PADDLE_TRAINERS", master)
    reading.override("nnodes", "PADDLE_TRAINERS", str(len(nodes)))
    _apply_cloud_ports(reading, master)


def _is_cloud(reading: EnvironmentReading) -> bool:
    names = ("PADDLE_TRAINERS", "POD_IP", "PADDLE_TRAINER_ID", "TRAINER_PORTS_NUM")
    return all(reading.get(n) for n in names)


def _apply_cloud_ports(reading: EnvironmentReading, master: str) -> None:
    """Take the processes' ports from those that the platform gave the pod.

    Paddle takes PADDLE_PORT and those after it (fleet/cloud_utils.py). Its launcher needs none for
    itself; ours has its rendezvous at the first, so the processes start at the second.
    """
    port, number = reading.get("PADDLE_PORT"), reading.get("TRAINER_PORTS_NUM")
    is_given = any(name in reading.values for name in ("start_port", "fixed_port", "port_range"))
    if is_given or not (port.isdigit() and number.isdigit()) or int(number) < 2:
        return
    first = int(port) + (1 if master.endswith(f":{port}") else 0)
    reading.values["start_port"] = ArgValue(
        str(first), ValueSource("environment", "PADDLE_PORT", port)
    )


def _apply_operator_ps(reading: EnvironmentReading) -> bool:
    """Apply the variables of a ps job of paddle-operator: one process per pod, known endpoints.

    Its nodes are the server pods, then the workers, then the heter pods. Their rendezvous is the
    last of the first pod's ports, which neither a process nor Gloo uses.
    """
    servers = reading.get("PADDLE_PSERVERS_IP_PORT_LIST")
    workers = reading.get("PADDLE_TRAINER_ENDPOINTS")
    heter = reading.get("PADDLE_HETER_ENDPOINTS")
    role = reading.get("TRAINING_ROLE") or reading.get("PADDLE_TRAINING_ROLE")
    index = reading.get("PADDLE_TRAINER_ID")
    ports_num = reading.get("TRAINER_PORTS_NUM")
    if not (servers and workers and role and index.isdigit() and ports_num):
        return False
    first_worker = len(_items(servers))
    first_heter = first_worker + len(_items(workers))
    # HETER: of paddle-operator; HETER_TRAINER: what Paddle reads, and our operator sets.
    before = {"TRAINER": first_worker, "HETER": first_heter, "HETER_TRAINER": first_heter}
    try:
        host, port = parse_endpoint(servers.split(",")[0].strip())
    except UsageError as error:
        what = f"PADDLE_PSERVERS_IP_PORT_LIST: {error.message}"
        reading.problems.append(Problem(what, error.hint))
        return False
    span = int(ports_num) if ports_num.isdigit() else OPERATOR_PORTS
    reading.override("servers", "PADDLE_PSERVERS_IP_PORT_LIST", servers)
    reading.override("trainers", "PADDLE_TRAINER_ENDPOINTS", workers)
    reading.override("run_mode", "PADDLE_PSERVERS_IP_PORT_LIST", "ps-heter" if heter else "ps")
    if heter:
        reading.override("heter_workers", "PADDLE_HETER_ENDPOINTS", heter)
    master = join_endpoint(host, min(port + span - 1, 65535))
    reading.override("master", "PADDLE_PSERVERS_IP_PORT_LIST", master)
    reading.override("rank", "TRAINING_ROLE", str(before.get(role, 0) + int(index)))
    for name in ("nnodes", "server_num", "trainer_num", "ips"):
        reading.set_aside(name, "PADDLE_PSERVERS_IP_PORT_LIST")
    return True


def _items(text: str) -> list[str]:
    """The items of a comma list that are not empty."""
    return [item.strip() for item in text.split(",") if item.strip()]
