"""The same code under submitit and under paddock.compat.submitit: docs/libraries/submitit.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real.conftest import Need

PAGES = Path(__file__).parents[3] / "docs" / "libraries"
EXAMPLE = Path(__file__).parents[3] / "examples" / "libraries" / "submitit_add.py"
SCRIPT = """
import {package} as submitit

def ranks():
    env = submitit.JobEnvironment()
    print("task", env.global_rank)
    return env.global_rank, env.local_rank, env.num_tasks, env.num_nodes, env.node

def fail():
    raise ValueError("the batch is empty")

if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="logs/%j", cluster="local")
    executor.update_parameters(timeout_min=1, tasks_per_node=2, name="team", slurm_partition="dev")
    team = executor.submit(ranks)
    single = submitit.LocalExecutor(folder="logs")
    with single.batch():
        jobs = [single.submit(pow, 2, each) for each in (3, 4)]
    jobs += single.map_array(max, [1, 5], [4, 2])
    failed = single.submit(fail)
    print(team.results(), team.num_tasks, team.exception(), team.done())
    print(["task" in team.task(each).stdout() for each in (0, 1)])
    print([job.result() for job in jobs], [job.task_id for job in jobs])
    try:
        failed.result()
    except RuntimeError as error:
        lines = str(error).splitlines()
        print(type(error).__name__, lines[:3], "ValueError: the batch" in str(error))
    print(sorted(job.result() for job in submitit.helpers.as_completed(jobs)))
    try:
        executor.update_parameters(nodes=2)
    except ValueError as error:
        print(type(error).__name__)
    try:
        executor.update_parameters(slurm_nothing=2)
    except NameError as error:
        print(type(error).__name__)
"""


@pytest.mark.limit(120)
def test_a_script_says_the_same_under_both(need: Need, tmp_path: Path) -> None:
    """Results, states, texts of failures and errors; logs are those of each."""
    need(modules=["submitit", "cloudpickle"])
    said = []
    for package in ("submitit", "paddock.compat.submitit"):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.format(package=package))
        done = subprocess.run(
            [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0] == said[1]


@pytest.mark.parametrize("page", ["submitit.md", "submitit.zh.md"])
def test_the_page_shows_the_example(page: str) -> None:
    """What a reader copies is what tests/compat/test_submitit.py runs."""
    block = (PAGES / page).read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    assert block in EXAMPLE.read_text("utf-8")
