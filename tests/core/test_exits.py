"""find_culprit: the first that failed by itself, among those that fell with it."""

from __future__ import annotations

import random

import pytest

from paddock.core.attempt.exits import Exit, find_culprit, own_failures
from paddock.core.value import replace

MS = 1_000_000


def died(rank: int, at_ms: float, node: int = 0, **changes: object) -> Exit:
    """Worker ``rank`` exited with code 1."""
    made = Exit("worker", rank, node, f"n{node}", 0, int(at_ms * MS), code=1)
    return replace(made, **changes)


def lost(node: int, at_ms: float) -> Exit:
    """A node was lost."""
    return Exit("node", -1, node, f"n{node}", 0, int(at_ms * MS), code=125, cause="node-lost")


def stopped(rank: int, at_ms: float, node: int = 0, *, after_ms: float = 1.0) -> Exit:
    """Ended by our SIGTERM, sent after_ms before."""
    return died(
        rank, at_ms, node, code=0, signal=15, cause="signal", by_us=True,
        after_signal_ns=int(after_ms * MS),
    )  # fmt: skip


def blamed(*exits: Exit) -> str:
    """The culprit's name; the order of the news must not matter."""
    rng = random.Random(1)
    names = set()
    for _ in range(10):
        culprit = find_culprit(rng.sample(exits, len(exits)))
        names.add("" if culprit is None else culprit.name)
    (name,) = names
    return name


def test_nobody_is_blamed_when_nobody_failed() -> None:
    """All ended well, or all were stopped by us."""
    assert blamed() == ""
    assert blamed(died(0, 1, code=0), stopped(1, 2)) == ""


def test_the_first_of_a_cascade_is_blamed() -> None:
    """Peers die 10 to 40 ms after the culprit: 20 of 20."""
    for seed in range(20):
        rng = random.Random(seed)
        culprit = rng.randrange(8)
        exits = [
            died(rank, 1000 if rank == culprit else 1000 + rng.uniform(10, 40)) for rank in range(8)
        ]
        assert blamed(*exits) == f"rank {culprit}"


def test_a_witness_that_exits_first_is_not_blamed() -> None:
    """Rank 2 printed its traceback and is still in its exit handlers when rank 0 is gone."""
    witness = died(0, 1020, peer_loss=True, error_at_ns=1019 * MS)
    culprit = died(2, 1080, error_at_ns=1000 * MS)
    assert blamed(witness, culprit) == "rank 2"


def test_a_culprit_stopped_in_its_exit_handlers_is_blamed() -> None:
    """We signalled it because a witness was gone first, but its traceback is older than that."""
    witness = died(0, 1020, peer_loss=True)
    culprit = replace(stopped(2, 1025, after_ms=4), error_at_ns=1000 * MS)
    found = find_culprit([witness, culprit])
    assert found is not None
    assert (found.name, found.exit_code, found.how) == ("rank 2", 1, "exited with code 1")


@pytest.mark.parametrize("age_ms", [5, 900, 7_200_000])
def test_a_rank_that_lived_on_after_its_traceback_is_no_culprit(age_ms: int) -> None:
    """It handled the exception, trained on in silence, and was ended because another failed."""
    healthy = replace(stopped(0, 9_000_004, after_ms=2), error_at_ns=(9_000_000 - age_ms) * MS)
    failed = died(1, 9_000_000, code=77, tail="asks for a restart")
    assert blamed(healthy, failed) == "rank 1"
    culprit = find_culprit([healthy, failed])
    assert culprit is not None and culprit.exit_code == 77
    assert own_failures([healthy, failed]) == [failed]


def test_an_old_traceback_is_no_cause_of_lost_peers() -> None:
    """Hours ago it was handled: of ranks that all lost a peer, the first is named."""
    healthy = replace(stopped(0, 9_000_004, after_ms=2), error_at_ns=1000 * MS)
    assert blamed(healthy, died(1, 9_000_000, peer_loss=True)) == "rank 1"
    at_sigterm = replace(healthy, code=1, signal=0, cause="exit")  # a handler that exits with 1
    assert blamed(at_sigterm, died(1, 9_000_000)) == "rank 1"


def test_a_victim_confirms_the_traceback_only_if_nobody_else_failed_before_it() -> None:
    """Rank 1 lost a peer; whether rank 2 or rank 3 was that peer, the order of failures tells."""
    spoke = replace(stopped(2, 1025, after_ms=4), error_at_ns=1000 * MS)
    victim = died(1, 1020, peer_loss=True)
    assert blamed(spoke, victim, died(3, 1022, code=7)) == "rank 2"
    assert blamed(spoke, victim, died(3, 1015, code=7)) == "rank 3"


def test_an_exit_in_spite_of_our_signal_shows_that_it_was_leaving() -> None:
    """The culprit's exit handlers ran on; its peer ends of it with words that nobody knows."""
    peer = died(0, 1020, tail="RuntimeError: no batch came from rank 2")
    culprit = died(2, 1300, by_us=True, after_signal_ns=278 * MS, error_at_ns=1000 * MS)
    assert blamed(peer, culprit) == "rank 2"
    assert own_failures([peer, culprit]) == [peer, culprit]


@pytest.mark.parametrize("end", [{"code": 3}, {"code": 1}, {"code": 0, "signal": 11}])
def test_an_end_without_words_counts_from_when_it_was(end: dict[str, int]) -> None:
    """Its handled traceback is hours old: of two nodes' ranks the first to end is named."""
    silent = died(0, 9_000_400, error_at_ns=1000 * MS, **end)
    assert blamed(silent, died(7, 9_000_000, 1)) == "rank 7"


def test_a_traceback_just_before_another_exit_code_was_handled() -> None:
    """An uncaught exception ends an interpreter with code 1."""
    silent = died(0, 1030, code=3, error_at_ns=1000 * MS)
    assert blamed(silent, died(7, 1015, 1)) == "rank 7"


def test_a_traceback_caused_by_our_signal_is_no_cause() -> None:
    """A failing SIGTERM handler; a clock that is 20 ms off must not make it look older."""
    first = died(0, 1000, peer_loss=True)
    handler = replace(
        died(2, 995, 1, by_us=True), error_at_ns=994 * MS, uncertainty_ns=20 * MS,
        after_signal_ns=3 * MS,
    )  # fmt: skip
    assert blamed(first, handler) == "rank 0"


def test_one_that_timed_out_is_a_witness_too() -> None:
    """It gave up first, since the other hung in what it failed of in the end."""
    waited = died(0, 1000, timed_out=True)
    assert blamed(waited, died(1, 5000)) == "rank 1"
    assert blamed(waited, stopped(1, 1010)) == "rank 0"
    assert waited.how == "timed out waiting for others (exited with code 1)"
    assert blamed(waited, replace(stopped(1, 1025), timed_out=True, error_at_ns=1)) == "rank 0"


def test_witnesses_alone_give_the_earliest() -> None:
    """When everybody complains of a lost peer, time is all there is."""
    exits = [died(r, 1000 + 5 * r, peer_loss=True) for r in range(4)]
    assert blamed(*exits) == "rank 0"


def test_one_host_knows_its_order_exactly() -> None:
    """Even within a tenth of a millisecond, and against rank order and signals."""
    assert blamed(died(3, 1000.0), died(1, 1000.1, signal=11, code=0)) == "rank 3"


def test_equal_stamps_of_one_host_prefer_a_signal_then_rank() -> None:
    """One batch with one stamp: the choice is the same on every run."""
    assert blamed(died(3, 1000), died(1, 1000)) == "rank 1"
    assert blamed(died(3, 1000, signal=11, code=0), died(1, 1000)) == "rank 3"


@pytest.mark.parametrize(
    ("gap_ms", "doubt_ms", "name"),
    [
        (1.0, 0.0, "rank 0"),  # a tie: the lower rank
        (3.0, 0.0, "rank 5"),
        (10.0, 0.5, "rank 5"),
        (10.0, 9.0, "rank 0"),
    ],
)
def test_two_hosts_tie_within_their_uncertainty(gap_ms: float, doubt_ms: float, name: str) -> None:
    """Rank 5 on host 1 first, rank 0 on host 0 later."""
    early = died(5, 1000, 1, uncertainty_ns=int(doubt_ms * MS))
    assert blamed(early, died(0, 1000 + gap_ms)) == name


def test_a_signal_wins_a_tie_of_two_hosts() -> None:
    """A crash explains an exit code better than the other way round."""
    assert blamed(died(0, 1000), died(5, 1001, 1, signal=11, code=0)) == "rank 5"


def test_in_a_tie_each_host_stands_for_its_first() -> None:
    """Host 0 knows that its rank 2 was before its rank 0: rank 0 is out, tie or not."""
    exits = [died(2, 1000), died(0, 1001), died(7, 1000.5, 1)]
    assert blamed(*exits) == "rank 2"


def test_a_rank_wins_a_tie_against_a_lost_node() -> None:
    """A rank can be looked at, and its end explains more."""
    assert blamed(lost(1, 1000), died(0, 1001)) == "rank 0"
    assert blamed(lost(1, 1000), died(0, 1030)) == "node 1"


def test_the_first_that_ends_has_lost_no_peer() -> None:
    """Rank 1's data server refused it; rank 0 then missed rank 1, in words that nobody knows."""
    refused = died(1, 1000, peer_loss=True, error_at_ns=990 * MS)
    assert blamed(refused, died(0, 1004), stopped(2, 1010)) == "rank 1"
    assert blamed(refused, died(0, 1020, 1)) == "rank 1"
    assert blamed(refused, died(0, 1020, 1, uncertainty_ns=40 * MS)) == "rank 0"  # not known


@pytest.mark.parametrize("end", [{"code": 7}, {"code": 0}])
def test_one_that_ends_after_another_may_have_lost_it(end: dict[str, int]) -> None:
    """However the other ended."""
    victim, other = died(1, 1000, peer_loss=True), died(2, 1030)
    assert blamed(died(0, 990, **end), victim, other) == ("rank 0" if end["code"] else "rank 2")


def test_ranks_that_a_service_refuses_alike_are_blamed_as_their_lowest() -> None:
    """The first of them has lost no peer, nor have those that say the same after it."""
    said = "ConnectionRefusedError: [Errno 111] Connection refused"
    refused = [died(r, 1000 + 50 * (3 - r), peer_loss=True, tail=said) for r in range(4)]
    assert blamed(*refused) == "rank 0"


def test_a_lost_node_explains_its_witnesses() -> None:
    """Its lease ended three seconds after its peers had said "connection reset"."""
    assert blamed(died(0, 1000, peer_loss=True), lost(1, 4000)) == "node 1"
    assert blamed(died(0, 1000), lost(1, 4000)) == "rank 0"


def test_a_stopped_rank_never_beats_a_failed_one_in_a_tie() -> None:
    """What failed by itself is certain."""
    spoke = replace(stopped(0, 1010, 1, after_ms=2), error_at_ns=1000 * MS)
    assert blamed(died(5, 1000), spoke) == "rank 5"


@pytest.mark.parametrize(
    ("exit_", "code", "how"),
    [
        (died(0, 1), 1, "exited with code 1"),
        (died(0, 1, code=0, signal=9, cause="signal"), 137, "was killed by SIGKILL"),
        (died(0, 1, code=0, signal=63, cause="signal"), 191, "was killed by signal 63"),
        (died(0, 1, code=0, signal=9, cause="oom"), 137, "was killed for lack of memory"),
        (died(0, 1, code=127, cause="not-found", tail="x: gone"), 127, "could not be started: x"),
        (lost(1, 1), 125, "was lost"),
    ],
)
def test_an_end_has_a_code_and_words(exit_: Exit, code: int, how: str) -> None:
    """Shell codes: 128 + signal; words for the report."""
    assert exit_.exit_code == code
    assert exit_.how.startswith(how)
    assert exit_.failed
    assert not exit_.ok


def test_a_traceback_counts_from_when_it_was_printed() -> None:
    """Both failed by themselves; the first to say so took longer to be gone."""
    slow = died(3, 1060, error_at_ns=1000 * MS)
    assert blamed(slow, died(0, 1030, error_at_ns=1029 * MS)) == "rank 3"


def test_ranks_that_fail_alike_are_blamed_as_their_lowest() -> None:
    """A module that is missing is missing for all of them, and rank 0 is on the screen."""
    said = "ModuleNotFoundError: No module named 'x'"
    first = died(3, 1000, tail=said)
    zero = died(0, 1600, tail=f"a line of its own\n[rank0]: {said}\n")
    assert blamed(first, zero, stopped(1, 1700)) == "rank 0"
    cut_short = replace(stopped(0, 1600, after_ms=2), tail=said, error_at_ns=1597 * MS)
    assert blamed(first, cut_short) == "rank 0"
    assert blamed(first, died(0, 2100, tail=said)) == "rank 3"  # a second later: a consequence
    assert blamed(first, died(0, 1600, tail="ValueError: 1")) == "rank 3"
    assert blamed(first, died(0, 1600, tail=said, code=2)) == "rank 3"
    assert blamed(replace(first, tail=""), died(0, 1600)) == "rank 3"  # nothing says it is alike
