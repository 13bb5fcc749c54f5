"""paddock.compat.submitit: submitit's interface on this machine. Slurm: tests/conformance."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from functools import partial
from operator import add
from pathlib import Path

import pytest

import paddock
from paddock.compat import submitit

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are recorded below it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def executor(tmp_path: Path) -> submitit.AutoExecutor:
    """Of this machine, with a folder for each job."""
    return submitit.LocalExecutor(folder=tmp_path / "logs" / "%j")


def test_the_readme_of_submitit_runs_with_another_import(tmp_path: Path) -> None:
    """Its cluster is found: this machine, where Slurm knows no controller."""
    script = ROOT / "examples" / "libraries" / "submitit_add.py"
    env = {"PATH": "/nowhere", "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    job_id, output = done.stdout.split()
    assert (job_id[:4], output, done.stderr) == ("add-", "12", "")


def test_tasks_have_results_logs_and_an_environment(executor: submitit.AutoExecutor) -> None:
    """One job of two ranks; a task is a job of its own."""

    def describe(scale: int) -> tuple[str, int, int, int]:
        env = submitit.JobEnvironment()
        print("task", env.global_rank)
        return env.job_id, env.global_rank, env.local_rank, env.num_tasks * scale

    executor.update_parameters(tasks_per_node=2, timeout_min=1, name="described", slurm_qos="high")
    job = executor.submit(describe, scale=10)
    assert job.results() == [(job.job_id, 0, 0, 20), (job.job_id, 1, 1, 20)]
    assert (job.done(), job.state, job.num_tasks, job.exception()) == (True, "COMPLETED", 2, None)
    assert job.job_id.startswith("described-")
    assert job.task(1).result()[1] == 1
    assert job.task(1).stdout() == "task 1\n" == job.task(1).paths.stdout.read_text()
    assert job.paths.folder.name == job.job_id
    with pytest.raises(AssertionError, match="use results"):
        job.result()


def test_a_failure_has_the_trace_of_the_task(executor: submitit.AutoExecutor) -> None:
    """The text is submitit's, and the exception of the function is its cause."""

    def fail() -> None:
        raise ValueError("the batch is empty")

    job = executor.submit(fail)
    with pytest.raises(submitit.FailedJobError, match=r"\(task=0\) failed .*with trace") as caught:
        job.result()
    assert "ValueError: the batch is empty" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert job.state == "FAILED"
    assert "ValueError" in (job.stderr() or "")


def test_a_site_of_paddock_toml_is_a_cluster(tmp_path: Path) -> None:
    """The job is submitted there, and its results come back."""
    (tmp_path / "paddock.toml").write_text(
        f'[site.here]\nbackend = "local"\nroot = "{tmp_path}/jobs"\n'
    )
    executor = submitit.AutoExecutor(folder="logs", cluster="here")
    executor.update_parameters(tasks_per_node=2, timeout_min=1)
    job = executor.submit(max, 5, 7)
    assert job.results() == [7, 7]
    assert job.run.handle.startswith("local://here/max-")


def test_jobs_of_one_function_live_on_a_site_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """map_array, batch and a loop: a job for each call, as the page says."""
    (project := tmp_path / "project").mkdir()
    monkeypatch.chdir(project)
    text = f'[site.here]\nbackend = "local"\nroot = "{tmp_path}/jobs"\n'
    (project / "paddock.toml").write_text(text)

    def meet(number: int) -> int:  # ends when all of them are there
        import pathlib
        import time

        place = pathlib.Path(tmp_path, "met")
        place.mkdir(exist_ok=True)
        (place / str(number)).touch()
        until = time.monotonic() + 60
        while len([*place.iterdir()]) < 4 and time.monotonic() < until:
            time.sleep(0.05)  # sleep: the jobs share nothing but a directory
        return len([*place.iterdir()])

    executor = submitit.AutoExecutor(folder="logs", cluster="here")
    executor.update_parameters(name="one name", timeout_min=2)
    jobs = executor.map_array(meet, range(2))
    with executor.batch():
        jobs += [executor.submit(meet, number) for number in (2, 3)]
    assert [job.result() for job in jobs] == [4] * 4
    assert {job.job_id[:9] for job in jobs} == {"one-name-"}


def test_the_folder_of_local_jobs_can_be_sent_to_a_site(
    executor: submitit.AutoExecutor, tmp_path: Path
) -> None:
    """The links to their logs do not lead outside of the directory that is sent."""
    assert executor.submit(add, 5, 7).result() == 12
    flags = ["--root", str(tmp_path / "jobs")]
    run = paddock.submit(add, 5, 7, site="local", nproc=1, package=tmp_path / "logs", flags=flags)
    assert run.result == 12


def test_arrays_and_batches_are_jobs(executor: submitit.AutoExecutor) -> None:
    """In the block a job is not submitted yet."""
    jobs = executor.map_array(add, [1, 2], [10, 20])
    with executor.batch():
        jobs.append(executor.submit(pow, 2, exp=3))
        with pytest.raises(AttributeError, match="when the block ends"):
            jobs[2].job_id  # noqa: B018  # a property
        with pytest.raises(RuntimeError, match="when the block ends"):
            executor.update_parameters(nodes=1)
    jobs += executor.submit_array([partial(add, 1, 1)])
    ended = [*submitit.helpers.as_completed(jobs, timeout=25)]
    assert sorted(job.result() for job in ended) == [2, 8, 11, 22]


def test_a_job_is_cancelled(executor: submitit.AutoExecutor) -> None:
    """Its run is stopped, and its result raises."""

    def wait() -> None:
        import threading

        threading.Event().wait()

    job = executor.submit(wait)
    job.cancel()
    with pytest.raises(submitit.UncompletedJobError):
        job.result()
    assert job.state == "CANCELLED"


def test_what_only_submitit_has_is_told(executor: submitit.AutoExecutor) -> None:
    """All parameters at once, and what Paddock takes."""
    with pytest.raises(
        NameError, match=r"slurm_wckey: unknown.*\n(.*\n)+Paddock takes name"
    ) as caught:
        submitit.SlurmExecutor("logs").update_parameters(
            slurm_wckey="w", slurm_setup="module load", tasks_per_node="2"
        )
    assert "slurm_setup='module load'" in str(caught.value)
    assert "tasks_per_node='2'" in str(caught.value)
    executor.update_parameters(slurm_setup=["module load"], partition="dev")  # of Slurm only
    with pytest.raises(ValueError, match="there is no site or backend 'slrum'"):
        submitit.AutoExecutor("logs", cluster="slrum")
    with pytest.raises(TypeError, match="no keyword slurm_pyton"):
        submitit.AutoExecutor("logs", cluster="local", slurm_pyton="python3", max_num_timeout=1)
    with pytest.raises(TypeError, match="no keyword local_python"):
        submitit.LocalExecutor("logs", python="python3.9")
    with pytest.raises(ValueError, match="one node"):
        executor.update_parameters(nodes=2)
    with pytest.raises(RuntimeError, match="runs in a job"):
        submitit.JobEnvironment()

    with pytest.warns(UserWarning, match="slurm_array_parallelism has no effect"):
        submitit.SlurmExecutor("logs").update_parameters(slurm_array_parallelism=2)

    class Trained(submitit.helpers.Checkpointable):
        def __call__(self) -> int:
            return paddock.attempt()

    with pytest.warns(UserWarning, match=r"checkpoint\(\) is called on Slurm only"):
        assert executor.submit(Trained()).result() == 0


def test_a_job_is_found_again(executor: submitit.AutoExecutor) -> None:
    """Pickled, as many scripts keep their jobs; or by its folder and id, as submitit documents."""
    executor.update_parameters(tasks_per_node=2)
    job = executor.submit(add, 1, 2)
    assert job.task(1).task(0).task_id == 1
    assert asyncio.run(job.awaitable().results()) == [3, 3]
    again = pickle.loads(pickle.dumps(job))
    assert (again.job_id, again.results(), again.done()) == (job.job_id, [3, 3], True)
    assert again.task(1).paths.stdout.exists()
    assert submitit.Job(executor.folder, job.job_id).result() == 3


def test_what_runs_in_a_job_finds_its_helpers(executor: submitit.AutoExecutor) -> None:
    """Imports of submitit's modules work, and torch's variables are those of the ranks."""

    def describe() -> tuple[object, ...]:
        from paddock.compat.submitit.helpers import TorchDistributedEnvironment

        torch = TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
        return torch.rank, torch.world_size, len(submitit.JobEnvironment().hostnames)

    executor.update_parameters(tasks_per_node=2)
    assert executor.submit(describe).results() == [(0, 2, 1), (1, 2, 1)]
    sequence = submitit.helpers.FunctionSequence()
    sequence.add(add, 1, 2)
    sequence.add(pow, 2, exp=3)
    assert (sequence(), len(sequence), [each.done() for each in sequence]) == (
        [3, 8],
        2,
        [True] * 2,
    )
    assert submitit.core.utils.FailedJobError is submitit.FailedJobError


def test_a_command_is_a_function(executor: submitit.AutoExecutor) -> None:
    """It returns what the command prints, and raises with its standard error."""
    job = executor.submit(submitit.helpers.CommandFunction(["echo"]), "a", b="c")
    assert job.result() == "a --b=c"
    with pytest.raises(submitit.FailedJobError, match="false exited with 1"):
        submitit.helpers.CommandFunction(["false"])()
    with pytest.raises(TypeError, match="a list of words"):
        submitit.helpers.CommandFunction("echo a")  # type: ignore[arg-type]
