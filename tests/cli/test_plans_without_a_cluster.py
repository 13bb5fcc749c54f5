"""A plan for Kubernetes asks no cluster, and needs no package that a cluster needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# As on a machine that has Python and paddock only.
BARE = """\
import sys
for name in ("msgspec", "yaml", "lightkube", "httpx2"):
    sys.modules[name] = None
from paddock.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: me, namespace: team}}]
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
"""
WORDS = ["-b", "kubernetes", "--image", "train:1", "-n", "2", "--nproc_per_node", "2"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with a script, and a kubeconfig beside it whose cluster does not answer."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    (tmp_path / "config").write_text(KUBECONFIG)
    return tmp_path / "project"


def said(project: Path, *words: str, is_bare: bool) -> str:
    """What a command prints; without packages and kubeconfig, or with both."""
    env = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "PYTHONPATH": str(ROOT / "src")}
    env |= {} if is_bare else {"KUBECONFIG": str(project.parent / "config")}
    program = ["-c", BARE] if is_bare else ["-m", "paddock"]
    done = subprocess.run(
        [sys.executable, *program, *words], cwd=project, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [WORDS, ["-b", "kubernetes,form=paddlejob", *WORDS[2:]],
     ["-b", "kubernetes,form=volcano-job,scheduler=volcano,namespace=ml", *WORDS[2:]]],
    ids=["default", "paddlejob", "volcano-job"],
)  # fmt: skip
def test_two_plans_of_one_job_are_the_same_bytes_with_and_without_a_cluster(
    project: Path, words: list[str]
) -> None:
    """But for the four digits of each."""
    shown = []
    for is_bare in (True, False):
        text = said(project, "submit", *words, "--dry-run", "--json", "train.py", is_bare=is_bare)
        shown.append(text.replace(json.loads(text)["id"], "train-0000"))
    assert shown[0] == shown[1]
    assert len(json.loads(shown[0])["rows"]) == 2


def test_a_plan_is_explained_without_a_cluster(project: Path) -> None:
    """The namespace is the kubeconfig's, which is not read for it."""
    text = said(project, "explain", *WORDS, "train.py", is_bare=True)
    assert "kind: Job\n" in text and "$NAMESPACE: the namespace of your kubeconfig" in text


def test_what_a_submission_needs_is_named_before_anything_is_kept(project: Path) -> None:
    """The plan was shown; nothing is in the list of jobs."""
    env = {"PATH": os.environ["PATH"], "HOME": str(project.parent), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", BARE, "submit", *WORDS, "train.py"],
        cwd=project, env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "which is not installed here" in done.stderr and "[operator]" in done.stderr
    assert not [*project.parent.glob(".local/state/paddock/runs/[!.]*")]
