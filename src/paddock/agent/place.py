"""Carries out a node's place in a job (life.py): a coordinator with its door, or a client.

A coordinator is opened and closed as a unit, a Reign: its machine, its connections, its timers,
its link to our own member. What a closed one still has to say reaches nobody.
"""

from __future__ import annotations

from paddock.agent.addresses import bridge_of
from paddock.agent.client import Client
from paddock.agent.coordinator import Coordinator
from paddock.agent.election_values import AttemptRecord, Fenced
from paddock.agent.life import TTL_SECONDS, Life
from paddock.agent.life_words import (
    SHORT_GRACE_SECONDS,
    Abdicate,
    CoordinatorEnded,
    Follow,
    GiveUp,
    Halt,
    Idle,
    Lead,
    Learn,
    LinkLost,
    Now,
    Refused,
    Say,
    SetTimer,
    TimerFired,
    Unfollow,
    Unreachable,
    Welcomed,
)
from paddock.agent.server import Server
from paddock.core.messages import HandOver, Refuse
from paddock.core.plan import join_endpoint
from paddock.errors import EXIT_SIGNAL_BASE, PaddockError, UsageError, problem_text
from paddock.local.text import copy_block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.agent.life_words import Event, Order
    from paddock.agent.run import Run
    from paddock.agent.sockets import Listener, Net
    from paddock.core.membership import Phase
    from paddock.core.messages import End, Letter, Start

    class Elector(Protocol):
        """Whoever says who coordinates, and which attempts may start (election.py)."""

        def fence(self, record: AttemptRecord) -> None: ...
        def learn_uid(self, uid: str) -> None: ...
        def leader_lives(self, nonce: str, lives: bool) -> None: ...
        def leader_died(self, nonce: str) -> None: ...


class Reign:
    """One coordinator of this node, from its opening to its close."""

    def __init__(self, place: Place, order: Lead, listener: Listener) -> None:
        run = place.run
        self.is_over = False
        self._place = place
        self._listener = listener
        self._consent: dict[int, Callable[[], None]] = {}
        # A job that nobody can join any more gives its port to the ranks: they may meet there.
        self._gives_port = not (run.job.is_elastic or run.job.restart.max_restarts or place.elector)
        self.coordinator = Coordinator(
            run.job,
            run.loop,
            order.uid or run.new_uid(),
            on_end=self._on_end,
            may_start=self._may_start,
            inherited=order.inherited,
            silent_grace_seconds=SHORT_GRACE_SECONDS if place.elector is not None else None,
            on_phase=self._on_phase,
        )
        self.server = Server(run.job, run.loop, self.coordinator, listener, key=place.key)
        self._member = self.coordinator.attach(self)

    def begin(self, address: str) -> None:
        """Our own node is the first member. Raises PaddockError."""
        self._place.run.member.connect(
            self.coordinator.uid, self._hear, address, door=self._listener.port
        )

    def _hear(self, letter: Letter) -> None:
        """Our own member speaks."""
        if not self.is_over:
            self.coordinator.receive(self._member, letter, is_self=True)

    def send(self, letter: Letter) -> None:
        """To our own member: a call. A coordinator whose own node is refused cannot go on."""
        if not self.is_over:
            self._place.run.member.receive(letter)
            if isinstance(letter.message, Refuse):
                self._place.abdicate()

    def close(self) -> None:
        """Part of coordinator.Link; nothing to close."""

    def consent(self, attempt: int, reason: str) -> None:
        """etcd has decided. reason: "" when the attempt may start."""
        go = self._consent.pop(attempt, None)
        if go is None or self.is_over:
            return
        if not reason:
            go()
            return
        text = f"attempt {attempt} may not start: {reason}"
        self._place.run.member.say("WARNING", text)
        # Somebody else leads, and we hear so in a moment; or nobody does, and this goes nowhere.
        loop = self._place.run.loop
        loop.at("refused", loop.now() + 2 * TTL_SECONDS, lambda: self._give_up(text))

    def _give_up(self, text: str) -> None:
        if not self.is_over and self.coordinator.end is None:
            self._place.abdicate()
            self._place.give_up(PaddockError(text))

    def _on_phase(self, phase: Phase) -> None:
        if phase == "running" and self._gives_port:
            self._listener.close()

    def _may_start(self, start: Start, go: Callable[[], None]) -> None:
        elector = self._place.elector
        if elector is None:
            go()
            return
        self._consent = {start.attempt: go}
        budget = start.budget
        left = budget.seconds_left
        elector.fence(
            AttemptRecord(
                self._place.life.generation,
                start.attempt,
                self.coordinator.uid,
                start.keys,
                by=start.by,
                used_restarts=budget.used_restarts,
                total_restarts=budget.total_restarts,
                deadline=self._place.run.loop.wall() + left if left is not None else 0.0,
            )
        )

    def _on_end(self, end: End) -> None:
        if end.handed_over and self._place.elector is None:
            text = "a node that joins the job later needs the new coordinator's address in --master"
            self._place.run.member.say("INFO", text)
        self.server.end(self._done)

    def _done(self) -> None:
        """Everybody has heard it."""
        self._place.handle(CoordinatorEnded())
        self._place.run.end_when_over()

    def abdicate(self) -> None:
        """At once, without a verdict."""
        self.is_over = True
        self._consent.clear()
        self.coordinator.close()
        self.server.abandon()


class Place:
    """Owned by the loop's thread."""

    def __init__(self, run: Run, net: Net, key: bytes) -> None:
        self.run = run
        self.net = net
        self.key = key
        self.life = Life(run.job)
        self.elector: Elector | None = None
        self.reign: Reign | None = None
        self.client: Client | None = None
        self.address = ""  # by which others reach our coordinator
        self.port = 0
        self.door: Listener | None = None  # where it would listen
        self.source = ""
        run.member.on_idle = lambda: self.handle(Idle())
        run.member.on_hand_over = self.handle

    def now(self) -> Now:
        """What the machine has to know of the rest of this node."""
        member = self.run.member
        return Now(
            self.run.loop.now(),
            self.run.loop.wall(),
            member.is_running,
            member.key,
            member.start,
            member.budget_left(),
        )

    def begin(self) -> None:
        """Start the clock of the first election."""
        for order in self.life.begin(self.now()):
            self._do(order)

    def handle(self, event: Event) -> None:
        """Take one event, carry out what follows."""
        if isinstance(event, Fenced):
            if self.reign is not None:
                self.reign.consent(event.attempt, "" if event.ok else event.reason)
            return
        member = self.run.member
        is_next = isinstance(event, HandOver) and not self.elector and event.keys[0] == member.key
        if member.told_signal and isinstance(event, (LinkLost, HandOver)) and not is_next:
            # It was to leave; there is nobody to tell any more, and nobody waits for it.
            is_silent = isinstance(event, LinkLost) and event.ending == "silent"
            self._unfollow()
            member.halt("told to stop", hurry=is_silent, grace_seconds=SHORT_GRACE_SECONDS)
            code = EXIT_SIGNAL_BASE + member.told_signal
            member.give_up(PaddockError("told to stop while the coordinator went", exit_code=code))
        elif member.exit_code is None or self.reign is not None:
            for order in self.life.handle(event, self.now()):
                self._do(order)

    def _do(self, order: Order) -> None:
        member, loop = self.run.member, self.run.loop
        if isinstance(order, Say):
            member.say(order.level, order.text)
        elif isinstance(order, Halt):
            member.disconnect()
            member.halt(order.reason, hurry=order.hurry, grace_seconds=order.grace_seconds)
        elif isinstance(order, SetTimer):
            loop.at("life", order.at, lambda: self.handle(TimerFired()))
        elif isinstance(order, Lead):
            self._lead(order)
        elif isinstance(order, Follow):
            self._follow(order)
        elif isinstance(order, Unfollow):
            self._unfollow()
        elif isinstance(order, Abdicate):
            self.abdicate()
        elif isinstance(order, GiveUp):
            self.give_up(order.error)
        elif isinstance(order, Learn):
            if self.elector is not None:
                self.elector.learn_uid(order.uid)
        elif self.elector is not None:  # Unseat
            self.elector.leader_died(order.nonce)

    # ------------------------------------------------------------ coordinating

    def _lead(self, order: Lead) -> None:
        run = self.run
        bind = self.net.bind
        try:
            door = self.door or bind(self.address, self.port) or bind("", self.port)
            if door is None:
                raise UsageError(
                    f"no port can be bound on {self.address}",
                    hint="give an address of this host with --host",
                )
            run.hold_end()
            self.reign = Reign(self, order, door)
            self.door = None
            self.life.uid = self.reign.coordinator.uid
            if self.elector is not None:
                self.elector.learn_uid(self.life.uid)
            self._tell_door(door.port)
            self.reign.begin(self.address)
        except PaddockError as error:  # no port for a rank, say
            self.abdicate()
            self.give_up(error)

    def _tell_door(self, port: int) -> None:
        """What people have to know when others are to reach this node."""
        member, rendezvous = self.run.member, self.run.job.rendezvous
        member.say("INFO", "Waiting peer start...")
        if rendezvous.kind == "tcp" and not rendezvous.host:
            command = command_for_others(join_endpoint(self.address, port), self.key)
            self.run.say_raw(copy_block(command), to_stdout=True)
        if not self.key:
            where = join_endpoint(self.address, port)
            text = (
                f"no job key: any program that reaches {where} can take a node's place; "
                "set PADDOCK_TOKEN (or --token-file) on every node"
            )
            member.say("WARNING", text)
        if self.address.startswith("127.") and rendezvous.host not in (self.address, "localhost"):
            text = (
                f"this node is known to the others as {self.address}, which only this host can "
                "reach; give its address with --host"
            )
            member.say("WARNING", text)
        bridge = bridge_of(self.address)
        if bridge:
            text = (
                f"{self.address} belongs to {bridge}, a bridge of containers on this host: other "
                "hosts cannot reach it; give this host's own address with --host"
            )
            member.say("WARNING", text)

    def abdicate(self) -> None:
        """Close our own coordinator, as a unit."""
        self.run.member.disconnect()
        if self.reign is not None:
            self.reign.abdicate()
            self.reign = None
        self.run.end_when_over()

    # ------------------------------------------------------------------ joining

    def _follow(self, order: Follow) -> None:
        run, rendezvous = self.run, self.run.job.rendezvous
        target = order.target
        self.client = Client(
            run.loop,
            self.net,
            run.job.job_id,
            target,
            key=self.key,
            join_timeout_seconds=order.limit_seconds or rendezvous.join_timeout_seconds,
            limit_flag="--elastic_timeout" if order.limit_seconds else "--join-timeout",
            on_joined=self._on_joined,
            on_letter=self._on_letter,
            on_lost=lambda ending, why, left: self.handle(LinkLost(ending, why, left)),
            on_refused=lambda: self.handle(Refused()),
            on_failed=lambda error: self.handle(Unreachable(error)),
            on_waiting=lambda why: run.member.say(
                "INFO", f"Waiting peer start... {join_endpoint(*target)} does not answer yet: {why}"
            ),
            source=self.source,
        )

    def _on_joined(self, seen_as: str, uid: str) -> None:
        client = self.client
        assert client is not None
        run = self.run
        address = run.job.rendezvous.own_host or seen_as.removeprefix("::ffff:")
        if self.elector is None:
            self.address = address
            if self.door is None and run.job.is_elastic:
                self._open_door(seen_as)
        self.handle(Welcomed(uid))
        if self.elector is not None:
            self.elector.leader_lives(self.life.leader, True)
        run.member.say(
            "INFO", f"joined the coordinator at {join_endpoint(*client.target)} as {address}"
        )
        door = self.door.port if self.door is not None else 0
        try:
            run.member.connect(uid, client.send, address, door=door, translate=client.translate)
        except PaddockError as error:
            self.handle(Unreachable(error))

    def _open_door(self, seen_as: str) -> None:
        """Where the others would find us, if this node coordinated: nowhere behind a translation
        of addresses, nor with a certificate that only checks theirs. Not in a pod: the first one is
        made again by itself, and would begin a job of its own at the address it is given.
        """
        if "KUBERNETES_SERVICE_HOST" in self.run.env:
            return
        rendezvous = self.run.job.rendezvous
        is_seen = rendezvous.own_host in ("", seen_as)
        has_certificate = bool(rendezvous.tls_cert) or not rendezvous.tls_ca
        if is_seen and has_certificate:
            try:
                self.door = self.net.bind(seen_as, 0)
            except UsageError:
                return  # no descriptor is left, say: others can coordinate
            self.port = self.door.port if self.door is not None else 0

    def _on_letter(self, letter: Letter) -> None:
        self.run.member.receive(letter)
        if self.run.member.exit_code is not None:
            self._unfollow()

    def _unfollow(self) -> None:
        self.run.member.disconnect()
        if self.client is not None:
            self.client.close()
            self.client = None
        if self.elector is not None:
            self.elector.leader_lives(self.life.leader, False)

    def give_up(self, error: PaddockError) -> None:
        """This node's part is over; what it runs ends first."""
        member = self.run.member
        if member.is_running or member.attempt >= 0:
            member.halt(error.message)
            member.give_up(error)
        else:
            self.run.say_raw(problem_text(error))
            member.end(error.exit_code)

    @property
    def has_finished(self) -> bool:
        """The job ended under our own coordinator."""
        end = self.reign.coordinator.end if self.reign is not None else None
        return end is not None and not end.handed_over


def command_for_others(endpoint: str, key: bytes) -> str:
    """What starts another node: the same command, with --master and the key.

    Secrets among the words are named, not shown: they have to be set there first.
    """
    import sys

    from paddock.jobfile.shown import shown_words

    words = sys.argv[1:]
    line = shown_words(["--master", endpoint, *words["launch" in words[:1] :]])
    needs = "".join(f"# set {name} there first\n" for name in line.needs)
    prefix = f"PADDOCK_TOKEN={key.decode()} " if key else ""
    return f"{needs}{prefix}paddock launch {line.text}"
