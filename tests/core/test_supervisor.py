"""Every row of the supervisor's table; longer stories are in tests/scenarios/."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from core.tables import read_table
from paddock.core.attempt import supervisor
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.supervisor import (
    AttemptEnded,
    KillDescendants,
    ReportExit,
    RestartServer,
    ServerGivenUp,
    SignalGroup,
    Supervisor,
)
from paddock.core.job import Servers
from paddock.core.rendezvous.messages import SetTimer, Stop, TimerFired
from paddock.core.value import replace

if TYPE_CHECKING:
    from paddock.core.attempt.supervisor import Event

KEYS = (("worker", 0), ("worker", 1))
# A node with a server of its own: rows about "own servers" are of this one.
SERVER_KEYS = (("ps", 0), ("worker", 0))
OWN = Servers(is_auto=False, is_provided=True, max_restarts=2, window_seconds=600.0)
GRACE = 10.0


def ended(rank: int, code: int = 0, *, at: float = 5.0, attempt: int = 0) -> Exit:
    """A worker ended."""
    return Exit("worker", rank, 0, "a", attempt, int(at * 1e9), code=code)


def died(at: float = 5.0, signal: int = 9, **more: object) -> Exit:
    """The server ended, not by our hand."""
    fields = {"code": 0, "signal": signal, "cause": "signal" if signal else "exit", **more}
    return Exit("ps", 0, 0, "a", 0, int(at * 1e9), **fields)  # type: ignore[arg-type]  # builder


STOP = Stop(0, "told so")
HURRY = Stop(0, "told so", force=True)
SOONER = Stop(0, "told so", grace_seconds=1.0)
TIMER = TimerFired()
Step = tuple[float, "Event"]
STOPPING: list[Step] = [(5.0, STOP)]
INTERRUPTED: list[Step] = [(5.0, Stop(0, "Ctrl-C", signal=2))]
KILLING: list[Step] = [(5.0, STOP), (15.0, TIMER)]

# phase, event: (what led there, the event, next phase, actions by name)
ROWS: dict[tuple[str, str], list[tuple[list[Step], Step, str, str]]] = {
    ("running", "process ended well"): [([], (5.0, ended(0)), "running", "ReportExit")],
    ("running", "process failed"): [
        ([], (5.0, ended(0, 7)), "stopping", "ReportExit TERM TERM SetTimer"),
    ],
    ("running", "own server ended"): [
        ([], (5.0, died()), "running", "RestartServer"),
        ([], (5.0, died(signal=0, code=1)), "running", "RestartServer"),
        ([], (5.0, died(signal=0)), "running", "RestartServer"),
        ([(5.0, died())], (6.0, died(6.0)), "running", "RestartServer"),
        ([(5.0, died()), (6.0, died(6.0))], (605.0, died(605.0)), "running", "RestartServer"),
    ],
    ("running", "own server ended too often"): [
        (
            [(5.0, died()), (6.0, died(6.0))],
            (604.0, died(604.0)),
            "stopping",
            "ServerGivenUp ReportExit TERM SetTimer",
        ),
    ],
    ("running", "last process ended"): [
        ([(5.0, ended(0))], (5.0, ended(1)), "ended", "ReportExit KillDescendants AttemptEnded"),
        ([(5.0, ended(0))], (5.0, ended(1, 7)), "ended", "ReportExit KillDescendants AttemptEnded"),
    ],
    ("running", "Stop"): [([], (5.0, STOP), "stopping", "TERM TERM SetTimer")],
    ("running", "Stop, force"): [([], (5.0, HURRY), "killing", "KILL KILL SetTimer")],
    ("running", "timer"): [([], (5.0, TIMER), "running", "")],
    ("stopping", "process ended"): [
        (STOPPING, (6.0, ended(0, 7)), "stopping", "ReportExit"),
        (STOPPING, (6.0, ended(0)), "stopping", "ReportExit"),
    ],
    ("stopping", "last trainer ended"): [
        (STOPPING, (6.0, ended(0)), "stopping", "ReportExit TERM"),
    ],
    ("stopping", "last process ended"): [
        (
            [*STOPPING, (6.0, ended(0))],
            (7.0, ended(1)),
            "ended",
            "ReportExit KillDescendants AttemptEnded",
        ),
    ],
    ("stopping", "Stop, sooner end"): [
        (STOPPING, (6.0, SOONER), "stopping", "SetTimer"),
    ],
    ("stopping", "Stop"): [(STOPPING, (6.0, STOP), "stopping", "")],
    ("stopping", "timer, ASK was not TERM"): [
        (INTERRUPTED, (12.5, TIMER), "stopping", "TERM TERM SetTimer"),
    ],
    ("stopping", "timer | Stop, force"): [
        ([*INTERRUPTED, (12.5, TIMER)], (15.0, TIMER), "killing", "KILL KILL SetTimer"),
        (STOPPING, (15.0, TIMER), "killing", "KILL KILL SetTimer"),
        (STOPPING, (6.0, HURRY), "killing", "KILL KILL SetTimer"),
    ],
    ("killing", "process ended"): [(KILLING, (15.1, ended(0)), "killing", "ReportExit")],
    ("killing", "last process ended"): [
        (
            [*KILLING, (15.1, ended(0))],
            (15.2, ended(1)),
            "ended",
            "ReportExit KillDescendants AttemptEnded",
        ),
    ],
    ("killing", "timer | Stop, force"): [
        (KILLING, (16.0, TIMER), "killing", "KILL KILL SetTimer"),
        (KILLING, (15.1, HURRY), "killing", "KILL KILL SetTimer"),
    ],
    ("any", "timer before its time"): [
        (STOPPING, (6.0, TIMER), "stopping", "SetTimer"),
        (INTERRUPTED, (6.0, TIMER), "stopping", "SetTimer"),
        ([*INTERRUPTED, (12.5, TIMER)], (13.0, TIMER), "stopping", "SetTimer"),
        (KILLING, (15.5, TIMER), "killing", "SetTimer"),
    ],
    ("any", "news of another attempt"): [
        ([], (5.0, ended(0, 7, attempt=1)), "running", ""),
        ([], (5.0, Stop(1, "for the next")), "running", ""),
        (STOPPING, (6.0, Stop(1, "for the next", force=True)), "stopping", ""),
    ],
    ("ended", "anything"): [
        ([(5.0, ended(0)), (5.0, ended(1))], (6.0, event), "ended", "")
        for event in (STOP, HURRY, TIMER, ended(0, 7))
    ],
}
CASES = [(row, case) for row, cases in ROWS.items() for case in cases]


def names(actions: list[supervisor.Action]) -> str:
    """The actions in one line."""
    words = []
    for action in actions:
        if isinstance(action, SignalGroup):
            words.append({2: "INT", 15: "TERM", 9: "KILL"}[action.signal])
        else:
            words.append(type(action).__name__)
    return " ".join(words)


def make(steps: list[Step] | None = None, servers: Servers | None = None) -> Supervisor:
    """A supervisor after these steps: of two workers, or of a server and a worker."""
    keys = KEYS if servers is None else SERVER_KEYS
    machine = Supervisor(0, keys, grace_seconds=GRACE, servers=servers)
    for now, event in steps or []:
        machine.handle(event, now)
    return machine


@pytest.mark.parametrize(("row", "case"), CASES, ids=lambda v: v[:2] if len(v) == 2 else "")
def test_each_row_of_the_table_holds(
    row: tuple[str, str], case: tuple[list[Step], Step, str, str]
) -> None:
    """The table at the top of supervisor.py is what happens."""
    steps, (now, event), after, actions = case
    is_of_servers = "server" in row[1] or "trainer" in row[1]
    machine = make(steps, OWN if is_of_servers else None)
    assert row[0] in ("any", machine.phase)
    assert names(machine.handle(event, now)) == actions
    assert machine.phase == after


def test_the_table_has_no_other_rows() -> None:
    """A row that is added, or changed, has to be shown here."""
    table = {(r.phase, r.event): r.next for r in read_table(supervisor.__doc__)}
    assert set(table) == set(ROWS)
    for row, cases in ROWS.items():
        for _, _, after, _ in cases:
            assert table[row] in ("same", after)


def test_processes_we_signalled_are_marked() -> None:
    """With the time since the first signal, on this host's clock."""
    machine = make([(5.0, ended(0, 7))])
    (report, *_) = machine.handle(ended(1, 1, at=5.25), 5.25)
    assert isinstance(report, ReportExit)
    assert (report.exit.by_us, report.exit.after_signal_ns) == (True, 250_000_000)
    assert not machine.exits[0].by_us


def test_the_time_since_the_first_signal_counts() -> None:
    """SIGKILL after SIGTERM does not make it younger."""
    machine = make([(5.0, STOP), (15.0, TIMER)])
    machine.handle(ended(0, 1, at=15.5), 15.5)
    assert machine.exits[0].after_signal_ns == 10_500_000_000


def test_groups_of_ended_processes_are_signalled_too() -> None:
    """A rank that is gone may have left children in its group."""
    machine = make([(5.0, ended(0))])
    actions = machine.handle(STOP, 6.0)
    assert [a.key for a in actions if isinstance(a, SignalGroup)] == list(KEYS)


def test_the_first_reason_is_kept() -> None:
    """What comes after does not change the verdict."""
    machine = make([(5.0, ended(0, 7)), (6.0, STOP), (6.0, HURRY)])
    assert machine.reason == "rank 0 exited with code 7"


def test_the_end_tells_everything_in_order() -> None:
    """Exits as they were seen."""
    machine = make([(5.0, ended(1, 7))])
    actions = machine.handle(ended(0, 1, at=6.0), 6.0)
    assert actions[1] == KillDescendants()
    assert isinstance(actions[2], AttemptEnded)
    assert [e.rank for e in actions[2].exits] == [1, 0]
    assert machine.alive == frozenset()


def test_grace_of_an_order_replaces_the_jobs() -> None:
    """Zero seconds are a wish, not the absence of one."""
    machine = make()
    actions = machine.handle(Stop(0, "now", grace_seconds=0.0), 5.0)
    assert actions[-1] == SetTimer(5.0)


def test_a_server_started_again_is_alive_and_no_exit() -> None:
    """It is no failure of the job: nothing is reported, and the attempt cannot end without it."""
    machine = make([(5.0, died())], OWN)
    assert ("ps", 0) in machine.alive
    assert machine.exits == []


def test_restarts_of_a_server_are_counted_in_their_window() -> None:
    """The third in ten minutes would be one too many; after them the count begins anew."""
    machine = make([(5.0, died())], OWN)
    (second,) = machine.handle(died(6.0), 6.0)
    (later,) = machine.handle(died(700.0), 700.0)
    assert isinstance(second, RestartServer)
    assert isinstance(later, RestartServer)
    assert (second.count, later.count) == (2, 1)


def test_each_server_has_a_budget_of_its_own() -> None:
    """One that keeps dying does not use up those of the others."""
    keys = (("ps", 0), ("ps", 1), ("worker", 0))
    machine = Supervisor(0, keys, grace_seconds=GRACE, servers=replace(OWN, max_restarts=1))
    machine.handle(died(), 5.0)
    (action,) = machine.handle(replace(died(), rank=1), 5.0)
    assert isinstance(action, RestartServer)


@pytest.mark.parametrize(
    "exit_",
    [
        died(signal=0, code=2),
        died(signal=0, code=127, cause="not-found"),
        died(signal=0, code=126, cause="not-executable"),
        died(signal=0, code=125, cause="no-resources"),
    ],
    ids=lambda e: str(e.code),
)
def test_what_a_restart_cannot_mend_ends_the_attempt(exit_: Exit) -> None:
    """A wrong flag would be as wrong the second time."""
    machine = make([], OWN)
    assert names(machine.handle(exit_, 5.0)) == "ReportExit TERM SetTimer"
    assert machine.phase == "stopping"


def test_a_server_that_ends_itself_is_left_alone() -> None:
    """Its trainers have closed their clients; a killed one is started again as ever."""
    machine = make([], replace(OWN, ends_itself=True))
    found = machine.handle(died(), 5.0) + machine.handle(died(6.0, signal=0), 6.0)
    assert [type(action).__name__ for action in found] == ["RestartServer", "ReportExit"]


@pytest.mark.parametrize(
    "servers", [replace(OWN, is_provided=False), replace(OWN, max_restarts=0)], ids=["script", "0"]
)
def test_other_servers_fail_as_before(servers: Servers) -> None:
    """A script's state is gone with it, so going on would be training on empty tables."""
    machine = make([], servers)
    actions = machine.handle(died(), 5.0)
    assert not any(isinstance(a, (RestartServer, ServerGivenUp)) for a in actions)
    assert isinstance(actions[0], ReportExit)
    assert machine.phase == "stopping"


def test_a_script_that_ends_as_a_server_is_left_alone() -> None:
    """Paddle's trainers tell their servers when it is time."""
    machine = make([], replace(OWN, is_provided=False))
    assert names(machine.handle(died(signal=0), 5.0)) == "ReportExit"


def test_a_server_that_dies_while_stopping_stays_dead() -> None:
    """Nothing is started once the attempt is told to stop."""
    machine = make(STOPPING, OWN)
    assert names(machine.handle(died(6.0), 6.0)) == "ReportExit"


def test_trainers_are_told_to_stop_before_own_servers() -> None:
    """SIGTERM means save, and what a trainer saves is in the servers."""
    machine = make([], OWN)
    first = [a.key for a in machine.handle(STOP, 5.0) if isinstance(a, SignalGroup)]
    then = [a.key for a in machine.handle(ended(0), 6.0) if isinstance(a, SignalGroup)]
    assert (first, then) == ([("worker", 0)], [("ps", 0)])
    (report, *_) = machine.handle(died(6.5, signal=15), 6.5)
    assert isinstance(report, ReportExit)
    assert (report.exit.by_us, report.exit.after_signal_ns) == (True, 500_000_000)


def test_a_node_of_own_servers_alone_stops_at_once() -> None:
    """There is no trainer to wait for."""
    machine = Supervisor(0, (("ps", 0), ("ps", 1)), grace_seconds=GRACE, servers=OWN)
    assert names(machine.handle(STOP, 5.0)) == "TERM TERM SetTimer"


def test_the_end_of_the_grace_kills_own_servers_too() -> None:
    """A trainer that ignores SIGTERM does not keep them."""
    machine = make([(5.0, STOP)], OWN)
    assert names(machine.handle(TIMER, 15.0)) == "KILL KILL SetTimer"


@pytest.mark.parametrize(
    ("steps", "until"),
    [
        ([(5.0, ended(0)), (6.0, ended(1))], 0.0),  # all ended well
        ([(5.0, ended(0)), (6.0, ended(1, 7))], 6.0 + GRACE),
        ([(5.0, ended(0, 7)), (6.0, ended(1, 7))], 5.0 + GRACE),
        ([(5.0, STOP), (6.0, ended(0)), (7.0, ended(1))], 5.0 + GRACE),
        ([(5.0, STOP), (6.0, HURRY), (6.0, ended(0)), (7.0, ended(1))], 0.0),
    ],
)
def test_what_ended_processes_have_left_has_the_rest_of_the_grace(
    steps: list[Step], until: float
) -> None:
    """Not after a good end, which nothing had to be saved for, and not after SIGKILL."""
    machine = make(steps)
    assert (machine.phase, machine.grace_until) == ("ended", until)
