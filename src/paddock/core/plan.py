"""Plan: every process with rank, host, port and devices. Decided here and nowhere else.

``make_plan(job, hosts, attempt)`` is pure: the same arguments give the same bytes on every node.
The order of ``hosts`` is the order of node ranks.
"""

from __future__ import annotations

from paddock.core.endpoint import join_endpoint, parse_endpoint, split_endpoint
from paddock.core.hosts import HIDES_OTHERS, ROLE_NOUNS, SERVICES, devices_of
from paddock.core.value import value
from paddock.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.core.hosts import Host
    from paddock.core.job import Job, Mode, Role, RoleName

MAX_PROCS = 1_000_000
EVEN_HINT = "give every node as many --devices, or allow it with --allow-uneven"


@value
class Proc:
    """A process (of the operating system) of the job: a rank or server.

    rank: global rank within its role. local_rank: rank within its role on its node.
    device_indices: positions in the visible list, () on CPU. device_labels: same, user's names.
    stage: heter jobs only, 1 for workers, 2.. for heter roles, 0 otherwise.
    """

    role: RoleName
    rank: int
    local_rank: int
    node_rank: int
    host: str
    address: str
    port: int
    device_kind: str = "cpu"
    device_indices: tuple[int, ...] = ()
    device_labels: tuple[str, ...] = ()
    stage: int = 0
    stage_device: str = ""

    @property
    def name(self) -> str:
        """The name for people: "rank 3", "server 0"."""
        return f"{ROLE_NOUNS[self.role]} {self.rank}"

    @property
    def endpoint(self) -> str:
        """ "address:port", with brackets around an IPv6 address."""
        return join_endpoint(self.address, self.port)


@value
class Plan:
    """The decision for one attempt. procs are sorted by node, then starting order."""

    job_id: str
    uid: str
    attempt: int
    mode: Mode
    nnodes: int
    nnodes_min: int
    nnodes_max: int
    max_restarts: int
    with_gloo: str
    addresses: tuple[str, ...]
    procs: tuple[Proc, ...]
    paddle_master: str
    torch_master: str
    jax_coordinator: str
    gloo_http: str

    @property
    def service_ports(self) -> tuple[int, ...]:
        """The ports on which worker 0 may listen for the others (MASTER_PORT, ...), on its node."""
        ends = (self.paddle_master, self.torch_master, self.jax_coordinator, self.gloo_http)
        return tuple(int(split_endpoint(end)[1]) for end in ends)

    def of_role(self, name: RoleName) -> tuple[Proc, ...]:
        """The processes of a role, sorted by rank."""
        found = [p for p in self.procs if p.role == name]
        found.sort(key=lambda p: p.rank)
        return tuple(found)

    def on_node(self, node_rank: int) -> tuple[Proc, ...]:
        """The processes of a node, in starting order."""
        return tuple(p for p in self.procs if p.node_rank == node_rank)

    @property
    def world_size(self) -> int:
        """The number of ranks of the job: processes of the role worker."""
        return sum(1 for p in self.procs if p.role == "worker")


def find_problems(job: Job, hosts: tuple[Host, ...]) -> list[Problem]:
    """Everything that makes these hosts unfit for this job; empty when a plan can be made."""
    problems = []
    low, high, span = job.nnodes_min, job.nnodes_max, f"{job.nnodes_min} to {job.nnodes_max}"
    if not low <= len(hosts) <= high:
        problems.append(
            Problem(
                f"{len(hosts)} nodes joined, the job asks for {low if low == high else span}",
                "start the same command on the missing nodes, or change --nnodes",
            )
        )
    for node_rank, host in enumerate(hosts):
        where = f"node {node_rank} ({host.name}, {host.address})"
        problems.extend(_host_problems(job, host, where))
    kinds = {host.device_kind for host in hosts if host.device_labels}
    for kind in sorted(kinds - set(HIDES_OTHERS)) if job.virtual_local_rank else ():
        what = f"--virtual-local-rank: no variable hides single {kind} devices"
        problems.append(Problem(what, "leave it out"))
    if hosts and _wants_even(job):
        problems.extend(_uneven_problems(hosts))
    addresses = {h.address for h in hosts}
    for role in job.roles:
        for endpoint in role.endpoints:
            address = parse_endpoint(endpoint)[0]
            if address not in addresses:
                problems.append(
                    Problem(
                        f"{role.name} endpoint {endpoint}: no node has the address {address}",
                        f"start a node there, or correct {_list_flag(job, role.name)}",
                    )
                )
    if hosts and not problems and job.nnodes_min == job.nnodes_max:
        problems.extend(find_tail_problems(job, sum(map(_worker_count, hosts))))
    return problems


def find_tail_problems(job: Job, count: int) -> Iterable[Problem]:
    """Yield the names of --tail that a job of that many workers has not. Elastic jobs skip this."""
    for word in job.logs.tail:
        if word.isascii() and word.isdigit() and int(word) >= max(count, 1):
            yield Problem(
                f"--tail {word}: there is no rank {word}, this job has {count}",
                f"write a rank in 0..{count - 1}, a role, or all",
            )
        elif word in ("worker", "ps", "heter") and all(role.name != word for role in job.roles):
            yield Problem(
                f"--tail {word}: this job has no {word} processes", "write a rank, or all"
            )


def find_misfit(job: Job, member: Host, newcomer: Host) -> Problem | None:
    """The Problem with ``newcomer`` in a job that has begun with ``member``; None without one."""
    for problem in _host_problems(job, newcomer, f"{newcomer.name} ({newcomer.address})"):
        return problem
    mine, theirs = _worker_count(newcomer), _worker_count(member)
    if not _wants_even(job) or mine == theirs:
        return None
    return Problem(
        f"{newcomer.name} has {mine} worker processes, the nodes of this job have {theirs}: "
        "all nodes need the same number of devices",
        EVEN_HINT,
    )


def _wants_even(job: Job) -> bool:
    worker = job.role("worker")
    return worker is not None and not worker.endpoints and not job.allow_uneven


def _worker_count(host: Host) -> int:
    return sum(count for role, _, count in host.slots if role == "worker")


def _host_problems(job: Job, host: Host, where: str) -> Iterable[Problem]:
    if host.nprocs == 0:
        yield Problem(
            f"{where} has no process to run",
            "name its address in an endpoint list, or start one node less (--nnodes)",
        )
    if len(host.ports) != host.nprocs:
        yield Problem(f"{where} offers {len(host.ports)} ports for {host.nprocs} processes")
    workers = _worker_count(host)
    if host.device_kind != "cpu" and host.device_labels and workers > len(host.device_labels):
        yield Problem(
            f"{where} runs {workers} workers but has {len(host.device_labels)} "
            f"{host.device_kind} devices ({','.join(host.device_labels)})",
            "lower --nproc-per-node or name more --devices",
        )
    known: dict[tuple[str, int], Role] = {(role.name, role.stage): role for role in job.roles}
    at = 0
    for name, stage, count in host.slots:
        role = known.get((name, stage))
        own = {join_endpoint(host.address, port) for port in host.ports[at : at + count]}
        at += count
        if role is None:
            yield Problem(f"{where} runs {name} processes, which this job has not")
        elif role.endpoints and not own <= set(role.endpoints):
            strange = ", ".join(sorted(own - set(role.endpoints)))
            yield Problem(f"{where}: {strange} is not in {_list_flag(job, role.name)}")


def _uneven_problems(hosts: tuple[Host, ...]) -> Iterable[Problem]:
    first = _worker_count(hosts[0])
    for node_rank, host in enumerate(hosts):
        if _worker_count(host) != first:
            yield Problem(
                f"node {node_rank} ({host.name}) has {_worker_count(host)} worker processes, "
                f"node 0 ({hosts[0].name}) has {first}: all nodes need the same number of devices",
                EVEN_HINT,
            )


def _list_flag(job: Job, name: str) -> str:
    """The flag of the endpoint list of a role, as the user wrote it."""
    source = job.sources.get(f"roles.{name}.endpoints")
    usual = {"ps": "--servers", "worker": "--workers", "heter": "--heter-workers"}
    return source.name if source is not None and source.name else usual[name]


def make_plan(job: Job, hosts: tuple[Host, ...], attempt: int, uid: str = "") -> Plan:
    """Decide every process of one attempt.

    hosts: in node-rank order. Raises UsageError with every problem found.
    """
    problems = find_problems(job, hosts)
    if problems:
        raise UsageError.of(problems)
    procs = _place(job, hosts)
    assert len(procs) <= MAX_PROCS
    first = hosts[0]
    service = {
        name: join_endpoint(first.address, port)
        for name, port in zip(SERVICES, first.service_ports, strict=True)
    }
    return Plan(
        job_id=job.job_id,
        uid=uid,
        attempt=attempt,
        mode=job.mode,
        nnodes=len(hosts),
        nnodes_min=job.nnodes_min,
        nnodes_max=job.nnodes_max,
        max_restarts=job.restart.max_restarts,
        with_gloo=job.with_gloo,
        addresses=tuple(h.address for h in hosts),
        procs=procs,
        paddle_master=service["paddle_master"],
        torch_master=service["torch_master"],
        jax_coordinator=service["jax_coordinator"],
        gloo_http=service["gloo_http"],
    )


def _place(job: Job, hosts: tuple[Host, ...]) -> tuple[Proc, ...]:
    next_rank: dict[tuple[str, int], int] = {}
    stage_base = _heter_bases(hosts)
    by_stage: dict[tuple[str, int], Role] = {(r.name, r.stage): r for r in job.roles}
    procs = []
    for node_rank, host in enumerate(hosts):
        port_at = heter_at = 0
        for role_name, stage, count in host.slots:
            role = by_stage[(role_name, stage)]
            shares = devices_of(job, role, host, count, heter_at)
            heter_at += count if role_name == "heter" else 0
            for local in range(count):
                port = host.ports[port_at]
                port_at += 1
                if role.endpoints:
                    rank = role.endpoints.index(join_endpoint(host.address, port))
                else:
                    rank = next_rank.get((role_name, stage), 0)
                    next_rank[(role_name, stage)] = rank + 1
                labels, indices = shares[local]
                procs.append(
                    Proc(
                        role=role.name,
                        rank=rank + stage_base.get((role_name, stage), 0),
                        local_rank=local,
                        node_rank=node_rank,
                        host=host.name,
                        address=host.address,
                        port=port,
                        device_kind=host.device_kind,
                        device_indices=indices,
                        device_labels=labels,
                        stage=stage,
                        stage_device=role.device,
                    )
                )
    return tuple(procs)


def _heter_bases(hosts: tuple[Host, ...]) -> dict[tuple[str, int], int]:
    """Heter ranks run on over the stages: stage 3 starts after the last of stage 2."""
    totals: dict[tuple[str, int], int] = {}
    for host in hosts:
        for role, stage, count in host.slots:
            if role == "heter":
                totals[(role, stage)] = totals.get((role, stage), 0) + count
    bases, at = {}, 0
    for key in sorted(totals):
        bases[key] = at
        at += totals[key]
    return bases


def plan_bytes(plan: Plan) -> bytes:
    """The plan as canonical text, for comparing nodes with each other."""
    lines = [repr(plan.__class__.__name__)]
    for name in plan.__class__.__annotations__:
        content = getattr(plan, name)
        if name == "procs":
            lines.extend(repr(p) for p in content)
        else:
            lines.append(f"{name}={content!r}")
    return "\n".join(lines).encode()
