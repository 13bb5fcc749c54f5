"""`paddock operator install` and `uninstall`, on an API server in memory whose controllers are
played: they act when the installer waits. The real ones are in tests/cluster/test_install.py."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import MemoryServer
from paddock.cli.family import carry_out
from paddock.cli.operator import COMMANDS
from paddock.errors import PaddockError, UsageError
from paddock.kube.client import (
    COSCHEDULING_GROUPS,
    CRDS,
    LEASES,
    PADDLE_JOBS,
    PODS,
    VOLCANO_GROUPS,
    KubeError,
)
from paddock.operator.manifests.install import (
    DEPLOYMENT,
    DEPLOYMENTS,
    IMAGE,
    KINDS,
    LABELS,
    NAMESPACE,
    POLICIES,
    Install,
)
from paddock.operator.names import LEASE
from paddock.operator.runtime.installer import Installer, InstallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube_memory import Call
    from paddock.kube.client import Resource

POD = f"{DEPLOYMENT}-5d8f-0"
CRD = "paddlejobs.batch.paddlepaddle.org"
POLICY = "paddle-manager-policy"


class Cluster:
    """An API server and what the controllers of a cluster do next, whenever somebody waits.

    breaks: what the kubelet does with the operator's pod; None for one that runs.
    """

    def __init__(self, breaks: Callable[[Cluster, str], None] | None = None) -> None:
        self.seconds = 0.0
        self.server = MemoryServer(now=lambda: 1_800_000_000 + self.seconds)
        self.breaks = breaks
        self.leads = True
        self.condition = ("Established", "True", "")
        self.said: list[str] = []
        self.server.serve(PADDLE_JOBS, False)
        for resource in (VOLCANO_GROUPS, COSCHEDULING_GROUPS):
            self.server.serve(resource, False)

    # A Clock.
    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.step()

    def document(self, resource: Resource[Any], namespace: str, name: str) -> Any:
        """All of an object, None when it is not there."""
        try:
            return self.server.get(resource, namespace, name).read(dict)
        except KubeError:
            return None

    def step(self) -> None:
        """One thing that each controller does."""
        self.server.tick()
        if self.document(CRDS, "", CRD) is not None:
            self._establish()
        made = self.document(DEPLOYMENTS, NAMESPACE, DEPLOYMENT)
        if made is None:
            for pod in self.server.all(PODS, NAMESPACE, labels="control-plane"):
                self.server.delete(PODS, NAMESPACE, pod.peek["metadata"]["name"], grace_seconds=0)
            return
        pod = self.document(PODS, NAMESPACE, POD)
        if pod and "deletionTimestamp" in pod["metadata"]:
            self.server.kubelet.let_go(f"{NAMESPACE}/{POD}")
            pod = None
        if pod is None:
            self._make_pod(made)
        is_up = self.breaks is None
        status = {
            "observedGeneration": made["metadata"]["generation"], "replicas": 1,
            "updatedReplicas": 1, "availableReplicas": int(is_up),
        }  # fmt: skip
        self._patch(DEPLOYMENTS, NAMESPACE, DEPLOYMENT, {"status": status}, "status")
        if is_up and self.leads and self.document(LEASES, NAMESPACE, LEASE) is None:
            spec = {"holderIdentity": f"{POD}_9f2c", "leaseDurationSeconds": 15}
            self.server.create(LEASES, NAMESPACE, {"metadata": {"name": LEASE}, "spec": spec})

    def _establish(self) -> None:
        kind, value, message = self.condition
        said = {"type": kind, "status": value, "reason": "Because", "message": message}
        # The real server answers with null first.
        is_new = "status" not in self.document(CRDS, "", CRD)
        steps: list[object] = [
            {"op": "add", "path": "/status", "value": {"conditions": None if is_new else [said]}}
        ]
        self.server.patch(CRDS, "", CRD, steps, kind="json", subresource="status")
        self.server.serve(PADDLE_JOBS, not is_new)

    def _make_pod(self, made: Any) -> None:
        manifest = {**made["spec"]["template"]}
        manifest["metadata"] = {**manifest["metadata"], "name": POD}
        self.server.create(PODS, NAMESPACE, manifest)
        pod = f"{NAMESPACE}/{POD}"
        self.server.kubelet.schedule(pod)
        (self.breaks or run)(self, pod)

    def _patch(
        self, resource: Resource[Any], namespace: str, name: str, change: Any, part: str
    ) -> None:
        self.server.patch(resource, namespace, name, change, subresource=part)

    # What is asked of it.
    def installer(self, **asked: Any) -> Installer:
        return Installer(
            self.server.client(), replace(Install(), **asked), clock=self, report=self.said.append,
            timeout_seconds=60,
        )  # fmt: skip

    def install(self, *, waits: bool = True, **asked: Any) -> list[str]:
        """What was said."""
        self.said.clear()
        asyncio.run(self.installer(**asked).install(waits=waits))
        return list(self.said)

    def uninstall(self, *, has_definition: bool = False) -> list[str]:
        """What was said."""
        self.said.clear()
        asyncio.run(self.installer().uninstall(waits=True, has_definition=has_definition))
        return list(self.said)

    def error(self, **asked: Any) -> InstallError:
        """Of an installation that fails."""
        with pytest.raises(InstallError) as caught:
            self.install(**asked)
        return caught.value


def test_each_step_is_said_in_a_line() -> None:
    """What was done, and that it works: nobody has to ask kubectl."""
    cluster = Cluster()
    assert cluster.install() == [
        f"definition {CRD}: created",
        "definition: established",
        "namespace paddle-system: created",
        "rights (10 objects): 10 created",
        "rights: in all namespaces; --watch-namespaces A,B limits them to those",
        "deployment paddle-controller-manager: created",
        "deployment: 1 of 1 available",
        f"leader: {POD}",
        "jobs: a PaddleJob is accepted",
    ]
    assert not cluster.server.all(PADDLE_JOBS)


def test_installing_again_changes_nothing() -> None:
    """Pipelines do so at every run."""
    cluster = Cluster()
    cluster.install()
    before = cluster.server.store.version
    said = cluster.install()
    assert "rights (10 objects): 10 unchanged" in said
    assert "deployment paddle-controller-manager: unchanged" in said
    assert cluster.server.store.version == before


def test_a_status_written_meanwhile_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deployment's controller goes on while the installer works."""
    cluster = Cluster()
    cluster.install()
    patch = cluster.server.patch

    def with_a_status(resource: Any, namespace: str, name: str, *rest: Any, **how: Any) -> Any:
        if resource is DEPLOYMENTS and how.get("kind") == "apply":
            status = {"readyReplicas": 1}
            patch(resource, namespace, name, {"status": status}, subresource="status")
        return patch(resource, namespace, name, *rest, **how)

    monkeypatch.setattr(cluster.server, "patch", with_a_status)
    before = cluster.server.store.version
    assert "deployment paddle-controller-manager: unchanged" in cluster.install()
    assert cluster.server.store.version == before + 1


def test_a_server_without_the_policy_is_installed_without_it() -> None:
    """Kubernetes before 1.30: the rest is the same."""
    cluster = Cluster()
    cluster.server.serve(POLICIES, False)
    said = cluster.install()
    assert said[0].startswith("policy: left out, this API server has no ValidatingAdmissionPolicy")
    assert "rights (8 objects): 8 created" in said


def test_rights_to_pod_groups_are_those_of_the_schedulers_that_are_there() -> None:
    """Volcano was installed later: the same command gives the right, and uninstall takes it."""
    cluster = Cluster()
    cluster.install()
    role = KINDS["ClusterRole"]
    assert cluster.document(role, "", "paddle-manager-volcano") is None
    cluster.server.serve(VOLCANO_GROUPS, True)
    (line,) = [line for line in cluster.install() if line.startswith("rights (12 objects)")]
    assert "2 created" in line and "10 unchanged" in line
    assert cluster.document(role, "", "paddle-manager-volcano") is not None
    assert cluster.document(role, "", "paddle-manager-coscheduling") is None
    cluster.uninstall()
    assert cluster.document(role, "", "paddle-manager-volcano") is None


def test_rights_of_an_earlier_installation_are_taken_back() -> None:
    """Installed for all namespaces first, then for one: the token kept the whole cluster."""
    cluster = Cluster()
    cluster.install()
    everywhere = KINDS["ClusterRoleBinding"]
    assert cluster.document(everywhere, "", "paddle-manager-rolebinding") is not None
    said = cluster.install(watch_namespaces=("a", "b"))
    assert "rights of an earlier installation (1 objects): removed" in said
    assert not [line for line in said if line.startswith("rights: in all namespaces")]
    assert cluster.document(everywhere, "", "paddle-manager-rolebinding") is None
    cluster.install(watch_namespaces=("a",))
    binding = KINDS["RoleBinding"]
    assert cluster.document(binding, "a", "paddle-manager-rolebinding") is not None
    assert cluster.document(binding, "b", "paddle-manager-rolebinding") is None
    cluster.uninstall()
    assert cluster.document(binding, "a", "paddle-manager-rolebinding") is None


def test_without_waiting_only_the_definition_is_waited_for() -> None:
    """--wait=false: the objects below it could not be applied before."""
    assert Cluster(refuse_image).install(waits=False)[-1].endswith("created")


def run(cluster: Cluster, pod: str) -> None:
    cluster.server.kubelet.run(pod)


def refuse_image(cluster: Cluster, pod: str) -> None:
    cluster.server.kubelet.wait(pod, "ImagePullBackOff", f'Back-off pulling image "{IMAGE}".')


def crash(cluster: Cluster, pod: str) -> None:
    kubelet = cluster.server.kubelet
    kubelet.run(pod)
    kubelet.crash(pod, 1, "Error", "Traceback ...\npaddock: error: no rights\n  hint: ask\n")
    document = cluster.server.get(PODS, *pod.split("/")).read(dict)
    status = document["status"]["containerStatuses"][0]
    status["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    change = {"status": {"containerStatuses": [status]}}
    cluster.server.patch(PODS, *pod.split("/"), change, subresource="status")


BROKEN = {
    "image": (
        refuse_image,
        f'deployment: pod {POD} on node-0: ImagePullBackOff: Back-off pulling image "{IMAGE}"',
        "put the image on the nodes (deploy/images/build.sh operator --load kind)",
    ),
    "program": (
        crash,
        f"deployment: pod {POD} on node-0: CrashLoopBackOff:"
        " exit code 1 (paddock: error: no rights)",
        "",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_cannot_become_better_is_said_at_once(how: str) -> None:
    """In the pod's own words, long before the deadline."""
    breaks, message, hint = BROKEN[how]
    cluster = Cluster(breaks)
    error = cluster.error()
    assert (error.message, error.exit_code) == (message, 1)
    assert error.hint.startswith(hint)
    assert cluster.seconds < 5


def no_room(cluster: Cluster, pod: str) -> None:
    cluster.server.kubelet.unschedulable(pod, "0/2 nodes are available: insufficient cpu.")


def test_what_may_become_better_is_said_at_the_deadline() -> None:
    """A node may come; after a minute somebody should look."""
    cluster = Cluster(no_room)
    error = cluster.error()
    assert "Unschedulable: 0/2 nodes are available: insufficient cpu" in error.message
    assert error.message.endswith("; not within 60 s (--timeout)")
    assert cluster.seconds >= 60


def test_without_a_leader_it_does_not_work() -> None:
    """A pod that runs is not an operator that works."""
    cluster = Cluster()
    cluster.leads = False
    assert cluster.error().message.startswith("leader: nobody has asked for the lease")


def test_after_the_image_came_the_next_try_is_at_once() -> None:
    """A kubelet looks again after up to five minutes; the user has already waited once."""
    cluster = Cluster(refuse_image)
    cluster.error()
    cluster.breaks = None
    began = cluster.seconds
    assert "jobs: a PaddleJob is accepted" in cluster.install()
    assert cluster.seconds - began < 5


def test_names_that_are_taken_are_said() -> None:
    """Another definition has the short name: the API server serves neither."""
    cluster = Cluster()
    cluster.condition = ("NamesAccepted", "False", '"pdj" is already in use')
    assert cluster.error().message == 'definition: Because: "pdj" is already in use'


def test_a_job_that_is_refused_is_the_end() -> None:
    """By somebody's webhook, or an older definition."""
    cluster = Cluster()
    refusal = KubeError("admission webhook says no", status=403, reason="Forbidden")

    def is_job(call: Call) -> bool:
        return call.verb == "create" and call.resource is PADDLE_JOBS

    cluster.server.fail(refusal, when=is_job)
    assert cluster.error().message == "jobs: a PaddleJob is refused: admission webhook says no"


def test_a_missing_right_is_one_clear_error() -> None:
    """With the object that it was for."""
    cluster = Cluster()
    refusal = KubeError("ann cannot patch clusterroles", status=403, reason="Forbidden")
    cluster.server.fail(refusal, when=lambda call: call.resource is KINDS["ClusterRole"])
    error = cluster.error()
    assert error.message.endswith("ann cannot patch clusterroles")
    assert error.message.startswith("ClusterRole paddle-manager-role")
    assert "--dry-run" in error.hint


def test_a_second_operator_is_refused() -> None:
    """Their rights have the same names, and both would make the pods of every job."""
    cluster = Cluster()
    cluster.install()
    error = cluster.error(namespace="ops")
    assert error.message == "an operator is already in namespace paddle-system"
    assert error.hint.startswith("paddock operator uninstall --namespace paddle-system")
    assert cluster.document(KINDS["Namespace"], "", "ops") is None


def of_helm(name: str) -> dict[str, object]:
    """What the chart has in common with these files, as Helm marks it."""
    marks = {"meta.helm.sh/release-name": "ours", "meta.helm.sh/release-namespace": "ml"}
    return {"metadata": {"name": name, "annotations": marks, "labels": LABELS}}


@pytest.mark.parametrize("order", ["install", "uninstall"])
def test_what_belongs_to_a_helm_release_is_left_alone(order: str) -> None:
    """Its operator would run on without the rights that were taken from it, and say nothing."""
    cluster = Cluster()
    binding, name = KINDS["ClusterRoleBinding"], "paddle-manager-rolebinding"
    cluster.server.create(binding, "", of_helm(name))
    before = cluster.server.store.version
    with pytest.raises(InstallError) as caught:
        getattr(cluster, order)()
    assert caught.value.message == f"ClusterRoleBinding {name} belongs to Helm's release ours"
    assert caught.value.hint == "helm --namespace ml uninstall ours, or go on with helm; jobs stay"
    assert cluster.server.store.version == before


def test_a_server_that_is_busy_for_a_moment_is_asked_again() -> None:
    """While it waits; the looks are many."""
    cluster = Cluster()
    busy = KubeError("later", status=503, reason="ServiceUnavailable")
    cluster.server.fail(busy, when=lambda call: call.verb == "list" and call.resource is PODS)
    assert cluster.install()[-1] == "jobs: a PaddleJob is accepted"


JOB = {
    "metadata": {"name": "mnist"},
    "spec": {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}},
}


def labels(cluster: Cluster) -> dict[str, str]:
    """Of the operator's namespace."""
    found: dict[str, str] = cluster.document(KINDS["Namespace"], "", NAMESPACE)["metadata"][
        "labels"
    ]
    return found


def test_where_people_run_jobs_any_pod_may_run() -> None:
    """paddle-operator's documents put jobs into paddle-system: their next pod would be refused."""
    cluster = Cluster()
    cluster.install()
    assert labels(cluster)["pod-security.kubernetes.io/enforce"] == "baseline"
    cluster.server.create(PADDLE_JOBS, NAMESPACE, JOB)
    said = cluster.install()
    assert "namespace paddle-system: has jobs, so any pod may run there" in said
    assert "pod-security.kubernetes.io/enforce" not in labels(cluster)


def test_what_an_older_version_left_in_the_deployment_goes() -> None:
    """paddle-operator's limit of 0.1 processors, which kubectl apply had put there."""
    cluster = Cluster()
    cluster.install()
    old = {"spec": {"template": {"spec": {"hostNetwork": True}}}}
    cluster.server.patch(DEPLOYMENTS, NAMESPACE, DEPLOYMENT, old)
    assert "deployment paddle-controller-manager: changed" in cluster.install()
    made = cluster.document(DEPLOYMENTS, NAMESPACE, DEPLOYMENT)
    assert "hostNetwork" not in made["spec"]["template"]["spec"]


def test_the_policy_of_an_earlier_installation_goes_when_none_is_asked_for() -> None:
    """It would go on refusing what --policy=false is to allow."""
    cluster = Cluster()
    cluster.install()
    assert cluster.document(POLICIES, "", POLICY) is not None
    assert "policy of an earlier installation: removed" in cluster.install(has_policy=False)
    assert cluster.document(POLICIES, "", POLICY) is None
    binding = KINDS["ValidatingAdmissionPolicyBinding"]
    assert cluster.document(binding, "", POLICY) is None


def test_rights_of_a_chart_that_others_have_applied_stay() -> None:
    """Argo CD renders the chart: what it applies has no annotations of helm."""
    cluster = Cluster()
    binding = KINDS["RoleBinding"]
    labels = {**LABELS, "helm.sh/chart": "paddock-operator-0.1.0"}
    theirs = {"metadata": {"name": "paddle-manager-rolebinding", "labels": labels}}
    cluster.server.create(binding, "team-b", theirs)
    cluster.install(watch_namespaces=("team-a",))
    cluster.uninstall()
    assert cluster.document(binding, "team-b", "paddle-manager-rolebinding") is not None


# ------------------------------------------------------------------------------------ uninstall


def test_uninstall_leaves_the_definition_and_the_jobs() -> None:
    """And the namespace, when there are jobs in it."""
    cluster = Cluster()
    cluster.install()
    cluster.server.create(PADDLE_JOBS, "team", JOB)
    assert cluster.uninstall() == ["operator: 11 objects removed", "namespace: removed"]
    assert cluster.document(CRDS, "", CRD) is not None
    assert cluster.document(PADDLE_JOBS, "team", "mnist") is not None
    cluster.install()
    cluster.server.create(PADDLE_JOBS, NAMESPACE, JOB)
    assert cluster.uninstall()[-1] == "namespace paddle-system: kept, there are jobs in it"
    assert cluster.document(KINDS["Namespace"], "", NAMESPACE) is not None


def test_uninstall_keeps_a_namespace_with_other_pods() -> None:
    """Or one that somebody else made."""
    cluster = Cluster()
    cluster.install()
    etcd = {"metadata": {"name": "etcd"}, "spec": {"containers": [{"name": "e", "image": "e"}]}}
    cluster.server.create(PODS, NAMESPACE, etcd)
    kept = "namespace paddle-system: kept, there are other pods in it (etcd)"
    assert cluster.uninstall()[-1] == kept
    change = {"metadata": {"labels": {"app.kubernetes.io/name": None}}}
    cluster.server.patch(KINDS["Namespace"], "", NAMESPACE, change)
    assert cluster.uninstall()[-1] == "namespace paddle-system: kept, it was not made by this"


def test_uninstall_with_the_definition_removes_everything_and_may_be_repeated() -> None:
    """The second time there is nothing to do, which is no error."""
    cluster = Cluster()
    cluster.install()
    said = cluster.uninstall(has_definition=True)
    assert f"definition {CRD}: removed, and all jobs with it" in said
    assert cluster.document(CRDS, "", CRD) is None
    assert cluster.uninstall(has_definition=True) == ["operator: not there"]


# ---------------------------------------------------------------------------------- command line


def test_a_dry_run_prints_everything_and_asks_no_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For kubectl apply -f -, or for the administrator."""
    monkeypatch.setenv("KUBECONFIG", "/nonexistent")
    assert carry_out("operator", COMMANDS, ["install", "--dry-run", "--image", "here/op:2"]) == 0
    text = capsys.readouterr().out
    assert "kind: CustomResourceDefinition" in text
    assert "image: here/op:2" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("install --imgae x", "unknown flag --imgae"),
        ("install --image", "--image needs a value"),
        ("install --timeout soon", "--timeout soon: not a duration"),
        ("install --timeout 0", "--timeout is 0"),
        ("install --wait=maybe", "--wait maybe: neither true nor false"),
        ("install --namespace My", "'My' is not the name of a namespace"),
        ("install --kubeconfig /nonexistent", "no cluster to talk to: /nonexistent"),
        ("uninstall --image x", "unknown flag --image"),
        ("uninstal", "'uninstal' is not an order of paddock operator"),
    ],
)
def test_bad_input_is_one_error_and_exit_code_2(words: str, message: str) -> None:
    """Before any cluster is asked."""
    with pytest.raises(UsageError) as caught:
        carry_out("operator", COMMANDS, words.split())
    assert caught.value.message.startswith(message)
    assert caught.value.exit_code == 2


def test_a_cluster_that_does_not_answer_is_one_error(tmp_path: Any) -> None:
    """With its address."""
    config = tmp_path / "config"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    with pytest.raises(PaddockError) as caught:
        carry_out("operator", COMMANDS, ["install", "--kubeconfig", str(config)])
    assert caught.value.exit_code == 1
    assert "no answer from http://127.0.0.1:9" in caught.value.message
    assert caught.value.hint.startswith("does the cluster run")


def test_credentials_that_are_refused_are_said() -> None:
    """A token that ran out over night; the server's own word is `Unauthorized`."""
    cluster = Cluster()
    no = KubeError("Unauthorized", status=401)
    cluster.server.fail(no, when=lambda call: call.verb == "get")
    assert "kubectl auth whoami" in cluster.error().hint
