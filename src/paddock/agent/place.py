"""Carries out a node's place in a job (life.py): a coordinator with its door, or a client."""

from __future__ import annotations

from paddock.agent import election_words as e
from paddock.agent import life_words as w
from paddock.agent.claims import Claims
from paddock.agent.client import Client
from paddock.agent.invite import invite
from paddock.agent.life import Life
from paddock.agent.reign import Reign
from paddock.agent.signpost import Signpost
from paddock.core.endpoint import join_endpoint
from paddock.errors import PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.launcher import Launcher
    from paddock.agent.reign import Elector
    from paddock.agent.sockets import Listener, Net
    from paddock.core.messages import Letter


class Place:
    """Owned by the loop's thread."""

    def __init__(self, run: Launcher, net: Net, key: bytes) -> None:
        self.run = run
        self.net = net
        self.key = key
        self.life = Life(run.job)
        self.elector: Elector | None = None
        self.reign: Reign | None = None
        self.client: Client | None = None
        self.claims: Claims | None = None  # while we look for other coordinators
        self.signpost: Signpost | None = None  # while we follow, and have the first address
        self.home: tuple[str, int] | None = None  # the job's first address, where it is ours
        self.first: tuple[str, int] | None = None  # or else
        self.find_first: Callable[[], None] = lambda: None  # its name may have another one now
        self.address = ""  # by which others reach our coordinator
        self.port = 0
        self.door: Listener | None = None  # where it would listen
        self.source = ""
        run.member.follower = self

    def now(self) -> w.Now:
        """What the machine has to know of the rest of this node."""
        member = self.run.member
        return w.Now(
            self.run.loop.now(),
            self.run.loop.wall(),
            member.is_running,
            member.key,
            member.start,
            member.is_start_fresh,
            member.budget_left(),
            member.told_signal,
            self.first,
        )

    def begin(self) -> None:
        """Start the clock of the first election."""
        for order in self.life.begin(self.now()):
            self._do(order)

    def idle(self) -> None:
        """Nothing of this node runs any more, and it has no link."""
        self.handle(w.Idle())

    def handle(self, event: w.Event) -> None:
        """Take one event, carry out what follows."""
        if isinstance(event, e.Fenced):
            if self.reign is not None:
                self.reign.consent(event.attempt, "" if event.ok else event.reason)
            return
        if self.run.member.exit_code is None or self.reign is not None:
            for order in self.life.handle(event, self.now()):
                self._do(order)

    def _do(self, order: w.Order) -> None:
        member, loop = self.run.member, self.run.loop
        if isinstance(order, w.Say):
            member.say(order.level, order.text)
        elif isinstance(order, w.Halt):
            member.disconnect()
            member.halt(order.reason, hurry=order.hurry, grace_seconds=order.grace_seconds)
        elif isinstance(order, w.SetTimer):
            loop.at("life", order.at, lambda: self.handle(w.TimerFired()))
        elif isinstance(order, w.Lead):
            self._lead(order)
        elif isinstance(order, w.Follow):
            self._follow(order)
        elif isinstance(order, w.Unfollow):
            self._unfollow(breaks=order.breaks)
        elif isinstance(order, w.Abdicate):
            self.abdicate()
        elif isinstance(order, w.GiveUp):
            self.give_up(order.error)
        elif isinstance(order, w.Learn):
            if self.elector is not None:
                self.elector.learn_uid(order.uid)
        elif self.elector is not None:  # Unseat
            self.elector.leader_died(order.nonce)

    # ------------------------------------------------------------ coordinating

    def _lead(self, order: w.Lead) -> None:
        run = self.run
        bind = self.net.bind
        try:
            is_first = order.inherited is None
            door = (None if is_first else self._bind_first()) or self.door
            door = door or bind(self.address, self.port) or bind("", self.port)
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
            invite(run, self.key, self.address, door.port)
            self.port = door.port  # known to the others from now on
            if is_first and self.elector is None and self.home is None:
                self.home = (self.address, self.port)
            self.reign.begin(self.address)
            if self.elector is None and not is_first:
                self.claims = Claims(self, self.reign)
        except PaddockError as error:  # no port for a rank, say
            self.abdicate()
            self.give_up(error)

    def _bind_first(self) -> Listener | None:
        """The others look there first; several nodes may share a host, and its address."""
        where = self.home or self.first
        door = self.net.bind(*where) if where is not None and self.elector is None else None
        if door is not None and self.door is not None:
            self.door.close()
        return door

    def abdicate(self) -> None:
        """Close our own coordinator, as a unit."""
        self.run.member.disconnect()
        if self.claims is not None:
            self.claims.close()
            self.claims = None
        if self.reign is not None:
            self.reign.abdicate()
            self.reign = None
        self.run.end_when_over()

    # ------------------------------------------------------------------ joining

    def _follow(self, order: w.Follow) -> None:
        run, rendezvous = self.run, self.run.job.rendezvous
        target = order.target
        if order.is_search:
            self.find_first()

        def waiting(why: str) -> None:
            where = join_endpoint(*target)
            run.member.reporter.waiting(f"{where} does not answer yet: {why}")

        self.client = Client(
            run.loop,
            self.net,
            run.job.job_id,
            target,
            key=self.key,
            join_timeout_seconds=order.limit_seconds or rendezvous.join_timeout_seconds,
            is_search=order.is_search,
            on_joined=self._on_joined,
            on_letter=self._on_letter,
            on_lost=lambda ending, why, left: self.handle(w.LinkLost(ending, why, left)),
            on_refused=lambda: self.handle(w.Refused()),
            on_failed=lambda error: self.handle(w.Unreachable(error)),
            on_waiting=(lambda _why: None) if order.is_search else waiting,
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
        self.handle(w.Welcomed(uid))
        if self.client is not client:
            return  # it is not the one we look for
        if self.elector is not None:
            self.elector.leader_lives(self.life.leader, True)
        run.member.say(
            "INFO", f"joined the coordinator at {join_endpoint(*client.target)} as {address}"
        )
        door = self.door.port if self.door is not None else 0
        try:
            run.member.connect(uid, client.send, address, door=door, translate=client.translate)
            post = self.net.bind(*self.home) if self.home is not None else None
            if post is not None:
                self.signpost = Signpost(self, post, uid, client.target)
        except PaddockError as error:
            self.handle(w.Unreachable(error))

    def _open_door(self, seen_as: str) -> None:
        """Where the others would find us, if this node coordinated: nowhere behind a translation
        of addresses, nor with a certificate that only checks theirs.
        """
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

    def _unfollow(self, *, breaks: bool = False) -> None:
        self.run.member.disconnect()
        if self.signpost is not None:
            self.signpost.close()
            self.signpost = None
        if self.client is not None:
            self.client.close(breaks=breaks)
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
            member.break_off(error)

    @property
    def has_finished(self) -> bool:
        """The job ended under our own coordinator."""
        end = self.reign.coordinator.end if self.reign is not None else None
        return end is not None and not end.handed_over
