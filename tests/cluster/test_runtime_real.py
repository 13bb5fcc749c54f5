"""The runtime with the toy reconcile on a real API server: what memory cannot be trusted with.

Operators are processes of their own, so that SIGKILL is one. Pods have no nodes; their status is
written by the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from machine.toy import job_manifest
from paddock.kube.client import PODS, KubeError, Query
from paddock.kube.connect import find_config
from paddock.kube.http_client import open_client
from paddock.operator.manifests.crd import crd_text
from stopped import stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.plane import ControlPlane

ROOT = Path(__file__).resolve().parent.parent.parent
WAIT = "--timeout=120s"


class Process:
    """One operator. Its lines are in ``said``, and ``heard`` waits for one."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str, *, flags: tuple[str, ...]):
        command = [
            sys.executable, "-m", "machine.toy_operator", f"--kubeconfig={plane.kubeconfig}",
            f"--namespace={namespace}", "--metrics-bind-address=0",
            "--health-probe-bind-address=0", "--log-level=debug", *flags,
        ]  # fmt: skip
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
        self.name = name
        self.said: list[str] = []
        self._heard = threading.Condition()
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def heard(self, text: str, *, times: int = 1) -> None:
        """Return when it has said that so often; fails after a minute."""
        with self._heard:
            found = self._heard.wait_for(
                lambda: sum(text in line for line in self.said) >= times, timeout=60
            )
        assert found, f"{self.name} did not say '{text}':\n{''.join(self.said[-40:])}"

    def end(self, number: int) -> int:
        """Send that signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(10)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                with self._heard:
                    self.said.append(line)
                    self._heard.notify_all()


class Stage:
    """A namespace of a real cluster, operators in it, and a witness of every pod made."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.processes: list[Process] = []

    def start(self, name: str, *flags: str) -> Process:
        """One more operator."""
        self.processes.append(Process(self.plane, self.namespace, name, flags=flags))
        return self.processes[-1]

    def elected(self, name: str) -> Process:
        """One that takes part in an election of this namespace."""
        return self.start(name, "--leader-elect", f"--leader-election-namespace={self.namespace}")

    def submit(self, name: str, replicas: int) -> None:
        """A user makes a job."""
        manifest = job_manifest(name, replicas)
        for role in ("worker",):
            spec: Any = manifest["spec"]
            spec[role]["template"] = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        manifest["metadata"] = {"name": name, "namespace": self.namespace}
        self.plane.apply(manifest)

    def wait(self, name: str, path: str, value: str) -> None:
        """Until a field of the job has that value."""
        self.kubectl("wait", f"pdj/{name}", f"--for=jsonpath={{{path}}}={value}", WAIT)

    def kubectl(self, *words: str) -> str:
        """kubectl in the namespace."""
        return self.plane.kubectl(*words, "-n", self.namespace).stdout

    def pods(self) -> dict[str, str]:
        """Name and uid of every pod."""
        found: Any = json.loads(self.kubectl("get", "pods", "-o", "json"))
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in found["items"]}

    def set_phase(self, phase: str, *names: str) -> None:
        """What the kubelets would write."""
        asyncio.run(self._set_phase(phase, names))

    async def _set_phase(self, phase: str, names: tuple[str, ...]) -> None:
        client = open_client(find_config(str(self.plane.kubeconfig)))
        try:
            change = {"status": {"phase": phase}}
            for name in names or tuple(self.pods()):
                await client.patch(PODS, self.namespace, name, change, subresource="status")
        finally:
            await client.close()


class Witness:
    """Writes down the uid of every pod that is ever made in a namespace."""

    def __init__(self, stage: Stage) -> None:
        self.made: list[tuple[str, str]] = []
        self._stage = stage
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), daemon=True)
        self._stop = threading.Event()
        self._ready = threading.Event()

    def __enter__(self) -> Witness:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    async def _follow(self) -> None:
        client = open_client(find_config(str(self._stage.plane.kubeconfig)))
        following = asyncio.ensure_future(self._watch(client))
        while not self._stop.is_set() and not following.done():
            await asyncio.sleep(0.05)  # sleep: between two worlds, threads and tasks
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()

    async def _watch(self, client: Any) -> None:
        version = (await client.page(PODS, Query(self._stage.namespace))).resource_version
        self._ready.set()
        while True:
            try:
                async for change in client.watch(
                    PODS, Query(self._stage.namespace),
                    resource_version=version, timeout_seconds=300.0,
                ):  # fmt: skip
                    meta = change.object.metadata
                    version = meta.resourceVersion
                    if change.kind == "added":
                        self.made.append((meta.name, meta.uid))
            except KubeError:
                await asyncio.sleep(0.1)  # sleep: the server restarts


@pytest.fixture
def stage(plane: ControlPlane, namespace: str) -> Iterator[Stage]:
    """Operators are ended after the test, their last lines shown where it failed."""
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=crd_text())
    name = "crd/paddlejobs.batch.paddlepaddle.org"
    plane.kubectl("wait", "--for=condition=Established", name, "--timeout=60s")
    made = Stage(plane, namespace)
    yield made
    for process in made.processes:
        process.end(signal.SIGKILL)
        print(f"---- {process.name}", *process.said[-60:], sep="\n")
    plane.mend()
    made.kubectl("delete", "pdj", "--all", "--wait=false")


def test_a_job_fails_restarts_and_completes(stage: Stage) -> None:
    """Every kind of write on the real thing: create, status, delete by uid, event."""
    operator = stage.start("operator")
    operator.heard("working")
    stage.submit("demo", 3)
    stage.wait("demo", ".status.message", "3/3 pods")
    first = stage.pods()
    stage.set_phase("Running")
    stage.wait("demo", ".status.phase", "Running")
    stage.set_phase("Failed", "demo-worker-1")
    stage.wait("demo", ".status.attempt", "1")
    stage.wait("demo", ".status.message", "3/3 pods")
    assert sorted(stage.pods()) == sorted(first)
    assert not set(stage.pods().values()) & set(first.values())
    stage.set_phase("Succeeded")
    stage.wait("demo", ".status.phase", "Completed")
    assert operator.end(signal.SIGTERM) == 0
    assert not any(" error " in line or "Traceback" in line for line in operator.said)
    told = stage.kubectl("describe", "pdj/demo")
    assert "Restarting" in told and "attempt 1" in told and "Completed" in told


def test_a_killed_leader_is_replaced_without_double_creation(stage: Stage) -> None:
    """SIGKILL in the midst of 300 pods. That it takes 8 s at most is tested in made-up time."""
    first = stage.elected("first")
    first.heard("working")
    second = stage.elected("second")
    with Witness(stage) as witness:
        stage.submit("demo", 300)
        stage.kubectl("wait", "--for=create", "pod/demo-worker-30", WAIT)
        first.end(signal.SIGKILL)
        stage.wait("demo", ".status.message", "300/300 pods")
        second.heard("leading")
        pods = stage.pods()
    assert sorted(witness.made) == sorted(pods.items()) and len(pods) == 300


def test_a_leader_that_is_told_to_end_hands_over(stage: Stage) -> None:
    """SIGTERM: the lease is given back, and no second is lost by waiting for its end."""
    first = stage.elected("first")
    first.heard("working")
    second = stage.elected("second")
    second.heard("listed kind=leases")
    assert first.end(signal.SIGTERM) == 0
    assert any("gave the lease back" in line for line in first.said)
    second.heard("working")
    stage.submit("demo", 2)
    stage.wait("demo", ".status.message", "2/2 pods")


def test_a_restart_of_the_api_server_is_survived(stage: Stage) -> None:
    """Watches die, calls fail, the version goes on; nothing is made twice."""
    operator = stage.start("operator")
    operator.heard("working")
    with Witness(stage) as witness:
        stage.submit("before", 200)
        stage.kubectl("wait", "--for=create", "pod/before-worker-20", WAIT)
        stage.plane.restart_apiserver()
        stage.submit("after", 5)
        stage.wait("before", ".status.message", "200/200 pods")
        stage.wait("after", ".status.message", "5/5 pods")
        pods = stage.pods()
    assert len(pods) == 205
    assert len(witness.made) == len(set(witness.made))
    assert {name for name, _ in witness.made} <= set(pods)
    assert operator.process.poll() is None


def test_compaction_makes_it_list_again(stage: Stage) -> None:
    """What was deleted while it could not see is known by its absence."""
    operator = stage.start("operator")
    operator.heard("working")
    stage.submit("demo", 4)
    stage.wait("demo", ".status.message", "4/4 pods")
    stop([operator.process.pid])
    try:
        stage.kubectl("delete", "pod", "demo-worker-2", "--grace-period=0", "--force")
        stage.plane.compact()
    finally:
        operator.process.send_signal(signal.SIGCONT)
    stage.kubectl("wait", "--for=create", "pod/demo-worker-2", WAIT)
    stage.wait("demo", ".status.message", "4/4 pods")
    operator.heard("version is too old")
    assert operator.process.poll() is None


def test_a_leader_that_was_frozen_writes_nothing_with_its_old_lease(stage: Stage) -> None:
    """SIGSTOP for longer than its lease, as a machine that is suspended; another leads by then."""
    first = stage.elected("first")
    first.heard("working")
    second = stage.elected("second")
    second.heard("listed kind=leases")
    stop([first.process.pid])
    try:
        second.heard("working")
        with Witness(stage) as witness:
            stage.submit("demo", 20)
            first.process.send_signal(signal.SIGCONT)
            first.heard("lost the lease")
            stage.wait("demo", ".status.message", "20/20 pods")
            pods = stage.pods()
    finally:
        first.process.send_signal(signal.SIGCONT)
    assert sorted(witness.made) == sorted(pods.items())
    assert sum("leading" in line for line in first.said) == 1
