"""Many candidates against a model of etcd: outages, late and lost messages, crashes, pauses.

The model applies requests late, even after the candidate gave up on them. A seed that fails is
to be turned into a test in test_election_state.py.
"""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

import pytest

from paddock.agent.etcd_election import messages as w
from paddock.agent.etcd_election.election_state import ElectionState
from paddock.etcd.reply import EtcdUnreachable
from sim.etcd import Etcd

if TYPE_CHECKING:
    from collections.abc import Callable


TTL = 5
REQUEST_SECONDS = 0.4 * TTL
CHAOS_SECONDS = 60.0
CALM_SECONDS = 40.0


class Node:
    """One candidate and a launcher that asks for attempts."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        me = w.LeaderRecord(name, "10.0.0.1", 1, "u", nonce=f"{name}-{world.rng.random()}")
        self.state = ElectionState(me, world.rng.random, TTL)
        self.alive, self.cut, self.paused_until = True, False, 0.0
        self.inbox: list[w.Input] = []
        self.waits_for = 0  # Serial number of the request under way; 0: none.
        self.generation = 0
        self.last = -1  # The last attempt that was allowed.
        self.asked = False
        self.previous: w.AttemptRecord | None = None
        self.era = 0  # Of the last answer.
        self.outs: list[w.Event] = []

    def give(self, what: w.Input) -> None:
        self.inbox.append(what)
        self.run()

    def run(self) -> None:
        while self.alive and self.inbox and not self.waits_for:
            if self.world.now < self.paused_until:
                self.world.at(self.paused_until, self.run)
                return
            for order in self.state.step(self.inbox.pop(0), self.world.now):
                self.carry_out(order)
        if self.alive and not self.waits_for:
            wake_at = self.state.wake_at(self.world.now)
            if wake_at is not None:
                self.world.at(max(wake_at, self.world.now + 0.001), self.wake)

    def wake(self) -> None:
        wake_at = self.state.wake_at(self.world.now)
        if self.alive and not self.waits_for and wake_at is not None and wake_at <= self.world.now:
            self.give(w.ElectionTick())

    def carry_out(self, order: object) -> None:
        if isinstance(order, w.PublishEvent):
            self.outs.append(order.event)
            self.hear(order.event)
        elif isinstance(order, w.ElectionDone):
            self.alive = False
        else:
            self.world.send(self, order)  # type: ignore[arg-type]  # all others are requests

    def hear(self, event: w.Event) -> None:
        """The launcher: an attempt at once when elected, another now and then."""
        match event:
            case w.Elected(generation, previous):
                self.generation = generation
                self.previous = previous
                if previous is not None and not previous.ended:
                    self.last = max(self.last, previous.attempt)
                self.ask()
            case w.Reelected(generation):
                self.generation = generation
                found = self.world.etcd.attempt
                if found != self.previous and self.world.holds_key(self):
                    assert found is not None, f"{self.name} goes on, but its record has gone"
                    assert found.members == (self.name,), f"{self.name} goes on, outdated"
            case w.SteppedDown():
                self.generation = 0
            case w.Following(record):
                # It outlives its leader, or ends without a reason: a connection is no proof.
                lives, ceases = (w.LeaderAlive(record.nonce, lives) for lives in (True, False))
                self.world.later(self.world.delay(), lambda: self.give(lives))
                self.world.later(self.world.rng.uniform(0, 30), lambda: self.give(ceases))
                self.world.later(self.world.rng.uniform(0, 6), lambda: self.sees_death(record))
            case w.AttemptFenced(attempt, allowed):
                self.asked = False
                self.last = max(self.last, attempt)
                if allowed:
                    self.world.allowed(self, attempt)
                    self.world.later(self.world.rng.uniform(2, 20), self.ask)
                elif self.generation:
                    self.world.later(1.0, self.ask)

    def sees_death(self, record: w.LeaderRecord) -> None:
        if not any(node.alive for node in self.world.nodes if node.name == record.name):
            self.give(w.LeaderDied(record.nonce))

    def ask(self) -> None:
        ends = self.world.now > CHAOS_SECONDS + CALM_SECONDS - 5  # None is left half done.
        if self.alive and self.generation and not self.asked and not ends:
            self.asked = True
            self.give(
                w.FenceRequested(w.AttemptRecord(self.generation, self.last + 1, "u", (self.name,)))
            )


class World:
    """Time, the network, and the trouble."""

    def __init__(self, seed: int, *, data_loss: bool = False) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.trouble = True
        self.data_loss = data_loss
        self.tampered = False
        self.births = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self.etcd = Etcd(self)
        self.nodes: list[Node] = []
        self.oks: list[tuple[int, int, str]] = []
        for i in range(self.rng.randint(2, 5)):
            self.add_node(f"n{i}")

    def add_node(self, name: str) -> None:
        node = Node(self, name)
        self.nodes.append(node)
        self.later(self.rng.random(), lambda: node.give(w.ElectionTick()))

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (when, self._serial, what))

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def reaches(self, node: Node) -> bool:
        return self.etcd.up and not node.cut

    def delay(self) -> float:
        slow = self.trouble and self.rng.random() < 0.1
        return self.rng.uniform(0, 6.0) if slow else self.rng.uniform(0.0005, 0.02)

    def send(self, node: Node, request: w.Request) -> None:
        self._serial += 1
        node.waits_for = serial = self._serial
        failed = w.RequestFailed(EtcdUnreachable("no answer"))
        if not self.reaches(node) and self.rng.random() < 0.5:
            self.later(0.001, lambda: self.reply(node, serial, failed))
            return
        self.later(REQUEST_SECONDS, lambda: self.reply(node, serial, failed))
        lost, era = self.trouble and self.rng.random() < 0.05, self.etcd.era
        if self.reaches(node) and not lost:
            self.later(self.delay(), lambda: self.arrive(node, serial, request, era))

    def arrive(self, node: Node, serial: int, request: w.Request, era: int) -> None:
        if not self.etcd.up or era != self.etcd.era:
            return
        answer, era = self.etcd.apply(request), self.etcd.era
        if not node.cut and not (self.trouble and self.rng.random() < 0.05):
            self.later(self.delay(), lambda: self.reply(node, serial, answer, era))

    def reply(self, node: Node, serial: int, answer: w.Input, era: int = 0) -> None:
        if node.waits_for == serial and node.alive:
            if self.now < node.paused_until:
                self.at(node.paused_until, lambda: self.reply(node, serial, answer, era))
                return
            node.waits_for, node.era = 0, era
            node.inbox.insert(0, answer)  # The answer is the next input after its request.
            node.run()

    def allowed(self, node: Node, attempt: int) -> None:
        """AttemptFenced(allowed) reached a launcher."""
        if not self.tampered:
            assert self.holds_key(node), f"{node.name} was told ok without the key"
            assert all(attempt > before for _, before, _ in self.oks)
        # In another era the numbers may start again.
        same = [who for era, before, who in self.oks if (era, before) == (node.era, attempt)]
        assert not same, f"attempt {attempt} allowed to {node.name} and to {same}"
        self.oks.append((node.era, attempt, node.name))

    def holds_key(self, node: Node) -> bool:
        leader = self.etcd.leader
        return leader is not None and leader.nonce == node.state.me.nonce

    # Trouble.

    def cause_trouble(self) -> None:
        if self.now > CHAOS_SECONDS:
            self.calm()
            return
        node = self.rng.choice(self.nodes)
        kind = self.rng.choice(["outage", "outage", "cut", "pause", "crash", "stop", "delete"])
        seconds = self.rng.choice([0.5, 3.0, 8.0, 15.0]) * self.rng.random()
        if kind == "outage" and self.etcd.up:
            self.etcd.up = False
            self.later(seconds, lambda: self.restore(extend=self.rng.random() < 0.5))
        elif kind == "cut":
            node.cut = True
            self.later(seconds, lambda: setattr(node, "cut", False))
        elif kind == "pause":
            node.paused_until = self.now + seconds
        elif kind in ("crash", "stop"):
            if kind == "crash":
                node.alive = False
            else:
                node.give(w.StopRequested(ended=False))
            self.births += 1
            self.add_node(f"{node.name[:2]}.{self.births}")
        elif kind == "delete" and self.rng.random() < 0.3:
            self.tampered = True  # By hand: etcdctl del.
            self.etcd.delete_leader()
        self.later(self.rng.uniform(0.5, 8.0), self.cause_trouble)

    def restore(self, *, extend: bool) -> None:
        if extend:  # etcd gives every lease its full time after a change of its own leader.
            self.etcd.leases = {
                i: (self.now + ttl, ttl) for i, (_, ttl) in self.etcd.leases.items()
            }
        self.etcd.up = True
        if self.data_loss and self.rng.random() < 0.5:
            self.etcd.lose_data()
            self.tampered = True

    def calm(self) -> None:
        self.trouble, self.etcd.up = False, True
        for node in self.nodes:
            node.cut, node.paused_until = False, self.now

    def tick(self) -> None:
        if self.etcd.up:
            self.etcd.expire()
        self.later(0.25, self.tick)

    def run(self) -> None:
        self.tick()
        self.later(self.rng.uniform(0, 5), self.cause_trouble)
        steps = 0
        while self._queue and self.now < CHAOS_SECONDS + CALM_SECONDS:
            self.now, _, what = heapq.heappop(self._queue)
            what()
            steps += 1
            assert steps < 200_000, "a busy loop"

    def check_calm(self) -> None:
        alive = [node for node in self.nodes if node.alive]
        assert self.etcd.leader is not None
        leading = [n for n in alive if n.state.role == "leading"]
        assert [n.state.me.nonce for n in leading] == [self.etcd.leader.nonce]
        assert leading[0].state.generation == self.etcd.leader_created
        assert all(n.state.role == "following" for n in alive if n is not leading[0])
        assert self.etcd.attempt is not None
        assert self.etcd.attempt.attempt == leading[0].last


@pytest.mark.parametrize("block", range(10))
def test_no_attempt_is_allowed_twice_and_a_leader_emerges(block: int) -> None:
    """30 worlds a block: the safety checks are asserts within, the liveness check is last."""
    for seed in range(block * 30, block * 30 + 30):
        world = World(seed)
        try:
            world.run()
            world.check_calm()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} at {world.now:.3f} s: {error}") from error


def test_a_leader_emerges_after_etcd_lost_its_data() -> None:
    """Numbers may start again, but one leader is agreed on, and no attempt is allowed twice."""
    for seed in range(1000, 1060):
        world = World(seed, data_loss=True)
        try:
            world.run()
            world.check_calm()
        except AssertionError as error:
            raise AssertionError(f"seed {seed} at {world.now:.3f} s: {error}") from error


def test_the_trouble_is_real() -> None:
    """The worlds do contain elections, depositions and refused fences, or they prove nothing."""
    seen: dict[str, int] = {}
    for seed in range(40):
        world = World(seed)
        world.run()
        for node in world.nodes:
            for event in node.outs:
                refused = isinstance(event, w.AttemptFenced) and not event.allowed
                name = "Refused" if refused else type(event).__name__
                seen[name] = seen.get(name, 0) + 1
    for name in ("Elected", "Reelected", "Following", "SteppedDown", "AttemptFenced",
                 "Refused", "EtcdDown", "EtcdBack"):  # fmt: skip
        assert seen.get(name, 0) >= 5, seen
