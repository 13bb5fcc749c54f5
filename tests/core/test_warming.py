"""Every row of the warm server's table, and random walks through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tables import read_table
from paddock.core.attempt import warming
from paddock.core.attempt.warming import (
    ROUNDS_MAX,
    Cancelled,
    Cold,
    Died,
    Forked,
    ForkFailed,
    Give,
    Greeted,
    Load,
    Loaded,
    RanksWanted,
    Stuck,
    WarmStart,
)

if TYPE_CHECKING:
    from paddock.core.attempt.warming import Event

NAMES = ("a", "a.b", "c", "d")
WANTED = RanksWanted(NAMES)
OTHER = RanksWanted(NAMES, is_other=True)
EARLY = RanksWanted(NAMES, is_early=True)
CLEAN = Loaded()
KILLED = Died("was killed by signal 11")
LOADING: list[Event] = [WANTED, Greeted()]
FORKING: list[Event] = [*LOADING, CLEAN]
READY: list[Event] = [*FORKING, Forked()]
BARRED: list[Event] = [WANTED, KILLED]
ROUND = "Kill Serve Load CheckAfter"
# phase, event: (what led there, the event, next phase, actions by name)
ROWS: dict[tuple[str, str], list[tuple[list[Event], Event, str, str]]] = {
    ("off", "RanksWanted"): [([], WANTED, "probing", "Probe CheckAfter")],
    ("off", "RanksWanted, probed before"): [
        ([*READY, KILLED], WANTED, "loading", "Serve Load CheckAfter"),
        ([*LOADING, Cancelled()], WANTED, "loading", "Serve Load CheckAfter"),
    ],
    ("barred", "RanksWanted"): [(BARRED, WANTED, "barred", "Cold")],
    ("ready", "RanksWanted, nothing new"): [
        (READY, WANTED, "forking", "Fork CheckAfter"),
    ],
    ("ready", "RanksWanted early, nothing new"): [(READY, EARLY, "ready", "Give")],
    ("ready", "RanksWanted, more names"): [
        (READY, RanksWanted((*NAMES, "e")), "loading", "Load CheckAfter"),
    ],
    ("ready", "RanksWanted, not by this server"): [
        (READY, OTHER, "loading", ROUND),
        (READY, RanksWanted(("c",)), "loading", ROUND),
    ],
    ("probing", "Greeted"): [([WANTED], Greeted(), "loading", ROUND)],
    ("loading", "Loaded"): [
        (LOADING, CLEAN, "forking", "Fork CheckAfter"),
        (LOADING, Loaded(failed=("c",)), "forking", "Fork CheckAfter"),
    ],
    ("loading", "Loaded, wanted early"): [([EARLY, Greeted()], CLEAN, "ready", "Give")],
    ("loading", "Loaded, spoiled"): [
        (LOADING, Loaded((("c", "it starts a thread"),)), "loading", ROUND),
    ],
    ("loading", "Died | Stuck at a name"): [
        (LOADING, Died("ended with exit code 0", "c"), "loading", ROUND),
        (LOADING, Stuck("c"), "loading", ROUND),
    ],
    ("forking", "Forked"): [(FORKING, Forked(), "ready", "Give")],
    ("busy", "Died | Stuck | ForkFailed"): [
        ([WANTED], KILLED, "barred", "Kill Cold"),
        ([WANTED], Stuck(), "barred", "Kill Cold"),
        ([WANTED], ForkFailed("not there"), "barred", "Kill Cold"),
        (LOADING, KILLED, "barred", "Kill Cold"),
        (LOADING, Stuck(), "barred", "Kill Cold"),
        (LOADING, ForkFailed("fork: no memory"), "barred", "Kill Cold"),
        ([*LOADING, Stuck("c")], Stuck("a"), "barred", "Kill Cold"),
        (FORKING, Died("was killed by signal 9", "d"), "barred", "Kill Cold"),
        (FORKING, Stuck("d"), "barred", "Kill Cold"),
        (FORKING, ForkFailed("fork: no memory"), "barred", "Kill Cold"),
    ],
    ("ready", "Died"): [(READY, KILLED, "off", "Kill")],
    ("any", "Cancelled"): [
        ([WANTED], Cancelled(), "off", "Kill"),
        (LOADING, Cancelled(), "off", "Kill"),
        (FORKING, Cancelled(), "off", "Kill"),
        (READY, Cancelled(), "off", "Kill"),
    ],
    ("any", "not awaited"): [
        ([], Cancelled(), "off", ""),
        ([], KILLED, "off", ""),
        ([], Stuck(), "off", ""),
        ([], Greeted(), "off", ""),
        (BARRED, Cancelled(), "barred", ""),
        (BARRED, KILLED, "barred", ""),
        (LOADING, Forked(), "loading", ""),
        (FORKING, CLEAN, "forking", ""),
        (READY, ForkFailed("of before"), "ready", ""),
        (READY, Stuck(), "ready", ""),
    ],
}
CASES = [(row, case) for row, cases in ROWS.items() for case in cases]


def make(steps: list[Event]) -> WarmStart:
    """A machine after these steps."""
    machine = WarmStart({}, set(), is_probed=False)
    for event in steps:
        machine.handle(event)
    return machine


@pytest.mark.parametrize(("row", "case"), CASES)
def test_each_row_of_the_table_holds(
    row: tuple[str, str], case: tuple[list[Event], Event, str, str]
) -> None:
    """The table at the top of warming.py is what happens."""
    steps, event, after, actions = case
    machine = make(steps)
    assert row[0] in ("any", machine.phase) or machine.phase in ("probing", "loading", "forking")
    assert " ".join(type(action).__name__ for action in machine.handle(event)) == actions
    assert machine.phase == after


def test_the_table_has_no_other_rows() -> None:
    """A row that is added, or changed, has to be shown here."""
    table = {(r.phase, r.event): r.next for r in read_table(warming.__doc__)}
    assert set(table) == set(ROWS)
    for row, cases in ROWS.items():
        assert {after for _, _, after, _ in cases} == {table[row]} or row[0] == "any"


def loads(machine: WarmStart, event: Event) -> tuple[str, ...]:
    """What is loaded in answer to this."""
    (load,) = (a for a in machine.handle(event) if isinstance(a, Load))
    return load.names


def test_what_is_below_a_module_goes_with_it() -> None:
    """Importing a.b imports a."""
    assert loads(make(LOADING), Loaded((("a", "it starts a thread"),))) == ("c", "d")


def test_a_module_is_remembered_with_what_it_did() -> None:
    """For later runs, and for people."""
    machine = make(LOADING)
    machine.handle(Loaded((("c", "it starts a thread"),), ("d",)))
    machine.handle(Died("was killed by signal 6", "a"))
    assert machine.left_out == {
        "c": "it starts a thread",
        "a": "the import was killed by signal 6",
    }


@pytest.mark.parametrize("is_dead", [True, False])
def test_after_too_many_rounds_only_what_came_before_is_loaded(is_dead: bool) -> None:
    """Twelve that crash would cost twelve starts; only those that did it are remembered."""
    names = tuple(f"m{n}" for n in range(16))
    machine = make([RanksWanted(names), Greeted()])
    for n in range(3, 3 + ROUNDS_MAX):
        assert machine.phase == "loading"
        event = Died("was killed by signal 6", f"m{n}") if is_dead else Loaded(((f"m{n}", "x"),))
        machine.handle(event)
    assert machine.loaded == ("m0", "m1", "m2")
    assert set(machine.left_out) == {f"m{n}" for n in range(3, 3 + ROUNDS_MAX)}


def test_an_import_that_hangs_is_waited_for_once() -> None:
    """Eight that hang would cost a quarter of an hour."""
    assert loads(make(LOADING), Stuck("c")) == ("a", "a.b")


def test_what_no_import_has_done_leaves_nothing_to_load() -> None:
    """Another round would find the same."""
    assert loads(make(LOADING), Loaded((("?", "it starts a thread"),))) == ()


EVENTS = st.sampled_from(
    [
        WANTED, OTHER, EARLY, RanksWanted(()), RanksWanted(("c", "e")), Greeted(), CLEAN,
        Cancelled(),
        Forked(),
        Loaded((("c", "x"),)), Loaded((("?", "x"),)), Loaded((), ("e",)), KILLED,
        Died("x", "a.b"), Stuck(), Stuck("d"), ForkFailed("x"),
    ]
)  # fmt: skip


@given(st.lists(EVENTS, max_size=40), st.booleans())
def test_every_wish_is_answered_once(events: list[Event], is_probed: bool) -> None:
    """By ranks that were forked, or by the word to start cold: never by both, or by neither."""
    machine = WarmStart({}, set(), is_probed=is_probed)
    is_waiting = False
    for event in events:
        if isinstance(event, RanksWanted):
            if is_waiting:
                continue  # one attempt at a time
            is_waiting = True
        answers = [a for a in machine.handle(event) if isinstance(a, (Give, Cold))]
        assert len(answers) <= is_waiting
        is_waiting = is_waiting and not answers and not isinstance(event, Cancelled)
        assert is_waiting == (machine.phase in ("probing", "loading", "forking"))
