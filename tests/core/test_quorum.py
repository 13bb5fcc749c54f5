"""Who may start the next attempt, and which of two coordinators gives way: both tables."""

from __future__ import annotations

from itertools import product

import pytest

from paddock.core.job import Elastic, Entrypoint, Job, Rendezvous
from paddock.core.rendezvous.leader_conflict import who_gives_way
from paddock.core.rendezvous.messages import LeaderConflict, Voters
from paddock.core.rendezvous.quorum import LeaderHandoff, Quorum, has_majority
from paddock.core.rendezvous.state import MembershipState


def voters(keys: str, by: str = "a", attempt: int = 0, listen_ports: int = 7001) -> Voters:
    """The nodes of an attempt, a letter each."""
    count = len(keys)
    return Voters(attempt, tuple(keys), ("10.0.0.1",) * count, (listen_ports,) * count, by)


@pytest.mark.parametrize(
    ("keys", "present", "gone", "holds"),
    [
        ("a", "a", "", True),
        ("ab", "a", "", True),  # half, with the one that coordinated
        ("ab", "b", "", False),
        ("ab", "b", "a", True),  # its launcher has ended
        ("abc", "bc", "", True),
        ("abc", "a", "", False),
        ("abc", "c", "a", False),
        ("abc", "c", "ab", True),
        ("abcd", "ab", "", True),
        ("abcd", "bc", "", False),
        ("abcd", "bcd", "", True),
        ("abcd", "bc", "a", True),
        ("abc", "axyz", "", False),  # newcomers have no vote
        ("abc", "", "abc", True),  # nobody is left who could have gone on
    ],
)
def test_a_majority_of_those_that_may_live(keys: str, present: str, gone: str, holds: bool) -> None:
    """The table at the top of quorum.py."""
    assert has_majority(voters(keys), set(present), set(gone)) is holds


def test_two_groups_never_both_have_it() -> None:
    """However many nodes there are, whoever has ended, whoever is with whom."""
    for count in range(1, 7):
        keys = "abcdef"[:count]
        for sides in product("12x", repeat=count):  # with one, with the other, ended
            one, other, gone = (
                {k for k, s in zip(keys, sides, strict=True) if s == side} for side in "12x"
            )
            both = has_majority(voters(keys), one, gone) and has_majority(voters(keys), other, gone)
            assert not both or not one or not other, (keys, sides)
            # Each may know of some deaths only.
            for known in gone:
                assert not (
                    one
                    and other
                    and has_majority(voters(keys), one, gone - {known})
                    and has_majority(voters(keys), other, gone)
                ), (keys, sides, known)


def test_who_has_no_door_takes_nothing_over() -> None:
    """Then there is nobody to wait for."""
    assert has_majority(voters("abc", listen_ports=0), {"a"}, ())


def test_an_attempt_counts_when_a_majority_has_started_it() -> None:
    """Those that have not heard of it may go on from the one before."""
    quorum = Quorum()
    assert quorum.begin(voters("abc")) == ()
    assert quorum.begin(voters("abcd", attempt=1)) == (voters("abc"),)
    assert not quorum.holds(set("ad"))
    assert not quorum.add_started("a")  # which coordinates it
    assert quorum.add_started("b")
    assert quorum.voters == [voters("abcd", attempt=1)]
    assert quorum.holds(set("ad"))
    assert not quorum.add_started("c")


def test_the_same_nodes_count_at_once() -> None:
    """A restart asks for the same majority as the attempt before."""
    quorum = Quorum([voters("abc")])
    assert quorum.begin(voters("acb", attempt=1)) == ()
    assert quorum.voters == [voters("acb", attempt=1)]


def test_until_then_both_have_to_agree() -> None:
    """One that was started by few, and never settled, is in nobody's way for ever."""
    quorum = Quorum([voters("abcde")])
    quorum.begin(voters("abcdefgh", attempt=1))
    assert quorum.holds(set("abcde"))
    assert not quorum.holds(set("afgh"))
    quorum.begin(voters("abcd", attempt=2))
    assert [v.attempt for v in quorum.voters] == [0, 1, 2]


SHAPE = (("--nnodes", "1:3"), ("the script", "train.py"))
JOB = Job(
    Entrypoint("script", "a/train.py"),
    nnodes_max=3,
    rendezvous=Rendezvous("tcp"),
    elastic=Elastic(1),
)


def conflict(
    run: str, attempt: int, key: str, *, begun: bool = False, settled: bool = True,
    fingerprint: tuple[tuple[str, str], ...] = SHAPE,
) -> LeaderConflict:  # fmt: skip
    """That of a coordinator somewhere."""
    return LeaderConflict(run, attempt, begun, settled, key, "x", 1, fingerprint)


def state(*last: Voters, begun: int = 0) -> MembershipState:
    """What the one that is asked knows."""
    found = MembershipState(JOB, 0.0, "run", SHAPE[:1], LeaderHandoff(4, voters=last))
    found.begun = begun
    return found


LAST = voters("abc", attempt=3)


@pytest.mark.parametrize(
    ("asks", "asked", "key", "loser"),
    [
        (conflict("run", 4, "b", begun=True), state(LAST, begun=2), "a", "us"),
        (conflict("run", 2, "b", begun=True), state(LAST), "c", "them"),
        (conflict("run", 3, "b"), state(LAST), "c", "us"),
        (conflict("run", 3, "a"), state(LAST), "b", "us"),  # it coordinated that attempt
        (conflict("run", 3, "c"), state(LAST), "b", "them"),
        (conflict("run", 3, "b"), state(LAST, begun=1), "a", "them"),
        (conflict("run", 3, "b"), state(LAST, begun=1), "c", "them"),  # it has begun one
        # Both have begun an attempt 3.
        (conflict("run", 3, "b", begun=True), state(LAST, LAST, begun=1), "a", "us"),
        (conflict("run", 3, "b", begun=True, settled=False), state(LAST, begun=1), "a", "them"),
        (conflict("run", 3, "b", begun=True, settled=False), state(LAST, LAST), "a", "them"),
        # Another run.
        (conflict("other", 9, "z", begun=True), state(LAST, begun=5), "a", "us"),
        (conflict("other", 9, "z", begun=True), state(), "a", "us"),
        (conflict("other", 9, "z"), state(), "a", "none"),
        (conflict("other", 9, "z", begun=True, fingerprint=()), state(), "a", "none"),
         # another job
        (
            conflict("other", 9, "z", begun=True, fingerprint=(SHAPE[0], ("the script",
                "eval.py"))),
            state(LAST), "a", "none",
        ),
    ],
)  # fmt: skip
def test_who_gives_way(asks: LeaderConflict, asked: MembershipState, key: str, loser: str) -> None:
    """The table at the top of leader_conflict.py."""
    own = asked.conflict_at(key, "y", 2)
    assert who_gives_way(asks, own, asked.quorum.last) == loser
