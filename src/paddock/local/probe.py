"""Facts about this host: its name, its address as others see it, its devices, free ports."""

from __future__ import annotations

import os

from paddock.accel import accelerator, visible_of
from paddock.core.hosts import SERVICES, Host
from paddock.core.plan import fixed_ports_of, slots_of
from paddock.core.value import replace
from paddock.local.devices import detect
from paddock.local.limits import allow_files
from paddock.local.ports import HeldPorts, hold_ports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.accel import Devices
    from paddock.core.job import Job


def gather_host(
    job: Job, devices: Devices, address: str, *, node_rank: int = 0
) -> tuple[Host, HeldPorts]:
    """This node's facts, with its ports held. Raises UsageError with what is wrong.

    Asks no vendor's command: that was find_devices, before the loop began.
    """
    slots = slots_of(job, devices.count, address)
    nprocs = sum(count for _, _, count in slots)
    allow_files(nprocs, job.nnodes_max if job.nnodes_max > 1 else 0)
    fixed = fixed_ports_of(job, address)
    if len(fixed) != nprocs or any(r.count is None and not r.endpoints for r in job.roles):
        fixed = (0,) * nprocs
    first = job.start_port
    if first is None and job.fixed_port is not None:
        first = job.fixed_port + node_rank
    held = hold_ports(fixed, len(SERVICES), first=first, within=job.port_range)
    host = Host(
        name=os.uname().nodename,
        address=address,
        device_kind=devices.kind,
        device_labels=devices.labels,
        device_indices=devices.indices,
        slots=slots,
        ports=tuple(held.ports[:nprocs]),
        service_ports=_service_ports(job, held.ports[nprocs:]),
    )
    return host, held


def _service_ports(job: Job, ports: list[int]) -> tuple[int, ...]:
    if job.gloo_port and job.mode == "ps" and any(r.endpoints for r in job.roles):
        ports = [*ports[:3], job.gloo_port]
    return tuple(ports)


def find_devices(job: Job, env: Mapping[str, str]) -> Devices:
    """The devices this node's workers use; see paddock.accel for the rules."""
    worker = job.role("worker")
    nproc = worker.count if worker else None
    found = detect(env, job.devices, job.device_kind, nproc, flag_of_devices(job))
    if worker and found.kind == "cpu" and not nproc and not job.devices:
        found = replace(found, count=worker.on_cpu)
    return found if job.framework == "paddle" else _narrowed(found, env)


def flag_of_devices(job: Job) -> str:
    """What the user calls --devices: --gpus, PADDLE_DEVICES, ..."""
    source = job.sources.get("devices")
    return source.name if source is not None and source.name else "--devices"


def _narrowed(devices: Devices, env: Mapping[str, str]) -> Devices:
    """Hide the devices that were not chosen, so that device LOCAL_RANK is the right one.

    Paddle is told an index into the visible list (FLAGS_selected_gpus); PyTorch scripts take
    "cuda:LOCAL_RANK" of that list. Both are right when the list holds the chosen devices only.
    """
    count = len(devices.labels)
    if devices.kind == "cpu" or devices.env or devices.indices == tuple(range(count)):
        return devices
    if not accelerator(devices.kind).is_obeyed:
        return devices
    named = visible_of(devices.kind, env)
    variable = named[0] if named else accelerator(devices.kind).visible[0]
    return replace(
        devices,
        indices=tuple(range(count)),
        env=((variable, ",".join(devices.labels)),),
    )
