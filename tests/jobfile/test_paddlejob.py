"""A PaddleJob on a laptop: replicas are processes, the rest is listed."""

from __future__ import annotations

import copy
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from jobfile.reading import parsed
from paddock.core.job import Entrypoint, Role
from paddock.errors import UsageError
from paddock.jobfile.configuration import configuration
from paddock.jobfile.dialects.paddlejob import job_from_document, resolve_file
from paddock.jobfile.document import load_document

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = "/usr/bin/python3"

# The deployment guide, "resnet".
RESNET: dict[str, Any] = {
    "apiVersion": "batch.paddlepaddle.org/v1",
    "kind": "PaddleJob",
    "metadata": {"name": "resnet"},
    "spec": {
        "cleanPodPolicy": "Never",
        "worker": {
            "replicas": 2,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "paddle",
                            "image": "registry.baidubce.com/paddle-operator/demo-resnet:v1",
                            "command": ["python"],
                            "args": ["-m", "paddle.distributed.launch", "train_fleet.py"],
                            "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
                            "resources": {"limits": {"nvidia.com/gpu": 1}},
                        }
                    ],
                    "volumes": [{"name": "dshm", "emptyDir": {"medium": "Memory"}}],
                }
            },
        },
    },
}
# The deployment guide, "wide and deep": no command, the image has it.
CONTAINER = {"name": "paddle", "image": "registry.baidubce.com/demo-wide-and-deep:v1"}
WIDE: dict[str, Any] = {
    "apiVersion": "batch.paddlepaddle.org/v1",
    "kind": "PaddleJob",
    "metadata": {"name": "wide-ande-deep"},
    "spec": {
        "withGloo": 1,
        "intranet": "PodIP",
        "cleanPodPolicy": "OnCompletion",
        "worker": {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}},
        "ps": {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}},
    },
}


def changed(document: dict[str, Any], path: str, content: object) -> dict[str, Any]:
    """A copy with one value replaced; the path is dotted, numbers are positions."""
    copied = copy.deepcopy(document)
    at: Any = copied
    *heads, last = path.split(".")
    for key in heads:
        at = at[int(key)] if key.isdigit() else at[key]
    at[last] = content
    return copied


def with_container(**fields: object) -> dict[str, Any]:
    """RESNET with fields of its container replaced."""
    document = copy.deepcopy(RESNET)
    document["spec"]["worker"]["template"]["spec"]["containers"][0].update(fields)
    return document


def test_the_documented_collective_job_runs_two_processes() -> None:
    """The deployment guide: the launcher inside is taken off, and this one does its work."""
    found, not_honoured = job_from_document(RESNET, parsed("-f job.yaml"))
    assert found.command == Entrypoint("script", "train_fleet.py", (), PYTHON)
    assert found.roles == (Role("worker", 2),)
    assert (found.job_id, found.mode) == ("resnet", "collective")
    text = "\n".join(not_honoured)
    for part in ("image", "volumeMounts", "nvidia.com/gpu=1", "volumes", "cleanPodPolicy: Never"):
        assert part in text


def test_the_documented_ps_job_needs_a_command() -> None:
    """The image's own command is unknown here; the command line can name one."""
    with pytest.raises(UsageError, match=r"spec\.worker.*command: missing"):
        job_from_document(WIDE, parsed("-f job.yaml"))
    found, not_honoured = job_from_document(WIDE, parsed("-f job.yaml train.py --x"))
    assert found.command == Entrypoint("script", "train.py", ("--x",), PYTHON)
    assert found.mode == "ps"
    assert found.roles == (Role("ps", 2), Role("worker", 2))
    assert found.with_gloo == "1"
    assert found.sources["roles.ps.count"].name == "spec.ps.replicas"
    assert any("intranet" in line for line in not_honoured)


def test_the_command_line_wins_over_the_file() -> None:
    """The file is the job as it was sent; flags are what is wanted now."""
    base = parsed("-f j --nproc_per_node 1 --job_id mine --log_dir d --env B=2")
    document = with_container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "0"}])
    found, _ = job_from_document(document, base)
    assert found.roles == (Role("worker", 1),)
    assert (found.job_id, found.logs.directory) == ("mine", "d")
    assert found.extra_env == (("A", "1"), ("B", "2"))
    assert found.sources["job_id"].kind == "flag"


def test_inner_flags_of_the_launcher_count() -> None:
    """The file may well say --devices or --log_dir; where nodes are means nothing here."""
    args = ["-m", "paddle.distributed.launch", "--nnodes", "2", "--log_dir", "out",
            "--nproc_per_node", "2", "--master", "10.0.0.1:1", "t.py", "--lr=$(LR)"]  # fmt: skip
    document = with_container(args=args, env=[{"name": "LR", "value": "0.1"}])
    found, not_honoured = job_from_document(document, parsed("-f j"))
    assert found.logs.directory == "out"
    assert found.roles == (Role("worker", 4),)
    assert found.command.args == ("--lr=0.1",)
    assert found.nnodes_max == 1
    text = "\n".join(not_honoured)
    assert "--nnodes 2: all replicas are on this machine" in text
    assert "--master" in text


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "train.py", "1"], Entrypoint("script", "train.py", ("1",), PYTHON)),
        (["/usr/bin/python3.8", "-u", "t.py"], Entrypoint("script", "t.py", (), PYTHON)),
        (["python", "-m", "pkg.mod", "x"], Entrypoint("module", "pkg.mod", ("x",), PYTHON)),
        (["fleetrun", "--gpus", "0", "t.py"], Entrypoint("script", "t.py", (), PYTHON)),
        (["torchrun", "--standalone", "t.py"], Entrypoint("script", "t.py", (), PYTHON)),
        (["paddock", "launch", "-m", "m"], Entrypoint("module", "m", (), PYTHON)),
        (["sh", "-c", "python -m paddle.distributed.launch t.py 'a b'"],
         Entrypoint("script", "t.py", ("a b",), PYTHON)),
        (["sh", "-c", "cd /x && python t.py"],
         Entrypoint("program", "sh", ("-c", "cd /x && python t.py"), PYTHON)),
        (["./run.sh", "-m"], Entrypoint("program", "./run.sh", ("-m",), PYTHON)),
        (["python", "-c", "pass"], Entrypoint("program", "python", ("-c", "pass"), PYTHON)),
    ],
)  # fmt: skip
def test_commands_are_taken_apart(command: list[str], expected: Entrypoint) -> None:
    """A launcher within a launcher would start a job per replica."""
    document = with_container(command=command, args=None)
    found, _ = job_from_document(document, parsed("-f j"))
    assert found.command == expected


def test_configuration_in_the_containers_environment_configures() -> None:
    """In a pod the launcher would read it; the processes must not get it as their own."""
    env = [{"name": "PADDLE_LOG_DIR", "value": "d"}, {"name": "X", "value": "1"},
           {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]  # fmt: skip
    found, not_honoured = job_from_document(with_container(env=env), parsed("-f j"))
    assert found.logs.directory == "d"
    assert found.extra_env == (("X", "1"),)
    assert any("env.S: valueFrom" in line for line in not_honoured)


def test_replicas_are_shared_among_nodes() -> None:
    """The same file on two hosts: half of the replicas each."""
    found, _ = job_from_document(RESNET, parsed("-f j --nnodes 2 --master h:1"))
    assert found.roles == (Role("worker", 1),)
    with pytest.raises(UsageError, match="do not fit --nnodes 3"):
        job_from_document(RESNET, parsed("-f j --nnodes 3 --master h:1"))


def test_nothing_is_dropped_in_silence() -> None:
    """Every field that has no effect is named with its path."""
    document = changed(RESNET, "spec.schedulingPolicy", {"queue": "q"})
    document["spec"]["elastic"] = 1
    document["spec"]["cleanPolicy"] = "Never"
    document["metadata"]["namespace"] = "n"
    pod = document["spec"]["worker"]["template"]["spec"]
    pod["tolerations"] = []
    pod["terminationGracePeriodSeconds"] = 45
    pod["containers"].append({"name": "side", "image": "x"})
    document["spec"]["worker"]["limits"] = 4
    found, not_honoured = job_from_document(document, parsed("-f j"))
    text = "\n".join(not_honoured)
    for part in (
        "spec.schedulingPolicy",
        "spec.elastic: 1",
        "spec.cleanPolicy: Never - there are no pods to clean; its name is cleanPodPolicy",
        "metadata.namespace",
        "template.spec.tolerations",
        "containers[1]",
        "spec.worker.limits",
    ):
        assert part in text
    assert found.grace_seconds == 45.0


def test_a_variable_that_decides_what_the_file_says_is_told() -> None:
    """As with a flag; what the file leaves open, or says alike, is nothing to tell."""
    env = {"PADDLE_JOB_ID": "other", "PADDLE_LOG_DIR": "d", "PADDLE_NPROC_PER_NODE": "2"}
    found, not_honoured = job_from_document(RESNET, parsed("-f j", env))
    assert (found.job_id, found.roles) == ("other", (Role("worker", 2),))
    told = [line for line in not_honoured if "decides" in line]
    assert told == ["metadata.name resnet: PADDLE_JOB_ID=other decides; see --ignore-env"]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("kind", "Job", "kind: 'Job' is not PaddleJob"),
        ("apiVersion", "v1", "apiVersion: 'v1'"),
        ("apiVersion", "kubeflow.org/v1", "apiVersion: 'kubeflow.org/v1'"),
        ("spec", None, "spec: missing"),
        ("spec", {"cleanPodPolicy": "Never"}, "spec: no role"),
        ("spec", {"wroker": {}}, "spec.wroker: unknown field, did you mean 'worker'?"),
        ("spec.worker.template.spec.containers.0.command", ["run_check"], "Paddle's own launcher"),
        ("spec.worker.template.spec", {"contaners": []},
         "spec.contaners: unknown field, did you mean 'containers'?"),
        ("spec.worker.template.spec.containers", [{"comand": ["python"]}],
         "containers[0].comand: unknown field, did you mean 'command'?"),
        ("spec.worker", 3, "spec.worker: not a mapping"),
        ("spec.worker.replicas", 0, "spec.worker.replicas: 0 is not in 1.."),
        ("spec.worker.replicas", -1, "spec.worker.replicas: -1 is not in 1.."),
        ("spec.worker.replicas", "2", "spec.worker.replicas: '2' is not a whole number"),
        ("spec.worker.replicas", True, "is not a whole number"),
        ("spec.worker.replicas", None, "spec.worker.replicas: missing"),
        ("spec.worker.template", [], "spec.worker.template: not a mapping"),
        ("spec.worker.template.spec", 1, "template.spec: not a mapping"),
        ("spec.worker.template.spec.containers", [], "containers: no container"),
        ("spec.worker.template.spec.containers.0.command", "python", "command: not a list"),
        ("spec.worker.template.spec.containers.0.args", ["-m", 1], "args[1]: 1 is not a text"),
        ("spec.worker.template.spec.containers.0.env", [{"value": "x"}], "env[0]: no usable name"),
        ("spec.worker.template.spec.containers.0.args",
         ["-m", "paddle.distributed.launch", "--nods", "2", "t.py"], "unknown flag --nods"),
        ("spec.worker.template.spec.containers.0.args",
         ["-m", "paddle.distributed.launch"], "no script"),
        ("spec.withGloo", 7, "spec.withGloo 7"),
        ("metadata", "x", "metadata: not a mapping"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_with_its_path(path: str, content: object, message: str) -> None:
    """One line, the path in the document, exit code 2."""
    with pytest.raises(UsageError) as caught:
        job_from_document(changed(RESNET, path, content), parsed("-f j"))
    assert any(message in p.message for p in caught.value.problems), caught.value.problems


def test_all_mistakes_are_told_at_once() -> None:
    """As on the command line."""
    document = changed(changed(RESNET, "kind", "X"), "spec.worker.replicas", -1)
    with pytest.raises(UsageError) as caught:
        job_from_document(document, parsed("-f j"))
    assert len(caught.value.problems) == 2


def test_the_paddlejob_is_picked_from_many_documents(tmp_path: Path) -> None:
    """Files often hold a ConfigMap as well."""
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump_all([{"kind": "ConfigMap"}, RESNET]))
    assert load_document(str(path)) == RESNET
    found = resolve_file(parsed(f"-f {path}"))
    assert dict(configuration(found.job))["training_script"] == "train_fleet.py"
    assert dict(configuration(found.job))["nproc_per_node"] == "2"
    assert all(note.startswith(f"{path}: ") for note in found.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: [", "line 1"),
        ("", "holds no PaddleJob"),
        ("- a", "holds no PaddleJob"),
        ("kind: PaddleJob\n---\nkind: PaddleJob\n", "2 PaddleJobs"),
        ('{"kind": ', "not JSON"),
        ("a: b: c", "mapping values"),
    ],
)
def test_files_that_are_no_jobs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """Each with its own reason."""
    pytest.importorskip("yaml")
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        load_document(str(path))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Missing, or not text."""
    with pytest.raises(UsageError, match="cannot read"):
        load_document(str(tmp_path / "none.yaml"))
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_document(str(tmp_path / "b.yaml"))


def test_json_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launching has no dependency; YAML says which extra to install."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(RESNET))
    assert load_document(str(path)) == RESNET
    path.write_text("kind: PaddleJob")
    with pytest.raises(UsageError) as caught:
        load_document(str(path))
    assert "pip install 'paddock-train[yaml]'" in caught.value.hint
