"""The reflector: its store equals the server's objects, whatever happens to lists and watches."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import MemoryServer, refusals
from machine.virtual import run_virtual
from paddock.kube.client import PODS, VOLCANO_GROUPS, KubeError, Query
from paddock.operator.runtime.informer import (
    LATEST,
    PAUSE_MAX_SECONDS,
    SEEK_AGAIN_SECONDS,
    ObjectCache,
    Reflector,
)
from paddock.operator.runtime.log import Logger

if TYPE_CHECKING:
    from kube_memory import Call
    from machine.virtual import VirtualClock


class Scene:
    """A server, a reflector of its pods, and what its store told."""

    def __init__(
        self, clock: VirtualClock, *, resource: Any = PODS, optional: bool = False
    ) -> None:
        self.clock = clock
        self.server = MemoryServer(now=clock.now)
        self.store: ObjectCache[Any] = ObjectCache({})
        self.told: list[str] = []
        self.lines: list[str] = []
        self.restarts = 0
        self.store.listen(self._tell)
        self.reflector = Reflector(
            self.server.client(), resource, Query("ml"), self.store,
            clock=clock, rng=Random(0),
            log=Logger(self.lines.append, clock, level="debug", form="text"),
            restarted=self._restarted, is_optional=optional,
        )  # fmt: skip
        self.task = asyncio.ensure_future(self.reflector.run())
        self._ticking = asyncio.ensure_future(self._tick())

    def make(self, *names: str) -> None:
        """Pods."""
        for name in names:
            spec = {"containers": [{"name": "c", "image": "i"}]}
            self.server.create(PODS, "ml", {"metadata": {"name": name}, "spec": spec})

    @property
    def names(self) -> list[str]:
        """In the store."""
        return sorted(o.metadata.name for o in self.store)

    def calls(self, verb: str, kind: str = "pods") -> int:
        """So far."""
        return self.server.counts[verb, kind, ""]

    def _tell(self, old: Any, new: Any) -> None:
        sign = "+" if old is None else "-" if new is None else "~"
        self.told.append(sign + (new or old).metadata.name)

    def _restarted(self, _: str) -> None:
        self.restarts += 1

    async def _tick(self) -> None:
        while True:
            await self.clock.pass_time(1.0)
            self.server.tick()


def is_list(call: Call) -> bool:
    """Of pods."""
    return call.verb == "list"


def is_watch(call: Call) -> bool:
    """Of pods."""
    return call.verb == "watch"


def test_what_is_there_is_listed_and_what_changes_is_followed() -> None:
    """The plain path, with an object made, changed and deleted."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        scene.make("a")
        await scene.reflector.synced.wait()
        scene.make("b")
        scene.server.kubelet.run("ml/a")
        await clock.pass_time(1)
        scene.server.delete(PODS, "ml", "b")
        await clock.pass_time(1)
        assert scene.names == ["a"]
        assert scene.told[:2] == ["+a", "+b"] and scene.told[-1] == "-b"

    run_virtual(main)


def test_a_quiet_night_costs_one_list() -> None:
    """Bookmarks keep the version fresh: the watch is renewed by the hour, never the list."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await clock.pass_time(7_200)
        assert scene.calls("list") == 1
        # Each lives for 5 to 10 minutes.
        assert 7_200 / 600 <= scene.calls("watch") <= 7_200 / 300 + 1
        assert scene.restarts == 0

    run_virtual(main)


def test_a_long_list_comes_in_pages() -> None:
    """Thousands of pods in one answer would need their size in memory several times over."""

    async def main(clock: VirtualClock) -> None:
        server = MemoryServer(now=clock.now)
        for n in range(25):
            spec = {"containers": [{"name": "c", "image": "i"}]}
            server.create(PODS, "ml", {"metadata": {"name": f"p{n}"}, "spec": spec})
        store: ObjectCache[Any] = ObjectCache({})
        reflector = Reflector(
            server.client(), PODS, Query("ml", limit=10), store,
            clock=clock, rng=Random(0), log=Logger(print, clock, level="error", form="text"),
            restarted=print, first=LATEST,
        )  # fmt: skip
        task = asyncio.ensure_future(reflector.run())
        await reflector.synced.wait()
        assert len(store) == 25
        assert server.counts["list", "pods", ""] == 3
        task.cancel()

    run_virtual(main)


def test_pages_that_expire_are_asked_for_anew() -> None:
    """etcd was compacted between two pages: half a list must never be taken for a whole."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        scene.task.cancel()
        scene.make("a", "b", "c")
        compacted = asyncio.Event()

        async def pause() -> None:
            if scene.calls("list") == 1 and not compacted.is_set():
                compacted.set()
                scene.server.compact()

        reflector = Reflector(
            scene.server.client(pause=pause), PODS, Query("ml", limit=2), scene.store,
            clock=clock, rng=Random(0), log=Logger(print, clock, level="error", form="text"),
            restarted=print, first=LATEST,
        )  # fmt: skip
        task = asyncio.ensure_future(reflector.run())
        scene.server.fail(refusals.expired(), times=1, when=lambda c: scene.calls("list") == 2)
        await reflector.synced.wait()
        assert scene.names == ["a", "b", "c"]
        task.cancel()

    run_virtual(main)


def test_a_version_too_old_is_listed_again_and_what_went_is_deleted() -> None:
    """410 Gone: the deletions in between were told to nobody."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        scene.make("a", "b")
        await scene.reflector.synced.wait()
        await clock.pass_time(1)
        scene.server.drop_watches(error=refusals.expired())
        scene.server.delete(PODS, "ml", "a")
        scene.make("c")
        scene.server.compact()
        await clock.pass_time(1)
        assert scene.names == ["b", "c"]
        assert scene.told == ["+a", "+b", "-a", "+c"]
        assert scene.calls("list") == 2

    run_virtual(main)


def test_a_cut_connection_goes_on_from_the_last_version() -> None:
    """Nothing is lost between, and the server is spared a list by every operator at once."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.reflector.synced.wait()
        scene.make("z")
        scene.server.kubelet.run("ml/z")
        await clock.pass_time(1)
        scene.told.clear()
        scene.server.drop_watches(error=refusals.unreachable())
        scene.make("a")
        scene.server.delete(PODS, "ml", "a")
        scene.make("b")
        await clock.pass_time(2)
        assert scene.told == ["+a", "-a", "+b"]  # and nothing of z, which was known
        assert scene.calls("list") == 1
        assert scene.restarts == 1

    run_virtual(main)


def test_a_watch_that_went_silent_is_replaced() -> None:
    """A half-open connection delivers nothing and says nothing; no bookmark for 75 s tells."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.reflector.synced.wait()
        await clock.pass_time(1)
        scene.server.silence_watches()
        scene.make("a")
        await clock.pass_time(60)
        assert scene.names == []
        await clock.pass_time(20)
        assert scene.names == ["a"]

    run_virtual(main)


def test_an_outage_is_asked_about_more_and_more_seldom() -> None:
    """An hour without a server costs some 120 calls, and half a minute at most after it."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.reflector.synced.wait()
        await clock.pass_time(1)
        outage = scene.server.fail(refusals.unreachable(), times=None)
        scene.server.drop_watches(error=refusals.unreachable())
        before = scene.calls("watch")
        await clock.pass_time(3600)
        assert scene.calls("watch") - before < 3600 / PAUSE_MAX_SECONDS * 2 + 20
        outage.cancel()
        scene.make("a")
        await clock.pass_time(PAUSE_MAX_SECONDS)
        assert scene.names == ["a"]

    run_virtual(main)


def test_retry_after_is_waited_for() -> None:
    """A server that is too busy says when to come again."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        scene.server.fail(refusals.too_many_requests(20.0), times=1, when=is_list)
        await clock.pass_time(19)
        assert scene.calls("list") == 1
        await clock.pass_time(2)
        assert scene.calls("list") == 2 and scene.reflector.synced.is_set()

    run_virtual(main)


def test_watches_that_end_at_once_do_not_become_a_storm() -> None:
    """A proxy that closes every watch must not be asked a thousand times a second."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.reflector.synced.wait()

        async def close() -> None:
            while True:
                scene.server.drop_watches()
                await clock.sleep(0.05)  # sleep: of made-up time

        closing = asyncio.ensure_future(close())
        await clock.pass_time(300)
        assert scene.calls("watch") < 50
        closing.cancel()

    run_virtual(main)


def test_an_optional_kind_that_is_not_served_is_empty_until_it_is() -> None:
    """Volcano may be installed after the operator, and removed; neither is a failure."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock, resource=VOLCANO_GROUPS, optional=True)
        scene.server.serve(VOLCANO_GROUPS, False)
        await scene.reflector.synced.wait()
        assert not scene.reflector.is_served
        asked = scene.calls("list", "podgroups.scheduling.volcano.sh")
        await clock.pass_time(2000)
        assert scene.calls("list", "podgroups.scheduling.volcano.sh") == asked
        assert scene.reflector.silent_seconds == 0  # it waits, and does not hang
        sought = [asyncio.ensure_future(scene.reflector.seek()) for _ in range(10)]
        assert await asyncio.gather(*sought) == [False] * 10
        assert scene.calls("list", "podgroups.scheduling.volcano.sh") == asked + 1
        scene.server.serve(VOLCANO_GROUPS, True)
        await clock.pass_time(SEEK_AGAIN_SECONDS)
        assert await scene.reflector.seek()
        scene.server.create(VOLCANO_GROUPS, "ml", {"metadata": {"name": "g"}})
        await clock.pass_time(1)
        assert scene.names == ["g"]
        scene.server.serve(VOLCANO_GROUPS, False)
        await clock.pass_time(1)
        assert not scene.reflector.is_served and scene.names == []

    run_virtual(main)


def test_a_sought_kind_whose_storage_begins_is_asked_for_again_until_it_answers() -> None:
    """So a definition that was just applied answers: a job waited 7 s for what took one."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock, resource=VOLCANO_GROUPS, optional=True)
        scene.server.serve(VOLCANO_GROUPS, False)
        await scene.reflector.synced.wait()
        await clock.pass_time(SEEK_AGAIN_SECONDS)
        scene.server.serve(VOLCANO_GROUPS, True)
        scene.server.fail(refusals.too_many_requests(), times=1, when=is_list)
        assert await scene.reflector.seek()

    run_virtual(main)


def test_a_missing_definition_of_ours_is_waited_for() -> None:
    """The operator may be started before its definition is applied."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        scene.server.serve(PODS, False)
        await clock.pass_time(120)
        assert not scene.reflector.synced.is_set()
        scene.server.serve(PODS, True)
        await clock.pass_time(PAUSE_MAX_SECONDS)
        assert scene.reflector.synced.is_set()
        assert any("error watch failed" in line for line in scene.lines)

    run_virtual(main)


def test_a_bug_while_an_object_is_taken_does_not_end_the_watch() -> None:
    """Everything else would go unseen; the list makes good what was dropped."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.reflector.synced.wait()
        await clock.pass_time(1)
        failing = [True]

        def listener(_old: Any, _new: Any) -> None:
            if failing and failing.pop():
                raise ZeroDivisionError

        scene.store.listen(listener)
        scene.make("a")
        scene.make("b")
        await clock.pass_time(2)
        assert scene.names == ["a", "b"]
        assert any("ZeroDivisionError" in line for line in scene.lines)

    run_virtual(main)


def test_a_list_that_never_answers_shows_as_silence() -> None:
    """The liveness probe restarts an operator whose reflector hangs."""

    async def main(clock: VirtualClock) -> None:
        scene = Scene(clock)
        await scene.reflector.synced.wait()
        await clock.pass_time(7200)
        assert scene.reflector.silent_seconds <= 60

        class Hanging:
            async def page(self, *_: object, **__: object) -> None:
                await asyncio.Event().wait()

        hanging: Any = Hanging()
        reflector = Reflector(
            hanging, PODS, Query(), scene.store, clock=clock, rng=Random(0),
            log=Logger(print, clock, level="error", form="text"), restarted=print,
        )  # fmt: skip
        task = asyncio.ensure_future(reflector.run())
        await clock.pass_time(1000)
        assert reflector.silent_seconds == 1000
        task.cancel()

    run_virtual(main)


@pytest.mark.parametrize("seed", range(20))
def test_after_any_troubles_the_store_is_as_the_server(seed: int) -> None:
    """Random writes under random troubles; then quiet; then everything must be equal."""

    async def main(clock: VirtualClock) -> None:
        rng = Random(seed)
        scene = Scene(clock)
        scene.server.faults.watch_delay = lambda: rng.choice((0.0, 0.0, 1.5))
        errors: list[KubeError] = [
            refusals.unreachable(), refusals.expired(), refusals.internal_error(),
            refusals.too_many_requests(1.0),
        ]  # fmt: skip
        alive: list[str] = []
        for n in range(150):
            choice = rng.random()
            if choice < 0.4 or not alive:
                scene.make(f"p{n}")
                alive.append(f"p{n}")
            elif choice < 0.6:
                scene.server.delete(PODS, "ml", alive.pop(rng.randrange(len(alive))))
            elif choice < 0.7:
                scene.server.drop_watches(error=rng.choice([None, *errors]))
            elif choice < 0.75:
                scene.server.silence_watches()
            elif choice < 0.8:
                scene.server.compact()
            elif choice < 0.9:
                which = rng.choice((is_list, is_watch))
                scene.server.fail(rng.choice(errors), times=rng.randrange(4), when=which)
            await clock.pass_time(rng.choice((0.0, 0.1, 3.0, 30.0)))
        await clock.pass_time(300)
        truth = {s.document["metadata"]["name"]: s for s in scene.server.all(PODS, "ml")}
        assert scene.names == sorted(truth) == sorted(alive)
        for one in scene.store:
            document = truth[one.metadata.name].document["metadata"]
            assert one.metadata.resourceVersion == document["resourceVersion"]

    run_virtual(main)
