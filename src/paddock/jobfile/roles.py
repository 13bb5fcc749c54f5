"""Run mode and roles: counts per node, or endpoint lists, for workers, servers and heter stages."""

from __future__ import annotations

from paddock.command_line import nearest
from paddock.core.endpoint import join_endpoint, parse_endpoint, split_endpoint
from paddock.core.job import DEVICE_KINDS, MODES, Role
from paddock.jobfile.reader import to_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Mode
    from paddock.jobfile.reader import FieldReader

PS_FLAGS = ("servers", "trainers", "server_num", "trainer_num")
HETER_FLAGS = ("heter_workers", "heter_worker_num", "heter_devices")
FIRST_DEFAULT_PORT = 6170  # fleet/launch_utils.py, ParameterServerLauncher
MAX_PROCS_PER_NODE = 10_000
MAX_STAGES = 1_000


def read_mode(reader: FieldReader) -> Mode:
    """--run-mode, or what the other flags imply."""
    heter = [n for n in HETER_FLAGS if reader.has(n)]
    servers = [n for n in PS_FLAGS if reader.has(n)]
    implied: Mode = "ps-heter" if heter else "ps" if servers else "collective"
    if not reader.has("run_mode"):
        for name in (*heter, *servers)[:1]:
            reader.sources["mode"] = reader.source(name)
        return implied
    chosen: Mode = reader.choice("run_mode", MODES, implied)  # type: ignore[assignment]  # of MODES
    unused = {"ps": heter, "ps-heter": []}.get(chosen, [*heter, *servers])
    for name in unused:
        hint = f"leave it out, or write --run-mode {implied}"
        reader.fault(name, f"not used with --run-mode {chosen}", hint)
    return chosen


def read_roles(
    reader: FieldReader, mode: Mode, cpu_count: int, devices: tuple[str, ...] | None
) -> tuple[tuple[Role, ...], str]:
    """All roles of the job, and the kind of device --nproc-per-node asks for ("" if none)."""
    if mode in ("collective", "rpc"):
        count, device_kind, on_cpu = _read_nproc(reader, cpu_count)
        if count is not None and devices and count > len(devices) and device_kind != "cpu":
            reader.fault(
                "nproc_per_node",
                f"{count} processes but {len(devices)} device{'s' if len(devices) > 1 else ''} "
                f"({','.join(devices)})",
                "every process needs a device of its own: name more, or start fewer processes",
            )
        return (Role("worker", count, on_cpu=on_cpu),), device_kind
    listed: list[str] = []
    servers = _endpoints(reader, "servers", reader.items("servers"), listed)
    workers = _endpoints(reader, "trainers", reader.items("trainers"), listed)
    if workers or reader.has("trainer_num"):
        count = _count(reader, "trainer_num", "trainers", workers)
    else:
        count = _read_nproc(reader, cpu_count)[0] or 1
    stage = 1 if mode == "ps-heter" else 0
    device = "cpu" if mode == "ps-heter" else ""
    roles = [
        Role("ps", _count(reader, "server_num", "servers", servers), servers),
        Role("worker", count, workers, stage, device),
    ]
    if mode == "ps-heter":
        roles.extend(_read_heter(reader, listed))
    return tuple(roles), ""


def _read_nproc(reader: FieldReader, cpu_count: int) -> tuple[int | None, str, int]:
    """--nproc-per-node: the count, None for one per device; the kind of device it asks for; how
    many where there is no device. The values are torchrun's, which takes any kind it has.
    """
    if not reader.has("nproc_per_node"):
        return None, "", 1
    word = reader.text("nproc_per_node").lower()
    if word == "auto":
        return None, "", cpu_count
    if word == "cpu":
        return cpu_count, "cpu", 1
    if word in DEVICE_KINDS:
        return None, word, 1
    count = to_integer(word)
    if count is None:
        hint = "write N, auto, cpu, gpu or another kind of device"
        reader.fault("nproc_per_node", "not a number of processes", hint)
    elif not 1 <= count <= MAX_PROCS_PER_NODE:
        hint = "leave it out for one process per device"
        reader.fault("nproc_per_node", f"not in 1..{MAX_PROCS_PER_NODE}", hint)
        count = None
    return count or None, "", 1


def _count(
    reader: FieldReader, name: str, list_name: str, endpoints: tuple[str, ...]
) -> int | None:
    """Processes per node; None where a list decides. Unset means 1, as in Paddle."""
    count = reader.integer(name, 1, MAX_PROCS_PER_NODE)
    if not endpoints:
        return count or 1
    if count and count != len(endpoints):
        reader.fault(
            name,
            f"{reader.source(list_name).name} names {len(endpoints)} endpoints",
            f"leave {reader.source(name).name} out",
        )
    return None


def _endpoints(
    reader: FieldReader, name: str, items: tuple[str, ...], listed: list[str]
) -> tuple[str, ...]:
    """The endpoints of a list; only servers need a port. listed: of the lists read so far."""
    found = []
    for item in items:
        host = split_endpoint(item)[0]
        is_bare = name != "servers" and item in (host, f"[{host}]")
        read = reader.endpoint(name, _default_endpoint(host, listed) if is_bare else item)
        if read is None:
            continue
        endpoint = join_endpoint(*read)
        if endpoint in listed:
            reader.fault(name, f"{endpoint} is listed twice", "give every process its own port")
            continue
        listed.append(endpoint)
        found.append(endpoint)
    return tuple(found)


def _default_endpoint(host: str, listed: list[str]) -> str:
    """The legacy rule: ports from 6170, after those of this host that are listed already."""
    port = FIRST_DEFAULT_PORT + sum(1 for e in listed if parse_endpoint(e)[0] == host)
    while join_endpoint(host, port) in listed:
        port += 1
    return join_endpoint(host, port)


def _read_heter(reader: FieldReader, listed: list[str]) -> list[Role]:
    """Read a role for each heter stage, from 2 on; stage 1 is the workers'."""
    lists = _stages(reader, "heter_workers")
    counts = _stages(reader, "heter_worker_num")
    if not lists and not counts:
        from paddock.errors import Problem

        reader.problems.append(
            Problem(
                "--run-mode ps-heter needs heter workers",
                "write --heter-worker-num 1, or --heter-workers ip:port,ip:port",
            )
        )
        return []
    if lists and counts and len(lists) != len(counts):
        reader.fault("heter_worker_num", f"{len(counts)} stages, but --heter-workers has "
                     f"{len(lists)}", "write one number per stage, separated by ';'")  # fmt: skip
        return []
    nstages = max(len(lists), len(counts))
    devices = _heter_devices(reader, nstages)
    roles = []
    for at in range(nstages):
        endpoints: tuple[str, ...] = ()
        if lists:
            items = tuple(i.strip() for i in lists[at].split(",") if i.strip())
            endpoints = _endpoints(reader, "heter_workers", items, listed)
        count = _stage_count(reader, counts[at], len(endpoints)) if counts else None
        roles.append(Role("heter", None if endpoints else count, endpoints, at + 2, devices[at]))
    return roles


def _stages(reader: FieldReader, name: str) -> list[str]:
    if not reader.has(name):
        return []
    text = reader.text(name).rstrip(";")
    stages = [s.strip() for s in text.split(";")]
    if len(stages) > MAX_STAGES or not all(stages):
        reader.fault(name, "a stage is empty", "separate stages by one ';'")
        return [s for s in stages if s][:MAX_STAGES]
    return stages


def _stage_count(reader: FieldReader, text: str, listed: int) -> int:
    count = to_integer(text)
    if count is None or not 1 <= count <= MAX_PROCS_PER_NODE:
        reader.fault(
            "heter_worker_num",
            f"'{text}' is not a number in 1..{MAX_PROCS_PER_NODE}",
            "write one number per stage, separated by ';'",
        )
        return 1
    if listed and count != listed:
        reader.fault(
            "heter_worker_num",
            f"{count} heter workers in a stage for which --heter-workers names {listed}",
            "leave --heter-worker-num out",
        )
    return count


def _heter_devices(reader: FieldReader, nstages: int) -> list[str]:
    """The device of each heter stage; a single one is for all; "cpu" if absent.

    Paddle demands the flag, its own documentation omits it.
    """
    devices = [d.lower() for d in _stages(reader, "heter_devices")] or ["cpu"]
    for device in devices:
        if device not in DEVICE_KINDS:
            reader.fault("heter_devices", f"unknown device '{device}'",
                         nearest(device, DEVICE_KINDS))  # fmt: skip
    if len(devices) == 1:
        return devices * nstages
    if len(devices) != nstages:
        reader.fault(
            "heter_devices",
            f"{len(devices)} devices for {nstages} heter stages",
            "write one device per stage, separated by ';'",
        )
        return ["cpu"] * nstages
    return devices
