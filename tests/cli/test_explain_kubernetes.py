"""What paddock explain --kubernetes shows: the objects of a PaddleJob, without a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddlejobs import job, role
from paddock.cli.main import run

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"


def explained(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    """The objects for these words."""
    assert run(["explain", "--kubernetes", "--json", *map(str, words)]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def named(objects: list[dict[str, Any]], kind: str) -> list[str]:
    """Names of the objects of a kind."""
    return [o["metadata"]["name"] for o in objects if o["kind"] == kind]


def write(folder: Path, made: object) -> Path:
    """A file with this in it."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(made), "utf-8")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "--kubernetes", "FILE"),
        ("--json", "--backend", "kubernetes", "FILE"),
        ("--json", "--backend=kubernetes", "-f", "FILE"),
        ("-b", "k8s", "--filename=FILE", "--json"),
    ],
)
def test_however_it_is_asked_the_answer_is_the_same(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """As kubectl and the other commands take their words."""
    path = str(EXAMPLES / "torch.yaml")
    assert run(["explain", *(word.replace("FILE", path) for word in words)]) == 0
    assert json.loads(capsys.readouterr().out) == explained(capsys, path)


def test_pods_come_with_the_map_of_their_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    """What only a cluster knows has a placeholder."""
    example = EXAMPLES / "wide_and_deep_podip.yaml"
    objects = explained(capsys, example)
    name = yaml.safe_load(example.read_text("utf-8"))["metadata"]["name"]
    pods = named(objects, "Pod")
    assert {f"{name}-ps-0", f"{name}-worker-0"} <= set(pods)
    (addresses,) = (o for o in objects if o["kind"] == "ConfigMap")
    text = json.dumps(addresses["data"])
    assert all(f"<ip of {pod}>" in text for pod in pods)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_example_can_be_explained(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """As YAML that kubectl could read. Only the documents' own OnFailed is warned of."""
    assert run(["explain", "--kubernetes", str(path)]) == 0
    said = capsys.readouterr()
    objects = list(yaml.safe_load_all(said.out))
    wanted = yaml.safe_load(path.read_text("utf-8"))["spec"]
    replicas = sum(wanted.get(r, {}).get("replicas", 0) for r in ("ps", "worker", "heter"))
    assert [line for line in said.err.splitlines() if "OnFailed" not in line] == []
    assert len(named(objects, "Pod")) == (0 if wanted.get("suspend") else replicas)


def test_without_the_extra_it_says_what_to_install() -> None:
    """The guide's first pages have this command: not a traceback for who has only '.[yaml]'."""
    words = ["explain", "--kubernetes", str(EXAMPLES / "simple.yaml")]
    program = (
        "import sys; sys.modules['msgspec'] = None\n"
        f"from paddock.cli.main import run; sys.exit(run({words}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "hint: pip install 'paddock-train[operator]'" in ended.stderr


def test_a_gang_scheduler_adds_its_pod_group(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As the operator's flag would; the pods are those after its admission."""
    path = write(tmp_path, job("gang", worker=role(2)))
    objects = explained(capsys, "--scheduling", "volcano", path)
    assert len(named(objects, "PodGroup")) == 1
    assert named(objects, "Pod") == ["gang-worker-0", "gang-worker-1"]
    assert {o["spec"]["schedulerName"] for o in objects if o["kind"] == "Pod"} == {"volcano"}


def test_the_namespace_is_the_flag_or_the_file_or_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In that order, as kubectl takes it."""
    made = job("here", worker=role(1))
    made["metadata"]["namespace"] = "ml"
    spaces = {o["metadata"]["namespace"] for o in explained(capsys, write(tmp_path, made))}
    assert spaces == {"ml"}
    objects = explained(capsys, "-n", "other", tmp_path / "job.yaml")
    assert {o["metadata"]["namespace"] for o in objects} == {"other"}
    del made["metadata"]["namespace"]
    objects = explained(capsys, write(tmp_path, made))
    assert {o["metadata"]["namespace"] for o in objects} == {"default"}


def test_words_that_mean_something_else_are_warned_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On the other stream, so that the objects can be piped."""
    path = write(tmp_path, job("x", worker=role(1), cleanPodPolicy="OnFailed"))
    assert len(explained(capsys, path)) >= 1
    run(["explain", "--kubernetes", str(path)])
    assert f"paddock: warning: {path}: spec.cleanPodPolicy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"kind": "Job"}, "kind: 'Job' is not PaddleJob"),
        ([], "holds no PaddleJob"),
        (job("x", worker=role(-1)), "spec.worker.replicas: -1 is not in 0..10000"),
        (job("x"), "spec: no role has replicas above 0"),
    ],
)
def test_a_wrong_file_has_one_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, made: object, message: str
) -> None:
    """With the field, and exit code 2."""
    assert run(["explain", "--kubernetes", str(write(tmp_path, made))]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("error:")) == ("", 1)
    assert message in said.err


def test_all_problems_are_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not one for each try."""
    path = write(tmp_path, job("x", worker=role(-1), backoffLimit=-5, withGloo=7))
    assert run(["explain", "--kubernetes", str(path)]) == 2
    said = capsys.readouterr().err
    for field in ("spec.worker.replicas", "spec.backoffLimit", "spec.withGloo"):
        assert f"error: {field}" in said
