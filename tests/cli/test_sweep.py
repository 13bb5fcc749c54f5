"""`paddock submit --sweep`, `--after`, `--retry` and `paddock sweep` on this machine, for real."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from cli.test_submit import home_of, paddock
from local.jobs import wait_until
from paddock.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """\
import os, sys, time, paddock
given = dict(word.lstrip("-").split("=") for word in sys.argv[1:] if "=" in word)
lr = float(os.environ["PADDOCK_SWEEP_LR"])
if lr == 7:
    sys.exit(3)
while "gate" in given and not os.path.exists(given["gate"]):
    time.sleep(0.05)
paddock.report(step=1, loss=lr * 2)
paddock.report(accuracy=1 - lr)
print("lr is", given["lr"], flush=True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project with a script that reports; whatever still runs of it is killed at the end."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    yield folder
    while left := at_home(folder):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def submit(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`paddock submit -b local WORDS`."""
    return paddock(project, "submit", "-b", "local", *words)


def following(project: Path, *words: str) -> subprocess.Popen[str]:
    """`paddock submit -b local WORDS`, which goes on."""
    return subprocess.Popen(
        [sys.executable, "-m", "paddock", "submit", "-b", "local", *words],
        cwd=project, env=home_of(project), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def table(project: Path, *words: str) -> list[dict[str, object]]:
    """The points of the latest sweep, by `paddock sweep --json`."""
    done = paddock(project, "sweep", *words, "--json")
    assert done.returncode == 0, done.stderr
    points: list[dict[str, object]] = json.loads(done.stdout)["points"]
    return points


def states(project: Path) -> list[object]:
    return [row["state"] for row in table(project)]


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        ("--sweep lr train.py", ["not NAME=VALUES"]),
        ("--sweep lr=1,1 --at-once 0 train.py", ["two points are the same", "--at-once 0"]),
        ("--sweep lr=1 --at-once x train.py", ["--at-once x"]),
        ("--sweep lr=1 train.py {rl}", ["{rl} is no name of a --sweep"]),
        ("--sweep lr=1:2 --after nope nope.py", [
            "'1:2' is not a range", "no run 'nope' is recorded", "'nope.py' is not in the package",
        ]),
        ("--sweep lr=1 --retry failed=3 train.py", ["'failed' is no cause to start again"]),
        ("--sweep np=1,x --nproc-per-node {np} train.py", ["--nproc-per-node x"]),
        ("--sweep a=1:40:1 --sweep b=1:40:1 train.py", ["1600 points, the limit is 1000"]),
        ("--sweep lr=1 --root /data/{lr} train.py", ["--root /data/{lr}: it is one for all"]),
        ("--after= train.py", ["--after names no run"]),
        ("--at-once 2 train.py", ["--at-once is for a sweep"]),
        ("--retry lost=x train.py", ["'x' is no number of retries"]),
        ("-d --retry lost=3 train.py", ["--retry needs this command to stay"]),
        ("--after nope:soon train.py", ["its end is neither ok nor any"]),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_starts(
    project: Path, words: str, problems: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """All of them at once, with exit code 2; there is no sweep then."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_STATE_HOME", str(project.parent / "state"))
    assert main.run(["submit", "-b", "local", *words.split()]) == 2
    told = capsys.readouterr().err
    assert told.count("error: ") == len(problems), told
    assert all(problem in told for problem in problems), told
    assert not (project.parent / "state").exists()


def test_launch_says_who_takes_such_a_flag(project: Path) -> None:
    """A sweep on this machine is `paddock submit -b local`."""
    done = paddock(project, "launch", "--sweep", "lr=1,2", "--after=x", "train.py")
    assert done.returncode == 2 and done.stderr.count("error: ") == 2
    assert "hint: paddock submit -b local --sweep ... does it on this machine" in done.stderr


def test_twenty_runs_four_at_once(project: Path) -> None:
    """One command; a table at the end; what each run reported last, sorted, as CSV and JSON."""
    words = ("--sweep", "lr=0.1:1:0.1", "--sweep", "bs=32,64", "--at-once", "4", "train.py")
    done = submit(project, *words)
    assert done.returncode == 0, done.stderr
    assert "20 runs on local, 4 at once" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["lr", "bs", "state", "time", "step", "loss", "accuracy", "run"]
    assert len(lines) == 21
    rows = table(project, "--sort=-loss")
    assert [row["values"]["lr"] for row in rows[:3]] == ["1.0", "1.0", "0.9"]  # type: ignore[index]
    assert rows[0]["results"] == {"step": 1, "loss": 2.0, "accuracy": 0.0}
    text = paddock(project, "sweep", "--csv").stdout
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["loss"] for row in found[:4]] == ["0.2", "0.2", "0.4", "0.4"]
    sweep, *_ = (project.parent / "home" / ".local" / "state" / "paddock" / "sweeps").iterdir()
    folders = [*(project.parent / "home" / "paddock" / "jobs" / sweep.name).iterdir()]
    assert len(folders) == 20  # below one of the sweep
    assert sorted({folder.name[:-5] for folder in folders}) == sorted(r["name"] for r in rows)  # type: ignore[type-var]


def test_a_killed_follower_leaves_its_runs_and_another_goes_on(project: Path) -> None:
    """kill -9 of `paddock submit --sweep`: no run ends, none is started twice."""
    gate = project.parent / "gate"
    words = ("--sweep", "lr=1:8:1", "--at-once", "2", "train.py", f"--gate={gate}")
    follower = following(project, *words)
    wait_until(lambda: len(running(project)) == 2)
    follower.kill()
    follower.communicate()
    assert states(project) == ["running"] * 2 + ["waiting"] * 6
    before = [row["run"] for row in table(project)[:2]]
    gate.touch()
    sweep_id = json.loads(paddock(project, "sweep", "--json").stdout)["id"]
    waited = paddock(project, "wait", sweep_id)
    assert waited.returncode == 125, waited.stderr
    assert f"6 points of {sweep_id} wait, and nobody follows it" in waited.stderr
    done = paddock(project, "sweep", "--resume", "--at-once", "4", "--csv", "--sort=-lr")
    assert done.returncode == 1, done.stderr  # the seventh exits with 3
    assert [row["lr"] for row in csv.DictReader(io.StringIO(done.stdout))] == list("87654321")
    rows = table(project)
    assert [row["run"] for row in rows[:2]] == before
    assert [row["state"] for row in rows] == ["succeeded"] * 6 + ["failed", "succeeded"]
    assert [row["tries"] for row in rows] == [1] * 8
    assert len(json.loads(paddock(project, "list", "--json").stdout)) == 8
    assert "exited with code 3" in str(rows[6]["why"])


def test_a_point_whose_start_was_cut_off_starts_again(project: Path) -> None:
    """It has a record, but no launcher was started: it is neither lost nor run twice."""
    gate = project.parent / "gate"
    follower = following(project, "--sweep", "lr=1,2", "train.py", f"--gate={gate}")
    wait_until(lambda: bool(running(project)))
    follower.kill()
    follower.communicate()
    gate.touch()
    state = project.parent / "home" / ".local" / "state" / "paddock"
    (file,) = state.glob("sweeps/*/sweep.json")
    sweep = json.loads(file.read_text())
    (run,) = state.glob("runs/train-lr1-*")
    cut_off = run.with_name("train-lr2-0000")
    cut_off.mkdir()
    row = json.loads((run / "run.json").read_text())
    row |= {"id": cut_off.name, "handle": f"local://local/{cut_off.name}", "details": {}}
    (cut_off / "run.json").write_text(json.dumps(row))
    sweep["points"][1] |= {"state": "running", "run_id": cut_off.name, "tries": 1}
    file.write_text(json.dumps(sweep))
    done = paddock(project, "sweep", "--resume")
    assert done.returncode == 0, done.stderr
    assert [row["tries"] for row in table(project)] == [1, 1]


def at_home(project: Path, mark: bytes = b"") -> list[int]:
    """The pids of all processes with this project's home, and a variable that begins so."""
    home, found = f"HOME={home_of(project)['HOME']}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            is_ours = home in variables and any(each.startswith(mark) for each in variables)
            found += [int(pid)] if is_ours else []
    return found


def running(project: Path) -> list[int]:
    """The pids of the ranks of this project."""
    return at_home(project, b"PADDLE_TRAINER_ID=")


def launcher_of(pid: int) -> list[int]:
    """A rank, its launcher and the guardian."""
    found = [pid]
    for _ in range(2):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def test_a_lost_point_starts_again_and_a_failed_one_does_not(project: Path) -> None:
    """Lost: the launcher and its guardian are killed, as with the machine under them."""
    gate = project.parent / "gate"
    words = ("--sweep", "lr=6,7", "--retry", "lost=1", "train.py", f"--gate={gate}")
    follower = following(project, *words)
    wait_until(lambda: bool(running(project)))
    for pid in launcher_of(running(project)[0]):
        os.kill(pid, signal.SIGKILL)
    gate.touch()
    told, _ = follower.communicate(timeout=50)
    assert follower.returncode == 1, told
    assert "train-lr6 lost, and starts again" in told
    assert [(row["state"], row["tries"]) for row in table(project)] == [
        ("succeeded", 2), ("failed", 1),
    ]  # fmt: skip


def test_points_that_cannot_be_started_wait(project: Path) -> None:
    """Three in a row, and the sweep says so; with the cause gone, it goes on."""
    gate = project.parent / "gate"
    follower = following(project, "--sweep", "lr=1,2,3", "train.py", f"--gate={gate}")
    wait_until(lambda: len(running(project)) == 1)
    (project / "train.py").rename(project / "away.py")
    gate.touch()
    told, _ = follower.communicate(timeout=50)
    assert follower.returncode == 125, told
    assert told.count("train-lr2 could not be started") == 2
    assert "3 starts failed one after the other" in told
    assert states(project) == ["succeeded", "waiting", "waiting"]
    (project / "away.py").rename(project / "train.py")
    assert paddock(project, "sweep", "--resume").returncode == 0


def test_an_interrupt_stops_what_runs(project: Path) -> None:
    """Ctrl-C: the runs end, what waits does not start, and `--resume` goes on."""
    words = ("--sweep", "lr=1,2,3", "--at-once", "2", "train.py", "--gate=/nowhere")
    follower = following(project, *words)
    wait_until(lambda: len(running(project)) == 2)
    follower.send_signal(signal.SIGINT)
    told, _ = follower.communicate(timeout=50)
    assert follower.returncode == 130, told
    assert running(project) == []
    assert states(project) == ["cancelled"] * 3
    assert "--resume starts what is left" in told


def test_results_that_cannot_be_copied_end_no_sweep(project: Path) -> None:
    """The copy of a history on a full disk, for one: the points go on."""
    gate = project.parent / "gate"
    follower = following(project, "--sweep", "lr=1,2", "train.py", f"--gate={gate}")
    wait_until(lambda: bool(running(project)))
    (run,) = (project.parent / "home" / ".local" / "state" / "paddock" / "runs").glob("train-*")
    (run / "history").touch()
    gate.touch()
    told, _ = follower.communicate(timeout=50)
    assert follower.returncode == 0, told
    assert [len(row["results"]) for row in table(project)] == [0, 3]  # type: ignore[arg-type]


@pytest.mark.limit(90)
def test_a_sweep_in_the_background_is_stopped_and_deleted_by_its_name(project: Path) -> None:
    """--detach: a process of its own follows it; stop tells that one, too."""
    words = ("-d", "--name", "bg", "--sweep", "lr=1,2", "train.py", "--gate=/nowhere")
    done = submit(project, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("bg-")
    wait_until(lambda: len(running(project)) == 1)
    assert "follows it" in paddock(project, "sweep", "bg").stderr
    assert "follows bg-" in paddock(project, "sweep", "bg", "--resume").stderr
    assert "has not ended: process" in paddock(project, "delete", "bg").stderr
    done = submit(project, "--after", "bg", "train.py")
    assert done.returncode == 2 and "is a sweep that has not ended" in done.stderr
    assert paddock(project, "stop", "bg").returncode == 0
    wait_until(lambda: states(project) == ["cancelled"] * 2)
    wait_until(lambda: "nobody" not in paddock(project, "sweep", "bg").stderr)
    done = submit(project, "--after", "bg", "train.py")
    assert done.returncode == 2 and "2 of its 2 points have not succeeded" in done.stderr
    assert paddock(project, "delete", "bg").returncode == 0
    assert "no sweep is recorded" in paddock(project, "sweep").stderr


def test_wait_waits_for_the_runs_that_a_sweep_has_not_started_yet(project: Path) -> None:
    gate = project.parent / "gate"
    submit(project, "-d", "--name", "bg", "--sweep", "lr=1,2", "train.py", f"--gate={gate}")
    wait_until(lambda: len(running(project)) == 1)
    with subprocess.Popen(
        [sys.executable, "-m", "paddock", "wait", "bg", "--json"], cwd=project,
        env=home_of(project), text=True, stdout=subprocess.PIPE,
    ) as wait:  # fmt: skip
        gate.touch()
        text, _ = wait.communicate(timeout=50)
    assert wait.returncode == 0
    assert [row["state"] for row in json.loads(text)] == ["succeeded"] * 2


def test_a_run_waits_for_another(project: Path) -> None:
    """It starts once that has succeeded; not after one that has failed, but for :any."""
    env = ("--env", "PADDOCK_SWEEP_LR=1")
    gate = project.parent / "gate"
    submit(project, "-d", "--name", "first", *env, "train.py", "--lr=1", f"--gate={gate}")
    with following(project, "--after", "first", *env, "train.py", "--lr=2") as second:
        assert second.stdout is not None
        lines = iter(second.stdout.readline, "")
        assert any("waiting here until" in line for line in lines)
        assert len(json.loads(paddock(project, "list", "--json").stdout)) == 1
        gate.touch()
        rest = "".join(lines)
    assert second.returncode == 0 and "lr is 2" in rest
    submit(project, "--name", "bad", "--env", "PADDOCK_SWEEP_LR=7", "train.py")
    done = submit(project, "--after", "bad", *env, "train.py", "--lr=3")
    assert done.returncode == 2 and "it has failed" in done.stderr and ":any" in done.stderr
    assert submit(project, "--after", "bad:any", *env, "train.py", "--lr=3").returncode == 0


def test_a_single_run_that_is_lost_starts_again(project: Path) -> None:
    """--retry lost=1 without a sweep: as a run of its own, and not a second time."""
    env = ("--env", "PADDOCK_SWEEP_LR=1")
    job = following(project, "--retry", "lost=1", *env, "train.py", "--lr=1", "--gate=/nowhere")
    for _ in range(2):
        wait_until(lambda: bool(running(project)))
        for pid in launcher_of(running(project)[0]):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not running(project))
    told, _ = job.communicate(timeout=50)
    assert "was lost and starts again (retry 1 of 1)" in told
    assert job.returncode == 137, told
    assert len(json.loads(paddock(project, "list", "--json").stdout)) == 2
