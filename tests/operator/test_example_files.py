"""The YAML files that people are told to apply: read as the operator reads them, offline."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.control import images
from paddock import __version__
from paddock.operator.read_spec import read_spec
from paddock.operator.schema import TREE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from paddock.operator.schema import Field

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# deploy/elastic/etcd.yaml is generated, and is no job.
FILES = [
    *sorted((DEPLOY / "examples").glob("*.yaml")),
    DEPLOY / "elastic" / "resnet.yaml",
    DEPLOY / "elastic" / "digits.yaml",
]
# What the documents say of the files they name: mode, replicas, and fields of the spec.
# Sources: the examples of paddle-operator v0.3.5, and the guide of PaddlePaddle.
DOCUMENTED: dict[str, tuple[str, str, int, dict[str, object]]] = {
    "wide_and_deep": ("wide-ande-deep", "PS", 4, {"withGloo": 1, "cleanPodPolicy": "Never"}),
    "wide_and_deep_podip": ("wide-ande-deep-podip", "PS", 4, {"intranet": "PodIP"}),
    "wide_and_deep_service": (
        "wide-ande-deep-service", "PS", 4, {"intranet": "Service", "withGloo": 1},
    ),
    "wide_and_deep_volcano": (
        "wide-ande-deep-volcano", "PS", 4, {"schedulingPolicy": {"queue": "default"}},
    ),
    "deepfm": ("deepfm", "PS", 4, {"withGloo": 1, "cleanPodPolicy": "OnFailed"}),
    "resnet": ("resnet", "Collective", 2, {"cleanPodPolicy": "Never"}),
    "simple": ("simple", "Collective", 2, {"cleanPodPolicy": "Never"}),
}  # fmt: skip
OURS = {*images.DEMO_NAMES, *images.BARE_NAMES}
SCRIPT = re.compile(r"^\w+\.py$")


def job_of(path: Path) -> dict[str, Any]:
    """The one document of a file."""
    (found,) = yaml.safe_load_all(path.read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def unknown_fields(value: object, node: Field, where: str) -> Iterator[str]:
    """Paths of fields that the schema does not name, where it names all."""
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, dict) or not node.children:
            continue
        is_closed = node.type in ("object", "objects")
        for name, inside in item.items():
            child = node.children.get(name) or node.children.get(f"{name}[]")
            if child is not None:
                yield from unknown_fields(inside, child, f"{where}.{name}")
            elif is_closed:
                yield f"{where}.{name}"


def containers(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every container of every role."""
    roles = [job["spec"][role] for role in ("ps", "worker", "heter") if role in job["spec"]]
    return [c for role in roles for c in role["template"]["spec"]["containers"]]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_operator_has_nothing_against_an_example(path: Path) -> None:
    """A file of ours that is refused, or that warns, teaches people to ignore what we say."""
    job = job_of(path)
    assert (job["apiVersion"], job["kind"]) == ("batch.paddlepaddle.org/v1", "PaddleJob")
    spec, problems = read_spec(job["metadata"]["name"], job["spec"])
    assert problems == ()
    assert spec is not None
    expected = ["OnFailed"] if path.stem == "deepfm" else []
    assert [w for w in spec.warnings if not any(e in w for e in expected)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_example_names_only_fields_of_the_schema(path: Path) -> None:
    """kubectl refuses a field that the definition lacks, before the operator sees anything."""
    assert list(unknown_fields(job_of(path)["spec"], TREE["spec"], "spec")) == []


def test_a_field_that_is_not_in_the_schema_is_found() -> None:
    """A check that finds nothing anywhere would pass every file."""
    spec = {"worker": {"replica": 1}, "failurePolicy": {"rules": [{"acton": "Fail"}]}}
    found = list(unknown_fields(spec, TREE["spec"], "spec"))
    assert found == ["spec.worker.replica", "spec.failurePolicy.rules.acton"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_an_example_runs_scripts_and_images_that_exist(path: Path) -> None:
    """The image of this version, and of its folder only scripts that are copied there."""
    scripts = {script.name for script in (ROOT / "examples").rglob("*.py")}
    for container in containers(job_of(path)):
        assert container["image"] in OURS
        assert container["image"].endswith(f":{__version__}")
        words = [*container.get("command", []), *container.get("args", [])]
        assert {word for word in words if SCRIPT.match(word)} <= scripts


@pytest.mark.parametrize("stem", DOCUMENTED)
def test_a_documented_example_is_what_the_documents_say(stem: str) -> None:
    """People compare the output of `kubectl get pdj` with the page before them."""
    name, mode, replicas, fields = DOCUMENTED[stem]
    job = job_of(DEPLOY / "examples" / f"{stem}.yaml")
    spec, _ = read_spec(job["metadata"]["name"], job["spec"])
    assert spec is not None
    assert (job["metadata"]["name"], spec.mode, spec.replicas) == (name, mode, replicas)
    assert {field: job["spec"][field] for field in fields} == fields


def test_no_two_examples_have_the_same_name() -> None:
    """They can all be applied to one namespace, one after another or together."""
    names = [job_of(path)["metadata"]["name"] for path in FILES]
    assert len(set(names)) == len(names)


def test_the_images_hold_what_the_extras_of_the_project_say() -> None:
    """The lists beside the images are a copy; this keeps them one."""
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for requirement in images.DEMO:  # the operator's come with its extra
        if not requirement.startswith("setuptools"):  # Paddle forgot it
            assert f'"{requirement}"' in project
