"""The records of sweeps: damaged ones, old ones, and who follows one."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.backends.sweeps import follow, machine
from paddock.backends.sweeps.follow import SweepFolder, find_sweep, make_sweep, the_sweep
from paddock.backends.sweeps.machine import Sweep, SweepPoint
from paddock.errors import PaddockError, UsageError
from paddock.local.output.lock import process_text

if TYPE_CHECKING:
    from pathlib import Path

SWEEP = Sweep((SweepPoint("t-lr1", {"lr": "1"}),), 1)
ENDED = machine.stopped(SWEEP)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path)}


def made(env: dict[str, str], sweep: Sweep = SWEEP) -> SweepFolder:
    return make_sweep(env, "demo", sweep, {"cwd": "/", "argv": [], "env": []})


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        ('"points"', '"pints"'), ('"waiting"', '"later"'), ('{"lr": "1"}', '["lr"]'),
        ('"began_at": 0.0', '"began_at": "x"'), ("}", ""), ('"at_once": 1', '"at_once": 1e999'),
    ],
)  # fmt: skip
def test_a_damaged_record_is_told(env: dict[str, str], whole: str, damaged: str) -> None:
    """Other sweeps are found as before."""
    other, broken = made(env), made(env)
    file = broken.path / "sweep.json"
    assert whole in file.read_text()
    file.write_text(file.read_text().replace(whole, damaged))
    with pytest.raises(UsageError, match=f"the record of {broken.sweep_id} is damaged"):
        the_sweep(env, broken.sweep_id)
    found = find_sweep(env, "demo")
    assert found is not None and found.sweep_id == other.sweep_id


def test_a_lock_that_cannot_be_made_is_told(env: dict[str, str]) -> None:
    """As on a full disk: a sentence, and no traceback."""
    folder = made(env)
    (folder.path / "lock").mkdir()
    with pytest.raises(PaddockError, match="lock: Is a directory"), folder.followed():
        pass


def test_the_oldest_records_of_ended_sweeps_are_removed(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has not ended stays, however old."""
    monkeypatch.setattr(follow, "KEPT_SWEEPS", 2)
    going, *ended = made(env), made(env, ENDED), made(env, ENDED), made(env, ENDED)
    assert [each.path.exists() for each in (going, *ended)] == [True, False, True, True]


def test_a_follower_of_another_machine_is_told_and_no_process_of_this_one_is(
    env: dict[str, str],
) -> None:
    """On a shared home the process has another number here."""
    folder = made(env)
    with open(folder.path / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("another-boot pid:[1] 1 17\n")
        file.flush()
        assert folder.follower() == 1
        with pytest.raises(UsageError, match="of another machine or container follows demo-"):
            follow.stop_sweep(folder)


def test_a_number_left_in_the_lock_is_no_follower(env: dict[str, str]) -> None:
    """The next follower has the lock before it has written its own: nobody else gets its signal."""
    folder = made(env)
    with subprocess.Popen(["sleep", "60"]) as ended:
        text = process_text(ended.pid)
        ended.kill()
    with open(folder.path / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text)
        file.flush()
        assert folder.interrupt() == 0


def test_a_follower_of_an_older_paddock_is_told(env: dict[str, str]) -> None:
    """Its lock has the number of its process, and nothing of its machine."""
    folder = made(env)
    with open(folder.path / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("17")
        file.flush()
        with pytest.raises(UsageError, match="process 17 of another machine or container"):
            follow.stop_sweep(folder)


def test_a_program_in_the_background_of_a_script_is_stopped(env: dict[str, str]) -> None:
    """It ignores SIGINT (POSIX, 2.11 of the shell)."""
    folder = make_sweep(env, "demo", SWEEP, {"cwd": "/"})
    code = """
import fcntl, os, sys
from paddock.local.output.lock import process_text
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(process_text(os.getpid()))
file.flush()
print("ready", flush=True)
sys.stdin.read()
"""
    command = ["sh", "-c", '"$@" <&3 & wait $!', "", sys.executable, "-c", code]
    shell = subprocess.Popen(
        ["sh", "-c", 'exec 3<&0; "$@"', "", *command, str(folder.path / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        assert folder.interrupt() > 0
        assert shell.wait(60) == 128 + signal.SIGTERM
