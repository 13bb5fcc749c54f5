"""The nodes of a job, their rendezvous and the roles of their processes.

--nnodes, --master, --ips, etcd; run mode, counts per node, endpoint lists of workers, servers and
heter stages.
"""

from __future__ import annotations

from paddock.command_line import nearest, spelled
from paddock.core.endpoint import (
    ETCD_PORT,
    join_endpoint,
    parse_endpoint,
    split_endpoint,
    split_scheme,
)
from paddock.core.job import (
    DEVICE_KINDS,
    FIXED_LEASE_SECONDS,
    LEASE_SECONDS,
    MODES,
    Rendezvous,
    Role,
)
from paddock.core.value import replace
from paddock.errors import Problem
from paddock.jobfile.args import NODE_LISTS, to_integer
from paddock.jobfile.flags import RDZV_BACKENDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Mode
    from paddock.jobfile.args import FieldReader

DEFAULT_START_PORT = 6070  # --start-port of Paddle
DEFAULT_C10D_PORT = 29400  # torchrun, rdzv_endpoint without a port
DEFAULT_STATIC_PORT = 29500  # torchrun, master_port
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_NODES = 100_000
# Values that tell where the nodes meet; the first that is given counts.
MEETINGS = (
    "standalone", "master", "rdzv_endpoint", "master_addr", "elastic_server", "among", "hostfile",
)  # fmt: skip
PS_FLAGS = ("servers", "trainers", "server_num", "trainer_num")
HETER_FLAGS = ("heter_workers", "heter_worker_num", "heter_devices")
FIRST_DEFAULT_PORT = 6170  # fleet/launch_utils.py, ParameterServerLauncher
MAX_PROCS_PER_NODE = 10_000
MAX_STAGES = 1_000


def read_nnodes(reader: FieldReader) -> tuple[int, int] | None:
    """--nnodes as (min, max), None when absent or wrong."""
    if not reader.has("nnodes"):
        return None
    low_text, colon, high_text = reader.text("nnodes").partition(":")
    low = to_integer(low_text)
    high = to_integer(high_text) if colon else low
    if low is None or high is None:
        reader.fault("nnodes", "not a number of nodes", "write N, or MIN:MAX for an elastic job")
    elif low < 1:
        reader.fault("nnodes", "a job needs at least one node", "write --nnodes 1 or more")
    elif high < low:
        reader.fault("nnodes", "the minimum is above the maximum", f"write --nnodes {high}:{low}")
    elif high > MAX_NODES:
        reader.fault("nnodes", f"more than {MAX_NODES} nodes")
    else:
        return low, high
    return None


def read_meeting(reader: FieldReader) -> tuple[Rendezvous, str]:
    """The rendezvous that --master or a synonym tells, and the name of that value, "" for none.

    The number of nodes may still change it: see decide_rendezvous. Port 0 of rdzv_endpoint: any.
    """
    if reader.has("standalone") and reader.boolean("standalone"):
        return Rendezvous(), "standalone"
    by = next((name for name in MEETINGS[1:] if reader.has(name)), "")
    if not by:
        return Rendezvous(), ""
    text = reader.values[by].text.strip()
    scheme, rest = split_scheme(text)
    backend = reader.choice("rdzv_backend", RDZV_BACKENDS, "c10d") if by == "rdzv_endpoint" else ""
    is_etcd = by == "elastic_server" or backend.startswith("etcd")
    if is_etcd or (by == "master" and scheme in ("etcd", "etcds")):
        meeting = _read_etcd(reader, by, text)
    elif by == "master" and scheme not in ("", "http", "https", "tcp"):
        reader.fault(by, f"unknown scheme '{scheme}'", "write host:port or etcd://host:port")
        meeting = Rendezvous()
    elif by == "master":
        meeting = Rendezvous("tcp", *(reader.endpoint(by, rest.rstrip("/")) or ("", 0)))
    elif by == "rdzv_endpoint" and split_endpoint(text)[1] == "0":
        meeting = Rendezvous("tcp", reader.check_host(by, split_endpoint(text)[0]))
    elif by == "rdzv_endpoint":
        default = DEFAULT_STATIC_PORT if backend == "static" else DEFAULT_C10D_PORT
        meeting = Rendezvous("tcp", *(reader.endpoint(by, text, default) or ("", 0)))
    elif by == "master_addr":
        host = reader.check_host(by, reader.text(by))
        meeting = Rendezvous("tcp", host, reader.port("master_port") or DEFAULT_STATIC_PORT)
    else:
        meeting = Rendezvous(
            "tcp" if reader.has("among_port") else "alone",
            port=reader.port("among_port") or 0,
            among=reader.items("among"),
            hostfile=reader.text("hostfile"),
        )
    reader.note_source(
        by, "rendezvous.kind", "rendezvous.host", "rendezvous.port", "rendezvous.etcd"
    )
    return meeting, by


def _read_etcd(reader: FieldReader, by: str, text: str) -> Rendezvous:
    """``[etcd[s]://][user:password@]host[:port][,...][?ca=file]``; see etcd/address.py."""
    scheme, rest = split_scheme(text)
    rest, question, query = rest.partition("?")
    login, at, hosts = rest.rstrip("/").rpartition("@")
    items = [split_scheme(item.strip())[1] for item in hosts.split(",")]
    found = [reader.endpoint(by, item, ETCD_PORT) for item in items]
    etcd = tuple(join_endpoint(*endpoint) for endpoint in found if endpoint is not None)
    tls = "s" if scheme == "etcds" else ""
    url = f"etcd{tls}://{login}{at}{','.join(etcd)}{question}{query}"
    return Rendezvous("etcd", etcd=etcd, etcd_url=url)


def read_ips(reader: FieldReader) -> tuple[str, ...]:
    """--ips, checked: no address twice, no loopback among several."""
    ips = tuple(reader.check_host("ips", i) for i in reader.items("ips"))
    for ip in dict.fromkeys(i for i in ips if ips.count(i) > 1):
        hint = "several nodes on one machine: use --master host:port and --nnodes instead"
        reader.fault("ips", f"{ip} is named {ips.count(ip)} times", hint)
    for ip in ips:
        if len(ips) > 1 and ip in LOOPBACK:
            hint = "name the address by which the other nodes reach it"
            reader.fault("ips", f"{ip} means another machine on every node", hint)
    return ips


def hosts_of(roles: tuple[Role, ...]) -> tuple[str, ...]:
    """The distinct hosts of all endpoint lists, in order of appearance."""
    return tuple(dict.fromkeys(parse_endpoint(e)[0] for r in roles for e in r.endpoints))


def decide_nodes(
    reader: FieldReader, by: str, ips: tuple[str, ...], hosts: tuple[str, ...]
) -> tuple[int, int]:
    """Decide the number of nodes from --nnodes, --ips and the endpoint lists, which must agree.

    by: the name of the value that tells where they meet.
    """
    given = read_nnodes(reader)
    named = ips or hosts
    if given is None:
        if not named or by == "standalone":
            return 1, 1
        reader.note_source(_list_of(reader), "nnodes_min", "nnodes_max")
        return len(named), len(named)
    if by == "standalone" and given != (1, 1):
        reader.fault("nnodes", "--standalone means one node", "leave one of them out")
    elif named and not given[0] <= len(named) <= given[1]:
        where = f"{reader.label('ips')} names" if ips else "the endpoint lists name"
        reader.fault(
            "nnodes",
            f"{where} {len(named)} nodes",
            f"write --nnodes {len(named)}, or leave it out",
        )
    return given


def _list_of(reader: FieldReader) -> str:
    """The name of the list that names the nodes."""
    return next(filter(reader.has, NODE_LISTS))


def decide_rendezvous(
    reader: FieldReader,
    meeting: tuple[Rendezvous, str],
    ips: tuple[str, ...],
    roles: tuple[Role, ...],
    nnodes: tuple[int, int],
    *,
    is_elastic: bool,
) -> Rendezvous:
    """Decide the rendezvous of the nodes, once their number is known. meeting: of read_meeting."""
    known, by = meeting
    kind, host, port = known.kind, known.host, known.port
    hosts = hosts_of(roles)
    own_host = reader.text("host") and reader.check_host("host", reader.text("host"))
    if by == "rdzv_endpoint" and kind == "tcp" and host and not port and nnodes[1] > 1:
        if host not in LOOPBACK:
            reader.fault(by, f"port 0: the other nodes cannot find {host}", "name a port of it")
        host = ""  # this node serves, and prints the command for the others
    if kind != "etcd" and nnodes[1] == 1:
        kind, host, port = "alone", "", 0
        alone = ips or hosts
        if not own_host and len(alone) == 1:
            own_host = alone[0]  # endpoints name this node by that address
            reader.note_source(_list_of(reader), "rendezvous.own_host")
    elif kind == "alone":
        kind = "tcp"
        if ips:
            start_port = reader.port("start_port") or DEFAULT_START_PORT
            host, port = ips[0], max(start_port - 1, 1)
        elif len(hosts) > 1:
            host, port = hosts[0], _port_beside(roles, hosts[0])
        if host:
            reader.note_source(
                _list_of(reader), "rendezvous.kind", "rendezvous.host", "rendezvous.port"
            )
    cert, key = reader.text("tls_cert"), reader.text("tls_key")
    if bool(cert) != bool(key):
        given, missing = ("tls_cert", "tls_key") if cert else ("tls_key", "tls_cert")
        reader.fault(
            given, "a certificate and its key belong together", f"add {spelled(missing)} FILE"
        )
    if len(hosts) > 1:
        ips = ips or hosts
    return replace(
        known,
        kind=kind,
        host=host,
        port=port,
        ips=ips if nnodes[1] > 1 else (),
        node_rank=_decide_rank(reader, nnodes),
        own_host=own_host,
        join_timeout_seconds=reader.seconds("join_timeout", 300.0, is_zero_allowed=False),
        lease_seconds=reader.seconds(
            "lease",
            # An election in etcd is of a job that goes on without a node.
            FIXED_LEASE_SECONDS if kind == "tcp" and not is_elastic else LEASE_SECONDS,
            is_zero_allowed=False,
        ),
    )


def decide_start_port(reader: FieldReader, meeting: Rendezvous, ips: tuple[str, ...]) -> int | None:
    """The first port of the processes; None where they are chosen at the start.

    --ips counts from --start-port, 6070 if that is absent, as Paddle does and its documents say.
    A single address says nothing about ports: two jobs on a machine must not share one.
    """
    port = reader.port("start_port")
    is_free = reader.has("fixed_port") or reader.has("port_range") or meeting.kind != "alone"
    if port is not None or len(ips) < 2 or is_free:
        return port
    reader.note_source("ips", "start_port")
    return DEFAULT_START_PORT


def _port_beside(roles: tuple[Role, ...], host: str) -> int:
    """A port of that host next to those the lists name, the same on every node."""
    taken = {p for r in roles for h, p in map(parse_endpoint, r.endpoints) if h == host}
    port = min(taken) - 1
    return port if port >= 1024 else max(taken) + 1


def _decide_rank(reader: FieldReader, nnodes: tuple[int, int]) -> int | None:
    rank = reader.integer("rank", -1)
    if rank is None or rank < 0:
        return None
    if rank >= nnodes[1]:
        if reader.source("rank").kind == "environment" and nnodes[1] == 1:
            reader.notes.append(f"{reader.label('rank')} is not used: the job has one node")
            return None
        nodes = f"{nnodes[1]} node{'s' if nnodes[1] > 1 else ''}"
        what = f"the job has {nodes}, so ranks are 0..{nnodes[1] - 1}"
        reader.fault("rank", what, "raise --nnodes or lower --rank")
        return None
    return rank


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
            named = f"{len(devices)} device{'s' if len(devices) > 1 else ''} ({','.join(devices)})"
            hint = "every process needs a device of its own: name more, or start fewer processes"
            reader.fault("nproc_per_node", f"{count} processes but {named}", hint)
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
        what = f"{reader.source(list_name).name} names {len(endpoints)} endpoints"
        reader.fault(name, what, f"leave {reader.source(name).name} out")
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
        hint = "write --heter-worker-num 1, or --heter-workers ip:port,ip:port"
        reader.problems.append(Problem("--run-mode ps-heter needs heter workers", hint))
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
        what = f"'{text}' is not a number in 1..{MAX_PROCS_PER_NODE}"
        reader.fault("heter_worker_num", what, "write one number per stage, separated by ';'")
        return 1
    if listed and count != listed:
        what = f"{count} heter workers in a stage for which --heter-workers names {listed}"
        reader.fault("heter_worker_num", what, "leave --heter-worker-num out")
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
        what = f"{len(devices)} devices for {nstages} heter stages"
        reader.fault("heter_devices", what, "write one device per stage, separated by ';'")
        return ["cpu"] * nstages
    return devices
