"""What `paddock submit` says and does on this machine: mistakes, and jobs of -b local."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from local.jobs import ROOT, children_of, wait_until
from paddock.backends.backend import find_backend
from paddock.backends.registry import Registry
from paddock.cli.top import BoardSource, board_lines
from paddock.watch.history import read_history

if TYPE_CHECKING:
    from pathlib import Path

CONF = "HOSTS = ['h1', 'h2']\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a script, one more in a folder, and the old tool's settings."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "sub" / "eval.py").write_text("")
    (folder / "conf.py").write_text(CONF)
    return folder


def home_of(project: Path) -> dict[str, str]:
    """An environment with a home beside the project."""
    home = str(project.parent / "home")
    env = {name: text for name, text in os.environ.items() if name != "XDG_STATE_HOME"}
    return {**env, "HOME": home, "PYTHONPATH": str(ROOT / "src")}


def paddock(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`paddock WORDS` in the project, with a home of its own."""
    return subprocess.run(
        [sys.executable, "-m", "paddock", *words],
        cwd=project, env=home_of(project), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("--nname x train.py", "unknown flag --nname", "did you mean --name?"),
        ("--nnoddes 2 train.py", "unknown flag --nnoddes", "did you mean --nnodes"),
        ("--zzzz train.py", "unknown flag --zzzz", "see paddock submit --help"),
        ("-d", "no script is given", "paddock submit [flags] train.py"),
        ("nope.py", "script 'nope.py' is not in the package", "--package DIR"),
        ("-p sub sub/eval.py", "script 'sub/eval.py' is not in", "from there: eval.py"),
        ("./run.sh", "script './run.sh' is not in the package", "--package DIR"),
        ("--name -rf train.py", "--name needs a value", "--name=-rf"),
        ("--name=-rf train.py", "--name '-rf' is not a name", "lower-case letters"),
        ("--image a:1 train.py", "--image: for kubernetes only", "submit to kubernetes"),
        ("--image a:1 --sweep lr=1,2 train.py", "--image: for kubernetes only", "leave it out"),
        ("--volumes c:/data train.py", "--volumes: for kubernetes only", "submit to kubernetes"),
        ("--secrets key train.py", "--secrets: for kubernetes only", "submit to kubernetes"),
        ("--pod-patch p.yaml train.py", "--pod-patch: for kubernetes only", "leave it out"),
        ("--setup true train.py", "--setup: for slurm only", "submit to slurm"),
        ("--array 1-3 train.py", "--array: for slurm only", "submit to slurm"),
        ("--from sub train.py", "--from: for script only", "submit to script"),
    ],
)
def test_a_mistake_is_told_once_with_what_to_write(
    project: Path, words: str, message: str, hint: str
) -> None:
    done = paddock(project, "submit", "-b", "local", *words.split())
    assert done.returncode == 2
    assert done.stderr.count("error: ") == 1, done.stderr
    assert message in done.stderr and hint in done.stderr


@pytest.mark.parametrize(
    ("words", "commas"),
    [
        ("--hosts h1 h2 train.py", "--hosts h1,h2;"),
        ("--hosts h1, h2 train.py", "--hosts h1,h2;"),
        ("--hosts gpu-01.lab,gpu-02.lab gpu-03.lab -m train", "gpu-02.lab,gpu-03.lab;"),
        ("--hosts one localhost train.py", "--hosts one,localhost;"),
        ("--hosts h1 me@other train.py", "--hosts h1,me@other;"),
    ],
)
def test_hosts_with_spaces_between_them_are_not_taken_for_a_program(
    project: Path, words: str, commas: str
) -> None:
    done = paddock(project, "submit", "--dry-run", *words.split())
    assert done.returncode == 2
    assert "looks like a host" in done.stderr and commas in done.stderr


@pytest.mark.parametrize("words", ["bash train.py", "nsys-of-hosts train.py", "./h2", "sub/h2"])
def test_a_program_is_not_taken_for_a_host(project: Path, words: str) -> None:
    for name in ("h2", "sub/h2"):
        (project / name).write_text("")
    done = paddock(project, "submit", "--hosts", "h1", "--dry-run", *words.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    ["train.py", "-p sub eval.py", "-m http.server", "/there/train.py", "-j /there train.py"],
)
def test_a_script_that_may_be_there_is_not_refused(project: Path, words: str) -> None:
    done = paddock(project, "submit", "-b", "local", "--dry-run", *words.split())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("where", [("-b", "conf.py"), ("--conf", "conf.py")])
def test_words_of_the_old_tool_are_understood_with_its_file(
    project: Path, where: tuple[str, str]
) -> None:
    done = paddock(project, "submit", *where, "--num_passes=5", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "h2: in ~/train-" in done.stdout


def test_json_is_all_that_stdout_has(project: Path) -> None:
    """Also when we stay with the job: what it says is on stderr."""
    done = paddock(project, "submit", "-b", "local", "--nproc_per_node", "1", "--json", "train.py")
    answer = json.loads(done.stdout)
    assert answer["code"] == 0 and answer["handle"].endswith(answer["id"])
    assert "trained" in done.stderr


def test_how_far_the_code_is_on_its_way_is_seen_by_others(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`paddock top` in another terminal: the host, and the share of it that has been sent."""
    with (project / "data.bin").open("wb") as file:
        file.truncate(128 << 20)
    # sleep: a run of less than a second has no history
    (project / "train.py").write_text("import time\ntime.sleep(2)\n")
    monkeypatch.setenv("HOME", home_of(project)["HOME"])
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    argv = [sys.executable, "-m", "paddock", "submit", "-b", "local", "-d", "train.py"]

    def waits() -> str:
        (run,) = Registry(os.environ).runs() or [None]
        return run.sending if run else ""

    with subprocess.Popen(argv, cwd=project, env=home_of(project)) as submit:
        wait_until(lambda: "copying code" in waits())
        shells = children_of(submit.pid)
        hosts = [pid for shell in shells for pid in children_of(shell)]  # that take the code

        def is_told() -> bool:
            """Slowly: the host runs for 2 ms of 30."""
            for number, seconds in ((signal.SIGCONT, 0.002), (signal.SIGSTOP, 0.02)):
                for pid in hosts:
                    os.kill(pid, number)
                time.sleep(seconds)  # sleep: what is sent meanwhile tells nobody
            return waits().endswith("%")

        wait_until(is_told)
        lines = board_lines(BoardSource().look(), time.time(), 9, 200)
        shown = paddock(project, "status", "last").stdout
        for pid in hosts:
            os.kill(pid, signal.SIGCONT)
        assert submit.wait(60) == 0
    assert re.search(r" starting .* waiting for this machine: copying code \d+ %", lines[1])
    assert re.search(r"starting, for .*\n  waiting for this machine: copying code \d+ %\n", shown)
    assert waits() == ""
    done = paddock(project, "wait", "last")
    assert done.returncode == 0, done.stdout
    (run,) = Registry(os.environ).runs()
    rows = read_history(find_backend("local").history(run))
    assert [row["kind"] for row in rows.rows][:3] == ["allocated", "code_there", "begin"]


def test_wait_says_why_a_job_failed(project: Path) -> None:
    (project / "train.py").write_text("raise SystemExit(3)\n")
    paddock(project, "submit", "-b", "local", "--nproc_per_node", "1", "-d", "train.py")
    done = paddock(project, "wait")
    assert done.returncode == 3
    assert "failed, exit code 3" in done.stdout and "rank 0" in done.stdout
    assert " ago" in done.stdout


def test_a_dry_run_says_what_its_names_stand_for(project: Path) -> None:
    done = paddock(project, "submit", "--hosts", "h1,h2", "--dry-run", "train.py")
    assert "\n$ADDRESS: where that host is reached by the others" in done.stdout
    done = paddock(project, "submit", "-b", "local", "--dry-run", "train.py")
    assert "$ADDRESS" not in done.stdout and "\n$JOB: the job's directory" in done.stdout


@pytest.mark.parametrize("where", ["local", "script,submit=true", "slurm"])
def test_a_dry_run_lists_what_stays_here(project: Path, where: str) -> None:
    """A file that the script opens and .gitignore names is seen before the job fails of it."""
    words = ("submit", "-b", where, "--dry-run", "train.py")
    assert "stays here" not in paddock(project, *words).stdout
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / ".gitignore").write_text("*.json\ndata/\n")
    (project / ".paddockignore").write_text("conf.py\nsub/*.log\n")
    (project / "config.json").write_text("{}")
    (project / "sub" / "a\x1b.log").touch()
    (project / "data" / "deep").mkdir(parents=True)
    (project / "data" / "deep" / "one").touch()
    lines = paddock(project, *words).stdout.splitlines()
    at = lines.index("stays here (.gitignore, .paddockignore, what is Paddock's own):")
    assert lines[at + 1 :] == ["  conf.py", "  config.json", "  data/", "  sub/a?.log"]
    (project / ".paddockignore").write_text("!config.json\n")
    lines = paddock(project, *words).stdout.splitlines()
    assert lines[-1] == "  data/" and lines[-2].startswith("stays here")


@pytest.mark.parametrize("place", ["data/one.json", "'/x/code/' + 'data/one.json'"])
def test_a_file_that_stayed_here_is_named_when_the_job_misses_it(project: Path, place: str) -> None:
    """By the path that the script opened, also where it is an absolute one on the host."""
    place = place if "'" in place else f"'{place}'"
    (project / "train.py").write_text(f"open({place})")
    (project / "data").mkdir()
    words = ("submit", "-b", "local", "--nproc_per_node", "1", "train.py")
    told = "data/one.json stayed here, in "
    (project / ".paddockignore").write_text("data/\n")
    done = paddock(project, *words)
    assert (done.returncode, told in done.stderr) == (1, False), "it is not here either"
    (project / "data" / "one.json").write_text("1")
    done = paddock(project, *words)
    assert (done.returncode, told in done.stderr) == (1, True)
    assert told in paddock(project, "status", "last").stdout
    (project / ".paddockignore").write_text("!data/one.json\n")
    done = paddock(project, *words)
    assert (done.returncode, told in done.stderr) == ("x/code" in place, False)


def test_a_dry_run_cuts_a_long_list_of_what_stays_here(project: Path) -> None:
    (project / ".paddockignore").write_text("*.bin\n")
    for number in range(60):
        (project / f"{number:02}.bin").touch()
    lines = paddock(project, "submit", "-b", "local", "--dry-run", "train.py").stdout.splitlines()
    assert lines[-2:] == ["  49.bin", "  and 10 more"]


def test_what_was_fetched_is_not_sent_with_the_next_job(project: Path) -> None:
    """Unless it came into a directory of the user's."""
    words = ("submit", "-b", "local", "--nproc_per_node", "1", "train.py")
    assert "code: 3 files" in paddock(project, *words).stderr
    assert paddock(project, "fetch", "--to", "got").returncode == 0
    assert (project / "got" / "log" / os.uname().nodename / "workerlog.0").exists()
    assert "code: 3 files" in paddock(project, *words).stderr
    paddock(project, "fetch", "--to", ".")
    assert not (project / ".paddockignore").exists()


def test_what_is_fetched_of_several_jobs_does_not_meet(project: Path) -> None:
    """Else the files of one would lie over those of the other."""
    words = ("submit", "-b", "local", "--root", "jobs", "--nproc_per_node", "1", "--json")
    ids = [json.loads(paddock(project, *words, "train.py").stdout)["id"] for _ in range(2)]
    done = paddock(project, "fetch", *ids, "--to", "got")
    assert done.returncode == 0, done.stderr
    for each in ids:
        (log,) = (project / "got" / each / "log").glob("*/workerlog.0")
        assert log.read_text() == "trained\n"
        assert (project.parent / "home" / "jobs" / each / "train.py").exists()


def test_a_local_job_has_the_python_that_submitted_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another python3 that PATH finds first has none of its packages."""
    other = project.parent / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    (project / "train.py").write_text("import sys\nprint('prefix', sys.prefix)\n")
    done = paddock(project, "submit", "-b", "local", "--nproc_per_node", "1", "train.py")
    assert f"prefix {sys.prefix}\n" in done.stdout, done.stderr


def test_an_interpreter_that_prints_is_named(project: Path) -> None:
    """And not the ~/.bashrc of somebody who has none."""
    loud = project.parent / "loud"
    loud.write_text(f'#!/bin/sh\necho loading modules\nexec {sys.executable} "$@"\n')
    loud.chmod(0o755)
    done = paddock(project, "submit", "-b", "local", "--interpreter", str(loud), "train.py")
    assert done.returncode == 2
    assert f"{loud} prints something of its own" in done.stderr
    assert "~/.bashrc" not in done.stderr


def test_delete_waits_for_a_job_that_was_told_to_end(project: Path) -> None:
    """`stop` comes back before the job has ended; what follows it in a script should work."""
    (project / "train.py").write_text(
        "import os, signal, sys\n"
        "os.mkfifo(sys.argv[2])\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open(sys.argv[2]).read(), sys.exit(0)))\n"
        "os.mkdir(sys.argv[1])\n"
        "while True:\n"
        "    signal.pause()\n"
    )
    is_up, may_end = project.parent / "is-up", project.parent / "may-end"
    words = ("--nproc_per_node", "1", "--grace", "60", "train.py", str(is_up), str(may_end))
    assert paddock(project, "submit", "-b", "local", "-d", *words).returncode == 0
    wait_until(is_up.exists)
    assert paddock(project, "stop", "last").returncode == 0
    with subprocess.Popen(
        [sys.executable, "-m", "paddock", "delete", "last"],
        cwd=project, env=home_of(project), stderr=subprocess.PIPE, text=True,
    ) as deleting:  # fmt: skip
        assert deleting.stderr is not None
        assert "waiting up to 30 s for local://" in deleting.stderr.readline()
        may_end.write_text("")
        assert deleting.wait(timeout=60) == 0
    assert json.loads(paddock(project, "list", "--json").stdout) == []


def test_a_workspace_has_what_was_there_after_delete(project: Path) -> None:
    """The job's number, its hosts and its logs by their old names are there meanwhile."""
    words = ("submit", "-b", "local", "--workspace", str(project), "--nproc_per_node", "1")
    before = sorted(project.iterdir())
    assert paddock(project, *words, "train.py").returncode == 0
    assert (project / "log" / "train.log").read_text() == "trained\n"
    assert (project / "nodefile").read_text() == "0\n"
    later = paddock(project, *words, "--json", "train.py")
    older = json.loads(paddock(project, "list", "--json").stdout)[0]["id"]
    assert paddock(project, "delete", older).returncode == 0
    assert (project / "log" / "train.log").exists(), "it is the later job's"
    assert (project / "nodefile").exists()
    assert paddock(project, "delete", json.loads(later.stdout)["id"]).returncode == 0
    assert sorted(project.iterdir()) == before


def test_a_log_of_the_users_in_a_workspace_stays_as_it_is(project: Path) -> None:
    """A file where the links would go; another time, a link by one of their names."""
    words = ("submit", "-b", "local", "--workspace", str(project), "--nproc_per_node", "1")
    log = project / "log"
    log.write_text("mine")
    assert paddock(project, *words, "train.py").returncode == 0
    assert paddock(project, "delete", "last").returncode == 0
    assert log.read_text() == "mine"
    log.unlink()
    log.mkdir()
    (log / "train.log").symlink_to("../train.py")
    assert paddock(project, *words, "train.py").returncode == 0
    assert os.readlink(log / "train.log") == "../train.py"
    assert (log / "paddle_trainer.INFO").read_text() == "trained\n"
    assert paddock(project, "delete", "last").returncode == 0
    assert [path.name for path in log.iterdir()] == ["train.log"]


def test_the_cache_of_packages_is_cleared_alone_or_with_jobs(project: Path) -> None:
    """Without --cache a job must be named: the last one is not deleted by a slip."""
    blobs = project.parent / "home" / ".cache" / "paddock" / "blobs"
    for jobs in ((), ("all",)):
        words = ("submit", "-b", "local", "--nproc_per_node", "1", "train.py")
        assert paddock(project, *words).returncode == 0
        done = paddock(project, "delete", "--cache", "local", *jobs)
        assert "this machine: 3 files, " in done.stderr and f"removed from {blobs}" in done.stderr
        assert [path for path in blobs.rglob("*") if path.is_file()] == [blobs / "lock"]
    assert json.loads(paddock(project, "list", "--json").stdout) == []
    done = paddock(project, "delete")
    assert done.returncode == 2 and "JOB is not given" in done.stderr
    done = paddock(project, "delete", "--cache", "slurm")
    assert done.returncode == 2 and "backend slurm caches no files" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_a_submitter_that_stays_reaches_the_ranks(project: Path, number: int) -> None:
    """Ctrl-C is KeyboardInterrupt in them, as with `paddock launch`."""
    (project / "train.py").write_text(
        "import signal\n"
        "def note(number, frame):\n"
        "    print('heard', number, flush=True)\n"
        "    raise SystemExit\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, note)\n"
        "print('up', flush=True)\n"
        "signal.pause()\n"
    )
    words = ("submit", "-b", "local", "--nproc_per_node", "1", "train.py")
    with subprocess.Popen(
        [sys.executable, "-m", "paddock", *words],
        cwd=project, env=home_of(project), stdout=subprocess.PIPE, text=True,
    ) as submit:  # fmt: skip
        assert submit.stdout is not None
        lines = []
        for line in submit.stdout:
            lines.append(line)
            if line == "up\n":
                submit.send_signal(number)
    assert f"heard {number}\n" in lines
    assert submit.returncode == 128 + number
