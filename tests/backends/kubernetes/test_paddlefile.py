"""A PaddleJob that the user has written, on a cluster that has an operator."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backends.kubernetes.submissions import submission
from paddock.backends.kubernetes.objects import objects_of, plan_of
from paddock.backends.kubernetes.options import read_options
from paddock.errors import UsageError

if TYPE_CHECKING:
    from paddock.backends.kubernetes.objects import PlannedObject
    from paddock.backends.types import Submission

FILE: dict[str, Any] = {
    "kind": "PaddleJob",
    "metadata": {"name": "theirs", "labels": {"kueue.x-k8s.io/queue-name": "team-a"}},
    "spec": {
        "cleanPodPolicy": "OnCompletion",
        "worker": {
            "replicas": 2,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "main", "image": "their/image:1", "command": ["python", "t.py"],
                         "env": [{"name": "KEY", "value": "se-cret"}]},
                        {"name": "side", "image": "other"},
                    ]
                }
            },
        },
    },
}  # fmt: skip


def of_file(**extra: str) -> Submission:
    return replace(submission("t.py", options={}, **extra), file=json.dumps(FILE))


def made(of: Submission, form: str = "paddlejob") -> list[PlannedObject]:
    return objects_of(of, read_options(of), form, {}, {})


def test_it_is_made_as_it_is_written_and_waits_until_all_is_there() -> None:
    top, secret = made(of_file())
    spec: Any = top.manifest["spec"]
    assert secret.resource.kind == "Secret"
    assert (spec["suspend"], spec["cleanPodPolicy"]) == (True, "OnCompletion")
    first, side = spec["worker"]["template"]["spec"]["containers"]
    assert (first["command"], first["image"]) == (["python", "t.py"], "their/image:1")
    assert first["envFrom"] == [{"secretRef": {"name": "train-3f2a"}}]
    assert side == {"name": "side", "image": "other"}
    metadata: Any = top.manifest["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"


def test_the_launcher_says_how_it_ends_where_the_kubelet_reads_it() -> None:
    """Also in a container that names another file, and whose list of variables is empty."""
    file = json.loads(json.dumps(FILE))
    first = file["spec"]["worker"]["template"]["spec"]["containers"][0]
    first |= {"env": None, "envFrom": None, "terminationMessagePath": "/end"}
    spec: Any = made(replace(of_file(), file=json.dumps(file)))[0].manifest["spec"]
    first = spec["worker"]["template"]["spec"]["containers"][0]
    assert first["env"] == [{"name": "PADDOCK_TERMINATION_LOG", "value": "/end"}]


def test_another_image_may_be_put_in_its_place() -> None:
    spec: Any = made(of_file(image="mine:2"))[0].manifest["spec"]
    containers = spec["worker"]["template"]["spec"]["containers"]
    assert [one["image"] for one in containers] == ["mine:2", "other"]


def test_the_plan_has_its_pods_and_no_values_of_its_variables() -> None:
    of = of_file()
    plan = plan_of(of, read_options(of), "paddlejob", made(of))
    assert [row[1] for row in plan.rows] == ["train-3f2a-worker-0", "train-3f2a-worker-1"]
    assert "se-cret" not in str(plan)


def test_without_an_operator_an_image_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="no image"):
        made(of_file(), "job")
