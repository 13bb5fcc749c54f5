"""The nodes of a job and their rendezvous: --nnodes, --master, --ips, etcd, endpoint lists."""

from __future__ import annotations

from paddock.command_line import spelled
from paddock.core.endpoint import (
    ETCD_PORT,
    join_endpoint,
    parse_endpoint,
    split_endpoint,
    split_scheme,
)
from paddock.core.job import Rendezvous
from paddock.core.value import replace
from paddock.jobfile.flags import RDZV_BACKENDS
from paddock.jobfile.reader import to_integer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Role
    from paddock.jobfile.reader import FieldReader

DEFAULT_START_PORT = 6070  # --start-port of Paddle
DEFAULT_C10D_PORT = 29400  # torchrun, rdzv_endpoint without a port
DEFAULT_STATIC_PORT = 29500  # torchrun, master_port
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_NODES = 100_000


# Values that tell where the nodes meet; the first that is given counts.
MEETINGS = (
    "standalone", "master", "rdzv_endpoint", "master_addr", "elastic_server", "among", "hostfile",
)  # fmt: skip
LISTS = ("ips", "servers", "trainers", "heter_workers")  # they name the nodes


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
    return next(filter(reader.has, LISTS))


def decide_rendezvous(
    reader: FieldReader,
    meeting: tuple[Rendezvous, str],
    ips: tuple[str, ...],
    roles: tuple[Role, ...],
    nnodes: tuple[int, int],
) -> Rendezvous:
    """Decide the rendezvous of the nodes, once their number is known. meeting: of read_meeting."""
    told, by = meeting
    kind, host, port = told.kind, told.host, told.port
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
        reader.fault(given, "a certificate and its key belong together", f"add {spelled(missing)} FILE")
    if len(hosts) > 1:
        ips = ips or hosts
    return replace(
        told,
        kind=kind,
        host=host,
        port=port,
        ips=ips if nnodes[1] > 1 else (),
        node_rank=_decide_rank(reader, nnodes),
        own_host=own_host,
        join_timeout_seconds=reader.seconds("join_timeout", 300.0, is_zero_allowed=False),
        lease_seconds=reader.seconds("lease", 3.0, is_zero_allowed=False),
        tls_cert=cert,
        tls_key=key,
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
        reader.fault(
            "rank",
            f"the job has {nnodes[1]} node{'s' if nnodes[1] > 1 else ''}, "
            f"so ranks are 0..{nnodes[1] - 1}",
            "raise --nnodes or lower --rank",
        )
        return None
    return rank
