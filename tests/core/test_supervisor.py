"""Every row of the supervisor's table; longer stories are in tests/scenarios/."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from core.tables import read_table
from paddock.core import supervisor
from paddock.core.exits import Exit
from paddock.core.supervisor import (
    Ended,
    Report,
    SetTimer,
    SignalGroup,
    StopOrdered,
    Supervisor,
    Sweep,
    TimerFired,
)

if TYPE_CHECKING:
    from paddock.core.supervisor import Event

KEYS = (("worker", 0), ("worker", 1))
GRACE = 10.0


def ended(rank: int, code: int = 0, *, at: float = 5.0, attempt: int = 0) -> Exit:
    """A worker ended."""
    return Exit("worker", rank, 0, "a", attempt, int(at * 1e9), code=code)


STOP = StopOrdered(0, "told so")
HURRY = StopOrdered(0, "told so", hurry=True)
SOONER = StopOrdered(0, "told so", grace_seconds=1.0)
TIMER = TimerFired()
Step = tuple[float, "Event"]
STOPPING: list[Step] = [(5.0, STOP)]
KILLING: list[Step] = [(5.0, STOP), (15.0, TIMER)]

# phase, event: (what led there, the event, next phase, actions by name)
ROWS: dict[tuple[str, str], list[tuple[list[Step], Step, str, str]]] = {
    ("running", "process ended well"): [([], (5.0, ended(0)), "running", "Report")],
    ("running", "process failed"): [
        ([], (5.0, ended(0, 7)), "stopping", "Report TERM TERM SetTimer"),
    ],
    ("running", "last process ended"): [
        ([(5.0, ended(0))], (5.0, ended(1)), "ended", "Report Sweep Ended"),
        ([(5.0, ended(0))], (5.0, ended(1, 7)), "ended", "Report Sweep Ended"),
    ],
    ("running", "StopOrdered"): [([], (5.0, STOP), "stopping", "TERM TERM SetTimer")],
    ("running", "StopOrdered hurry"): [([], (5.0, HURRY), "killing", "KILL KILL SetTimer")],
    ("running", "timer"): [([], (5.0, TIMER), "running", "")],
    ("stopping", "process ended"): [
        (STOPPING, (6.0, ended(0, 7)), "stopping", "Report"),
        (STOPPING, (6.0, ended(0)), "stopping", "Report"),
    ],
    ("stopping", "last process ended"): [
        ([*STOPPING, (6.0, ended(0))], (7.0, ended(1)), "ended", "Report Sweep Ended"),
    ],
    ("stopping", "StopOrdered, sooner end"): [
        (STOPPING, (6.0, SOONER), "stopping", "SetTimer"),
    ],
    ("stopping", "StopOrdered"): [(STOPPING, (6.0, STOP), "stopping", "")],
    ("stopping", "timer | StopOrdered hurry"): [
        (STOPPING, (15.0, TIMER), "killing", "KILL KILL SetTimer"),
        (STOPPING, (6.0, HURRY), "killing", "KILL KILL SetTimer"),
    ],
    ("killing", "process ended"): [(KILLING, (15.1, ended(0)), "killing", "Report")],
    ("killing", "last process ended"): [
        ([*KILLING, (15.1, ended(0))], (15.2, ended(1)), "ended", "Report Sweep Ended"),
    ],
    ("killing", "timer | StopOrdered hurry"): [
        (KILLING, (16.0, TIMER), "killing", "KILL KILL SetTimer"),
        (KILLING, (15.1, HURRY), "killing", "KILL KILL SetTimer"),
    ],
    ("any", "timer before its time"): [
        (STOPPING, (6.0, TIMER), "stopping", "SetTimer"),
        (KILLING, (15.5, TIMER), "killing", "SetTimer"),
    ],
    ("any", "news of another attempt"): [
        ([], (5.0, ended(0, 7, attempt=1)), "running", ""),
        ([], (5.0, StopOrdered(1, "for the next")), "running", ""),
        (STOPPING, (6.0, StopOrdered(1, "for the next", hurry=True)), "stopping", ""),
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
            words.append({15: "TERM", 9: "KILL"}[action.signal])
        else:
            words.append(type(action).__name__)
    return " ".join(words)


def make(steps: list[Step] | None = None) -> Supervisor:
    """A supervisor of two workers after these steps."""
    machine = Supervisor(0, KEYS, grace_seconds=GRACE)
    for now, event in steps or []:
        machine.handle(event, now)
    return machine


@pytest.mark.parametrize(("row", "case"), CASES, ids=lambda v: v[:2] if len(v) == 2 else "")
def test_each_row_of_the_table_holds(
    row: tuple[str, str], case: tuple[list[Step], Step, str, str]
) -> None:
    """The table at the top of supervisor.py is what happens."""
    steps, (now, event), after, actions = case
    machine = make(steps)
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
    assert isinstance(report, Report)
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
    assert machine.reason == "worker 0 exited with code 7"


def test_the_end_tells_everything_in_order() -> None:
    """Exits as they were seen."""
    machine = make([(5.0, ended(1, 7))])
    actions = machine.handle(ended(0, 1, at=6.0), 6.0)
    assert actions[1] == Sweep()
    assert isinstance(actions[2], Ended)
    assert [e.rank for e in actions[2].exits] == [1, 0]
    assert machine.alive == frozenset()


def test_grace_of_an_order_replaces_the_jobs() -> None:
    """Zero seconds are a wish, not the absence of one."""
    machine = make()
    actions = machine.handle(StopOrdered(0, "now", grace_seconds=0.0), 5.0)
    assert actions[-1] == SetTimer(5.0)
