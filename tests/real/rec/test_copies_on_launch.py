"""Dense models on workers without servers, under `paddock launch`: the numbers of one worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from real.conftest import ROOT, marked_pids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from real.conftest import Need

MARK = "TEST_JOB_MARK"
LIMIT_SECONDS = 100.0
HALF = 8  # of a batch

MODEL = '''
from paddock.rec.models.inputs import dense_of


class Model:
    """4 numbers -> 8 -> 1."""

    metrics = ("auc",)

    def __init__(self, net, hyper):
        self.net, self.tower = net, net.mlp("tower", [4, hyper("width", 8), 1])

    def forward(self, batch):
        return self.net.click(self.tower(self.net.tensor(dense_of(batch, 4))), batch)
'''

CONFIG = """
runner:
  train_reader_path: slots
  sparse_slots: "click"
  dense_slots: "n:4"
  train_data_dir: train
  test_data_dir: test
  train_batch_size: 8
  infer_batch_size: 64
  epochs: 2
  model_save_path: out
hyper_parameters:
  optimizer: {class: Adam, learning_rate: 0.01}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A model, and its data twice: a file for each of two workers, and as one worker reads it."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "config.yaml").write_text(CONFIG)
    rng = np.random.default_rng(5)
    lines = [
        " ".join([f"click:{int(row[0] > row[1])}", *(f"n:{number:.3f}" for number in row)])
        for row in rng.random((120, 4))
    ]
    parts = lines[:60], lines[60:]
    mixed = [line for at in range(0, 60, HALF) for part in parts for line in part[at : at + HALF]]
    for name, files in (("train", parts), ("whole", [mixed]), ("test", parts)):
        (tmp_path / name).mkdir()
        for number, file in enumerate(files):
            (tmp_path / name / f"part-{number}").write_text("\n".join(file) + "\n")
    yield tmp_path
    for pid in marked_pids(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def rec(folder: Path, *options: str) -> str:
    """What `paddock rec` says of the model with these options."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), MARK: str(folder)}
    words = (sys.executable, "-m", "paddock", "rec", "-m", "config.yaml", "-o", *options)
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True,
        timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tested(text: str) -> list[float]:
    """Loss and AUC of the last line."""
    (found,) = re.findall(r"^test, loss ([\d.]+), auc ([\d.]+)", text, re.MULTILINE)
    return [float(number) for number in found]


def read_state(directory: Path, framework: str) -> dict[str, np.ndarray]:
    """The arrays of an export."""
    if framework == "paddle":
        from paddock.rec.pickles import read_arrays

        return read_arrays(str(directory / "model.pdparams"))
    import torch

    found = torch.load(directory / "model.pt", weights_only=True)
    return {name: one.numpy() for name, one in found.items()}


TWO = "server_num=0", "worker_num=2"


@pytest.mark.limit(240)
def test_lines_count_on_from_a_checkpoint_in_an_epoch(folder: Path, need: Need) -> None:
    """Also where one worker takes over what two have left; the line says what is of the rest."""
    need(modules=["numpy", "torch"])
    words = "framework=torch", "epochs=1", "print_interval=1"
    words += "save_every_epochs=9", "save_last=false"
    rec(folder, *words, *TWO, "save_every_steps=5")
    more = *words, "resume=true", "save_every_steps=100"
    for team, batches in (TWO, ["6", "7"]), ((), ["12", "13", "14", "15"]):
        said = rec(folder, *more, *team)
        assert re.findall(r"^epoch 0, batch (\d+),", said, re.MULTILINE) == batches, said
        whole = "epoch 0 done, 120 examples; since the restart loss"
        assert re.search(whole + r" [\d.]+, auc [\d.]+, 24 examples in", said), said


@pytest.mark.limit(240)
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_two_workers_have_the_numbers_of_one_with_twice_the_batch(
    framework: str, folder: Path, need: Need
) -> None:
    """Stopped after an epoch and gone on with; weights to 1e-5, metrics over both parts."""
    need(modules=["numpy", framework])
    words = f"framework={framework}", "export_dir=export", "export_last=true"
    alone = rec(folder, *words, "train_data_dir=whole", "train_batch_size=16", "save_dir=alone")
    if framework == "torch":  # It is the same code that Paddle's workers are saved by.
        rec(folder, *words, *TWO, "epochs=1")
    both = rec(folder, *words, *TWO, "resume=true", "export_dir=both")
    assert tested(both) == pytest.approx(tested(alone), abs=2e-4)
    if framework == "torch":
        assert "8 batches done" in both
    state = [read_state(folder / name / "epoch-00001", framework) for name in ("export", "both")]
    assert list(state[0]) == list(state[1])
    for name, values in state[0].items():
        assert state[1][name] == pytest.approx(values, abs=1e-5)
