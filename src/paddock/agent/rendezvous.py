"""The rendezvous of a job of several nodes: find its leader, then lead or follow (leadership.py).

Which node leads (--master host:port):
    no --master given            this node: it chooses a port and prints the command to copy
    the same, hosts are known    --rank 0, wherever it is; the others look for it (look_out)
    host is an address of ours   the launcher that binds the port first; others here are members
    --rank 0 and a name, not     this node, on every address (the name may be that of a service in
    of ours                      front of it)
    otherwise                    another node: connect, again and again until --join-timeout
An unknown name is an error; in a pod, where it may be published in a moment, it is looked
up again until --join-timeout.

With --master etcd://... every node is a candidate (election.py). etcd is not needed while an
attempt runs, only to start one.
"""

from __future__ import annotations

import os

from paddock.agent.etcd_election.messages import Elected, Following, LeaderRecord
from paddock.agent.leadership.leadership import Leadership
from paddock.agent.leadership.majority import MajorityElector
from paddock.agent.transport.sockets import Network
from paddock.agent.transport.wire import GREETING_LIMIT_BYTES
from paddock.errors import EXIT_DEADLINE, PaddockError, UsageError
from paddock.local.facts.addresses import (
    UnknownNameError,
    address_towards,
    addresses_of,
    guess_address,
    in_thread,
    is_local,
    is_loopback,
    own_source,
    resolve,
)
from paddock.local.facts.credentials import client_tls, read_key, server_tls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.leadership.leadership import OwnLauncher
    from paddock.core.job import Rendezvous

CONNECT_SECONDS = 1.0
NAME_SECONDS = 0.5  # between two looks for a name
NAMES_AGAIN_SECONDS = 2.0  # and for one that has an address, where no leader lets us in


def join_others(run: OwnLauncher) -> None:
    """Start this node's part in a job of several nodes."""
    rendezvous = run.job.rendezvous
    net = Network(run.loop, server_tls(rendezvous), client_tls(rendezvous))
    leadership = Leadership(run, net, read_key(run.job, run.env))
    if rendezvous.kind == "etcd":
        join_by_etcd(leadership)
        return
    elector = MajorityElector(leadership)
    leadership.elect_by(elector)
    if rendezvous.among and rendezvous.node_rank == 0:
        if not _open_everywhere(elector, rendezvous):
            raise UsageError(
                f"port {rendezvous.port} is taken on this host, and the other nodes look there",
                hint="add --master HOST:PORT, an address of this host and a free port",
            )
    elif rendezvous.host or rendezvous.among:
        meet_when_known(elector)
    else:
        leadership.address = rendezvous.own_host or guess_address()
        leadership.port = rendezvous.port
        leadership.key = leadership.key or os.urandom(16).hex().encode()
        leadership.handle(Elected(0, None))


def meet_when_known(elector: MajorityElector) -> None:
    """Meet the others as soon as their names have addresses.

    The name of a pod is published when the pod has an address, and a little later. A name server
    that does not answer must not hold up a signal: a thread asks it.
    """
    leadership, run = elector.leadership, elector.leadership.run
    rendezvous = run.job.rendezvous
    deadline = run.loop.now() + rendezvous.join_timeout_seconds
    said = ""

    def look() -> None:
        if not run.is_ended:
            in_thread(lambda: _find(leadership, rendezvous), run.loop.post, known, unknown)

    def known(addresses: list[str]) -> None:
        if not run.is_ended:
            try:
                meet(elector, rendezvous, addresses)
            except UnknownNameError as error:
                unknown(error)
            except PaddockError as error:
                leadership.give_up(error)

    def unknown(error: PaddockError) -> None:
        nonlocal said
        is_passing = isinstance(error, UnknownNameError) and error.is_passing
        if not (is_passing or "KUBERNETES_SERVICE_HOST" in run.env):
            leadership.give_up(error)
        elif run.loop.now() >= deadline:
            error.exit_code = EXIT_DEADLINE
            leadership.give_up(error)
        elif not run.is_ended:
            if error.message != said:
                said = error.message
                run.member.reporter.waiting(said)
            run.loop.at("names", run.loop.now() + NAME_SECONDS, look)

    look()


def meet(elector: MajorityElector, rendezvous: Rendezvous, addresses: list[str]) -> None:
    """Lead if --master is this host's, else follow. Begins nothing when a name is unknown."""
    leadership = elector.leadership
    is_name = rendezvous.host not in addresses
    local = [address for address in addresses if is_local(address)]
    is_inward = is_name and rendezvous.host != "localhost" and _is_inward(local)
    if rendezvous.node_rank is None or not is_inward:
        for address in addresses:
            leadership.listener = leadership.net.bind(address, rendezvous.port)
            if leadership.listener is not None:
                elector.own_rendezvous_address = (address, rendezvous.port)
                leadership.address = rendezvous.own_host or address
                leadership.handle(Elected(0, None))
                return
    is_first = rendezvous.node_rank == 0 and is_name and (is_inward or not local)
    if is_first and _open_everywhere(elector, rendezvous):
        return
    if is_inward and rendezvous.node_rank is not None:
        addresses = [guess_address()]
    leadership.source = own_source(rendezvous)
    elector.first = (addresses[0], rendezvous.port)
    if is_name:
        elector.resolve_again = _asker(elector, rendezvous)
        _ask_until_welcomed(elector)
    target = LeaderRecord("", addresses[0], rendezvous.port, "")
    leadership.handle(Following(target, 0))


def _is_inward(local: list[str]) -> bool:
    """Return True if this host knows itself as 127.0.1.1 or so, where others cannot connect."""
    return bool(local) and all(is_loopback(address) for address in local)


def _open_everywhere(elector: MajorityElector, rendezvous: Rendezvous) -> bool:
    """Lead, listening on every address of this host, unless the port is taken."""
    leadership = elector.leadership
    leadership.listener = leadership.net.bind("", rendezvous.port)
    if leadership.listener is None:
        return False
    elector.own_rendezvous_address = ("", rendezvous.port)
    leadership.address = rendezvous.own_host or guess_address()
    leadership.handle(Elected(0, None))
    return True


def _find(leadership: Leadership, rendezvous: Rendezvous) -> list[str]:
    """The addresses at which the coordinator may be."""
    if not rendezvous.among:
        return resolve(rendezvous)
    return look_out(rendezvous, leadership.run.job.job_id)


def look_out(rendezvous: Rendezvous, job_id: str) -> list[str]:
    """Ask the hosts of an allocation one after the other for the coordinator of that job.

    The one whose greeting names the job is it: its address. One on this host is known by the
    address that the other hosts see. Raises UnknownNameError when none has it yet.
    """
    import json  # only where no variable tells
    import socket

    tls = client_tls(rendezvous)
    for host in rendezvous.among:
        for address in addresses_of(host):
            try:
                sock = socket.create_connection((address, rendezvous.port), CONNECT_SECONDS)
                with tls.wrap_socket(sock) if tls is not None else sock as opened:
                    line = opened.makefile("rb").readline(GREETING_LIMIT_BYTES)
                if json.loads(line)["job"] == job_id:
                    return [guess_address() if is_loopback(address) else address]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not there, not yet, or another program
    names = ", ".join(rendezvous.among[:8]) + (", ..." if len(rendezvous.among) > 8 else "")
    nobody = UnknownNameError(
        f"node 0 is not yet at port {rendezvous.port} of {names}",
        hint="start the same command on all of them, or add --master HOST:PORT",
    )
    nobody.is_passing = True
    raise nobody


def _asker(elector: MajorityElector, rendezvous: Rendezvous) -> Callable[[], None]:
    """Return a call that resolves the rendezvous address again: a new pod has another address."""
    leadership = elector.leadership
    is_asking = False

    def known(addresses: list[str]) -> None:
        nonlocal is_asking
        is_asking = False
        before, elector.first = elector.first, (addresses[0], rendezvous.port)
        if elector.first != before and not (leadership.state.uid or leadership.run.is_ended):
            meet(elector, rendezvous, addresses)  # what we followed was the one before

    def unknown(_error: PaddockError) -> None:
        nonlocal is_asking
        is_asking = False

    def ask() -> None:
        nonlocal is_asking
        if not is_asking:
            is_asking = True
            in_thread(
                lambda: _find(leadership, rendezvous), leadership.run.loop.post, known, unknown
            )

    return ask


def _ask_until_welcomed(elector: MajorityElector) -> None:
    """Resolve the rendezvous address until welcomed: a name server may cache that of an old pod."""
    leadership, loop = elector.leadership, elector.leadership.run.loop

    def again() -> None:
        if not (leadership.state.uid or leadership.run.is_ended):
            elector.find_rendezvous_address()
            _ask_until_welcomed(elector)

    loop.at("first", loop.now() + NAMES_AGAIN_SECONDS, again)


def join_by_etcd(leadership: Leadership) -> None:
    """Be a candidate in the etcd election, and follow the leader that is elected."""
    from paddock.agent.etcd_election.election import Election, EtcdElector
    from paddock.agent.etcd_election.succession import TTL_SECONDS
    from paddock.etcd.address import parse_etcd_url

    run = leadership.run
    rendezvous = run.job.rendezvous
    address = parse_etcd_url(rendezvous.etcd_url)
    leadership.address = rendezvous.own_host or address_towards(rendezvous.etcd[0])
    leadership.listener = leadership.net.bind(leadership.address, 0) or leadership.net.bind("", 0)
    if leadership.listener is None:
        raise UsageError(
            f"no port can be bound on {leadership.address}",
            hint="give an address of this host with --host",
        )
    leadership.port = leadership.listener.port
    record = LeaderRecord(os.uname().nodename, leadership.address, leadership.port, "")
    elector = EtcdElector(leadership)
    election = Election(
        address,
        run.job.job_id,
        record,
        lambda event: run.loop.post(lambda: elector.handle(event)),
        ttl_seconds=TTL_SECONDS,
    )
    run.member.reporter.echo("Waiting peer ready...")
    run.at_end(lambda: election.stop(ended=leadership.has_finished))
    elector.begin(election.ask)
    election.start()
