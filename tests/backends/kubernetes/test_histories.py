"""The history of a job on Kubernetes, once its pods or its cluster are gone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from paddock.backends.common.histories import fetch_histories
from paddock.backends.kubernetes.driver import Kubernetes
from paddock.backends.registry import Registry
from paddock.backends.types import Handle
from paddock.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {}}]
"""
NEWS = {"files": [{"name": "uid", "inode": 7, "text": "{}\n", "at": 0}], "is_whole": True}


def test_what_was_copied_while_pods_ran_stays(tmp_path: Path) -> None:
    """The cluster does not answer any more; without a copy that is an error."""
    (tmp_path / "config").write_text(CONFIG, "utf-8")
    run = Registry({"XDG_STATE_HOME": str(tmp_path)}).add(
        "train-1", Handle("kubernetes", "ml", "train-1"), "train.py", 1
    )
    run.keep(form="job", uid="1", names=["train-1-0"], roles={}, context="",
             kubeconfig=str(tmp_path / "config"))  # fmt: skip
    with pytest.raises(UsageError):
        Kubernetes().history(run)
    copied = fetch_histories(run.folder / "history", [("train-1-0", {})], lambda _: [NEWS])
    assert [json.loads(path.read_text()) for path in copied] == [{}]
    assert Kubernetes().history(run) == copied
