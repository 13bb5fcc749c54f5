"""The report's lines: who failed, who waited, and all lines of one mind. Pure."""

from __future__ import annotations

import pytest

from paddock.core.attempt.exits import Exit, find_culprit
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import Host
from paddock.core.job import Entrypoint, Job
from paddock.core.plan import Plan, make_plan
from paddock.local.report.text import verdict_lines

MS = 1_000_000
GLOO = (
    "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"
)


def ended(rank: int, at_ms: int, tail: str = "", **changes: object) -> Exit:
    """A worker that exited with 1."""
    facts: dict[str, object] = {"code": 1, "tail": tail, **changes}
    return Exit("worker", rank, 0, "node-a", 0, at_ms * MS, **facts)  # type: ignore[arg-type]  # by name


def stopped(rank: int, at_ms: int, tail: str = "", **changes: object) -> Exit:
    """A worker that SIGTERM ended."""
    facts: dict[str, object] = {"code": 0, "signal": 15, "cause": "signal", "by_us": True}
    return ended(rank, at_ms, tail, **(facts | changes))


def plan_of(ranks: int) -> Plan:
    """One node with so many workers."""
    ports = tuple(range(20_000, 20_000 + ranks))
    host = Host(
        name="node-a", address="127.0.0.1", slots=(("worker", 0, ranks),), ports=ports,
        service_ports=(1, 2, 3, 4),
    )  # fmt: skip
    return make_plan(Job(Entrypoint("script", "train.py")), (host,), 0, "u1d")


def report(*exits: Exit) -> list[str]:
    """The lines of the final report."""
    culprit = find_culprit(exits)
    assert culprit is not None
    verdict = Verdict("fail", culprit.exit_code, "", culprit=culprit, exits=exits)
    return [text for _, text in verdict_lines(verdict, plan_of(len(exits)))]


def line(lines: list[str], word: str) -> str:
    """The one line that has this word."""
    (found,) = [text for text in lines if word in text]
    return found


def test_ranks_that_fail_alike_are_all_in_the_abort_line_the_culprit_first() -> None:
    """Rank 1 was gone first, but rank 0 had said why before, and was signalled only then."""
    said = "ValueError: loss is nan"
    first = stopped(0, 30, said, code=0, after_signal_ns=5 * MS, error_at_ns=10 * MS)
    late = stopped(2, 31, said, code=0, after_signal_ns=5 * MS, error_at_ns=12 * MS)
    lines = report(first, ended(1, 20, said, error_at_ns=15 * MS), late)
    assert line(lines, "first failure").startswith("first failure: rank 0")
    assert "rank=[0,1,2]" in line(lines, "ABORT")
    assert line(lines, "failed after it") == "failed after it: rank 1, rank 2"


def test_the_culprit_is_first_also_with_a_higher_rank() -> None:
    """Whoever reads one number of the line takes the first."""
    lines = report(ended(0, 40), ended(1, 30), ended(2, 20), stopped(3, 50))
    assert "rank=[2,0,1]" in line(lines, "ABORT")
    assert line(lines, "failed after it").endswith("as a result: rank 3")


def test_who_did_not_arrive_is_named_with_his_last_line() -> None:
    """Rank 1 sleeps in its data loader; rank 0 can only say that it has waited."""
    waited = ended(0, 20, GLOO, timed_out=True)
    lines = report(waited, stopped(1, 50, "epoch 1\nloading shard 7\n"))
    assert line(lines, "first failure") == (
        "first failure: rank 0 on node-a timed out waiting for others (exited with code 1); "
        "rank 1 did not arrive (still running on node-a, last line: loading shard 7)"
    )


def test_who_waited_too_is_not_among_the_absent() -> None:
    """Its own time-out was 5 ms later, or it lost the first witness."""
    lines = report(
        ended(0, 20, timed_out=True),
        stopped(1, 50, timed_out=True),
        stopped(2, 50, peer_loss=True, tail="Connection reset by peer"),
        stopped(3, 50, peer_loss=True, tail="SIGTERM (@0x1) received by PID 9"),
    )
    text = line(lines, "first failure")
    assert text.startswith("first failure: rank 0 on node-a timed out waiting for others")
    assert "; rank 3 did not arrive (still running on node-a" in text
    assert "rank 1" not in text and "rank 2" not in text


def test_of_several_that_still_ran_nobody_is_accused_alone() -> None:
    """Some of them waited as well and had no time to say so."""
    lines = report(ended(0, 20, timed_out=True), *(stopped(rank, 50) for rank in range(1, 8)))
    text = line(lines, "first failure")
    assert "not all of these arrived: rank 1 (still running on node-a), rank 2" in text
    assert text.endswith("rank 4 (still running on node-a) and 3 more")


@pytest.mark.parametrize("words", [{"timed_out": True}, {"peer_loss": True}])
def test_a_peer_that_had_ended_well_is_told(words: dict[str, bool]) -> None:
    """A rank with fewer batches leaves the others waiting, or closes its connections."""
    lines = report(ended(0, 20, **words), ended(1, 10, code=0))
    assert line(lines, "first failure").endswith("ended before it, with code 0: rank 1")


def test_an_own_fault_is_told_as_ever() -> None:
    """Nobody is absent when the culprit says what was wrong."""
    lines = report(ended(0, 20, "ValueError: 7"), stopped(1, 50, "loading\n"))
    assert line(lines, "first failure") == "first failure: rank 0 on node-a exited with code 1"
