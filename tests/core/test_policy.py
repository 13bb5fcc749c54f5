"""decide_restart: a table of causes, a budget, and pauses."""

from __future__ import annotations

import pytest

from paddock.core.attempt.exits import CAUSES, Exit
from paddock.core.attempt.policy import NoRetry, Retry, decide_restart, restart_words
from paddock.core.job import Restart


def failed(cause: str = "exit", code: int = 1, signal: int = 0) -> Exit:
    """A culprit."""
    return Exit("worker", 0, 0, "a", 0, 0, code=code, signal=signal, cause=cause)


def decide(restart: Restart, culprit: Exit, used: int = 0, ran: float = 1.0) -> Retry | NoRetry:
    """decide_restart with the usual numbers."""
    return decide_restart(restart, culprit, used=used, ran_seconds=ran)


@pytest.mark.parametrize(
    ("restart_on", "culprit", "again"),
    [
        ("", failed(), True),
        ("", failed("node-lost", 125), True),
        ("any", failed("oom", 0, 9), True),
        ("exit", failed(), True),
        ("exit", failed("signal", 0, 11), False),
        ("signal", failed("signal", 0, 11), True),
        ("signal", failed("oom", 0, 9), True),
        ("signal,oom", failed("oom", 0, 9), True),
        ("oom", failed("signal", 0, 9), False),
        ("node-lost", failed("node-lost", 125), True),
        ("node-lost", failed(), False),
        ("7", failed(code=7), True),
        ("7", failed(code=8), False),
        ("139", failed("signal", 0, 11), True),
        ("node-lost", failed(code=101), True),  # "restart me", Paddle's elastic contract
        ("node-lost", failed(code=102), True),
        ("any", failed("not-found", 127), False),
        ("not-found", failed("not-found", 127), False),
        ("126", failed("not-executable", 126), False),
        ("", failed("no-resources", 125), True),
        ("exit", failed("no-resources", 125), False),
        ("no-resources", failed("no-resources", 125), True),
    ],
)
def test_a_cause_is_restarted_or_not(restart_on: str, culprit: Exit, again: bool) -> None:
    """--restart-on: causes and exit codes; a program that is not there never."""
    words = tuple(restart_on.split(",")) if restart_on else ()
    decision = decide(Restart(max_restarts=3, restart_on=words), culprit)
    assert isinstance(decision, Retry) is again


def test_the_budget_is_counted_down() -> None:
    """--max_restart 2 means two restarts, not one and not three."""
    restart = Restart(max_restarts=2, backoff_initial_seconds=0.0)
    used = 0
    for expected in (1, 2):
        decision = decide(restart, failed(), used)
        assert isinstance(decision, Retry)
        used = decision.used
        assert used == expected
        assert decision.reason == f"restart {expected} of 2"
    assert isinstance(decide(restart, failed(), used), NoRetry)


def test_no_budget_means_no_words() -> None:
    """Without --max_restart nobody wants to read about restarts."""
    assert decide(Restart(), failed()) == NoRetry("")


def test_a_long_healthy_run_gives_the_budget_back() -> None:
    """A job of weeks may fail more often than one of minutes."""
    restart = Restart(max_restarts=2, healthy_seconds=600.0)
    assert isinstance(decide(restart, failed(), used=2, ran=599.9), NoRetry)
    decision = decide(restart, failed(), used=2, ran=600.0)
    assert decision == Retry(0.0, 1, "restart 1 of 2")


def test_pauses_double_up_to_the_cap() -> None:
    """The first restart is immediate: most failures of a node are not the program's fault."""
    restart = Restart(max_restarts=99, backoff_initial_seconds=1.0, backoff_max_seconds=10.0)
    delays = []
    for used in range(8):
        decision = decide(restart, failed(), used)
        assert isinstance(decision, Retry)
        delays.append(decision.delay_seconds)
    assert delays == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_an_absurd_count_does_not_overflow() -> None:
    """2.0 ** 5000 would."""
    restart = Restart(max_restarts=10_000)
    decision = decide(restart, failed(), used=5000)
    assert isinstance(decision, Retry)
    assert decision.delay_seconds == 60.0


def test_every_cause_is_a_word_of_the_flag() -> None:
    """What a report names can be written after --restart-on."""
    assert set(CAUSES) < set(restart_words())
