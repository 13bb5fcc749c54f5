"""Hydra's launcher plugin: the points of a multirun are runs. docs/libraries/hydra.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pages import blocks_of

if TYPE_CHECKING:
    from real.conftest import Need

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "libraries" / "hydra_app.py"
LAUNCHER = ("hydra/launcher=paddock", "hydra.launcher.nproc=2")
APP = """
import logging
from dataclasses import dataclass

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig

import paddock


@dataclass
class Config:
    lr: float = 1.0
    fails_on: int = -1


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base="1.3", config_name="config", config_path=None)
def main(cfg):
    number, rank = HydraConfig.get().job.num, paddock.rank()
    logging.getLogger(__name__).info("point %s, rank %d, lr %g", number, rank, cfg.lr)
    if cfg.fails_on == rank:
        raise ValueError("lr is too high")


if __name__ == "__main__":
    main()
"""

MEETING = """
import pathlib, time
import hydra

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    met = pathlib.Path(cfg.met)
    met.mkdir(exist_ok=True)
    (met / str(cfg.number)).touch()
    until = time.monotonic() + 60
    while len([*met.iterdir()]) < 2:  # the other point runs at the same time
        assert time.monotonic() < until
        time.sleep(0.05)

if __name__ == "__main__":
    main()
"""


def multirun(
    script: Path, folder: Path, *words: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run an app with -m in a folder; its output, once it has ended with that code."""
    done = subprocess.run(
        [sys.executable, script, "-m", *LAUNCHER, *words, "hydra.sweep.dir=sweep"],
        cwd=folder, env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_each_point_is_a_run_of_two_ranks_and_a_failed_one_is_told(
    need: Need, tmp_path: Path
) -> None:
    """Both log below Hydra's directory of the point; the app exits 1, as with other launchers."""
    need(modules=["hydra", "cloudpickle"])
    script = tmp_path / "app.py"
    script.write_text(APP)
    words = ("lr=1,2", "fails_on=-1,1", "hydra.launcher.at_once=2")
    done = multirun(script, tmp_path, *words, code=1)
    for number, lr in ((0, 1), (1, 1), (2, 2), (3, 2)):
        folder = tmp_path / "sweep" / str(number)
        assert f"point {number}, rank 1, lr {lr}\n" in (folder / "app.1.log").read_text()
        if number in (0, 2):  # else rank 0 may have been stopped before it wrote
            assert f"point {number}, rank 0, lr {lr}\n" in (folder / "app.log").read_text()
            assert f"lr: {lr}" in (folder / ".hydra" / "config.yaml").read_text()
        assert (folder / "log" / "workerlog.1").exists()
    assert "Error executing job with overrides: ['lr=1', 'fails_on=1']" in done.stderr
    assert "RankFailedError" in done.stderr and "ValueError: lr is too high" in done.stderr


def test_points_are_listed_by_their_overrides(need: Need, tmp_path: Path) -> None:
    """`paddock list` shows what was typed; a value that no launcher can use is told at once."""
    need(modules=["hydra", "cloudpickle"])
    script = tmp_path / "app.py"
    script.write_text(APP)
    multirun(script, tmp_path, "lr=3,4", "+hydra.launcher.env.NAME=x")
    runs = (tmp_path / "state" / "paddock" / "runs").glob("*/run.json")
    told = sorted(json.loads(path.read_text())["command"] for path in runs)
    assert told == ["app lr=3", "app lr=4"]
    for word, what in (("at_once=0", "at least one point"), ("nproc=0", "not in 1..10000")):
        assert what in multirun(script, tmp_path, "lr=3", f"hydra.launcher.{word}", code=1).stderr


def test_points_on_a_site_run_at_once(need: Need, tmp_path: Path) -> None:
    """Both have the name of the app; it was refused as a name in use."""
    need(modules=["hydra", "cloudpickle"])
    (project := tmp_path / "project").mkdir()
    (script := project / "app.py").write_text(MEETING)
    text = f'[site.here]\nbackend = "local"\nroot = "{tmp_path}/jobs"\n'
    (project / "paddock.toml").write_text(text)
    words = ("hydra.launcher.site=here", "hydra.launcher.nproc=1", "hydra.launcher.at_once=2")
    multirun(script, project, f"+met={tmp_path}/met", "+number=1,2", *words)
    assert len([*(tmp_path / "met").iterdir()]) == 2


def test_the_command_of_the_page_trains_on_two_ranks(need: Need, tmp_path: Path) -> None:
    """One of its points, with real collectives; rank 0's log lines are on the terminal."""
    need(modules=["hydra", "torch", "cloudpickle"])
    done = multirun(EXAMPLE, tmp_path, "lr=0.5")
    shown = next(
        b.body for b in blocks_of(ROOT / "docs" / "libraries" / "hydra.md") if "lr 0.5" in b.body
    )
    told = next(line for line in done.stdout.splitlines() if "lr 0.5: error" in line)
    assert told.partition("- ")[2] in shown


@pytest.mark.parametrize("page", ["hydra.md", "hydra.zh.md"])
def test_the_page_has_the_options_of_the_launcher(page: str) -> None:
    """A field that is new or renamed is in the table."""
    text = (ROOT / "src" / "hydra_plugins" / "paddock_launcher.py").read_text("utf-8")
    fields = text.partition("_target_:")[2].partition("\n\n\n")[0].splitlines()[1:]
    names = {line.partition(":")[0].strip() for line in fields}
    rows = (ROOT / "docs" / "libraries" / page).read_text("utf-8")
    assert [name for name in sorted(names) if f"`{name}`" not in rows] == []
