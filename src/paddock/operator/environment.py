"""The environment (EnvVar) of a pod: the launcher's own contracts, with pods as processes.

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
    from collections.abc import Mapping

    from paddock.core.job import Mode
    from paddock.kube.objects import Meta
    from paddock.operator.pods import Builder
    from paddock.operator.spec import JobSpec, RoleName

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
    """A replica that a pod fills. port: the first of its block. has_accelerator: its containers ask
    for a GPU or the like."""

    role: RoleName
    index: int
    name: str
    port: int
    has_accelerator: bool


class Environments:
    """The environments of one attempt of a job that is not elastic.

    addresses: of each pod by its name. firsts: the first slot of each role. gate: the key that
    opens this attempt of this job.
    """

    def __init__(self, builder: Builder, addresses: Mapping[str, str]) -> None:
        self.job, self.spec, self.slots = builder.job.metadata, builder.spec, builder.slots
        self.attempt = builder.state.attempt
        self.firsts = tuple({slot.role: slot for slot in reversed(self.slots)}.values())
        self.gate = f"gate.{self.job.uid[:8]}.{self.attempt}"
        self._addresses = addresses
        is_ps = self.spec.role("ps") is not None
        is_heter = self.spec.role("heter") is not None
        self._mode: Mode = "ps-heter" if is_heter else "ps" if is_ps else "collective"
        self._world = world_of(self._plan())
        self._contracts = contracts_of("auto", self._mode)
        self._procs = {(p.role, p.rank): p for p in self._world.plan.procs}
        self._trainers = ",".join(p.address for p in self._world.workers)

    def of(self, slot: PodSlot) -> dict[str, str]:
        """Every variable of one pod, as if all addresses were known."""
        world = self._world
        found = merge(self._contracts, world, self._procs[slot.role, slot.index])
        # What paddle-operator and torchrun users expect on top of the contracts.
        role = {"heter": "HETER_TRAINER", "ps": "PSERVER"}.get(slot.role, "TRAINER")
        found |= {
            "TRAINING_ROLE": role,
            "PADDLE_TRAINING_ROLE": role,
            "PADDLE_TRAINER_ID": str(slot.index),
            "TRAINER_PORTS_NUM": str(PORTS_NUM),
            "PADDLE_PORT": str(slot.port),
            "PADDLE_JOB_ID": self.job.name,
            "PADDLE_TRAINERS_NUM": str(world.size),
            "PADDOCK_JOB_ID": self.job.name,
            "PADDOCK_JOB_UID": self.job.uid,
            "PADDOCK_JOB_ATTEMPT": str(self.attempt),
            "PADDOCK_CONSOLE": "paddle",  # what tools of Paddle's users look for in pods' logs
            "POD_IP": self._addresses[slot.name],
        }
        if world.workers:
            found["PADDLE_TRAINERS"] = self._trainers
            found["PADDLE_TRAINER_ENDPOINTS"] = world.worker_endpoints
        if world.heters:
            found["PADDLE_HETER_ENDPOINTS"] = world.heter_endpoints
        if self._mode == "collective" and slot.role == "worker":
            first = world.workers[0]
            found |= {
                "PADDLE_MASTER": world.plan.paddle_master,
                "PADDLE_NNODES": str(world.size),
                "PADDLE_RANK": str(slot.index),  # else Paddle's launcher sorts by random names
                # torchrun reads these in place of its flags.
                "PET_NNODES": str(world.size),
                "PET_NODE_RANK": str(slot.index),
                "PET_MASTER_ADDR": first.address,
                "PET_MASTER_PORT": str(first.port + TORCH_OFFSET),
            }
        unwanted: tuple[str, ...] = RANK_VARIABLES
        if slot.has_accelerator:
            unwanted += DEVICE_VARIABLES
        if self.spec.with_gloo == 0:
            unwanted += GLOO_VARIABLES
        return {name: text for name, text in found.items() if name not in unwanted}

    def too_long(self) -> dict[str, int]:
        """Lists that no variable can hold, with their length, as these pods would see them."""
        texts = [pair for first in self.firsts for pair in self.of(first).items()]
        return {name: len(text) for name, text in texts if len(text) > VALUE_MAX}

    def shared(self, blank: Environments) -> dict[str, str]:
        """The data of the ConfigMap, for pods that were made from ``blank``, whose addresses are
        TOKENs."""
        found = {
            "TRAINER_PORTS_NUM": str(PORTS_NUM),
            "PADDLE_TRAINERS_NUM": str(self._world.size),
            self.gate: "open",
        }
        ports = {slot.port for slot in self.slots}
        if len(ports) == 1:
            found["PADDLE_PORT"] = str(*ports)
        if self.spec.with_gloo and self._mode != "collective":  # paddle-operator's keys
            found |= {"PADDLE_WITH_GLOO": str(self.spec.with_gloo), "PADDLE_GLOO_RENDEZVOUS": "3"}
        for first in self.firsts:
            real, wanted = self.of(first), {n for n, t in blank.of(first).items() if TOKEN in t}
            shared = sorted(wanted & real.keys() - PER_POD)
            found.update((key_of(n, first), real[n]) for n in shared if len(real[n]) <= VALUE_MAX)
            if self.spec.is_named:  # a pod's own address stands in the pod
                continue
            for slot in self.slots:
                if slot.role == first.role:
                    address = self._addresses[slot.name]
                    endpoint = join_endpoint(address, slot.port)
                    own = {"POD_IP": address, "PADDLE_CURRENT_ENDPOINT": endpoint}
                    found.update((key_of(n, slot), own[n]) for n in PER_POD & wanted)
        return found

    def _plan(self) -> Plan:
        """The launcher's plan of the attempt, with pods as processes."""
        slots, addresses = self.slots, self._addresses
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
                address=addresses[slot.name],
                port=slot.port,
                stage=stages.get(slot.role, 0),
                stage_device="gpu" if slot.role == "heter" and slot.has_accelerator else "",
            )
            for slot in slots
        )
        first = (workers or slots)[0]
        gloo_at = next((slot for slot in slots if slot.role == "ps"), first)
        paddle_master, torch_master, jax_coordinator, gloo_http = (
            join_endpoint(addresses[slot.name], slot.port + offset)
            for slot, offset in (
                (first, PADDLE_MASTER_OFFSET), (first, TORCH_OFFSET), (first, JAX_OFFSET),
                (gloo_at, GLOO_OFFSET),
            )
        )  # fmt: skip
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
            addresses=tuple(addresses[slot.name] for slot in slots),
            procs=procs,
            paddle_master=paddle_master,
            torch_master=torch_master,
            jax_coordinator=jax_coordinator,
            gloo_http=gloo_http,
        )


def key_of(name: str, slot: PodSlot) -> str:
    """Under which key of the ConfigMap a pod finds that variable."""
    if name in PER_POD:
        return f"{name}.{slot.role}-{slot.index}"
    return f"{name}.{slot.role}" if name in PER_ROLE else name


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
    # How long launchers wait for more pods than the fewest, and for those. Paddle's knows the range
    # only, and would wait for pods that nobody makes. It ends, too, with too few after that time:
    # where one is enough, that cannot be.
    is_waste = role.minimum == 1 and role.replicas < role.maximum
    is_paddles = any(launcher in str(role.template) for launcher in PADDLES_LAUNCHERS)
    patience = ELASTIC_SECONDS_WASTED if is_waste and is_paddles else ELASTIC_SECONDS
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
        "PADDLE_ELASTIC_TIMEOUT": str(patience),
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
