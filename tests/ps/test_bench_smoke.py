"""The benchmarks of the parameter server: their ids are the agreed ones, their table is right."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ps import workload
from benchmarks.ps.figure import Figure, table
from benchmarks.ps.peer import install

ROOT = Path(__file__).resolve().parent.parent.parent
# SHA-256 of the first three batches of each size, drawn with seed 5: the stream that the figures
# of the peer were measured on.
DIGESTS = {
    1: "53574e1fad89b9f6",
    32: "be1d7546dcecef02",
    1024: "031effc1820607c1",
    8192: "89dbfda6b1b0e190",
}


@pytest.mark.parametrize("examples", DIGESTS)
def test_the_ids_are_those_that_were_agreed(examples: int) -> None:
    """Figures of two runs compare only when both used the same ids."""
    rng = np.random.default_rng(workload.ID_SEED)
    drawn = np.stack([workload.draw_ids(rng, examples) for _ in range(3)])
    assert hashlib.sha256(drawn.tobytes()).hexdigest()[:16] == DIGESTS[examples]


def test_the_labels_can_be_learned() -> None:
    """A score from the hidden weights themselves ranks far better than chance."""
    ids, numbers, labels = workload.draw_examples(np.random.default_rng(0), 20_000, 1000)
    weights = ((workload.hashed(ids) & 0xFFFF).astype(np.float32) / 65536.0 - 0.5).sum(0) * 1.2
    slopes = np.linspace(-1, 1, workload.NUMBERS, dtype=np.float32)
    score = weights + (numbers - 0.5) @ slopes
    assert workload.auc(labels, score) > 0.8
    assert workload.auc(labels, -score) < 0.2


def test_both_forms_of_a_part_say_the_same(tmp_path: Path) -> None:
    """The peer reads the text, ours the arrays; neither may be favoured."""
    folder = workload.write(tmp_path, parts=1, rows=20)
    with np.load(folder / "part-0.npz") as part:
        ids, labels = part["ids"], part["labels"]
    rows = [line.split() for line in (folder / "part-0.txt").read_text("ascii").splitlines()]
    assert [int(row[1]) for row in rows] == labels.tolist()
    assert [[int(x) for x in row[3:54:2]] for row in rows] == ids.T.tolist()


def test_a_rate_is_met_from_above_and_a_time_from_below() -> None:
    """The exit code hangs on it; a ratio above 1 says that ours is better, whatever the unit."""
    rate = Figure("training", "ex/s", 100.0, more_is_better=True)
    rate.samples = {"ours": [120.0, 90.0, 130.0], "peer": [60.0]}
    time = Figure("pull", "ms", 1.0)
    time.samples = {"ours": [2.0], "peer": [6.0]}
    assert (rate.is_met, rate.ratio) == (True, 2.0)
    assert (time.is_met, time.ratio) == (False, 3.0)
    assert table([rate, time]).splitlines()[3].split("|")[6].strip() == "NO"


def test_a_figure_of_a_busy_machine_is_marked() -> None:
    """It is printed, and not to be quoted."""
    figure = Figure("pull", "ms", busy=[0.1, 0.9, 0.8])
    figure.samples = {"ours": [2.0]}
    assert figure.is_disturbed
    assert "| pull ~" in table([figure])


def test_a_peer_that_does_not_import_is_said_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The benchmark goes on without it."""
    monkeypatch.delenv(install.OVERRIDE, raising=False)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to("/bin/false")
    found, why = install.find_or_install(tmp_path)
    assert found is None
    assert "remove it" in why


@pytest.mark.real
@pytest.mark.limit(60)
def test_a_quick_run_measures_ours(tmp_path: Path) -> None:
    """The whole way: servers, a trainer, the table, the JSON. No figure is judged."""
    out = tmp_path / "figures.json"
    argv = [sys.executable, "-m", "benchmarks.ps", "operations", "--quick", "--no-peer"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(
        [*argv, "--json", str(out)], cwd=ROOT, env=env, capture_output=True, text=True,
        timeout=55, check=False,
    )  # fmt: skip
    found = json.loads(out.read_text("utf-8"))
    assert found["problems"] == [], done.stdout
    assert all(figure["ours"] > 0 for figure in found["figures"])
