"""Join a job of several nodes: find out who coordinates, be it or reach it.

Who coordinates (--master host:port):
    no --master given            this node: it chooses a port and prints the command to copy
    host is an address of ours   whoever binds the port first; the others on this host are members
    --rank 0 and a name, not     this node, on every address (the name may be that of a service in
    of ours                      front of it)
    otherwise                    somebody else: connect, again and again until --join-timeout
A name that nobody knows is an error; in a pod, where it may be published in a moment, it is looked
up again until --join-timeout. Nothing is looked up backwards.
"""

from __future__ import annotations

import errno
import os
import socket

from paddock.agent.client import Client
from paddock.agent.coordinator import Coordinator
from paddock.agent.guestlist import addresses_of, is_numeric
from paddock.agent.run import attach_self, new_uid
from paddock.agent.server import BACKLOG, Server
from paddock.core.plan import join_endpoint
from paddock.errors import (
    EXIT_DEADLINE,
    EXIT_OWN_FAULT,
    PaddockError,
    UsageError,
    problem_text,
)
from paddock.local.text import copy_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from paddock.agent.messages import ToMember
    from paddock.agent.run import Run
    from paddock.core.job import Job, Rendezvous
    from paddock.core.policy import Verdict

REJOIN_GRACE_SECONDS = 1.0
NAME_SECONDS = 0.5  # between two looks for a name
SIOCGIFADDR = 0x8915  # linux/sockios.h
BRIDGES = ("docker", "br-", "virbr", "veth", "cni", "flannel")


class Network:
    """This node's place among the others: a server with a coordinator, or a client."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.job = run.job
        self.key = read_key(run.job, run.env)
        self.server: Server | None = None
        self.client: Client | None = None
        self._target = ("", 0)

    # ------------------------------------------------------------ coordinating

    def serve(
        self,
        listener: socket.socket,
        address: str,
        *,
        uid: str = "",
        may_start: Callable[[int, Callable[[], None]], None] | None = None,
        first_attempt: int = 0,
        awaited: int = 0,
        silent_grace_seconds: float | None = None,
    ) -> Coordinator:
        """Coordinate the job from here, reachable by ``address``."""
        run = self.run
        run.hold_end()
        coordinator = Coordinator(
            self.job,
            run.loop,
            uid or new_uid(),
            on_end=self._on_end,
            may_start=may_start,
            first_attempt=first_attempt,
            awaited=awaited,
            silent_grace_seconds=silent_grace_seconds,
        )
        self.server = Server(
            self.job,
            run.loop,
            coordinator,
            listener,
            key=self.key,
            tls=server_tls(self.job.rendezvous),
        )
        port = int(listener.getsockname()[1])
        run.member.say("INFO", "Waiting peer start...")
        if self.job.rendezvous.kind == "tcp" and not self.job.rendezvous.host:
            run.output.say(copy_block(self._command(address, port)), to_stdout=True)
        if not self.key:
            run.member.say(
                "WARNING",
                f"no job key: any program that reaches {join_endpoint(address, port)} can take "
                "a node's place; set PADDOCK_TOKEN (or --token-file) on every node",
            )
        if address.startswith("127.") and self.job.rendezvous.host not in (address, "localhost"):
            run.member.say(
                "WARNING",
                f"this node is known to the others as {address}, which only this host can reach; "
                "give its address with --host",
            )
        bridge = bridge_of(address)
        if bridge:
            run.member.say(
                "WARNING",
                f"{address} belongs to {bridge}, a bridge of containers on this host: other "
                "hosts cannot reach it; give this host's own address with --host",
            )
        attach_self(run, coordinator, address)
        return coordinator

    def _on_end(self, _verdict: Verdict) -> None:
        if self.server is not None:
            self.server.end(self.run.end_when_over)

    def _command(self, address: str, port: int) -> str:
        """What starts another node: the same command, with --master and the key."""
        import shlex
        import sys

        words = sys.argv[1:]
        at = words.index("launch") + 1 if "launch" in words[:1] else 0
        words[at:at] = ["--master", join_endpoint(address, port)]
        start = "paddock" if at else "paddock launch"
        prefix = f"PADDOCK_TOKEN={self.key.decode()} " if self.key else ""
        return f"{prefix}{start} {shlex.join(words)}"

    # ------------------------------------------------------------------ joining

    def join(self, target: tuple[str, int], *, source: str = "") -> None:
        """Be a member of the coordinator at that address."""
        run = self.run
        self._target = target
        self.client = Client(
            run.loop,
            self.job.job_id,
            target,
            key=self.key,
            join_timeout_seconds=self.job.rendezvous.join_timeout_seconds,
            on_joined=self._on_joined,
            on_message=self._on_message,
            on_lost=self._on_lost,
            on_failed=self._on_failed,
            on_waiting=lambda why: run.member.say(
                "INFO", f"Waiting peer start... {join_endpoint(*target)} does not answer yet: {why}"
            ),
            tls=client_tls(self.job.rendezvous),
            source=source,
        )

    def _on_joined(self, seen_as: str, _uid: str) -> None:
        assert self.client is not None
        address = self.job.rendezvous.own_host or seen_as.removeprefix("::ffff:")
        client = self.client
        there = join_endpoint(*client.target)
        self.run.member.say("INFO", f"joined the coordinator at {there} as {address}")
        try:
            self.run.member.connect(client.send, address, translate=client.translate)
        except PaddockError as error:
            self._on_failed(error)

    def _on_message(self, message: ToMember) -> None:
        self.run.member.receive(message)
        if self.run.member.exit_code is not None and self.client is not None:
            self.client.close()

    def _on_lost(self, why: str, is_silent: bool) -> None:
        """The coordinator is gone. Our processes end; an elastic job looks for it again."""
        member = self.run.member
        member.disconnect()
        host, port = self._target
        text = f"the coordinator at {join_endpoint(host, port)} is lost: {why}"
        if is_silent:
            # The others take us for dead: our processes must be gone before theirs start again.
            member.halt(text, hurry=True)
        hint = (
            "the network between the nodes, or one of the two hosts, stood still"
            if is_silent
            else "look there: its launcher or its host ended"
        )
        error = PaddockError(
            text,
            hint=hint,
            exit_code=EXIT_OWN_FAULT,
            retryable=True,
        )
        if not self.job.is_elastic or member.exit_code is not None:
            # With restarts, a coordinator that lives on may replace this node soon.
            may_go_on = self.job.restart.max_restarts > 0
            grace = min(self.job.grace_seconds, REJOIN_GRACE_SECONDS) if may_go_on else None
            member.halt(text, grace_seconds=grace)
            member.give_up(error)
            return
        limit = self.job.elastic.timeout_seconds
        member.say("WARNING", f"{text}; trying to reach it again for {limit:g} s")
        member.halt(text, grace_seconds=min(self.job.grace_seconds, REJOIN_GRACE_SECONDS))
        self._rejoin_when_stopped(limit)

    def _rejoin_when_stopped(self, limit_seconds: float) -> None:
        from time import monotonic

        if self.run.member.is_running:
            self.run.loop.at(
                "rejoin", monotonic() + 0.1, lambda: self._rejoin_when_stopped(limit_seconds)
            )
            return
        assert self.client is not None
        self.client.reconnect(self._target, limit_seconds)

    def _on_failed(self, error: PaddockError) -> None:
        self.run.member.release_ports()
        self.run.output.say(problem_text(error))
        self.run.member.end(error.exit_code)
        if self.client is not None:
            self.client.close()


class UnknownNameError(UsageError):
    """A name has no address. is_passing: it may have one in a moment."""

    is_passing = False


def join_by_master(run: Run) -> None:
    """Start this node's part in a job whose nodes meet at --master."""
    rendezvous = run.job.rendezvous
    network = Network(run)
    if rendezvous.host:
        meet_when_known(run, network)
        return
    address = rendezvous.own_host or guess_address()
    listener = listen(address, rendezvous.port) or listen("", rendezvous.port)
    if not network.key:
        network.key = os.urandom(16).hex().encode()
    assert listener is not None
    network.serve(listener, address)


def meet_when_known(run: Run, network: Network) -> None:
    """Meet the others as soon as their names have addresses.

    The name of a pod is published when the pod has an address, and a little later.
    """
    from time import monotonic

    deadline = monotonic() + run.job.rendezvous.join_timeout_seconds
    said = ""

    def look() -> None:
        nonlocal said
        if run.is_ended:
            return
        try:
            _meet(run.job.rendezvous, network)
        except UnknownNameError as error:
            if not (error.is_passing or "KUBERNETES_SERVICE_HOST" in run.env):
                raise
            if monotonic() >= deadline:
                error.exit_code = EXIT_DEADLINE
                raise
            if error.message != said:
                said = error.message
                run.member.say("INFO", f"Waiting peer start... {said}")
            run.loop.at("names", monotonic() + NAME_SECONDS, look)

    look()


def _meet(rendezvous: Rendezvous, network: Network) -> None:
    """Coordinate if --master is this host's, else join. Begins nothing when a name is unknown."""
    addresses = resolve(rendezvous)
    own = rendezvous.own_host
    for address in addresses:
        listener = listen(address, rendezvous.port)
        if listener is not None:
            network.serve(listener, own or address)
            return
    is_name = rendezvous.host not in addresses
    if rendezvous.node_rank == 0 and is_name and not any(is_local(a) for a in addresses):
        listener = listen("", rendezvous.port)
        if listener is not None:
            network.serve(listener, own or guess_address())
            return
    network.join((addresses[0], rendezvous.port), source=own_source(rendezvous))


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


def listen(address: str, port: int) -> socket.socket | None:
    """A listening socket, or None when the address is not ours or somebody listens there."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
            return None
        raise UsageError(
            f"--master {join_endpoint(address, port)}: {error.strerror}",
            hint="ports below 1024 need root; choose another port",
        ) from error
    return sock


def is_local(address: str) -> bool:
    """True when the address belongs to this host."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as sock:
            sock.bind((address, 0))
    except (OSError, UnicodeError):
        return False
    return True


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


def read_key(job: Job, env: Mapping[str, str]) -> bytes:
    """The job key: --token-file, else PADDOCK_TOKEN; b"" when there is none."""
    path = job.rendezvous.token_file
    if path:
        try:
            with open(path, "rb") as f:
                key = f.read(4096).strip()
        except OSError as error:
            raise UsageError(
                f"--token-file '{path}' cannot be read: {error.strerror}",
                hint="the file holds the job key, the same on every node",
            ) from error
        if not key:
            raise UsageError(f"--token-file '{path}' is empty")
        return key
    return env.get("PADDOCK_TOKEN", "").encode()


def server_tls(rendezvous: Rendezvous) -> ssl.SSLContext | None:
    """The coordinator's TLS context; None without --tls-cert."""
    if not rendezvous.tls_cert:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(rendezvous.tls_cert, rendezvous.tls_key or None)
        if rendezvous.tls_ca:
            context.load_verify_locations(rendezvous.tls_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-cert '{rendezvous.tls_cert}': {error}", hint="give PEM files that match"
        ) from error
    return context


def client_tls(rendezvous: Rendezvous) -> ssl.SSLContext | None:
    """A member's TLS context; None without --tls-cert or --tls-ca."""
    if not (rendezvous.tls_cert or rendezvous.tls_ca):
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # nodes are known by address; the CA and the key say who is who
    try:
        context.load_verify_locations(rendezvous.tls_ca or rendezvous.tls_cert)
        if rendezvous.tls_cert and rendezvous.tls_ca:
            context.load_cert_chain(rendezvous.tls_cert, rendezvous.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-ca: {error}", hint="give a PEM file") from error
    return context
