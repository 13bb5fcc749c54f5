"""The address by which a node is known, and the addresses of this host. Asks the kernel.

No reverse lookup of names is made. ``resolve`` and ``addresses_of`` may ask a name server.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from threading import Thread

from paddock.core.endpoint import split_endpoint
from paddock.errors import PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.core.job import Rendezvous

SIOCGIFADDR = 0x8915  # linux/sockios.h
BRIDGES = ("docker", "br-", "virbr", "veth", "cni", "flannel")


class UnknownNameError(UsageError):
    """A name has no address. is_passing: it may have one in a moment."""

    is_passing = False


def own_source(rendezvous: Rendezvous) -> str:
    """The address to connect from: --host if it is ours, or our entry in --ips."""
    if rendezvous.own_host:
        return rendezvous.own_host if is_local(rendezvous.own_host) else ""
    if not rendezvous.ips:
        return ""
    mine = [ip for ip in dict.fromkeys(rendezvous.ips) if is_local(ip)]
    if not mine:
        unknown = [ip for ip in rendezvous.ips if not is_numeric(ip) and not addresses_of(ip)]
        raise (UnknownNameError if unknown else UsageError)(
            f"none of --ips {','.join(rendezvous.ips)} is an address of this host",
            hint="add this host's address to --ips on every node, or name it with --host",
        )
    if len(mine) > 1 and rendezvous.ips[0] in mine:
        mine = [ip for ip in mine if ip != rendezvous.ips[0]] if len(mine) == 2 else []
    if len(mine) != 1:
        raise UsageError(
            "several of --ips are addresses of this host",
            hint="say which one this node is with --host",
        )
    return mine[0]


def resolve(rendezvous: Rendezvous) -> list[str]:
    """The addresses of --master, numeric, IPv4 first. Raises UnknownNameError."""
    try:
        found = socket.getaddrinfo(rendezvous.host, rendezvous.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        unknown = UnknownNameError(
            f"--master {rendezvous.host}: {getattr(error, 'strerror', None) or error}",
            hint="check the name, or give a numeric address",
        )
        unknown.is_passing = getattr(error, "errno", None) == socket.EAI_AGAIN
        raise unknown from error
    found.sort(key=lambda item: item[0] != socket.AF_INET)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def in_thread(
    ask: Callable[[], list[str]],
    post: Callable[[Callable[[], None]], None],
    then: Callable[[list[str]], None],
    otherwise: Callable[[PaddockError], None] | None = None,
) -> None:
    """Resolve a name in another thread, as it may take long; the answer comes through ``post``."""

    def run() -> None:
        try:
            found = ask()
        except PaddockError as error:
            failed = error
            if otherwise is not None:
                post(lambda: otherwise(failed))
            return
        post(lambda: then(found))

    Thread(target=run, name="paddock-names", daemon=True).start()


def is_local(address: str) -> bool:
    """True when the address belongs to this host."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
            sock.bind((address, 0))
    except (OSError, UnicodeError):
        return False
    return True


def is_loopback(address: str) -> bool:
    """True when only this host can reach the address."""
    return address == "::1" or address.startswith("127.")


def guess_address() -> str:
    """The address by which other hosts most likely reach this one: the default route's.

    Connecting a datagram socket sends nothing; it only asks the routing table.
    """
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((far, 9))
                return str(sock.getsockname()[0])
        except OSError:
            continue  # no such route
    return _interface_address() or "127.0.0.1"


def _interface_address() -> str:
    """The first IPv4 address that is neither loopback nor a container bridge's; "" if none.

    Source: SIOCGIFADDR, netdevice(7).
    """
    for _, name in socket.if_nameindex():
        if name != "lo" and not name.startswith(BRIDGES):
            address = _ipv4_of(name)
            if address:
                return address
    return ""


def bridge_of(address: str) -> str:
    """The container bridge that has this IPv4 address; "" if none."""
    names = [name for _, name in socket.if_nameindex() if name.startswith(BRIDGES)]
    return next((name for name in names if _ipv4_of(name) == address), "")


def _ipv4_of(interface: str) -> str:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("256s", interface.encode()[:15])
        try:
            answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, request)
        except OSError:
            return ""  # it has no IPv4 address
        return socket.inet_ntoa(answer[20:24])


def address_towards(endpoint: str) -> str:
    """This host's address on the route to etcd; nothing is sent."""
    host, port = split_endpoint(endpoint)
    try:
        with socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
        ) as sock:
            sock.connect((host, int(port)))
            return str(sock.getsockname()[0])
    except (OSError, ValueError, UnicodeError):
        return guess_address()


def addresses_of(name: str) -> list[str]:
    """All addresses of a name, each in canonical form; none when the name is unknown."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [canonical(str(entry[4][0])) for entry in found]


def is_numeric(text: str) -> bool:
    """Return True if the text is an IP address and not a name."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def canonical(address: str) -> str:
    """The canonical text of an IP address; IPv4 in IPv6 is written as IPv4.

    >>> canonical("::ffff:10.0.0.1"), canonical("fd00:0::1")
    ('10.0.0.1', 'fd00::1')
    """
    parsed = ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
