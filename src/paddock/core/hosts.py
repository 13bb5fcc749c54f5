"""Host: a fact about one node, before a plan is made; and its devices, shared out among processes.

``host_of`` is pure: the launchers of every system and ``paddock explain`` have the same one.
"""

from __future__ import annotations

from paddock.core.endpoint import parse_endpoint
from paddock.core.value import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.core.job import Job, Role
    from paddock.core.value import Port, Word


@value
class Devices:
    """The devices of one node.

    labels: as the user names them; indices: their positions in the visible list, same length;
    both empty on the CPU. count: number of processes this asks for when nproc was not given.
    env: variables the processes need so that the indices mean these devices; usually empty.
    """

    kind: str = "cpu"
    labels: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    count: int = 1
    env: tuple[tuple[str, str], ...] = ()


@value
class Host:
    """The facts of a node and its share of the job, as its own agent reported them.

    name: the host name, for people. address: the IP the others reach it by.
    device_kind: "cpu", "gpu", "xpu", "dcu" or "npu". device_labels: the chosen devices as the user
    names them (absolute numbers, UUIDs); device_indices: their positions in the visible list, same
    length. slots: (role, stage, number of processes) in starting order, ps first.
    ports: one free port per process in that order. service_ports: further free ports on this
    host, in the order of SERVICES; used on node 0 only. A port 0 is not chosen yet.
    """

    name: Word
    address: Word
    device_kind: str = "cpu"
    device_labels: tuple[Word, ...] = ()
    device_indices: tuple[int, ...] = ()
    slots: tuple[tuple[str, int, int], ...] = (("worker", 0, 1),)
    ports: tuple[Port, ...] = (0,)
    service_ports: tuple[Port, ...] = (0, 0, 0, 0)

    @property
    def nprocs(self) -> int:
        return sum(count for _, _, count in self.slots)


# Servers first, then workers, then heter stages in order.
STARTING_ORDER = {"ps": 0, "worker": 1, "heter": 2}
LOOPBACK = "127.0.0.1"  # the address of a job of one node
# The services of the service ports, in order.
SERVICES = ("paddle_master", "torch_master", "jax_coordinator", "gloo_http")
# The noun for a process of a role: "rank 3", "server 0".
ROLE_NOUNS = {"worker": "rank", "ps": "server", "heter": "heter worker"}
# --virtual-local-rank: variables that hide the other devices from a process. CUDA and HIP as
# torchrun does (local_elastic_agent.py, _set_local_rank_env), else by names the run times obey.
HIDES_OTHERS = {
    "gpu": ("CUDA_VISIBLE_DEVICES",),
    "dcu": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
    "mlu": ("MLU_VISIBLE_DEVICES",),
    "sdaa": ("SDAA_VISIBLE_DEVICES",),
}


def host_of(job: Job, devices: Devices, *, name: str, address: str, node_rank: int = 0) -> Host:
    """A node's share of the job, with the ports that the job fixes and 0 for those it does not.

    Endpoint lists name the processes of their role and the ports; the other processes take those
    from --start-port on, or from the fixed port and the rank of the node.
    """
    slots, ports = [], []
    for role in sorted(job.roles, key=lambda r: (STARTING_ORDER[r.name], r.stage)):
        if role.endpoints:
            own = [port for host, port in map(parse_endpoint, role.endpoints) if host == address]
        elif role.count is not None:
            own = [0] * role.count
        else:
            own = [0] * (max(1, devices.count) if role.name == "worker" else 1)
        if own:
            slots.append((role.name, role.stage, len(own)))
            ports += own
    first = job.start_port
    if first is None and job.fixed_port is not None:
        first = job.fixed_port + node_rank
    if first is not None:
        free = [at for at, port in enumerate(ports) if not port]
        for number, at in enumerate(free):
            ports[at] = first + number
    is_listed = any(role.endpoints for role in job.roles)
    gloo = job.gloo_port if job.mode == "ps" and is_listed else None
    return Host(
        name=name,
        address=address,
        device_kind=devices.kind,
        device_labels=devices.labels,
        device_indices=devices.indices,
        slots=tuple(slots),
        ports=tuple(ports),
        service_ports=(0, 0, 0, gloo or 0),
    )


def with_ports(host: Host, chosen: Sequence[int]) -> Host:
    """The host with its ports known: those of its processes, then one for each of SERVICES.

    A service port that the job fixes stays: only the node that serves there needs it.
    """
    services = zip(host.service_ports, chosen[host.nprocs :], strict=True)
    return replace(
        host,
        ports=tuple(chosen[: host.nprocs]),
        service_ports=tuple(fixed or port for fixed, port in services),
    )


def devices_of(
    job: Job, role: Role, host: Host, count: int, heter_at: int
) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Labels and indices of the devices of ``count`` processes; heter_at others came before.

    Heter workers share the devices in turn, whatever their stage, as in Paddle's older launcher
    (fleet/launch_utils.py, start_pod_heter_worker).
    """
    labels, indices = host.device_labels, host.device_indices
    if role.name == "worker":
        shares = share_devices(count, labels, indices)
        if job.virtual_local_rank:  # it sees no other device: its own are the first
            shares = [(own, tuple(range(len(own)))) for own, _ in shares]
        return shares
    is_its = labels and role.device in (host.device_kind, "gpu" * (host.device_kind == "dcu"))
    if role.name != "heter" or not is_its:
        return [((), ())] * count
    turns = [(heter_at + local) % len(labels) for local in range(count)]
    return [((labels[turn],), (indices[turn],)) for turn in turns]


def share_devices(
    nprocs: int, labels: tuple[str, ...], indices: tuple[int, ...]
) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Devices of each process on one node: all to a single one, else one each.

    Paddle's rule (distributed/launch/controllers/collective.py): one process gets every device,
    n get the first n.

    >>> share_devices(2, ("4", "5", "6"), (0, 1, 2))
    [(('4',), (0,)), (('5',), (1,))]
    """
    if not labels:
        return [((), ())] * nprocs
    if nprocs == 1:
        return [(labels, indices)]
    each: list[tuple[tuple[str, ...], tuple[int, ...]]] = [
        ((label,), (index,)) for label, index in zip(labels, indices, strict=True)
    ]
    return each[:nprocs]
