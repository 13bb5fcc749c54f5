"""`paddock operator run` as a process beside a test cluster, with the rights of its ServiceAccount.

install(plane)
with Operator(plane) as operator:
    operator.kill()
    operator.start()
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from cluster.control.ground import ClusterError, free_ports

if TYPE_CHECKING:
    from cluster.control.plane import ControlPlane

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE, ACCOUNT = "paddle-system", "paddle-manager-sa"
DEFINITION = "crd/paddlejobs.batch.paddlepaddle.org"
READY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 20.0
TAIL_LINES = 80
POLL_SECONDS = 0.05


class Operator:
    """One operator; a context manager. It can be killed and started again, its log goes on."""

    _made = 0

    def __init__(self, plane: ControlPlane, *words: str) -> None:
        """Nothing is started yet. words: more flags of the command."""
        Operator._made += 1
        self._plane = plane
        self._words = words
        self.log = plane.folder / "log" / f"operator-{Operator._made}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Operator:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process; 0 when it does not run."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else 0

    def start(self, *, wait: bool = True) -> None:
        """Start it. wait: come back when it says that it is ready."""
        assert not self.pid, "the operator is running"
        self.metrics_port, self._health_port = free_ports(2)
        command = (
            sys.executable, "-m", "paddock", "operator", "run",
            "--kubeconfig", str(self._plane.kubeconfig_as(NAMESPACE, ACCOUNT)),
            "--metrics-bind-address", f"127.0.0.1:{self.metrics_port}",
            "--health-probe-bind-address", f"127.0.0.1:{self._health_port}",
            *self._words,
        )  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Come back when it has listed everything."""
        until = time.monotonic() + READY_SECONDS_MAX
        while not self._is_ready():
            if not self.pid or time.monotonic() > until:
                raise ClusterError(f"the operator is not ready\n{self.tail()}")
            time.sleep(POLL_SECONDS)  # sleep: another process tells nobody

    def _is_ready(self) -> bool:
        url = f"http://127.0.0.1:{self._health_port}/readyz"
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(url, timeout=5).status == 200
        return False

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, as a Deployment does; comes back when it has ended."""
        if self._process is None or not self.pid:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ClusterError(f"the operator did not end on SIGTERM\n{self.tail()}") from None

    def metrics(self) -> dict[str, float]:
        """Every sample by its name with labels."""
        url = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line[0] != "#"]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def lines(self) -> list[str]:
        """Its log."""
        return self.log.read_text("utf-8", "replace").splitlines() if self.log.exists() else []

    def tail(self) -> str:
        """The last lines of its log."""
        return "\n".join(self.lines()[-TAIL_LINES:])

    def bugs(self) -> list[str]:
        """Lines of its log that no fault of a cluster explains."""
        words = ("a bug in paddock", "Traceback", "event was not written", "never awaited")
        return [line for line in self.lines() if any(word in line for word in words)]


def install(plane: ControlPlane) -> None:
    """deploy/v1 without its Deployment: the tests run the operator beside the cluster."""
    plane.kubectl("apply", "-f", ROOT / "deploy" / "v1" / "crd.yaml")
    text = (ROOT / "deploy" / "v1" / "operator.yaml").read_text("utf-8")
    plane.apply(*(found for found in yaml.safe_load_all(text) if found["kind"] != "Deployment"))
    for scheduler in ("volcano", "coscheduling"):
        plane.kubectl("apply", "-f", ROOT / "deploy" / "gangs" / f"{scheduler}.yaml")
    words = ("delete", "deployment", "paddle-controller-manager", "-n", NAMESPACE)
    plane.kubectl(*words, "--ignore-not-found")
    plane.kubectl("wait", "--for=condition=Established", DEFINITION, "--timeout=60s")
    until = time.monotonic() + READY_SECONDS_MAX
    while not _is_served(plane):
        if time.monotonic() > until:
            raise ClusterError("paddlejobs are not served")
        time.sleep(POLL_SECONDS)  # sleep: the API server tells nobody


def _is_served(plane: ControlPlane) -> bool:
    status, body = plane.fetch("/apis/batch.paddlepaddle.org/v1")
    if status != 200:
        return False
    return any(found["name"] == "paddlejobs" for found in json.loads(body)["resources"])
