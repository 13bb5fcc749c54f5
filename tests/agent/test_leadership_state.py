"""Every row of the table of a launcher's place; what it hands on from one attempt to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from core.tables import read_table
from paddock.agent.etcd_election.messages import (
    AttemptRecord,
    Elected,
    ElectionFailed,
    EtcdBack,
    EtcdDown,
    Following,
    LeaderRecord,
    Reelected,
    SteppedDown,
)
from paddock.agent.etcd_election.succession import TTL_SECONDS, EtcdSuccession
from paddock.agent.leadership import leadership_state as places
from paddock.agent.leadership.leadership_state import LeadershipState
from paddock.agent.leadership.messages import (
    CUT_OFF_LEASES,
    GUARDIAN_SECONDS,
    SHORT_GRACE_SECONDS,
    Connect,
    CoordinatorEnded,
    Disconnect,
    GiveUp,
    Idle,
    Joined,
    Lead,
    LinkLost,
    LocalState,
    PrintLine,
    Refused,
    RevokeLeader,
    StepDown,
    StopRanks,
    Unreachable,
)
from paddock.agent.leadership.succession import MajoritySuccession
from paddock.core.hosts import Host
from paddock.core.job import Elastic, Entrypoint, Job, Rendezvous, Restart
from paddock.core.rendezvous.messages import Budget, HandOver, SetTimer, Start, TimerFired
from paddock.core.rendezvous.quorum import LeaderHandoff
from paddock.core.value import replace
from paddock.errors import EXIT_DEADLINE, PaddockError

if TYPE_CHECKING:
    from paddock.agent.leadership.messages import Event, Order

UID = "u1d"
TCP = Rendezvous("tcp", "10.0.0.1", 7000, lease_seconds=4.0)
FIXED = Job(Entrypoint("script", "t"), nnodes_min=2, nnodes_max=2, rendezvous=TCP)
RETRIED = replace(FIXED, restart=Restart(max_restarts=1))
ELASTIC = replace(FIXED, nnodes_min=1, elastic=Elastic(1, 30.0))
ETCD = replace(
    ELASTIC,
    rendezvous=replace(TCP, kind="etcd", host="", port=0, etcd=("10.0.0.9:2379",)),
)
IDLE = LocalState(100.0, wall=5000.0, key="b")
BUSY = replace(IDLE, is_running=True)
HERE = Elected(1, None)
THERE = Following(LeaderRecord("a", "10.0.0.1", 7000, UID, "na"), 1)
ELSEWHERE = Following(LeaderRecord("c", "10.0.0.3", 7003, UID), 2)
TO_THERE = Connect(("10.0.0.1", 7000))
CLOSED = LinkLost("closed", "connection closed")
CUT = LinkLost("cut", "connection lost")
SILENT = LinkLost("silent", "silent for 4 s")
KILLED = StopRanks("cut off", force=True)
TO_US = HandOver(3, ("b", "c"), "10.0.0.2", 7002, Budget(1, 2, 50.0))
TO_C = replace(TO_US, keys=("c", "b"), address="10.0.0.3", listen_port=7003)
ENDED = AttemptRecord(1, 2, UID, ("a", "b"), ended=True)
ERROR = PaddockError("it does not want us", exit_code=2)
LATE = PaddockError("no coordinator answered", exit_code=EXIT_DEADLINE)


@dataclass(frozen=True)
class Case:
    """What led there, one event, and every order: as it is, or only its kind."""

    job: Job
    before: tuple[Event, ...]
    event: Event
    orders: tuple[Order | type[Order], ...]
    now: LocalState = IDLE
    earlier: LocalState = IDLE  # at the time of the events before


HOST = Host("node", "10.0.0.2")
# This node's last order to start: attempt 2, coordinated by a.
STARTED = replace(
    IDLE,
    start=Start(2, (HOST,) * 3, ("a", "b", "c"), (1, 2, 3), "a", Budget(1, 1, 90.0)),
    budget=Budget(1, 1, 60.0),
)
HEIR = replace(
    STARTED, start=replace(STARTED.start, listen_ports=(0, 2, 3))
)  # the first with a door
SAFE = replace(STARTED, at=102.0)  # the lost launcher's processes have ended
BROKEN = Disconnect(breaks=True)
LED = (HERE,)
FOLLOWED = (THERE,)
WELCOMED = (THERE, Joined(UID))
LOST = (*WELCOMED, CLOSED, Idle())
AGAIN = Connect(TO_THERE.target, 1.0, is_search=True)
AT_A = Connect(("10.0.0.2", 1), 1.0, is_search=True)
TO_SUCCESSOR = Connect(("10.0.0.3", 7003), 2.0, is_search=True)

ROWS: dict[tuple[str, str, str], list[Case]] = {
    ("seeking", "Elected, nothing runs", "leading"): [
        Case(FIXED, (), HERE, (SetTimer(None), Lead())),
        Case(ETCD, (), HERE, (SetTimer(None), Lead())),
    ],
    ("seeking", "Following, nothing runs", "following"): [
        Case(FIXED, (), THERE, (TO_THERE,)),
        Case(ETCD, (), THERE, (TO_THERE,)),
    ],
    ("seeking", "Elected, Following", "seeking"): [
        Case(ETCD, (), HERE, (SetTimer(None), StopRanks("this node coordinates")), BUSY),
        Case(ETCD, (), THERE, (StopRanks("the coordinator changes"),), BUSY),
    ],
    ("seeking", "TimerFired: nobody was elected", "ended"): [
        Case(ETCD, (), TimerFired(), (GiveUp,)),
    ],
    ("following", "Joined", "following"): [
        Case(FIXED, FOLLOWED, Joined(UID), (SetTimer(None),)),
    ],
    ("following", "Elected, Following", "seeking"): [
        Case(ETCD, WELCOMED, ELSEWHERE, (BROKEN, StopRanks("the coordinator changes")), BUSY),
        Case(
            ETCD, WELCOMED, HERE,
            (SetTimer(None), BROKEN, StopRanks("this node coordinates")), BUSY,
        ),
    ],
    ("following", "LinkLost, no other can come", "ended"): [
        Case(FIXED, WELCOMED, CLOSED, (Disconnect(), StopRanks, GiveUp), BUSY),
        Case(RETRIED, WELCOMED, SILENT, (Disconnect(), StopRanks, GiveUp), BUSY),
        Case(FIXED, WELCOMED, CLOSED, (Disconnect(), StopRanks, GiveUp)),
    ],
    ("following", "LinkLost, elastic or etcd", "seeking"): [
        Case(ELASTIC, WELCOMED, CLOSED, (PrintLine, Disconnect(), StopRanks), BUSY),
        Case(ETCD, WELCOMED, SILENT, (PrintLine, Disconnect(), StopRanks, SetTimer(136.0)), BUSY),
    ],
    ("following", "Refused: nobody listens there", "following"): [
        Case(ETCD, (*WELCOMED, CLOSED, Idle()), Refused(), (RevokeLeader("na"),)),
        Case(ETCD, (*WELCOMED, CUT, Idle()), Refused(), ()),  # a rule on the way, perhaps
        Case(ETCD, WELCOMED, Refused(), ()),  # it is on its way up
        Case(ELASTIC, (*WELCOMED, CLOSED, Idle()), Refused(), ()),
    ],
    ("following", "Unreachable, etcd", "seeking"): [
        Case(ETCD, FOLLOWED, Unreachable(LATE), (Disconnect(),)),
    ],
    ("following", "Unreachable, refused", "ended"): [
        Case(ETCD, FOLLOWED, Unreachable(ERROR), (Disconnect(), GiveUp(ERROR))),
        Case(FIXED, FOLLOWED, Unreachable(LATE), (Disconnect(), GiveUp(LATE))),
        Case(ELASTIC, WELCOMED, Unreachable(LATE), (Disconnect(), GiveUp(LATE))),
    ],
    ("following", "HandOver to us", "leading"): [
        Case(ELASTIC, WELCOMED, TO_US, (Disconnect(), PrintLine, Lead)),
    ],
    ("following", "HandOver, etcd", "seeking"): [
        Case(ETCD, WELCOMED, TO_US, (PrintLine, Disconnect(), SetTimer)),
        Case(ETCD, WELCOMED, TO_C, (PrintLine, Disconnect(), SetTimer)),
    ],
    ("following", "HandOver to another", "following"): [
        Case(ELASTIC, WELCOMED, TO_C, (Disconnect(), PrintLine, TO_SUCCESSOR)),
    ],
    ("following", "LinkLost, HandOver; told to leave", "ended"): [
        Case(job, WELCOMED, event, (Disconnect(), StopRanks, GiveUp), replace(BUSY, signal=15))
        for job in (FIXED, ELASTIC, ETCD)
        for event in (CLOSED, SILENT, TO_C)
    ],
    ("following", "Unreachable, searching", "following"): [
        Case(ELASTIC, LOST, Unreachable(LATE), (Disconnect(), AGAIN), replace(IDLE, at=102.0)),
        Case(ELASTIC, LOST, Unreachable(ERROR), (Disconnect(), AT_A), SAFE, STARTED),
    ],
    ("following", "Unreachable, it is our turn", "leading"): [
        Case(ELASTIC, LOST, Unreachable(LATE), (Disconnect(), PrintLine, Lead), SAFE, HEIR),
    ],
    ("following", "Unreachable, for too long", "ended"): [
        Case(ELASTIC, LOST, Unreachable(LATE), (Disconnect(), GiveUp), replace(IDLE, at=138.0)),
    ],
    ("following", "Joined by another run, early", "following"): [
        Case(ELASTIC, LOST, Joined("other"), (Disconnect(), AT_A), SAFE, STARTED),
    ],
    ("following", "both, while it may still run", "seeking"): [
        Case(ELASTIC, LOST, Unreachable(ERROR), (Disconnect(), SetTimer(101.5)), STARTED, STARTED),
        Case(ELASTIC, LOST, Joined("other"), (Disconnect(), SetTimer(101.5)), STARTED, STARTED),
    ],
    ("seeking", "TimerFired: it searches", "following"): [
        Case(ELASTIC, (*LOST, Joined("other")), TimerFired(), (Disconnect(), AT_A), SAFE, STARTED),
    ],
    ("leading", "HandOver: it gives way", "leading"): [
        Case(ELASTIC, LED, TO_C, (PrintLine,)),
        Case(ELASTIC, LED, TO_C, (PrintLine, StopRanks("another node coordinates", force=True)),
            BUSY),
    ],
    ("leading", "CoordinatorEnded, gave way", "following"): [
        Case(ELASTIC, (*LED, TO_C), CoordinatorEnded(), (StepDown(), TO_SUCCESSOR)),
    ],
    ("leading", "SteppedDown", "seeking"): [
        Case(ELASTIC, LED, SteppedDown("outdated"), (PrintLine, StepDown(), StopRanks,
            SetTimer(105.9))),
        Case(ETCD, LED, SteppedDown("cut off"), (PrintLine, StepDown(), KILLED, SetTimer), BUSY),
        Case(ETCD, LED, SteppedDown("cut off"), (PrintLine, StepDown(), KILLED, SetTimer)),
    ],
    ("leading", "CoordinatorEnded", "ended"): [
        Case(FIXED, LED, CoordinatorEnded(), (SetTimer(None),)),
    ],
    ("any", "the job ended meanwhile", "ended"): [
        Case(ETCD, WELCOMED, Elected(2, ENDED), (GiveUp,)),
        Case(ETCD, (*WELCOMED, Unreachable(LATE)), Elected(2, ENDED), (GiveUp,)),
    ],
    ("any", "ElectionFailed", "ended"): [
        Case(ETCD, before, ElectionFailed(ERROR), (GiveUp(ERROR),))
        for before in ((), LED, FOLLOWED, WELCOMED)
    ],
    ("any", "Reelected, EtcdDown, EtcdBack", "same"): [
        Case(ETCD, before, event, orders, now)
        for before, now in (((), IDLE), (LED, BUSY), (WELCOMED, BUSY))
        for event, orders in (
            (Reelected(7), ()),
            (EtcdDown(4.0, "timeout"), (PrintLine,)),
            (EtcdBack(), (PrintLine("INFO", "etcd answers again"),)),
        )
    ],
    ("ended", "anything", "ended"): [
        Case(ETCD, (ElectionFailed(ERROR),), event, ())
        for event in (
            HERE, THERE, SteppedDown("cut off"), CLOSED, TO_US, TO_C, Joined(UID), Refused(),
            Idle(),
            TimerFired(), Unreachable(ERROR), CoordinatorEnded(), EtcdDown(4.0, "timeout"),
        )
    ],
}  # fmt: skip
CASES = [(row, each) for row, cases in ROWS.items() for each in cases]


def succession_of(job: Job) -> EtcdSuccession | MajoritySuccession:
    """As rendezvous.py chooses."""
    is_etcd = job.rendezvous.kind == "etcd"
    return EtcdSuccession(job) if is_etcd else MajoritySuccession(job)


def live(job: Job, *events: Event, now: LocalState = IDLE) -> LeadershipState:
    """A place after these events; nothing of this node runs meanwhile, unless now says so."""
    life = LeadershipState(job, succession_of(job))
    for event in events:
        life.handle(event, now)
    return life


@pytest.mark.parametrize(
    ("row", "each"),
    CASES,
    ids=lambda v: type(v.event).__name__ if isinstance(v, Case) else " ".join(v),
)
def test_each_row_of_the_table_holds(row: tuple[str, str, str], each: Case) -> None:
    """The table at the top of leadership_state.py is what happens."""
    role, _, after = row
    life = live(each.job, *each.before, now=each.earlier)
    before = life.role
    assert role in ("any", before)
    orders = life.handle(each.event, each.now)
    assert len(orders) == len(each.orders), orders
    for order, wanted in zip(orders, each.orders, strict=True):
        assert order == wanted or type(order) is wanted
    assert life.role == (before if after == "same" else after)


def test_the_table_has_no_other_rows() -> None:
    """A row that is added, or changed, has to be shown here."""
    table = [(r.phase, r.event, r.next) for r in read_table(places.__doc__)]
    assert len(table) == len(set(table))
    assert set(table) == set(ROWS)


def test_every_place_can_be_reached_and_left() -> None:
    """One without a way out would be a launcher that hangs."""
    rows = [r for r in read_table(places.__doc__) if r.phase != "any"]
    assert {r.next for r in rows} == {"seeking", "leading", "following", "ended"}
    assert {r.phase for r in rows if r.is_move} == {"seeking", "leading", "following"}


# ------------------------------------------------------------- one thing after the other


@pytest.mark.parametrize(
    ("event", "order"),
    [(HERE, Lead()), (THERE, TO_THERE)],
)
def test_what_runs_has_ended_before_another_coordinator_is_had(event: Event, order: Order) -> None:
    """Its processes and those of the next attempt must not run at once."""
    life = live(ETCD)
    assert order not in life.handle(event, BUSY)
    assert life.handle(EtcdBack(), BUSY) == [PrintLine("INFO", "etcd answers again")]
    assert life.handle(Idle(), IDLE) == [order]
    assert life.handle(Idle(), IDLE) == []


def test_the_latest_election_counts() -> None:
    """Elected, and before its processes had ended somebody else was."""
    life = live(ETCD, HERE, ELSEWHERE, now=BUSY)
    assert life.handle(Idle(), IDLE) == [Connect(("10.0.0.3", 7003))]


def test_who_is_deposed_before_it_leads_does_not_lead() -> None:
    """The ghost that was never armed."""
    life = live(ETCD, HERE, SteppedDown("cut off"), now=BUSY)
    assert life.handle(Idle(), IDLE) == []
    assert life.role == "seeking"


@pytest.mark.parametrize(
    ("job", "again"), [(ELASTIC, Connect(TO_THERE.target, 1.5, is_search=True)), (ETCD, TO_THERE)]
)
def test_a_lost_coordinator_is_looked_for_where_it_was(job: Job, again: Connect) -> None:
    """It may be back in a moment; what it ran here has ended by then."""
    life = live(job, *WELCOMED)
    assert again not in life.handle(CLOSED, BUSY)
    assert life.handle(Idle(), IDLE) == [again]


def test_with_etcd_a_coordinator_that_leaves_is_followed_by_whoever_is_elected() -> None:
    """Its word on who that is would be a second election."""
    for order in (TO_US, TO_C):
        life = live(ETCD, *WELCOMED)
        orders = life.handle(order, IDLE)
        assert [type(o) for o in orders] == [PrintLine, Disconnect, SetTimer]
        assert orders[2] == SetTimer(IDLE.at + 30.0 + 2 * TTL_SECONDS)
        assert life.role == "seeking"


def test_somebody_has_to_be_elected_in_time() -> None:
    """--join-timeout at first; the message says how long, and whom to look at."""
    etcd = EtcdSuccession(ETCD)
    life = LeadershipState(ETCD, etcd)
    assert etcd.begin(IDLE) == SetTimer(IDLE.at + 300.0)
    (order,) = life.handle(TimerFired(), IDLE)
    assert isinstance(order, GiveUp)
    assert order.error.message == "no coordinator was elected within 300 s"
    assert (order.error.exit_code, order.error.hint) == (
        EXIT_DEADLINE, "is etcd at 10.0.0.9:2379 up and reachable?",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("job", "event", "force", "grace"),
    [
        (FIXED, CLOSED, False, None),
        (FIXED, SILENT, True, None),
        (RETRIED, CLOSED, False, SHORT_GRACE_SECONDS),
        (replace(RETRIED, grace_seconds=0.5), CLOSED, False, 0.5),
        (ELASTIC, CLOSED, False, SHORT_GRACE_SECONDS),
        (ELASTIC, SILENT, True, SHORT_GRACE_SECONDS),
        (ETCD, CLOSED, False, SHORT_GRACE_SECONDS),
        (ETCD, LinkLost("cut", "reset"), False, SHORT_GRACE_SECONDS),
        (ETCD, SILENT, True, SHORT_GRACE_SECONDS),
    ],
)
def test_how_long_processes_have_when_the_coordinator_is_lost(
    job: Job, event: LinkLost, force: bool, grace: float | None
) -> None:
    """Where another attempt may start soon: less than it takes; after silence: nothing."""
    orders = live(job, *WELCOMED).handle(event, BUSY)
    (halt,) = (order for order in orders if isinstance(order, StopRanks))
    assert (halt.force, halt.grace_seconds) == (force, grace)


def test_a_lost_coordinator_is_worth_a_try_with_the_hint_where_to_look() -> None:
    """Exit 125, which a scheduler may retry."""
    for event, hint in ((CLOSED, "look there"), (SILENT, "stood still")):
        order = live(FIXED, *WELCOMED).handle(event, BUSY)[-1]
        assert isinstance(order, GiveUp)
        assert "the coordinator at 10.0.0.1:7000 is lost" in order.error.message
        assert hint in order.error.hint
        assert (order.error.exit_code, order.error.retryable) == (125, True)


def test_a_lost_coordinator_is_named_as_it_was_given() -> None:
    """A pod's address tells nobody which pod it was."""
    job = replace(FIXED, rendezvous=replace(FIXED.rendezvous, host="train-0.train"))
    order = live(job, *WELCOMED).handle(CLOSED, BUSY)[-1]
    assert isinstance(order, GiveUp)
    assert "the coordinator at 10.0.0.1:7000 (train-0.train) is lost" in order.error.message


# --------------------------------------------------------- what survives the coordinator

GONE_AT = STARTED.at + 4.0  # a lease
CUT_OFF_AT = STARTED.at + 4.0 * CUT_OFF_LEASES
RECORD = AttemptRecord(
    1, 5, UID, ("c", "d"), by="c", used_restarts=2, total_restarts=3, deadline=5020.0
)


def lead(life: LeadershipState, event: Event, now: LocalState) -> Lead:
    """The order to lead that an event brings."""
    (order,) = (o for o in life.handle(event, now) if isinstance(o, Lead))
    return order


@pytest.mark.parametrize(
    ("record", "handoff"),
    [
        (None, LeaderHandoff(3, ("a", "b", "c"), Budget(1, 1, 60.0), GONE_AT, "a", CUT_OFF_AT)),
        (
            replace(RECORD, attempt=2),  # the same attempt: we know it better
            LeaderHandoff(3, ("a", "b", "c"), Budget(1, 1, 60.0), GONE_AT, "a", CUT_OFF_AT),
        ),
        (RECORD, LeaderHandoff(6, ("c", "d"), Budget(2, 3, 20.0), GONE_AT, "c", CUT_OFF_AT)),
        (
            replace(RECORD, deadline=0.0),
            LeaderHandoff(6, ("c", "d"), Budget(2, 3), GONE_AT, "c", CUT_OFF_AT),
        ),
        (
            replace(RECORD, deadline=4000.0),
            LeaderHandoff(6, ("c", "d"), Budget(2, 3, 0.0), GONE_AT, "c", CUT_OFF_AT),
        ),
        (
            replace(RECORD, by="b"),  # it was us: our own processes have ended
            LeaderHandoff(6, ("c", "d"), Budget(2, 3, 20.0), GONE_AT, "", CUT_OFF_AT),
        ),
    ],
    ids=["no record", "ours", "a later one", "no limit", "limit over", "by us"],
)
def test_whoever_takes_over_inherits_the_later_word(
    record: AttemptRecord | None, handoff: LeaderHandoff
) -> None:
    """A takeover resets neither --timeout nor the restarts; no attempt has a number twice."""
    order = lead(live(ETCD, *WELCOMED), Elected(2, record), STARTED)
    assert order == Lead(UID, handoff)


def test_a_takeover_waits_for_the_processes_of_a_coordinator_that_may_live() -> None:
    """A lease if it fell silent; where its launcher died its guardian is quicker."""
    life = live(ETCD, *WELCOMED, now=STARTED)
    life.handle(CLOSED, STARTED)
    life.handle(Refused(), STARTED)
    handoff = lead(life, Elected(2, RECORD), STARTED).handoff
    assert handoff is not None
    assert handoff.lost_gone_at == STARTED.at + GUARDIAN_SECONDS


def test_a_death_of_before_says_nothing_of_the_coordinator_of_now() -> None:
    """It refused us while it was starting, and fell silent an hour later."""
    life = live(ETCD, THERE, Refused(), Joined(UID), now=STARTED)
    handoff = lead(life, Elected(2, RECORD), STARTED).handoff
    assert handoff is not None
    assert handoff.lost_gone_at == CUT_OFF_AT


@pytest.mark.parametrize(
    ("record", "handoff"),
    [
        (None, None),
        (
            replace(RECORD, uid="other"),
            LeaderHandoff(6, RECORD.members, gone_at=CUT_OFF_AT, is_new_run=True),
        ),
        (replace(ENDED, uid="other"), None),
    ],
    ids=["none", "crashed, or it goes on", "ended"],
)
def test_the_record_of_another_run_is_not_inherited(
    record: AttemptRecord | None, handoff: LeaderHandoff | None
) -> None:
    """A crashed run is no takeover: a fresh one waits for its nodes as ever, and counts on. But
    what a run that has no end on record may still be running is waited for.
    """
    assert lead(live(ETCD), Elected(1, record), IDLE) == Lead("", handoff)


def test_a_coordinator_that_leaves_hands_over_what_it_knows() -> None:
    """The uid of the run, too: members of another would not be heard."""
    order = lead(live(ELASTIC, *WELCOMED), TO_US, STARTED)
    assert order.uid == UID
    handoff = order.handoff
    assert handoff is not None
    assert (handoff.attempt, handoff.keys) == (3, ("b", "c"))
    assert handoff.budget == Budget(1, 2, 50.0)
    assert handoff.gone_at <= STARTED.at  # nothing runs
    assert handoff.lost_gone_at <= STARTED.at


def test_a_successor_waits_for_a_node_that_was_lost_before() -> None:
    """Its lease runs on while the coordinator changes."""
    order = lead(live(ELASTIC, *WELCOMED), replace(TO_US, wait_seconds=2.5), STARTED)
    assert order.handoff is not None
    assert order.handoff.lost
    assert order.handoff.lost_gone_at == STARTED.at + 2.5


def test_a_fence_is_asked_for_under_the_latest_election() -> None:
    """Our key had gone and is ours again: an attempt under the old one would be refused."""
    etcd = EtcdSuccession(ETCD)
    life = LeadershipState(ETCD, etcd)
    life.handle(Elected(3, None), IDLE)
    assert etcd.generation == 3
    life.handle(Reelected(7), BUSY)
    assert etcd.generation == 7
