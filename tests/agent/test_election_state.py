"""What one candidate decides, input by input; the table at the top of election_state.py."""

from __future__ import annotations

import json

import pytest

from paddock.agent.etcd_election import messages as w
from paddock.agent.etcd_election.election import job_keys
from paddock.agent.etcd_election.election_state import ElectionState
from paddock.core.value import replace
from paddock.etcd.reply import EtcdRefused, EtcdUnreachable

US = w.LeaderRecord("node0", "10.0.0.1", 6070, "u", nonce="us")
THEM = w.LeaderRecord("node1", "10.0.0.2", 6070, "u", nonce="them")
NONE = w.ElectionView()
DOWN = w.RequestFailed(EtcdUnreachable("etcd is down"))


class Candidate:
    """An ElectionState with a clock; what it says is sorted into events and the request."""

    def __init__(self, jitter: float = 0.0) -> None:
        self.state = ElectionState(US, lambda: jitter, 5)
        self.now = 0.0
        self.events: list[w.Event] = []
        self.request: w.Order | None = None

    def gets(self, *inputs: w.Input, after: float = 0.0) -> Candidate:
        self.now += after
        self.events, self.request = [], None
        for what in inputs:
            for order in self.state.step(what, self.now):
                if isinstance(order, w.PublishEvent):
                    self.events.append(order.event)
                else:
                    self.request = order
        return self


def ours(
    created: int = 10,
    lease: int = 7,
    attempt: w.AttemptRecord | None = None,
    attempt_modified: int = 0,
) -> w.ElectionView:
    return w.ElectionView(US, created, lease, attempt, attempt_modified)


def theirs(created: int = 10) -> w.ElectionView:
    return w.ElectionView(THEM, created, 8)


def leading(previous: w.AttemptRecord | None = None) -> Candidate:
    return Candidate().gets(
        w.ElectionTick(),
        NONE,
        w.LeaseGranted(7, 5),
        ours(attempt=previous, attempt_modified=3 if previous else 0),
    )


def following() -> Candidate:
    return Candidate().gets(w.ElectionTick(), theirs())


def attempt(number: int = 0, generation: int = 10, nonce: str = "") -> w.AttemptRecord:
    return w.AttemptRecord(generation, number, "u", ("node0", "node1"), nonce=nonce)


def test_first_candidate_looks_takes_a_lease_and_campaigns() -> None:
    """No lease is taken before a look: 1,000 agents would otherwise leave 1,000 leases."""
    c = Candidate()
    assert c.gets(w.ElectionTick()).request == w.ReadElection()
    assert c.gets(NONE).request == w.GrantLease(5)
    assert c.gets(w.LeaseGranted(7, 5)).request == w.Campaign(US, 7)
    c.gets(ours())
    assert c.events == [w.Elected(10, None)]
    assert c.state.wake_at(c.now) == pytest.approx(5 / 3)


def test_elected_candidate_is_told_the_last_attempt() -> None:
    """A successor continues the numbers, of a member's death or of a run that crashed."""
    old = attempt(4, generation=2, nonce="old")
    assert leading(old).events == [w.Elected(10, old)]


def test_loser_follows_without_a_lease() -> None:
    """Its own lease lapses; it must not keep it alive."""
    c = Candidate().gets(w.ElectionTick(), NONE, w.LeaseGranted(7, 5)).gets(theirs())
    assert (c.events, c.request) == ([w.Following(THEM, 10)], None)
    assert c.state.role == "following"


def test_the_same_leader_is_told_once() -> None:
    """A look that finds nothing new says nothing."""
    c = following()
    assert c.gets(w.ElectionTick(), after=0.4).request == w.ReadElection()
    assert c.gets(theirs()).events == []


def test_follower_takes_over_when_the_key_is_gone() -> None:
    """It never said that it answers us: nothing is waited for."""
    c = following().gets(w.ElectionTick(), after=0.4)
    assert c.gets(NONE).request == w.GrantLease(5)


def test_follower_that_missed_a_change_is_told_the_new_one() -> None:
    """Gone and come again between two looks: it is another reign, though of the same node."""
    assert following().gets(theirs(created=12)).events == [w.Following(THEM, 12)]


def test_leader_is_told_apart_by_nonce_when_etcd_counts_from_one_again() -> None:
    """After data loss another's key can have the same revision."""
    third = replace(THEM, nonce="third")
    c = following().gets(w.ElectionView(third, 10, 9))
    assert c.events == [w.Following(third, 10)]


def test_follower_without_its_leader_looks_every_third_of_a_second() -> None:
    """And at once when the leader ceases to answer."""
    c = following()
    assert c.state.wake_at(c.now) == pytest.approx(0.3)
    c.gets(w.LeaderAlive("them", True), theirs())
    assert c.gets(w.LeaderAlive("another", False)).request is None
    assert c.gets(w.LeaderAlive("them", False), after=0.1).request == w.ReadElection()
    c.gets(theirs())
    assert c.state.wake_at(c.now) == pytest.approx(c.now + 0.3)


def test_follower_whose_leader_answers_looks_once_a_lease() -> None:
    """The leader may be cut off from etcd only, and others lead: some look must find that."""
    c = following().gets(w.LeaderAlive("them", True), theirs())
    assert c.gets(w.ElectionTick(), after=4.9).request is None
    assert c.gets(w.ElectionTick(), after=0.2).request == w.ReadElection()


@pytest.mark.parametrize(("lives", "seconds"), [(True, 5.0), (False, 0.3)])
def test_followers_of_a_large_job_look_more_rarely(lives: bool, seconds: float) -> None:
    """1,200 nodes ask etcd no more than 300 would."""
    record = replace(attempt(), members=tuple(map(str, range(1200))))
    c = following().gets(w.LeaderAlive("them", lives), w.ElectionView(THEM, 10, 8, record, 9))
    assert c.state.wake_at(c.now) == pytest.approx(4 * seconds)


def test_leader_that_answers_gets_a_lease_to_take_its_key_again() -> None:
    """Only its lease ran out; but cut off from etcd it could start nothing any more."""
    c = following().gets(w.LeaderAlive("them", True))
    for _ in range(12):
        c.gets(w.ElectionTick(), after=0.4)
        assert c.request == w.ReadElection()
        c.gets(NONE)
        assert (c.events, c.request) == ([], None)
    assert c.gets(w.ElectionTick(), NONE, after=0.7).request == w.GrantLease(5)


def test_members_of_a_run_are_elected_before_a_newcomer() -> None:
    """Their leader is cut off from etcd only: a look and their patience end before it campaigns."""
    member = Candidate(jitter=1.0).gets(w.UidLearned("u"), w.ElectionTick(), theirs())
    member.gets(w.LeaderAlive("them", True), theirs())
    stranger = Candidate()
    stranger.state.me = replace(US, uid="")
    running = w.ElectionView(attempt=attempt(), attempt_modified=3)
    stranger.gets(w.ElectionTick(), running)
    while member.request != w.GrantLease(5):
        member.now = member.state.wake_at(member.now) or 0.0
        member.gets(w.ElectionTick(), running)
    assert member.now < (stranger.state.wake_at(0.0) or 0.0)


def test_leader_that_took_its_key_again_is_told_to_nobody_it_answers() -> None:
    """Their connections never broke."""
    c = following().gets(w.LeaderAlive("them", True), NONE, theirs(created=12))
    assert c.events == []
    assert c.gets(w.LeaderDied("them")).request == w.DeleteLeaderKey(12)


def test_leader_keeps_its_lease_alive_every_third_of_it() -> None:
    """Two keep-alives may fail before the lease is in danger."""
    c = leading()
    assert c.gets(w.ElectionTick(), after=1.6).request is None
    assert c.gets(w.ElectionTick(), after=0.1).request == w.KeepAlive(7)
    assert c.gets(w.LeaseGranted(7, 5)).request == w.ReadElection()
    c.gets(ours())
    assert c.state.wake_at(c.now) == pytest.approx(1.7 + 5 / 3)


def test_fence_names_generation_and_the_record_it_replaces() -> None:
    """The transaction compares both: that is the fence."""
    c = leading(attempt(4, generation=2, nonce="old")).gets(w.FenceRequested(attempt(5)))
    assert c.request == w.FenceAttempt(attempt(5, nonce="us"), known=3)
    c.gets(ours(attempt=attempt(5, nonce="us"), attempt_modified=11))
    assert c.events == [w.AttemptFenced(5, allowed=True)]


def test_fence_whose_reply_was_lost_is_recognised() -> None:
    """The second try finds its own record: allowed, not refused."""
    c = leading().gets(w.FenceRequested(attempt()), DOWN)
    assert c.gets(w.ElectionTick(), after=0.2).request == w.FenceAttempt(
        attempt(nonce="us"), known=0
    )
    c.gets(ours(attempt=attempt(nonce="us"), attempt_modified=11))
    assert c.events == [w.AttemptFenced(0, allowed=True)]


def test_fence_waits_for_etcd_to_come_back() -> None:
    """No attempt starts without etcd's consent, and none is refused for its absence."""
    c = leading().gets(w.FenceRequested(attempt()), DOWN)
    for _ in range(20):
        c.gets(w.ElectionTick(), DOWN, after=1.0)
        assert not any(isinstance(event, w.AttemptFenced) for event in c.events)
    assert c.gets(w.ElectionTick(), after=1.0).request == w.KeepAlive(7)
    assert c.gets(w.LeaseGranted(7, 5)).events == [w.EtcdBack()]
    assert c.request == w.FenceAttempt(attempt(nonce="us"), known=0)


def test_fence_of_a_number_already_used_is_refused() -> None:
    """Attempts strictly increase."""
    c = leading(attempt(4, generation=2, nonce="old")).gets(w.FenceRequested(attempt(4)))
    assert c.events == [w.AttemptFenced(4, allowed=False, reason="attempt 4 is already on record")]
    assert c.request is None


def test_fence_asked_before_hearing_of_a_new_reign_is_refused() -> None:
    """Found by simulation, seed 5352: it would have overwritten another's attempt."""
    c = leading().gets(w.FenceRequested(attempt(1, generation=2)))
    assert c.events == [
        w.AttemptFenced(1, allowed=False, reason="asked in generation 2, it is 10 now")
    ]


def test_fence_by_a_follower_is_refused() -> None:
    """Only the coordinator starts attempts."""
    c = following().gets(w.FenceRequested(attempt()))
    assert c.events == [w.AttemptFenced(0, allowed=False, reason="we do not coordinate")]


def test_second_fence_replaces_the_first() -> None:
    """The launcher changed its mind; the first gets its answer all the same."""
    c = leading().gets(DOWN, w.FenceRequested(attempt(0)), w.FenceRequested(attempt(1)))
    assert c.events == [w.AttemptFenced(0, allowed=False, reason="attempt 1 was asked for instead")]


def test_ok_after_a_long_pause_is_asked_for_again() -> None:
    """A stopped process that wakes up must not start what may have been taken over."""
    c = leading().gets(w.FenceRequested(attempt()))
    done = ours(attempt=attempt(nonce="us"), attempt_modified=11)
    assert c.gets(done, after=6.0).events == []
    assert c.gets(w.ElectionTick(), after=0.1).request == w.KeepAlive(7)
    assert c.gets(w.LeaseGranted(7, 5)).request == w.FenceAttempt(attempt(nonce="us"), known=11)
    assert c.gets(done).events == [w.AttemptFenced(0, allowed=True)]


def test_leader_whose_lease_expired_takes_its_key_again() -> None:
    """Lost quorum for longer than a lease: training goes on, under a new generation."""
    c = leading()
    assert c.gets(w.LeaseGone()).request == w.GrantLease(5)
    assert c.gets(w.LeaseGranted(9, 5)).request == w.Campaign(US, 9)
    assert c.gets(ours(created=12, lease=9)).events == [w.Reelected(12)]


def test_key_deleted_by_hand_is_taken_again_with_the_same_lease() -> None:
    """etcdctl del must not stop a training."""
    c = leading().gets(NONE)
    assert c.request == w.Campaign(US, 7)
    assert c.gets(ours(created=12)).events == [w.Reelected(12)]


def test_leader_that_lost_its_key_to_another_is_deposed() -> None:
    """Certain now: its pending fence is refused and it follows."""
    c = leading().gets(
        w.FenceRequested(attempt()), w.LeaseGone(), w.LeaseGranted(9, 5), theirs(created=12)
    )
    reason = "'node1' at 10.0.0.2:6070 leads now"
    assert c.events == [
        w.AttemptFenced(0, allowed=False, reason=f"deposed: {reason}"),
        w.SteppedDown(reason),
        w.Following(THEM, 12),
    ]


def test_leader_again_after_another_started_an_attempt_is_deposed_first() -> None:
    """What it runs is outdated, although the key is its own."""
    foreign = attempt(1, generation=12, nonce="them")
    c = leading().gets(w.LeaseGone(), w.LeaseGranted(9, 5))
    c.gets(ours(created=14, attempt=foreign, attempt_modified=13))
    assert c.events == [
        w.SteppedDown("others led in between (generation 10 to 14)"),
        w.Elected(14, foreign),
    ]


def test_vanished_attempt_record_means_deposed() -> None:
    """etcd lost its data: who knows what else was started."""
    c = leading(attempt(4, generation=2, nonce="old")).gets(w.LeaseGone(), w.LeaseGranted(9, 5))
    c.gets(ours(created=2, lease=9))
    assert c.events == [
        w.SteppedDown("others led in between (generation 10 to 2)"),
        w.Elected(2, None),
    ]


def test_tombstone_that_expired_means_nothing() -> None:
    """It was kept for ten minutes only."""
    old = replace(attempt(4, generation=2, nonce="old"), ended=True)
    c = leading(old).gets(w.LeaseGone(), w.LeaseGranted(9, 5))
    assert c.gets(ours(created=12, lease=9)).events == [w.Reelected(12)]


def test_numbers_start_again_after_a_tombstone() -> None:
    """The earlier run ended well; its numbers do not bind the next one."""
    old = replace(attempt(4, generation=2, nonce="old"), ended=True)
    assert leading(old).gets(w.FenceRequested(attempt(0))).request == w.FenceAttempt(
        attempt(0, nonce="us"), 3
    )


def test_campaign_whose_reply_was_lost_is_found_by_its_nonce() -> None:
    """And the lease to keep alive is the one on the key, not a later one."""
    c = Candidate().gets(w.ElectionTick(), NONE, w.LeaseGranted(7, 5), DOWN)
    c.gets(w.ElectionTick(), w.LeaseGone(), w.LeaseGranted(9, 5), after=6.0)
    c.gets(ours(lease=7))
    assert (c.events, c.request) == ([w.Elected(10, None)], w.KeepAlive(7))


def test_late_campaign_of_a_follower_makes_it_leader() -> None:
    """The request arrived after the key had gone: it is ours, like it or not."""
    c = following().gets(ours(created=12))
    assert c.events == [w.Elected(12, None)]


def test_outage_is_told_after_a_second_and_ever_more_rarely() -> None:
    """A restart of etcd is not worth a line; a long outage is worth a few."""
    c = Candidate().gets(w.ElectionTick())
    told = []
    for _ in range(300):
        c.gets(DOWN, after=0.5)
        told += [event.seconds for event in c.events if isinstance(event, w.EtcdDown)]
        c.gets(w.ElectionTick(), after=0.5)
    assert told == [1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5, 183.5, 243.5]
    assert c.gets(NONE).events == [w.EtcdBack()]


def test_short_outage_is_not_told() -> None:
    """Neither its begin nor its end."""
    c = leading().gets(w.FenceRequested(attempt()), DOWN)
    assert c.gets(w.ElectionTick(), w.LeaseGranted(7, 5), after=0.3).events == []


def test_retries_pause_longer_and_longer_up_to_a_second() -> None:
    """A cap, so that a fence is not late by minutes after a long outage."""
    c = Candidate().gets(w.ElectionTick())
    pauses = []
    for _ in range(6):
        c.gets(DOWN)
        pauses.append(round((c.state.wake_at(c.now) or 0.0) - c.now, 3))
        c.gets(w.ElectionTick(), after=1.0)
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_hopeless_error_at_the_start_ends_the_election() -> None:
    """Not etcd, or the wrong password: the user must hear it now."""
    error = EtcdRefused("not etcd")
    c = Candidate().gets(w.ElectionTick(), w.RequestFailed(error))
    assert (c.events, c.request) == ([w.ElectionFailed(error)], w.ElectionDone())
    assert c.state.wake_at(c.now) is None


def test_hopeless_error_later_is_an_outage() -> None:
    """A running job is not ended by a load balancer's bad day."""
    c = leading().gets(w.ElectionTick(), after=2.0)
    c.gets(w.RequestFailed(EtcdRefused("not etcd")), after=1.0)
    assert c.events == [w.EtcdDown(1.0, "not etcd")]


def test_stop_of_a_leader_revokes_the_lease() -> None:
    """The key goes at once, so the successor does not wait for a lease to expire."""
    c = leading()
    assert c.gets(w.StopRequested(ended=False)).request == w.RevokeLease(7)
    assert c.gets(w.LeaseGone()).request == w.ElectionDone()


def test_stop_while_etcd_is_down_gives_up_within_a_second() -> None:
    """The launcher must be able to end."""
    c = leading().gets(w.StopRequested(ended=False), DOWN)
    assert c.gets(w.ElectionTick(), after=0.1).request == w.RevokeLease(7)
    assert c.gets(DOWN, w.ElectionTick(), after=1.0).request is None
    assert c.gets(w.ElectionTick(), after=0.1).request == w.ElectionDone()


def test_stop_of_a_follower_needs_no_request() -> None:
    """It holds nothing."""
    assert following().gets(w.StopRequested(ended=True)).request == w.ElectionDone()


def test_finish_leaves_a_tombstone_for_ten_minutes() -> None:
    """A member that was cut off must learn that the job is over, not start it again."""
    done = attempt(5, nonce="us")
    c = leading().gets(w.FenceRequested(attempt(5)), ours(attempt=done, attempt_modified=11))
    assert c.gets(w.StopRequested(ended=True)).request == w.WriteTombstone(
        replace(done, ended=True), 600
    )
    assert c.gets(NONE).request == w.ElectionDone()


def test_finish_gives_up_the_tombstone_when_etcd_is_down() -> None:
    """And still tries to revoke, once."""
    old = attempt(4, generation=2, nonce="old")
    c = leading(old).gets(w.StopRequested(ended=True))
    c.gets(DOWN, after=1.1)
    assert c.gets(w.ElectionTick(), after=0.1).request == w.RevokeLease(7)
    c.gets(DOWN)
    assert c.gets(w.ElectionTick(), after=0.1).request == w.ElectionDone()


def test_learned_uid_is_announced_when_elected_later() -> None:
    """A member joins without knowing the run's uid; as its coordinator it must name it."""
    c = following().gets(w.UidLearned("run-7"), NONE, w.LeaseGranted(7, 5))
    assert c.request == w.Campaign(replace(US, uid="run-7"), 7)


def test_job_id_cannot_reach_into_another_job() -> None:
    """Job ids are user text."""
    assert job_keys("a/../b\udcff") == (
        "/paddock/a%2F..%2Fb%FF/leader",
        "/paddock/a%2F..%2Fb%FF/attempt",
    )


def test_records_survive_their_journey() -> None:
    """Text of any kind: names are the user's."""
    leader = replace(US, name="nœud \u0000 \U0001f40e")
    assert w.LeaderRecord.decode(leader.encode()) == leader
    record = replace(attempt(3, nonce="x"), ended=True, members=("a", "b c"))
    assert w.AttemptRecord.decode(record.encode()) == record


def test_records_are_read_as_they_have_always_been_written() -> None:
    """A job may be upgraded node by node, up or down; what a later version adds is left aside."""
    leader = b'{"host": "10.0.0.1", "name": "node0", "nonce": "us", "port": 6070, "uid": "u"}'
    assert US.encode() == leader
    record = (
        b'{"attempt": 3, "by": "a", "deadline": 1.5, "ended": true, "generation": 10, "members":'
        b' ["a", "b c"], "nonce": "x", "total_restarts": 2, "uid": "u", "used_restarts": 1}'
    )
    read = w.AttemptRecord(10, 3, "u", ("a", "b c"), True, "x", "a", 1, 2, 1.5)
    assert w.AttemptRecord.decode(record) == read
    assert read.encode() == record
    assert w.LeaderRecord.decode(leader[:-1] + b', "later": [{"t": 1}]}') == US


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"\xff", b"{}", b"[" * 9999, b"3", b'"x"', b"null"],
)
def test_foreign_content_is_refused(data: bytes) -> None:
    """The key may be another program's; a traceback would not say so."""
    for kind in (w.LeaderRecord, w.AttemptRecord):
        with pytest.raises(w.EtcdRecordError, match="did not write"):
            kind.decode(data)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("port", 0), ("port", 65536), ("port", True), ("port", "1"), ("name", 3), ("nonce", None),
     ("generation", True), ("attempt", 1.0), ("attempt", 1 << 41), ("members", "ab"),
     ("members", [1]), ("ended", 1),
     ("deadline", float("nan")), ("deadline", -1), ("deadline", 1e19), ("total_restarts", False),
     ("used_restarts", -1), ("uid", {"t": "Budget"}), ("by", {"t": "x"}), ("by", [])],
)  # fmt: skip
def test_each_wrong_field_of_a_record_is_refused(name: str, wrong: object) -> None:
    """True is no port, and NaN is no time."""
    kind = US if name in ("port", "name", "nonce") else attempt()
    fields = {**json.loads(kind.encode()), name: wrong}
    with pytest.raises(w.EtcdRecordError, match="did not write"):
        kind.decode(json.dumps(fields).encode())
