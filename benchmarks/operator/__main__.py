"""``python -m benchmarks.operator [name ...] [--quick] [--json FILE]``: measure, print one table.

Needs the control plane of tests/cluster (Go; built once). Targets: issue figures; the Go column is
paddle-operator v0.3.5 as measured elsewhere on a comparable machine, not in this run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.operator import kubelet
from benchmarks.operator.world import (
    ROOT,
    Operator,
    client_of,
    count_pods,
    create_jobs,
    install,
    job,
    wait_count,
)
from benchmarks.ps.figure import Figure, number, table
from paddock.kube.client import PADDLE_JOBS, PODS, Query

sys.path.insert(0, str(ROOT / "tests"))

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from cluster.control.plane import ControlPlane
    from paddock.kube.http_client import HttpClient

GO = {"create100": "3.8-8.8 s", "create400": "10-48 s", "writes": "23-204"}
IDLE_SECONDS = 60.0
LEASES = 'resource="leases"'
OWN = r'^(?!.*verb="watch")(?!.*resource="leases")'


async def creation(plane: ControlPlane, quick: bool) -> list[Figure]:
    """Time from the first PaddleJob's creation to the last pod's."""
    one = Figure("100-pod job: all pods created", "s", target=0.7)
    many = Figure("100 jobs x 4 pods: all pods created", "s", target=2.5)
    spent = Figure("operator's processor time for a pod", "ms")
    asked = Figure("100 jobs x 4 pods: the operator's requests for a job", "")
    one.notes["peer"], many.notes["peer"] = GO["create100"], GO["create400"]
    async with _client(plane) as client:
        for n in range(1 if quick else 3):
            operator = Operator(plane)
            try:
                await _warm(client, plane, f"warm-{n}")
                for figure, jobs in (
                    (one, [job(f"one-{n}", 100)]),
                    (many, [job(f"many-{n}-{i}", 2, 2) for i in range(100)]),
                ):
                    namespace = _namespace(plane, f"create-{len(jobs)}-{n}")
                    pods = sum(_size(j) for j in jobs)
                    waiting = asyncio.create_task(wait_count(client, PODS, namespace, pods))
                    await asyncio.sleep(0.2)
                    began = time.monotonic()
                    await create_jobs(client, namespace, jobs)
                    cpu, requests = operator.cpu_seconds, operator.requests(OWN)
                    figure.add("ours", await waiting - began)
                    spent.add("ours", 1000 * (operator.cpu_seconds - cpu) / pods)
                    if figure is many:
                        await asyncio.sleep(5.0)  # what is not urgent comes later
                        asked.add("ours", (operator.requests(OWN) - requests) / len(jobs))
            finally:
                operator.stop()
    return [one, many, spent, asked]


async def size(plane: ControlPlane, quick: bool) -> list[Figure]:
    """What the objects of a large job take in etcd, as JSON without managedFields."""
    pods = 100 if quick else 1000
    each = Figure("bytes of a pod, job of 10", "")
    large = Figure(f"bytes of a pod, job of {pods:,}", "")
    maps = Figure(f"bytes of the ConfigMap, job of {pods:,}", "kB")
    operator = Operator(plane)
    async with _client(plane) as client:
        try:
            for figure, count in ((each, 10), (large, pods)):
                namespace = _namespace(plane, f"size-{count}")
                await create_jobs(client, namespace, [job("size", count)])
                await wait_count(client, PODS, namespace, count)
                figure.add("ours", len(_text(plane, namespace, "pod", "size-worker-9")))
            maps.add("ours", len(_text(plane, namespace, "configmap", "size")) / 1000)
        finally:
            operator.stop()
    grown = Figure("bytes by which a pod grows for each other pod", "", target=1.0)
    grown.add("ours", (large.samples["ours"][0] - each.samples["ours"][0]) / (pods - 10))
    return [each, large, grown, maps]


async def status_writes(plane: ControlPlane, quick: bool) -> list[Figure]:
    """Status writes and other requests while 100 pods start and finish."""
    writes = Figure("status writes per change of a pod, 100-pod job", "", target=1.0)
    total = Figure("status writes of a 100-pod job, start to end", "")
    requests = Figure("requests while idle, but watches and the lease's", "", target=0.0)
    lease = Figure("the lease's requests in a minute", "")
    ready = Figure("100-pod job: made, run and Completed (fake kubelet)", "s")
    writes.notes["peer"] = f"{GO['writes']} per annotation"
    operator = Operator(plane)
    async with _client(plane) as client:
        player = kubelet.Kubelet(client, finishes=True)
        playing = asyncio.create_task(player.run())
        try:
            namespace = _namespace(plane, "writes")
            await asyncio.sleep(0.5)
            before = operator.requests('resource="paddlejobs/status"')
            began = time.monotonic()
            await create_jobs(client, namespace, [job("w", 100)])
            ended = await wait_count(client, PADDLE_JOBS, namespace, 1, _is_completed)
            ready.add("ours", ended - began)
            await asyncio.sleep(1.0)
            made = operator.requests('resource="paddlejobs/status"') - before
            writes.add("ours", made / max(1, player.changes))
            total.add("ours", made)
            seconds = 10 if quick else IDLE_SECONDS
            quiet, renewed = operator.requests(OWN), operator.requests(LEASES)
            await asyncio.sleep(seconds)
            requests.add("ours", operator.requests(OWN) - quiet)
            lease.add("ours", (operator.requests(LEASES) - renewed) * 60 / seconds)
        finally:
            playing.cancel()
            operator.stop()
    return [ready, writes, total, requests, lease]


async def memory(plane: ControlPlane, quick: bool) -> list[Figure]:
    """Resident memory with thousands of pods in the cache."""
    pods = 500 if quick else 5000
    rss = Figure(f"RSS with {pods:,} pods cached", "MB", target=80.0)
    empty = Figure("RSS with no job", "MB")
    peak = Figure(f"RSS after making {pods:,} pods itself", "MB")
    again = Figure(f"start with {pods:,} pods to ready", "s")
    namespace = _namespace(plane, "memory")
    operator = Operator(plane)
    empty.add("ours", operator.rss_mb)
    async with _client(plane) as client:
        jobs = [job(f"m-{i}", 50) for i in range(pods // 50)]
        await create_jobs(client, namespace, jobs)
        await wait_count(client, PODS, namespace, pods)
        await asyncio.sleep(2.0)
        peak.add("ours", operator.rss_mb)
        operator.stop()
        began = time.monotonic()
        operator = Operator(plane)
        again.add("ours", time.monotonic() - began)
        await asyncio.sleep(2.0)
        rss.add("ours", operator.rss_mb)
        operator.stop()
    plane.kubectl("delete", "namespace", namespace, "--wait=false")
    return [empty, rss, peak, again]


async def failover(plane: ControlPlane, quick: bool) -> list[Figure]:
    """kill -9 of the leader until the other makes pods; and whether any was made twice."""
    away = Figure("leader killed to the next job's pods", "s", target=10.0)
    handed = Figure("leader stopped (SIGTERM) to the next job's pods", "s")
    twice = Figure("pods made twice over a fail-over", "", target=0.0)
    async with _client(plane) as client:
        for n, (figure, end) in enumerate(((away, Operator.kill), (handed, Operator.stop))):
            first = Operator(plane)
            second = Operator(plane)
            try:
                namespace = _namespace(plane, f"failover-{n}")
                await create_jobs(client, namespace, [job("before", 20)])
                await wait_count(client, PODS, namespace, 20)
                made = await count_pods(client, namespace)
                leads = first if first.metrics().get("paddock_is_leader") == 1 else second
                began = time.monotonic()
                await create_jobs(client, namespace, [job("during", 20)])
                end(leads)
                await create_jobs(client, namespace, [job("after", 20)])
                figure.add("ours", await wait_count(client, PODS, namespace, 60) - began)
                now = await count_pods(client, namespace)
                twice.add("ours", sum(1 for name, uid in made.items() if now.get(name) != uid))
            finally:
                first.stop()
                second.stop()
    return [away, handed, twice]


async def churn(plane: ControlPlane, quick: bool) -> list[Figure]:
    """Jobs made, run to their end and deleted: what is left in memory."""
    jobs = 100 if quick else 1000
    start = Figure(f"churn of {jobs:,} jobs: RSS after the first tenth", "MB")
    ended = Figure(f"churn of {jobs:,} jobs: RSS at the end", "MB")
    took = Figure(f"churn of {jobs:,} jobs x 2 pods", "s")
    operator = Operator(plane)
    async with _client(plane) as client:
        player = kubelet.Kubelet(client, finishes=True)
        playing = asyncio.create_task(player.run())
        try:
            namespace = _namespace(plane, "churn")
            began = time.monotonic()
            for wave in range(10):
                names = [f"c-{wave}-{i}" for i in range(jobs // 10)]
                await create_jobs(client, namespace, [job(name, 2) for name in names])
                await wait_count(client, PADDLE_JOBS, namespace, len(names), _is_completed)
                for name in names:
                    await client.delete(PADDLE_JOBS, namespace, name)
                await _wait_none(client, namespace)
                (start if wave == 0 else ended).samples["ours"] = [operator.rss_mb]
            took.add("ours", time.monotonic() - began)
        finally:
            playing.cancel()
            operator.stop()
    return [start, ended, took]


NAMES: dict[str, Callable[[ControlPlane, bool], Coroutine[None, None, list[Figure]]]] = {
    "creation": creation,
    "size": size,
    "writes": status_writes,
    "memory": memory,
    "failover": failover,
    "churn": churn,
}


def main() -> int:
    """Run the named benchmarks, or all; 1 when a target was missed."""
    words = argparse.ArgumentParser(prog="python -m benchmarks.operator")
    words.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; all")
    words.add_argument("--quick", action="store_true", help="small and once: a minute or two")
    words.add_argument("--json", metavar="FILE", help="write every sample to FILE")
    args = words.parse_args()
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        words.error(f"no benchmark '{unknown[0]}'; there are: {', '.join(NAMES)}")
    # SIGTERM unwinds, so that nothing is left behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    from cluster.control.plane import ControlPlane

    figures: list[Figure] = []
    began, load = time.monotonic(), os.getloadavg()[0]
    for name in args.names or list(NAMES):
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        at = time.monotonic()
        with ControlPlane() as plane:  # a fresh one each: no figure pays for another's objects
            install(plane)
            figures += asyncio.run(NAMES[name](plane, args.quick))
        print(f"{time.monotonic() - at:.0f} s", file=sys.stderr, flush=True)
    print(table(figures))
    print(
        f"\n{os.cpu_count()} cores, Python {platform.python_version()}; load average {load:.1f} "
        f"before, {os.getloadavg()[0]:.1f} after; {time.monotonic() - began:.0f} s; peer: "
        "paddle-operator v0.3.5 on another run and machine"
    )
    if args.json:
        Path(args.json).write_text(json.dumps([f.as_json() for f in figures], indent=1))
    missed = [
        f"{f.name} ({number(f.result('ours'), f.unit)})" for f in figures if f.is_met is False
    ]
    if missed:
        print("missed: " + "; ".join(missed))
    return 1 if missed else 0


@contextlib.asynccontextmanager
async def _client(plane: ControlPlane) -> AsyncIterator[HttpClient]:
    client = client_of(plane)
    try:
        yield client
    finally:
        await client.close()


async def _warm(client: HttpClient, plane: ControlPlane, name: str) -> None:
    """One small job: what an API server does once for a kind is nobody's figure."""
    _namespace(plane, name)
    await create_jobs(client, name, [job("first", 1)])
    await wait_count(client, PODS, name, 1)


def _namespace(plane: ControlPlane, name: str) -> str:
    plane.kubectl("create", "namespace", name)
    return name


def _text(plane: ControlPlane, namespace: str, kind: str, name: str) -> str:
    found = json.loads(plane.kubectl("get", kind, name, "-n", namespace, "-o", "json").stdout)
    return json.dumps(found, separators=(",", ":"))


def _size(manifest: dict[str, object]) -> int:
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    return sum(spec[role]["replicas"] for role in ("worker", "ps") if role in spec)


def _is_completed(found: object) -> bool:
    status = getattr(found, "status", None)
    return isinstance(status, dict) and status.get("phase") == "Completed"


async def _wait_none(client: HttpClient, namespace: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        page = await client.page(PODS, Query(namespace))
        if not page.items:
            return
        await asyncio.sleep(0.2)
    raise RuntimeError(f"pods are left in {namespace}")


if __name__ == "__main__":
    sys.exit(main())
