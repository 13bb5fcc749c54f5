"""Host: a fact about one node, gathered by its agent before a plan is made."""

from __future__ import annotations

from paddock.core.value import value


@value
class Host:
    """One node's share of the job, as its own agent reported it.

    name: the host name, for people. address: the IP the others reach it by.
    device_kind: "cpu", "gpu", "xpu", "dcu" or "npu". device_labels: the chosen devices as the user
    names them (absolute numbers, UUIDs); device_indices: their positions in the visible list, same
    length. slots: (role, stage, number of processes) in starting order, ps first.
    ports: one free port per process in that order. service_ports: further free ports on this
    host, in the order of SERVICES; used on node 0 only.
    """

    name: str
    address: str
    device_kind: str = "cpu"
    device_labels: tuple[str, ...] = ()
    device_indices: tuple[int, ...] = ()
    slots: tuple[tuple[str, int, int], ...] = (("worker", 0, 1),)
    ports: tuple[int, ...] = (0,)
    service_ports: tuple[int, ...] = (0, 0, 0, 0)

    @property
    def nprocs(self) -> int:
        """Number of processes on this host, all roles."""
        return sum(count for _, _, count in self.slots)


# What the service ports are for, in order.
SERVICES = ("paddle_master", "torch_master", "jax_coordinator", "gloo_http")
