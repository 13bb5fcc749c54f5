"""The nodes of a job and their rendezvous: --nnodes, --master, --ips, etcd, endpoint lists."""

from __future__ import annotations

from paddock.core.endpoint import (
    ETCD_PORT,
    join_endpoint,
    parse_endpoint,
    split_endpoint,
    split_scheme,
)
from paddock.core.job import Rendezvous
from paddock.jobfile.reader import to_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import RendezvousKind, Role
    from paddock.jobfile.reader import FieldReader

DEFAULT_START_PORT = 6070  # --start_port of Paddle
DEFAULT_C10D_PORT = 29400  # torchrun, rdzv_endpoint without a port
DEFAULT_STATIC_PORT = 29500  # torchrun, master_port
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_NODES = 100_000


class RendezvousAddress:
    """The rendezvous address of the nodes, before their number is known."""

    def __init__(self) -> None:
        self.kind: RendezvousKind = "alone"
        self.host = ""
        self.port = 0
        self.etcd: tuple[str, ...] = ()
        self.etcd_url = ""
        self.by = ""  # name of the value that decided it
        self.is_any_port = False
        self.among: tuple[str, ...] = ()
        self.hostfile = ""


def read_nnodes(reader: FieldReader) -> tuple[int, int] | None:
    """--nnodes as (min, max), None when absent or wrong."""
    if not reader.has("nnodes"):
        return None
    reader.note_source("nnodes")
    low_text, colon, high_text = reader.values["nnodes"].text.strip().partition(":")
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


def read_meeting(reader: FieldReader) -> RendezvousAddress:
    """Read the rendezvous address from --master and its synonyms."""
    meeting = RendezvousAddress()
    if reader.has("standalone") and reader.boolean("standalone"):
        meeting.by = "standalone"
        return meeting
    if reader.has("master"):
        _read_master(reader, meeting)
    elif reader.has("rdzv_endpoint"):
        _read_torchrun(reader, meeting)
    elif reader.has("master_addr"):
        meeting.by = "master_addr"
        meeting.kind = "tcp"
        meeting.host = reader.check_host("master_addr", reader.text("master_addr"))
        meeting.port = reader.port("master_port") or DEFAULT_STATIC_PORT
    elif reader.has("elastic_server"):
        meeting.by = "elastic_server"
        _read_etcd(reader, meeting, reader.values["elastic_server"].text.strip())
    elif reader.has("among") or reader.has("hostfile"):
        meeting.by = "among" if reader.has("among") else "hostfile"
        meeting.kind = "tcp" if reader.has("among_port") else "alone"
        meeting.among = reader.items("among")
        meeting.hostfile = reader.text("hostfile")
        meeting.port = reader.port("among_port") or 0
    if meeting.by:
        reader.note_source(
            meeting.by, "rendezvous.kind", "rendezvous.host", "rendezvous.port", "rendezvous.etcd"
        )
    return meeting


def _read_master(reader: FieldReader, meeting: RendezvousAddress) -> None:
    meeting.by = "master"
    text = reader.values["master"].text.strip()
    scheme, rest = split_scheme(text)
    if scheme in ("etcd", "etcds"):
        _read_etcd(reader, meeting, text)
        return
    if scheme not in ("", "http", "https", "tcp"):
        reader.fault("master", f"unknown scheme '{scheme}'", "write host:port or etcd://host:port")
        return
    meeting.kind = "tcp"
    meeting.host, meeting.port = reader.endpoint("master", rest.rstrip("/")) or ("", 0)


def _read_torchrun(reader: FieldReader, meeting: RendezvousAddress) -> None:
    from paddock.jobfile.flags import RDZV_BACKENDS

    meeting.by = "rdzv_endpoint"
    backend = reader.choice("rdzv_backend", RDZV_BACKENDS, "c10d")
    text = reader.values["rdzv_endpoint"].text.strip()
    if backend.startswith("etcd"):
        _read_etcd(reader, meeting, text)
        return
    meeting.kind = "tcp"
    host, port = split_endpoint(text)
    if port == "0":  # any free one; decide_rendezvous knows whether others must find it
        meeting.host, meeting.is_any_port = reader.check_host("rdzv_endpoint", host), True
        return
    default = DEFAULT_STATIC_PORT if backend == "static" else DEFAULT_C10D_PORT
    meeting.host, meeting.port = reader.endpoint("rdzv_endpoint", text, default) or ("", 0)


def _read_etcd(reader: FieldReader, meeting: RendezvousAddress, text: str) -> None:
    """``[etcd[s]://][user:password@]host[:port][,...][?ca=file]``; see etcd/address.py."""
    meeting.kind = "etcd"
    scheme, rest = split_scheme(text)
    rest, question, query = rest.partition("?")
    login, at, hosts = rest.rstrip("/").rpartition("@")
    items = [split_scheme(item.strip())[1] for item in hosts.split(",")]
    found = [reader.endpoint(meeting.by, item, ETCD_PORT) for item in items]
    meeting.etcd = tuple(join_endpoint(*endpoint) for endpoint in found if endpoint is not None)
    tls = "s" if scheme == "etcds" else ""
    meeting.etcd_url = f"etcd{tls}://{login}{at}{','.join(meeting.etcd)}{question}{query}"


def read_ips(reader: FieldReader) -> tuple[str, ...]:
    """--ips, checked: no address twice, no loopback among several."""
    ips = tuple(reader.check_host("ips", i) for i in reader.items("ips"))
    for ip in dict.fromkeys(i for i in ips if ips.count(i) > 1):
        reader.fault(
            "ips",
            f"{ip} is named {ips.count(ip)} times",
            "several nodes on one machine: use --master host:port and --nnodes instead",
        )
    for ip in ips:
        if len(ips) > 1 and ip in LOOPBACK:
            reader.fault(
                "ips",
                f"{ip} means another machine on every node",
                "name the address by which the other nodes reach it",
            )
    return ips


def hosts_of(roles: tuple[Role, ...]) -> tuple[str, ...]:
    """The distinct hosts of all endpoint lists, in order of appearance."""
    return tuple(dict.fromkeys(parse_endpoint(e)[0] for r in roles for e in r.endpoints))


def decide_nodes(
    reader: FieldReader, meeting: RendezvousAddress, ips: tuple[str, ...], hosts: tuple[str, ...]
) -> tuple[int, int]:
    """Decide the number of nodes from --nnodes, --ips and the endpoint lists, which must agree."""
    given = read_nnodes(reader)
    named, by = (ips, "ips") if ips else (hosts, "endpoint lists")
    if given is None:
        if not named or meeting.by == "standalone":
            return 1, 1
        for field in ("nnodes_min", "nnodes_max"):
            source = _names_source(reader)
            reader.sources[field] = reader.source("ips") if ips else reader.source(source)
        return len(named), len(named)
    if meeting.by == "standalone" and given != (1, 1):
        reader.fault("nnodes", "--standalone means one node", "leave one of them out")
    elif named and not given[0] <= len(named) <= given[1]:
        where = reader.label("ips") if by == "ips" else "the endpoint lists"
        reader.fault(
            "nnodes",
            f"{where} name{'s' if by == 'ips' else ''} {len(named)} nodes",
            f"write --nnodes {len(named)}, or leave it out",
        )
    return given


def _names_source(reader: FieldReader) -> str:
    for name in ("servers", "trainers", "heter_workers"):
        if reader.has(name):
            return name
    return "servers"


def decide_rendezvous(
    reader: FieldReader,
    meeting: RendezvousAddress,
    ips: tuple[str, ...],
    roles: tuple[Role, ...],
    nnodes: tuple[int, int],
) -> Rendezvous:
    """Decide the rendezvous of the nodes, once their number is known."""
    kind, host, port = meeting.kind, meeting.host, meeting.port
    hosts = hosts_of(roles)
    own_host = reader.text("host") and reader.check_host("host", reader.text("host"))
    if meeting.is_any_port and nnodes[1] > 1:
        if host not in LOOPBACK:
            reader.fault(
                meeting.by, f"port 0: the other nodes cannot find {host}", "name a port of it"
            )
        host = ""  # this node serves, and prints the command for the others
    if kind != "etcd" and nnodes[1] == 1:
        kind, host, port = "alone", "", 0
        alone = ips or hosts
        if not own_host and len(alone) == 1:
            own_host = alone[0]  # endpoints name this node by that address
            reader.sources["rendezvous.own_host"] = reader.source(
                "ips" if ips else _names_source(reader)
            )
    elif kind == "alone":
        kind = "tcp"
        if ips:
            start_port = reader.port("start_port") or DEFAULT_START_PORT
            host, port = ips[0], max(start_port - 1, 1)
            reader.note_source("ips", "rendezvous.kind", "rendezvous.host", "rendezvous.port")
        elif len(hosts) > 1:
            host, port = hosts[0], _port_beside(roles, hosts[0])
            reader.note_source(
                _names_source(reader), "rendezvous.kind", "rendezvous.host", "rendezvous.port"
            )
    rank = _decide_rank(reader, nnodes)
    cert, key = _read_certificate(reader)
    if hosts and not ips and len(hosts) > 1:
        ips = hosts
    return Rendezvous(
        kind=kind,
        host=host,
        port=port,
        etcd=meeting.etcd if kind == "etcd" else (),
        etcd_url=meeting.etcd_url if kind == "etcd" else "",
        ips=ips if nnodes[1] > 1 else (),
        among=meeting.among,
        hostfile=meeting.hostfile,
        node_rank=rank,
        own_host=own_host,
        join_timeout_seconds=reader.seconds("join_timeout", 300.0, is_zero_allowed=False),
        lease_seconds=reader.seconds("lease", 3.0, is_zero_allowed=False),
        tls_cert=cert,
        tls_key=key,
    )


def decide_start_port(
    reader: FieldReader, meeting: RendezvousAddress, ips: tuple[str, ...]
) -> int | None:
    """The first port of the processes; None where they are chosen at the start.

    --ips counts from --start_port, 6070 if that is absent, as Paddle does and its documents say.
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
    rank = reader.integer("rank", -1, default=-1)
    if rank is None or rank < 0:
        return None
    if rank >= nnodes[1]:
        if reader.source("rank").kind == "environment" and nnodes[1] == 1:
            reader.notes.append(f"{reader.label('rank')} is not used: the job has one node")
            return None
        reader.fault(
            "rank",
            f"the job has {nnodes[1]} node{'s' if nnodes[1] > 1 else ''}, "
            f"so ranks are 0..{nnodes[1] - 1}",
            "raise --nnodes or lower --rank",
        )
        return None
    return rank


def _read_certificate(reader: FieldReader) -> tuple[str, str]:
    cert, key = reader.text("tls_cert"), reader.text("tls_key")
    if bool(cert) != bool(key):
        given, missing = ("tls_cert", "tls_key") if cert else ("tls_key", "tls_cert")
        reader.fault(given, "a certificate and its key belong together", f"add --{missing} FILE")
    return cert, key
