"""paddock.submit: the same functions on a site: this machine. Real hosts: tests/conformance."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

import paddock
from api import functions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, own_place: Path) -> None:
    """The jobs of a site are below a directory of the test."""
    text = f'[site.here]\nbackend = "local"\nroot = "{tmp_path}/jobs"\n'
    (own_place / "paddock.toml").write_text(text)


def test_results_of_a_submitted_function_come_back(own_place: Path) -> None:
    """Its ranks use paddock and cloudpickle, which the site lacks."""

    def train(scale: float) -> tuple[int, float, str]:
        paddock.report(step=1, loss=0.5)
        return paddock.rank(), scale * paddock.world_size(), os.path.basename(os.getcwd())

    run = paddock.submit(train, 0.5, site="here", nproc=2)
    assert run.results(60) == [(0, 1.0, run.id), (1, 1.0, run.id)]
    assert run.handle == f"local://here/{run.id}"
    assert [path.name for path in own_place.iterdir()] == ["paddock.toml"]
    assert paddock.Run.find(run.id).result == (0, 1.0, run.id)


def test_a_submitted_failure_names_rank_host_and_exception() -> None:
    run = paddock.submit(functions.fail_in, 1, "the batch is empty", site="here", nproc=2)
    with pytest.raises(paddock.RankFailedError, match="ValueError: the batch is empty") as caught:
        run.wait(60)
    assert (caught.value.rank, caught.value.consequences) == (1, (0,))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_script_is_submitted_and_fetched(own_place: Path) -> None:
    text = "import os, pathlib; pathlib.Path('output').mkdir(exist_ok=True)\n"
    text += "pathlib.Path('output/a.txt').write_text(os.environ['X'])\n"
    (own_place / "train.py").write_text(text)
    run = paddock.submit(
        "train.py", site="here", env={"X": "secret"}, python=sys.executable, name="mine"
    )
    assert run.wait(60).state == "succeeded"
    assert run.id.startswith("mine-")
    folder = run.fetch(own_place / "fetched")
    assert [path.read_text() for path in folder.glob("output/**/a.txt")] == ["secret"]


def test_what_is_wrong_is_told_before_anything_is_sent() -> None:
    with pytest.raises(paddock.UsageError, match="nosuchsite"):
        paddock.submit(functions.who, site="nosuchsite")
    with pytest.raises(paddock.UsageError, match="no keyword 'lr'"):
        paddock.submit("train.py", site="here", lr=0.1)
    assert paddock.Run.all() == []
