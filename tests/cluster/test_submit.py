"""`paddock submit -b kubernetes` on real nodes: made, asked, followed, stopped, and nothing left.

All jobs are submitted at once, so that the tests wait beside one another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import new_namespace
from cluster.jobs import Place
from paddlejobs import job
from paddock import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.control.operators import Operator

IMAGE = f"paddock/probe:{__version__}"
SECONDS_MAX = 90.0
# Objects that a submission makes.
KINDS = "jobs,pods,secrets,services,configmaps"
SCRIPT = """
import os, signal, sys, time
what, *rest = sys.argv[1:]
rank = os.environ["PADDLE_TRAINER_ID"]
print("rank", rank, "of", os.environ["PADDLE_TRAINERS_NUM"], repr(rest), flush=True)
print("var", os.environ.get("MY_VARIABLE"), os.environ.get("PADDLE_MINE"), flush=True)
if what == "fail" and rank == "1":
    sys.exit(7)
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what in ("fail", "sleep", "deaf"):
    time.sleep(600)
"""
ODD = """a b'"$(HOME)$$x\n训练"""


@dataclass
class Lab:
    """A user with a namespace, a directory with a script, and jobs that were submitted."""

    place: Place
    folder: Path
    env: dict[str, str]

    def paddock(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "paddock", *words],
            cwd=self.folder / "code", env=self.env, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done

    def submit(self, name: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Submit a job under a name."""
        own = ("--name", name, "--image", IMAGE, "--cpu", "10m", "--lease", "30", "-d")
        site = f"kubernetes,form=job,namespace={self.place.namespace}"
        site = site if "-b" not in words else ""
        where = ("-b", site) if site else ()
        return self.paddock("submit", *where, *own, *words, code=code)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.paddock("status", name, "--json").stdout)
        return found

    def wait(self, name: str, *states: str) -> dict[str, Any]:
        """The status of a job as soon as it is in one of these states."""

        def ask() -> dict[str, Any] | None:
            found = self.status(name)
            return found if found["state"] in states else None

        found: dict[str, Any] = self.place.soon(f"{name}: {states}", ask, seconds=SECONDS_MAX)
        return found

    def left(self, name: str) -> str:
        """What is there of the runs of that name."""
        words = ("get", KINDS, "-o", "name", "--ignore-not-found")
        return "\n".join(
            line for line in self.place.kubectl(*words).splitlines() if f"/{name}-" in line
        )


@pytest.fixture(scope="module")
def lab(
    cluster: Cluster, small_images: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(SCRIPT)
    source = str(Path(__file__).resolve().parents[2] / "src")
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"),
        "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": source,
    }  # fmt: skip
    with new_namespace(cluster.plane) as namespace:
        made = Lab(Place(cluster.plane, namespace), folder, env)
        two = ("-n", "3", "--nproc_per_node", "2", "--env", "MY_VARIABLE=se-cret")
        two += ("--env", "PADDLE_MINE=se-cret-$(HOME)")
        made.submit("ends", *two, "--", "train.py", "end", ODD)
        made.submit("fails", "-n", "2", "--", "train.py", "fail")
        made.submit("stays", "-n", "2", "--", "train.py", "sleep")
        made.submit("yields", "-n", "1:2", "--", "train.py", "sleep")
        made.submit("hurries", "-n", "1", "--grace", "60", "--", "train.py", "deaf")
        yield made


def test_three_nodes_of_two_ranks_run_to_their_end(lab: Lab) -> None:
    status = lab.wait("ends", "succeeded", "failed")
    assert (status["state"], status["code"]) == ("succeeded", 0), lab.paddock("logs", "ends").stdout
    said = lab.paddock("logs", "ends").stdout
    for rank in range(6):
        assert f"worker {rank}] rank {rank} of 6 {[ODD]!r}" in said, said
    assert lab.paddock("wait", "ends").returncode == 0
    of_one = lab.paddock("logs", "ends", "--rank", "3").stdout.splitlines()
    assert [line.partition("] ")[2] for line in of_one][:1] == [f"rank 3 of 6 {[ODD]!r}"]


def test_a_variable_reaches_the_ranks_and_no_file_of_ours(lab: Lab) -> None:
    lab.wait("ends", "succeeded")
    assert "var se-cret se-cret-$(HOME)\n" in lab.paddock("logs", "ends").stdout
    kept = [p for p in (lab.folder / "state").rglob("*") if p.is_file()]
    assert kept
    assert not [p for p in kept if "se-cret" in p.read_text("utf-8")]


def test_a_failed_rank_gives_the_code_and_the_sentence(lab: Lab) -> None:
    status = lab.wait("fails", "failed")
    assert status["code"] == 7
    assert "worker 1" in status["why"]
    assert "exited with code 7" in status["why"]
    assert lab.paddock("wait", "fails", code=7)
    assert "ABORT" in lab.paddock("logs", "fails").stdout


def test_a_stopped_job_is_cancelled_and_stays_so(lab: Lab) -> None:
    assert lab.wait("stays", "running")["ranks_up"] == 2
    lab.paddock("stop", "stays")
    assert lab.wait("stays", "cancelled")["why"] == "stopped by paddock stop"
    assert lab.status("stays")["state"] == "cancelled"


def test_a_job_that_is_stopped_now_does_not_get_its_grace(lab: Lab) -> None:
    lab.wait("hurries", "running")
    started = time.monotonic()
    lab.paddock("stop", "--now", "hurries")
    lab.wait("hurries", "cancelled")
    assert time.monotonic() - started < 40


def test_an_elastic_job_gets_back_a_pod_that_the_cluster_took(lab: Lab) -> None:
    lab.wait("yields", "running")
    old = next(pod for pod in lab.place.pods() if "yields" in pod and "-1-" in pod)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": old}}
    path = f"/api/v1/namespaces/{lab.place.namespace}/pods/{old}/eviction"
    lab.place.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    lab.place.soon("the pod is gone", lambda: old not in lab.place.pods())
    assert lab.wait("yields", "running")["ranks_up"] == 2
    assert old not in lab.place.pods()


def test_logs_are_followed_until_the_end_also_by_another_who_only_has_the_handle(lab: Lab) -> None:
    handle = lab.status("fails")["handle"]
    other = Lab(lab.place, lab.folder, {**lab.env, "XDG_STATE_HOME": str(lab.folder / "other")})
    said = other.paddock("logs", "-f", handle).stdout
    for pod in ("0", "1"):  # rank 0 may have been ended before it spoke
        told = [line for line in said.splitlines() if f"-{pod}] LAUNCH" in line]
        assert any("first failure: worker 1" in line for line in told), said


def test_a_job_that_is_deleted_leaves_nothing(lab: Lab) -> None:
    lab.wait("ends", "succeeded")
    to = lab.folder / "fetched"
    lab.paddock("fetch", "ends", "--to", str(to))
    assert len(list((to / "log").glob("*.log"))) == 3
    assert "secret/ends-" in lab.left("ends")
    lab.paddock("delete", "ends")
    lab.place.soon("nothing of ends", lambda: not lab.left("ends"), seconds=SECONDS_MAX)


def test_an_image_that_cannot_be_pulled_is_told_and_leaves_nothing(lab: Lab) -> None:
    words = ("--image", "localhost:1/no/such:1", "--", "train.py", "end")
    done = lab.submit("lost", *words, code=2)
    assert "cannot start: ErrImagePull" in done.stderr.replace("ImagePullBackOff", "ErrImagePull")
    lab.place.soon("nothing of lost", lambda: not lab.left("lost"), seconds=SECONDS_MAX)
    assert "lost" not in lab.paddock("list").stdout


def test_a_namespace_that_is_not_there_is_told(lab: Lab) -> None:
    where = ("-b", "kubernetes,form=job,namespace=no-such-namespace")
    done = lab.submit("nowhere", *where, "--", "train.py", "end", code=2)
    assert "namespace 'no-such-namespace' does not exist" in done.stderr


def test_a_quota_that_does_not_allow_the_pods_is_told_and_nothing_is_left(lab: Lab) -> None:
    with new_namespace(lab.place.plane) as namespace:
        poor = Place(lab.place.plane, namespace)
        poor.kubectl("create", "quota", "small", "--hard=pods=0")
        where = ("-b", f"kubernetes,form=job,namespace={namespace}")
        done = lab.submit("poor", *where, "--", "train.py", "end", code=2)
        assert f"the quota of namespace '{namespace}' does not allow it" in done.stderr
        poor.wait_gone("jobs")


def test_somebody_without_rights_is_told_what_he_may_not_do(lab: Lab, cluster: Cluster) -> None:
    account = cluster.plane.kubeconfig_as(lab.place.namespace, "default")
    nobody = Lab(lab.place, lab.folder, {**lab.env, "KUBECONFIG": str(account)})
    done = nobody.submit("mine", "--", "train.py", "end", code=2)
    assert "you may not do this in namespace" in done.stderr


def test_jobs_are_found_again_without_the_registry(lab: Lab) -> None:
    other = Lab(lab.place, lab.folder, {**lab.env, "XDG_STATE_HOME": str(lab.folder / "new")})
    found = other.paddock("list", "--discover", f"kubernetes,namespace={lab.place.namespace}")
    assert "fails" in found.stdout


def test_with_the_operator_there_it_becomes_a_paddle_job(lab: Lab, operator: Operator) -> None:
    where = ("-b", f"kubernetes,namespace={lab.place.namespace}")
    role = {"replicas": 2, "template": {"spec": {"containers": [
        {"name": "main", "image": IMAGE, "args": ["show", "PADDLE_TRAINER_ID"]}]}}}  # fmt: skip
    (lab.folder / "code" / "job.json").write_text(json.dumps(job("theirs", worker=role)))
    lab.submit("paddle", *where, "-n", "2", "--", "train.py", "end")
    lab.paddock("submit", *where, "--name", "filed", "-d", "-f", "job.json")
    status = lab.wait("paddle", "succeeded", "failed")
    said = lab.paddock("logs", "paddle").stdout
    assert status["state"] == "succeeded", said
    assert "rank 1 of 2" in said
    assert lab.wait("filed", "succeeded", "failed")["state"] == "succeeded"
    assert "PADDLE_TRAINER_ID=1" in lab.paddock("logs", "filed").stdout
