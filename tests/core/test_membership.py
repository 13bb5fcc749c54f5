"""Every row of the membership's table; the stories are in tests/scenarios/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from core.tables import read_table
from paddock.core.hosts import Host
from paddock.core.job import Entrypoint, Job, Role
from paddock.core.rendezvous import membership
from paddock.core.rendezvous.member_table import address_key, describe
from paddock.core.rendezvous.membership import Membership
from paddock.core.rendezvous.messages import (
    Budget,
    HandOver,
    Join,
    Leave,
    Notice,
    Received,
    Reject,
    Send,
    SetTimer,
    Stop,
    Stopped,
    TimerFired,
    Voters,
)
from scenarios.replay import MembershipReplay

if TYPE_CHECKING:
    from paddock.core.rendezvous.messages import Action, ToMember


@dataclass(frozen=True)
class Case:
    """What led there, one command, and the first words of each action."""

    job: str
    before: tuple[str, ...]
    command: str
    actions: tuple[str, ...]


def case(job: str, before: str, command: str, *actions: str) -> Case:
    """A case; ``before`` is commands with semicolons between."""
    return Case(job, tuple(c.strip() for c in before.split(";") if c.strip()), command, actions)


TWO = "@0 join 1 a self; @0 join 2 b"
DOORS = "@0 join 1 a self listen_port=7001; @0 join 2 b listen_port=7002"
THREE = (
    "@0 join 1 a self listen_port=1; @0 join 2 b listen_port=2; @0 join 3 c listen_port=3; @1 timer"
)
GROWN = "; @5 join 4 d; @6 stopped 1; @6 stopped 2; @6 stopped 3"
HEIR = (
    "nnodes=1:3 awaited=b,c first_attempt=1 coordinator_key=a"  # b and c lost a, which coordinated
)
FAILED = TWO + "; @5 exit 2 worker 1 code=7; @5 stopped 2"
RANGE = "nnodes=1:2 elastic_timeout=1"
PAUSE = "@1 exit 1 worker 0 code=7; @1 stopped 1; @2 exit 1 worker 0 code=7; @2 stopped 1"
BOTH_PAUSE = (
    "@1 exit 1 worker 0 code=7; @1 stopped 1; @1 stopped 2; "
    "@2 exit 1 worker 0 code=7; @2 stopped 1; @2 stopped 2"
)
MANY = "max_restart=3 backoff=5"
NEVER = "SetTimer never"

ROWS: dict[tuple[str, str, str], list[Case]] = {
    ("gathering", "Join, enough nodes", "running"): [
        case("nnodes=2", "@0 join 1 a self", "@1 join 2 b", "Start attempt 0: 1=a 2=b", NEVER),
    ],
    ("gathering", "Join, not yet enough", "gathering"): [
        case("nnodes=2", "", "@1 join 1 a self", "SetTimer 300", "Notice waiting for nodes"),
    ],
    ("gathering", "Join: another job, rank taken, ...", "gathering"): [
        case("nnodes=2", "@0 join 1 a rank=0", "@1 join 2 b rank=0", "Reject 2 with 2: --rank 0"),
        case("nnodes=2", "@0 join 1 a rank=0", "@1 join 2 b", "Reject 2 with 2: this node gives"),
        case("nnodes=2", "", "@1 join 2 b rank=2", "Reject 2 with 2: --rank 2 is too large"),
        case("nnodes=2 ips=10.0.0.1,10.0.0.2", "", "@1 join 3 c", "Reject 3 with 2: address"),
    ],
    ("gathering", "enough, but the hosts do not fit", "ended"): [
        case("nnodes=2", "@0 join 1 a", "@1 join 2 b workers=3", NEVER, "Finish: fail 2"),
    ],
    ("gathering", "Lost", "gathering"): [
        case("nnodes=3", TWO, "@1 lost 2 closed EOF", "Notice node b is gone (EOF)",
            "SetTimer 300"),
    ],
    ("gathering", "Leave, others stay (elastic)", "gathering"): [
        case("nnodes=3:4", TWO, "@1 leave 2 15", "JobEnded for 2: cancel 143"),
    ],
    ("gathering", "Leave, own node, others take over", "ended"): [
        # With etcd anybody can be next; else who knows the others' addresses, after an attempt.
        case("nnodes=3:4 master=etcd", TWO, "@1 leave 1 15", NEVER,
             "HandOver to 2: attempt 0, b;", "JobEnded for 1: cancel 143", "Ends here: cancel 143"),
        case("nnodes=3:4 elastic_timeout=20 max_restart=1",
             DOORS + "; @0 join 3 c; @20 timer; @25 lost 3 silent 3; @26 stopped 1; @26 stopped 2",
             "@27 leave 1 15", NEVER, "HandOver to 2: attempt 1, b; 1 restarts used of late",
             "JobEnded for 1: cancel 143", "Ends here: cancel 143"),
    ],
    ("gathering", "Leave, nobody stays or not elastic", "ended"): [
        case("nnodes=3:4", DOORS, "@1 leave 1 15", NEVER, "Finish: cancel 143"),
        case("nnodes=3:4", TWO, "@1 leave 1 15", NEVER, "Finish: cancel 143"),
        case("nnodes=3", TWO, "@1 leave 2 2", NEVER, "Finish: cancel 130"),
    ],
    ("gathering", "timer: at least the minimum", "running"): [
        case(RANGE, "@0 join 1 a", "@1 timer", "Start attempt 0: 1=a", NEVER),
    ],
    ("gathering", "timer: too few", "ended"): [
        case("nnodes=2", "@0 join 1 a", "@300 timer", NEVER, "Finish: fail 124"),
    ],
    ("gathering", "timer: --timeout is over", "ended"): [
        case(
            "nnodes=2 timeout=20 max_restart=1", TWO + "; @5 lost 2 closed EOF; @5 stopped 1",
            "@20 timer", NEVER, "Finish: fail 124 in attempt 1",
        ),
    ],
    ("running", "Exited: failed", "stopping"): [
        case("nnodes=2", TWO, "@5 exit 2 worker 1 code=7", "Stop attempt 0 on 1 2", "SetTimer 25"),
    ],
    ("running", "Exited: last worker of a ps job", "stopping"): [
        case(
            "nnodes=2 servers=1", TWO + "; @5 exit 1 worker 0", "@6 exit 2 worker 1",
            "Stop attempt 0 on 1 2: all workers finished", "SetTimer 26",
        ),
    ],
    ("running", "Lost, its part had not ended", "stopping"): [
        case("nnodes=2", TWO, "@5 lost 2 closed EOF", "Stop attempt 0 on 1", "SetTimer 25"),
    ],
    ("running", "Started: another plan", "stopping"): [
        case("nnodes=2", TWO + "; @1 started 1 7", "@1 started 2 8",
             "Stop attempt 0 on 1 2: node b made another plan", "SetTimer 21"),
        case(RANGE + " max_restart=1", TWO + "; @1 started 1 7", "@1 started 2 8",
             "Stop attempt 0 on 1 2: node b made another plan", "SetTimer 21"),
    ],
    ("running", "Join, room for it (elastic)", "stopping"): [
        case(RANGE, "@0 join 1 a; @1 timer", "@5 join 2 b", "Stop attempt 0 on 1", "SetTimer 25"),
    ],
    ("running", "Join, no room", "running"): [
        case(RANGE, TWO, "@5 join 3 c", "Notice node c is standing by"),
    ],
    ("running", "Leave, others stay (elastic)", "stopping"): [
        case(RANGE, TWO, "@5 leave 2 15", "Stop attempt 0 on 1 2: node b leaves", "SetTimer 25"),
        case(RANGE, DOORS, "@5 leave 1 15", "Stop attempt 0 on 1 2: node a leaves", "SetTimer"),
        case(RANGE + " master=etcd", TWO, "@5 leave 1 15", "Stop attempt 0 on 1 2: node a leaves"),
    ],
    ("running", "Leave, nobody stays or not elastic", "stopping"): [
        case("nnodes=2", TWO, "@5 leave 2 15", "Stop attempt 0 on 1 2: node b was", "SetTimer 25"),
        case(RANGE, TWO, "@5 leave 1 15", "Stop attempt 0 on 1 2: node a was told", "SetTimer"),
    ],
    ("running", "Leave by one that stands by", "running"): [
        case(RANGE, TWO + "; @5 join 3 c", "@6 leave 3 15", "JobEnded for 3: cancel 143"),
    ],
    ("running", "timer: --timeout is over", "stopping"): [
        case("nnodes=2 timeout=9", TWO, "@9 timer", "Stop attempt 0 on 1 2: the job's time limit"),
    ],
    ("running", "Stalled, every node with workers", "stopping"): [
        case("nnodes=2", TWO + "; @5 stalled 2 rank 1 reads", "@6 stalled 1 suspect rank 0 sleeps",
             "Stop attempt 0 on 1 2: stalled: rank 0 sleeps; rank 1 reads"),
    ],
    ("running", "Stalled, workers elsewhere move", "running"): [
        case("nnodes=2", TWO, "@6 stalled 1 rank 0 sleeps"),
        case("nnodes=2", TWO + "; @5 stalled 2 rank 1 reads; @6 stalled 2", "@7 stalled 1 x"),
    ],
    ("running", "Exited: the others are stalled", "stopping"): [
        case("nnodes=2", TWO + "; @5 stalled 1 rank 0 sleeps", "@6 exit 2 worker 1",
             "Stop attempt 0 on 1 2: stalled: rank 0 sleeps"),
    ],
    ("running", "all members stopped, all ok", "ended"): [
        case("nnodes=1", "@0 join 1 a; @5 exit 1 worker 0", "@5 stopped 1", NEVER, "Finish: succ"),
    ],
    ("stopping", "all members stopped", "backoff"): [
        case(MANY, "@0 join 1 a; " + PAUSE.rsplit(";", 1)[0], "@2 stopped 1", "Notice",
            "SetTimer 7"),
    ],
    ("stopping", "all members stopped", "gathering"): [
        case(
            "nnodes=2:3 elastic_timeout=1 max_restart=1",
            TWO + "; @1 timer; @5 lost 2 silent 3.1",
            "@6 stopped 1", "Notice attempt 1: restarting", "SetTimer 7",
            "Notice waiting for nodes",
        ),
        case(RANGE, TWO + "; @5 leave 2 15; @6 stopped 1", "@6 stopped 2",
             "JobEnded for 2: cancel 143", "Notice attempt 1: node b leaves",
             "Start attempt 1: 1=a"),
        case("nnodes=2 max_restart=1",
             TWO + "; @1 started 1 7; @1 started 2 8; @2 stopped 1", "@2 stopped 2",
             "JobEnded for 2: fail 125 in attempt 0", "Notice attempt 1: restarting",
             "SetTimer 32"),
    ],
    ("stopping", "all members stopped", "ended"): [
        case(RANGE, DOORS + "; @5 leave 1 15; @6 stopped 1", "@6 stopped 2", NEVER,
             "HandOver to 2: attempt 1, b; 0 restarts", "JobEnded for 1: cancel 143", "Ends here:"),
        case("nnodes=2", TWO + "; @1 started 1 7; @1 started 2 8; @2 stopped 1", "@2 stopped 2",
             NEVER, "Finish: fail 125"),
        case("nnodes=2", FAILED, "@6 stopped 1", NEVER, "Finish: fail 7"),
        # A batch step was interrupted: a rank was quicker than its launcher.
        case("nnodes=2", TWO + "; @5 exit 2 worker 1 code=130; @5 leave 2 2; @6 stopped 1",
             "@6 stopped 2", NEVER, "Finish: cancel 130"),
    ],
    ("stopping", "Leave, nobody stays", "stopping"): [
        case("nnodes=2 max_restart=1", FAILED, "@6 leave 1 15"),
    ],
    ("stopping", "Leave force, the job ends", "stopping"): [
        case("nnodes=2", TWO + "; @5 leave 1 2", "@6 leave 1 2 force", "Stop attempt 0 on 1 2: as"),
        case("nnodes=2", TWO + "; @5 leave 1 2", "@6 leave 2 2 force", "Stop attempt 0 on 1 2: as"),
    ],
    ("stopping", "Leave force, it goes on", "stopping"): [
        case(RANGE, TWO + "; @5 leave 2 2", "@6 leave 2 2 force", "Stop attempt 0 on 2: asked"),
    ],
    ("stopping", "timer: a member will not answer", "stopping"): [
        # Seen from the member: it is let go. The job goes on, or ends, at once.
        case(RANGE + " max_restart=1", FAILED, "@25 timer", "JobEnded for 1: fail 125", "Notice",
            "St"),
        case("nnodes=2", FAILED, "@25 timer", NEVER, "Finish: fail 7"),
    ],
    ("backoff", "Leave, others stay (elastic)", "backoff"): [
        case(RANGE + " " + MANY, "@0 join 1 a self; @1 timer; " + PAUSE + "; @3 join 2 b",
             "@4 leave 2 15", "JobEnded for 2: cancel 143"),
    ],
    ("backoff", "Leave, own node, others take over", "ended"): [
        case(RANGE + " " + MANY, DOORS + "; " + BOTH_PAUSE, "@3 leave 1 15", NEVER,
             "HandOver to 2: attempt 2, b; 2 restarts used of late, 2 in all",
             "JobEnded for 1: cancel 143", "Ends here: cancel 143"),
    ],
    ("backoff", "Leave, nobody stays or not elastic", "ended"): [
        case(MANY, "@0 join 1 a self; " + PAUSE, "@3 leave 1 15", NEVER, "Finish: cancel 143"),
    ],
    ("backoff", "timer", "gathering"): [
        case(MANY, "@0 join 1 a; " + PAUSE, "@7 timer", "Start attempt 2", NEVER),
    ],
    ("backoff", "timer: --timeout is over", "ended"): [
        case(MANY + " timeout=5", "@0 join 1 a; " + PAUSE, "@5 timer", NEVER, "Finish: fail 124"),
    ],
    ("gathering", "Join by one of a later attempt", "ended"): [
        case(HEIR, "@0 join 1 b self listen_port=7002", "@1 join 2 c started=1 coordinator_key=x",
            NEVER,
             "Outdated: c has been in attempt 1 of another coordinator"),
    ],
    ("any", "LeaderConflict: another one goes on", "ended"): [
        case(RANGE, "@0 join 1 a self", "@1 claim 9 x run=earlier attempt=3 begun", NEVER,
             "HandOver to 1: attempt 4, x; 0 restarts", "Ends here:"),
        case(RANGE, DOORS, "@1 claim 9 x run=earlier attempt=3 begun", NEVER, "HandOver to 1 2: a",
             "Ends here:"),
        case(HEIR, "@0 join 1 c self", "@1 claim 9 b attempt=0", NEVER, "HandOver to 1: a", "Ends"),
        case(HEIR, "@0 join 1 c self", "@1 claim 9 b attempt=1 begun", NEVER, "HandOver", "Ends"),
    ],
    ("any", "LeaderConflict: this one goes on", "same"): [
        case(RANGE, DOORS, "@2 claim 9 b attempt=0", "HandOver to 9: attempt 1, a; 0 restarts"),
        case(HEIR, "@0 join 1 b self", "@1 claim 9 c attempt=0", "HandOver to 9: attempt 2, b;"),
        case(RANGE, DOORS, "@2 claim 9 x run=another attempt=0"),  # it has begun nothing
        case(RANGE, DOORS, "@2 claim 9 a attempt=0"),  # it has found itself
    ],
    ("any", "GiveWay", "ended"): [
        case(RANGE, DOORS, "@2 give_way 1 x", NEVER, "HandOver to 1 2: attempt 9, x", "Ends here"),
        case(HEIR, "@0 join 1 b self", "@2 give_way 1 x", NEVER, "HandOver to 1: a", "Ends here"),
    ],
    ("running", "Started by a majority", "running"): [
        case("nnodes=1:4 elastic_timeout=1", THREE + GROWN + "; @6 started 1 7", "@6 started 2 7",
             "Committed attempt 1 on 1 2 3 4"),
        case("nnodes=1:4 elastic_timeout=1", THREE + GROWN, "@6 started 1 7"),
    ],
    ("any", "news of another attempt", "same"): [
        case(MANY, "@0 join 1 a; @1 exit 1 worker 0 code=7; @1 stopped 1",
             "@2 exit 1 worker 0 code=7 attempt=0"),
        case(MANY, "@0 join 1 a; @1 exit 1 worker 0 code=7; @1 stopped 1",
             "@2 stopped 1 attempt=0"),
    ],
    ("any", "Warn", "same"): [
        case("nnodes=2", TWO, "@1 warn 2 full", "Notice b: full"),
        case("nnodes=2", "@0 join 1 a", "@1 warn 9 stranger"),
    ],
    ("any", "timer before its time", "same"): [
        case("nnodes=2", "@0 join 1 a", "@1 timer", "SetTimer 300"),
        case("nnodes=2", FAILED, "@6 timer", "SetTimer 25"),
        case(MANY, "@0 join 1 a; " + PAUSE, "@3 timer", "SetTimer 7"),
        case("timeout=9", "@0 join 1 a", "@3 timer", "SetTimer 9"),
        case("nnodes=2", TWO, "@6 timer"),
    ],
    ("ended", "Join, others go on", "ended"): [
        case(RANGE, DOORS + "; @2 give_way 1 x", "@3 join 3 c", "HandOver to 3: attempt 9, x; 0"),
        case(RANGE, DOORS + "; @5 leave 1 15; @6 stopped 1; @6 stopped 2", "@7 join 3 c",
             "HandOver to 3: attempt 1, b"),
    ],
    ("ended", "anything", "ended"): [
        case("nnodes=1", "@0 join 1 a; @5 exit 1 worker 0; @5 stopped 1", command, *actions)
        for command, actions in (
            ("@6 join 2 b", ("Reject 2 with 125: the job has ended",)),
            ("@6 exit 1 worker 0 code=7", ()),
            ("@6 stopped 1", ()),
            ("@6 lost 1 closed EOF", ()),
            ("@6 leave 1 15 force", ()),
            ("@6 timer", ()),
        )
    ],
}  # fmt: skip
CASES = [(row, each) for row, cases in ROWS.items() for each in cases]
# Phases that are gone through in the same moment, when what comes next is there already.
PASSED = {"gathering": ("running", "ended"), "stopping": ("running", "ended")}


def run(job: str, commands: tuple[str, ...]) -> MembershipReplay:
    """A membership after these commands."""
    machine = MembershipReplay(["job", *job.split()])
    for command in commands:
        do(machine, command)
    return machine


def do(machine: MembershipReplay, command: str) -> list[str]:
    """The actions of one command."""
    words = command.split()
    return [line.strip() for line in machine.do(words[1:], float(words[0][1:]))[1:]]


@pytest.mark.parametrize("nnodes", ["2", "1:2"])
def test_the_ranks_of_all_nodes_get_the_signal_of_a_node(nnodes: str) -> None:
    """Where one leaves and the others go on, too: ranks save together."""
    machine = run(f"nnodes={nnodes} elastic_timeout=1", ("@0 join 1 a self", "@0 join 2 b")).machine
    actions = machine.handle(Received(2, Leave(2)), 5.0)
    stops = [a for a in actions if isinstance(a, Send) and isinstance(a.message, Stop)]
    assert stops == [Send((1, 2), Stop(0, stops[0].message.reason, signal=2))]


@pytest.mark.parametrize(
    ("row", "each"), CASES, ids=lambda v: getattr(v, "command", None) or " ".join(v)
)
def test_each_row_of_the_table_holds(row: tuple[str, str, str], each: Case) -> None:
    """The table at the top of membership.py is what happens."""
    phase, _, after = row
    machine = run(each.job, each.before)
    before = machine.machine.phase
    assert phase in ("any", before)
    actions = do(machine, each.command)
    assert len(actions) >= len(each.actions)
    for action, start in zip(actions, each.actions, strict=False):
        assert action.startswith(start)
    if not each.actions:
        assert actions == []
    reached = machine.machine.phase
    wanted = before if after == "same" else after
    assert reached == wanted or (actions and reached in PASSED.get(wanted, ()))


def test_the_table_has_no_other_rows() -> None:
    """A row that is added, or changed, has to be shown here."""
    table = [(r.phase, r.event, r.next) for r in read_table(membership.__doc__)]
    assert len(table) == len(set(table))
    assert set(table) == set(ROWS)


def host(name: str, address: str) -> Host:
    """One worker on a CPU."""
    return Host(name, address)


def heard(member: int, name: str, address: str, rank: int | None = None) -> Received:
    """A node joins; "z" is the coordinator's own."""
    return Received(member, Join(host(name, address), name, rank), name == "z")


def told(actions: list[Action]) -> list[ToMember]:
    """What members are told."""
    return [action.message for action in actions if isinstance(action, Send)]


def order_of(nodes: int, *joined: Received) -> list[str]:
    """Names in node-rank order after all have joined."""
    job = Job(
        Entrypoint("script", "t"), nnodes_min=nodes, nnodes_max=nodes, roles=(Role("worker"),)
    )
    machine = Membership(job, 0.0)
    for event in joined:
        machine.handle(event, 0.0)
    assert machine.phase == "running"
    return [machine.state.member_table.peers[i].host.name for i in machine.active_ids]


def test_nodes_are_ordered_by_address_as_numbers() -> None:
    """Whatever order they came in; the coordinator's own node first."""
    joined = [
        heard(1, "c", "10.0.0.10"),
        heard(2, "b", "10.0.0.9"),
        heard(3, "z", "10.0.0.200"),
        heard(4, "a2", "10.0.0.1"),
        heard(5, "a1", "10.0.0.1"),
    ]
    assert order_of(5, *joined) == ["z", "a1", "a2", "b", "c"]
    assert order_of(5, *joined[::-1]) == ["z", "a1", "a2", "b", "c"]


def test_given_ranks_are_kept() -> None:
    """--rank decides, even for the coordinator's own node."""
    joined = [heard(1, "z", "10.0.0.1", 2), heard(2, "b", "10.0.0.2", 0), heard(3, "c", "::1", 1)]
    assert order_of(3, *joined) == ["b", "c", "z"]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((("--nnodes", "3:3"),), "--nnodes is '3:3' on b, '2:2' on the coordinator"),
        ((("--nodes", "2:2"),), "the version of Paddock is 'another' on b, 'this one'"),
        ((), "the version of Paddock is 'another' on b"),
    ],
)
def test_a_node_of_another_job_is_refused(shape: tuple[tuple[str, str], ...], message: str) -> None:
    """It would make another plan of the same hosts."""
    machine = Membership(Job(Entrypoint("script", "t")), 0.0, fingerprint=(("--nnodes", "2:2"),))
    join = Join(host("b", "10.0.0.2"), "b", fingerprint=shape)
    (refuse,) = told(machine.handle(Received(2, join), 0.0))
    assert isinstance(refuse, Reject)
    assert message in refuse.message
    assert (refuse.exit_code, machine.state.member_table.peers) == (2, {})


def test_a_coordinator_that_leaves_says_where_its_successor_is() -> None:
    """The others connect there; what the job has used up goes along."""
    machine = run(RANGE, tuple(c.strip() for c in (DOORS + "; @5 leave 1 15").split(";")))
    do(machine, "@6 stopped 1")
    found = machine.machine.handle(Received(2, Stopped(0, machine.hosts[2])), 6.0)
    orders = [message for message in told(found) if isinstance(message, HandOver)]
    voters = Voters(0, ("a", "b"), ("10.0.0.1", "10.0.0.2"), (7001, 7002), "b")
    assert orders == [
        HandOver(1, ("b",), "10.0.0.2", 7002, Budget(), voters=(voters,), gone=("a",))
    ]


def test_a_thousand_joins_are_not_a_million_lines() -> None:
    """Each Note goes to every node: beyond a few nodes at most one a second, and the last one."""
    job = Job(Entrypoint("script", "t"), nnodes_min=1001, nnodes_max=1001)
    machine = Membership(job, 0.0)
    notes, wake_at = [], 0.0
    for i in range(1000):
        actions = machine.handle(heard(i + 1, f"n{i}", "10.0.0.1"), i / 1000)
        notes += [message for message in told(actions) if isinstance(message, Notice)]
        for action in actions:
            if isinstance(action, SetTimer) and action.at is not None:
                wake_at = action.at
    assert 0 < len(notes) < 12
    (timer, say) = machine.handle(TimerFired(), wake_at)
    (said,) = told([say])
    assert isinstance(said, Notice)
    assert said.text.startswith("waiting for nodes: 1000 of 1001 joined (n0, n1,")
    assert "and 992 more" in said.text
    assert timer == SetTimer(300.0)


def test_names_are_cut_after_eight() -> None:
    """A message that fills the screen hides what it says."""
    assert describe("abc") == "a, b, c"
    assert describe(str(i) for i in range(10)) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"


def test_names_sort_after_addresses() -> None:
    """Names of hosts, and IPv6, in text order."""
    wild = ["node1", "10.0.0.10", "fd00::1", "10.0.0.9"]
    assert sorted(wild, key=address_key) == ["10.0.0.9", "10.0.0.10", "fd00::1", "node1"]
