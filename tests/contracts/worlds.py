"""The plans that the contract tests and the golden files share."""

from __future__ import annotations

from paddock.core.hosts import Host
from paddock.core.job import Entrypoint, Job, Role
from paddock.core.plan import make_plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Mode
    from paddock.core.plan import Plan

SERVICE_PORTS = (9001, 9002, 9003, 9004)


def job(mode: Mode = "collective", nnodes: int = 1, roles: tuple[Role, ...] = ()) -> Job:
    """A job of that shape; one worker role of two processes unless told."""
    return Job(
        Entrypoint("script", "train.py"),
        job_id="j1",
        mode=mode,
        nnodes_min=nnodes,
        nnodes_max=nnodes,
        roles=roles or (Role("worker", 2),),
    )


def host(
    at: int,
    slots: tuple[tuple[str, int, int], ...] = (("worker", 0, 2),),
    kind: str = "cpu",
    labels: tuple[str, ...] = (),
    address: str = "10.0.0.",
) -> Host:
    """Node at of a row; its first port is 7000."""
    count = sum(number for _, _, number in slots)
    return Host(
        name=f"node{at}",
        address=f"{address}{at + 1}",
        device_kind=kind,
        device_labels=labels,
        device_indices=tuple(range(len(labels))),
        slots=slots,
        ports=tuple(range(7000, 7000 + count)),
        service_ports=SERVICE_PORTS,
    )


def one_by_two_cpu(mode: Mode = "collective") -> Plan:
    """One node, two processes, no devices."""
    return make_plan(job(mode), (host(0),), 0, "u1")


def two_by_two(kind: str) -> Plan:
    """Two nodes, two processes each on devices 4 and 5 of a visible list; second attempt."""
    hosts = tuple(host(at, kind=kind, labels=("4", "5")) for at in range(2))
    return make_plan(job(nnodes=2), hosts, 1, "u1")


def one_process_four_gpus() -> Plan:
    """One process that owns every device of its node."""
    one = host(0, (("worker", 0, 1),), "gpu", ("0", "1", "2", "3"))
    return make_plan(job(roles=(Role("worker", 1),)), (one,), 0, "u1")


def two_by_two_ipv6() -> Plan:
    """Two nodes that know each other by IPv6 address."""
    hosts = tuple(host(at, address="fd00::") for at in range(2))
    return make_plan(job(nnodes=2), hosts, 0, "u1")


def servers_and_workers() -> Plan:
    """Two nodes; each runs one server and one worker."""
    slots = (("ps", 0, 1), ("worker", 0, 1))
    roles = (Role("ps", 1), Role("worker", 1))
    return make_plan(job("ps", 2, roles), (host(0, slots), host(1, slots)), 0, "u1")


def heterogeneous() -> Plan:
    """One node; a server, two workers, then stages of one and two heter trainers."""
    slots = (("ps", 0, 1), ("worker", 1, 2), ("heter", 2, 1), ("heter", 3, 2))
    roles = (
        Role("ps", 1),
        Role("worker", 2, stage=1),
        Role("heter", 1, stage=2, device="gpu"),
        Role("heter", 2, stage=3, device="cpu"),
    )
    return make_plan(job("ps-heter", 1, roles), (host(0, slots),), 0, "u1")


PLANS = {
    "1x2-cpu": one_by_two_cpu(),
    "2x2-gpu": two_by_two("gpu"),
    "2x2-xpu": two_by_two("xpu"),
    "2x2-npu": two_by_two("npu"),
    "2x2-dcu": two_by_two("dcu"),
    "1x1-4gpu": one_process_four_gpus(),
    "2x2-ipv6": two_by_two_ipv6(),
    "ps-2+2": servers_and_workers(),
    "heter": heterogeneous(),
    "rpc-1x2": one_by_two_cpu("rpc"),
}
