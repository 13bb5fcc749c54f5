"""`paddock web` with a kubeconfig, on a real API server: the PaddleJobs that others have made."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

from cluster.jobs import JOBS_PATH
from paddlejobs import job, role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.plane import ControlPlane

SECONDS = 60.0
CRD = Path(__file__).resolve().parents[2] / "deploy" / "v1" / "crd.yaml"


class Site:
    """A `paddock web` that runs, as a browser with its cookie sees it."""

    def __init__(self, address: str) -> None:
        self._base = address.partition("/?")[0]
        with urlopen(address) as answer:
            cookie = SimpleCookie(answer.headers["Set-Cookie"])
        self._cookie = "; ".join(f"{name}={each.value}" for name, each in cookie.items())

    def page(self, path: str) -> str:
        """The HTML of a page."""
        with urlopen(Request(self._base + path, headers={"Cookie": self._cookie})) as answer:
            return str(answer.read().decode())

    def wait(self, text: str) -> str:
        """The first page, as soon as it has a text."""
        deadline = time.monotonic() + SECONDS
        while text not in (body := self.page("/")):
            assert time.monotonic() < deadline, body
            time.sleep(0.2)  # sleep: the server asks the cluster every few seconds
        return body


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """A server that has the kubeconfig of an administrator."""
    plane.kubectl("apply", "--server-side", "-f", CRD)
    plane.kubectl("wait", "--for=condition=Established", "-f", CRD)
    argv = [sys.executable, "-m", "paddock", "web", "--kubeconfig", str(plane.kubeconfig)]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Site(process.stdout.readline().strip())
        process.send_signal(signal.SIGINT)


def make(plane: ControlPlane, namespace: str, name: str, **status: object) -> None:
    """A job of two workers and a server with that status, and the pod of its worker 0."""
    secretive = role(2, env=[{"name": "KEY", "value": "se-cret"}])
    plane.kubectl("create", "-n", namespace, "-f", "-",
                  stdin=json.dumps(job(name, worker=secretive, ps=role(1))))  # fmt: skip
    change = json.dumps({"status": status})
    plane.kubectl("patch", "pdj", name, "-n", namespace, "--subresource=status", "--type=merge",
                  "-p", change)  # fmt: skip
    found = plane.kubectl("get", "--raw", f"{JOBS_PATH.format(namespace)}/{name}").stdout
    owner = {"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "name": name,
             "uid": json.loads(found)["metadata"]["uid"], "controller": True}  # fmt: skip
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": f"{name}-worker-0", "ownerReferences": [owner],
                     "labels": {"paddle-res-name": f"{name}-worker-0"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }  # fmt: skip
    plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(pod))


def test_paddle_jobs_of_the_cluster_have_rows_and_pages(
    plane: ControlPlane, namespace: str, site: Site
) -> None:
    """Phase, replicas, message and age; and the pods of each, by the role in their name."""
    make(plane, namespace, "wide", phase="Running", worker={"running": 1}, message="1 is <b> late")
    make(plane, namespace, "deep", phase="Failed", message="worker 1 exited with code 7")
    body = site.wait(f"{namespace}.deep")
    assert "PaddleJob · Running · ps 0/1 · worker 1/2" in body
    assert "PaddleJob · Failed" in body
    assert "1 is &lt;b&gt; late" in body and "worker 1 exited with code 7" in body
    page = site.page(f"/runs/{namespace}.wide")
    for text in ("wide-ps-0", "wide-worker-0", "wide-worker-1", "running"):
        assert text in page, text
    assert "se-cret" not in body + page + site.page(f"/runs/{namespace}.wide/report")
    assert "this run has not failed" in site.page(f"/runs/{namespace}.wide/failure").lower()
    assert f"{namespace}.deep" in site.page("/?q=failed")
    assert f"{namespace}.wide" not in site.page("/?q=failed")
    plane.kubectl("delete", "pdj", "--all", "-n", namespace)


def test_a_cluster_that_is_gone_is_a_notice(plane: ControlPlane, site: Site) -> None:
    """What was seen stays, and the page comes without waiting for it."""
    site.page("/")
    plane.stop_apiserver()
    assert "No runs yet" in site.wait("no answer from")


def test_a_kubeconfig_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    """At once, not on a page."""
    argv = [sys.executable, "-m", "paddock", "web", "--kubeconfig", str(tmp_path / "none")]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2 and "no cluster to talk to" in done.stderr
