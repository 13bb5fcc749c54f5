"""A launch is a run: found again by the verbs while it goes on, and after its end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import socket
import stat
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local.jobs import ROOT, Running, World, free_port, wait_until
from paddock.errors import PaddockError
from paddock.local.guardian import state_of
from paddock.local.runs.control import NoLauncherError, ask, follow
from paddock.local.runs.entry import prune
from pages import blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from local.jobs import Ended

BOTH = "tell('up', RANK); print('I am', RANK, flush=True); gate()"


class Terminal:
    """What a user types in one directory, with a registry of their own."""

    def __init__(self, world: World, env: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.state = world.folder / "state"
        self.env = world.env({"XDG_STATE_HOME": str(self.state), **(env or {})})

    def launch(self, *words: object, cwd: Path | None = None) -> Running:
        """Start `paddock launch`, without a --log_dir."""
        command = [sys.executable, "-m", "paddock", "launch", *map(str, words)]
        mark = uuid.uuid4().hex
        running = Running(command, cwd=cwd or self.world.folder, env=self.env, mark=mark)
        self.world.running.append(running)
        return running

    def run(self, *words: object, cwd: Path | None = None) -> Ended:
        """The same, to its end."""
        return self.launch(*words, cwd=cwd).end()

    def type(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Another command."""
        return subprocess.run(
            [sys.executable, "-m", "paddock", *map(str, words)], cwd=self.world.folder,
            env=self.env, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def status(self, job: str = "last") -> dict[str, Any]:
        """Of one run."""
        done = self.type("status", job, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def entries(self) -> list[Path]:
        """The records."""
        return sorted(self.state.glob("paddock/runs/*"))

    def record(self) -> dict[str, Any]:
        """run.json of the one run."""
        (entry,) = self.entries()
        wait_until((entry / "run.json").exists)
        found: dict[str, Any] = json.loads((entry / "run.json").read_text())
        return found

    def control(self) -> str:
        """The control socket of the one run, once it is there."""
        wait_until(lambda: bool(self.record()["details"].get("control")))
        return str(self.record()["details"]["control"])


@pytest.fixture
def terminal(world: World) -> Terminal:
    """Of this test."""
    return Terminal(world)


def test_a_run_is_found_by_every_name_while_it_goes_on(terminal: Terminal) -> None:
    """`paddock list` showed a job that status, logs and stop denied."""
    running = terminal.launch("--nproc_per_node", 2, terminal.world.script(BOTH))
    terminal.world.events.wait("up", count=2)
    terminal.control()
    run_id = terminal.record()["id"]
    assert run_id.startswith("train-")
    for word in (
        "last",
        run_id,
        run_id[:-1],
        "train",
        str(running.pid),
        f"launch://{os.uname().nodename}/{run_id}",
    ):
        found = terminal.status(word)
        assert (found["id"], found["state"], found["ranks_up"]) == (run_id, "running", 2)
    assert terminal.type("status", "pid", running.pid).returncode == 0
    assert run_id in terminal.type("list").stdout
    assert [row["id"] for row in json.loads(terminal.type("list", "--json").stdout)] == [run_id]
    terminal.world.open_gate(2)
    assert running.end().code == 0
    ended = terminal.status(run_id)
    assert (ended["state"], ended["code"]) == ("succeeded", 0)
    assert [rank["state"] for rank in ended["nodes"][0]["ranks"]] == ["succeeded"] * 2
    logs = terminal.type("logs", "last").stdout.splitlines()
    assert sorted(line.rpartition("] ")[2] for line in logs) == ["I am 0", "I am 1"]
    assert terminal.type("wait", "last").returncode == 0


def test_logs_follow_a_run_and_choose_ranks_and_lines(terminal: Terminal) -> None:
    text = "tell('up'); print('step', RANK, flush=True); gate(); print('last', RANK)"
    running = terminal.launch("--nproc_per_node", 3, terminal.world.script(text))
    terminal.world.events.wait("up", count=3)
    terminal.control()
    command = [
        sys.executable,
        "-m",
        "paddock",
        "logs",
        "last",
        "-f",
        "--rank",
        "1-2",
        "--grep",
        "ast",
    ]
    with subprocess.Popen(
        command, cwd=terminal.world.folder, env=terminal.env, stdout=subprocess.PIPE, text=True
    ) as following:
        terminal.world.open_gate(3)
        assert running.end().code == 0
        out, _ = following.communicate(timeout=30)
    assert sorted(line.rpartition("] ")[2] for line in out.splitlines()) == ["last 1", "last 2"]
    one = terminal.type("logs", "last", "--rank", "0", "--grep", "step|last", "--tail", "1").stdout
    assert one.rpartition("] ")[2] == "last 0\n"
    wrong = terminal.type("logs", "last", "--grep", "(")
    assert (wrong.returncode, "--grep (" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("now", [False, True])
def test_stop_ends_a_run_with_and_without_grace(terminal: Terminal, now: bool) -> None:
    """`stop all` was silent, returned 0 and left the job running."""
    script = "signal.signal(15, lambda *_: (tell('asked'), forever())); tell('up'); forever()"
    running = terminal.launch("--grace", 60, terminal.world.script(script))
    terminal.world.events.wait("up")
    terminal.control()
    done = terminal.type("stop", "all", *(["--now"] if now else []))
    assert done.returncode == 0 and "stopping train-" in done.stdout
    if not now:
        terminal.world.events.wait("asked")
        wait_until(lambda: terminal.status()["state"] == "stopping")
        assert terminal.type("stop", "last", "--now").returncode == 0
    ended = running.end()
    assert (ended.code, ended.left) == (143, [])
    status = terminal.status()
    assert status["state"] == "cancelled" and status["why"].startswith(
        "stopped by `paddock stop`; "
    )
    assert f"paddock: {status['why']}" in ended.err
    waited = terminal.type("wait", "last")
    assert (waited.returncode, ": stopped, " in waited.stdout) == (143, True)
    assert terminal.type("list").stdout.splitlines()[1].split()[1] == "stopped"


def test_a_failed_run_tells_why_later(terminal: Terminal) -> None:
    says = "print('ok', flush=True); tell('up')\n"
    script = terminal.world.script(f"{says}if not RANK: forever()\ngate()\nsys.exit(7)")
    running = terminal.launch("--nproc_per_node", 2, script)
    terminal.world.events.wait("up", count=2)
    terminal.world.open_gate(1)
    assert running.end().code == 7
    found = terminal.status()
    assert (found["state"], found["code"]) == ("failed", 7)
    assert "exited with code 7" in found["why"]
    assert found["failed_at"] > 0
    terminal.env["COLUMNS"] = "120"
    (_, row) = terminal.type("list").stdout.splitlines()
    assert len(row) <= 120 and found["command"][:20] in row
    assert "exited with code 7" in row
    assert terminal.type("logs", "last", "--around-failure", "1h").stdout.count("ok") == 2


def test_verbs_name_the_exception_and_the_command_that_shows_its_traceback(
    terminal: Terminal,
) -> None:
    """A code that the script chose is told with its last line: it is no exception's."""
    raises = terminal.world.script("if RANK: raise ValueError('label 7\\nis out of range')")
    assert terminal.run("--nproc_per_node", 2, raises).code == 1
    terminal.env["COLUMNS"] = "300"
    (_, row) = terminal.type("list").stdout.splitlines()
    assert row.endswith(" raised ValueError: label 7 is out of range")
    assert "rank 1 (pid " in row and "exited with code" not in row
    *_, last = terminal.type("status").stdout.splitlines()
    what, _, command = last.partition(": paddock ")
    assert what == "  its traceback"
    assert "ValueError: label 7" in terminal.type(*shlex.split(command)).stdout
    leaves = terminal.world.script(
        "import traceback\n"
        "try: int('x')\n"
        "except ValueError: traceback.print_exc()\n"
        "print('epoch 3: the loss is NaN', flush=True); sys.exit(77)"
    )
    assert terminal.run(leaves).code == 77
    assert " exited with code 77; last line: epoch 3: the loss is NaN" in terminal.status()["why"]
    assert terminal.type("status").stdout.splitlines()[-1].startswith("  its last lines: paddock ")


def test_a_run_that_is_killed_is_lost(terminal: Terminal) -> None:
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    terminal.control()
    os.kill(running.launcher_pid(), signal.SIGKILL)
    assert running.end().code == 137
    found = terminal.status()
    assert (found["state"], "killed" in found["why"]) == ("lost", True)
    assert terminal.type("stop", "last").stdout.endswith("has already ended: lost\n")


@pytest.mark.parametrize("words", [(), ("--warm", "on")], ids=["plain", "warm"])
def test_ranks_of_a_launch_whose_two_processes_are_killed_are_named_and_stopped(
    terminal: Terminal, words: tuple[str, ...]
) -> None:
    """They ran on, and every verb said that the run was lost."""
    script = terminal.world.script("tell('up', RANK, os.getpid()); forever()")
    running = terminal.launch("--nproc_per_node", 2, *words, script)
    up = {rank: int(pid) for _, rank, pid in terminal.world.events.wait("up", count=2)}
    terminal.control()
    wait_until(lambda: bool(terminal.record()["details"].get("uid")))
    launcher = running.launcher_pid()
    # Stopped first: neither acts for the other. The launcher first: its group of processes would
    # be orphaned by the guardian's end, and a group that is orphaned is woken up.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in (launcher, running.pid):
            os.kill(pid, number)
    running.process.wait()
    run_id = terminal.record()["id"]
    found = terminal.status()
    assert found["state"] == "running"
    for rank, pid in up.items():
        assert (f"rank {rank} (pid {pid})" if not words else f"pid {pid}") in found["why"]
    assert f"pid {up['0']}" in terminal.type("list").stdout  # 80 columns have room for one
    refused = terminal.type("delete", "last")
    assert refused.returncode == 2 and f"paddock stop {run_id}" in refused.stderr
    assert prune(str(terminal.state / "paddock/runs"), 0) is None and terminal.entries()
    assert terminal.type("stop", "last").returncode == 0
    assert [pid for pid in up.values() if state_of(pid) != b"Z"] == []
    assert terminal.status()["state"] == "lost"
    assert terminal.type("delete", "last").returncode == 0


def test_stop_touches_no_rank_of_another_run_in_the_same_log_directory(terminal: Terminal) -> None:
    """The killed run is known by its own uid, not by its place or script."""
    place = terminal.world.folder / "logs"
    script = terminal.world.script("tell('up', os.getpid()); forever()")
    first = terminal.launch("--log-dir", place, script)
    ((_, pid),) = terminal.world.events.wait("up")
    wait_until(lambda: bool(terminal.record()["details"].get("uid")))
    run_id, launcher = terminal.record()["id"], first.launcher_pid()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for each in (launcher, first.pid):
            os.kill(each, number)
    first.process.wait()
    second = terminal.launch("--log-dir", place, script)
    other = int(terminal.world.events.wait("up", count=2)[1][1])
    assert terminal.type("stop", "--now", run_id).returncode == 0
    assert (state_of(int(pid)) == b"Z", state_of(other) == b"Z") == (True, False)
    second.signal(signal.SIGTERM)
    second.end()


def test_a_launch_that_never_begins_has_failed(terminal: Terminal) -> None:
    """The coordinator cannot be reached: the record says so, and not that it still runs."""
    words = ("--nnodes", 2, "--rank", 1, "--master", f"127.0.0.1:{free_port()}")
    script = terminal.world.script("")
    ended = terminal.run(*words, "--join-timeout", 1, script)
    assert ended.code not in (0, 125)
    found = terminal.status()
    assert (found["state"], found["code"]) == ("failed", ended.code)
    assert found["why"] and found["why"] in ended.err


def test_every_node_of_a_launch_knows_it(terminal: Terminal) -> None:
    """One record and one socket a node; the node that follows knows its own ranks."""
    port = free_port()
    script = terminal.world.script(BOTH)
    words = ("--nnodes", 2, "--master", f"127.0.0.1:{port}", script)
    first = terminal.launch("--rank", 0, *words)
    second = terminal.launch("--rank", 1, *words)
    terminal.world.events.wait("up", count=2)
    wait_until(lambda: len(list(terminal.state.glob("paddock/runs/*/run.json"))) == 2)
    wait_until(lambda: all(
        row["ranks_up"] == 2 for row in json.loads(terminal.type("list", "--json").stdout)
    ))  # fmt: skip
    terminal.world.open_gate(2)
    assert (first.end().code, second.end().code) == (0, 0)
    rows = json.loads(terminal.type("list", "--json").stdout)
    assert [row["state"] for row in rows] == ["succeeded", "succeeded"]


def test_stop_on_one_node_ends_the_job_on_all(terminal: Terminal) -> None:
    script = terminal.world.script("tell('up'); forever()")
    words = ("--nnodes", 2, "--master", f"127.0.0.1:{free_port()}", script)
    nodes = [terminal.launch("--rank", rank, *words) for rank in range(2)]
    terminal.world.events.wait("up", count=2)
    wait_until(lambda: len(list(terminal.state.glob("paddock/runs/*/run.json"))) == 2)
    assert terminal.type("stop", "last").returncode == 0
    assert [node.end().left for node in nodes] == [[], []]


def test_each_run_has_logs_of_its_own_and_the_names_of_before_lead_there(
    terminal: Terminal,
) -> None:
    """log/ was appended to for ever."""
    log = terminal.world.log_dir
    script = terminal.world.script("print('run', sys.argv[1])")
    assert terminal.run("--nproc_per_node", 2, script, "one").code == 0
    assert terminal.run(script, "two").code == 0
    assert (log / "workerlog.0").read_text() == "run two\n"
    assert (log / "latest" / "workerlog.0").read_text() == "run two\n"
    assert not os.path.lexists(log / "workerlog.1")  # of the run before, which has its own
    assert all((log / name).is_symlink() for name in ("endpoints.log", "launcher.log"))
    first, second = (terminal.type("logs", each.name).stdout for each in sorted(
        terminal.entries(), key=lambda each: (each / "run.json").stat().st_mtime))  # fmt: skip
    assert (first.count("run one"), second.count("run two")) == (2, 1)


def test_two_launches_in_one_directory_do_not_mix(terminal: Terminal) -> None:
    script = terminal.world.script("tell('up'); print('I am', sys.argv[1], flush=True); gate()")
    running = [terminal.launch(script, name) for name in ("red", "blue")]
    terminal.world.events.wait("up", count=2)
    terminal.world.open_gate(2)
    assert [each.end().code for each in running] == [0, 0]
    texts = [terminal.type("logs", each.name).stdout for each in terminal.entries()]
    assert sorted("red" in text for text in texts) == [False, True]
    assert all(text.count("I am") == 1 for text in texts)


def test_a_chosen_log_directory_is_appended_to_and_each_run_shows_its_part(
    terminal: Terminal,
) -> None:
    """As Paddle's users know it; `paddock logs` still tells the runs apart."""
    log = terminal.world.folder / "mine"
    script = terminal.world.script("print('run', sys.argv[1])")
    assert terminal.run(script, "zero").code == 0  # leaves a link in log/ ...
    for name in ("one", "two"):
        assert terminal.run("--log_dir", log, script, name).code == 0
    assert terminal.run("--log_dir", "log", script, "three").code == 0  # ... that is no obstacle
    text = (log / "workerlog.0").read_text()
    assert "run one" in text and "run two" in text
    found = [terminal.type("logs", each.name).stdout for each in terminal.entries()]
    assert sorted(text.rpartition("run ")[2] for text in found) == [
        "one\n",
        "three\n",
        "two\n",
        "zero\n",
    ]
    assert all(
        sum(f"run {n}\n" in text for n in ("zero", "one", "two", "three")) == 1 for text in found
    )
    assert terminal.run("--log_dir", log, "--log_overwrite", 1, script, "four").code == 0
    rows = json.loads(terminal.type("list", "--json").stdout)
    done = terminal.type("logs", rows[1]["id"])
    assert done.returncode != 0 and "overwritten by" in done.stderr


def test_rerun_types_the_same_line_in_the_same_directory(terminal: Terminal) -> None:
    (terminal.world.folder / "sub").mkdir()
    terminal.world.script("print(os.getcwd(), sys.argv[1:])", "sub/train.py")
    terminal.env["MY_KNOB"] = "1"
    assert terminal.run("train.py", "--lr", "1 2", cwd=terminal.world.folder / "sub").code == 0
    del terminal.env["MY_KNOB"]
    done = terminal.type("rerun", "last")
    assert done.returncode == 0, done.stderr
    assert f"{terminal.world.folder}/sub ['--lr', '1 2']" in done.stdout
    assert "not set now" in done.stderr and "MY_KNOB" in done.stderr
    assert len(terminal.entries()) == 2


def test_no_secret_is_recorded(terminal: Terminal) -> None:
    """Nor the value of any variable; a line with a secret in it is not run again without it."""
    terminal.env["PRIVATE_VALUE"] = "hush-1"
    words = ("--env", "HF_TOKEN=hush-2", terminal.world.script(""), "--api_key", "hush-3",
             "--cfg", '{"api_key": "hush-4"}', "--opt=password=hush-5")  # fmt: skip
    assert terminal.run(*words).code == 0
    files = [path for path in terminal.world.folder.rglob("*") if path.is_file()]
    kept = [path for path in files if terminal.state in path.parents or "runs" in path.parts]
    assert kept and not any(b"hush" in path.read_bytes() for path in kept)
    assert all(stat.S_IMODE(p.stat().st_mode) == 0o600 for p in kept if terminal.state in p.parents)
    done = terminal.type("rerun", "last")
    assert done.returncode == 2
    for name in ("HF_TOKEN", "--api_key", "--cfg", "--opt=password"):
        assert f"the value of {name} is a secret" in done.stderr
    assert "hush" not in done.stderr


def test_a_variable_stands_for_no_secret_of_the_script(terminal: Terminal) -> None:
    """What followed the secret in the same word would be lost, and the rerun would do nothing."""
    terminal.env["HF_TOKEN"] = "hush"
    line = ("--env", "HF_TOKEN=hush", "--no-python", "sh", "-c", "HF_TOKEN=hush; echo trained")
    assert terminal.run(*line).code == 0
    done = terminal.type("rerun", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("the value of HF_TOKEN is a secret") == 1
    assert "hint: type the line again" in done.stderr
    assert terminal.run(*line[:2], terminal.world.script("print('trained')")).code == 0
    assert terminal.type("rerun", "last").stdout == "trained\n"


def test_fetch_and_delete_take_a_launch(terminal: Terminal) -> None:
    assert terminal.run(terminal.world.script("print('kept')")).code == 0
    run_id = terminal.record()["id"]
    assert terminal.type("fetch", "last", "--to", "here").returncode == 0
    assert (terminal.world.folder / "here/log/workerlog.0").read_text() == "kept\n"
    assert terminal.type("delete", "last").stdout == f"removed {run_id}\n"
    assert terminal.entries() == []
    assert not (terminal.world.log_dir / "runs" / run_id).exists()
    assert terminal.type("status", run_id).returncode == 2


def test_somebody_elses_run_is_unknown(terminal: Terminal) -> None:
    done = terminal.type("stop", "train-beef")
    assert (done.returncode, "no run 'train-beef' is recorded here" in done.stderr) == (2, True)


def test_a_word_that_means_no_run_is_told_in_two_lines(terminal: Terminal) -> None:
    """No word at all meant the only run; others were answered with the names of a thousand."""
    assert terminal.run(terminal.world.script("")).code == 0
    host = os.uname().nodename
    for word in ("", " ", "*", "../x", "pid 0", "zzz", f"launch://{host}/none", "launch://"):
        done = terminal.type("delete", word)
        assert (done.returncode, done.stderr.count("\n")) == (2, 2), done.stderr
        assert "is recorded here" in done.stderr and "see: paddock list" in done.stderr
    assert len(terminal.entries()) == 1


def test_status_says_how_long_ago_a_run_has_ended(terminal: Terminal) -> None:
    """Not how long before it was last asked, which of one that has ended is no time at all."""
    assert terminal.run(terminal.world.script("")).code == 0
    (events,) = (terminal.state / "paddock" / "runs").glob("*/events.jsonl")
    end = json.loads(events.read_text().splitlines()[-1])
    events.write_text(json.dumps(end | {"at": end["at"] - 3660}) + "\n")
    assert "succeeded, exit code 0, 1h1m ago" in terminal.type("status", "last").stdout


def test_damaged_records_are_skipped_and_counted(terminal: Terminal) -> None:
    assert terminal.run(terminal.world.script("")).code == 0
    runs = terminal.state / "paddock" / "runs"
    for name, text in (("half-0001", '{"id": "ha'), ("odd-0002", '{"id": 3}'), ("list-3", "[]")):
        (runs / name).mkdir()
        (runs / name / "run.json").write_text(text)
    (runs / "empty-0004").mkdir()
    os.utime(runs / "empty-0004", (0, 0))
    done = terminal.type("list")
    assert done.returncode == 0
    assert done.stdout.count("train-") >= 1
    assert "4 damaged records" in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "damaged" in line)
    command = line.partition("to remove: paddock ")[2].split()
    assert command == ["delete", "empty-0004", "half-0001", "list-3", "odd-0002"]
    (runs / "-rf-5").mkdir()
    os.utime(runs / "-rf-5", (0, 0))
    assert "paddock delete -- -rf-5 empty-0004" in terminal.type("list").stderr
    assert terminal.type("delete", "--", "-rf-5").returncode == 0
    assert "paddock delete half-0001 removes it" in terminal.type("status", "half-0001").stderr
    done = terminal.type(*command)
    assert done.stdout.splitlines() == [f"removed the damaged record {n}" for n in command[1:]]
    assert [entry.name[:6] for entry in terminal.entries()] == ["train-"]
    assert "damaged" not in terminal.type("list").stderr


def test_delete_removes_a_record_with_its_logs_and_nothing_else(terminal: Terminal) -> None:
    """Whatever lies in the registry, and wherever links and records lead."""
    runs, mine = terminal.state / "paddock" / "runs", terminal.world.folder / "mine"
    for folder in (mine / "runs" / "run-0001", runs / "own-0002", runs / "own-0003/.paddock/u",
                   runs / "own-0004/run.json", runs / "own-0005" / "ps" / "a"):  # fmt: skip
        folder.mkdir(parents=True)
        (folder / "thesis.txt").write_text("all of it")
    (mine / "run.json").write_text("{")
    (runs / "run-0001").symlink_to(mine)
    (runs / "file-0006").write_text("{")
    details = {"directory": str(mine / "runs" / "run-0001")}
    for name in ("own-0002", "own-0003", "own-0005"):
        (runs / name / "run.json").write_text(json.dumps({"id": name, "details": details})[:-1])
    (runs / "own-0003" / "workerlog.0").symlink_to(mine / "run.json")
    os.utime(runs / "own-0004", (0, 0))
    kept = {name: terminal.type("delete", name) for name in os.listdir(runs)}
    kept |= {word: terminal.type("delete", word) for word in ("../runs/own-0003", ".", "", "/")}
    assert kept.pop("own-0003").stdout == "removed the damaged record own-0003\n"
    assert not (runs / "own-0003").exists()
    assert all(done.returncode in (2, 125) and not done.stdout for done in kept.values())
    assert all("it is left as it is" in done.stderr for name, done in kept.items() if "-" in name
               and "/" not in name)  # fmt: skip
    assert sorted(os.listdir(runs)) == ["file-0006", "own-0002", "own-0004", "own-0005", "run-0001"]
    assert len([*terminal.world.folder.rglob("thesis.txt")]) == 4
    assert sorted(os.listdir(mine)) == ["run.json", "runs"]


def test_a_link_to_a_record_is_removed_and_what_it_leads_to_is_not(terminal: Terminal) -> None:
    assert terminal.run(terminal.world.script("")).code == 0
    (entry,) = terminal.entries()
    aside = terminal.world.folder / entry.name
    entry.rename(aside)
    entry.symlink_to(aside)
    assert terminal.type("delete", "last").returncode == 0
    assert terminal.entries() == [] and (aside / "run.json").exists()


@pytest.mark.parametrize("name, text", [
    ("run.json", '{"id": 3}'), ("run.json", '{"id": "../../x"}'), ("run.json", '{"command": 3}'),
    ("run.json", '{"nnodes": 1e999}'), ("run.json", '{"created_at": NaN}'),
    ("status.json", '{"attempt": "x"}'), ("status.json", '{"nodes": [1]}'),
    ("status.json", '{"nodes": [{"ranks": "x"}]}'), ("status.json", '{"verdict": 3}'),
    ("events.jsonl", '{"at": NaN, "state": "failed"}'), ("events.jsonl", "[" * 100_000),
    ("events.jsonl", '{"at": 1, "state": "failed", "code": "\\u001b[31m"}'),
])  # fmt: skip
def test_a_record_with_odd_values_crashes_no_command(
    terminal: Terminal, name: str, text: str
) -> None:
    """Each of these ended `list` and `status` of all runs, or of this one, with a traceback."""
    assert terminal.run(terminal.world.script("")).code == 0
    (entry,) = terminal.entries()
    whole = entry / name
    if name == "events.jsonl":
        whole.write_text(whole.read_text() + text + "\n")
    else:
        whole.write_text(json.dumps({**json.loads(whole.read_text()), **json.loads(text)}))
    for verb in ("list", "status", "logs", "wait", "stop", "delete"):
        done = terminal.type(verb, *([] if verb == "list" else [entry.name]))
        assert "Traceback" not in done.stderr and "\x1b" not in done.stdout
        assert done.returncode == 0 or name == "run.json"


@pytest.mark.parametrize("details", [{}, {"process": 3, "control": [], "host": None}])
def test_an_end_stays_whatever_was_written_after_it(
    terminal: Terminal, details: dict[str, Any]
) -> None:
    """Of two who write: it was lost from then on. A damaged detail hides no end either."""
    assert terminal.run(terminal.world.script("sys.exit(3)")).code == 3
    (entry,) = terminal.entries()
    row = json.loads((entry / "run.json").read_text())
    (entry / "run.json").write_text(json.dumps({**row, "details": details}))
    event = {"at": 1e12, "state": "running", "why": "", "code": None}
    with open(entry / "events.jsonl", "a", encoding="utf-8") as file:
        file.write(f'{json.dumps(event)}\n{{"at": 5, "sta')
    found = terminal.status()
    assert (found["state"], found["code"]) == ("failed", 3)
    (row,) = json.loads(terminal.type("list", "--json").stdout)
    assert (row["state"], row["code"]) == ("failed", 3)
    assert terminal.type("wait", "last").returncode == 3
    assert "has already ended: failed" in terminal.type("stop", "last").stdout


@pytest.mark.parametrize("term, has_codes", [("dumb", False), ("xterm", True)])
def test_a_dumb_terminal_gets_no_colours(terminal: Terminal, term: str, has_codes: bool) -> None:
    assert terminal.run(terminal.world.script("")).code == 0
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "paddock", "status"], cwd=terminal.world.folder, stdout=theirs,
        env={**terminal.env, "TERM": term, "NO_COLOR": ""}, check=True, timeout=60,
    )  # fmt: skip
    shown = os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    assert (b"succeeded" in shown, b"\x1b" in shown) == (True, has_codes)


def test_a_registry_that_cannot_be_written_costs_the_record_only(world: World) -> None:
    """One line says that nothing is recorded."""
    (world.folder / "state").write_text("a file is in the way")
    ended = Terminal(world).run(world.script("print('trained')"))
    assert (ended.code, "trained" in ended.out) == (0, True)
    assert ended.err.count("this run is not recorded: ") == 1


@pytest.mark.parametrize("state", ["", "state", "~nobody-is-called-so/state"])
def test_without_a_home_directory_nothing_is_recorded_and_nothing_made(
    terminal: Terminal, state: str
) -> None:
    """A directory `~` was made where the job was started: in a container, of a user without a name.

    HOME is no path here, so that the test's own user is as homeless.
    """
    terminal.env |= {"XDG_STATE_HOME": state, "HOME": "nowhere"}
    ended = terminal.run(terminal.world.script("print('trained')"))
    assert (ended.code, "trained" in ended.out) == (0, True)
    assert "this run is not recorded: there is no home directory" in ended.err
    assert not {"~", "nowhere", "state"} & set(os.listdir(terminal.world.folder))
    done = terminal.type("list")
    assert (done.returncode, "no runs yet" in done.stderr) == (0, True)


@pytest.mark.parametrize("kept", ["9", "0"], ids=["without a home", "not recorded"])
def test_a_run_that_can_write_nowhere_else_has_its_logs_in_the_temporary_directory(
    terminal: Terminal, kept: str
) -> None:
    """As of a user without a name in a container whose image cannot be written."""
    (terminal.world.folder / "log").write_text("a file is in the way")
    (spare := terminal.world.folder / "tmp").mkdir()
    terminal.env |= {
        "XDG_STATE_HOME": "", "HOME": "nowhere", "TMPDIR": str(spare), "PADDOCK_KEEP_RUNS": kept,
    }  # fmt: skip
    ended = terminal.run(terminal.world.script("print('trained')"))
    assert (ended.code, "trained" in ended.out) == (0, True)
    (logs,) = spare.glob("paddock-*")
    assert f"/log is not writable (File exists): the logs are in {logs}" in ended.err.replace(
        "Not a directory", "File exists"
    )
    assert (logs / "workerlog.0").read_text("utf-8") == "trained\n"
    assert stat.S_IMODE(logs.stat().st_mode) == 0o700


def test_a_control_socket_works_however_deep_its_directory_lies(terminal: Terminal) -> None:
    deep = terminal.world.folder.joinpath(*["d" * 60] * 4)
    deep.mkdir(parents=True)
    script = terminal.world.script("tell('up'); forever()")
    running = terminal.launch(script, cwd=deep)
    terminal.world.events.wait("up")
    path = terminal.control()
    assert len(path) > 108
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert terminal.type("stop", "last").returncode == 0
    assert running.end().code == 143
    assert not os.path.exists(path)


def test_events_tell_every_change_and_the_end(terminal: Terminal) -> None:
    script = terminal.world.script("tell('up', ATTEMPT); gate(); sys.exit(0 if ATTEMPT else 3)")
    running = terminal.launch("--max_restart", 1, script)
    terminal.world.events.wait("up", 0)
    events = follow(terminal.control())
    first = next(events)
    assert (first["event"], first["state"], first["attempt"]) == ("status", "running", 0)
    assert list(first["pids"]) == ["worker 0"]
    terminal.world.open_gate(1)
    terminal.world.events.wait("up", 1)
    terminal.world.open_gate(1)
    rows = list(events)
    assert running.end().code == 0
    assert rows[-1] == {"event": "end", "code": 0}
    assert 1 in [row.get("attempt") for row in rows]


def test_clients_that_misbehave_do_not_hold_up_a_launcher(terminal: Terminal) -> None:
    """Silence, noise, half a line, one that hangs up, more than it serves at once."""
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    path = terminal.control()
    clients = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for client in clients:
        client.connect(path)
    for client, data in zip(
        clients, (b"\n", b"{}\n", b"[]\n", b"\xff\n", b'{"op"', b"x" * 9000), strict=False
    ):
        try:
            client.sendall(data)
        except OSError:
            pass  # it was hung up on
    clients[0].settimeout(10)
    assert b"error" in clients[0].recv(100)
    for client in clients:
        client.close()
    wait_until(lambda: _state(path) == "running")
    assert terminal.type("stop", "last").returncode == 0
    assert running.end().code == 143


def test_a_client_that_hangs_up_early_or_nests_deep_ends_no_job(terminal: Terminal) -> None:
    """Either ended the launcher, and the job with it."""
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    path = terminal.control()
    for data in (b"x\n" * 200, b"[" * 4000 + b"\n", b'{"op":"events"}\n' * 200):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(data)
    assert _state(path) == "running"
    assert terminal.type("stop", "last").returncode == 0
    assert running.end().code == 143


def test_a_launcher_that_hangs_up_was_told_nothing(terminal: Terminal) -> None:
    """It has as many clients as it serves: a signal reaches it."""
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    path = terminal.control()
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(path)
        with pytest.raises(NoLauncherError):
            ask(path, "stop")
        assert terminal.status()["state"] == "running"
        assert terminal.type("stop", "last").returncode == 0  # by a signal
        assert running.end().code == 143


def _state(path: str) -> object:
    try:
        return ask(path, "status").get("state")
    except NoLauncherError:
        return None


def test_a_stale_socket_is_no_launcher(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control"))
    with pytest.raises(NoLauncherError):
        ask(str(tmp_path / "control"), "status")


def test_a_socket_of_another_user_is_asked_nothing(tmp_path: Path) -> None:
    """Whoever listens there could say that a job runs, or take note of what it is told."""
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        refused = pytest.raises(PaddockError, match="belongs to user 65534")
        with _as_nobody(listener.listen), refused:  # SO_PEERCRED: who called listen(2)
            ask(str(path), "stop")


def test_another_user_is_told_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor may stop the job, even with a socket that its owner has opened to all."""
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    path = Path(terminal.control())
    path.chmod(0o666)
    monkeypatch.chdir(path.parent)  # those above are closed to others
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        with _as_nobody(lambda: client.connect("control")):
            try:
                client.sendall(b'{"op": "stop"}\n')
                assert client.recv(1) == b""
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was quicker to hang up
    assert _state(str(path)) == "running"
    assert terminal.type("stop", "last").returncode == 0
    assert running.end().code == 143


@contextlib.contextmanager
def _as_nobody(do: Callable[[], object]) -> Iterator[None]:
    """Do it in a child that is user 65534, and which stays until the end."""
    if os.geteuid() != 0:
        pytest.skip("only root may be another user")
    done, stay = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            do()
            os.write(done[1], b"y")
            os.close(stay[1])
            os.read(stay[0], 1)
        finally:
            os._exit(0)
    os.close(done[1])
    try:
        assert os.read(done[0], 1) == b"y"
        yield
    finally:
        for fd in (done[0], *stay):
            os.close(fd)
        os.waitpid(pid, 0)


def test_a_clock_that_jumps_back_does_not_change_which_run_is_the_last(terminal: Terminal) -> None:
    """`last` was a run of next month, until then."""
    script = terminal.world.script("print('run', sys.argv[1])")
    assert terminal.run(script, "future").code == 0
    (entry,) = terminal.entries()
    row = json.loads((entry / "run.json").read_text())
    row["created_at"] += 30 * 86400
    (entry / "run.json").write_text(json.dumps(row))
    assert terminal.run(script, "now").code == 0
    assert terminal.type("logs", "last").stdout.endswith("run now\n")


def test_old_runs_are_removed_by_the_stated_rule(terminal: Terminal) -> None:
    """The newest ones that have ended stay, with their logs; one that runs always does."""
    terminal.env["PADDOCK_KEEP_RUNS"] = "2"
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    oldest = terminal.record()["id"]
    for _ in range(4):
        assert terminal.run(terminal.world.script("time.sleep(0.3)")).code == 0
    names = [entry.name for entry in terminal.entries()]
    assert oldest in names and len(names) <= 4
    assert sorted(p.name for p in (terminal.world.log_dir / "runs").iterdir()) == names
    assert terminal.type("stop", oldest).returncode == 0
    running.end()


def test_a_killed_run_is_removed_by_the_same_rule(terminal: Terminal) -> None:
    """Its record has no end, so that it stayed for ever."""
    running = terminal.launch(terminal.world.script("tell('up'); forever()"))
    terminal.world.events.wait("up")
    terminal.control()
    (killed,) = terminal.entries()
    os.kill(running.launcher_pid(), signal.SIGKILL)
    running.end()
    terminal.env["PADDOCK_KEEP_RUNS"] = "1"
    running = terminal.launch(terminal.world.script("gate()"))
    wait_until(lambda: not killed.exists())
    terminal.world.open_gate(1)
    assert running.end().code == 0
    assert len(terminal.entries()) == 1


@pytest.mark.parametrize("text", ["some", "-1", "00", "9" * 5000])
def test_a_number_of_runs_that_is_none_is_said(terminal: Terminal, text: str) -> None:
    """It was passed over in silence, or ended the launch with a traceback."""
    terminal.env["PADDOCK_KEEP_RUNS"] = text
    ended = terminal.run(terminal.world.script(""))
    assert (ended.code, ended.err.count("is no number of runs")) == (0, 1)


def test_a_launch_in_a_directory_that_is_gone_runs(terminal: Terminal) -> None:
    """Its logs are beside its record."""
    script = terminal.world.script("print('trained')")
    gone = terminal.world.folder / "gone"
    gone.mkdir()
    line = f'rmdir "{gone}"; exec "$0" "$@"'
    command = ["sh", "-c", line, sys.executable, "-m", "paddock", "launch", str(script)]
    done = subprocess.run(
        command, cwd=gone, env=terminal.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "the logs are in" in done.stderr) == (0, True), done.stderr
    assert terminal.type("logs", "last").stdout.count("trained") == 1
    assert terminal.type("rerun", "last").returncode == 2


@pytest.mark.parametrize("name", ["PADDOCK_KEEP_RUNS", "PADDOCK_JOB_UID", "JOB_COMPLETION_INDEX"])
def test_nothing_is_recorded_where_that_is_not_wanted(terminal: Terminal, name: str) -> None:
    """Nor in a pod, whose job is known where it was submitted."""
    terminal.env[name] = "0"
    assert terminal.run(terminal.world.script("")).code == 0
    assert terminal.entries() == []
    assert (terminal.world.log_dir / "workerlog.0").exists()


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test's folder is in no repository, wherever the tests are."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", "/")
    yield


def test_the_commit_of_the_working_directory_is_kept(terminal: Terminal) -> None:
    folder = terminal.world.folder
    terminal.env.pop("GIT_CEILING_DIRECTORIES")
    for words in ("init -q", "add train.py", "-c user.name=a -c user.email=a@b commit -qm one"):
        if words.startswith("add"):
            script = terminal.world.script("tell('up'); gate()")
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    with open(script, "a", encoding="utf-8") as file:
        file.write("# changed\n")
    running = terminal.launch(script)
    terminal.world.events.wait("up")
    (entry,) = terminal.entries()
    wait_until((entry / "git.txt").exists)
    text = (entry / "git.txt").read_text()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    assert f"# branch.oid {head}" in text and "train.py" in text
    terminal.world.open_gate(1)
    assert running.end().code == 0


def test_where_log_cannot_be_made_the_logs_are_beside_the_record(terminal: Terminal) -> None:
    """A read-only disk, or a full one: the job runs all the same."""
    (terminal.world.folder / "log").write_text("a file is in the way")
    ended = terminal.run("--nproc_per_node", 2, terminal.world.script("print('trained')"))
    assert ended.code == 0
    assert ended.err.count("the logs are in") == 1
    assert terminal.type("logs", "last").stdout.count("trained") == 2
    assert terminal.type("delete", "last").returncode == 0
    assert terminal.entries() == []


def test_nothing_writable_at_all_is_one_clear_error(world: World) -> None:
    for name in ("state", "log", "tmp"):
        (world.folder / name).write_text("a file is in the way")
    terminal = Terminal(world, {"TMPDIR": str(world.folder / "tmp")})
    ended = terminal.run(world.script("tell('up')"))
    assert (ended.code, "is not writable" in ended.err) == (2, True)
    assert world.events.all("up") == []


def test_the_commands_of_the_guide_work_in_their_order(terminal: Terminal) -> None:
    """Typed one after the other, as docs/guide/runs.md shows them."""
    (block,) = [b for b in blocks_of(ROOT / "docs/guide/runs.md") if b.language == "bash"]
    assert terminal.run("--nproc_per_node", 2, terminal.world.script("print('loss 1')")).code == 0
    for line in block.body.splitlines():
        words = shlex.split(line, comments=True)
        done = terminal.type(*words[1:])
        assert (words[0], done.returncode) == ("paddock", 0), f"{line}: {done.stderr}"
