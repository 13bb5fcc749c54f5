"""Carries out a node's place in a job (life.py): a coordinator with its door, or a client."""

from __future__ import annotations

from paddock.agent import life_words
from paddock.agent.client import Client, ClientEvents
from paddock.agent.invite import invite
from paddock.agent.life import Life
from paddock.agent.reign import Reign
from paddock.core.endpoint import join_endpoint
from paddock.errors import PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from paddock.agent.life import Succession
    from paddock.agent.reign import OwnLauncher
    from paddock.agent.sockets import Listener, Net
    from paddock.core.messages import Ending, Letter, Start

    class Elector(Protocol):
        """How the leader of a job is found: election.py for etcd, majority.py for its nodes.

        succession: decides where this node goes. first: the job's first address as it is known
        now, where that is another host's; find_first asks again. keeps_port: nodes may come while
        ranks run. bind: where this node has to listen as the leader, None for anywhere. may_start
        calls go when the attempt may start. on_leading: this node leads, and is the first member.
        on_joining: a leader answers, which sees this node at seen_as. on_following: that leader
        let it in; raises PaddockError.
        """

        @property
        def succession(self) -> Succession: ...
        @property
        def first(self) -> life_words.Target | None: ...
        @property
        def find_first(self) -> Callable[[], None]: ...
        @property
        def keeps_port(self) -> bool: ...
        def bind(self, order: life_words.Lead) -> Listener | None: ...
        def learn_uid(self, uid: str) -> None: ...
        def may_start(self, start: Start, go: Callable[[], None]) -> None: ...
        def on_leading(self, order: life_words.Lead) -> None: ...
        def on_leading_over(self) -> None: ...
        def on_joining(self, seen_as: str, address: str) -> None: ...
        def on_following(self, uid: str, target: life_words.Target) -> None: ...
        def on_following_over(self) -> None: ...
        def leader_died(self, nonce: str) -> None: ...


class Place(ClientEvents):
    """Owned by the loop's thread. Before anything else it is told how leaders are found."""

    elector: Elector
    life: Life

    def __init__(self, run: OwnLauncher, net: Net, key: bytes) -> None:
        self.run = run
        self.net = net
        self.key = key
        self.reign: Reign | None = None
        self.client: Client | None = None
        self.address = ""  # by which others reach our coordinator
        self.port = 0
        self.door: Listener | None = None  # where it would listen
        self.source = ""
        run.member.follower = self

    def elect_by(self, elector: Elector) -> None:
        """Say how leaders are found, once."""
        self.elector = elector
        self.life = Life(self.run.job, elector.succession)

    def now(self) -> life_words.Now:
        """What the machine has to know of the rest of this node."""
        member = self.run.member
        return life_words.Now(
            self.run.loop.now(),
            self.run.loop.wall(),
            member.is_running,
            member.key,
            member.start,
            member.is_start_fresh,
            member.budget_left(),
            member.told_signal,
            self.elector.first,
        )

    def idle(self) -> None:
        """Nothing of this node runs any more, and it has no link."""
        self.handle(life_words.Idle())

    def handle(self, event: life_words.Event) -> None:
        """Take one event, carry out what follows."""
        if self.run.member.exit_code is None or self.reign is not None:
            for order in self.life.handle(event, self.now()):
                self.carry_out(order)

    def carry_out(self, order: life_words.Order) -> None:
        """Do what the machine orders."""
        member, loop = self.run.member, self.run.loop
        if isinstance(order, life_words.Say):
            member.say(order.level, order.text)
        elif isinstance(order, life_words.Halt):
            member.disconnect()
            member.halt(order.reason, hurry=order.hurry, grace_seconds=order.grace_seconds)
        elif isinstance(order, life_words.SetTimer):
            loop.at("life", order.at, lambda: self.handle(life_words.TimerFired()))
        elif isinstance(order, life_words.Lead):
            self._lead(order)
        elif isinstance(order, life_words.Follow):
            self._follow(order)
        elif isinstance(order, life_words.Unfollow):
            self._unfollow(breaks=order.breaks)
        elif isinstance(order, life_words.Abdicate):
            self.abdicate()
        elif isinstance(order, life_words.GiveUp):
            self.give_up(order.error)
        else:
            self.elector.leader_died(order.nonce)

    # ------------------------------------------------------------ coordinating

    def _lead(self, order: life_words.Lead) -> None:
        run = self.run
        bind = self.net.bind
        try:
            door = self.elector.bind(order) or self.door
            door = door or bind(self.address, self.port) or bind("", self.port)
            if door is None:
                raise UsageError(
                    f"no port can be bound on {self.address}",
                    hint="give an address of this host with --host",
                )
            run.hold_end()
            self.reign = Reign(
                run, order, door, self.key, may_start=self.elector.may_start,
                handle=self.handle, close=self.abdicate, gives_port=not self.elector.keeps_port,
            )  # fmt: skip
            self.door = None
            self.life.uid = self.reign.coordinator.uid
            self.elector.learn_uid(self.life.uid)
            invite(run, self.key, self.address, door.port)
            self.port = door.port  # known to the others from now on
            self.reign.begin(self.address)
            self.elector.on_leading(order)
        except PaddockError as error:  # no port for a rank, say
            self.abdicate()
            self.give_up(error)

    def abdicate(self) -> None:
        """Close our own coordinator, as a unit."""
        self.run.member.disconnect()
        self.elector.on_leading_over()
        if self.reign is not None:
            self.reign.abdicate()
            self.reign = None
        self.run.end_when_over()

    # ------------------------------------------------------------------ joining

    def _follow(self, order: life_words.Follow) -> None:
        run, rendezvous = self.run, self.run.job.rendezvous
        if order.is_search:
            self.elector.find_first()
        self.client = Client(
            run.loop,
            self.net,
            run.job.job_id,
            order.target,
            key=self.key,
            join_timeout_seconds=order.limit_seconds or rendezvous.join_timeout_seconds,
            is_search=order.is_search,
            events=self,
            source=self.source,
        )

    def lost(self, ending: Ending, why: str, seconds_left: float) -> None:
        """The coordinator that we follow is gone."""
        self.handle(life_words.LinkLost(ending, why, seconds_left))

    def failed(self, error: PaddockError) -> None:
        """It cannot be reached, or does not want us."""
        self.handle(life_words.Unreachable(error))

    def refused(self) -> None:
        """Its host answers, and nobody listens there."""
        self.handle(life_words.Refused())

    def waiting(self, where: str, why: str) -> None:
        """It does not answer yet."""
        self.run.member.reporter.waiting(f"{where} does not answer yet: {why}")

    def joined(self, seen_as: str, uid: str) -> None:
        """The coordinator accepted us."""
        client = self.client
        assert client is not None
        run = self.run
        address = run.job.rendezvous.own_host or seen_as.removeprefix("::ffff:")
        self.elector.on_joining(seen_as, address)
        self.handle(life_words.Welcomed(uid))
        if self.client is not client:
            return  # it is not the one we look for
        self.elector.learn_uid(uid)
        run.member.say(
            "INFO", f"joined the coordinator at {join_endpoint(*client.target)} as {address}"
        )
        door = self.door.port if self.door is not None else 0
        try:
            run.member.connect(uid, client.send, address, door=door, translate=client.translate)
            self.elector.on_following(uid, client.target)
        except PaddockError as error:
            self.handle(life_words.Unreachable(error))

    def on_letter(self, letter: Letter) -> None:
        """An order."""
        self.run.member.receive(letter)
        if self.run.member.exit_code is not None:
            self._unfollow()

    def _unfollow(self, *, breaks: bool = False) -> None:
        self.run.member.disconnect()
        self.elector.on_following_over()
        if self.client is not None:
            self.client.close(breaks=breaks)
            self.client = None

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
