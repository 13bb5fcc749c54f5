"""Carries out what leadership_state.py decides: this node leads the job, or follows its leader."""

from __future__ import annotations

from paddock.agent.coordinator import Coordinator, CoordinatorEvents, LocalLink
from paddock.agent.etcd_election.messages import SteppedDown
from paddock.agent.leadership import messages
from paddock.agent.leadership.leadership_state import LeadershipState
from paddock.agent.transport.client import ClientEvents, CoordinatorClient
from paddock.agent.transport.invite import invite
from paddock.agent.transport.server import CoordinatorServer
from paddock.core.attempt.supervisor import SIGTERM
from paddock.core.endpoint import join_endpoint
from paddock.core.rendezvous.messages import SetTimer, Stop, TimerFired
from paddock.errors import PaddockError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from paddock.agent.leadership.leadership_state import Succession
    from paddock.agent.member import Member
    from paddock.agent.transport.sockets import Listener, Network
    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import End, Ending, Envelope, Start
    from paddock.core.rendezvous.state import Phase
    from paddock.local.loop import Loop

    class OwnLauncher(Protocol):
        """The parts of this node's launcher that leaders and followers need (launcher.py)."""

        job: Job
        env: Mapping[str, str]
        loop: Loop
        member: Member
        say_raw: Callable[..., None]

        @property
        def is_ended(self) -> bool: ...
        def on_news(self, coordinator: Coordinator) -> None: ...
        def on_session_over(self) -> None: ...
        def hold_end(self) -> None: ...
        def end_when_over(self) -> None: ...
        def at_end(self, close: Callable[[], None]) -> None: ...
        def new_uid(self) -> str: ...

    class Elector(Protocol):
        """The way the leader of a job is found: election.py for etcd, majority.py for its nodes.

        succession: decides where this node goes. first: the rendezvous address as it is known now,
        where that is another host's; find_rendezvous_address asks again. keeps_port: nodes
        may join while ranks run. bind: the listener of this node as the leader, None for any port.
        may_start calls go when the attempt may start. on_leading: this node leads, and is the first
        member. on_joining: a leader answers, which sees this node at seen_as. on_following: that
        leader let it in; raises PaddockError.
        """

        @property
        def succession(self) -> Succession: ...
        @property
        def first(self) -> messages.Target | None: ...
        @property
        def keeps_port(self) -> bool: ...
        def find_rendezvous_address(self) -> None: ...
        def bind(self, order: messages.Lead) -> Listener | None: ...
        def learn_uid(self, uid: str) -> None: ...
        def may_start(self, start: Start, go: Callable[[], None]) -> None: ...
        def on_leading(self, order: messages.Lead) -> None: ...
        def on_leading_over(self) -> None: ...
        def on_joining(self, seen_as: str, address: str) -> None: ...
        def on_following(self, uid: str, target: messages.Target) -> None: ...
        def on_following_over(self) -> None: ...
        def leader_died(self, nonce: str) -> None: ...


class Leadership(ClientEvents):
    """Carries out leadership, in the loop's thread. elect_by comes before any other call."""

    elector: Elector
    state: LeadershipState

    def __init__(self, run: OwnLauncher, net: Network, key: bytes) -> None:
        self.run = run
        self.net = net
        self.key = key
        self.session: LeaderSession | None = None
        self.client: CoordinatorClient | None = None
        self.address = ""  # at which others reach our coordinator
        self.port = 0
        self.listener: Listener | None = None  # where it would listen
        self.source = ""
        run.member.follower = self

    def elect_by(self, elector: Elector) -> None:
        self.elector = elector
        self.state = LeadershipState(self.run.job, elector.succession)

    def now(self) -> messages.LocalState:
        """The state of the rest of this node, for the machine."""
        member = self.run.member
        return messages.LocalState(
            self.run.loop.now(),
            self.run.loop.wall(),
            member.is_running,
            member.key,
            member.start,
            member.is_start_fresh,
            member.budget_left(),
            member.stop_signal,
            self.elector.first,
        )

    def idle(self) -> None:
        self.handle(messages.Idle())

    def handle(self, event: messages.Event) -> None:
        """Take one event, carry out what follows."""
        if self.run.member.exit_code is None or self.session is not None:
            for order in self.state.handle(event, self.now()):
                self.carry_out(order)

    def carry_out(self, order: messages.Order) -> None:
        member, loop = self.run.member, self.run.loop
        if isinstance(order, messages.PrintLine):
            member.say(order.level, order.text)
        elif isinstance(order, messages.StopRanks):
            member.disconnect()
            stop = Stop(
                member.attempt, order.reason, order.force, order.grace_seconds,
                signal=member.stop_signal or SIGTERM,
            )  # fmt: skip
            member.halt(stop)
        elif isinstance(order, SetTimer):
            loop.at("leadership", order.at, lambda: self.handle(TimerFired()))
        elif isinstance(order, messages.Lead):
            self._lead(order)
        elif isinstance(order, messages.Connect):
            self._follow(order)
        elif isinstance(order, messages.Disconnect):
            self._unfollow(breaks=order.breaks)
        elif isinstance(order, messages.StepDown):
            self.step_down()
        elif isinstance(order, messages.GiveUp):
            self.give_up(order.error)
        else:
            self.elector.leader_died(order.nonce)

    # ------------------------------------------------------------ coordinating

    def _lead(self, order: messages.Lead) -> None:
        run = self.run
        bind = self.net.bind
        try:
            listener = self.elector.bind(order) or self.listener
            listener = listener or bind(self.address, self.port) or bind("", self.port)
            if listener is None:
                raise UsageError(
                    f"no port can be bound on {self.address}",
                    hint="give an address of this host with --host",
                )
            run.hold_end()
            self.session = LeaderSession(self, order, listener)
            self.listener = None
            self.state.uid = self.session.coordinator.uid
            self.elector.learn_uid(self.state.uid)
            invite(run, self.key, self.address, listener.port)
            self.port = listener.port  # known to the others from now on
            LocalLink(self.session.coordinator, run.member).connect(self.address, listener.port)
            self.elector.on_leading(order)
        except PaddockError as error:  # no port for a rank, say
            self.step_down()
            self.give_up(error)

    def step_down(self) -> None:
        """Step down as the leader: close our own coordinator, as a unit."""
        self.run.member.disconnect()
        self.elector.on_leading_over()
        if self.session is not None:
            self.session.step_down()
            self.session = None
        self.run.end_when_over()

    # ------------------------------------------------------------------ joining

    def _follow(self, order: messages.Connect) -> None:
        if order.is_search:
            self.elector.find_rendezvous_address()
        seconds = order.limit_seconds or self.run.job.rendezvous.join_timeout_seconds
        self.client = self.connect(order.target, seconds, self, is_search=order.is_search)

    def connect(
        self, target: messages.Target, seconds: float, events: ClientEvents, *, is_search: bool
    ) -> CoordinatorClient:
        """Connect to the leader of our job at that address, within so many seconds."""
        return CoordinatorClient(
            self.run.loop, self.net, self.run.job.job_id, target, key=self.key,
            join_timeout_seconds=seconds, is_search=is_search, events=events, source=self.source,
        )  # fmt: skip

    def lost(self, ending: Ending, why: str, seconds_left: float) -> None:
        self.handle(messages.LinkLost(ending, why, seconds_left))

    def failed(self, error: PaddockError) -> None:
        self.handle(messages.Unreachable(error))

    def refused(self) -> None:
        self.handle(messages.Refused())

    def waiting(self, where: str, why: str) -> None:
        self.run.member.reporter.waiting(f"{where} does not answer yet: {why}")

    def joined(self, seen_as: str, uid: str) -> None:
        client = self.client
        assert client is not None
        run = self.run
        address = run.job.rendezvous.own_host or seen_as.removeprefix("::ffff:")
        self.elector.on_joining(seen_as, address)
        self.handle(messages.Joined(uid))
        if self.client is not client:
            return  # it is not the leader we look for
        self.elector.learn_uid(uid)
        run.member.say(
            "INFO", f"joined the coordinator at {join_endpoint(*client.target)} as {address}"
        )
        listen_port = self.listener.port if self.listener is not None else 0
        try:
            run.member.connect(
                uid, client.send, address, listen_port=listen_port, translate=client.translate
            )
            self.elector.on_following(uid, client.target)
        except PaddockError as error:
            self.handle(messages.Unreachable(error))

    def on_envelope(self, envelope: Envelope) -> None:
        self.run.member.receive(envelope)
        if self.run.member.exit_code is not None:
            self._unfollow()

    def _unfollow(self, *, breaks: bool = False) -> None:
        self.run.member.disconnect()
        self.elector.on_following_over()
        if self.client is not None:
            self.client.close(breaks=breaks)
            self.client = None

    def give_up(self, error: PaddockError) -> None:
        """End this node's part; its processes end first."""
        member = self.run.member
        if member.is_running or member.attempt >= 0:
            member.halt(Stop(member.attempt, error.message))
            member.give_up(error)
        else:
            member.break_off(error)

    @property
    def has_finished(self) -> bool:
        """The job ended under our own coordinator."""
        end = self.session.coordinator.end if self.session is not None else None
        return end is not None and not end.handed_over


class LeaderSession(CoordinatorEvents):
    """A term of this node as the leader: its coordinator, listener, links and timers, as a unit.

    No node can join once ranks run, unless the elector keeps the port: then the listener closes and
    ranks may bind its port (MASTER_PORT). After step_down() it sends nothing more.
    """

    def __init__(self, leadership: Leadership, order: messages.Lead, listener: Listener) -> None:
        self._leadership = leadership
        self._run = run = leadership.run
        self._listener = listener
        self.coordinator = Coordinator(
            run.job, run.loop, order.uid or run.new_uid(), events=self, handoff=order.handoff
        )
        self.server = CoordinatorServer(
            run.job, run.loop, self.coordinator, listener, key=leadership.key
        )

    def may_start(self, start: Start, go: Callable[[], None]) -> None:
        self._leadership.elector.may_start(start, go)

    def own_refused(self) -> None:
        """Step down: the coordinator cannot go on without its own node."""
        self._leadership.step_down()

    def on_news(self, coordinator: Coordinator) -> None:
        self._run.on_news(coordinator)

    def on_phase(self, phase: Phase) -> None:
        """Close the listener once ranks run, if they have its port."""
        if phase == "running" and not self._leadership.elector.keeps_port:
            self._listener.close()

    def ended(self, end: End) -> None:
        """End the session: the job has ended here, or another node leads."""
        if end.outdated:
            self._leadership.handle(SteppedDown(end.outdated))
        else:
            self.server.end(self._done)

    def _done(self) -> None:
        """All members have received the verdict or the HandOver."""
        self._leadership.handle(messages.CoordinatorEnded())
        self._run.end_when_over()

    def step_down(self) -> None:
        """Close the coordinator and all connections at once, without a verdict."""
        self.coordinator.close()
        self.server.abandon()
        self._run.on_session_over()
