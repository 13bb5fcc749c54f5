"""Carries out an election in a thread of its own: etcd elects, tells where, and fences.

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

from paddock.agent import election_words as w
from paddock.agent.election_state import ElectionState
from paddock.core.value import replace
from paddock.errors import PaddockError
from paddock.etcd.client import EtcdClient, compare, delete, put, read
from paddock.etcd.reply import EtcdError, EtcdLeaseGone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.etcd.address import EtcdAddress
    from paddock.etcd.reply import KeyValue

REQUEST_TTLS = 0.4  # A request, with all endpoints tried, ends well within a lease.
STOP_SECONDS_MAX = 3.0  # A request under way, and then the last ones.


class Election:
    """One agent's part in the election of its job's coordinator.

    post: called from the election's thread, with one Event at a time, in order.
    """

    def __init__(
        self,
        address: EtcdAddress,
        job_id: str,
        me: w.LeaderRecord,
        post: Callable[[w.Event], None],
        *,
        ttl_seconds: int,
    ) -> None:
        self._post = post
        self._keys = job_keys(job_id)
        self._client = EtcdClient(address)
        self._request_seconds = ttl_seconds * REQUEST_TTLS
        me = replace(me, nonce=os.urandom(8).hex())
        self._state = ElectionState(me, random.random, ttl_seconds)
        self._inbox: queue.SimpleQueue[w.Input] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="paddock-election", daemon=True)

    def start(self) -> None:
        """Takes part from now on."""
        self._thread.start()

    def fence(self, record: w.AttemptRecord) -> None:
        """Asks to start an attempt; Fenced comes, after etcd's outage if there is one.

        record.generation is that of the last Elected or Reelected. A second call replaces one
        not yet settled, which then gets Fenced(ok=False).
        """
        self._inbox.put(w.FenceAsked(record))

    def learn_uid(self, uid: str) -> None:
        """The uid of the run we joined, to announce should we be elected later."""
        self._inbox.put(w.UidLearned(uid))

    def leader_lives(self, nonce: str, lives: bool) -> None:
        """Whether that leader answers us; then its key may lapse and come back."""
        self._inbox.put(w.LeaderLives(nonce, lives))

    def leader_died(self, nonce: str) -> None:
        """Its launcher has ended: its key need not live until its lease ends."""
        self._inbox.put(w.LeaderDied(nonce))

    def stop(self) -> None:
        """Leaves the election; a successor is free at once. Waits, at most 3 s."""
        self._end(ended=False)

    def finish(self) -> None:
        """Like stop(), and leaves word for ten minutes that this run has ended."""
        self._end(ended=True)

    def _end(self, *, ended: bool) -> None:
        if not self._thread.is_alive():
            return
        self._inbox.put(w.StopAsked(ended))
        self._thread.join(STOP_SECONDS_MAX)

    # The thread.

    def _run(self) -> None:
        try:
            what: w.Input = w.Woke()
            while True:
                answer: w.Input | None = None
                for order in self._state.step(what, time.monotonic()):
                    if isinstance(order, w.Finished):
                        return
                    answer = self._carry_out(order)
                what = answer if answer is not None else self._wait()
        except Exception as error:  # A bug must not end in silence: the launcher is told.
            text = f"the election ended by a fault of its own: {error!r}"
            self._post(w.ElectionFailed(PaddockError(text)))
            raise
        finally:
            self._client.close()

    def _carry_out(self, order: w.Order) -> w.Input | None:
        if isinstance(order, w.Post):
            self._post(order.event)
            return None
        assert not isinstance(order, w.Finished)
        try:
            return self._request(order)
        except EtcdLeaseGone:
            return w.LeaseGone()
        except (EtcdError, w.RecordError) as error:
            return w.Failed(error)

    def _request(self, order: w.Request) -> w.Answer:
        seconds = self._request_seconds
        leader, attempt = self._keys
        reads = [read(leader), read(attempt)]
        match order:
            case w.Grant(ttl_seconds):
                return w.Granted(*self._client.grant(ttl_seconds, seconds))
            case w.KeepAlive(lease):
                return w.Granted(lease, self._client.keep_alive(lease, seconds))
            case w.Revoke(lease):
                self._client.revoke(lease, seconds)
                return w.LeaseGone()
            case w.Look():
                return _view(*self._client.txn((), reads, (), seconds))
            case w.Campaign(record, lease):
                when = [compare(leader, "create_revision", 0)]
                then = [put(leader, record.encode(), lease)]
            case w.Fence(wanted, known):
                when = [
                    compare(leader, "create_revision", wanted.generation),
                    compare(attempt, "mod_revision", known),
                ]
                then = [put(attempt, wanted.encode())]
            case w.Unseat(generation):
                when = [compare(leader, "create_revision", generation)]
                then = [delete(leader)]
            case w.Bury(tombstone, ttl_seconds):
                lease, _ = self._client.grant(ttl_seconds, seconds)
                when = [compare(leader, "create_revision", tombstone.generation)]
                then = [put(attempt, tombstone.encode(), lease), delete(leader)]
        return _view(*self._client.txn(when, then + reads, reads, seconds))

    def _wait(self) -> w.Input:
        """The next thing that happens: a call from outside, or the time to wake."""
        now = time.monotonic()
        wake_at = self._state.wake_at(now)
        try:
            return self._inbox.get(timeout=None if wake_at is None else max(0.0, wake_at - now))
        except queue.Empty:
            return w.Woke()


def job_keys(job_id: str) -> tuple[str, str]:
    """The job's leader key and attempt key.

    >>> job_keys("a/b c")
    ('/paddock/a%2Fb%20c/leader', '/paddock/a%2Fb%20c/attempt')
    """
    # A job id is user text: a slash in it must not reach into another job's keys.
    name = urllib.parse.quote(job_id, safe="", errors="surrogateescape")
    return f"/paddock/{name}/leader", f"/paddock/{name}/attempt"


def _view(leader: KeyValue | None, attempt: KeyValue | None) -> w.View:
    return w.View(
        leader=None if leader is None else w.LeaderRecord.decode(leader.value),
        leader_created=0 if leader is None else leader.create_revision,
        leader_lease=0 if leader is None else leader.lease,
        attempt=None if attempt is None else w.AttemptRecord.decode(attempt.value),
        attempt_modified=0 if attempt is None else attempt.mod_revision,
    )
