"""The environment variables of a pod: the launcher's own contracts, with pods as processes.

No I/O. Every framework's variables are those that ``paddock launch`` sets, from the same files
(paddock.contracts); here a pod is a process and its address is what ``intranet`` says. What needs
addresses that are not known before pods have been scheduled stands in the job's ConfigMap, and the
container waits for it: that is the start gate, which opens for the whole gang at once.

| intranet | address of a pod | known | variables with addresses |
|---|---|---|---|
| PodIP   | its IP                  | when it is scheduled | ConfigMap |
| Host    | its node's IP           | when it is scheduled | ConfigMap |
| Service | <pod>.<namespace> (one Service each) | before  | ConfigMap, so that all names resolve |
| DNS     | <pod>.<job> (one headless Service) | before    | ConfigMap, made before the pods |

No list stands in a pod: each would be as long as the job has pods, and there as often.
PodIP and Host use <pod>.<job>, too, where Paddle's own readers would misread the IPs (pods.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.contracts import contracts_of, merge, world_of
from paddock.core.endpoint import join_endpoint
from paddock.core.plan import Plan, Proc
from paddock.operator.names import (
    GLOO_OFFSET,
    JAX_OFFSET,
    PADDLE_MASTER_OFFSET,
    PORT,
    PORTS_NUM,
    TORCH_OFFSET,
    pod_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.core.job import Mode
    from paddock.kube.objects import Meta
    from paddock.operator.spec import JobSpec, RoleName, RoleSpec

# A launcher in the pod would take itself for one of its own ranks (jobfile/environment.py).
RANK_VARIABLES = ("PADDOCK_ATTEMPT", "PADDLE_LOCAL_RANK", "PADDLE_ROLE")
# A pod says nothing about devices: inside it the framework's own detection is right.
DEVICE_VARIABLES = ("PADDLE_DISTRI_BACKEND", "PADDLE_XCCL_BACKEND")
GLOO_VARIABLES = (
    "PADDLE_WITH_GLOO", "PADDLE_GLOO_RENDEZVOUS", "PADDLE_GLOO_HTTP_ENDPOINT",
    "PADDLE_GLOO_FS_PATH",
)  # fmt: skip
# Which variables with addresses differ between pods; tests/operator hold the rest to being equal.
PER_POD = frozenset({"POD_IP", "PADDLE_CURRENT_ENDPOINT"})
PER_ROLE = frozenset(
    {"PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST", "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST"}
)
TOKEN = "\0"  # begins an address that is not known yet, and no real one
# A container waits until this key is there: an older attempt's ConfigMap, or that of a job of the
# same name that was deleted, does not let it start.
GATE = "PADDOCK_GATE"
# execve(2): one string may be 131,072 bytes; Paddle's launcher gives up at 120 KiB.
VALUE_MAX = 120_000
ETCD_SCHEME = "etcd://"
ELASTIC_SECONDS, ELASTIC_SECONDS_WASTED = 60, 15
PADDLES_LAUNCHERS = ("paddle.distributed", "fleetrun")
# What paddle-operator set, and set last: nobody's template may change who a pod is.
IDENTITY = frozenset({"POD_IP", "PADDLE_TRAINER_ID", "TRAINING_ROLE", "PADDLE_TRAINING_ROLE"})


@dataclass(frozen=True, slots=True)
class PodSlot:
    """A replica that a pod fills. has_accelerator: its containers ask for a GPU or the like."""

    role: RoleName
    index: int
    name: str
    has_accelerator: bool = False


def pod_slots(
    job: str, spec: JobSpec, accelerated: Callable[[RoleName], bool]
) -> tuple[PodSlot, ...]:
    """Every pod wanted, in the order ps, worker, heter."""
    has = {role.name: accelerated(role.name) for role in spec.roles}
    return tuple(
        PodSlot(role.name, index, pod_name(job, role.name, index), has[role.name])
        for role in spec.roles
        for index in range(role.replicas)
    )


class Environments:
    """The environments of one attempt of a job that is not elastic.

    address: of a pod by its name. port: first port of each pod by its name (Host: they differ).
    """

    def __init__(
        self,
        job: Meta,
        spec: JobSpec,
        slots: tuple[PodSlot, ...],
        *,
        attempt: int,
        address: Callable[[str], str],
        port: Callable[[str], int],
    ) -> None:
        self.job = job
        self.spec = spec
        self.slots = slots
        self.attempt = attempt
        self._port = port
        self._address = address
        is_ps = spec.role("ps") is not None
        is_heter = spec.role("heter") is not None
        self._mode: Mode = "ps-heter" if is_heter else "ps" if is_ps else "collective"
        self._world = world_of(self._plan())
        self._contracts = contracts_of("auto", self._mode)
        self._procs = {(p.role, p.rank): p for p in self._world.plan.procs}
        self._trainers = ",".join(p.address for p in self._world.workers)

    def of(self, slot: PodSlot) -> dict[str, str]:
        """Every variable of one pod, as if all addresses were known."""
        found = merge(self._contracts, self._world, self._procs[slot.role, slot.index])
        found.update(self._own(slot))
        unwanted: tuple[str, ...] = RANK_VARIABLES
        if slot.has_accelerator:
            unwanted += DEVICE_VARIABLES
        if self.spec.with_gloo == 0:
            unwanted += GLOO_VARIABLES
        for name in unwanted:
            found.pop(name, None)
        return found

    def too_long(self, slots: tuple[PodSlot, ...]) -> dict[str, int]:
        """Lists that no variable can hold, with their length, as these pods would see them."""
        found: dict[str, int] = {}
        for first in first_slots(slots):
            env = self.of(first)
            found.update({name: len(t) for name, t in env.items() if len(t) > VALUE_MAX})
        return found

    def addressed(self, slot: PodSlot, *, above: int = 0) -> frozenset[str]:
        """Variables of the slot's role with more TOKEN addresses than that."""
        return frozenset(name for name, text in self.of(slot).items() if text.count(TOKEN) > above)

    def shared(self, slots: tuple[PodSlot, ...]) -> dict[str, str]:
        """The data of the ConfigMap: these with real addresses, for pods that were made so."""
        blank = Environments(
            self.job, self.spec, slots, attempt=self.attempt, address=TOKEN.__add__, port=self._port
        )
        found = {
            "TRAINER_PORTS_NUM": str(PORTS_NUM),
            "PADDLE_TRAINERS_NUM": str(self._world.size),
            gate_key(self.job.uid, self.attempt): "open",
        }
        ports = {self._port(slot.name) for slot in slots}
        if len(ports) == 1:
            found["PADDLE_PORT"] = str(*ports)
        if self.spec.with_gloo and self._mode != "collective":  # paddle-operator's keys
            found |= {"PADDLE_WITH_GLOO": str(self.spec.with_gloo), "PADDLE_GLOO_RENDEZVOUS": "3"}
        for first in first_slots(slots):
            real, wanted = self.of(first), blank.addressed(first)
            shared = sorted(wanted & real.keys() - PER_POD)
            found.update((key_of(n, first), real[n]) for n in shared if len(real[n]) <= VALUE_MAX)
            if self.spec.is_named:  # a pod's own address stands in the pod
                continue
            for slot in slots:
                if slot.role == first.role:
                    address = self._address(slot.name)
                    endpoint = join_endpoint(address, self._port(slot.name))
                    own = {"POD_IP": address, "PADDLE_CURRENT_ENDPOINT": endpoint}
                    found.update((key_of(n, slot), own[n]) for n in PER_POD & wanted)
        return found

    def _own(self, slot: PodSlot) -> dict[str, str]:
        """Variables that paddle-operator and torchrun users expect on top of the contracts."""
        role = {"heter": "HETER_TRAINER", "ps": "PSERVER"}.get(slot.role, "TRAINER")
        world = self._world
        first = world.workers[0] if world.workers else world.plan.procs[0]
        found = {
            "TRAINING_ROLE": role,
            "PADDLE_TRAINING_ROLE": role,
            "PADDLE_TRAINER_ID": str(slot.index),
            "TRAINER_PORTS_NUM": str(PORTS_NUM),
            "PADDLE_PORT": str(self._port(slot.name)),
            "PADDLE_JOB_ID": self.job.name,
            "PADDLE_TRAINERS_NUM": str(world.size),
            "PADDOCK_JOB_ID": self.job.name,
            "PADDOCK_JOB_UID": self.job.uid,
            "PADDOCK_JOB_ATTEMPT": str(self.attempt),
            "PADDOCK_CONSOLE": "paddle",  # what tools of Paddle's users look for in pods' logs
            "POD_IP": self._address(slot.name),
        }
        if world.workers:
            found["PADDLE_TRAINERS"] = self._trainers
            found["PADDLE_TRAINER_ENDPOINTS"] = world.worker_endpoints
        if world.heters:
            found["PADDLE_HETER_ENDPOINTS"] = world.heter_endpoints
        if self._mode == "collective" and slot.role == "worker":
            found["PADDLE_MASTER"] = world.plan.paddle_master
            found["PADDLE_NNODES"] = str(world.size)
            found["PADDLE_RANK"] = str(slot.index)  # else Paddle's launcher sorts by random names
            # torchrun reads these in place of its flags.
            found["PET_NNODES"] = str(world.size)
            found["PET_NODE_RANK"] = str(slot.index)
            found["PET_MASTER_ADDR"] = first.address
            found["PET_MASTER_PORT"] = str(first.port + TORCH_OFFSET)
        return found

    def _plan(self) -> Plan:
        """The launcher's plan of the attempt, with pods as processes."""
        slots, address, port = self.slots, self._address, self._port
        workers = [slot for slot in slots if slot.role == "worker"]
        nodes = {slot.name: at for at, slot in enumerate(workers or slots)}
        for slot in slots:
            nodes.setdefault(slot.name, len(nodes))
        has_heter = self._mode == "ps-heter"
        stages = {"worker": 1, "heter": 2} if has_heter else {}
        procs = tuple(
            Proc(
                role=slot.role,
                rank=slot.index,
                local_rank=0,
                node_rank=nodes[slot.name],
                host=slot.name,
                address=address(slot.name),
                port=port(slot.name),
                stage=stages.get(slot.role, 0),
                stage_device="gpu" if slot.role == "heter" and slot.has_accelerator else "",
            )
            for slot in slots
        )
        first = workers[0].name if workers else slots[0].name

        def service(offset: int) -> str:
            return join_endpoint(address(first), port(first) + offset)

        servers = [slot for slot in slots if slot.role == "ps"]
        gloo_at = servers[0].name if servers else first
        return Plan(
            job_id=self.job.name,
            uid=self.job.uid,
            attempt=self.attempt,
            mode=self._mode,
            nnodes=len(workers) if self._mode == "collective" else len(slots),
            nnodes_min=len(workers),
            nnodes_max=len(workers),
            max_restarts=0,
            with_gloo=str(self.spec.with_gloo),
            addresses=tuple(address(slot.name) for slot in slots),
            procs=procs,
            paddle_master=service(PADDLE_MASTER_OFFSET),
            torch_master=service(TORCH_OFFSET),
            jax_coordinator=service(JAX_OFFSET),
            gloo_http=join_endpoint(address(gloo_at), port(gloo_at) + GLOO_OFFSET),
        )


def first_slots(slots: tuple[PodSlot, ...]) -> tuple[PodSlot, ...]:
    """The first seat of each role."""
    return tuple({slot.role: slot for slot in reversed(slots)}.values())


def key_of(name: str, slot: PodSlot) -> str:
    """Under which key of the ConfigMap a pod finds that variable."""
    if name in PER_POD:
        return f"{name}.{slot.role}-{slot.index}"
    return f"{name}.{slot.role}" if name in PER_ROLE else name


def gate_key(uid: str, attempt: int) -> str:
    """The key that opens one attempt of one job."""
    return f"gate.{uid[:8]}.{attempt}"


def rendezvous_of(job: Meta, etcd: str) -> str:
    """The rendezvous of an elastic job's pods: PADDLE_MASTER.

    etcd: "host:port" of the namespace's etcd, or "": then the first worker's agent coordinates.
    """
    if etcd:
        return f"{ETCD_SCHEME}{etcd}"
    return f"{pod_name(job.name, 'worker', 0)}.{job.name}:{PORT + PADDLE_MASTER_OFFSET}"


def elastic_variables(job: Meta, spec: JobSpec, rendezvous: str) -> dict[str, str]:
    """The environment of a pod of an elastic job: who is there is found out by the agents.

    Source: fleet/elastic/manager.py (PADDLE_ELASTIC_*), distributed/launch (PADDLE_MASTER).
    """
    role = spec.role("worker")
    assert role is not None
    is_range = role.maximum != role.minimum
    size = f"{role.minimum}:{role.maximum}" if is_range else str(role.minimum)
    coordinator = f"{pod_name(job.name, 'worker', 0)}.{job.name}"
    found = {
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "TRAINER_PORTS_NUM": str(PORTS_NUM),
        "PADDLE_PORT": str(PORT),
        "PADDLE_JOB_ID": job.name,
        "PADDLE_NNODES": size,
        "PADDLE_MASTER": rendezvous,
        "PADDLE_ELASTIC_JOB_ID": f"{job.namespace}-{job.name}",
        "PADDLE_ELASTIC_NP": size,
        "PADDLE_ELASTIC_TIMEOUT": str(_elastic_seconds(role)),
        "PADDLE_ELASTIC_LEVEL": str(min(spec.elastic_level or 0, 1)),
        "PADDOCK_JOB_ID": job.name,
        "PADDOCK_JOB_UID": job.uid,
        "PADDOCK_NNODES_WANTED": str(role.replicas),
        "PADDOCK_CONSOLE": "paddle",
        "PET_NNODES": size,
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{coordinator}:{PORT + TORCH_OFFSET}",
        "PET_RDZV_ID": f"{job.namespace}-{job.name}",
    }
    if rendezvous.startswith(ETCD_SCHEME):
        found["PADDLE_ELASTIC_SERVER"] = rendezvous.removeprefix(ETCD_SCHEME)
    return found


def _elastic_seconds(role: RoleSpec) -> int:
    """How long launchers wait for more pods than the fewest, and for those.

    Paddle's knows the range only, and would wait for pods that nobody makes. It ends, too, with too
    few after that time: where one is enough, that cannot be.
    """
    is_waste = role.minimum == 1 and role.replicas < role.maximum
    is_paddles = any(launcher in str(role.template) for launcher in PADDLES_LAUNCHERS)
    return ELASTIC_SECONDS_WASTED if is_waste and is_paddles else ELASTIC_SECONDS
