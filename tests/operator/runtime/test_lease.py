"""Leadership: one at a time, at most so long without one, and no write of one that lost it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import MemoryServer, refusals
from machine.virtual import run_virtual
from paddock.kube.client import CONFIG_MAPS, LEASES, KubeError
from paddock.operator.names import LEASE
from paddock.operator.runtime.guard import FencedError, GuardedClient
from paddock.operator.runtime.lease import (
    DURATION_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    LeaderElector,
)
from paddock.operator.runtime.log import Logger
from paddock.operator.runtime.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kube_memory import Call
    from machine.virtual import VirtualClock

NAMESPACE = "paddle-system"


class Candidate:
    """A process whose work is to write something four times a second while it leads."""

    def __init__(
        self,
        clock: VirtualClock,
        server: MemoryServer,
        name: str,
        *,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.led: list[tuple[float, float]] = []  # (from, until)
        self.wrote: list[float] = []
        self.stop = asyncio.Event()
        self.lines: list[str] = []
        self._clock = clock
        raw = server.client(name, pause=pause) if pause else server.client(name)
        self.elector = LeaderElector(
            raw, namespace=NAMESPACE, identity=name, clock=clock, rng=Random(name),
            log=Logger(self.lines.append, clock, level="debug", form="text"),
        )  # fmt: skip
        self._client = GuardedClient(
            raw, clock=clock, metrics=Metrics(), fence=self.elector.fence, rate=None
        )
        self.task = asyncio.ensure_future(self.elector.run(self._work, self.stop))

    async def _work(self) -> None:
        began = self._clock.monotonic()
        try:
            while not self.stop.is_set():
                manifest = {"metadata": {"generateName": f"{self.name}-"}}
                sent = self._clock.monotonic()
                try:
                    await self._client.create(CONFIG_MAPS, "ml", manifest)
                    self.wrote.append(sent)
                except FencedError:
                    await asyncio.Event().wait()  # the elector ends it
                except KubeError:
                    pass
                await self._clock.sleep(0.25)  # sleep: of made-up time
        finally:
            self.led.append((began, self._clock.monotonic()))


def ticking(clock: VirtualClock, server: MemoryServer) -> None:
    """Let the server's time pass."""

    async def tick() -> None:
        while True:
            await clock.sleep(1.0)  # sleep: of made-up time
            server.tick()

    asyncio.ensure_future(tick())  # noqa: RUF006  run_virtual ends it


def leases_of(name: str) -> Callable[[Call], bool]:
    """Calls about leases by that client."""
    return lambda call: call.client == name and call.resource is LEASES


def test_the_times_are_in_the_order_that_client_go_demands() -> None:
    """leaderelection.go, NewLeaderElector; and an answer that is late has time before the next."""
    assert DURATION_SECONDS > RENEW_SECONDS > RETRY_SECONDS * 1.2  # its JitterFactor
    assert DURATION_SECONDS - RENEW_SECONDS >= 3.0
    assert DURATION_SECONDS <= 9.0  # the next job's pods within 10 s


def test_one_of_two_leads_and_keeps_leading() -> None:
    """A healthy leader must never be replaced."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a, b = Candidate(clock, server, "a"), Candidate(clock, server, "b")
        await clock.pass_time(600)
        assert a.elector.fence.is_open != b.elector.fence.is_open
        assert len(a.wrote) > 2000 and not b.wrote
        record = server.get(LEASES, NAMESPACE, LEASE).document["spec"]
        assert record["holderIdentity"] == "a" and record["leaseTransitions"] == 0

    run_virtual(main)


def test_a_candidate_asks_for_nothing_while_it_waits() -> None:
    """It watches; a cluster with many operators would else be polled for nothing."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        Candidate(clock, server, "a")
        await clock.pass_time(1)
        asked: list[str] = []

        async def pause() -> None:
            asked.append("something")

        Candidate(clock, server, "b", pause=pause)
        await clock.pass_time(5)
        before = len(asked)
        await clock.pass_time(250)
        assert len(asked) == before

    run_virtual(main)


def test_a_dead_leader_is_replaced_after_its_lease() -> None:
    """8 s at most from its last sign of life, whenever in its period it died."""

    async def main(clock: VirtualClock, moment: float) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(60 + moment)
        a.task.cancel()
        killed = clock.monotonic()
        await clock.pass_time(20)
        assert b.elector.fence.is_open
        assert b.led == [] and b.wrote[0] - killed <= DURATION_SECONDS + 0.01
        assert b.wrote[0] > max(a.wrote)

    for moment in (0.0, 0.7, 1.3, 1.99):
        run_virtual(lambda clock, moment=moment: main(clock, moment))


def test_a_leader_that_ends_well_is_replaced_at_once() -> None:
    """An upgrade of the operator must not stop the cluster's jobs for 8 s."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(60)
        a.stop.set()
        await a.task
        ended = clock.monotonic()
        await clock.pass_time(1)
        assert b.wrote[0] - ended < 0.5
        assert not a.elector.fence.is_open
        record = server.get(LEASES, NAMESPACE, LEASE).document["spec"]
        assert record["holderIdentity"] == "b" and record["leaseTransitions"] == 2

    run_virtual(main)


def test_a_candidate_ends_when_it_is_stopped() -> None:
    """SIGTERM to the one that waits; the leader's lease is not touched."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(5)
        b.stop.set()
        await b.task
        await clock.pass_time(60)
        assert a.elector.fence.is_open and b.led == []

    run_virtual(main)


@pytest.mark.parametrize("led_seconds", [0.0, 30.0])
def test_a_leader_cut_off_from_the_lease_stops_writing_before_it_is_replaced(
    led_seconds: float,
) -> None:
    """The fence: at no moment may two of them write, though the first one's writes still work."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(led_seconds)
        cut = server.fail(refusals.unreachable(), times=None, when=leases_of("a"))
        cut_at = clock.monotonic()
        await clock.pass_time(60)
        assert max(a.wrote) < cut_at + RENEW_SECONDS
        assert min(b.wrote) > max(a.wrote)
        assert min(b.wrote) <= cut_at + DURATION_SECONDS + 0.01
        assert not a.elector.fence.is_open and len(a.led) == 1
        cut.cancel()
        await clock.pass_time(60)
        assert not a.elector.fence.is_open and b.elector.fence.is_open

    run_virtual(main)


def test_a_leader_whose_calls_hang_stops_at_its_deadline() -> None:
    """No answer is not a refusal: the wait itself must end in time."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        hanging = asyncio.Event()

        async def pause() -> None:
            if hanging.is_set():
                await asyncio.Event().wait()

        a = Candidate(clock, server, "a", pause=pause)
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(30)
        hanging.set()
        at = clock.monotonic()
        await clock.pass_time(60)
        assert a.led[0][1] <= at + RENEW_SECONDS + 0.01
        assert b.elector.fence.is_open and min(b.wrote) > a.led[0][1]

    run_virtual(main)


def test_a_slow_api_server_is_led_from_all_the_same() -> None:
    """Answers of 2.4 s: two seconds from one to the next were too long, and nobody led for long."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        # Half of it on the way there, half on the way back.
        a = Candidate(clock, server, "a", pause=lambda: clock.sleep(1.2))  # sleep: of made-up time
        await clock.pass_time(120)
        assert a.led == [] and a.elector.fence.is_open
        assert len(a.wrote) > 40

    run_virtual(main)


def test_a_leader_that_lost_it_leads_again_later() -> None:
    """A short partition of all operators must not need a restart of them."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(30)
        cut = server.fail(refusals.unreachable(), times=None)
        await clock.pass_time(60)
        assert len(a.led) == 1 and not a.elector.fence.is_open
        cut.cancel()
        await clock.pass_time(40)
        assert a.elector.fence.is_open

    run_virtual(main)


@pytest.mark.parametrize("error", [refusals.unreachable(), refusals.internal_error()])
def test_a_few_failed_renewals_are_survived(error: Any) -> None:
    """An API server that restarts takes seconds; that must not cost the leadership."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(30)
        for lost in (False, True):
            server.fail(error, times=3, when=leases_of("a"), lost=lost)
            await clock.pass_time(30)
        assert a.elector.fence.is_open and a.led == []

    run_virtual(main)


def test_a_lease_that_others_edit_or_delete_is_kept() -> None:
    """Somebody labels it, or removes it by mistake."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(30)
        server.patch(LEASES, NAMESPACE, LEASE, {"metadata": {"labels": {"x": "y"}}})
        await clock.pass_time(10)
        assert a.elector.fence.is_open
        server.delete(LEASES, NAMESPACE, LEASE)
        await clock.pass_time(10)
        assert a.elector.fence.is_open and a.led == []

    run_virtual(main)


def test_a_lease_taken_by_force_is_given_up_at_once() -> None:
    """An administrator hands it to another; two leaders would be worse than none."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(30.5)
        server.patch(LEASES, NAMESPACE, LEASE, {"spec": {"holderIdentity": "somebody"}})
        taken = clock.monotonic()
        await clock.pass_time(5)
        assert a.led[0][1] - taken <= 2.1
        await clock.pass_time(20)
        assert a.elector.fence.is_open  # somebody showed no life

    run_virtual(main)


def test_clocks_that_differ_or_jump_do_not_matter() -> None:
    """Two machines an hour apart: what counts is whether the record changes."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(10)
        b = Candidate(clock, server, "b")
        for jump in (3600.0, -7200.0, 86_400.0):
            clock.jump(jump)
            await clock.pass_time(60)
        assert a.elector.fence.is_open and not b.led and not b.wrote

    run_virtual(main)


def test_without_the_right_to_watch_the_lease_is_polled() -> None:
    """A role of an older installation allows get, create and update only."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        server.fail(
            refusals.forbidden(LEASES, LEASE, "no right"),
            times=None,
            when=lambda c: c.resource is LEASES and c.verb in ("list", "watch"),
        )
        a = Candidate(clock, server, "a")
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(60)
        a.stop.set()
        await a.task
        ended = clock.monotonic()
        await clock.pass_time(10)
        assert b.wrote[0] - ended <= 2.5

    run_virtual(main)


def test_a_candidate_with_a_silent_watch_does_not_take_a_living_lease() -> None:
    """It has seen no renewal for long, and asks before it believes that there was none."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")
        await clock.pass_time(1)
        b = Candidate(clock, server, "b")
        await clock.pass_time(10)
        server.silence_watches(lambda stream: stream.client == "b")
        await clock.pass_time(60)
        assert a.elector.fence.is_open and not b.led and not b.wrote

    run_virtual(main)


def test_a_bug_in_the_work_ends_the_process_and_frees_the_lease() -> None:
    """The next operator should not wait 8 s for one that is known to have ended."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        a = Candidate(clock, server, "a")

        async def work() -> None:
            await clock.pass_time(5)
            raise ZeroDivisionError

        a.task.cancel()
        elector = a.elector
        with pytest.raises(ZeroDivisionError):
            await elector.run(work, asyncio.Event())
        record = server.get(LEASES, NAMESPACE, LEASE).document["spec"]
        assert record["holderIdentity"] == ""

    run_virtual(main)


@pytest.mark.parametrize("seed", range(4))
def test_two_never_write_in_the_same_moment(seed: int) -> None:
    """Three candidates under random outages, kills and jumps of the clock."""

    async def main(clock: VirtualClock) -> None:
        rng = Random(seed)
        server = MemoryServer(now=clock.now)
        ticking(clock, server)
        everyone: list[Candidate] = []
        living = [Candidate(clock, server, f"c{n}") for n in range(3)]
        everyone += living
        for step in range(18):
            choice = rng.random()
            leading = [c for c in living if c.elector.fence.is_open]
            victim = rng.choice(leading if leading and rng.random() < 0.7 else living)
            rule = None
            if choice < 0.5:
                rule = server.fail(
                    refusals.unreachable(), times=None, when=leases_of(victim.name),
                    lost=rng.random() < 0.3,
                )  # fmt: skip
            elif choice < 0.6:
                victim.task.cancel()
                living.remove(victim)
                living.append(Candidate(clock, server, f"d{step}"))
                everyone.append(living[-1])
            elif choice < 0.7:
                clock.jump(rng.uniform(-1e4, 1e4))
            elif choice < 0.8:
                server.drop_watches(error=refusals.expired())
            elif choice < 0.9:
                server.silence_watches()
            await clock.pass_time(rng.uniform(1, 40))
            if rule is not None:
                rule.cancel()
            await clock.pass_time(rng.uniform(0, 20))
        await clock.pass_time(60)
        assert sum(c.elector.fence.is_open for c in living) == 1
        terms = sorted(_terms(everyone))
        assert len(terms) > 1
        for (_, end, before), (start, _, after) in pairwise(terms):
            # One that lost it may have it back at once; another has to see it run out.
            assert (
                end < start if before == after else end + DURATION_SECONDS - RENEW_SECONDS < start
            )

    run_virtual(main)


def _terms(candidates: list[Candidate]) -> list[tuple[float, float, str]]:
    """First and last write of each time that somebody led, and who."""
    found = []
    for one in candidates:
        ends = [until for _, until in one.led] + [float("inf")]
        for start, end in pairwise([-1.0, *ends]):
            wrote = [at for at in one.wrote if start < at <= end]
            if wrote:
                found.append((min(wrote), max(wrote), one.name))
    return found
