"""Directories and scripts whose names have blanks, or letters that the terminal lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "import os\nprint('第', os.environ['RANK'], '号', flush=True)\n"
JOB = {
    "apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": "j"},
    "spec": {"worker": {"replicas": 2, "template": {"spec": {"containers": [
        {"name": "c", "image": "i", "command": ["python"], "args": ["我的 训练.py"]}]}}}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script and a job file in a directory as people call theirs."""
    found = tmp_path / "用户" / "my work"
    found.mkdir(parents=True)
    (found / "我的 训练.py").write_text(SCRIPT, "utf-8")
    (found / "任务.json").write_text(json.dumps(JOB, ensure_ascii=False), "utf-8")
    return found


@pytest.mark.parametrize("words", [("--nproc_per_node", "2", "我的 训练.py"), ("-f", "任务.json")])
def test_names_have_blanks_and_letters_of_any_language(
    folder: Path, words: tuple[str, ...]
) -> None:
    """Working directory, script, job file and log directory; the logs hold what ranks print."""
    done = paddock(folder, "launch", "--log_dir", "日志 1", *words)
    assert done.returncode == 0, done.stderr
    logs = sorted((folder / "日志 1").glob("workerlog.*"))
    assert [log.read_text("utf-8").strip() for log in logs] == ["第 0 号", "第 1 号"]


def test_a_terminal_that_lacks_the_letters_ends_nothing(folder: Path) -> None:
    """Its encoding is LC_ALL=zh_CN.GBK's, or ASCII: what it cannot show is written as \\u...."""
    words = ("--nproc_per_node", "2", "我的 训练.py")
    done = paddock(folder, "explain", *words, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u6211\\u7684 \\u8bad\\u7ec3.py" in done.stdout


def paddock(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command there."""
    command = [sys.executable, "-m", "paddock", *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
