"""`paddock rec` on a 2.x folder: alone, and with a server and two workers, as a user types it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ps.running import environment
from rec.dygraph.folders import copy_example

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]


def rec(folder: Path, *words: str, code: int = 0) -> list[str]:
    """The lines of `paddock rec -m folder`."""
    ended = subprocess.run(
        [sys.executable, "-m", "paddock", "rec", "-m", str(folder), *words],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return (ended.stdout + ended.stderr).splitlines()


def auc(line: str) -> float:
    """The AUC that a line says."""
    return float(line.split("auc ")[1].split(",")[0])


def test_a_folder_trains_alone_and_its_epochs_are_judged(tmp_path: Path) -> None:
    """Lines, checkpoints where PaddleRec's users look for them, and a table of both epochs."""
    folder = copy_example(tmp_path / "model", 1500)
    done = [line for line in rec(folder) if " done, " in line]
    assert len(done) == 2 and auc(done[1]) > auc(done[0])
    for epoch in ("0", "1"):
        assert {"rec.pdparams", "rec.pdopt"} <= {
            p.name for p in (folder / "output" / epoch).iterdir()
        }
        ours = {p.stat().st_ino for p in (folder / "output").glob("step-*/rec.pdparams")}
        assert (folder / "output" / epoch / "rec.pdparams").stat().st_ino in ours  # Written once.
    judged = [line for line in rec(folder, "--evaluate") if "auc" in line]
    assert [line.split(",")[0] for line in judged] == ["epoch 0", "epoch 1"] and auc(
        judged[1]
    ) > 0.75


def test_a_server_and_two_workers_train_the_same_folder(tmp_path: Path) -> None:
    """Unchanged; their checkpoints are judged without servers."""
    folder = copy_example(tmp_path / "model", 1500)
    said = rec(folder, "-o", "engine=local_cluster", "worker_num=2", "server_num=1")
    assert any(" done, " in line for line in said)
    judged = [line for line in rec(folder, "--evaluate") if "auc" in line]
    assert len(judged) == 2 and auc(judged[1]) > 0.75


def test_a_missing_package_ends_with_a_line_and_two(tmp_path: Path) -> None:
    """No traceback; exit code 2."""
    folder = copy_example(tmp_path / "model", 200)
    (folder / "net.py").write_text("import nowhere_to_be_found\n" + (folder / "net.py").read_text())
    said = rec(folder, code=2)
    assert any("imports nowhere_to_be_found" in line for line in said)
    assert any("pip install nowhere_to_be_found" in line for line in said)
    assert not any("Traceback" in line for line in said)
