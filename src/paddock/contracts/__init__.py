"""The contracts of a process, by framework and run mode: environment variables. No I/O here.

plain                  rank and size under Paddock's own names
paddle, paddle_rpc     Paddle, collective and rpc mode
paddle_ps, paddock_ps  parameter servers: Paddle's variables; Paddock's for other frameworks
legacy                 Paddle v0.10 and v2: PADDLE_INIT_*
torch, jax, mpi        torchrun's MASTER_ADDR, MASTER_PORT, ...; JAX; MPI launchers' names
environment            the whole environment of a process, from these

A contract is one file with one function ``env(world, proc)``: the variables one framework expects,
as a pure function of the plan. To add one: write the file (60 lines at most), name it in CONTRACTS,
record a golden file, add a row to the docs.

Servers and heter trainers of a parameter-server job get Paddle's variables only. The workers form
the torch, JAX and MPI world: RANK counts workers, and rank 0 of them opens MASTER_PORT.

A contract takes a World, not a Plan: the plan is read, and its endpoint lists joined, once per
node. Doing that in each of 64 contracts of an 8,192-rank job would cost more than starting them.
"""

from __future__ import annotations

from paddock.core.endpoint import join_endpoint, split_endpoint
from paddock.core.value import value
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.core.job import RoleName
    from paddock.core.plan import Plan, Proc

    Contract = Callable[["World", Proc], dict[str, str]]

# Framework -> contracts, merged in this order. "paddle*" stands for the run mode's own file.
CONTRACTS: dict[str, tuple[str, ...]] = {
    "auto": ("plain", "legacy", "paddle*", "torch", "jax", "mpi"),
    "paddle": ("plain", "legacy", "paddle*"),
    "torch": ("plain", "torch"),
    "jax": ("plain", "jax"),
    "mpi": ("plain", "mpi"),
    "none": ("plain",),
}

PADDLE_BY_MODE = {
    "collective": "paddle",
    "ps": "paddle_ps",
    "ps-heter": "paddle_ps",
    "rpc": "paddle_rpc",
}

SERVER_MODES = ("ps", "ps-heter")
TRAINING_ROLES = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER_TRAINER"}

# FLAGS_selected_<type>s, distributed/parallel.py ParallelEnv.__init__; the devices not named here
# are plug-ins. Hygon's build is a ROCm build, which Paddle treats as GPU everywhere.
SELECTED_FLAGS = {
    "gpu": "FLAGS_selected_gpus",
    "dcu": "FLAGS_selected_gpus",
    "xpu": "FLAGS_selected_xpus",
}


def contract_names(framework: str, mode: str) -> tuple[str, ...]:
    """The contract files used, in merging order.

    >>> contract_names("paddle", "ps")
    ('plain', 'legacy', 'paddle_ps')
    """
    if framework not in CONTRACTS:
        raise UsageError(
            f"unknown framework '{framework}'", hint=f"use one of {', '.join(CONTRACTS)}"
        )
    paddle = PADDLE_BY_MODE[mode]
    names = tuple(paddle if name == "paddle*" else name for name in CONTRACTS[framework])
    if mode in SERVER_MODES and paddle not in names:
        names += ("paddock_ps",)  # whatever the framework: a trainer has to find its servers
    return names


def contracts_of(framework: str, mode: str) -> tuple[Contract, ...]:
    """The contract functions themselves; only the chosen files are imported."""
    return tuple(_load(name) for name in contract_names(framework, mode))


def merge(contracts: tuple[Contract, ...], world: World, proc: Proc) -> dict[str, str]:
    """All contracts in one dictionary; no two may disagree (tests/contracts hold them to it)."""
    merged: dict[str, str] = {}
    for contract in contracts:
        merged.update(contract(world, proc))
    return merged


def _load(name: str) -> Contract:
    # __import__, since importlib itself costs more than the five small files it would load.
    contract: Contract = __import__(f"paddock.contracts.{name}", fromlist=("env",)).env
    return contract


@value
class World:
    """A plan, prepared for the contracts.

    workers, servers, heters: sorted by rank. *_endpoints: comma lists in that order.
    local_sizes: (role, node_rank) -> processes of that role on that node.
    worker_node_ranks: node_rank -> position among the nodes that run workers.
    world_device_ids: every rank's devices, "0:1,2:3"; "" without devices.
    stage_endpoints: stage -> comma list; stage 1 is the workers. Empty outside ps-heter.
    gloo_http: where the first server opens Paddle's gloo store, "" without servers.
    """

    plan: Plan
    workers: tuple[Proc, ...]
    servers: tuple[Proc, ...]
    heters: tuple[Proc, ...]
    worker_endpoints: str
    server_endpoints: str
    heter_endpoints: str
    local_sizes: Mapping[tuple[RoleName, int], int]
    worker_node_ranks: Mapping[int, int]
    world_device_ids: str
    stage_endpoints: Mapping[int, str]
    stage_sizes: tuple[int, ...]
    gloo_http: str

    @property
    def size(self) -> int:
        """Number of workers: the world size of every framework."""
        return len(self.workers)

    def local_size(self, proc: Proc) -> int:
        """Number of processes of the same role on the same node."""
        return self.local_sizes[proc.role, proc.node_rank]


def world_of(plan: Plan) -> World:
    """Read a plan once.

    >>> from paddock.core.plan import Plan, Proc
    >>> procs = (Proc("worker", 0, 0, 0, "a", "::1", 7),)
    >>> nothing = ("", "", "", "")
    >>> world_of(Plan("j", "u", 0, "collective", 1, 1, 1, 0, "1", ("::1",), procs, *nothing)).size
    1
    """
    workers, servers, heters = (plan.of_role(r) for r in ("worker", "ps", "heter"))
    local_sizes: dict[tuple[RoleName, int], int] = {}
    for proc in plan.procs:
        key = (proc.role, proc.node_rank)
        local_sizes[key] = local_sizes.get(key, 0) + 1
    nodes = sorted({proc.node_rank for proc in workers})
    stages = _stages(workers, heters)
    return World(
        plan=plan,
        workers=workers,
        servers=servers,
        heters=heters,
        worker_endpoints=_joined(workers),
        server_endpoints=_joined(servers),
        heter_endpoints=_joined(heters),
        local_sizes=local_sizes,
        worker_node_ranks={node: at for at, node in enumerate(nodes)},
        world_device_ids=_device_ids(workers),
        stage_endpoints={stage: _joined(procs) for stage, procs in stages.items()},
        stage_sizes=tuple(len(stages[stage]) for stage in sorted(stages)),
        gloo_http=_gloo_http(plan, servers),
    )


def servers_env(world: World, proc: Proc) -> dict[str, str]:
    """The variables of a parameter-server job that all frameworks need: the servers' addresses,
    the role and index of this process. A server's index has PaddleCloud's name.
    """
    found = {
        "PADDLE_PSERVERS_IP_PORT_LIST": world.server_endpoints,
        "PADDLE_TRAINERS_NUM": str(world.size),
        "PADDLE_PORT": str(proc.port),
        "POD_IP": proc.address,
        "TRAINING_ROLE": TRAINING_ROLES[proc.role],
    }
    if proc.role != "heter":
        index = "PADDLE_PSERVER_ID" if proc.role == "ps" else "PADDLE_TRAINER_ID"
        found[index] = str(proc.rank)
    return found


def selected_flag(kind: str) -> str:
    """The variable that tells Paddle its devices of that kind.

    >>> selected_flag("gpu"), selected_flag("mlu")
    ('FLAGS_selected_gpus', 'FLAGS_selected_mlus')
    """
    return SELECTED_FLAGS.get(kind, f"FLAGS_selected_{kind}s")


def _joined(procs: tuple[Proc, ...]) -> str:
    return ",".join([proc.endpoint for proc in procs])


def _device_ids(workers: tuple[Proc, ...]) -> str:
    # launch_utils.py of Paddle 3.3.1, start_local_trainers: a rank's devices joined by ":",
    # ranks joined by ",".
    if not any(proc.device_indices for proc in workers):
        return ""
    return ",".join([":".join(map(str, proc.device_indices)) for proc in workers])


def _stages(workers: tuple[Proc, ...], heters: tuple[Proc, ...]) -> dict[int, tuple[Proc, ...]]:
    if not heters:
        return {}
    by_stage: dict[int, tuple[Proc, ...]] = {1: workers}
    for proc in heters:
        by_stage[proc.stage] = (*by_stage.get(proc.stage, ()), proc)
    return by_stage


def _gloo_http(plan: Plan, servers: tuple[Proc, ...]) -> str:
    # role_maker.py, _gloo_init: server 0 opens this address, wherever server 0 is; the plan
    # only knows a free port of node 0.
    if not servers or not plan.gloo_http:
        return plan.gloo_http
    return join_endpoint(servers[0].address, split_endpoint(plan.gloo_http)[1])
