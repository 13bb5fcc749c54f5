"""`paddock launch --record`: files that say how a job is, and {node} in --log_dir."""

from __future__ import annotations

import json
import os
import signal
import stat
from typing import TYPE_CHECKING, Any

import pytest

from local.jobs import free_port
from paddock.core.attempt.termination import read_end
from paddock.local.output.logs import log_folder, safe_name
from paddock.local.output.times import SUFFIX, read_times
from paddock.local.runs.record import TERMINATION_LOG, drop_error, keep_error
from schemas import mistakes

if TYPE_CHECKING:
    from pathlib import Path

    from local.jobs import World


def read(folder: Path, name: str) -> dict[str, Any]:
    """One of the files, as its schema says."""
    found: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    assert mistakes(f"record-{name}", found) == []
    return found


def test_a_job_that_failed_has_left_its_record(world: World) -> None:
    """Status, verdict and times, for their owner only."""
    script = world.script("print('here'); tell('up'); gate() if RANK else forever(); sys.exit(7)")
    folder = world.folder / "a b" / "rec"
    job = world.start("--nproc_per_node", 2, "--record", folder, script)
    world.events.wait("up", count=2)
    world.open_gate(1)
    assert job.end().code == 7
    status, verdict = read(folder, "status.json"), read(folder, "verdict.json")
    assert status["phase"] == "ended"
    assert [node["ranks"][1]["code"] for node in status["nodes"]] == [7]
    assert status["verdict"]["code"] == verdict["code"] == 7
    assert verdict["text"].startswith("rank 1 (pid ")
    assert sorted(os.listdir(folder)) == ["status.json", "verdict.json"]
    files = [*folder.iterdir(), *world.log_dir.glob("*log.*")]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    for rank in range(2):
        rows = list(read_times((world.log_dir / f"workerlog.{rank}{SUFFIX}").read_bytes()))
        assert rows[0] == (0, 0, ("worker", rank, 0))
        assert rows[-1][0] <= len(b"here") and world.log(rank) == b"here\n"


def test_the_record_follows_a_running_job(world: World) -> None:
    """A rank that has ended is seen while the other runs, and so is the next attempt."""
    script = world.script(
        "tell('up', RANK, ATTEMPT)\nif RANK == 1 and ATTEMPT == 0: sys.exit(3)\ngate()"
    )
    folder = world.folder / "rec"
    job = world.start("--nproc_per_node", 2, "--max_restart", 1, "--record", folder, script)
    world.events.wait("up", 1, 1)
    world.events.wait("up", 0, 1)
    world.open_gate(2)
    ended = job.end()
    assert ended.code == 0
    assert "Configuration" not in ended.err  # who submitted it has seen the plan
    status = read(folder, "status.json")
    assert (status["attempt"], status["restarts"]) == (1, 1)
    assert status["verdict"] == {"kind": "succeed", "code": 0, "text": ""}
    begun = [
        who
        for _, _, who in read_times((world.log_dir / f"workerlog.1{SUFFIX}").read_bytes())
        if who
    ]
    assert begun == [("worker", 1, 0), ("worker", 1, 1)]


def test_without_the_flag_the_log_directory_has_logs_only(world: World) -> None:
    """The record of a launch is in the registry; runs/ has the times of its lines."""
    assert world.run(world.script("print('here')")).code == 0
    found = sorted(
        p.name for p in world.log_dir.iterdir() if p.name not in ("launcher.log", "runs")
    )
    assert found == [".paddock", "endpoints.log", "workerlog.0"]
    (times,) = world.log_dir.glob("runs/*/*")
    assert times.name == "workerlog.0.times"


def test_a_record_that_cannot_be_kept_is_said_before_anything_starts(world: World) -> None:
    """A file is in the way, or a link that leads elsewhere."""
    script = world.script("tell('up')")
    (world.folder / "file").write_text("")
    (world.folder / "link").symlink_to(world.folder)
    for name in ("file", "link"):
        ended = world.run("--record", world.folder / name, script)
        assert (ended.code, "is not writable" in ended.err) == (2, True)
    assert world.events.all("up") == []


def test_the_error_of_an_earlier_run_is_not_this_ones(world: World) -> None:
    """The first one stayed, whatever came later in the same directory."""
    folder, script = world.folder / "rec", world.script("")
    error = folder / "error"
    folder.mkdir()
    for flag in ("--nproc_per_node", "--max_restart"):
        assert world.run("--record", folder, flag, "many", script).code == 2
        assert flag in error.read_text()
    assert world.run("--record", folder, "--framework", "torch", script).code == 0
    assert not error.exists()


def test_a_pod_is_told_in_a_sentence_why_its_launcher_failed(world: World) -> None:
    """In the file that the kubelet reads: a rank, a signal, bad input, or a launcher's death."""
    reason = world.folder / "termination-log"
    env = {TERMINATION_LOG: str(reason)}
    fails = world.script("sys.exit(7 if RANK else 0)")
    assert world.run(fails, env=env).code == 0
    assert not reason.exists(), "a pod has such a file, or nobody asks"
    reason.touch()
    assert world.run("--nproc_per_node", 2, fails, env=env).code == 7
    assert reason.read_text().startswith("rank 1 (pid ")
    assert reason.read_text().endswith(" exited with code 7")
    assert world.run("--nproc_per_node", "many", fails, env=env).code == 2
    assert "many" in reason.read_text() and "rank" not in reason.read_text()
    full = {TERMINATION_LOG: "/dev/full"}
    assert world.run("--nproc_per_node", 2, fails, env=full).code == 7, "not that of a fault"
    for end, told in ((signal.SIGTERM, "stopped by SIGTERM"), (signal.SIGKILL, "killed by signal")):
        running = world.start(world.script(f"tell('{end.name}')\nforever()"), env=env)
        world.events.wait(end.name)
        os.kill(running.launcher_pid(), end)
        assert running.end().code == 128 + end
        assert told in reason.read_text()


def test_launchers_of_one_job_keep_the_first_error_among_them(tmp_path: Path) -> None:
    """Each removes what is older than the time within which all of them start."""
    for text in ("of node 1", "of node 0"):
        drop_error(str(tmp_path), 300.0)
        keep_error(str(tmp_path), text)
    assert (tmp_path / "error").read_text() == "of node 1\n"
    os.utime(tmp_path / "error", (0, 0))
    drop_error(str(tmp_path), 300.0)
    assert list(tmp_path.iterdir()) == []
    drop_error(str(tmp_path / "none"))


def test_a_full_disk_costs_the_record_and_not_the_job(world: World) -> None:
    """It goes away under a job that runs."""
    folder = world.folder / "rec"
    script = world.script("tell('up'); gate()")
    job = world.start("--record", folder, script)
    world.events.wait("up")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    world.open_gate(1)
    ended = job.end()
    assert ended.code == 0
    assert ended.err.count("the job's status is not kept, the job goes on") == 1


def test_hosts_that_share_a_log_directory_do_not_mix(world: World) -> None:
    """{node} in --log_dir is the name of the host."""
    name = safe_name(os.uname().nodename)
    log_dir = world.folder / "log" / "{node}"
    assert world.start("--log_dir", log_dir, world.script("print('here')")).end().code == 0
    assert (world.folder / "log" / name / "workerlog.0").read_bytes() == b"here\n"
    assert log_folder("a/{node}/b") == os.path.abspath(f"a/{name}/b")


@pytest.mark.parametrize("is_shared", [True, False], ids=["one directory", "each its own"])
def test_who_takes_a_job_over_keeps_its_record(world: World, is_shared: bool) -> None:
    """There is one status, wherever the nodes keep it."""
    script = world.script(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "tell('up', ATTEMPT, RANK, WORLD)\n"
        "gate()"
    )
    master = f"127.0.0.1:{free_port()}"
    folders = [world.folder / f"rec{0 if is_shared else n}" for n in range(2)]
    jobs = []
    for number, folder in enumerate(folders):
        words = ("--master", master, "--nnodes", "1:2", "--elastic_timeout", 20, "--record", folder)
        jobs.append(world.start(*words, script, log_dir=world.folder / f"log{number}"))
        if number == 0:
            jobs[0].wait_for("1 of 1:2 joined")
    world.events.wait("up", 0, count=2)
    first = str(read(folders[0], "status.json")["by"])
    jobs[0].signal(signal.SIGTERM)
    world.events.wait("up", 1, 0, 1)
    assert jobs[0].end().code == 143
    world.open_gate(1)
    assert jobs[1].end().code == 0
    status = read(folders[1], "status.json")
    assert (status["attempt"], status["verdict"]["kind"]) == (1, "succeed")
    assert status["by"] != first
    if not is_shared:
        assert not (folders[0] / "status.json").exists()
    assert read(folders[1], "verdict.json")["kind"] == "succeed"


def test_in_a_pod_the_message_names_the_rank_its_host_and_its_exception(world: World) -> None:
    """Without it, the last line of a launcher's log was taken for the error."""
    reason = world.folder / "termination-log"
    reason.touch()
    env = {TERMINATION_LOG: str(reason), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    script = world.script("if RANK: raise ValueError('bad sample 812')\nforever()")
    assert world.run("--nproc_per_node", 2, script, env=env).code == 1
    words = read_end(reason.read_text())
    assert (words.clause, words.is_here, words.host) == (
        "rank 1: ValueError: bad sample 812", True, os.uname().nodename
    )  # fmt: skip
    assert [(rank, state) for _, rank, state, _ in words.exits] == [(0, "ended"), (1, "failed")]
