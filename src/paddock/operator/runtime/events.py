"""Recorder: Notes as Events of the cluster, for `kubectl describe`. It never delays a reconcile.

The same note again within SERIES_SECONDS becomes a count on the Event that is there; a job that
says more than NOTES_A_MINUTE is cut short; what does not fit into the queue, or is refused again
and again, is counted and dropped.
Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from paddock.kube.client import EVENTS, PADDLE_JOBS, KubeError
from paddock.kube.objects import micro_time
from paddock.operator.runtime.guard import FencedError

if TYPE_CHECKING:
    from random import Random

    from paddock.kube.client import KubeClient, Manifest
    from paddock.kube.objects import Meta
    from paddock.operator.decision import EventNote
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.log import Logger
    from paddock.operator.runtime.metrics import Metrics

CONTROLLER = "paddock-operator"
SERIES_SECONDS = 360.0  # client-go's finishTime
NOTES_A_MINUTE = 30
QUEUE_MAX = 1000
SERIES_MAX = 4096
NOTE_BYTES_MAX = 1024  # validation of events.k8s.io/v1
NAME_MAX = 253
PAUSES_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)  # before an event is sent again

Same = tuple[str, str, str, str]  # (job's uid, type, reason, message)


@dataclass(slots=True)
class _Series:
    """An Event and how often it was recorded. name: "" until it is written."""

    job: Meta
    note: EventNote
    first_at: float
    last_at: float
    count: int = 1
    name: str = ""
    written: int = 0


@dataclass(eq=False)
class Recorder:
    """``record`` from anywhere in the loop; ``run`` writes."""

    client: KubeClient
    _: KW_ONLY
    clock: Clock
    rng: Random
    log: Logger
    metrics: Metrics
    instance: str

    def __post_init__(self) -> None:
        self._series: OrderedDict[Same, _Series] = OrderedDict()  # least recently said first
        self._minutes: OrderedDict[str, deque[float]] = OrderedDict()  # times, by job
        self._waiting: OrderedDict[Same, None] = OrderedDict()
        self._is_reported = False
        self._newest = 0  # microseconds: of the last name that was given
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def record(self, job: Meta, note: EventNote) -> None:
        """The note becomes an Event of that job, soon."""
        now = self.clock.now()
        if not self._is_within_limit(job.uid):
            self.metrics.events_dropped.add("too many of one job")
            return
        same = (job.uid, note.type, note.reason, note.message)
        series = self._series.pop(same, None)
        if series is None or now - series.last_at > SERIES_SECONDS:
            series = _Series(job, note, now, now)
        else:
            series.count += 1
            series.last_at = now
        self._series[same] = series
        while len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)
        if same not in self._waiting and len(self._waiting) >= QUEUE_MAX:
            self.metrics.events_dropped.add("queue is full")
            return
        self._waiting[same] = None
        self._wake.set()
        self._idle.clear()

    async def run(self) -> None:
        """Write what is recorded, in order, until cancelled."""
        while True:
            while self._waiting:
                same, _ = self._waiting.popitem(last=False)
                series = self._series.get(same)
                if series is not None:
                    await self._write(series)
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def flush(self) -> None:
        """Return when everything recorded so far was written or dropped."""
        await self._idle.wait()

    def _is_within_limit(self, uid: str) -> bool:
        now = self.clock.monotonic()
        times = self._minutes.pop(uid, None) or deque()
        self._minutes[uid] = times
        while len(self._minutes) > SERIES_MAX:
            self._minutes.popitem(last=False)
        while times and now - times[0] >= 60.0:
            times.popleft()
        if len(times) >= NOTES_A_MINUTE:
            return False
        times.append(now)
        return True

    async def _write(self, series: _Series) -> None:
        if series.written == series.count:
            return
        count = series.count
        try:
            await self._send(series, count)
            series.written = count
            self._is_reported = False
        except FencedError:
            self.metrics.events_dropped.add("not the leader")
        except KubeError as error:
            if error.status == 404 and series.name:
                series.name = ""  # Events live for an hour: it is a new one then.
            self.metrics.events_dropped.add("refused")
            log = self.log.debug
            if _is_of_rights(error) and not self._is_reported:
                self._is_reported = True  # Once, and from now on nothing waits for it.
                log = self.log.warning
            log("event was not written", reason=error.message)
        except Exception as error:  # noqa: BLE001  Events must not end the operator.
            self.metrics.events_dropped.add("failed")
            self.log.error("event was not written", cause=error)

    async def _send(self, series: _Series, count: int) -> None:
        """Asked again where that may help. Raises what was answered last."""
        namespace = series.job.namespace
        manifest, name = self._manifest(series)
        for pause in (*PAUSES_SECONDS, None):
            try:
                if series.name:
                    last = micro_time(series.last_at)
                    change = {"series": {"count": count, "lastObservedTime": last}}
                    await self.client.patch(EVENTS, namespace, series.name, change)
                else:
                    await self.client.create(EVENTS, namespace, manifest)
                    series.name = name
                return
            except KubeError as error:
                if error.reason == "AlreadyExists":  # An answer was lost; nobody has that name.
                    series.name = name
                    return
                # An API server that has just begun says 403 until it has read the roles.
                may_pass = error.retryable or (_is_of_rights(error) and not self._is_reported)
                if pause is None or not may_pass:
                    raise
            await self.clock.sleep(pause)

    def _manifest(self, series: _Series) -> tuple[Manifest, str]:
        job, note = series.job, series.note
        # In the order of time: kubectl describe keeps the order of names within a second.
        self._newest = max(self._newest + 1, int(series.first_at * 1e6))
        suffix = f".{self._newest:013x}{self.rng.getrandbits(24):06x}"
        name = job.name[: NAME_MAX - len(suffix)] + suffix
        manifest: Manifest = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": job.namespace},
            "eventTime": micro_time(series.first_at),
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance[:128],
            "action": "Reconcile",
            "type": note.type,
            "reason": note.reason[:128],
            "note": cut(note.message, NOTE_BYTES_MAX),
            "regarding": {
                "apiVersion": PADDLE_JOBS.api_version,
                "kind": PADDLE_JOBS.kind,
                "namespace": job.namespace,
                "name": job.name,
                "uid": job.uid,
                "resourceVersion": job.resourceVersion,
            },
        }
        if series.count > 1:
            last = micro_time(series.last_at)
            manifest["series"] = {"count": series.count, "lastObservedTime": last}
        return manifest, name


def cut(text: str, bytes_max: int) -> str:
    """The text, or its beginning and "..." where it is longer in UTF-8.

    >>> cut("训练失败", 12), cut("训练失败了", 12)
    ('训练失败', '训练失...')
    """
    coded = text.encode("utf-8", "replace")
    if len(coded) <= bytes_max:
        return text
    return coded[: bytes_max - 3].decode("utf-8", "ignore") + "..."


def _is_of_rights(error: KubeError) -> bool:
    return error.status in (401, 403) and not error.is_of_ending_namespace
