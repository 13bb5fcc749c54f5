"""paddock.launch: functions, modules, scripts and commands in real ranks of this machine."""

from __future__ import annotations

import asyncio
import gc
import io
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import paddock
from api import functions
from local.jobs import wait_until
from paddock.local.runs.entry import prune, registry_folder

if TYPE_CHECKING:
    from paddock import Run

quietly = partial(paddock.launch, quiet=True)


def test_results_come_back_by_rank() -> None:
    """The environment of the framework is set before the function runs."""
    assert quietly(functions.who, nproc=3).results() == [(0, 3), (1, 3), (2, 3)]


def test_arguments_and_keywords_reach_the_function() -> None:
    assert quietly(pow, 2, 5, nproc=1).result == 32
    assert quietly(functions.Report, rank=1, loss=0.5, nproc=1).result == functions.Report(1, 0.5)


def test_closures_lambdas_and_classes_go_both_ways() -> None:
    """Functions of this module are sent by value: the ranks cannot import it."""
    base = [10]

    class Local:
        def __init__(self, x: int) -> None:
            self.x = x

    def add(report: functions.Report, *, more: int = 1) -> tuple[float, Local]:
        return report.loss + base[0] + more + functions.factorial(4), Local(7)

    (total, local), _ = quietly(add, functions.Report(0, 0.5), nproc=2).results()
    assert total == 35.5
    assert (type(local), local.x) == (Local, 7)
    assert quietly(lambda: math.factorial(5), nproc=1).result == 120


def test_the_users_own_modules_are_found(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one named as a file of Paddock, and where Python adds no directory of scripts."""
    (own_place / "call.py").write_text("NAME = 'mine'")
    monkeypatch.syspath_prepend(str(own_place))

    def names() -> str:
        import call

        return str(call.NAME)

    for safe in ("", "1"):
        assert quietly(names, nproc=1, env={"PYTHONSAFEPATH": safe}).result == "mine"


def test_a_function_with_a_cache_goes_to_the_ranks() -> None:
    """By itself, and as a name that another function uses; cloudpickle sends its name only."""
    assert quietly(functions.fibonacci, 30, nproc=1).result == 832040
    cached = functions.fibonacci
    calls = quietly(lambda: (cached(30), cached.cache_info().misses), nproc=1)
    assert calls.result == (832040, 31)


def test_a_rank_that_imports_cloudpickle_has_all_of_it() -> None:
    """Also while its function is unpickled, when a part of it stands in for the whole."""

    class Imports:
        def __reduce__(self) -> tuple[object, ...]:
            parts = "('', '.cloudpickle_fast')"
            return eval, (f"[__import__('cloudpickle' + it).__version__ for it in {parts}]",)

    import cloudpickle

    found = quietly(lambda it: it, Imports(), nproc=1).result
    assert found == [cloudpickle.__version__] * 2


def test_a_module_and_its_function_are_named_by_text() -> None:
    assert quietly("math:sqrt", 9, nproc=1).result == 3
    run = quietly("math:prod", [2, 3], start=4, nproc=1)
    assert run.result == 24
    assert (run.entry or pytest.fail("no record")).command == "prod(list, start=4)"


def test_a_script_gets_its_arguments_as_texts(own_place: Path) -> None:
    (own_place / "train.py").write_text("import sys; print(sys.argv[1:], flush=True)")
    run = quietly("train.py", "--lr", 0.5, nproc=2)
    assert run.wait().state == "succeeded"
    assert list(run.logs(rank=1)) == [f"[{os.uname().nodename} rank 1] ['--lr', '0.5']"]
    with pytest.raises(paddock.PaddockError, match="returned no results"):
        run.results()


def test_a_command_is_a_list_of_words(own_place: Path) -> None:
    run = quietly(["sh", "-c", "echo $0 > $RANK.txt"], "hello", nproc=2)
    run.wait()
    assert [(own_place / f"{n}.txt").read_text() for n in (0, 1)] == ["hello\n"] * 2


def test_the_rank_that_failed_first_is_named_with_its_traceback() -> None:
    run = quietly(functions.fail_in, 1, "the batch is empty", nproc=3)
    with pytest.raises(paddock.RankFailedError) as caught:
        run.results()
    error = caught.value
    assert (error.rank, error.host, error.exit_code) == (1, os.uname().nodename, 1)
    assert error.consequences == (0, 2)
    assert isinstance(error.__cause__, ValueError)
    assert "raise ValueError(text)" in error.traceback
    assert "call.py" not in error.traceback
    assert "ValueError: the batch is empty" in str(error)


def test_a_script_that_failed_is_told_with_its_last_lines(own_place: Path) -> None:
    (own_place / "bad.py").write_text("raise RuntimeError('no GPU')")
    with pytest.raises(paddock.RankFailedError, match="RuntimeError: no GPU") as caught:
        quietly("bad.py", nproc=1).wait()
    assert caught.value.__cause__ is None


def test_the_status_is_that_of_the_command() -> None:
    run = quietly(functions.who, nproc=2)
    run.wait()
    status = run.status
    assert (status.state, status.code, status.culprit) == ("succeeded", 0, None)
    assert [rank.state for node in status.nodes for rank in node.ranks] == ["succeeded"] * 2
    assert [event["state"] for event in run.events()] == ["running", "succeeded"]
    assert run.handle == f"launch://{os.uname().nodename}/{run.id}"


def test_a_run_is_found_again_with_its_results() -> None:
    """Also by another process; the id is the one that the registry has."""
    run = quietly(functions.who, nproc=1)
    run.wait()
    again = quietly(functions.who, nproc=1)
    again.wait()
    for word, found in ((run.id, run), (run.id[:-1], run), ("last", again), ("who", again)):
        assert paddock.Run.find(word).id == found.id
    code = "import paddock; print(paddock.Run.find('last').result)"
    assert _python(code).stdout == "(0, 1)\n"
    assert [each.id for each in paddock.Run.all()] == [run.id, again.id]
    for wrong in ([], None, 3):
        with pytest.raises(paddock.UsageError, match="no run is called"):
            paddock.Run.find(wrong)  # type: ignore[arg-type]


def test_results_of_an_older_paddock_are_told_as_such() -> None:
    """Their names were ATTEMPT.RANK.result."""
    run = quietly(functions.who, nproc=1, flags=None)  # type: ignore[arg-type]  # as other keywords
    run.wait()
    (file,) = Path(registry_folder(os.environ), run.id, "results").iterdir()
    file.rename(file.with_name("0.0.result"))
    with pytest.raises(paddock.PaddockError, match="are of an older Paddock") as told:
        run.results()
    assert str(file.parent) in told.value.hint


def test_what_cannot_be_pickled_is_named() -> None:
    """All of it at once: a global, a name of the function around it, an argument."""
    lock = threading.Lock()

    def train(stream: object) -> object:
        return lock, stream

    with open(os.devnull, encoding="utf-8") as file, pytest.raises(paddock.UsageError) as caught:
        quietly(train, (each for each in [file]))
    texts = [problem.message for problem in caught.value.problems]
    assert len(texts) == 2
    assert "argument 0 is a builtins.generator" in texts[0]
    assert "'lock' of the function around it is a _thread.lock" in texts[1]
    assert paddock.Run.all() == []


def test_all_that_is_wrong_is_told_before_anything_starts() -> None:
    with pytest.raises(paddock.UsageError) as caught:
        quietly("train.py", elastic=3, nprocs=2)  # type: ignore[arg-type]
    texts = [problem.message for problem in caught.value.problems]
    assert texts == [
        "launch() has no keyword 'nprocs', and only a function takes others",
        "elastic=3: not two numbers",
    ]
    assert "nproc" in caught.value.problems[0].hint


WRONG: dict[str, object] = {
    "nproc": 1.5, "devices": 5, "max_restarts": [1], "timeout": True, "warm": 1, "name": 5,
    "run_id": "../up", "flags": "--grace 5s", "result_bytes_max": 0,
    "env": {"A": 1, "B=": "x", "SECRET": "s3cret\0"},
}  # fmt: skip


def test_keywords_of_a_wrong_kind_are_told_together() -> None:
    """By launch, submit and sweep; the value of a variable is not shown."""
    submit = {**WRONG, "site": 5, "hosts": 5, "nodes": "x", "package": 5, "python": 5}
    sweep = {**WRONG, "at_once": "x", "retry_lost": 0.5}
    for verb, given in (("launch", WRONG), ("submit", submit), ("sweep", sweep)):
        args = ["train.py", {"lr": [1]}][: 1 + (verb == "sweep")]
        with pytest.raises(paddock.UsageError) as caught:
            getattr(paddock, verb)(*args, **given)
        texts = sorted(problem.message for problem in caught.value.problems)
        names = sorted([*given, "env", "env"])
        assert [text.replace(":", "=").split("=")[0].split()[0] for text in texts] == names
        assert "s3cret" not in str(caught.value)
    assert paddock.Run.all() == []


@pytest.mark.parametrize(
    ("target", "args", "text"),
    [
        (5, (), "the target has the type int"),
        ([], (), "the target is empty"),
        ("train.py", ("a\0b",), r"'a\\x00b' has characters that no argument can have"),
        ((each for each in "ab"), (), "has the type generator"),
        (functions.later, (), "later is an async function: its call does not run it"),
        (functions.count, (), "count is a generator function"),
    ],
)
def test_a_target_that_cannot_run_is_refused(target: Any, args: Any, text: str) -> None:
    with pytest.raises(paddock.UsageError, match=text):
        quietly(target, *args)


def test_a_flag_that_starts_no_job_is_refused() -> None:
    with pytest.raises(paddock.UsageError, match="flags: --help starts no job"):
        quietly(functions.who, flags=["--help"])


def test_a_function_is_for_one_machine() -> None:
    with pytest.raises(paddock.UsageError, match="on this machine only") as caught:
        quietly(functions.who, elastic=(1, 2))
    assert "paddock.submit" in caught.value.hint


def test_a_script_may_be_a_path(own_place: Path) -> None:
    (own_place / "train.py").write_text("print(5)")
    run = quietly(own_place / "train.py", nproc=1)
    assert run.wait().state == "succeeded"
    assert run.id.startswith("train-")


def test_an_object_that_has_no_text_is_a_function() -> None:
    assert quietly(functions.Nameless(), nproc=1).result == 5


def test_the_launchers_own_usage_error_is_raised() -> None:
    with pytest.raises(paddock.UsageError, match=r"script 'nope\.py' does not exist"):
        quietly("nope.py").wait()
    run = quietly(functions.who, nproc=-1)
    for _ in range(2):
        with pytest.raises(paddock.UsageError, match="nproc") as caught:
            run.wait()
        assert caught.value.hint == "leave it out for one process per device"
    assert os.listdir(registry_folder(os.environ)) == []  # and no damaged record is left


def test_arguments_that_a_function_does_not_take_are_told_at_once() -> None:
    """No rank starts for a misspelt keyword; a decorated function takes what its wrapper does."""
    with pytest.raises(paddock.UsageError, match=r"keyword argument 'npoc' .*mean 'nproc'"):
        quietly(functions.stay, 0, npoc=2)
    with pytest.raises(paddock.UsageError, match=r"stay\(\): missing .*'seconds' .*stay\(seconds"):
        quietly(functions.stay)

    @wraps(pow)
    def squared(base: int) -> int:
        return base**2

    assert quietly(squared, 3, nproc=1).result == 9
    assert quietly(max, 3, 4, nproc=1).result == 4


def test_a_function_of_no_module_is_told() -> None:
    with pytest.raises(paddock.UsageError, match="cannot be imported"):
        quietly("math:nope")
    with pytest.raises(paddock.UsageError, match="is a float"):
        quietly("math:pi")


def test_a_rank_cannot_launch() -> None:
    """Each of its ranks would start a job."""
    with pytest.raises(paddock.RankFailedError, match=r"called in rank 0 of a job"):
        quietly(lambda: paddock.launch("train.py"), nproc=1).wait()


def test_a_result_that_is_too_large_is_refused() -> None:
    with pytest.raises(paddock.RankFailedError, match="at most 1,000 are returned"):
        quietly(bytes, 2000, nproc=1, result_bytes_max=1000).results()


def test_a_rank_that_leaves_without_result_is_told() -> None:
    for rank in (0, 1):
        with pytest.raises(paddock.PaddockError, match=f"rank {rank} exited without a result"):
            quietly(lambda rank=rank: functions.who()[0] != rank or os._exit(0), nproc=2).results()
    with pytest.raises(paddock.PaddockError, match="returned no results"):
        quietly(sys.exit, 0, nproc=1).results()


def test_results_of_an_earlier_attempt_are_not_returned() -> None:
    """Rank 0 returned in attempt 0 only, and the restart left without a result."""

    def train() -> str:
        if paddock.attempt():
            os._exit(0)
        if paddock.rank():
            wait_until(lambda: any(name.endswith(".result") for name in os.listdir(results)))
            raise ValueError
        return "old"

    run_id = "earlier"
    results = f"{os.environ['XDG_STATE_HOME']}/paddock/runs/{run_id}/results"
    run = quietly(train, nproc=2, max_restarts=1, run_id=run_id)
    with pytest.raises(paddock.PaddockError, match="returned no results"):
        run.results()
    assert run.status.attempt == 1


def test_a_result_that_cannot_go_back_is_told() -> None:
    """Neither as a traceback of Paddock in a rank, nor as an error of pickle here."""
    with pytest.raises(paddock.RankFailedError, match=r"result of .* is a _thread\.lock, which"):
        quietly(lambda: threading.Lock(), nproc=1).results()
    with pytest.raises(paddock.PaddockError, match=r"rank 0 of .* cannot be unpickled here: Value"):
        quietly(functions.Unloadable, nproc=1).results()


@pytest.mark.parametrize("kind", ["TwoArgumentsError", "NoTextError", "OwnBaseError"])
def test_any_exception_of_a_function_is_told(kind: str) -> None:
    """One that cannot be unpickled, one whose __str__ raises, one that is no Exception."""
    with pytest.raises(paddock.RankFailedError, match=rf"rank 0 .* raised .*\b{kind}\b") as caught:
        quietly(functions.raise_one, kind, nproc=1).wait()
    assert caught.value.traceback.count("File ") == 1  # the line of the function
    again = pickle.loads(pickle.dumps(caught.value))  # as a pool of processes does
    assert (type(again), str(again), again.rank) == (paddock.RankFailedError, str(caught.value), 0)


def test_a_function_may_change_its_directory_and_environment(own_place: Path) -> None:
    def train() -> int:
        os.chdir("/")
        os.environ.clear()
        return 5

    assert quietly(train, nproc=1).result == 5


def test_a_run_is_stopped(own_place: Path) -> None:
    run = quietly(functions.stay, 60, str(own_place / "up"), nproc=2)
    wait_until(lambda: len(list(own_place.glob("up.*"))) == 2)
    assert not run.is_done()
    with pytest.raises(TimeoutError):
        run.wait(0.05)
    run.stop()
    with pytest.raises(paddock.RunFailedError) as caught:
        run.wait()
    assert caught.value.state == "cancelled"
    run.stop()  # no error
    assert run.is_done()


def test_a_run_is_looked_at_before_its_record_is_there(own_place: Path) -> None:
    """Its launcher writes it when the ranks have started."""
    run = quietly(lambda: print("hello"), nproc=1)
    assert paddock.Run.find(run.id) is run
    assert [line.rpartition(" ")[2] for line in run.logs(follow=True)] == ["hello"]
    run.wait()
    run.delete()
    for look in (run.results, run.fetch, lambda: list(run.logs())):
        with pytest.raises(paddock.PaddockError, match="has no record"):
            look()


def test_a_run_without_a_record_leaves_nothing() -> None:
    """PADDOCK_KEEP_RUNS=0: its results are there as long as the process that can read them."""
    code = "import os, paddock; os.environ['PADDOCK_KEEP_RUNS'] = '0'\n"
    code += "run = paddock.launch(pow, 2, 3, nproc=1, quiet=True); print(run.result, run.result)\n"
    code += "run.stop(); print(run.wait().state)"  # it has ended, and stays as it is
    assert _python(code).stdout == "8 8\nsucceeded\n"
    assert os.listdir(registry_folder(os.environ)) == []


def test_an_id_that_another_run_has_is_told() -> None:
    assert quietly(functions.who, nproc=1, run_id="demo-17").results() == [(0, 1)]
    with pytest.raises(paddock.UsageError, match="run_id='demo-17': another run has it"):
        quietly(functions.who, nproc=1, run_id="demo-17")


def test_a_run_goes_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(quietly(functions.who, nproc=1)))
    assert again.results(60) == [(0, 1)]


def test_a_run_that_nobody_waits_for_is_let_go() -> None:
    """A process that launches a thousand of them has descriptors left."""
    run = quietly(functions.who, nproc=1)
    assert run._held_fd >= 0
    wait_until(run.is_done)
    assert run._held_fd == -1
    assert run.result == (0, 1)


def test_a_launcher_that_is_killed_is_lost(own_place: Path) -> None:
    run = quietly(functions.stay, 60, str(own_place / "up"), nproc=1)
    wait_until(lambda: (own_place / "up.0").exists() and run.entry is not None)
    assert run._child is not None
    run._child.kill()
    with pytest.raises(paddock.RunFailedError, match="launcher was killed") as caught:
        run.results()
    assert caught.value.state == "lost"


def test_a_run_that_cannot_be_recorded_says_so() -> None:
    """As on a full disk: why it failed cannot be kept either, and its exit code is the job's."""
    folder = f"{registry_folder(os.environ)}/lost"
    run = quietly(["sh", "-c", f"rm -r {folder}; touch {folder}; exit 3"], nproc=1, run_id="lost")
    with pytest.raises(paddock.RunFailedError, match=f"could be written to {folder}") as caught:
        run.wait()
    assert caught.value.exit_code == 3


def test_results_that_nobody_has_read_are_not_pruned() -> None:
    """With a small PADDOCK_KEEP_RUNS another launch would remove them."""
    runs = [quietly(functions.who, nproc=1) for _ in range(2)]
    wait_until(lambda: all(run.is_done() for run in runs))
    prune(os.path.dirname(runs[0]._folder), 1)
    assert [run.result for run in runs] == [(0, 1)] * 2
    prune(os.path.dirname(runs[0]._folder), 1)
    assert len(paddock.Run.all()) == 1


def test_runs_that_nobody_holds_are_pruned_unread() -> None:
    """Else a process that launches without end would fill the disk."""
    runs = [quietly(functions.who, nproc=1) for _ in range(2)]
    folder = os.path.dirname(runs[0]._folder)
    for run in runs:
        run.wait()
    del run, runs
    gc.collect()
    prune(folder, 1)
    assert len(paddock.Run.all()) == 1


def test_leaving_with_ends_the_run(own_place: Path) -> None:
    with quietly(functions.stay, 60, str(own_place / "up"), nproc=1) as run:
        wait_until(lambda: (own_place / "up.0").exists())
    assert run.status.state == "cancelled"


def test_coroutines_wait_for_several_runs() -> None:
    async def both() -> list[list[object]]:
        runs = [quietly(pow, 2, n, nproc=1) for n in (3, 4)]
        return await asyncio.gather(*(run.results_async() for run in runs))

    assert asyncio.run(both()) == [[8], [16]]


def test_a_cancelled_task_ends_its_run(own_place: Path) -> None:
    async def give_up() -> Run:
        run = quietly(functions.stay, 60, str(own_place / "up"), nproc=1)
        task = asyncio.create_task(run.wait_async())
        await asyncio.to_thread(wait_until, (own_place / "up.0").exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return run

    assert asyncio.run(give_up()).wait(check=False).state == "cancelled"


def test_output_of_rank_0_goes_to_a_replaced_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """As that of a notebook's cell."""
    paddock.launch(lambda: print("step 1 of rank", os.environ["RANK"]), nproc=2).wait()
    assert capsys.readouterr().out == "step 1 of rank 0\n"


def test_a_closed_stdout_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for a pipe that nobody reads."""
    with io.StringIO() as cell:
        monkeypatch.setattr(sys, "stdout", cell)
        run = paddock.launch(functions.talk, 1 << 20, nproc=1)
    assert run.result == 1 << 20


MAIN = """
import os, sys, time
sys.path.insert(0, {src!r})
import paddock

def train(path):
    open(path + os.environ["RANK"], "w").write(str(os.getpid()))
    time.sleep({seconds})

run = paddock.launch(train, {path!r}, nproc=2)
{last}
"""


def _script(place: Path, last: str, seconds: float = 60) -> subprocess.Popen[str]:
    src = os.path.dirname(os.path.dirname(paddock.__file__))
    code = MAIN.format(src=src, seconds=seconds, path=str(place / "up."), last=last)
    (place / "main.py").write_text(code)
    return subprocess.Popen(
        [sys.executable, "main.py"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=place, start_new_session=True,
    )  # fmt: skip


def _ranks(place: Path) -> list[int]:
    wait_until(lambda: len([p for p in place.glob("up.*") if p.read_text()]) == 2)
    return [int(path.read_text()) for path in sorted(place.glob("up.*"))]


def _is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")


def test_an_interrupt_ends_the_run(own_place: Path) -> None:
    with _script(own_place, "run.wait()") as script:
        pids = _ranks(own_place)
        script.send_signal(signal.SIGINT)
        out, err = script.communicate(timeout=60)
    assert "KeyboardInterrupt" in err, out
    assert all(map(_is_gone, pids))
    assert paddock.Run.find("last").status.state == "cancelled"


def test_a_killed_caller_leaves_no_rank(own_place: Path) -> None:
    """A kernel that is killed, or dies: the launcher sees its pipe end."""
    with _script(own_place, "run.wait()") as script:
        pids = _ranks(own_place)
        script.kill()
    wait_until(lambda: all(map(_is_gone, pids)))
    wait_until(lambda: [run.status.state for run in paddock.Run.all()] == ["failed"])
    assert "lost the Python process that launched" in paddock.Run.find("last").status.why


def test_a_script_that_ends_waits_for_its_run(own_place: Path) -> None:
    with _script(own_place, "", seconds=0.2) as script:
        _, err = script.communicate(timeout=60)
    run = paddock.Run.find("last")
    assert run.status.state == "succeeded"
    assert f"paddock: waiting for {run.id}: Ctrl-C stops it\n" in err
    assert "Traceback" not in err


def test_a_forked_process_has_the_run_of_its_parent(own_place: Path) -> None:
    """The launcher is no child of it."""
    last = "pid = os.fork()\nwith open(f'{pid > 0}', 'w') as file: file.write(run.wait().state)"
    with _script(own_place, last, seconds=1) as script:
        script.communicate(timeout=60)
    wait_until((own_place / "False").exists)
    assert [(own_place / name).read_text() for name in ("True", "False")] == ["succeeded"] * 2


def test_a_script_that_fails_ends_its_run(own_place: Path) -> None:
    last = "while not os.path.exists('up.1'): time.sleep(0.01)\nraise SystemError('mine')"
    with _script(own_place, last) as script:
        _, err = script.communicate(timeout=60)
    assert "mine" in err
    assert paddock.Run.find("last").status.state == "cancelled"


def test_no_live_process_is_forked() -> None:
    """A thread that holds a lock, or an initialised device, would be copied by a fork."""
    pids = []
    os.register_at_fork(after_in_parent=lambda: pids.append(os.getpid()))
    assert quietly(pow, 2, 3, nproc=1).result == 8
    assert pids == []


def _python(code: str) -> subprocess.CompletedProcess[str]:
    src = os.path.dirname(os.path.dirname(paddock.__file__))
    env = {**os.environ, "PYTHONPATH": src}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )


def test_importing_paddock_imports_no_part_of_it() -> None:
    code = "import sys, paddock; print([n for n in sys.modules if n.startswith('paddock')])"
    assert _python(code).stdout == "['paddock']\n"


def test_every_public_name_is_there_and_typed() -> None:
    """__init__.pyi names what __init__.py imports once it is used."""
    stub = paddock.__file__ + "i"
    with open(stub, encoding="utf-8") as file:
        typed = {line.split()[-1] for line in file if line.startswith("from ")}
    assert typed == {*paddock.__all__} - {"__version__"}
    for name in paddock.__all__:
        assert getattr(paddock, name) is not None
    with pytest.raises(AttributeError):
        paddock.nope  # type: ignore[attr-defined]  # noqa: B018


def test_the_wall_clock_of_a_wait_is_bounded() -> None:
    """A time limit that is over is told at once, and the run goes on until it is stopped."""
    with quietly(functions.stay, 60, nproc=1) as run:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            run.results(0.01)
        assert time.monotonic() - began < 60


def test_a_function_is_run_again_by_the_command() -> None:
    """With results of its own; the list shows it as the call that it is."""
    first = quietly(functions.who, nproc=2)
    first.wait()
    _python("from paddock.cli.main import main; main(['rerun', 'last'])")
    again = paddock.Run.find("last")
    assert again.id != first.id
    assert again.results() == first.results() == [(0, 2), (1, 2)]
    assert [run.entry and run.entry.command for run in paddock.Run.all()] == ["who()"] * 2
