"""Join a job of several nodes: find out who coordinates, then be it or follow it (place.py).

Who coordinates (--master host:port):
    no --master given            this node: it chooses a port and prints the command to copy
    host is an address of ours   whoever binds the port first; the others on this host are members
    --rank 0 and a name, not     this node, on every address (the name may be that of a service in
    of ours                      front of it)
    otherwise                    somebody else: connect, again and again until --join-timeout
A name that nobody knows is an error; in a pod, where it may be published in a moment, it is looked
up again until --join-timeout.

With --master etcd://... every node is a candidate (election.py). etcd is not needed while an
attempt runs, only to start one.
"""

from __future__ import annotations

import os
from threading import Thread

from paddock.agent.addresses import (
    UnknownNameError,
    address_towards,
    guess_address,
    is_local,
    own_source,
    resolve,
)
from paddock.agent.credentials import client_tls, read_key, server_tls
from paddock.agent.election_values import Elected, Following, LeaderRecord
from paddock.agent.life import TTL_SECONDS
from paddock.agent.place import Place
from paddock.agent.sockets import Net
from paddock.errors import EXIT_DEADLINE, PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.run import Run
    from paddock.core.job import Rendezvous

NAME_SECONDS = 0.5  # between two looks for a name


def join_others(run: Run) -> None:
    """Start this node's part in a job of several nodes."""
    rendezvous = run.job.rendezvous
    net = Net(run.loop, server_tls(rendezvous), client_tls(rendezvous))
    place = Place(run, net, read_key(run.job, run.env))
    if rendezvous.kind == "etcd":
        join_by_etcd(place)
    elif rendezvous.host:
        meet_when_known(place)
    else:
        place.address = rendezvous.own_host or guess_address()
        place.port = rendezvous.port
        place.key = place.key or os.urandom(16).hex().encode()
        place.handle(Elected(0, None))


def meet_when_known(place: Place) -> None:
    """Meet the others as soon as their names have addresses.

    The name of a pod is published when the pod has an address, and a little later. A name server
    that does not answer must not hold up a signal: a thread asks it.
    """
    run = place.run
    rendezvous = run.job.rendezvous
    deadline = run.loop.now() + rendezvous.join_timeout_seconds
    said = ""

    def look() -> None:
        if not run.is_ended:
            in_thread(lambda: resolve(rendezvous), run.loop.post, known, unknown)

    def known(addresses: list[str]) -> None:
        if not run.is_ended:
            try:
                meet(place, rendezvous, addresses)
            except UnknownNameError as error:
                unknown(error)
            except PaddockError as error:
                place.give_up(error)

    def unknown(error: PaddockError) -> None:
        nonlocal said
        is_passing = isinstance(error, UnknownNameError) and error.is_passing
        if not (is_passing or "KUBERNETES_SERVICE_HOST" in run.env):
            place.give_up(error)
        elif run.loop.now() >= deadline:
            error.exit_code = EXIT_DEADLINE
            place.give_up(error)
        elif not run.is_ended:
            if error.message != said:
                said = error.message
                run.member.say("INFO", f"Waiting peer start... {said}")
            run.loop.at("names", run.loop.now() + NAME_SECONDS, look)

    look()


def in_thread(
    ask: Callable[[], list[str]],
    post: Callable[[Callable[[], None]], None],
    then: Callable[[list[str]], None],
    otherwise: Callable[[PaddockError], None],
) -> None:
    """Ask what may block, elsewhere; the answer comes through ``post``."""

    def run() -> None:
        try:
            found = ask()
        except PaddockError as error:
            failed = error
            post(lambda: otherwise(failed))
            return
        post(lambda: then(found))

    Thread(target=run, name="paddock-names", daemon=True).start()


def meet(place: Place, rendezvous: Rendezvous, addresses: list[str]) -> None:
    """Coordinate if --master is this host's, else follow. Begins nothing when a name is unknown."""
    own = rendezvous.own_host
    for address in addresses:
        place.door = place.net.bind(address, rendezvous.port)
        if place.door is not None:
            place.address = own or address
            place.handle(Elected(0, None))
            return
    is_name = rendezvous.host not in addresses
    if rendezvous.node_rank == 0 and is_name and not any(is_local(a) for a in addresses):
        place.door = place.net.bind("", rendezvous.port)
        if place.door is not None:
            place.address = own or guess_address()
            place.handle(Elected(0, None))
            return
    place.source = own_source(rendezvous)
    target = LeaderRecord("", addresses[0], rendezvous.port, "")
    place.handle(Following(target, 0))


def join_by_etcd(place: Place) -> None:
    """Be a candidate, and follow whoever is elected."""
    from paddock.agent.election import Election
    from paddock.agent.etcd_address import parse_etcd_url

    run = place.run
    rendezvous = run.job.rendezvous
    address = parse_etcd_url(rendezvous.etcd_url)
    place.address = rendezvous.own_host or address_towards(rendezvous.etcd[0])
    place.door = place.net.bind(place.address, 0) or place.net.bind("", 0)
    if place.door is None:
        raise UsageError(
            f"no port can be bound on {place.address}",
            hint="give an address of this host with --host",
        )
    place.port = place.door.port
    record = LeaderRecord(os.uname().nodename, place.address, place.port, "")
    election = Election(
        address,
        run.job.job_id,
        record,
        lambda event: run.loop.post(lambda: place.handle(event)),
        ttl_seconds=TTL_SECONDS,
    )
    place.elector = election
    run.member.say("INFO", "Waiting peer ready...")
    run.at_end(lambda: election.finish() if place.has_finished else election.stop())
    place.begin()
    election.start()
