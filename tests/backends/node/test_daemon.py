"""A job's daemon with a real launcher, which answers on its control socket."""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from local.jobs import children_of, wait_until
from paddock.backends.node import daemon
from paddock.backends.node.jobdir import control_socket, inner, node_state, read_json
from paddock.backends.node.main import HostSession
from paddock.backends.node.wire import Wire
from paddock.errors import UsageError
from paddock.local.guardian import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IGNORES = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(os.path.join(sys.argv[1], os.environ["PADDLE_TRAINER_ID"]), "w").write(str(os.getpid()))
time.sleep(3600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Path]:
    """The directory of a job whose two ranks do not end when they are asked to."""
    directory = tmp_path / "train-3f2a"
    for name in (".paddock", "log", "up"):
        (directory / name).mkdir(parents=True)
    (tmp_path / "train.py").write_text(IGNORES, "utf-8")
    yield directory
    if state(directory) == "running":
        stop(directory, now=True)


def start(job: Path, *before: str, screen: str = "console.log") -> None:
    words = [sys.executable, "-m", "paddock", "launch", "--nproc_per_node", "2", "--grace", "600",
             "--record", inner(str(job), ""), "--log_dir", str(job / "log"),
             str(job.parent / "train.py"), str(job / "up")]  # fmt: skip
    files = str(job / "log/console.log"), str(job / "log" / screen)
    argv = [*before, *words]
    daemon.start(str(job), argv, os.environ, cwd=str(job), outputs=files, is_attached=False)


def up(job: Path) -> dict[str, int]:
    pids = {f"worker {path.name}": path.read_text() for path in (job / "up").iterdir()}
    return {name: int(pid) for name, pid in pids.items() if pid}


def stop(job: Path, *, now: bool) -> None:
    row = {"root": str(job.parent), "id": job.name, "now": now}
    assert HostSession(Wire(0, 1), "")._stop(row) == {"was_running": True}


def state(job: Path) -> object:
    return (read_json(inner(str(job), "state.json")) or {}).get("state")


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_the_daemon_keeps_no_pipe_of_the_process_that_started_it(job: Path) -> None:
    """Two threads started a job each: one waited for the end of the other's pipe, and job."""
    read, write = os.pipe2(os.O_CLOEXEC)
    start(job)
    os.close(write)
    ready, _, _ = select.select([read], [], [], 10)
    assert ready and os.read(read, 1) == b""
    os.close(read)
    assert state(job) == "running"


def test_ranks_are_what_the_launcher_says_and_at_once_needs_no_grace(job: Path) -> None:
    start(job)
    wait_until(lambda: len(up(job)) == 2)
    wait_until(lambda: node_state(str(job))["state"] == "running")
    found = node_state(str(job))
    assert found["ranks"] == up(job)
    assert found["whole"]["state"] == "running"
    stop(job, now=False)
    assert node_state(str(job))["state"] == "stopping"
    stop(job, now=True)
    wait_until(lambda: state(job) == "cancelled")


def test_at_once_reaches_a_launcher_that_has_no_socket_yet(job: Path) -> None:
    """SIGTERM is ignored here: only the socket can have told it."""
    gate = job.parent / "gate"
    os.mkfifo(gate)
    start(job, "sh", "-c", 'trap "" TERM; read _ <"$0"; exec "$@"', str(gate))
    with open(gate, "w", encoding="utf-8") as file:  # it reads: its trap is set
        stop(job, now=True)
        file.write("go\n")
    wait_until(lambda: state(job) == "cancelled")
    assert not os.path.exists(control_socket(str(job)))


def test_a_launcher_that_stands_still_counts_as_running(job: Path) -> None:
    """And is woken to be told."""
    start(job)
    wait_until(lambda: len(up(job)) == 2)
    wait_until(lambda: node_state(str(job))["state"] == "running")  # it has its socket
    [launcher] = {parent_of(pid) for pid in up(job).values()}
    os.kill(launcher, signal.SIGSTOP)
    assert node_state(str(job))["state"] == "running"
    stop(job, now=True)
    wait_until(lambda: state(job) == "cancelled")


def test_a_launcher_that_cannot_start_leaves_word_of_why(job: Path) -> None:
    """Whoever cannot: the program, the launch, the launcher that was killed."""
    start(job, "/no/such/python")
    wait_until(lambda: state(job) == "failed")
    assert node_state(str(job))["why"] == "/no/such/python: No such file or directory"
    (job / ".paddock/error").unlink()
    (job.parent / "train.py").rename(job.parent / "other.py")
    start(job)
    wait_until(lambda: state(job) == "failed")
    assert "train.py' does not exist" in node_state(str(job))["why"]


def test_a_killed_launcher_is_told_by_its_guardian(job: Path) -> None:
    start(job)
    wait_until(lambda: len(up(job)) == 2)
    [launcher] = {parent_of(pid) for pid in up(job).values()}
    os.kill(launcher, signal.SIGKILL)
    wait_until(lambda: state(job) == "failed")
    found = node_state(str(job))
    assert (found["code"], "killed by signal 9" in found["why"]) == (137, True)


def test_another_host_s_launcher_has_its_screen_in_a_file_of_its_own(job: Path) -> None:
    """The console has what ranks write, to stdout and stderr."""
    (job.parent / "train.py").write_text("import os\nos.write(1, b'1\\n')\nos.write(2, b'2\\n')\n")
    start(job, screen="screen.log")
    wait_until(lambda: state(job) == "succeeded")
    assert (job / "log/console.log").read_text() == "1\n2\n"
    first, *_, last = (job / "log/screen.log").read_text().splitlines()
    assert "2 ranks" in first and last.startswith("paddock: done")


def test_ranks_whose_guardian_and_launcher_are_killed_at_one_moment_end(job: Path) -> None:
    """The daemon is their nearest subreaper; the end is told when they have gone."""
    start(job)
    wait_until(lambda: len(up(job)) == 2)
    pids = [*up(job).values()]
    [launcher] = {parent_of(pid) for pid in pids}
    guardian = parent_of(launcher)
    for number, pid in ((signal.SIGSTOP, guardian), (signal.SIGSTOP, launcher),
                        (signal.SIGKILL, guardian), (signal.SIGKILL, launcher)):  # fmt: skip
        os.kill(pid, number)  # stopped first: neither can act for the other
    wait_until(lambda: state(job) == "failed")
    assert not [pid for pid in pids if is_up(pid)]
    found = node_state(str(job))
    assert found["code"] == 137 and found["why"].startswith("its launcher was killed by SIGKILL")


def test_a_launcher_whose_guardian_is_killed_tells_the_end_itself(job: Path) -> None:
    """The daemon does not end it before it has."""
    start(job)
    wait_until(lambda: len(up(job)) == 2)
    pids = [*up(job).values()]
    [launcher] = {parent_of(pid) for pid in pids}
    os.kill(parent_of(launcher), signal.SIGKILL)
    wait_until(lambda: state(job) == "failed")
    assert not [pid for pid in pids if is_up(pid)]
    assert "the guardian process was killed" in node_state(str(job))["why"]


@pytest.mark.parametrize("now", [False, True], ids=["with grace", "at once"])
def test_what_outlived_the_daemon_too_is_named_until_stop_has_ended_it(
    job: Path, now: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pkill -9 -f paddock` kills the daemon as well. A child without environment is ours, too."""
    monkeypatch.setattr("paddock.local.runs.orphans.GRACE_SECONDS", 0.2)
    program = IGNORES.replace("time.sleep", "__import__('subprocess').Popen("
                              "['env', '-i', 'sleep', '3600'])\ntime.sleep", 1)  # fmt: skip
    (job.parent / "train.py").write_text(program, "utf-8")
    start(job)
    wait_until(lambda: len(up(job)) == 2)
    pids = [*up(job).values()]
    wait_until(lambda: all(children_of(pid) for pid in pids))
    pids += [child for pid in pids for child in children_of(pid)]
    [launcher] = {parent_of(pid) for pid in up(job).values()}
    guardian = parent_of(launcher)
    killed = launcher, guardian, parent_of(guardian)  # the end of one above would wake it up
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in killed:
            os.kill(pid, number)
    wait_until(lambda: node_state(str(job))["state"] == "running")
    said = str(node_state(str(job))["why"])
    assert all(f"rank {name[-1]} (pid {pid})" in said for name, pid in up(job).items())
    row = {"root": str(job.parent), "id": job.name}
    with pytest.raises(UsageError, match="has not ended: rank"):
        HostSession(Wire(0, 1), "")._delete(row)
    stop(job, now=now)
    wait_until(lambda: node_state(str(job))["state"] == "lost")
    wait_until(lambda: not [pid for pid in pids if is_up(pid)])
    HostSession(Wire(0, 1), "")._delete(row)
    assert not job.exists()


def is_up(pid: int) -> bool:
    return state_of(pid) != b"Z"  # nobody but init reaps an orphan
