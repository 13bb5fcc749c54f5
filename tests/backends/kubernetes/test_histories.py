"""The history of a job on Kubernetes, once its pods or its cluster are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.backends.common.histories import fetch_histories
from paddock.backends.kubernetes import api
from paddock.backends.kubernetes.driver import Kubernetes
from paddock.backends.registry import Registry
from paddock.backends.types import Handle
from paddock.errors import UsageError
from paddock.watch.history import row_of, standing

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


def test_a_pod_gives_out_what_stands_also_beside_damaged_rows(tmp_path: Path) -> None:
    """A rank is in a debugger during the stall; the newest row is half written."""
    stall = {"kind": "stall", "at": 3, "seconds": 1}
    seen = {"kind": "seen", "at": 2, "name": "progress", "text": "plain"}
    held = {"kind": "held", "at": 4, "rank": 1}
    again = {"kind": "attempt", "at": 2, "attempt": 1, "ranks": []}
    rows = [{**held, "rank": 0}, again, seen, stall, held, {**held, "kind": "held_over"}]
    lines = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    (tmp_path / "log").mkdir()
    text = b"\n".join([*lines, b"\xff", b'{"kind":"stall_over","a'])
    (tmp_path / "log" / "history.jsonl").write_bytes(text)
    script = api.LATEST.replace(api.FOLDER, str(tmp_path))
    printed = subprocess.run([sys.executable, "-Ec", script], capture_output=True, check=True)
    found = [row for line in printed.stdout.splitlines() if (row := row_of(line))]
    assert standing(found) == [stall] and seen in found
