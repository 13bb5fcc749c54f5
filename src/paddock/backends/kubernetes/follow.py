"""The logs of all pods of a job as one stream, also while it runs.

    2026-01-01T00:00:00.123456789Z [rank 3] loss 0.25
    time, to the nanosecond        process    text of the line

Lines without a process are the launcher's own. A pod whose log cannot be read, or whose node does
not answer, does not keep back the others' lines: it is named when those have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime, timezone

from paddock.backends.kubernetes.parse import (
    LOST,
    ObservedJob,
    container_of,
    is_lost,
    newest_pods,
    status_of,
)
from paddock.backends.types import LogChunk, LogQuery
from paddock.errors import Problem, refuse
from paddock.kube.client import PODS, KubeError
from paddock.kube.connect import find_config
from paddock.kube.http_client import HttpClient, open_client
from paddock.kube.objects import Pod, rfc3339

Look = Callable[[HttpClient], Awaitable[ObservedJob]]

POLL_SECONDS = 1.0
# Lines of different pods that come within this time are put in order of their times.
ORDER_SECONDS = 0.3
# A container that has not started has no log yet; one that was removed has none any more.
NO_LOG = (400, 404)
LINE = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ?(.*)", re.DOTALL)
# What `launch` puts before a line of a process.
PROCESS = re.compile(rb"\[(rank|server|heter worker) (\d+)\] ")
NS = 1_000_000_000


def stream(
    kubeconfig: str, context: str, namespace: str, look: Look, query: LogQuery
) -> Iterator[LogChunk]:
    """Yield lines in order of time; with follow until the job has ended.

    Raises KubeError, UsageError. The event loop runs only while the next chunk is waited for.
    """
    loop = asyncio.new_event_loop()
    client = open_client(find_config(kubeconfig, context))
    logs = PodLogs(client, namespace, look, query)
    source = logs.follow() if query.follow else logs.whole()
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(source))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(source.aclose())
        loop.run_until_complete(client.close())
        loop.close()


class PodLogs:
    """The logs of a job's pods, as far as a query wants them."""

    def __init__(self, client: HttpClient, namespace: str, look: Look, query: LogQuery) -> None:
        self._client = client
        self._namespace = namespace
        self._look = look
        self._query = query
        self._missing: dict[str, str] = {}  # pod -> why its log is not whole
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by uid: the pods that are followed
        self._queue: asyncio.Queue[LogChunk] = asyncio.Queue(maxsize=10_000)

    async def whole(self) -> AsyncGenerator[LogChunk, None]:
        """Yield what there is. Raises UsageError at the end, with the logs that are missing."""
        pods = newest_pods(await self._look(self._client))
        self._missing = {name: LOST for name, pod in pods.items() if is_lost(pod)}
        streams = [self._read(*one) for one in pods.items() if one[0] not in self._missing]
        heap: list[tuple[int, int, LogChunk]] = []

        async def push(number: int) -> None:
            with contextlib.suppress(StopAsyncIteration):
                piece = await anext(streams[number])
                heapq.heappush(heap, (piece.at_ns, number, piece))

        for number in range(len(streams)):
            await push(number)
        while heap:
            _, number, piece = heap[0]
            yield piece
            heapq.heappop(heap)
            await push(number)
        self._refuse_missing()

    def _refuse_missing(self) -> None:
        refuse([Problem(f"logs of {name}: {why}") for name, why in self._missing.items()])

    async def _read(self, name: str, pod: Pod) -> AsyncIterator[LogChunk]:
        try:
            async for piece in self.pieces(name, pod):
                yield piece
        except KubeError as error:
            self._missing[name] = error.message

    async def follow(self) -> AsyncGenerator[LogChunk, None]:
        """Yield what there is, and what comes until the job has ended; raises as whole() does."""
        overseer = asyncio.ensure_future(self._oversee())
        try:
            while not (overseer.done() and self._queue.empty()):
                waiting = asyncio.ensure_future(self._queue.get())
                await asyncio.wait({waiting, overseer}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    waiting.cancel()
                    continue
                found = [waiting.result()]
                # sleep: lines of other pods at the same time arrive a little later
                await asyncio.sleep(ORDER_SECONDS)
                while not self._queue.empty():
                    found.append(self._queue.get_nowait())
                for piece in sorted(found, key=lambda piece: piece.at_ns):
                    yield piece
            overseer.result()
        finally:
            for task in (overseer, *self._tasks.values()):
                task.cancel()
            await asyncio.gather(overseer, *self._tasks.values(), return_exceptions=True)

    async def _oversee(self) -> None:
        """Follow every pod that appears, until the job has ended and all was read."""

        async def queue(name: str, pod: Pod) -> None:
            async for piece in self._read(name, pod):
                await self._queue.put(piece)

        while True:
            seen = await self._look(self._client)
            pods = newest_pods(seen)
            for name, pod in pods.items():
                uid = pod.metadata.uid
                if uid not in self._tasks and pod.status.phase not in ("", "Pending"):
                    self._tasks[uid] = asyncio.ensure_future(queue(name, pod))
            if status_of(seen).is_final:
                break
            # sleep: new pods are rare
            await asyncio.sleep(POLL_SECONDS)
        for name, pod in pods.items():
            if is_lost(pod) and pod.metadata.uid in self._tasks:
                self._tasks[pod.metadata.uid].cancel()
                self._missing[name] = LOST
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._refuse_missing()

    async def pieces(self, name: str, pod: Pod) -> AsyncIterator[LogChunk]:
        """Yield a pod's lines; a stream that breaks while it exists is resumed where it broke."""
        query, pod_name = self._query, pod.metadata.name
        params = {"timestamps": "true", "container": container_of(pod)}
        params |= {"follow": "true"} if query.follow else {}
        last = int(query.since * 1e9)
        seen_at_last = 0
        while True:
            if last:
                params["sinceTime"] = rfc3339(last // NS)  # cut: the server reads no fraction
            skip, resumed_at = seen_at_last, last
            try:
                lines = self._client.lines(PODS, self._namespace, pod_name, "log", params)
                async for line in lines:
                    piece, rank = piece_of(name, line)
                    if seen_at_last and piece.at_ns < resumed_at:
                        continue
                    if skip and piece.at_ns == resumed_at:
                        skip -= 1
                        continue
                    seen_at_last = seen_at_last + 1 if piece.at_ns == last else 1
                    last = max(last, piece.at_ns)
                    if is_wanted(piece, rank, query):
                        yield piece
            except KubeError as error:
                if error.status in NO_LOG:
                    return
                if error.status or not query.follow:
                    raise
            if not query.follow or await self._has_ended(pod_name):
                return
            # sleep: the server, or something on the way to it, has closed the stream
            await asyncio.sleep(POLL_SECONDS)

    async def _has_ended(self, pod_name: str) -> bool:
        """Return True if a pod writes no more lines; False if it cannot be asked for."""
        try:
            found = await self._client.get(PODS, self._namespace, pod_name)
        except KubeError as error:
            return error.status == 404
        return found.status.phase in ("Succeeded", "Failed")


def piece_of(pod: str, line: bytes) -> tuple[LogChunk, int | None]:
    """Return a line's log chunk and its worker's rank; None for a server's and the launcher's.

    >>> piece, rank = piece_of("a-1", b"1970-01-01T00:00:01.5Z [rank 3] loss 0.25\\n")
    >>> piece.at_ns, piece.label, piece.data, rank
    (1500000000, 'a-1 rank 3', b'loss 0.25\\n', 3)
    """
    at_ns, said = split_time(line)
    found = PROCESS.match(said)
    if found is None:
        return LogChunk(at_ns, pod, said), None
    role, rank = found[1].decode(), int(found[2])
    piece = LogChunk(at_ns, f"{pod} {role} {rank}", said[found.end() :])
    return piece, rank if role == "rank" else None


def split_time(line: bytes) -> tuple[int, bytes]:
    """Return (nanoseconds since 1970, the rest); 0 for a line without time."""
    found = LINE.fullmatch(line)
    if found is None:
        return 0, line
    at = datetime.fromisoformat(found[1].decode()).replace(tzinfo=timezone.utc)
    fraction = int((found[2] or b"0").ljust(9, b"0"))
    return int(at.timestamp()) * NS + fraction, found[3]


def is_wanted(piece: LogChunk, rank: int | None, query: LogQuery) -> bool:
    """Return True if a query matches the line. rank: None for servers' and the launcher's lines."""
    if query.ranks and rank not in query.ranks:
        return False
    if query.since and piece.at_ns < query.since * NS:
        return False
    return not query.until or piece.at_ns <= query.until * NS
