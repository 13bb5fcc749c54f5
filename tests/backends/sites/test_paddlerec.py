"""PaddleRec's backend.yaml as a site."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.backends.sites.find import find_site
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.backends.words import Site

    Read = Callable[..., Site]

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
        assert site.text("job_name") == "ctr"


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
     ("backend: k8s\nsubmit: {server_num: two}", "must be a whole number")],
)  # fmt: skip
def test_bad_backend_yaml_says_what_is_wrong(read: Read, text: str, what: str) -> None:
    """And names what is there instead."""
    with pytest.raises(UsageError, match=what):
        read(text)
