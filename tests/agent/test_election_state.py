"""What one candidate decides, input by input; the table at the top of election_state.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.agent.election_state import ElectionState, Role
from paddock.agent.election_values import (
    AttemptRecord,
    Bury,
    Campaign,
    Changed,
    Deposed,
    Elected,
    ElectionFailed,
    EtcdBack,
    EtcdDown,
    Failed,
    Fence,
    FenceAsked,
    Fenced,
    Finished,
    Following,
    Grant,
    Granted,
    KeepAlive,
    Kept,
    LeaderGone,
    LeaderRecord,
    LeaseGone,
    Look,
    Post,
    RecordError,
    Reelected,
    Revoke,
    Revoked,
    StopAsked,
    UidLearned,
    View,
    Watch,
    WatchBroken,
    Woke,
)
from paddock.agent.etcd import EtcdRefused, EtcdUnreachable
from paddock.core.value import replace

if TYPE_CHECKING:
    from paddock.agent.election_values import Event, Input, Order

US = LeaderRecord("node0", "10.0.0.1", 6070, "u", nonce="us")
THEM = LeaderRecord("node1", "10.0.0.2", 6070, "u", nonce="them")
DOWN = Failed(EtcdUnreachable("etcd is down"))


class Candidate:
    """An ElectionState with a clock; what it says is sorted into events and the request."""

    def __init__(self) -> None:
        self.state = ElectionState(US, lambda: 0.0)
        self.now = 0.0
        self.events: list[Event] = []
        self.request: Order | None = None
        self.watch: int | None = None

    def gets(self, *inputs: Input, after: float = 0.0) -> Candidate:
        self.now += after
        self.events, self.request, self.watch = [], None, None
        for what in inputs:
            for order in self.state.step(what, self.now):
                if isinstance(order, Post):
                    self.events.append(order.event)
                elif isinstance(order, Watch):
                    self.watch = order.from_revision
                else:
                    self.request = order
        return self


def ours(
    revision: int = 10,
    created: int = 10,
    lease: int = 7,
    attempt: AttemptRecord | None = None,
    attempt_modified: int = 0,
) -> View:
    return View(revision, US, created, lease, attempt, attempt_modified)


def theirs(revision: int = 10, created: int = 10) -> View:
    return View(revision, THEM, created, 8)


def leading(previous: AttemptRecord | None = None) -> Candidate:
    return Candidate().gets(
        Woke(),
        View(1),
        Granted(7, 5),
        ours(attempt=previous, attempt_modified=3 if previous else 0),
    )


def following() -> Candidate:
    return Candidate().gets(Woke(), theirs())


def attempt(number: int = 0, generation: int = 10, nonce: str = "") -> AttemptRecord:
    return AttemptRecord(generation, number, "u", ("node0", "node1"), nonce=nonce)


def test_first_candidate_looks_takes_a_lease_and_campaigns() -> None:
    """No lease is taken before a look: 1,000 agents would otherwise leave 1,000 leases."""
    c = Candidate()
    assert c.gets(Woke()).request == Look()
    assert c.gets(View(1)).request == Grant(5)
    assert c.gets(Granted(7, 5)).request == Campaign(US, 7)
    c.gets(ours())
    assert (c.events, c.watch) == ([Elected(10, None)], 11)
    assert c.state.wake_at(c.now) == pytest.approx(5 / 3)


def test_elected_candidate_is_told_the_last_attempt() -> None:
    """A successor continues the numbers, of a member's death or of a run that crashed."""
    old = attempt(4, generation=2, nonce="old")
    assert leading(old).events == [Elected(10, old)]


def test_loser_follows_and_watches_without_a_lease() -> None:
    """Its own lease lapses; it must not keep it alive."""
    c = Candidate().gets(Woke(), View(1), Granted(7, 5)).gets(theirs())
    assert (c.events, c.request, c.watch) == ([Following(THEM, 10)], None, 11)
    assert c.state.role is Role.FOLLOWING


def test_the_same_leader_is_told_once() -> None:
    """A look that finds nothing new says nothing."""
    c = following()
    assert c.gets(Changed()).request == Look()
    assert c.gets(theirs(revision=12)).events == []
    assert c.watch == 13


def test_follower_takes_over_only_when_the_key_is_gone() -> None:
    """A watch that fires is a reason to look, not to campaign."""
    c = following()
    assert c.gets(Changed()).request == Look()
    c.gets(View(11))
    assert (c.events, c.request) == ([LeaderGone(10)], Grant(5))


def test_follower_that_missed_a_change_tells_both_halves() -> None:
    """Gone and come again between two looks: the launcher must leave the old one first."""
    c = following().gets(Changed(), theirs(revision=12, created=12))
    assert c.events == [LeaderGone(10), Following(THEM, 12)]


def test_leader_is_told_apart_by_nonce_when_etcd_counts_from_one_again() -> None:
    """After data loss another's key can have the same revision."""
    third = replace(THEM, nonce="third")
    c = following().gets(Changed(), View(10, third, 10, 9))
    assert c.events == [LeaderGone(10), Following(third, 10)]


def test_broken_watch_is_looked_after_with_a_pause() -> None:
    """Where streams do not work this is a poll, so it must not spin."""
    c = following()
    assert c.gets(WatchBroken()).request is None
    assert c.state.wake_at(c.now) == pytest.approx(0.3)
    assert c.gets(Woke(), after=0.3).request == Look()


def test_silent_watch_is_not_trusted_for_ever() -> None:
    """A watch through a proxy can die without a word."""
    assert following().gets(Woke(), after=15.0).request == Look()


def test_leader_keeps_its_lease_alive_every_third_of_it() -> None:
    """Two keep-alives may fail before the lease is in danger."""
    c = leading()
    assert c.gets(Woke(), after=1.6).request is None
    assert c.gets(Woke(), after=0.1).request == KeepAlive(7)
    c.gets(Kept(5))
    assert c.state.wake_at(c.now) == pytest.approx(1.7 + 5 / 3)


def test_fence_names_generation_and_the_record_it_replaces() -> None:
    """The transaction compares both: that is the fence."""
    c = leading(attempt(4, generation=2, nonce="old")).gets(FenceAsked(attempt(5)))
    assert c.request == Fence(attempt(5, nonce="us"), known=3)
    c.gets(ours(revision=11, attempt=attempt(5, nonce="us"), attempt_modified=11))
    assert c.events == [Fenced(5, ok=True)]


def test_fence_whose_reply_was_lost_is_recognised() -> None:
    """The second try finds its own record: allowed, not refused."""
    c = leading().gets(FenceAsked(attempt()), DOWN)
    assert c.gets(Woke(), after=0.2).request == Fence(attempt(nonce="us"), known=0)
    c.gets(ours(revision=11, attempt=attempt(nonce="us"), attempt_modified=11))
    assert c.events == [Fenced(0, ok=True)]


def test_fence_waits_for_etcd_to_come_back() -> None:
    """No attempt starts without etcd's consent, and none is refused for its absence."""
    c = leading().gets(FenceAsked(attempt()), DOWN)
    for _ in range(20):
        c.gets(Woke(), DOWN, after=1.0)
        assert not any(isinstance(event, Fenced) for event in c.events)
    assert c.gets(Woke(), after=1.0).request == KeepAlive(7)
    assert c.gets(Kept(5)).events == [EtcdBack()]
    assert c.request == Fence(attempt(nonce="us"), known=0)


def test_fence_of_a_number_already_used_is_refused() -> None:
    """Attempts strictly increase."""
    c = leading(attempt(4, generation=2, nonce="old")).gets(FenceAsked(attempt(4)))
    assert c.events == [Fenced(4, ok=False, reason="attempt 4 is already on record")]
    assert c.request is None


def test_fence_asked_before_hearing_of_a_new_reign_is_refused() -> None:
    """Found by simulation, seed 5352: it would have overwritten another's attempt."""
    c = leading().gets(FenceAsked(attempt(1, generation=2)))
    assert c.events == [Fenced(1, ok=False, reason="asked in generation 2, it is 10 now")]


def test_fence_by_a_follower_is_refused() -> None:
    """Only the coordinator starts attempts."""
    c = following().gets(FenceAsked(attempt()))
    assert c.events == [Fenced(0, ok=False, reason="we do not coordinate")]


def test_second_fence_replaces_the_first() -> None:
    """The launcher changed its mind; the first gets its answer all the same."""
    c = leading().gets(DOWN, FenceAsked(attempt(0)), FenceAsked(attempt(1)))
    assert c.events == [Fenced(0, ok=False, reason="attempt 1 was asked for instead")]


def test_ok_after_a_long_pause_is_asked_for_again() -> None:
    """A stopped process that wakes up must not start what may have been taken over."""
    c = leading().gets(FenceAsked(attempt()))
    done = ours(revision=11, attempt=attempt(nonce="us"), attempt_modified=11)
    assert c.gets(done, after=6.0).events == []
    assert c.gets(Woke(), after=0.1).request == KeepAlive(7)
    assert c.gets(Kept(5)).request == Fence(attempt(nonce="us"), known=11)
    assert c.gets(done).events == [Fenced(0, ok=True)]


def test_leader_whose_lease_expired_takes_its_key_again() -> None:
    """Lost quorum for longer than a lease: training goes on, under a new generation."""
    c = leading()
    assert c.gets(Kept(0)).request == Grant(5)
    assert c.gets(Granted(9, 5)).request == Campaign(US, 9)
    assert c.gets(ours(revision=12, created=12, lease=9)).events == [Reelected(12)]


def test_key_deleted_by_hand_is_taken_again_with_the_same_lease() -> None:
    """etcdctl del must not stop a training."""
    c = leading().gets(Changed(), View(11))
    assert c.request == Campaign(US, 7)
    assert c.gets(ours(revision=12, created=12)).events == [Reelected(12)]


def test_leader_that_lost_its_key_to_another_is_deposed() -> None:
    """Certain now: its pending fence is refused and it follows."""
    c = leading().gets(FenceAsked(attempt()), LeaseGone(), Granted(9, 5), theirs(created=12))
    reason = "'node1' at 10.0.0.2:6070 leads now"
    assert c.events == [
        Fenced(0, ok=False, reason=f"deposed: {reason}"),
        Deposed(reason),
        Following(THEM, 12),
    ]


def test_leader_again_after_another_started_an_attempt_is_deposed_first() -> None:
    """What it runs is outdated, although the key is its own."""
    foreign = attempt(1, generation=12, nonce="them")
    c = leading().gets(Kept(0), Granted(9, 5))
    c.gets(ours(revision=14, created=14, attempt=foreign, attempt_modified=13))
    assert c.events == [
        Deposed("others led in between (generation 10 to 14)"),
        Elected(14, foreign),
    ]


def test_vanished_attempt_record_means_deposed() -> None:
    """etcd lost its data: who knows what else was started."""
    c = leading(attempt(4, generation=2, nonce="old")).gets(Kept(0), Granted(9, 5))
    c.gets(ours(revision=2, created=2, lease=9))
    assert c.events == [
        Deposed("others led in between (generation 10 to 2)"),
        Elected(2, None),
    ]


def test_tombstone_that_expired_means_nothing() -> None:
    """It was kept for a minute only."""
    old = replace(attempt(4, generation=2, nonce="old"), ended=True)
    c = leading(old).gets(Kept(0), Granted(9, 5))
    assert c.gets(ours(revision=12, created=12, lease=9)).events == [Reelected(12)]


def test_numbers_start_again_after_a_tombstone() -> None:
    """The earlier run ended well; its numbers do not bind the next one."""
    old = replace(attempt(4, generation=2, nonce="old"), ended=True)
    assert leading(old).gets(FenceAsked(attempt(0))).request == Fence(attempt(0, nonce="us"), 3)


def test_campaign_whose_reply_was_lost_is_found_by_its_nonce() -> None:
    """And the lease to keep alive is the one on the key, not a later one."""
    c = Candidate().gets(Woke(), View(1), Granted(7, 5), DOWN)
    c.gets(Woke(), LeaseGone(), Granted(9, 5), after=6.0)
    c.gets(ours(lease=7))
    assert (c.events, c.request) == ([Elected(10, None)], KeepAlive(7))


def test_late_campaign_of_a_follower_makes_it_leader() -> None:
    """The request arrived after the key had gone: it is ours, like it or not."""
    c = following().gets(Changed(), ours(revision=12, created=12))
    assert c.events == [LeaderGone(10), Elected(12, None)]


def test_outage_is_told_after_a_second_and_ever_more_rarely() -> None:
    """A restart of etcd is not worth a line; a long outage is worth a few."""
    c = Candidate().gets(Woke())
    told = []
    for _ in range(300):
        c.gets(DOWN, after=0.5)
        told += [event.seconds for event in c.events if isinstance(event, EtcdDown)]
        c.gets(Woke(), after=0.5)
    assert told == [1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5, 183.5, 243.5]
    assert c.gets(View(1)).events == [EtcdBack()]


def test_short_outage_is_not_told() -> None:
    """Neither its begin nor its end."""
    c = leading().gets(FenceAsked(attempt()), DOWN)
    assert c.gets(Woke(), Kept(5), after=0.3).events == []


def test_retries_pause_longer_and_longer_up_to_a_second() -> None:
    """A cap, so that a fence is not late by minutes after a long outage."""
    c = Candidate().gets(Woke())
    pauses = []
    for _ in range(6):
        c.gets(DOWN)
        pauses.append(round((c.state.wake_at(c.now) or 0.0) - c.now, 3))
        c.gets(Woke(), after=1.0)
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_hopeless_error_at_the_start_ends_the_election() -> None:
    """Not etcd, or the wrong password: the user must hear it now."""
    error = EtcdRefused("not etcd")
    c = Candidate().gets(Woke(), Failed(error))
    assert (c.events, c.request) == ([ElectionFailed(error)], Finished())
    assert c.state.wake_at(c.now) is None


def test_hopeless_error_later_is_an_outage() -> None:
    """A running job is not ended by a load balancer's bad day."""
    c = leading().gets(Woke(), after=2.0)
    c.gets(Failed(EtcdRefused("not etcd")), after=1.0)
    assert c.events == [EtcdDown(1.0, "not etcd")]


def test_stop_of_a_leader_revokes_the_lease() -> None:
    """The key goes at once, so the successor does not wait for a lease to expire."""
    c = leading()
    assert c.gets(StopAsked(ended=False)).request == Revoke(7)
    assert c.gets(Revoked()).request == Finished()


def test_stop_while_etcd_is_down_gives_up_within_a_second() -> None:
    """The launcher must be able to end."""
    c = leading().gets(StopAsked(ended=False), DOWN)
    assert c.gets(Woke(), after=0.1).request == Revoke(7)
    assert c.gets(DOWN, Woke(), after=1.0).request is None
    assert c.gets(Woke(), after=0.1).request == Finished()


def test_stop_of_a_follower_needs_no_request() -> None:
    """It holds nothing."""
    assert following().gets(StopAsked(ended=True)).request == Finished()


def test_finish_leaves_a_tombstone_for_a_minute() -> None:
    """A member that was cut off must learn that the job is over, not start it again."""
    done = attempt(5, nonce="us")
    c = leading().gets(FenceAsked(attempt(5)), ours(attempt=done, attempt_modified=11))
    assert c.gets(StopAsked(ended=True)).request == Grant(600)
    assert c.gets(Granted(70, 60)).request == Bury(replace(done, ended=True), 70)
    assert c.gets(View(13)).request == Revoke(7)
    assert c.gets(Revoked()).request == Finished()


def test_finish_gives_up_the_tombstone_when_etcd_is_down() -> None:
    """And still tries to revoke, once."""
    old = attempt(4, generation=2, nonce="old")
    c = leading(old).gets(StopAsked(ended=True))
    c.gets(DOWN, after=1.1)
    assert c.gets(Woke(), after=0.1).request == Revoke(7)
    c.gets(DOWN)
    assert c.gets(Woke(), after=0.1).request == Finished()


def test_learned_uid_is_announced_when_elected_later() -> None:
    """A member joins without knowing the run's uid; as its coordinator it must name it."""
    c = following().gets(UidLearned("run-7"), Changed(), View(11), Granted(7, 5))
    assert c.request == Campaign(replace(US, uid="run-7"), 7)


def test_records_survive_their_journey() -> None:
    """Text of any kind: names are the user's."""
    leader = replace(US, name="nœud \u0000 \U0001f40e")
    assert LeaderRecord.decode(leader.encode()) == leader
    record = replace(attempt(3, nonce="x"), ended=True, members=("a", "b c"))
    assert AttemptRecord.decode(record.encode()) == record


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"\xff", b"{}", b'{"port": 0}', b'{"port": 1, "name": 3}', b"[" * 9999],
)
def test_foreign_content_is_refused(data: bytes) -> None:
    """The key may be another program's; a traceback would not say so."""
    for kind in (LeaderRecord, AttemptRecord):
        with pytest.raises(RecordError, match="did not write"):
            kind.decode(data)
