"""paddock.make_job, paddock.explain: a job and its plan as values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import paddock
from paddock.cli.explain import run

if TYPE_CHECKING:
    from pathlib import Path


def test_keywords_flags_and_a_file_make_the_same_job(tmp_path: Path) -> None:
    """One intent has one value, however it is written."""
    job = paddock.make_job(
        "train.py", "--lr", 0.1, nproc=2, max_restarts=1, timeout=60, env={"A": "$(B) 1"}
    )
    flags = ["--nproc-per-node", "2", "--max-restarts=1", "--timeout", "1m", "--env", "A=$(B) 1"]
    assert paddock.make_job(flags=[*flags, "train.py", "--lr", "0.1"]) == job
    path = tmp_path / "job.yaml"
    path.write_text(job.to_yaml(image="trainer:1"))
    with pytest.warns(UserWarning, match="image: trainer:1 - this machine's own software"):
        read = paddock.make_job(file=path)
    assert read == job
    with pytest.warns(UserWarning, match="image"):
        assert paddock.make_job(file=path, max_restarts=7).restart.max_restarts == 7


def test_a_command_is_the_words_of_a_list() -> None:
    """As for paddock.launch; -m makes it a module."""
    assert paddock.make_job(["./serve", "-v"], nproc=1).command.argv() == ("./serve", "-v")
    assert paddock.make_job("pkg.train", 7, flags=["-m"]).command.argv()[1:] == (
        "-u", "-m", "pkg.train", "7",
    )  # fmt: skip


def test_what_is_wrong_is_told_at_once() -> None:
    """Three mistakes, one error."""
    with pytest.raises(paddock.UsageError) as caught:
        paddock.make_job(pow, nproc=0, elastic=(1, 2, 3))  # type: ignore[arg-type]  # the test
    assert [problem.message for problem in caught.value.problems] == [
        "elastic=(1, 2, 3): not two numbers",
        "make_job() takes a script or a command, and no function",
        "no script is given",
        "--nproc-per-node 0: not in 1..10000",
    ]
    with pytest.raises(paddock.UsageError, match="env: A has the type int"):
        paddock.make_job("train.py", env={"A": 1})  # type: ignore[dict-item]  # the test
    with pytest.raises(paddock.UsageError, match="--help is no job"):
        paddock.make_job(flags=["--help"])


def test_a_plan_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """`paddock explain` shows the same ranks."""
    plan = paddock.explain(paddock.make_job("train.py", nproc=3))
    assert run(["--json", "--nproc-per-node", "3", "train.py"]) == 0
    shown = json.loads(capsys.readouterr().out)["processes"]
    assert [proc.local_rank for proc in plan.procs] == [0, 1, 2]
    assert [(row["rank"], row["host"]) for row in shown] == [(p.rank, p.host) for p in plan.procs]


def test_hosts_are_those_that_are_asked_about() -> None:
    """An elastic job of two to four nodes, on three; on five it cannot run."""
    job = paddock.make_job("train.py", nproc=2, elastic=(2, 4))
    assert paddock.explain(job).addresses == ("node0", "node1")
    plan = paddock.explain(job, hosts=["a", "b", "c"])
    assert [proc.address for proc in plan.procs] == ["a", "a", "b", "b", "c", "c"]
    with pytest.raises(paddock.UsageError, match="5 nodes joined, the job asks for 2 to 4"):
        paddock.explain(job, hosts=["a", "b", "c", "d", "e"])
