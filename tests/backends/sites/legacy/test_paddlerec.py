"""PaddleRec's backend.yaml as a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from paddock.backends.backend import find_backend
from paddock.backends.flags import split_args
from paddock.backends.sites.find import find_site
from paddock.backends.submit import read_submission
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.backends.types import Site

    Read = Callable[..., Site]
    Specs = Callable[..., dict[str, Any]]

KUBERNETES = """
engine:
  backend: "k8s"
  job_name: "k8s-ctr-dnn"

  submit:
    server_num: 2
    trainer_num: 3
    docker_image: "hub.example/ctr/paddlerec:alpha"
    memory: "4Gi"
    storage: "10Gi"
    log_level: 0
"""
CLOUD = """
backend: "PaddleCloud"
cluster_type: mpi
config:
  paddle_version: "1.7.2"
  fs_name: "afs://example"
  communicator:
    FLAGS_communicator_is_sgd_optimizer: 0
submit:
  priority: "high"
  job_name: "ctr"
  group: "paddle"
  start_cmd: "python -m paddlerec.run -m config.yaml"
  files: "config.yaml model.py"
  nodes: 2
"""
PROFILE = '[site.cloud]\nbackend = "script"\nsubmit = "client {group}"\ncredentials = ["AK"]\n'


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The site of a backend.yaml with that text, beside a profile."""

    def found(text: str, word: str = "backend.yaml", profile: str = "", **more: str) -> Site:
        (tmp_path / "backend.yaml").write_text(text)
        (tmp_path / "paddock.toml").write_text(profile)
        return find_site(word, env={}, cwd=str(tmp_path), **more)

    return found


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Specs:
    """What the job is that `paddock submit -b backend.yaml` makes of a script."""
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)

    def spec(word: str, *flags: str) -> dict[str, Any]:
        words = ["-b", f"backend.yaml,namespace=ml{word}", *flags, "train.py"]
        plan = find_backend("kubernetes").plan(read_submission(split_args(words)))
        (found,) = (
            row["spec"]
            for row in map(yaml.safe_load, plan.files.values())
            if row["kind"] in ("Job", "PaddleJob")
        )
        assert isinstance(found, dict)
        return found

    return spec


def test_kubernetes_form_of_the_document_is_read(read: Read) -> None:
    """Their Volcano job, with the same numbers."""
    site = read(KUBERNETES)
    assert site.backend == "kubernetes"
    assert site.options == {
        "form": "volcano-job", "server_num": 2, "trainer_num": 3,
        "image": "hub.example/ctr/paddlerec:alpha", "memory": "4Gi", "storage": "10Gi",
        "env": {"GLOG_v": "0"}, "job_name": "k8s-ctr-dnn",
    }  # fmt: skip


def test_worker_num_of_their_page_is_trainer_num(read: Read) -> None:
    """The page said one, the code read the other."""
    assert read(KUBERNETES.replace("trainer_num", "worker_num")).options["trainer_num"] == 3


def test_numbers_may_stand_in_quotes(read: Read) -> None:
    """Their shell did not tell the difference."""
    assert read(KUBERNETES.replace("num: 2", "num: '2'")).options["server_num"] == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [('job_name: "k8s-ctr-dnn"', "job_name: PaddleRec_CTR"),
     ('job_name: "k8s-ctr-dnn"', "jobname: PaddleRec_CTR"),
     ("log_level: 0", "job_name: PaddleRec_CTR"), ("log_level: 0", "jobname: PaddleRec_CTR")],
)  # fmt: skip
def test_job_names_of_their_documents_are_made_ours(read: Read, old: str, new: str) -> None:
    """Capitals and underscores; on top or in submit, in either spelling."""
    site = read(KUBERNETES.replace(old, new))
    assert site.text("job_name") == "paddlerec-ctr"
    assert site.sources["job_name"].endswith(new.partition(":")[0])


@pytest.mark.parametrize(
    ("word", "old", "flags", "pods"),
    [("", "", (), {"pserver": 2, "trainer": 3}),
     ("", "", ("-n", "4"), {"pserver": 2, "trainer": 4}),
     ("", "", ("--server_num=1", "--trainer_num=1"), {"pserver": 1, "trainer": 1}),
     ("", "server_num: 2", (), {"trainer": 3}),
     ("", "trainer_num: 3", (), {"pserver": 2, "trainer": 1}),
     (",form=paddlejob", "", (), {"ps": 2, "worker": 3}),
     (",form=job", "server_num: 2", (), 3), (",form=job", "server_num: 2", ("-n", "1"), 1)],
)  # fmt: skip
def test_servers_and_trainers_become_pods(
    read: Read, specs: Specs, word: str, old: str, flags: tuple[str, ...], pods: object
) -> None:
    """Of a job that does not say how many; in every form. old: a line that is not there."""
    read(KUBERNETES.replace(old, "") if old else KUBERNETES)
    spec = specs(word, *flags)
    if "tasks" in spec:
        assert {task["name"]: task["replicas"] for task in spec["tasks"]} == pods
    elif "completions" in spec:
        assert spec["completions"] == pods
    else:
        assert {name: spec[name]["replicas"] for name in ("ps", "worker")} == pods


def test_servers_in_a_form_with_one_kind_of_pod_are_refused(read: Read, specs: Specs) -> None:
    """Never trained without them."""
    read(KUBERNETES)
    with pytest.raises(UsageError, match="server_num = 2 of the site"):
        specs(",form=job")


def test_options_of_the_word_win_over_the_file(read: Read) -> None:
    """Another form, for a cluster without Volcano."""
    assert read(KUBERNETES, "backend.yaml,form=job").text("form") == "job"


def test_paddlecloud_lies_over_the_site_that_has_the_command(read: Read) -> None:
    """Its keys become values for commands, lines of config.ini and files."""
    for word, more in (("backend.yaml", {}), ("cloud", {"conf": "backend.yaml"})):
        site = read(CLOUD, word, PROFILE, **more)
        assert (site.name, site.text("submit")) == ("cloud", "client {group}")
        params = site.options["params"]
        assert isinstance(params, dict)
        assert (params["group"], params["nodes"]) == ("paddle", "2")
        assert site.options["config"] == {
            "PADDLE_PADDLEREC_ROLE": "WORKER", "PADDLEREC_CLUSTER_TYPE": "MPI",
            "FLAGS_communicator_is_sgd_optimizer": "0",
        }  # fmt: skip
        assert [Path(each).name for each in site.texts("files")] == ["config.yaml", "model.py"]
        assert (site.text("job_name"), params["job_name"]) == ("ctr", "ctr")


def test_paddlecloud_without_a_command_says_so(read: Read) -> None:
    """The client was never public."""
    with pytest.raises(UsageError, match="no command that submits"):
        read(CLOUD)


@pytest.mark.parametrize("line", ["submit: {ak: x}", "submit: {sk: x}", "config: {fs_ugi: 'u,p'}"])
def test_file_with_keys_of_the_cloud_is_refused(read: Read, line: str) -> None:
    """They are taken from the environment only."""
    with pytest.raises(UsageError, match="holds a secret") as caught:
        read(f"backend: PaddleCloud\n{line}\n", profile=PROFILE)
    assert "environment" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "what"),
    [("backend: MPI\nsubmit: {nodes: 2}", "a queue that is not public"),
     ("backend: k9s\nsubmit: {}", "there is no backend 'k9s'"),
     ("backend: k8s", "has no submit"), ("- 1", "holds no"),
     ("backend: k8s\nsubmit: {memry: 1}", "memry is not known"),
     ("backend: k8s\nsubmit: {server_num: two}", "must be a whole number"),
     ("backend: k8s\nsubmit: {server_num: true}", "must be a whole number from 0 on"),
     ("backend: k8s\nsubmit: {trainer_num: 0}", "trainer_num must be a whole number from 1 on"),
     ("backend: k8s\nsubmit: {trainer_num: 2, worker_num: 3}", "worker_num is 3, and .* is 2")],
)  # fmt: skip
def test_bad_backend_yaml_says_what_is_wrong(read: Read, text: str, what: str) -> None:
    """And names what is there instead."""
    with pytest.raises(UsageError, match=what):
        read(text)
