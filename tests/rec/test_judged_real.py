"""The `test` line of a run and `--evaluate` of its checkpoint are of one model."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

MODEL = "paddlerec.models.rank.logistic_regression"


def paddock(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "paddock", *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def numbers(output: str, start: str) -> str:
    """The loss and metrics of the last line that begins so."""
    line = [line for line in output.splitlines() if line.startswith(start)][-1]
    return line.partition(", ")[2]


@pytest.mark.parametrize("strategy", ["sync", "async", "half_async"])
def test_a_worker_whose_data_ended_first_judges_the_model_of_all(
    tmp_path: Path, strategy: str
) -> None:
    """Three files for two workers, as usual: one of them has twice as many batches."""
    for name, examples, files in (("train", "1500", "3"), ("test", "501", "2")):
        words = ("--examples", examples, "--files", files, "--seed", files)
        paddock(tmp_path, "data", "generate", "criteo", "--out", name, *words)
    data = ("train_data_dir=train", "test_data_dir=test", "save_dir=out")
    cluster = ("engine=local_cluster", "server_num=2", "worker_num=2", f"strategy={strategy}")
    trained = paddock(tmp_path, "rec", "-m", MODEL, "-o", *data, "epochs=1", *cluster)
    words = ("rec", "-m", MODEL, "--evaluate", "-o", *data, "infer_load_path=out")
    assert numbers(trained, "test, ") == numbers(paddock(tmp_path, *words), "step-")
