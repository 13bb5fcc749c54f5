"""The logs of all pods of a job as one stream, also while it runs.

A pod whose log cannot be read, or whose node does not answer, does not keep back the others' lines:
it is named when those have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
)

from paddock.backends.kubernetes.lines import NS, is_wanted, piece_of
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


def stream(
    kubeconfig: str, context: str, namespace: str, look: Look, query: LogQuery
) -> Iterator[LogChunk]:
    """Yield lines in order of time; with follow until the job has ended.

    Raises KubeError, UsageError. The event loop runs only while the next chunk is waited for.
    """
    loop = asyncio.new_event_loop()
    client = open_client(find_config(kubeconfig, context))
    source = (_follow if query.follow else _whole)(client, namespace, look, query)
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


async def _whole(
    client: HttpClient, namespace: str, look: Look, query: LogQuery
) -> AsyncGenerator[LogChunk, None]:
    pods = newest_pods(await look(client))
    missing = {name: LOST for name, pod in pods.items() if is_lost(pod)}
    streams = [
        _noted(missing, name, _pieces(client, namespace, name, pod, query, is_followed=False))
        for name, pod in pods.items()
        if name not in missing
    ]
    heap: list[tuple[int, int, LogChunk]] = []
    for number, one in enumerate(streams):
        await _push(heap, number, one)
    while heap:
        _, number, piece = heap[0]
        yield piece
        heapq.heappop(heap)
        await _push(heap, number, streams[number])
    refuse([Problem(f"logs of {name}: {why}") for name, why in missing.items()])


async def _noted(
    missing: dict[str, str], name: str, pieces: AsyncIterator[LogChunk]
) -> AsyncIterator[LogChunk]:
    """Yield the chunks; if their stream fails, store why in `missing`."""
    try:
        async for piece in pieces:
            yield piece
    except KubeError as error:
        missing[name] = error.message


async def _push(
    heap: list[tuple[int, int, LogChunk]], number: int, one: AsyncIterator[LogChunk]
) -> None:
    with contextlib.suppress(StopAsyncIteration):
        piece = await anext(one)
        heapq.heappush(heap, (piece.at_ns, number, piece))


async def _follow(
    client: HttpClient, namespace: str, look: Look, query: LogQuery
) -> AsyncGenerator[LogChunk, None]:
    queue: asyncio.Queue[LogChunk] = asyncio.Queue(maxsize=10_000)
    tasks: dict[str, asyncio.Task[None]] = {}
    overseer = asyncio.ensure_future(_oversee(client, namespace, look, query, queue, tasks))
    try:
        while not (overseer.done() and queue.empty()):
            waiting = asyncio.ensure_future(queue.get())
            await asyncio.wait({waiting, overseer}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                waiting.cancel()
                continue
            yield_now = [waiting.result()]
            # sleep: lines of other pods at the same time arrive a little later
            await asyncio.sleep(ORDER_SECONDS)
            while not queue.empty():
                yield_now.append(queue.get_nowait())
            for piece in sorted(yield_now, key=lambda piece: piece.at_ns):
                yield piece
        overseer.result()
    finally:
        for task in (overseer, *tasks.values()):
            task.cancel()
        await asyncio.gather(overseer, *tasks.values(), return_exceptions=True)


async def _oversee(
    client: HttpClient,
    namespace: str,
    look: Look,
    query: LogQuery,
    queue: asyncio.Queue[LogChunk],
    tasks: dict[str, asyncio.Task[None]],
) -> None:
    """Follow every pod that appears, until the job has ended and all was read."""

    missing: dict[str, str] = {}

    async def read(name: str, pod: Pod) -> None:
        pieces = _pieces(client, namespace, name, pod, query, is_followed=True)
        async for piece in _noted(missing, name, pieces):
            await queue.put(piece)

    while True:
        seen = await look(client)
        pods = newest_pods(seen)
        for name, pod in pods.items():
            if pod.metadata.uid not in tasks and pod.status.phase not in ("", "Pending"):
                following = asyncio.ensure_future(read(name, pod))
                tasks[pod.metadata.uid] = following
        if status_of(seen).is_final:
            break
        # sleep: new pods are rare
        await asyncio.sleep(POLL_SECONDS)
    for name, pod in pods.items():
        if is_lost(pod) and pod.metadata.uid in tasks:
            tasks[pod.metadata.uid].cancel()
            missing[name] = LOST
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    refuse([Problem(f"logs of {name}: {why}") for name, why in missing.items()])


async def _pieces(
    client: HttpClient,
    namespace: str,
    name: str,
    pod: Pod,
    query: LogQuery,
    *,
    is_followed: bool,
) -> AsyncIterator[LogChunk]:
    """Yield a pod's lines; a stream that breaks while the pod exists is resumed where it broke."""
    params = {"timestamps": "true", "container": container_of(pod)}
    params |= {"follow": "true"} if is_followed else {}
    last = int(query.since * 1e9)
    seen_at_last = 0
    while True:
        if last:
            params["sinceTime"] = rfc3339(last // NS)  # cut: the server reads no fraction
        skip, resumed_at = seen_at_last, last
        try:
            async for line in client.lines(PODS, namespace, pod.metadata.name, "log", params):
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
            if error.status or not is_followed:
                raise
        if not is_followed or await _has_ended(client, namespace, pod.metadata.name):
            return
        # sleep: the server, or something on the way to it, has closed the stream
        await asyncio.sleep(POLL_SECONDS)


async def _has_ended(client: HttpClient, namespace: str, pod: str) -> bool:
    """Return True if a pod writes no more lines; False if it cannot be asked for."""
    try:
        found = await client.get(PODS, namespace, pod)
    except KubeError as error:
        return error.status == 404
    return found.status.phase in ("Succeeded", "Failed")
