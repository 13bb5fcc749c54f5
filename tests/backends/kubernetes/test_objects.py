"""What becomes of a submission: objects, and the plan that shows all of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings, strategies

from backends.kubernetes.submissions import TOKEN, submission
from paddock.backends.kubernetes.objects import objects_of, owned, plan_of
from paddock.backends.kubernetes.options import read_options
from paddock.backends.kubernetes.shown import yaml_lines
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.backends.kubernetes.objects import PlannedObject
    from paddock.backends.types import Submission, SubmissionPlan

SENT = {"program.zip": b"program"}


def made(
    of: Submission, form: str = "job", sent: dict[str, bytes] = SENT, **patch: object
) -> list[PlannedObject]:
    return objects_of(of, read_options(of), form, sent, patch)


def planned(of: Submission, form: str = "job") -> SubmissionPlan:
    return plan_of(of, read_options(of), form, made(of, form))


def pod_of(found: list[PlannedObject], form: str = "job", role: str = "worker") -> dict[str, Any]:
    spec: Any = found[0].manifest["spec"]
    if form == "paddlejob":
        spec = spec[role]
    if form == "volcano-job":
        spec = next(task for task in spec["tasks"] if task["name"] == role)
    pod: dict[str, Any] = spec["template"]["spec"]
    return pod


def args_of(found: list[PlannedObject], form: str = "job", role: str = "worker") -> list[str]:
    args: list[str] = pod_of(found, form, role)["containers"][0]["args"]
    return args


def expanded(word: str, known: Mapping[str, str]) -> str:
    """As the kubelet replaces $(NAME): third_party/forked/golang/expansion."""
    found, at = "", 0
    while at < len(word):
        if word[at] == "$" and word[at + 1 : at + 2] == "$":
            found, at = found + "$", at + 2
        elif word[at] == "$" and word[at + 1 : at + 2] == "(" and ")" in word[at:]:
            end = word.index(")", at)
            found, at = found + known.get(word[at + 2 : end], word[at : end + 1]), end + 1
        else:
            found, at = found + word[at], at + 1
    return found


def test_without_an_operator_a_job_is_indexed_and_its_pods_have_names_known_before() -> None:
    found = made(submission("--nnodes", "3", "train.py"))
    assert [one.resource.kind for one in found] == ["Job", "Secret", "ConfigMap", "Service"]
    spec: Any = found[0].manifest["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["template"]["spec"]["subdomain"] == "train-3f2a"
    words = args_of(found)
    assert words[words.index("--master") + 1] == "train-3f2a-0.train-3f2a:36767"
    assert words[words.index("--rank") + 1] == "$(JOB_COMPLETION_INDEX)"


def test_every_object_but_the_job_goes_with_the_job() -> None:
    top, *others = made(submission("train.py"))
    for other in others:
        metadata: Any = owned(other, top, "u-1").manifest["metadata"]
        assert [o["uid"] for o in metadata["ownerReferences"]] == ["u-1"]
    assert "ownerReferences" not in str(top.manifest)


def test_the_key_and_variables_are_in_the_secret_and_nowhere_else() -> None:
    of = submission("--nnodes", "2", "train.py", env=(("B", "se-cret-2"),))
    of = replace(of, flags=("--env", "A=se-cret-1"))
    found = made(of)
    assert found[1].manifest["stringData"] == {
        "PADDOCK_ENV_0": "se-cret-1", "B": "se-cret-2", "PADDOCK_TOKEN": TOKEN,
    }  # fmt: skip
    words = args_of(found)
    assert words[words.index("--env") + 1] == "A=$(PADDOCK_ENV_0)"
    plan = planned(of)
    told = f"{[o.manifest for o in found if o.resource.kind != 'Secret']}{plan}"
    assert "se-cret" not in told
    assert TOKEN not in told


def test_ranks_are_given_by_the_cluster_whatever_the_user_wrote() -> None:
    words = args_of(made(submission("--nnodes=2", "--rank", "1", "--tail=none", "-m", "pkg.train")))
    assert words.count("--rank") == 1
    assert words[words.index("--tail") + 1] == "all"
    assert words[words.index("--") :] == ["--", "pkg.train"]
    assert "-m" in words


@settings(max_examples=50)
@given(strategies.lists(strategies.text(min_size=1), max_size=4))
def test_every_argument_reaches_the_script_as_it_was_written(args: list[str]) -> None:
    of = submission("--", "train.py", *args)
    shown = next(text for name, text in planned(of).files.items() if name.startswith("job-"))
    words = yaml.safe_load(shown)["spec"]["template"]["spec"]["containers"][0]["args"]
    everything = {"HOME": "/somewhere", "JOB_COMPLETION_INDEX": "0"}
    got = [expanded(word, everything) for word in words]
    assert got[got.index("--") + 1 :] == ["train.py", *args]


@settings(max_examples=50)
@given(
    strategies.recursive(
        strategies.text() | strategies.integers() | strategies.booleans() | strategies.none(),
        lambda inner: strategies.lists(inner) | strategies.dictionaries(strategies.text(), inner),
    )
)
def test_what_is_shown_is_yaml_of_the_very_object(what: object) -> None:
    lines = "".join(f"{line}\n" for _, line in yaml_lines({"spec": what}))
    assert yaml.safe_load(lines) == {"spec": what}


def test_the_plan_shows_all_that_will_be_sent_with_reasons() -> None:
    of = submission("--nnodes", "2", "--grace", "30", "train.py", memory="4Gi", gpus="2")
    plan = planned(of)
    assert plan.rows == (
        ("0", "train-3f2a-0", "2", "2 nvidia.com/gpu"),
        ("1", "train-3f2a-1", "2", "2 nvidia.com/gpu"),
    )
    assert [step.what for step in plan.steps] == [
        "create Job train-3f2a", "create Secret train-3f2a", "create ConfigMap train-3f2a-program",
        "create Service train-3f2a", "start train-3f2a: spec.suspend false",
    ]  # fmt: skip
    reasons = dict(plan.why)
    assert reasons['memory: "4Gi"'] == "--memory 4Gi"
    assert reasons["completions: 2"] == "--nnodes 2"
    assert reasons["image: registry.example/train:1"] == "site lab: image"
    assert reasons["terminationGracePeriodSeconds: 35"] == "--grace 30"
    assert plan.why["suspend: true"] == "it starts when all of its objects are there"


def test_with_an_operator_it_is_a_paddle_job_of_the_same_description() -> None:
    found = made(submission("--nnodes", "2", "train.py"), "paddlejob")
    spec: Any = found[0].manifest["spec"]
    assert [one.resource.kind for one in found] == ["PaddleJob", "Secret", "ConfigMap"]
    assert (spec["worker"]["replicas"], spec["suspend"]) == (2, True)
    assert "--master" not in args_of(found, "paddlejob")


def test_servers_have_pods_of_their_own_where_roles_are_known() -> None:
    words = ("--nnodes", "2", "--server_num", "1", "--trainer_num", "2", "train.py")
    spec: Any = made(submission(*words), "paddlejob")[0].manifest["spec"]
    assert (spec["ps"]["replicas"], spec["worker"]["replicas"]) == (2, 4)
    tasks: Any = made(submission(*words), "volcano-job")[0].manifest["spec"]
    assert [(t["name"], t["replicas"]) for t in tasks["tasks"]] == [("pserver", 2), ("trainer", 4)]


@pytest.mark.parametrize(
    ("form", "server", "trainer"),
    [("paddlejob", "ps", "worker"), ("volcano-job", "pserver", "trainer")],
)
def test_servers_and_trainers_ask_for_what_each_of_them_needs(
    form: str, server: str, trainer: str
) -> None:
    words = ("--server_num", "1", "--trainer_num", "1", "train.py")
    of = submission(*words, cpu="4", memory="8Gi", gpus="2", server_cpu="16", server_memory="64Gi")
    found = made(of, form)
    of_server, of_trainer = (
        pod_of(found, form, role)["containers"][0]["resources"] for role in (server, trainer)
    )
    assert of_server == {
        "requests": {"cpu": "16", "memory": "64Gi"}, "limits": {"memory": "64Gi"},
    }  # fmt: skip
    assert of_trainer["requests"] == {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"}
    plan = planned(of, form)
    assert [row[3] for row in plan.rows] == ["cpu", "2 nvidia.com/gpu"]
    assert plan.why['cpu: "16"'] == "--server_cpu 16"
    assert plan.why['cpu: "4"'] == "--cpu 4"


def test_servers_ask_for_what_all_ask_for_and_for_devices_only_when_told() -> None:
    words = ("--server_num", "1", "--trainer_num", "1", "train.py")
    of = submission(*words, cpu="4", gpus="2", server_gpus="1")
    found = pod_of(made(of, "paddlejob"), "paddlejob", "ps")["containers"][0]["resources"]
    assert found["requests"] == {"cpu": "4", "nvidia.com/gpu": "1"}
    mixed = planned(submission(*words, server_memory="1Gi"))
    assert any("share their pods" in sentence for sentence in mixed.cannot)
    assert mixed.rows[0][2] == "1 server, 1 worker"


def test_an_elastic_job_keeps_its_bounds_and_its_lost_pods_come_back() -> None:
    of = submission("--nnodes", "2:4", "train.py")
    spec: Any = made(of)[0].manifest["spec"]
    assert spec["completions"] == 4
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    words = args_of(made(of))
    assert words[words.index("--nnodes") + 1] == "2:4"
    assert "--rank" not in words
    worker: Any = made(of, "paddlejob")[0].manifest["spec"]
    assert (worker["worker"]["requests"], worker["worker"]["limits"]) == (2, 4)


def test_the_form_of_paddlerec_starts_all_and_ends_with_its_trainers() -> None:
    of = submission("--nnodes", "2", "--server_num", "1", "--trainer_num", "1", "train.py")
    found = made(of, "volcano-job")
    spec: Any = found[0].manifest["spec"]
    assert spec["minAvailable"] == 4
    assert {p["event"]: p["action"] for p in spec["policies"]} == {
        "PodEvicted": "RestartJob", "PodFailed": "RestartJob",
    }  # fmt: skip
    trainer = spec["tasks"][1]
    assert trainer["policies"] == [{"event": "TaskCompleted", "action": "CompleteJob"}]
    env = {e["name"]: e["value"] for e in trainer["template"]["spec"]["containers"][0]["env"]}
    assert env["PADDLE_PSERVERS_IP_PORT_LIST"] == (
        "train-3f2a-pserver-0.train-3f2a:36767,train-3f2a-pserver-1.train-3f2a:36767"
    )
    assert env["TRAINING_ROLE"] == "TRAINER"


@pytest.mark.parametrize("scheduler", ["volcano", "coscheduling"])
def test_a_gang_scheduler_gets_a_group_of_all_pods(scheduler: str) -> None:
    found = made(submission("--nnodes", "3", "train.py", scheduler=scheduler, queue="q"))
    group = found[-1]
    assert group.resource.kind == "PodGroup"
    assert json.loads(json.dumps(group.manifest["spec"]))["minMember"] == 3
    paddle: Any = made(submission("train.py", scheduler=scheduler), "paddlejob")[0].manifest["spec"]
    assert paddle["schedulingPolicy"]["scheduler"] == scheduler


def test_a_job_in_a_queue_of_kueue_is_not_started_by_us() -> None:
    of = submission("train.py", scheduler="kueue", queue="team-a")
    labels: Any = made(of)[0].manifest["metadata"]
    assert labels["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert not any(step.what.startswith("start") for step in planned(of).steps)


def test_what_a_pod_may_use_and_see_is_as_the_site_says() -> None:
    options = {
        "image": "a/b:1", "cpu": "2", "gpus": "huawei.com/Ascend910=8", "secrets": ["s3-login"],
        "volumes": ["data:/data:ro", "out:/out"], "node_selector": {"zone": "b"},
        "tolerations": [{"key": "dedicated", "value": "ml"}], "pull_secrets": ["pull"],
        "service_account": "trainer", "priority_class": "high",
    }  # fmt: skip
    pod = pod_of(made(submission("train.py", options=options)))
    container = pod["containers"][0]
    assert container["resources"] == {
        "requests": {"cpu": "2", "huawei.com/Ascend910": "8"},
        "limits": {"huawei.com/Ascend910": "8"},
    }
    assert container["envFrom"][0] == {"secretRef": {"name": "s3-login"}}
    mounts = {m["mountPath"]: m.get("readOnly", False) for m in container["volumeMounts"]}
    assert (mounts["/data"], mounts["/out"]) == (True, False)
    assert pod["tolerations"] == options["tolerations"]
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("trainer", "high")


def test_a_patch_has_the_last_word_about_the_pod() -> None:
    patch: dict[str, Any] = {
        "spec": {
            "hostIPC": True,
            "containers": [{"name": "paddock", "imagePullPolicy": "Never"}, {"name": "side"}],
        }
    }
    pod = pod_of(made(submission("train.py"), **patch))
    assert pod["hostIPC"] is True
    assert [c["name"] for c in pod["containers"]] == ["paddock", "side"]
    assert pod["containers"][0]["image"] == "registry.example/train:1"


def test_all_that_is_wrong_is_said_at_once() -> None:
    options = {"namespace": "No_Such", "cpu": "lots", "form": "pod", "volumes": "data"}
    with pytest.raises(UsageError) as caught:
        read_options(submission("--nnodes", "2", "train.py", options=options, scheduler="kueue"))
    said = [problem.message for problem in caught.value.problems]
    assert len(said) == 6, said
    assert any("no image" in one for one in said)


def test_what_a_cluster_cannot_do_is_said_in_the_plan() -> None:
    told = " ".join(planned(submission("train.py")).cannot)
    assert "fetch brings logs only; output/ is gone with the pods" in told
    kept = planned(submission("train.py", volumes="out:/out")).cannot
    assert any("stays on its volumes" in sentence for sentence in kept)
    assert "paddock stop" in told


def test_a_reason_is_beside_no_line_that_has_another_one_elsewhere() -> None:
    """name: NAME stands in every object, for as many reasons."""
    assert "name: train-3f2a" not in planned(submission("train.py")).why
