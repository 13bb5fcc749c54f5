"""Carries out an election in a thread of its own: etcd elects, tells where, and fences.

``ElectionState`` decides (election_state.py: the state table and the races); this file only
asks etcd, watches, waits, and hands events to ``post``. All else goes over the coordinator's
own connections, so training goes on while etcd is down; only a new attempt needs its consent.
"""

from __future__ import annotations

import collections
import os
import random
import select
import threading
import time
import urllib.parse

from paddock.agent.election_state import TTL_SECONDS, ElectionState
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
    LeaderDied,
    LeaderGone,
    LeaderLives,
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
    Unseat,
    View,
    Watch,
    WatchBroken,
    Woke,
)
from paddock.agent.etcd import (
    EtcdClient,
    EtcdError,
    EtcdLeaseGone,
    compare,
    delete,
    put,
    read,
)
from paddock.core.value import replace
from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.election_values import Answer, Event, Input, Order, Request
    from paddock.agent.etcd import EtcdWatch, TxnReply
    from paddock.agent.etcd_address import EtcdAddress

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
        me: LeaderRecord,
        post: Callable[[Event], None],
        *,
        ttl_seconds: int = TTL_SECONDS,
    ) -> None:
        self._post = post
        self._keys = job_keys(job_id)
        self._client = EtcdClient(address)
        self._request_seconds = ttl_seconds * REQUEST_TTLS
        me = replace(me, nonce=os.urandom(8).hex())
        self._state = ElectionState(me, random.random, ttl_seconds)
        self._inbox: collections.deque[Input] = collections.deque()
        self._watch: EtcdWatch | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="paddock-election", daemon=True)

    def start(self) -> None:
        """Takes part from now on."""
        self._thread.start()

    def fence(self, record: AttemptRecord) -> None:
        """Asks to start an attempt; Fenced comes, after etcd's outage if there is one.

        record.generation is that of the last Elected or Reelected. A second call replaces one
        not yet settled, which then gets Fenced(ok=False).
        """
        self._give(FenceAsked(record))

    def learn_uid(self, uid: str) -> None:
        """The uid of the run we joined, to announce should we be elected later."""
        self._give(UidLearned(uid))

    def leader_lives(self, nonce: str, lives: bool) -> None:
        """Whether that leader answers us; then its key may lapse and come back."""
        self._give(LeaderLives(nonce, lives))

    def leader_died(self, nonce: str) -> None:
        """Its launcher has ended: its key need not live until its lease ends."""
        self._give(LeaderDied(nonce))

    def stop(self) -> None:
        """Leaves the election; a successor is free at once. Waits, at most 3 s."""
        self._end(ended=False)

    def finish(self) -> None:
        """Like stop(), and leaves word for a minute that this run has ended."""
        self._end(ended=True)

    def _end(self, *, ended: bool) -> None:
        if not self._thread.is_alive():
            return
        self._give(StopAsked(ended))
        self._thread.join(STOP_SECONDS_MAX)

    def _give(self, what: Input) -> None:
        self._inbox.append(what)
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            return  # Full: the thread has been woken often enough.

    # The thread.

    def _run(self) -> None:
        try:
            what: Input = Woke()
            while True:
                answer: Input | None = None
                for order in self._state.step(what, time.monotonic()):
                    if isinstance(order, Finished):
                        return
                    answer = self._carry_out(order)
                what = answer if answer is not None else self._wait()
        except Exception as error:  # A bug must not end in silence: the launcher is told.
            text = f"the election ended by a fault of its own: {error!r}"
            self._post(ElectionFailed(PaddockError(text)))
            raise
        finally:
            self._close_watch()
            self._client.close()

    def _carry_out(self, order: Order) -> Input | None:
        if isinstance(order, Post):
            self._post(order.event)
            return None
        if isinstance(order, Watch):
            self._open_watch(order.from_revision)
            return None
        assert not isinstance(order, Finished)
        try:
            return self._request(order)
        except EtcdLeaseGone:
            return LeaseGone()
        except (EtcdError, RecordError) as error:
            return Failed(error)

    def _request(self, order: Request) -> Answer:
        seconds = self._request_seconds
        leader, attempt = self._keys
        reads = [read(leader), read(attempt)]
        match order:
            case Grant(ttl_seconds):
                return Granted(*self._client.grant(ttl_seconds, seconds))
            case KeepAlive(lease):
                return Kept(self._client.keep_alive(lease, seconds))
            case Revoke(lease):
                self._client.revoke(lease, seconds)
                return Revoked()
            case Look():
                return _view(self._client.txn((), reads, (), seconds))
            case Campaign(record, lease):
                when = [compare(leader, "create_revision", 0)]
                then = [put(leader, record.encode(), lease)]
            case Fence(wanted, known):
                when = [
                    compare(leader, "create_revision", wanted.generation),
                    compare(attempt, "mod_revision", known),
                ]
                then = [put(attempt, wanted.encode())]
            case Unseat(generation):
                when = [compare(leader, "create_revision", generation)]
                then = [delete(leader)]
            case Bury(tombstone, lease):
                when = [compare(leader, "create_revision", tombstone.generation)]
                then = [put(attempt, tombstone.encode(), lease), delete(leader)]
        return _view(self._client.txn(when, then + reads, reads, seconds))

    def _wait(self) -> Input:
        """The next thing that happens: a call from outside, the watch, or the time to wake."""
        while True:
            if self._inbox:
                return self._inbox.popleft()
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            if self._watch is not None:
                poll.register(self._watch, select.POLLIN)
            now = time.monotonic()
            wake_at = self._state.wake_at(now)
            pause = None if wake_at is None else max(0.0, wake_at - now) * 1000
            ready = {fd for fd, _ in poll.poll(pause)}
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
            elif self._watch is not None and self._watch.fileno() in ready:
                if (news := self._read_watch(self._watch)) is not None:
                    self._close_watch()
                    return news
            elif not ready:
                return Woke()

    def _open_watch(self, from_revision: int) -> None:
        self._close_watch()
        try:
            self._watch = self._client.watch(
                self._keys[0], from_revision, self._request_seconds / 2
            )
        except EtcdError:
            self._inbox.append(WatchBroken())  # Said by the next request, if it fails too.

    def _read_watch(self, watch: EtcdWatch) -> Input | None:
        try:
            return Changed() if watch.changed() else None
        except EtcdError:
            return WatchBroken()

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def job_keys(job_id: str) -> tuple[str, str]:
    """The job's leader key and attempt key.

    >>> job_keys("a/b c")
    ('/paddock/a%2Fb%20c/leader', '/paddock/a%2Fb%20c/attempt')
    """
    # A job id is user text: a slash in it must not reach into another job's keys.
    name = urllib.parse.quote(job_id, safe="", errors="surrogateescape")
    return f"/paddock/{name}/leader", f"/paddock/{name}/attempt"


def _view(reply: TxnReply) -> View:
    leader, attempt = reply.reads
    return View(
        revision=reply.revision,
        leader=None if leader is None else LeaderRecord.decode(leader.value),
        leader_created=0 if leader is None else leader.create_revision,
        leader_lease=0 if leader is None else leader.lease,
        attempt=None if attempt is None else AttemptRecord.decode(attempt.value),
        attempt_modified=0 if attempt is None else attempt.mod_revision,
    )


__all__ = [
    "AttemptRecord",
    "Deposed",
    "Elected",
    "Election",
    "ElectionFailed",
    "EtcdBack",
    "EtcdDown",
    "Fenced",
    "Following",
    "LeaderGone",
    "LeaderRecord",
    "Reelected",
    "job_keys",
]
