"""Letters of another run, or of another time, reach nobody: the gates of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agent.rooms import UID, job_of
from paddock.agent.coordinator import Coordinator, CoordinatorEvents
from paddock.agent.member import Member
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import Host
from paddock.core.rendezvous import messages as m
from paddock.core.rendezvous.messages import Envelope
from paddock.jobfile.flags import config_fingerprint
from paddock.local.loop import Loop
from paddock.local.report.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paddock.core.job import Job
    from paddock.core.plan import Plan
    from paddock.local.node import NodeEvents

HERE = Host("here", "10.0.0.1", ports=(1,), service_ports=(2, 3, 4, 5))
THERE = Host("there", "10.0.0.2", ports=(1,), service_ports=(2, 3, 4, 5))
LOST = Verdict("fail", 124, "gave up after 300 s")
FAILED = Exit("worker", 1, 1, "there", 0, 5, 7)
JOB = job_of(2)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """One that never turns: only what was said counts."""
    made = Loop()
    yield made
    made.close()


# -------------------------------------------------------------------------- the coordinator


class Link:
    """The way to a member; keeps what was said."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.is_closed = False

    def send(self, envelope: Envelope) -> None:
        """As coordinator.Link."""
        assert not self.is_closed
        self.envelopes.append(envelope)

    def close(self) -> None:
        """As coordinator.Link."""
        self.is_closed = True

    def said(self, kind: type) -> list[m.ToCoordinator | m.ToMember]:
        """The messages of one kind."""
        return [each.message for each in self.envelopes if isinstance(each.message, kind)]


class Ends(CoordinatorEvents):
    """Writes down how the job ended."""

    def __init__(self, ends: list[m.End]) -> None:
        self.ends = ends

    def ended(self, end: m.End) -> None:
        """As agent/coordinator.py."""
        self.ends.append(end)


class Office:
    """A coordinator of a job of two nodes, and the links to both."""

    def __init__(self, loop: Loop, job: Job = JOB) -> None:
        self.ends: list[m.End] = []
        self.coordinator = Coordinator(job, loop, UID, events=Ends(self.ends))
        self.links = (Link(), Link())
        self.members = [self.coordinator.attach(link) for link in self.links]

    def hear(self, which: int, message: m.ToCoordinator, attempt: int, uid: str = UID) -> None:
        """A member says so."""
        envelope = Envelope(uid, attempt, message)
        self.coordinator.receive(self.members[which], envelope, is_self=which == 0)

    def join(self, which: int, attempt: int = -1, uid: str = UID) -> None:
        """A member joins."""
        host = (HERE, THERE)[which]
        self.hear(which, m.Join(host, host.name, fingerprint=config_fingerprint(JOB)), attempt, uid)

    def run(self) -> None:
        """Both join; attempt 0 runs."""
        self.join(0)
        self.join(1)
        assert self.coordinator.machine.phase == "running"


def test_a_coordinator_takes_what_its_members_say(loop: Loop) -> None:
    """So what it ignores below is ignored for what it belongs to."""
    office = Office(loop)
    office.run()
    office.hear(1, m.Exited(FAILED), 0)
    assert [len(link.said(m.Stop)) for link in office.links] == [1, 1]


@pytest.mark.parametrize(
    ("uid", "attempt"),
    [("other", 0), ("other", -1), (UID, 1), (UID, 7)],
    ids=["another run", "another run, before any attempt", "the next attempt", "a later attempt"],
)
@pytest.mark.parametrize(
    "message",
    [m.Exited(FAILED), m.Leave(15), m.CannotRun("no ports", 2), m.Stopped(0, THERE)],
    ids=lambda message: type(message).__name__,
)
def test_a_coordinator_ignores_what_is_not_for_it(
    loop: Loop, uid: str, attempt: int, message: m.ToCoordinator
) -> None:
    """Whoever is in a later attempt has another coordinator."""
    office = Office(loop)
    office.run()
    before = [list(link.envelopes) for link in office.links]
    office.hear(1, message, attempt, uid)
    assert [link.envelopes for link in office.links] == before
    assert office.coordinator.machine.phase == "running"
    assert list(office.coordinator.machine.state.member_table.peers) == office.members


def test_a_member_of_before_the_attempt_may_leave(loop: Loop) -> None:
    """It was told to end while the order to start was on its way."""
    office = Office(loop)
    office.run()
    office.hear(1, m.Leave(15), -1)
    assert len(office.links[1].said(m.Stop)) == 1


def test_a_join_of_another_run_is_not_taken(loop: Loop) -> None:
    """The welcome told it this run's uid; it speaks of another."""
    office = Office(loop)
    office.join(1, uid="other")
    assert office.coordinator.machine.state.member_table.peers == {}


def test_a_join_of_a_later_attempt_is_taken_and_counted_on_from(loop: Loop) -> None:
    """The coordinator before started attempts that left no record; no number is given twice."""
    office = Office(loop)
    office.join(0)
    office.join(1, attempt=4)
    for link in office.links:
        (start,) = link.said(m.Start)
        assert isinstance(start, m.Start)
        assert start.attempt == 5
        assert link.envelopes[-1].attempt == 5


def test_a_join_while_an_attempt_runs_does_not_change_its_number(loop: Loop) -> None:
    """What the others report of it would be of another attempt."""
    office = Office(loop)
    office.run()
    member = office.coordinator.attach(Link())
    join = m.Join(THERE, "third", fingerprint=config_fingerprint(JOB))
    office.coordinator.receive(member, Envelope(UID, 4, join))
    assert office.coordinator.machine.attempt == 0


def test_every_letter_of_a_coordinator_says_what_it_belongs_to(loop: Loop) -> None:
    """The run and the attempt."""
    office = Office(loop)
    office.run()
    office.hear(1, m.Exited(FAILED), 0)
    for link in office.links:
        assert {(envelope.uid, envelope.attempt) for envelope in link.envelopes} == {(UID, 0)}


def test_a_closed_coordinator_neither_speaks_nor_hears(loop: Loop) -> None:
    """Its gathering timer would tell its own node that the job failed."""
    job = job_of(3)
    office = Office(loop, job)
    host_join = m.Join(HERE, "here", fingerprint=config_fingerprint(job))
    office.hear(0, host_join, -1)
    before = [list(link.envelopes) for link in office.links]
    assert before[0]
    office.coordinator.close()
    office.hear(1, m.Join(THERE, "there", fingerprint=config_fingerprint(job)), -1)
    office.coordinator.lose(office.members[0], "closed")
    office.coordinator.tell_turned_away("10.0.0.9", "the job key is wrong")
    loop.at("end", loop.now(), loop.stop)
    loop.run()
    assert [link.envelopes for link in office.links] == before
    assert office.ends == []


def test_a_closed_coordinator_has_no_timer_left() -> None:
    """Whatever was set: the job would end by a coordinator that is none any more."""
    timers: dict[str, float | None] = {}

    class Clock(Loop):
        def at(self, name: str, when: float | None, callback: Callable[[], None]) -> None:
            timers[name] = when
            super().at(name, when, callback)

    loop = Clock()
    office = Office(loop)
    office.join(0)
    assert [when for when in timers.values() if when is not None]
    office.coordinator.close()
    assert [when for when in timers.values() if when is not None] == []
    loop.close()


# ------------------------------------------------------------------------------- the member


class NodeRunner:
    """Stands for devices, ports and processes: what it was told."""

    events: NodeEvents

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self.warning = ""
        self.server_restarts = 0
        self.is_running = False
        self.is_stopping = False
        self.started: list[int] = []
        self.stopped: list[str] = []

    def gather(self, address: str) -> Host:
        """The facts of this node."""
        return Host("there", address, ports=(1,), service_ports=(2, 3, 4, 5))

    def prepare(self, then: Callable[[int], None]) -> None:
        """There is no hook."""
        then(0)

    def cancel_hook(self) -> None:
        """There is no hook."""

    def start(self, plan: Plan, _node_rank: int) -> None:
        """As local/node.py."""
        assert not self.is_running, "two attempts at once"
        self.started.append(plan.attempt)
        self.is_running, self.is_stopping = True, False

    def stop(self, order: m.Stop) -> None:
        """As local/node.py; they end when the test says so."""
        self.stopped.append(order.reason)
        self.is_stopping = True

    def end(self, attempt: int) -> None:
        """Its processes have ended."""
        self.is_running = False
        self.events.stopped(attempt)

    def last_notes(self) -> list[str]:
        """There are no servers."""
        return []

    def close(self) -> None:
        """Nothing to give back."""


class Seat:
    """A member of a job of two nodes."""

    def __init__(self, loop: Loop, uid: str = UID) -> None:
        self.share = NodeRunner()
        self.said: list[Envelope] = []
        self.told: list[str] = []
        self.ended: list[int] = []
        self.handed: list[m.HandOver] = []
        self.member = Member(
            JOB, loop, self.share, pod_name="b", events=self,  # type: ignore[arg-type]  # stands for it
            reporter=Reporter(20, self.told.append),
        )  # fmt: skip
        self.member.follower = self
        self.connect(uid)

    def starting(self, _plan: Plan, _node_rank: int) -> None:
        """As agent/launcher.py."""

    def on_verdict(self, _verdict: Verdict, _uid: str, _is_own: bool) -> None:
        """As agent/launcher.py."""

    def over(self, exit_code: int) -> None:
        """As agent/launcher.py."""
        self.ended.append(exit_code)

    def idle(self) -> None:
        """As agent/leadership/leadership.py."""

    def handle(self, event: m.HandOver) -> None:
        """As agent/leadership/leadership.py."""
        self.handed.append(event)

    def connect(self, uid: str) -> None:
        """A coordinator let it in."""
        self.member.connect(uid, self.said.append, THERE.address)

    def hear(self, message: m.ToMember, attempt: int, uid: str = UID) -> None:
        """The coordinator says so."""
        self.member.receive(Envelope(uid, attempt, message))

    def run(self, attempt: int, uid: str = UID) -> None:
        """That attempt is started."""
        self.hear(start_of(attempt), attempt, uid)
        assert self.share.started[-1] == attempt

    def see(self) -> tuple[object, ...]:
        """All that it did."""
        share = self.share
        return (
            list(self.said), list(self.told), list(self.ended), list(self.handed),
            list(share.started), list(share.stopped), self.member.attempt,
        )  # fmt: skip


def start_of(attempt: int) -> m.Start:
    """An order to start on both nodes."""
    return m.Start(attempt, (HERE, THERE), ("a/a", "there/b"), (0, 0), "a/a")


ORDERS: list[m.ToMember] = [
    m.JobEnded(LOST),
    m.Stop(0, "why"),
    m.HandOver(2, ("c",), "10.0.0.3", 7003, m.Budget()),
    m.Notice("waiting for nodes"),
    start_of(0),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_a_member_carries_out_the_orders_of_its_attempt(loop: Loop, order: m.ToMember) -> None:
    """So what it ignores below is ignored for what it belongs to."""
    seat = Seat(loop)
    if not isinstance(order, m.Start):
        seat.run(0)
    before = seat.see()
    seat.hear(order, 0)
    assert seat.see() != before


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
@pytest.mark.parametrize(
    ("uid", "attempt"),
    [("other", 3), ("other", 9), (UID, 2), (UID, -1)],
    ids=["another run", "another run, later", "an older attempt", "before any attempt"],
)
def test_a_member_ignores_what_is_not_for_it(
    loop: Loop, uid: str, attempt: int, order: m.ToMember
) -> None:
    """A coordinator that was deposed, or cut off, and does not know."""
    seat = Seat(loop)
    seat.run(3)
    before = seat.see()
    seat.hear(order, attempt, uid)
    assert seat.see() == before


@pytest.mark.parametrize("is_running", [True, False])
def test_the_ghost_of_a_coordinator_ends_nobody(loop: Loop, is_running: bool) -> None:
    """Its timer fires long after another has started the next attempt: fail 124."""
    seat = Seat(loop)
    seat.run(3)
    if not is_running:
        seat.share.end(3)
    seat.hear(m.JobEnded(LOST), 2)
    assert (seat.ended, seat.share.stopped, seat.member.exit_code) == ([], [], None)
    seat.hear(m.JobEnded(LOST), 3)
    if is_running:
        assert seat.share.stopped == [LOST.reason]
        seat.share.end(3)
    assert seat.ended == [124]


def test_an_order_for_the_next_attempt_is_taken(loop: Loop) -> None:
    """It is what a coordinator says before it has started it."""
    seat = Seat(loop)
    seat.run(0)
    seat.hear(m.Stop(0, "why"), 0)
    seat.share.end(0)
    seat.hear(m.Notice("waiting for nodes"), 1)
    assert "waiting for nodes" in seat.told[-1]
    seat.run(1)


def test_a_refusal_is_heard_whatever_the_attempt(loop: Loop) -> None:
    """The coordinator that does not want it back may have counted less."""
    seat = Seat(loop)
    seat.run(3)
    seat.share.end(3)
    seat.hear(m.Reject("the job already has its 2 nodes", exit_code=2), 0)
    assert seat.ended == [2]


def test_attempts_of_another_run_count_from_the_start(loop: Loop) -> None:
    """Its first attempt is no older one."""
    seat = Seat(loop)
    seat.run(3)
    seat.share.end(3)
    seat.connect("other")
    assert seat.said[-1].attempt == -1
    seat.hear(m.JobEnded(LOST), 3, UID)
    assert seat.ended == []
    seat.run(0, "other")
    assert [envelope.uid for envelope in seat.said] == [UID, UID, UID, "other", "other"]


def test_who_joins_the_same_run_again_says_how_far_it_was(loop: Loop) -> None:
    """The next attempt counts on from there."""
    seat = Seat(loop)
    seat.run(3)
    seat.share.end(3)
    seat.connect(UID)
    assert isinstance(seat.said[-1].message, m.Join)
    assert seat.said[-1].attempt == 3
    seat.hear(m.JobEnded(LOST), 2)
    assert seat.ended == []
