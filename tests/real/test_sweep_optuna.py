"""examples/sweep_optuna.py, as docs/guide/sweeps.md shows it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

from local.jobs import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from real.conftest import Need


def test_optuna_chooses_points_and_goes_on_with_its_study(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial is a run of two ranks; a second call adds the trials that are missing."""
    need(modules=["optuna", "cloudpickle"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    example = str(ROOT / "examples" / "sweep_optuna.py")
    assert run(example, "--trials", "2").startswith("2 trials, the best is trial-")
    assert run(example, "--trials", "4").startswith("4 trials, the best is trial-")
    with sqlite3.connect(tmp_path / "study.db") as study:
        states = study.execute("select number, state from trials order by number").fetchall()
    assert states == [(number, "COMPLETE") for number in range(4)]
    runs = json.loads(run("-m", "paddock", "list", "--json"))
    assert sorted(each["id"][:-5] for each in runs) == [f"trial-{number}" for number in range(4)]
