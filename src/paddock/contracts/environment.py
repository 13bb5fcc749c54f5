"""The environment variables of each process: those inherited, set and removed.

``shared_env`` is worked out once per node, ``proc_env`` per process; nothing is read or written
here, and no value ever goes into a message.
"""

from __future__ import annotations

from paddock.contracts import contracts_of, merge, world_of
from paddock.core.hosts import HIDES_OTHERS
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.contracts import Contract, World
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc

    Backup = tuple[str, dict[str, str]] | None

# The launcher's own configuration (jobfile/environment.py) and the rank of an outer job:
# a process that starts a launcher or a training program of its own must not find them.
DROPPED = frozenset(
    """
    PADDLE_MASTER PADDLE_NNODES PADDLE_NPROC_PER_NODE PADDLE_DEVICES PADDLE_TRAINER_ID PADDLE_RANK
    PADDLE_IPS PADDLE_START_PORT PADDLE_JOB_ID PADDLE_LOG_DIR PADDLE_LOG_OVERWRITE PADDLE_LOG_LEVEL
    PADDLE_RUN_MODE PADDLE_MAX_RESTART PADDLE_SORT_IP PADDLE_SERVERS_ENDPOINTS
    PADDLE_TRAINERS_ENDPOINTS PADDLE_SERVER_NUM PADDLE_TRAINER_NUM PADDLE_GLOO_PORT
    PADDLE_WITH_GLOO PADDLE_AUTO_PARALLEL_CONFIG PADDLE_AUTO_PARALLEL_STAGE PADDLE_AUTO_CLUSTER
    PADDLE_TRAINER_ENDPOINTS DISTRIBUTED_TRAINER_ENDPOINTS PADDLE_LAUNCH_WITH_ARGS PORT_RANGE
    FLAGS_FIXED_PORT FLAGS_START_PORT PADDLE_ENV_LIMIT_LEN PADDLE_BACKUP_ENV_PATH
    PADDLE_TRAINERS PADDLE_TRAINERS_NUM PADDLE_PORT TRAINER_PORTS_NUM TRAINER_IP_PORT_LIST
    PADDLE_PSERVERS_IP_PORT_LIST PADDLE_PSERVER_ID PADDOCK_PS_DATA_DIR PADDLE_HETER_ENDPOINTS
    PADDLE_GLOO_RENDEZVOUS PADDOCK_TERMINATION_LOG
    PADDLE_GLOO_HTTP_ENDPOINT PADDLE_GLOO_FS_PATH PADDLE_COORDINATOR_ENDPOINTS
    PADDLE_ROLE TRAINING_ROLE PADDLE_TRAINING_ROLE PADDLE_GLOBAL_SIZE PADDLE_GLOBAL_RANK
    PADDLE_LOCAL_SIZE PADDLE_LOCAL_RANK PADDLE_RANK_IN_NODE PADDLE_CURRENT_ENDPOINT
    PADDLE_DISTRI_BACKEND PADDLE_LOCAL_DEVICE_IDS PADDLE_WORLD_DEVICE_IDS PADDLE_MASTER_ENDPOINT
    PADDLE_WORKER_ENDPOINT PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST
    PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST
    PADDLE_STAGE_TRAINERS_NUM STAGE_ID STAGE_NUM HETER_DEVICE_TYPE
    PADDLE_INIT_TRAINER_ID PADDLE_INIT_NUM_GRADIENT_SERVERS PADDLE_INIT_PSERVERS PADDLE_INIT_PORT
    PADDLE_INIT_PORTS_NUM PADDLE_INIT_PORTS_NUM_FOR_SPARSE PADDLE_CLUSTER_TRAIN
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK
    ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT
    JAX_COORDINATOR_ADDRESS JAX_COORDINATOR_PORT JAX_COORDINATOR_BIND_ADDRESS JAX_NUM_PROCESSES
    JAX_PROCESS_ID JAX_LOCAL_DEVICE_IDS
    OMPI_APP_CTX_NUM_PROCS OMPI_ARGV OMPI_COMMAND OMPI_FILE_LOCATION OMPI_FIRST_RANKS
    OMPI_NUM_APP_CTX OMPI_UNIVERSE_SIZE OMPI_TOOL_NAME OMPI_VERSION OMPI_LIBDIR_LOC OMPI_WORLD_SIZE
    OMPI_WORLD_LOCAL_SIZE OMPI_MCA_ess OMPI_MCA_initial_wdir OMPI_MCA_mpi_oversubscribe
    OMPI_MCA_pmix OMPI_MCA_shmem_RUNTIME_QUERY_hint OMPI_MCA_cpu_type OMPI_MCA_num_procs
    OMPI_MCA_PREFIXES OPAL_USER_PARAMS_GIVEN ORTE_SCHIZO_DETECTION
    MPI_LOCALRANKID MPI_LOCALNRANKS HYDRA_LAUNCH_TYPE HYDRA_IP_VERSION GMPI_MASTER
    I_MPI_HYDRA_UUID I_MPI_PIN_INFO I_MPI_PIN_MAPPING
    SLURM_PROCID SLURM_LOCALID SLURM_GTIDS SLURM_TASK_PID SLURM_STEPID SLURM_STEP_ID
    SLURM_NODEID SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS
    SLURM_STEP_TASKS_PER_NODE
    """.split()  # noqa: SIM905 - one list literal would be 110 lines of quotes
)
# Set by an outer mpirun, mpiexec or srun for one process (measured: Open MPI 4.1.4 and 5.0.11,
# MPICH 5.0.2, Intel MPI 2021.19; decision 0002). Other OMPI_MCA_* are the user's tuning and stay.
DROPPED_PREFIXES = (
    "PADDOCK_",
    "PADDLE_ELASTIC_",
    "FLAGS_selected_",
    "TORCHELASTIC_",
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_ess_base_",
    "OMPI_MCA_orte_",
    "PMI_",
    "PMIX_",
    "PRTE_",
    "HYDRA_BSTRAP_",
    "HYDI_",
    "I_MPI_INFO_",
    "MV2_COMM_WORLD_",
    "JSM_NAMESPACE_",  # jsrun of LSF; read by Lightning, fabric/utilities/rank_zero.py
)
# PADDOCK_PS_ACK and its like are the user's choices for servers and their clients.
# An attempt that an operator counts is of pods, of which this launcher sees one.
KEPT_PREFIXES = (
    *("PADDOCK_PS_", "PADDOCK_JOB_ATTEMPT"),
    *("PMIX_MCA_", "PMIX_PREFIX", "PRTE_MCA_", "PRTE_PREFIX"),
)
# Set by a contract, but a value of the user's stays.
USER_WINS = ("PADDLE_INIT_USE_GPU", "PADDLE_INIT_TRAINER_COUNT")
MPI_NOTE = (
    "MPI_Init gives every process a world of its own, of size 1; ranks and size are in the "
    "environment. A program that sends messages over MPI must be started by mpirun"
)
PROXIES = ("http_proxy", "https_proxy")  # lower case only, as Paddle's launcher (#17803)
REPORT_VARIABLE = "PADDOCK_REPORT_FD"  # watch/rank.py
REPORT_FD = 191  # its value, in every rank: above what a shell or make hands down
# --debug-ranks: the memory in which a rank answers (watch/debugged.py), the ends of its pipe.
DEBUG_VARIABLE, DEBUG_FDS = "PADDOCK_DEBUG_RANK", (190, 189, 188)
# Collectives that torch keeps: torch/csrc/distributed/c10d/FlightRecorder.hpp.
FLIGHT_RECORDER = {"TORCH_FR_BUFFER_SIZE": "2000"}
SERVER_DATA = "PADDOCK_PS_DATA_DIR"
# "job": trainers of a new attempt go on where their positions say, on the tables as they are.
SERVER_STATE = "PADDOCK_PS_STATE"
# torch/distributed/elastic/multiprocessing/errors: @record writes the rank's error there.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
OF_TORCH = ("auto", "torch")
# --virtual-local-rank: by these JAX and Accelerate choose a device where LOCAL_RANK is absent, and
# DeepSpeed (runtime/engine.py) stops if the first differs from it.
DEVICE_NUMBERS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
# accelerate/state.py: without it and without a GPU, each rank trains alone and says nothing.
ACCELERATE_ON_CPU = "ACCELERATE_USE_CPU"
# Paddle can also read it from a file (distributed/backup_env.py, role_maker.py).
BACKED_UP = "PADDLE_TRAINER_ENDPOINTS"
ENV_LIMIT_DEFAULT = 48_000  # characters; PADDLE_ENV_LIMIT_LEN, launch/utils/process_context.py
ENV_LIMIT_MAX = 120_000  # execve(2): one string may be 131,072 bytes (MAX_ARG_STRLEN)


@value
class SharedEnv:
    """The variables that all processes of one node have in common; see proc_env.

    base: inherited variables and those equal for all processes. last: laid over the contract.
    notes: sentences for the log, without values. limit: longest endpoint list put in a variable.
    server_dir: where the servers of this attempt keep their state, "" for servers that are not
    Paddock's, unless the user gave a place. is_scratch: the launcher chose it, not the user.
    error_files: how the names begin of the files that torch's @record writes, "" without torch.
    is_virtual: every worker sees its own device only (--virtual-local-rank). takes_reports: each
    process has a pipe for its progress.
    """

    world: World
    contracts: tuple[Contract, ...]
    base: Mapping[str, str]
    last: Mapping[str, str]
    notes: tuple[str, ...]
    limit: int
    log_dir: str
    server_dir: str = ""
    is_scratch: bool = False
    error_files: str = ""
    is_virtual: bool = False
    takes_reports: bool = False


def shared_env(
    base: Mapping[str, str],
    job: Job,
    plan: Plan,
    *,
    node_rank: int,
    cores: int,
    log_dir: str,
    run_dir: str,
    pod_name: str,
    takes_reports: bool = False,
) -> SharedEnv:
    """Make the environment that the processes of one node have in common, once.

    base: the launcher's environment. cores: usable by this node's processes together.
    log_dir, run_dir: absolute paths.
    """
    notes: list[str] = []
    kept = inherited(base)
    nprocs = sum(1 for proc in plan.procs if proc.node_rank == node_rank)
    if not job.keep_proxy:
        notes.extend(_set_proxies_aside(kept))
    notes.extend(_set_omp(kept, job.omp_num_threads, nprocs, cores))
    if job.framework == "mpi" and len(plan.procs) > 1:
        notes.append(MPI_NOTE)
    if job.servers.why:
        notes.append(job.servers.why)
    kept["POD_NAME"] = pod_name
    kept["PADDLE_LOG_DIR"] = log_dir
    kept["PADDOCK_JOB_ID"] = plan.job_id
    kept["PADDOCK_ATTEMPT"] = str(plan.attempt)
    kept["PADDOCK_RUN_DIR"] = run_dir
    # Not only our own -u: a wrapper's python, or one that a rank starts, writes to a pipe as well.
    kept.setdefault("PYTHONUNBUFFERED", "1")
    if job.debug_ranks:
        kept = {DEBUG_VARIABLE: "1", **FLIGHT_RECORDER, **kept}
    if job.framework in OF_TORCH and "cpu" in (job.device_kind, *(job.devices or ())):
        kept.setdefault(ACCELERATE_ON_CPU, "true")
    if plan.uid:
        kept["PADDOCK_JOB_UID"] = plan.uid
    last = {name: base[name] for name in USER_WINS if name in base}
    if job.role_name != "default":
        last["ROLE_NAME"] = job.role_name
    last.update(job.extra_env)
    place = (last.get(SERVER_DATA) or base.get(SERVER_DATA, "")) if plan.of_role("ps") else ""
    is_kept = (last.get(SERVER_STATE) or base.get(SERVER_STATE)) == "job"
    scratch = f"{log_dir}/ps" if job.servers.is_provided and not place else ""
    # The same over a restart in place, empty for a new attempt: its trainers begin anew, too.
    of_attempt = "" if is_kept else f"-{plan.attempt}"
    return SharedEnv(
        world=world_of(plan),
        contracts=contracts_of(job.framework, plan.mode),
        base=kept,
        last=last,
        notes=tuple(notes),
        limit=_limit(base),
        log_dir=log_dir,
        server_dir=f"{place or scratch}/{plan.uid[:8]}{of_attempt}" if place or scratch else "",
        is_scratch=bool(scratch),
        error_files=f"{run_dir}/error-{plan.attempt}" if job.framework in OF_TORCH else "",
        is_virtual=job.virtual_local_rank,
        takes_reports=takes_reports,
    )


def proc_env(shared: SharedEnv, proc: Proc) -> tuple[dict[str, str], Backup]:
    """The environment of one process: inherited, then contract, then the user's --env.

    The second is None, or the file that must be written before the process starts, as (path,
    content): JSON, with mode 0600.
    """
    contract = merge(shared.contracts, shared.world, proc)
    backup: Backup = None
    if len(contract.get(BACKED_UP, "")) > shared.limit:
        # Paddle's name has the rank alone; server 0 and worker 0 must not share a file.
        name = f"{'' if proc.role == 'worker' else f'{proc.role}.'}{proc.rank}"
        path = f"{shared.log_dir}/backup_env.{name}.json"
        backup = path, {BACKED_UP: contract.pop(BACKED_UP)}
        contract["PADDLE_BACKUP_ENV_PATH"] = path
    if shared.is_virtual and proc.role == "worker":
        contract["LOCAL_RANK"] = "0"
        contract.update((name, "0") for name in DEVICE_NUMBERS if name in contract)
        names = HIDES_OTHERS.get(proc.device_kind, ()) if proc.device_labels else ()
        contract.update(dict.fromkeys(names, ",".join(proc.device_labels)))
    if shared.error_files and proc.role == "worker":
        contract[ERROR_FILE] = f"{shared.error_files}-{proc.rank}.json"
    if shared.takes_reports:
        contract[REPORT_VARIABLE] = str(REPORT_FD)
    env = {**shared.base, **contract, **shared.last}
    if shared.server_dir and proc.role == "ps":
        env[SERVER_DATA] = f"{shared.server_dir}/server-{proc.rank}"
    return env, backup


def common_env(
    shared: SharedEnv, envs: Sequence[Mapping[str, str]]
) -> tuple[dict[str, str], list[str]]:
    """The variables that these processes have in common in every attempt, and the other names."""
    base = {**shared.base, **shared.last}
    differing = {"PADDOCK_ATTEMPT"}
    for env in envs:
        differing.update(name for name, text in env.items() if base.get(name) != text)
    kept = {name: text for name, text in base.items() if name not in differing}
    return kept, sorted(differing)


def inherited(base: Mapping[str, str]) -> dict[str, str]:
    """The variables a process inherits: all but the launcher's own and an outer job's ranks.

    >>> inherited({"HOME": "/root", "PADDLE_MASTER": "a:1", "OMPI_MCA_btl": "tcp", "PMI_RANK": "3"})
    {'HOME': '/root', 'OMPI_MCA_btl': 'tcp'}
    """
    return {
        name: text
        for name, text in base.items()
        if name not in DROPPED
        and (not name.startswith(DROPPED_PREFIXES) or name.startswith(KEPT_PREFIXES))
    }


def _set_proxies_aside(env: dict[str, str]) -> list[str]:
    found = [name for name in PROXIES if name in env]
    for name in found:
        env[name + "_original"] = env.pop(name)
    if not found:
        return []
    return [
        f"{' and '.join(found)} removed from the processes and kept as <name>_original; "
        "--keep-proxy leaves them"
    ]


def _set_omp(env: dict[str, str], choice: str, nprocs: int, cores: int) -> list[str]:
    """Set OMP_NUM_THREADS; returns lines for people.

    "auto": 1 if unset and several processes share the node. Paddle and torchrun do the same, so
    scripts keep their speed and their numbers; a larger share is one flag away, and said.
    "share": cores divided among the processes, if unset. "keep": never touch. A number: always.
    """
    share = max(1, cores // max(1, nprocs))
    if choice == "keep":
        return []
    if choice not in ("auto", "share"):
        env["OMP_NUM_THREADS"] = choice
        return [f"OMP_NUM_THREADS={choice} for every process"]
    if nprocs < 2 or "OMP_NUM_THREADS" in env:
        return []
    threads = 1 if choice == "auto" else share
    env["OMP_NUM_THREADS"] = str(threads)
    note = f"OMP_NUM_THREADS={threads} for each of {nprocs} processes"
    if threads < share:
        note += f"; {cores} cores allow {share} each: --omp-num-threads {share}"
    return [note]


def _limit(base: Mapping[str, str]) -> int:
    text = base.get("PADDLE_ENV_LIMIT_LEN", "")
    limit = int(text) if text.isascii() and text.isdigit() else ENV_LIMIT_DEFAULT
    return min(limit, ENV_LIMIT_MAX)
