"""`paddock submit -b kubernetes` on real nodes: what only Kubernetes has.

What is so on every backend is in test_conformance.py. All jobs are submitted at once, so that the
tests wait beside one another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cluster.conftest import new_namespace
from cluster.jobs import Place
from paddlejobs import job
from paddock import __version__
from paddock.watch.history import read_history
from paddock.watch.view import run_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster
    from cluster.control.operators import Operator

IMAGE = f"paddock/probe:{__version__}"
SECONDS_MAX = 90.0
# Objects that a submission makes.
KINDS = "jobs,pods,secrets,services,configmaps"
SCRIPT = """
import os, sys, time
(what,) = sys.argv[1:]
rank = os.environ.get("PADDLE_TRAINER_ID")
role = os.environ.get("TRAINING_ROLE", "TRAINER")
print(role, rank, "of", os.environ["PADDLE_TRAINERS_NUM"], flush=True)
print("var", os.environ.get("MY_TOKEN"), os.environ.get("PADDLE_MY_KEY"), flush=True)
if what == "steps":
    for step in range(6000):
        print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
        time.sleep(0.1)
if what == "fail" and rank == "1":
    sys.exit(7)
if what in ("fail", "sleep"):
    time.sleep(600)
"""


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

    def words(self, name: str, *words: str) -> list[str]:
        """What submits a job under a name."""
        own = ("--name", name, "--image", IMAGE, "--cpu", "10m", "--lease", "30", "-d")
        site = f"kubernetes,form=job,namespace={self.place.namespace}"
        where = ("-b", site) if "-b" not in words else ()
        return ["submit", *where, *own, *words]

    def submit(self, name: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Submit a job under a name."""
        return self.paddock(*self.words(name, *words), code=code)

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
        "PYTHONFAULTHANDLER": "1",  # a command that crashes says where
    }  # fmt: skip
    with new_namespace(cluster.plane) as namespace:
        made = Lab(Place(cluster.plane, namespace), folder, env)
        env = ("--env", "MY_TOKEN=se-cret", "--env", "PADDLE_MY_KEY=se-cret-$(HOME)")
        made.submit("ends", "-n", "1", *env, "--", "train.py", "end")
        made.submit("fails", "-n", "2", "--", "train.py", "fail")
        roles = ("--server_num", "1", "--trainer_num", "2")
        made.submit("serves", "-n", "2", *roles, "--", "train.py", "sleep")
        made.submit("steps", "-n", "2", "--", "train.py", "steps")
        made.submit("yields", "-n", "1:2", "--", "train.py", "sleep")
        yield made


def test_a_secret_variable_reaches_the_ranks_and_no_file_of_ours(lab: Lab) -> None:
    lab.wait("ends", "succeeded")
    assert "var se-cret se-cret-$(HOME)\n" in lab.paddock("logs", "ends").stdout
    kept = [p for p in (lab.folder / "state").rglob("*") if p.is_file()]
    assert kept
    assert not [p for p in kept if "se-cret" in p.read_text("utf-8")]


def test_the_histories_of_pods_that_run_are_copied_and_what_is_new_of_them(lab: Lab) -> None:
    """So `paddock web`, `top` and `bill` show steps of a job in the cluster, as of one here."""
    lab.wait("steps", "running")
    (found,) = (lab.folder / "state").glob("paddock/runs/steps-*")

    def steps() -> list[int]:
        print(lab.paddock("bill", "steps", code=None).stderr)
        view = run_view(read_history((found / "history").glob("*.jsonl")))
        ranks = view.ranks if view is not None else ()
        return [rank.step for rank in ranks if rank.step is not None]

    first = lab.place.soon("a step of both", lambda: steps() if len(steps()) == 2 else None)
    lab.place.soon("later steps", lambda: len(now := steps()) == 2 and min(now) > max(first))
    shown = lab.paddock("bill", "steps").stdout
    assert "useful" in shown and "x 2 ranks" in shown
    lab.paddock("stop", "steps")


def test_an_elastic_job_gets_back_a_pod_that_the_cluster_took(lab: Lab) -> None:
    lab.wait("yields", "running")
    old = next(pod for pod in lab.place.pods() if "yields" in pod and "-1-" in pod)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": old}}
    path = f"/api/v1/namespaces/{lab.place.namespace}/pods/{old}/eviction"
    lab.place.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    lab.place.soon("the pod is gone", lambda: old not in lab.place.pods())
    assert lab.wait("yields", "running")["ranks_up"] == 2
    assert old not in lab.place.pods()


def test_servers_are_told_beside_the_trainers_of_their_pod(lab: Lab) -> None:
    """By the same word in the status and in the labels of logs."""
    status = lab.wait("serves", "running")
    assert [(rank["role"], rank["rank"]) for node in status["nodes"] for rank in node["ranks"]] == [
        ("server", 0), ("worker", 0), ("worker", 1), ("server", 1), ("worker", 2), ("worker", 3),
    ]  # fmt: skip
    name = status["handle"].rpartition("/")[2]
    lines = (f"[{name}-1 server 1] PSERVER None of 4", f"[{name}-1 rank 3] TRAINER 3 of 4")
    heard = lambda: all(line in lab.paddock("logs", "serves").stdout for line in lines)  # noqa: E731
    lab.place.soon("a server and a trainer have spoken", heard)
    of_one = lab.paddock("logs", "serves", "--rank", "1").stdout
    assert "TRAINER 1 of 4" in of_one and "PSERVER" not in of_one


def test_a_submitter_that_is_killed_while_it_makes_objects_leaves_what_can_be_removed(
    lab: Lab,
) -> None:
    """The job is made first and waits, suspended: without the others it does not start."""
    words = [
        sys.executable,
        "-m",
        "paddock",
        *lab.words("torn", "-n", "2", "--", "train.py", "end"),
    ]
    running = subprocess.Popen(words, cwd=lab.folder / "code", env=lab.env, stderr=subprocess.PIPE)
    lab.place.soon("the job is there", lambda: "job.batch/torn-" in lab.left("torn"))
    running.kill()
    running.communicate()
    if lab.status("torn")["state"] not in ("succeeded", "failed"):
        lab.paddock("stop", "torn")
    lab.wait("torn", "cancelled", "succeeded")
    lab.paddock("delete", "torn")
    lab.place.soon("nothing of torn", lambda: not lab.left("torn"))
    assert "torn" not in lab.paddock("list").stdout


def test_logs_are_followed_until_the_end_also_by_another_who_only_has_the_handle(lab: Lab) -> None:
    handle = lab.status("fails")["handle"]
    other = Lab(lab.place, lab.folder, {**lab.env, "XDG_STATE_HOME": str(lab.folder / "other")})
    said = other.paddock("logs", "-f", handle).stdout
    for pod in ("0", "1"):  # rank 0 may have been ended before it spoke
        told = [line for line in said.splitlines() if f"-{pod}] " in line]
        assert any(" paddock: first failure: rank 1 " in line for line in told), said


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


def test_the_operator_runs_what_is_asked_for_as_a_paddle_job(lab: Lab, operator: Operator) -> None:
    where = ("-b", f"kubernetes,namespace={lab.place.namespace}")
    role = {"replicas": 2, "template": {"spec": {"containers": [
        {"name": "main", "image": IMAGE, "args": ["show", "PADDLE_TRAINER_ID"]}]}}}  # fmt: skip
    (lab.folder / "code" / "job.json").write_text(json.dumps(job("theirs", worker=role)))
    roles = ("--server_num", "1", "--trainer_num", "2", "--server_memory", "96Mi")
    asked_for = ("-b", f"{where[1]},form=paddlejob")
    lab.submit("paddle", *asked_for, "-n", "1", *roles, "--", "train.py", "end")
    lab.paddock("submit", *where, "--name", "filed", "-d", "-f", "job.json")
    status = lab.wait("paddle", "succeeded", "failed")
    said = lab.paddock("logs", "paddle").stdout
    assert status["state"] == "succeeded", said
    assert "TRAINER 1 of 2" in said
    asked = {pod.partition("-")[2][5:]: found["spec"]["containers"][0]["resources"]["requests"]
             for pod, found in lab.place.pods().items() if pod.startswith("paddle-")}  # fmt: skip
    assert asked == {
        "ps-0": {"cpu": "10m", "memory": "96Mi"},
        "worker-0": {"cpu": "10m"}, "worker-1": {"cpu": "10m"},
    }  # fmt: skip
    assert {rank["role"] for node in status["nodes"] for rank in node["ranks"]} == {
        "server", "worker",
    }  # fmt: skip
    assert lab.wait("filed", "succeeded", "failed")["state"] == "succeeded"
    assert "PADDLE_TRAINER_ID=1" in lab.paddock("logs", "filed").stdout
