"""The etcd election of one candidate: who leads, and which attempts may start (fencing). No I/O.

``ElectionState.step(input, now)`` takes what happened and returns what to do. Of the orders of
one step at most one, the last, is a request to etcd; the next input after it is its answer.

What etcd holds, under /paddock/<job_id>/:

  leader   the coordinator's LeaderRecord; bound to a lease, goes when the lease goes
  attempt  the last AttemptRecord; stays, and is written only by a transaction that compares
           leader's create_revision (= generation) with the writer's own

Roles, and what moves them. A View is the answer to every transaction: both keys at one revision,
so that a lost reply, a late reply and a reply to a repeated request are all read the same way.

    role        event                                  next        orders
    ----------  -------------------------------------  ----------  -------------------------------
    looking     view: no leader                        candidate   campaign
    looking     view: leader is us                     leading     Elected
    looking     view: another leads                    following   Following
    looking     etcd refuses us                        ended       ElectionFailed
    candidate   view: no leader                        candidate   campaign again
    candidate   view: leader is us                     leading     Elected
    candidate   view: another leads                    following   Following
    candidate   lease gone                             candidate   take a new one
    following   view: no leader, it does not answer    candidate   campaign
    following   view: no leader, a lease later         candidate   campaign
    following   view: leader is us                     leading     Elected
    following   view: another leads, a new one         following   Following
    following   it died                                following   delete its key
    following   it does not answer us any more         following   look
    leading     view: no leader                        reclaiming  campaign
    leading     lease gone                             reclaiming  take a new one, campaign
    leading     view: leader is us, a new generation   leading     (*)
    leading     view: another leads                    following   SteppedDown, Following
    reclaiming  view: no leader                        reclaiming  campaign again
    reclaiming  view: leader is us                     leading     (*)
    reclaiming  view: another leads                    following   SteppedDown, Following
    reclaiming  lease gone                             reclaiming  take a new one
    any         stop                                   ending      write the tombstone, or revoke
    ending      done                                   ended       none

  (*) Reelected, if no other leader recorded an attempt since our last; otherwise SteppedDown, then
      Elected: another node led in between, our attempt is outdated, and it is our turn again.

Nothing is watched. A leader renews its lease (KeepAlive) three times a lease, and looks as often. A
follower looks once a lease while its leader answers it and has its key, else every
LOST_LOOK_SECONDS; in a job of more than CROWD nodes more rarely, so that etcd has as much to do.

Races, and why they are harmless:

- Our campaign was done but its reply lost: the key carries our nonce, so the next view shows us
  as the leader, and the lease to keep alive is the one on the key.
- A leader that died is revoked by nodes that saw it: the transaction compares create_revision,
  so that it cannot hit its successor. Its guardian ends what it ran; this node waits.
- A leader that is alive is revoked, or its key deleted by hand: its next look tells it, and until
  then no fence of it succeeds.
- A leader is cut off from etcd only: its members see that it has no key and let it have another
  lease to take it again. A newcomer, who cannot know that it lives, waits for longer than both.
- A campaign arrives after we gave up on it: its put names a lease that is revoked or expired.
- A fence was done but its reply lost: the record found is the one we asked for.
- A fence arrives late, after another leader's or after our own next one: it compares leader's
  create_revision and attempt's mod_revision, and at least one has moved.
- The lease runs out while etcd or the network is down: training goes on, but no fence can
  succeed before the key is ours again, and then (*) tells whether we missed anything.
- A fence is asked for by a launcher that has yet to hear SteppedDown: it names its generation.
- AttemptFenced(allowed) reaches the launcher while our lease still holds: a fence is sent only
  after the last keep-alive was sent at most 0.4 leases ago, and is given up after another 0.4. So
  no other attempt can have been allowed meanwhile, unless this process is stopped right then.
- etcd lost its data: the attempt record has gone without a tombstone: SteppedDown, then Elected.
- The job ends while a member is cut off: it finds the tombstone (an AttemptRecord with ended
  set, kept for ENDED_SECONDS), with the uid of the run it belongs to, in Elected.previous.
"""

from __future__ import annotations

from paddock.agent.etcd_election import messages
from paddock.core.endpoint import join_endpoint
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from paddock.errors import PaddockError

    Role = Literal[
        "looking", "candidate", "following", "leading", "reclaiming", "ending", "ended"
    ]  # fmt: skip

ENDED_SECONDS = 600  # How long the tombstone of a run that ended is kept.
NEWCOMER_TTLS = 2.5  # Delay of a launcher that has no part in the run on record.
LOST_LOOK_SECONDS = 0.3
CROWD = 300  # Up to so many nodes, each asks etcd at its own rate.
RETRY_SECONDS_MIN = 0.1
RETRY_SECONDS_MAX = 1.0
DOWN_AFTER_SECONDS = 1.0  # A shorter outage is not worth a line in the log.
DOWN_AGAIN_SECONDS_MAX = 60.0
ENDING_SECONDS_MAX = 1.0


class ElectionState:
    """The election as one candidate sees it; feed it inputs, carry out its orders."""

    def __init__(
        self, me: messages.LeaderRecord, jitter: Callable[[], float], ttl_seconds: int
    ) -> None:
        assert me.nonce, "without a nonce we would take another's key for ours"
        self.role: Role = "looking"
        self.me = me
        self.generation = 0  # Of our own key while leading or reclaiming.
        self._jitter = jitter  # Uniform in [0, 1).
        self._ttl_seconds = ttl_seconds
        self._out: list[messages.Order] = []
        self._asked: messages.Request | None = None  # The request under way, or the last one.
        self._asked_at = 0.0
        # What we hold and know.
        self._lease = 0
        self._session: set[int] = set()  # Our generations since we were last Elected.
        self._followed = (0, "")  # Generation and nonce of the leader we follow.
        self._lives = False  # It answers us.
        self._keyless_since = 0.0  # Since when it has no key all the same.
        self._is_dead = False  # Its launcher has ended.
        self._recorded: messages.AttemptRecord | None = None  # The attempt record, while leading,
        self._known = 0  # and its mod_revision.
        self._fence: messages.AttemptRecord | None = None  # Requested, not answered.
        # When.
        self._keep_at = 0.0
        self._ours_until = 0.0  # Before this our lease cannot have expired.
        self._look_at = 0.0
        self._retry_at = 0.0
        # How etcd does.
        self._reached = False
        self._failures = 0
        self._failing_since = 0.0
        self._tell_down_after = DOWN_AFTER_SECONDS
        # How we end.
        self._tomb: messages.AttemptRecord | None = None
        self._end_by = 0.0

    def step(self, what: messages.Input, now: float) -> tuple[messages.Order, ...]:
        """Take an input, return orders. A request, if any, is last; its answer comes next."""
        self._out = []
        if self.role == "ended":
            return ()
        self._take(what, now)
        request = self._due(now)
        if request is not None:
            self._asked, self._asked_at = request, now
            self._out.append(request)
        return tuple(self._out)

    def wake_at(self, now: float) -> float | None:
        """The monotonic second of the next ElectionTick, without other inputs; None: never."""
        if self.role == "ended":
            return None
        if self._retry_at > now:
            return self._retry_at
        if self.role == "following":
            return now if self._is_dead else self._look_at
        if self.role == "leading" and self._fence is None:
            return min(self._keep_at, self._look_at)
        return now

    def _due(self, now: float) -> messages.Request | None:
        """The request that is most urgent, from the current state alone."""
        if now < self._retry_at or self.role == "ended":
            return None
        if self.role == "ending":
            return self._ending_due()
        if self.role in ("candidate", "reclaiming"):
            if not self._lease:
                return messages.GrantLease(self._ttl_seconds)
            return messages.Campaign(self.me, self._lease)
        if self.role == "leading":
            if now >= self._keep_at:
                return messages.KeepAlive(self._lease)
            if self._fence is not None:
                return messages.FenceAttempt(self._signed(self._fence), self._known)
        if self.role == "following" and self._is_dead:
            return messages.DeleteLeaderKey(self._followed[0])
        if self.role == "looking" or now >= self._look_at:
            return messages.ReadElection()
        return None

    def _take(self, what: messages.Input, now: float) -> None:
        if isinstance(what, (messages.ElectionView, messages.LeaseGranted, messages.LeaseGone)):
            self._reach()
        if self.role == "ending":
            self._take_ending(what, now)
            return
        match what:
            case messages.ElectionView():
                self._see(what, now)
            case messages.LeaseGranted(lease, ttl_seconds):
                self._lease, self._ttl_seconds = lease, ttl_seconds
                # Counted from the request: etcd cannot have renewed the lease any earlier.
                self._keep_at = self._asked_at + ttl_seconds / 3
                self._ours_until = self._asked_at + ttl_seconds
            case messages.LeaseGone():
                self._lease = 0
                if self.role == "leading":  # leading -> reclaiming
                    self.role = "reclaiming"
            case messages.RequestFailed(error):
                self._fail(error, now)
            case messages.FenceRequested(record):
                self._ask_fence(record, now)
            case messages.UidLearned(uid):
                self.me = replace(self.me, uid=uid)
            case messages.LeaderDied(nonce) if nonce == self._followed[1]:
                self._lives, self._is_dead = False, True
            case messages.LeaderAlive(nonce, lives) if nonce == self._followed[1]:
                if self._lives and not lives:
                    self._look_at = now
                self._lives = lives
            case messages.StopRequested(ended):
                self._stop(ended=ended, now=now)

    # Views.

    def _see(self, view: messages.ElectionView, now: float) -> None:
        self._is_dead = False
        if view.leader is None:
            self._see_none(view, now)
        elif view.leader.nonce == self.me.nonce:
            self._see_us(view, now)
        else:
            self._see_other(view, view.leader)
        if self.role == "leading":
            self._recorded, self._known = view.attempt, view.attempt_modified
            self._settle_fence(now)
            if self._fence is not None and isinstance(self._asked, messages.FenceAttempt):
                self._retry_at = now + RETRY_SECONDS_MIN  # The record had moved; we know it now.
        self._look_at = now + self._pause(view)

    def _pause(self, view: messages.ElectionView) -> float:
        """The seconds until the next look at etcd."""
        if self.role == "leading":
            return self._ttl_seconds / 3
        is_well = self._lives and not self._keyless_since
        crowd = len(view.attempt.members) / CROWD if view.attempt is not None else 0.0
        pause = self._ttl_seconds if is_well else LOST_LOOK_SECONDS
        return pause * max(1.0, crowd) * (1 + self._jitter() / 4)

    def _see_none(self, view: messages.ElectionView, now: float) -> None:
        if self.role == "following" and self._lives:
            # Maybe its lease has run out, no more: it has as long again to get its key back.
            self._keyless_since = self._keyless_since or now
            if now < self._keyless_since + self._ttl_seconds:
                return
        if self.role in ("looking", "following"):
            self._campaign(view, now)
        elif self.role == "leading":  # leading -> reclaiming
            self.role = "reclaiming"
        else:
            self._retry_at = now + RETRY_SECONDS_MIN  # No winner: the key has gone again.

    def _campaign(self, view: messages.ElectionView, now: float) -> None:
        """Campaign at once, unless another run on record may go on: its own nodes come first."""
        self._followed, self._lives = (0, ""), False
        self.role = "candidate"  # looking, following -> candidate
        if not self.me.uid and view.attempt is not None and not view.attempt.ended:
            self._retry_at = now + NEWCOMER_TTLS * self._ttl_seconds

    def _see_us(self, view: messages.ElectionView, now: float) -> None:
        if view.leader_lease != self._lease:
            # An earlier campaign of ours was done after all: keep the lease on the key.
            self._lease, self._keep_at, self._ours_until = view.leader_lease, now, now
        before, self.generation = self.generation, view.leader_created
        led = self.role in ("leading", "reclaiming")
        self._followed, self._lives = (0, ""), False
        self.role = "leading"  # looking, candidate, following, reclaiming -> leading
        outdated = led and self._is_outdated(view)
        if outdated or not led:
            self._session.clear()
        self._session.add(self.generation)
        if outdated:
            self._depose(f"others led in between (generation {before} to {self.generation})")
        if outdated or not led:
            self._post(messages.Elected(self.generation, view.attempt))
        elif before != self.generation:
            self._post(messages.Reelected(self.generation))

    def _is_outdated(self, view: messages.ElectionView) -> bool:
        """Return True if the attempt record is not the one we wrote: another node led since."""
        if view.attempt == self._recorded:
            return False
        if view.attempt is None:  # Deleted, or etcd lost its data; but tombstones do expire.
            return self._recorded is not None and not self._recorded.ended
        return view.attempt.nonce != self.me.nonce

    def _see_other(self, view: messages.ElectionView, leader: messages.LeaderRecord) -> None:
        if self.role in ("leading", "reclaiming"):
            self._depose(f"{leader.name!r} at {join_endpoint(leader.host, leader.port)} leads now")
            self.generation = 0
        self._keyless_since = 0.0
        # The nonce too: an etcd that lost its data counts its revisions from 1 again.
        before, self._followed = self._followed, (view.leader_created, leader.nonce)
        has_it_back = self._lives and before[1] == leader.nonce
        if before != self._followed and not has_it_back:
            self._lives = False
            self._post(messages.Following(leader, view.leader_created))
        # Our lease is left to lapse: revoking it would double the requests when 1,000 agents
        # lose one election, and a campaign of ours that arrives late is found by its nonce.
        self._lease = 0
        self.role = "following"  # looking, candidate, leading, reclaiming -> following

    def _depose(self, reason: str) -> None:
        self._drop_fence("deposed: " + reason)
        self._post(messages.SteppedDown(reason))

    # Fences.

    def _ask_fence(self, record: messages.AttemptRecord, now: float) -> None:
        reason = ""
        if self.role not in ("leading", "reclaiming"):
            reason = "we do not coordinate"
        elif record.generation not in self._session:
            # Requested before the launcher heard SteppedDown, and maybe Elected again.
            reason = f"asked in generation {record.generation}, it is {self.generation} now"
        if reason:
            self._post(messages.AttemptFenced(record.attempt, allowed=False, reason=reason))
            return
        self._drop_fence(f"attempt {record.attempt} was asked for instead")
        self._fence = record
        self._settle_fence(now)

    def _settle_fence(self, now: float) -> None:
        """Settle the fence: compare the requested attempt with the one on record in etcd."""
        wanted, found = self._fence, self._recorded
        if wanted is None or found is None or found.ended:
            return
        if found == replace(wanted, generation=found.generation, nonce=self.me.nonce):
            # The reply to an earlier request may have been lost, and our key with it.
            # Paused for longer than a lease? Keep it alive, then ask again.
            if now < self._ours_until:
                self._fence = None
                self._post(messages.AttemptFenced(wanted.attempt, allowed=True))
        elif found.attempt >= wanted.attempt:
            self._drop_fence(f"attempt {found.attempt} is already on record")

    def _signed(self, record: messages.AttemptRecord) -> messages.AttemptRecord:
        return replace(record, generation=self.generation, nonce=self.me.nonce)

    def _drop_fence(self, reason: str) -> None:
        if self._fence is not None:
            self._post(messages.AttemptFenced(self._fence.attempt, allowed=False, reason=reason))
            self._fence = None

    # Outages.

    def _reach(self) -> None:
        self._reached = True
        self._retry_at = 0.0
        self._failures = 0
        if self._tell_down_after > DOWN_AFTER_SECONDS:
            self._post(messages.EtcdBack())
            self._tell_down_after = DOWN_AFTER_SECONDS

    def _fail(self, error: PaddockError, now: float) -> None:
        if not self._reached and not error.retryable:
            self._post(messages.ElectionFailed(error))
            self._end()
            return
        if self._failures == 0:
            self._failing_since = self._asked_at
        self._failures += 1
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2 ** min(self._failures, 10))
        self._retry_at = now + pause * (1 + self._jitter()) / 2
        seconds = now - self._failing_since
        if seconds >= self._tell_down_after:
            self._post(messages.EtcdDown(seconds, str(error)))
            self._tell_down_after = min(2 * seconds, seconds + DOWN_AGAIN_SECONDS_MAX)

    # The end.

    def _stop(self, *, ended: bool, now: float) -> None:
        self._drop_fence("the election was stopped")
        if ended and self.role == "leading" and self._recorded is not None:
            self._tomb = replace(self._signed(self._recorded), ended=True)
        self._end_by = now + ENDING_SECONDS_MAX
        self._retry_at = 0.0
        self.role = "ending"  # any -> ending

    def _ending_due(self) -> messages.Request | None:
        if self._tomb is not None:
            return messages.WriteTombstone(self._tomb, ENDED_SECONDS)
        if self._lease:
            return messages.RevokeLease(self._lease)
        self._end()
        return None

    def _take_ending(self, what: messages.Input, now: float) -> None:
        match what:
            case messages.ElectionView() | messages.LeaseGone():
                self._tomb, self._lease = None, 0
            case messages.RequestFailed(error):
                self._retry_at = now + RETRY_SECONDS_MIN
                if now >= self._end_by or not error.retryable:
                    # One try to revoke; should that fail too, the lease lapses by itself.
                    self._lease = self._lease if self._tomb is not None else 0
                    self._tomb = None
            case messages.FenceRequested(record):
                self._ask_fence(record, now)

    def _end(self) -> None:
        self.role = "ended"  # looking, ending -> ended
        self._out.append(messages.ElectionDone())

    def _post(self, event: messages.Event) -> None:
        self._out.append(messages.PublishEvent(event))
