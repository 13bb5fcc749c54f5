"""Join a job whose coordinator is elected through etcd (--master etcd://...).

Every node is a candidate. The elected one coordinates; the others connect to it as they would to
any --master. When it is lost, its members stop their processes and elect another, which goes on
with the next attempt. etcd is not needed while an attempt runs, only to start one.

    event (election.py)   we are         what happens
    -------------------   ------------   ----------------------------------------------------------
    Elected               any            our processes stop; we serve, with the next attempt number
    Following             any            our processes stop; we join that coordinator
    Reelected             coordinator    go on, under the new generation
    Deposed               coordinator    our processes are killed, our members sent away
    Fenced ok             coordinator    the attempt starts
    EtcdDown, EtcdBack    any            the people are told; training goes on
    ElectionFailed        any            this node ends with the error
"""

from __future__ import annotations

import os
import socket
from time import monotonic

from paddock.agent.election import Election
from paddock.agent.election_values import (
    AttemptRecord,
    Deposed,
    Elected,
    ElectionFailed,
    EtcdBack,
    EtcdDown,
    Fenced,
    Following,
    LeaderRecord,
    Reelected,
)
from paddock.agent.etcd_address import parse_etcd_url
from paddock.agent.network import Network, guess_address
from paddock.agent.run import new_uid
from paddock.agent.server import BACKLOG
from paddock.errors import EXIT_DEADLINE, PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.coordinator import Coordinator
    from paddock.agent.election_values import Event
    from paddock.agent.run import Run

# Longer than a member's lease (3 s) plus the time a silent member's processes get to end, so that
# nobody is elected while processes of the attempt before may still run.
TTL_SECONDS = 6
STOPPED_POLL_SECONDS = 0.05


class Candidate(Network):
    """This node's part in a job coordinated by whoever etcd elects."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        address = parse_etcd_url(self.job.rendezvous.etcd_url)
        own = self.job.rendezvous.own_host or _address_towards(self.job.rendezvous.etcd[0])
        self._own = own
        self._bound: socket.socket | None = _bind(own, 0)
        self._port = int(self._bound.getsockname()[1])
        self._uid = ""
        self._generation = 0
        self._coordinator: Coordinator | None = None
        self._fences: dict[int, Callable[[], None]] = {}
        run.member.resign = self.resign
        record = LeaderRecord(os.uname().nodename, own, self._port, "")
        self._election = Election(
            address,
            self.job.job_id,
            record,
            lambda event: run.loop.post(lambda: self._on_event(event)),
            ttl_seconds=TTL_SECONDS,
        )
        run.member.say("INFO", "Waiting peer ready...")
        run.at_end(self._leave)
        limit = self.job.rendezvous.join_timeout_seconds
        run.loop.at("election", monotonic() + limit, lambda: self._nobody(limit))
        self._election.start()

    # ------------------------------------------------------------------ events

    def _on_event(self, event: Event) -> None:
        if self.run.member.exit_code is not None:
            return
        if isinstance(event, Elected):
            self._on_elected(event)
        elif isinstance(event, Following):
            self._on_following(event)
        elif isinstance(event, Reelected):
            self._generation = event.generation
        elif isinstance(event, Deposed):
            self._on_deposed(event.reason)
        elif isinstance(event, Fenced):
            self._on_fenced(event)
        elif isinstance(event, EtcdDown):
            self.run.member.say(
                "WARNING",
                f"etcd does not answer for {event.seconds:.0f} s ({event.reason}); "
                "what runs goes on, no new attempt can start",
            )
        elif isinstance(event, EtcdBack):
            self.run.member.say("INFO", "etcd answers again")
        elif isinstance(event, ElectionFailed):
            self._fail(event.error)

    def _on_elected(self, event: Elected) -> None:
        previous = event.previous
        was_ours = previous is not None and bool(self._uid) and previous.uid == self._uid
        if previous is not None and was_ours and previous.ended:
            self._fail(PaddockError("the job ended while this node was cut off from it"))
            return
        self._generation = event.generation
        self._drop_client()
        plan = self.run.member.plan
        # etcd may have lost its record, but not we: attempt numbers only grow.
        first_attempt = max(
            previous.attempt + 1 if previous is not None and not previous.ended else 0,
            plan.attempt + 1 if plan is not None else 0,
        )
        awaited = 0
        if previous is not None and was_ours:
            awaited = max(1, len(previous.members) - 1)
            self.run.member.say(
                "WARNING",
                f"this node coordinates from now on; waiting for {awaited} nodes of attempt "
                f"{previous.attempt}",
            )
        else:
            self._uid = new_uid()
        self._election.learn_uid(self._uid)

        def lead() -> None:
            self.run.loop.at("election", None, lambda: None)
            bound = self._bound or _bind(self._own, self._port)
            bound.listen(BACKLOG)
            self._bound = None
            self._coordinator = self.serve(
                bound,
                self._own,
                uid=self._uid,
                may_start=self._may_start,
                first_attempt=first_attempt,
                awaited=awaited,
                silent_grace_seconds=0.9,
            )

        self._when_stopped(lead)

    def _on_following(self, event: Following) -> None:
        self._drop_client()
        target = (event.record.host, event.record.port)
        self._when_stopped(lambda: self.join(target))

    def _on_deposed(self, reason: str) -> None:
        self.run.member.say("WARNING", f"this node coordinates no longer: {reason}")
        self.run.member.halt(reason, hurry=True)
        self.run.member.disconnect()
        self._fences.clear()
        if self.server is not None:
            self.server.abandon()
            self.server = None
        self._coordinator = None
        self.run.end_when_over()

    # ----------------------------------------------------------------- fencing

    def _may_start(self, attempt: int, go: Callable[[], None]) -> None:
        self._fences = {attempt: go}
        members = self._member_names()
        self._election.fence(AttemptRecord(self._generation, attempt, self._uid, members))

    def _member_names(self) -> tuple[str, ...]:
        count = len(self._coordinator.machine.active_ids) if self._coordinator else 1
        return tuple(str(i) for i in range(count))

    def _on_fenced(self, event: Fenced) -> None:
        go = self._fences.pop(event.attempt, None)
        if go is None:
            return
        if event.ok:
            go()
        else:
            self.run.member.say("WARNING", f"attempt {event.attempt} may not start: {event.reason}")

    # -------------------------------------------------------------------- loss

    def _on_joined(self, seen_as: str, uid: str) -> None:
        self._uid = uid
        self.run.loop.at("election", None, lambda: None)
        self._election.learn_uid(uid)
        super()._on_joined(seen_as, uid)

    def _on_lost(self, why: str, is_silent: bool) -> None:
        """Our coordinator is gone, or only the way to it: stop, and try to reach it again until
        the election names another.
        """
        member = self.run.member
        member.disconnect()
        self._drop_client()
        member.say("WARNING", f"the coordinator is lost ({why}); a new one is being elected")
        member.halt(why, hurry=is_silent, grace_seconds=0.9)
        limit = self.job.elastic.timeout_seconds + 2 * TTL_SECONDS
        self.run.loop.at("election", monotonic() + limit, lambda: self._nobody(limit))
        target = self._target
        self._when_stopped(lambda: self.join(target))

    def _on_failed(self, error: PaddockError) -> None:
        if error.exit_code == EXIT_DEADLINE:
            # It died before we reached it; the election names another, or the deadline ends us.
            self._drop_client()
            return
        super()._on_failed(error)

    def _nobody(self, limit_seconds: float) -> None:
        self._fail(
            PaddockError(
                f"no coordinator was elected within {limit_seconds:g} s",
                hint=f"is etcd at {','.join(self.job.rendezvous.etcd)} up and reachable?",
                exit_code=EXIT_DEADLINE,
            )
        )

    def _fail(self, error: PaddockError) -> None:
        if self.run.member.is_running:
            self.run.member.halt(error.message)
            self.run.member.give_up(error)
        else:
            super()._on_failed(error)

    # ------------------------------------------------------------------ helpers

    def _when_stopped(self, then: Callable[[], None]) -> None:
        """Once this node runs nothing: what it joins next must find it idle."""
        member = self.run.member
        member.disconnect()
        if member.is_running:
            member.halt("the coordinator changes", grace_seconds=0.9)
            self.run.loop.at(
                "stopped", monotonic() + STOPPED_POLL_SECONDS, lambda: self._when_stopped(then)
            )
            return
        self.run.loop.at("stopped", None, lambda: None)
        if member.exit_code is None:
            then()

    def _drop_client(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None

    def resign(self) -> bool:
        """Told to end while we coordinate others that can go on without us."""
        machine = self._coordinator.machine if self._coordinator else None
        if machine is None or len(machine.member_ids) - 1 < self.job.nnodes_min:
            return False
        self.run.member.say("INFO", "leaving: the other nodes elect another coordinator")
        self._coordinator = None
        member = self.run.member
        member.disconnect()
        if self.server is not None:
            self.server.abandon()
            self.server = None
        self._when_resigned()
        return True

    def _when_resigned(self) -> None:
        member = self.run.member
        if member.is_running:
            member.halt("leaving")
            self.run.loop.at("stopped", monotonic() + STOPPED_POLL_SECONDS, self._when_resigned)
            return
        member.say("WARNING", "left the job; the others go on")
        self.run.end_when_over()
        member.end(member.exit_code or 0)

    def _leave(self) -> None:
        if self._coordinator is not None and self._coordinator.verdict is not None:
            self._election.finish()
        else:
            self._election.stop()


def join_by_etcd(run: Run) -> None:
    """Start this node's part in a job coordinated through etcd."""
    Candidate(run)


def _bind(address: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: who connects too early is refused, not ignored."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((address, port))
    except (OSError, UnicodeError):
        try:
            sock.bind(("", port))  # --host is a name, or an address in front of this host
        except OSError as error:
            sock.close()
            raise UsageError(
                f"no port can be bound on {address}: {error.strerror}",
                hint="give an address of this host with --host",
            ) from error
    return sock


def _address_towards(endpoint: str) -> str:
    """Our address on the way to etcd; nothing is sent."""
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]").rpartition("@")[2]
    try:
        with socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
        ) as sock:
            sock.connect((host, int(port)))
            return str(sock.getsockname()[0])
    except (OSError, ValueError, UnicodeError):
        return guess_address()
