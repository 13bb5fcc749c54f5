"""Events: what people read, without a flood, and without ever being in the way."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import MemoryServer, refusals
from machine.virtual import run_virtual
from paddock.kube.client import EVENTS, KubeError
from paddock.kube.objects import Meta
from paddock.operator.decision import EventNote
from paddock.operator.runtime.events import (
    NOTE_BYTES_MAX,
    NOTES_A_MINUTE,
    PAUSES_SECONDS,
    QUEUE_MAX,
    SERIES_MAX,
    SERIES_SECONDS,
    Recorder,
)
from paddock.operator.runtime.guard import Fence, GuardedClient
from paddock.operator.runtime.log import Logger
from paddock.operator.runtime.metrics import Metrics

if TYPE_CHECKING:
    from machine.virtual import VirtualClock

JOB = Meta(name="demo", namespace="ml", uid="u1", resourceVersion="7")
RESTARTING = EventNote("Warning", "Restarting", "attempt 1: worker 0 exited 1")


class Desk:
    """A recorder that writes to a server in memory."""

    def __init__(self, clock: VirtualClock, *, fence: Fence | None = None) -> None:
        self.server = MemoryServer(now=clock.now)
        self.metrics = Metrics()
        self.lines: list[str] = []
        client = GuardedClient(
            self.server.client(), clock=clock, metrics=self.metrics, fence=fence, rate=None
        )
        self.recorder = Recorder(
            client, clock=clock, rng=Random(0), metrics=self.metrics, instance="operator-0",
            log=Logger(self.lines.append, clock, level="debug", form="text"),
        )  # fmt: skip
        self.task = asyncio.ensure_future(self.recorder.run())

    async def say(self, note: EventNote = RESTARTING, job: Meta = JOB) -> None:
        """Record and wait until it is written."""
        self.recorder.record(job, note)
        await self.recorder.flush()

    @property
    def events(self) -> list[dict[str, Any]]:
        """Of the cluster."""
        return [stored.document for stored in self.server.all(EVENTS)]

    @property
    def dropped(self) -> dict[str, float]:
        """How many, by why."""
        return {why: count for (why,), count in self.metrics.events_dropped._counts.items()}


def test_a_note_becomes_an_event_about_the_job() -> None:
    """`kubectl describe pdj demo` finds it by the job's kind, name and uid."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        await desk.say()
        (event,) = desk.events
        assert event["regarding"] == {
            "apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "namespace": "ml",
            "name": "demo", "uid": "u1", "resourceVersion": "7",
        }  # fmt: skip
        assert (event["type"], event["reason"]) == ("Warning", "Restarting")
        assert event["note"] == "attempt 1: worker 0 exited 1"
        assert event["reportingController"] == "paddock-operator" and event["action"]
        assert "series" not in event

    run_virtual(main)


def test_names_are_in_the_order_of_the_story() -> None:
    """kubectl describe shows a second's events in the order of their names."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        for n in range(20):
            await desk.say(EventNote("Normal", f"Step{n}", "m"))
        told = sorted(desk.events, key=lambda event: event["metadata"]["name"])
        assert [event["reason"] for event in told] == [f"Step{n}" for n in range(20)]

    run_virtual(main)


def test_the_same_note_again_is_counted_on_the_event() -> None:
    """A job that fails each minute for a day is one line with a count."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        for _ in range(5):
            await desk.say()
            await clock.pass_time(60)
        (event,) = desk.events
        assert event["series"]["count"] == 5
        await desk.say(EventNote("Warning", "Restarting", "attempt 2"))
        assert len(desk.events) == 2

    run_virtual(main)


def test_the_same_note_much_later_is_a_new_event() -> None:
    """Series end as client-go's do; what happened today is not counted with last week's."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        await desk.say()
        await clock.pass_time(SERIES_SECONDS + 1)
        await desk.say()
        assert len(desk.events) == 2

    run_virtual(main)


def test_an_event_that_has_expired_is_made_anew() -> None:
    """The cluster keeps events for an hour; a count on nothing would be told to nobody."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        await desk.say()
        (event,) = desk.events
        desk.server.delete(EVENTS, "ml", event["metadata"]["name"])
        await desk.say()
        await desk.say()
        (event,) = desk.events
        assert event["series"]["count"] == 3

    run_virtual(main)


def test_a_talkative_job_is_cut_short_and_the_others_are_not() -> None:
    """One job in a bad loop must not fill etcd with events."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        for n in range(100):
            await desk.say(EventNote("Normal", "Again", f"time {n}"))
        await desk.say(job=Meta(name="other", namespace="ml", uid="u2"))
        assert len(desk.events) == NOTES_A_MINUTE + 1
        assert desk.dropped == {"too many of one job": 100 - NOTES_A_MINUTE}
        await clock.pass_time(60)
        await desk.say(EventNote("Normal", "Again", "later"))
        assert len(desk.events) == NOTES_A_MINUTE + 2

    run_virtual(main)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        refusals.forbidden(EVENTS, "x", "RBAC is not read yet"),
        refusals.internal_error(),
        refusals.unreachable(),
    ],
    ids=lambda error: error.reason,
)
def test_a_server_that_has_just_begun_is_asked_again(error: KubeError, lost: bool) -> None:
    """Until it has read the roles it says 403: the story of the jobs made then was lost."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        desk.server.fail(error, times=4, lost=lost)
        for n in range(3):
            desk.recorder.record(JOB, EventNote("Normal", "Again", f"time {n}"))
        await desk.recorder.flush()
        told = sorted(desk.events, key=lambda event: event["metadata"]["name"])
        assert [event["note"] for event in told] == ["time 0", "time 1", "time 2"]
        assert desk.dropped == {} and clock.monotonic() < 4

    run_virtual(main)


def test_lasting_refusals_are_dropped_and_nothing_is_raised() -> None:
    """Events are for people; no job may wait for them, or fail by them."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        rule = desk.server.fail(refusals.forbidden(EVENTS, "x", "no right"), times=None)
        for n in range(20):
            desk.recorder.record(Meta(name="j", namespace="ml", uid=f"u{n}"), RESTARTING)
        await desk.recorder.flush()
        assert desk.events == [] and desk.dropped == {"refused": 20}
        assert clock.monotonic() == pytest.approx(sum(PAUSES_SECONDS))  # the first one waited
        told = [line for line in desk.lines if "warning" in line]
        assert len(told) == 1 and "no right" in told[0]
        rule.cancel()
        await desk.say()
        assert len(desk.events) == 1
        assert not desk.task.done()

    run_virtual(main)


def test_a_namespace_that_is_being_deleted_is_no_lack_of_rights() -> None:
    """Somebody deletes it with its jobs: nothing to mend, and later lacks are still told."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        await desk.say()
        desk.server.terminating.add("ml")
        await desk.say(EventNote("Normal", "Again", "in vain"))
        assert desk.dropped == {"refused": 1}
        assert not [line for line in desk.lines if "warning" in line]
        desk.server.terminating.clear()
        desk.server.fail(refusals.forbidden(EVENTS, "x", "no right"), times=None)
        await desk.say(EventNote("Normal", "Again", "no right"))
        assert len([line for line in desk.lines if "warning" in line]) == 1

    run_virtual(main)


def test_no_event_is_written_without_leadership() -> None:
    """The same fence as for everything else."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock, fence=Fence(clock, until=0.0))
        await desk.say()
        assert desk.events == [] and desk.dropped == {"not the leader": 1}

    run_virtual(main)


def test_what_waits_and_what_is_remembered_is_limited() -> None:
    """A server that is away for a day must not cost the operator its memory."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        desk.task.cancel()
        for n in range(3 * SERIES_MAX):
            desk.recorder.record(Meta(name=f"j{n}", namespace="ml", uid=f"u{n}"), RESTARTING)
        assert desk.dropped == {"queue is full": 3 * SERIES_MAX - QUEUE_MAX}
        kept = [len(part) for part in vars(desk.recorder).values() if hasattr(part, "__len__")]
        assert max(kept) <= SERIES_MAX

    run_virtual(main)


def test_a_long_message_is_cut_to_what_the_server_takes() -> None:
    """The limit is in bytes, and Chinese letters have three."""

    async def main(clock: VirtualClock) -> None:
        desk = Desk(clock)
        await desk.say(EventNote("Warning", "Failed", "败" * 2000))
        await desk.say(job=Meta(name="n" * 253, namespace="ml", uid="u3"))
        first, second = sorted(desk.events, key=lambda e: len(e["metadata"]["name"]))
        assert first["note"].endswith("败...")
        assert len(first["note"].encode()) <= NOTE_BYTES_MAX
        assert len(second["metadata"]["name"]) <= 253

    run_virtual(main)
