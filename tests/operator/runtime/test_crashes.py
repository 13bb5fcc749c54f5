"""An operator that is killed, replaced or doubled: the end is the same, nothing is made twice."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import refusals
from machine.virtual import run_virtual
from machine.world import ELECTED, World
from paddock.kube.client import CONFIG_MAPS, LEASES, PODS, SERVICES
from paddock.operator.names import LABEL_ATTEMPT
from paddock.operator.runtime.lease import DURATION_SECONDS, RENEW_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_memory import Call
    from machine.virtual import VirtualClock
    from machine.world import Copy

CALLS_MAX = 400


class Executioner:
    """Kills an operator at its n-th pause: before a call is carried out, or before its answer."""

    def __init__(self, at: int) -> None:
        self.count = 0
        self.victim: Copy | None = None
        self.has_struck = False
        self._at = at

    async def pause(self) -> None:
        """Given to the victim's client."""
        self.count += 1
        if self.count == self._at and self.victim is not None:
            self.has_struck = True
            self.victim.kill()
            await asyncio.Event().wait()


async def story(world: World, go_on: Callable[[bool], None]) -> dict[str, Any]:
    """A job with a failure, restarted by the operator, that completes. The end of it.

    go_on: called again and again, to start an operator where none is left, and to make trouble
    while it is told True.
    """

    async def until(is_reached: Callable[[], bool]) -> None:
        for n in range(60):
            go_on(n < 3)
            await world.clock.pass_time(20)
            _let_go(world)
            if n >= 3 and is_reached():
                return
        raise AssertionError(f"not reached: {world.status('demo')} {world.pods()}")

    def is_made(attempt: int) -> bool:
        labels = [p.document["metadata"]["labels"] for p in world.server.all(PODS, "ml")]
        return [one[LABEL_ATTEMPT] for one in labels] == [str(attempt)] * 3

    world.submit("demo", 3)
    await until(lambda: is_made(0))
    world.run_pods()
    await until(lambda: world.status("demo")["phase"] == "Running")
    world.server.kubelet.fail("ml/demo-worker-1", 1)
    await until(lambda: is_made(1))
    world.run_pods()
    await until(lambda: world.status("demo")["phase"] == "Running")
    world.succeed_pods()
    await until(lambda: world.status("demo")["phase"] == "Completed")
    pods = [stored.document for stored in world.server.all(PODS, "ml")]
    return {
        "status": world.status("demo"),
        "pods": [
            (p["metadata"]["name"], p["metadata"]["labels"], p["status"]["phase"]) for p in pods
        ],
        "services": [s.document["metadata"]["name"] for s in world.server.all(SERVICES, "ml")],
        "made": sorted(world.made),
    }


def _let_go(world: World) -> None:
    """The kubelets end what is being deleted."""
    for stored in world.server.all(PODS, "ml"):
        metadata = stored.document["metadata"]
        if metadata.get("deletionTimestamp"):
            world.server.kubelet.let_go(f"ml/{metadata['name']}")


def told(at: int) -> tuple[dict[str, Any], bool]:
    """The end of the story when the operator is killed at that pause; whether it was."""

    async def main(clock: VirtualClock) -> tuple[dict[str, Any], bool]:
        world = World(clock)
        executioner = Executioner(at)
        copies: list[Copy] = []

        def go_on(_: bool) -> None:
            if not copies:
                copies.append(world.start("operator-0", pause=executioner.pause))
                executioner.victim = copies[0]
            elif copies[-1].task.done():
                copies.append(world.start(f"operator-{len(copies)}"))

        end = await story(world, go_on)
        assert len(copies) == (2 if executioner.has_struck else 1)
        return end, executioner.has_struck

    return run_virtual(main)


@pytest.mark.limit(120)
def test_killed_at_any_moment_the_end_is_the_same() -> None:
    """Before and after each of its calls: between status and actions, within a batch, anywhere."""
    undisturbed, _ = told(0)
    assert undisturbed["status"]["phase"] == "Completed"
    assert undisturbed["status"]["attempt"] == 1
    expected = sorted((f"demo-worker-{i}", str(k)) for i in range(3) for k in range(2))
    assert undisturbed["made"] == expected
    moments = 0
    for at in range(1, CALLS_MAX):
        end, has_struck = told(at)
        if not has_struck:
            break
        moments += 1
        assert end == undisturbed, f"killed at pause {at}"
    assert 40 < moments < CALLS_MAX - 1


@pytest.mark.parametrize("seed", range(15))
def test_troubles_and_kills_together_change_nothing(seed: int) -> None:
    """Random refusals, lost answers, late and dead watches, compaction, kills; then peace."""

    async def main(clock: VirtualClock) -> dict[str, Any]:
        rng = Random(seed)
        world = World(clock, seed=seed)
        world.server.faults.watch_delay = lambda: rng.choice((0.0, 0.0, 0.3, 2.0))
        errors = [
            refusals.unreachable(), refusals.internal_error(), refusals.too_many_requests(1.0)
        ]  # fmt: skip
        for error in errors:
            for lost in (False, True):
                world.server.fail(
                    error, times=25, lost=lost,
                    when=lambda call: call.client != "witness" and rng.random() < 0.15,
                )  # fmt: skip
        copies: list[Copy] = []

        def others(stream: Any) -> bool:
            return bool(stream.client != "witness")

        def go_on(makes_trouble: bool) -> None:
            chance = rng.random() if makes_trouble else 1.0
            if copies and chance < 0.3:
                copies[-1].kill()
            elif chance < 0.5:
                world.server.drop_watches(others, rng.choice([None, refusals.expired(), *errors]))
            elif chance < 0.6:
                world.server.silence_watches(others)
            elif chance < 0.7:
                world.server.compact()
            if not copies or copies[-1].task.done() or chance < 0.3:
                copies.append(world.start(f"operator-{len(copies)}"))

        return await story(world, go_on)

    undisturbed, _ = told(0)
    assert run_virtual(main) == undisturbed


def by(name: str) -> Callable[[Call], bool]:
    """Calls about leases by that operator."""
    return lambda call: call.client == name and call.resource is LEASES


def test_a_killed_leader_is_replaced_in_time_without_double_creation() -> None:
    """In the midst of making 200 pods."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)

        async def slow() -> None:
            await clock.pass_time(0.1)

        first = world.start("first", options=ELECTED, pause=slow)
        await clock.pass_time(3)
        world.start("second", options=ELECTED)
        await clock.pass_time(3)
        world.submit("demo", 200)
        await clock.pass_time(2.0)
        assert 0 < len(world.pods()) < 200
        first.kill()
        killed = clock.monotonic()
        while len(world.pods()) < 200:
            await clock.pass_time(0.25)
            assert clock.monotonic() - killed <= DURATION_SECONDS + 0.5
        await clock.pass_time(30)
        assert len(world.made) == len(set(world.made)) == 200
        assert world.status("demo")["message"] == "200/200 pods"

    run_virtual(main)


def test_a_leader_that_lost_the_lease_sends_nothing_after_its_deadline() -> None:
    """It is cut off from its lease while it writes; what it still may write works."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        sent: dict[str, list[float]] = {"first": [], "second": []}

        def witness(call: Call) -> bool:
            if call.verb in ("create", "patch", "delete") and call.resource is not LEASES:
                sent[call.client].append(clock.monotonic())
            return False

        world.server.fail(refusals.unreachable(), times=None, when=witness)

        async def slow() -> None:
            await clock.pass_time(0.2)

        first = world.start("first", options=ELECTED, pause=slow)
        await clock.pass_time(5)
        world.start("second", options=ELECTED, pause=slow)
        await clock.pass_time(5)
        cut = world.server.fail(refusals.unreachable(), times=None, when=by("first"))
        at = clock.monotonic()
        for n in range(120):
            world.submit(f"j{n}", 3)
            await clock.pass_time(0.3)
        await clock.pass_time(30)
        assert sent["first"] and sent["second"]
        # A call takes 0.2 s to reach the server.
        assert max(sent["first"]) <= at + RENEW_SECONDS + 0.2
        assert min(sent["second"]) > max(sent["first"])
        assert min(sent["second"]) <= at + DURATION_SECONDS + 3.0
        assert len(world.made) == len(set(world.made)) == 360
        cut.cancel()
        await clock.pass_time(30)
        assert not first.task.done()  # it is a candidate again
        assert min(sent["second"]) > max(sent["first"])

    run_virtual(main)


def test_a_leader_that_returns_does_not_believe_what_it_knew() -> None:
    """Its watches died with the network; meanwhile another completed the job and cleaned up."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        first = world.start("first", options=ELECTED)
        await clock.pass_time(5)
        world.server.silence_watches(lambda s: s.client == "first" and s.kind == "pods")
        world.submit("demo", 3)
        await clock.pass_time(5)
        assert len(world.pods()) == 3  # which the first one has not seen
        cut = world.server.fail(
            refusals.unreachable(), times=None, when=lambda call: call.client == "first"
        )
        world.server.silence_watches(lambda stream: stream.client == "first")
        second = world.start("second", options=ELECTED)
        await clock.pass_time(30)
        world.succeed_pods()
        await clock.pass_time(5)
        assert world.status("demo")["phase"] == "Completed"
        for pod in world.pods():  # cleaned up, as cleanPodPolicy may say
            world.server.delete(PODS, "ml", pod)
        await second.stop()
        cut.cancel()
        await clock.pass_time(60)
        assert first.operator.elector is not None and first.operator.elector.fence.is_open
        assert world.pods() == []
        assert len(world.made) == 3

    run_virtual(main)


def test_a_leader_that_returns_forgets_what_it_waited_for() -> None:
    """Its calls hung until the lease was lost; nobody knows of them any more, so nobody waits."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        hangs = asyncio.Event()
        returned = asyncio.Event()
        written = ("patch", "paddlejobs.batch.paddlepaddle.org", "status")

        async def pause() -> None:
            if hangs.is_set():
                await asyncio.Event().wait()
            if world.server.counts[written] and not returned.is_set():
                hangs.set()  # the answer to the status is the last one that comes through

        first = world.start("first", options=ELECTED, pause=pause)
        await clock.pass_time(5)
        world.submit("demo", 3)
        await clock.pass_time(12)
        elector = first.operator.elector
        assert elector is not None and not elector.fence.is_open
        assert world.status("demo") and not world.server.all(SERVICES)
        returned.set()
        hangs.clear()
        while not elector.fence.is_open:
            await clock.pass_time(0.5)
        await clock.pass_time(2)
        assert world.pods() == [f"demo-worker-{n}" for n in range(3)]

    run_virtual(main)


def test_an_upgrade_is_without_a_gap() -> None:
    """The old one gives the lease back; the new one works within a second."""

    async def main(clock: VirtualClock) -> None:
        world = World(clock)
        old = world.start("old", options=ELECTED)
        await clock.pass_time(5)
        world.start("new", options=ELECTED)
        await clock.pass_time(5)
        await old.stop()
        world.submit("demo", 3)
        await clock.pass_time(1)
        assert len(world.pods()) == 3
        assert world.server.all(CONFIG_MAPS) == []

    run_virtual(main)
