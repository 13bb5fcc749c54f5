"""Leader election through etcd: it elects, holds the address, and fences attempts.

``EtcdElector`` is this node's Elector (leadership.py). ``Election`` carries out the election, in a
thread of its own.

``ElectionState`` decides (election_state.py: the state table and the races); this file only
asks etcd, waits, and hands events to ``post``. All else goes over the coordinator's
own connections, so training goes on while etcd is down; only a new attempt needs its consent.
"""

from __future__ import annotations

import os
import queue
import random
import threading
import time
import urllib.parse

from paddock.agent.etcd_election import messages
from paddock.agent.etcd_election.election_state import ElectionState
from paddock.agent.etcd_election.succession import TTL_SECONDS, EtcdSuccession
from paddock.core.value import replace
from paddock.errors import PaddockError
from paddock.etcd.client import EtcdClient, compare, delete, put, read
from paddock.etcd.reply import EtcdError, EtcdLeaseGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.leadership.leadership import Leadership
    from paddock.agent.leadership.messages import Lead, Target
    from paddock.core.rendezvous.messages import Start
    from paddock.etcd.address import EtcdAddress
    from paddock.etcd.reply import KeyValue

REQUEST_TTLS = 0.4  # A request, with all endpoints tried, ends well within a lease.
STOP_SECONDS_MAX = 3.0  # A request under way, and then the last ones.


class EtcdElector:
    """The Elector of a job with etcd. Owned by the loop's thread."""

    keeps_port = True
    first = None
    _ask: Callable[[messages.Input], None]

    def __init__(self, leadership: Leadership) -> None:
        self.succession = EtcdSuccession(leadership.run.job)
        self._leadership = leadership
        self._asked: tuple[int, Callable[[], None]] | None = None  # an attempt that waits for etcd

    def begin(self, ask: Callable[[messages.Input], None]) -> None:
        """Start the clock of the first election. ask: takes inputs; events come to ``handle``."""
        self._ask = ask
        self._leadership.elect_by(self)
        self._leadership.carry_out(self.succession.begin(self._leadership.now()))

    def find_rendezvous_address(self) -> None:
        """Do nothing: etcd has the address of the leader."""

    def bind(self, order: Lead) -> None:
        """Bind any port: etcd tells the other nodes."""

    def on_leading(self, order: Lead) -> None:
        """Do nothing: etcd tells of other leaders."""

    def on_joining(self, seen_as: str, address: str) -> None:
        """Do nothing: this node is a candidate with an address of its own."""

    def on_following(self, uid: str, target: Target) -> None:
        """Note that the leader answers: its key may lapse and come back meanwhile."""
        self._ask(messages.LeaderAlive(self.succession.leader, True))

    def on_following_over(self) -> None:
        """Note that no leader answers: etcd is asked more often."""
        self._ask(messages.LeaderAlive(self.succession.leader, False))

    def on_leading_over(self) -> None:
        self._asked = None

    def may_start(self, start: Start, go: Callable[[], None]) -> None:
        """Ask etcd for the fence: go is called when no other leader can start this attempt."""
        self._asked = (start.attempt, go)
        budget = start.budget
        left = budget.seconds_left
        record = messages.AttemptRecord(
            self.succession.generation, start.attempt, self._leadership.state.uid, start.keys,
            by=start.coordinator_key,
            used_restarts=budget.used_restarts, total_restarts=budget.total_restarts,
            deadline=self._leadership.run.loop.wall() + left if left is not None else 0.0,
        )  # fmt: skip
        self._ask(messages.FenceRequested(record))

    def learn_uid(self, uid: str) -> None:
        """Keep the uid, for the record of this node should it be elected later."""
        self._ask(messages.UidLearned(uid))

    def leader_died(self, nonce: str) -> None:
        """Revoke the dead leader's key, before its lease ends."""
        self._ask(messages.LeaderDied(nonce))

    def handle(self, event: messages.Event) -> None:
        if not isinstance(event, messages.AttemptFenced):
            self._leadership.handle(event)
            return
        if self._asked is None or self._asked[0] != event.attempt:
            return
        (_, go), self._asked = self._asked, None
        if event.allowed:
            go()
            return
        text = f"attempt {event.attempt} may not start: {event.reason}"
        leadership, loop = self._leadership, self._leadership.run.loop
        session = leadership.session
        leadership.run.member.say("WARNING", text)

        def give_up() -> None:
            is_same = session is leadership.session
            if session is not None and is_same and session.coordinator.end is None:
                leadership.step_down()
                leadership.give_up(PaddockError(text))

        # Another node leads, and we hear of it in a moment; or none does, and this goes nowhere.
        loop.at("refused", loop.now() + 2 * TTL_SECONDS, give_up)


class Election:
    """This node as a candidate in the etcd election of its job's leader.

    post: called from the election's thread, with one Event at a time, in order.
    """

    def __init__(
        self,
        address: EtcdAddress,
        job_id: str,
        me: messages.LeaderRecord,
        post: Callable[[messages.Event], None],
        *,
        ttl_seconds: int,
    ) -> None:
        self._post = post
        self._keys = job_keys(job_id)
        self._client = EtcdClient(address)
        self._request_seconds = ttl_seconds * REQUEST_TTLS
        me = replace(me, nonce=os.urandom(8).hex())
        self._state = ElectionState(me, random.random, ttl_seconds)
        self._inbox: queue.SimpleQueue[messages.Input] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="paddock-election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, what: messages.Input) -> None:
        """Take an input from outside: FenceRequested, UidLearned, LeaderDied, LeaderAlive."""
        self._inbox.put(what)

    def stop(self, *, ended: bool) -> None:
        """Leave the election; a successor is free at once. Waits, at most 3 s.

        ended: the run is over; the tombstone says so for ten minutes.
        """
        if self._thread.is_alive():
            self._inbox.put(messages.StopRequested(ended))
            self._thread.join(STOP_SECONDS_MAX)

    # The thread.

    def _run(self) -> None:
        try:
            what: messages.Input = messages.ElectionTick()
            while True:
                answer: messages.Input | None = None
                for order in self._state.step(what, time.monotonic()):
                    if isinstance(order, messages.ElectionDone):
                        return
                    answer = self._carry_out(order)
                what = answer if answer is not None else self._wait()
        except Exception as error:  # A bug must not end in silence: the launcher is told.
            text = f"the election ended by a fault of its own: {error!r}"
            self._post(messages.ElectionFailed(PaddockError(text)))
            raise
        finally:
            self._client.close()

    def _carry_out(self, order: messages.Order) -> messages.Input | None:
        if isinstance(order, messages.PublishEvent):
            self._post(order.event)
            return None
        assert not isinstance(order, messages.ElectionDone)
        try:
            return self._request(order)
        except EtcdLeaseGone:
            return messages.LeaseGone()
        except (EtcdError, messages.EtcdRecordError) as error:
            return messages.RequestFailed(error)

    def _request(self, order: messages.Request) -> messages.Answer:
        seconds = self._request_seconds
        leader, attempt = self._keys
        reads = [read(leader), read(attempt)]
        match order:
            case messages.GrantLease(ttl_seconds):
                return messages.LeaseGranted(*self._client.grant(ttl_seconds, seconds))
            case messages.KeepAlive(lease):
                return messages.LeaseGranted(lease, self._client.keep_alive(lease, seconds))
            case messages.RevokeLease(lease):
                self._client.revoke(lease, seconds)
                return messages.LeaseGone()
            case messages.ReadElection():
                return _view(*self._client.txn((), reads, (), seconds))
            case messages.Campaign(record, lease):
                when = [compare(leader, "create_revision", 0)]
                then = [put(leader, record.encode(), lease)]
            case messages.FenceAttempt(wanted, known):
                when = [
                    compare(leader, "create_revision", wanted.generation),
                    compare(attempt, "mod_revision", known),
                ]
                then = [put(attempt, wanted.encode())]
            case messages.DeleteLeaderKey(generation):
                when = [compare(leader, "create_revision", generation)]
                then = [delete(leader)]
            case messages.WriteTombstone(tombstone, ttl_seconds):
                lease, _ = self._client.grant(ttl_seconds, seconds)
                when = [compare(leader, "create_revision", tombstone.generation)]
                then = [put(attempt, tombstone.encode(), lease), delete(leader)]
        return _view(*self._client.txn(when, then + reads, reads, seconds))

    def _wait(self) -> messages.Input:
        """Wait for the next input: a call from outside, or the time to wake."""
        now = time.monotonic()
        wake_at = self._state.wake_at(now)
        try:
            return self._inbox.get(timeout=None if wake_at is None else max(0.0, wake_at - now))
        except queue.Empty:
            return messages.ElectionTick()


def job_keys(job_id: str) -> tuple[str, str]:
    """The job's leader key and attempt key.

    >>> job_keys("a/b c")
    ('/paddock/a%2Fb%20c/leader', '/paddock/a%2Fb%20c/attempt')
    """
    # A job id is user text: a slash in it must not reach into another job's keys.
    name = urllib.parse.quote(job_id, safe="", errors="surrogateescape")
    return f"/paddock/{name}/leader", f"/paddock/{name}/attempt"


def _view(leader: KeyValue | None, attempt: KeyValue | None) -> messages.ElectionView:
    return messages.ElectionView(
        leader=None if leader is None else messages.LeaderRecord.decode(leader.value),
        leader_created=0 if leader is None else leader.create_revision,
        leader_lease=0 if leader is None else leader.lease,
        attempt=None if attempt is None else messages.AttemptRecord.decode(attempt.value),
        attempt_modified=0 if attempt is None else attempt.mod_revision,
    )
