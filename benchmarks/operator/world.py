"""One control plane, operators as real processes, and jobs: what every figure needs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.kube.client import PADDLE_JOBS, PODS, KubeError, Query, Resource
from paddock.kube.connect import find_config
from paddock.kube.http_client import HttpClient, open_client
from paddock.operator.names import LABEL_JOB

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.control.plane import ControlPlane

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT_SECONDS_MAX = 180.0


class Operator:
    """``paddock operator run`` in a process of its own, with leader election as it is shipped."""

    def __init__(self, plane: ControlPlane, *words: str) -> None:
        self.port, self.health_port = _free_ports(2)
        self.log = plane.folder / f"operator-{self.port}.log"
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = (
            sys.executable, "-m", "paddock", "operator", "run",
            "--kubeconfig", str(plane.kubeconfig),
            "--metrics-bind-address", f"127.0.0.1:{self.port}",
            "--health-probe-bind-address", f"127.0.0.1:{self.health_port}",
            "--leader-elect", "--leader-election-namespace", "default", *words,
        )  # fmt: skip
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
        self._wait_ready()

    def _wait_ready(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"the operator ended: {self.log.read_text()[-2000:]}")
            with contextlib.suppress(OSError):
                url = f"http://127.0.0.1:{self.health_port}/readyz"
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.status == 200:
                        return
            time.sleep(0.05)
        raise RuntimeError(f"the operator is not ready: {self.log.read_text()[-2000:]}")

    def metrics(self) -> dict[str, float]:
        """Every sample, by its name with labels."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        found = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, _, number = line.rpartition(" ")
                found[name] = float(number)
        return found

    def requests(self, pattern: str = "") -> float:
        """API requests so far whose sample name matches."""
        return sum(
            number
            for name, number in self.metrics().items()
            if name.startswith("paddock_api_requests_total") and re.search(pattern, name)
        )

    @property
    def rss_mb(self) -> float:
        """Resident memory, MB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1000

    @property
    def cpu_seconds(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, as a Deployment does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()


def install(plane: ControlPlane) -> None:
    """The definition of PaddleJob, until it is served."""
    plane.kubectl("apply", "-f", str(ROOT / "deploy/v1/crd.yaml"))
    until = time.monotonic() + 30
    while plane.kubectl("get", "paddlejobs", check=False).returncode:
        if time.monotonic() > until:
            raise RuntimeError("paddlejobs are not served")
        time.sleep(0.1)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def job(name: str, workers: int, servers: int = 0) -> dict[str, object]:
    """A PaddleJob whose pods are never run."""
    template = {"spec": {"containers": [{"name": "paddle", "image": "example.invalid/none"}]}}
    spec: dict[str, object] = {"worker": {"replicas": workers, "template": template}}
    if servers:
        spec["ps"] = {"replicas": servers, "template": template}
    return {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": name},
        "spec": {"cleanPodPolicy": "Never", **spec},
    }


def client_of(plane: ControlPlane) -> HttpClient:
    """A client of the benchmark's own; call it inside the loop that uses it."""
    return open_client(find_config(str(plane.kubeconfig)))


async def create_jobs(client: HttpClient, namespace: str, jobs: list[dict[str, object]]) -> None:
    """All at once, 16 in flight."""
    slots = asyncio.Semaphore(16)

    async def one(manifest: dict[str, object]) -> None:
        async with slots:
            await client.create(PADDLE_JOBS, namespace, manifest)

    await asyncio.gather(*(one(manifest) for manifest in jobs))


async def wait_count(
    client: HttpClient,
    resource: Resource[object],
    namespace: str,
    count: int,
    accept: Callable[[object], bool] = lambda found: True,
) -> float:
    """When so many objects were there: the monotonic second at which the watch told the last."""
    query = Query(namespace, labels="" if resource is PADDLE_JOBS else LABEL_JOB)
    page = await client.page(resource, query)
    there = {o.metadata.uid for o in page.items if accept(o)}
    if len(there) >= count:
        return time.monotonic()
    until = time.monotonic() + WAIT_SECONDS_MAX
    version = page.resource_version
    while time.monotonic() < until:
        with contextlib.suppress(KubeError):
            async for change in client.watch(
                resource, query, resource_version=version, timeout_seconds=30
            ):
                version = change.object.metadata.resourceVersion
                if change.kind in ("added", "modified") and accept(change.object):
                    there.add(change.object.metadata.uid)
                if len(there) >= count:
                    return time.monotonic()
    raise RuntimeError(f"{len(there)} of {count} {resource.plural} after {WAIT_SECONDS_MAX:.0f} s")


async def count_pods(client: HttpClient, namespace: str) -> dict[str, str]:
    """Pod name -> uid."""
    found: dict[str, str] = {}
    rest = ""
    while True:
        page = await client.page(PODS, Query(namespace, labels=LABEL_JOB), rest=rest)
        found.update({p.metadata.name: p.metadata.uid for p in page.items})
        rest = page.rest
        if not rest:
            return found
