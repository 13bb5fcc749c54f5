"""What is missing on Windows is missing here: every command works, or says that it needs Linux.

tests/real/test_windows.py does the same with a Python for Windows, where there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.test_check import DISTRIBUTED, TORCH
from paddock.cli.main import COMMANDS, PORTABLE

SRC = Path(__file__).resolve().parents[2] / "src"
# The difference between CPython's modules on Linux and on Windows, as far as this tree uses it.
WITHOUT = """\
import os, platform, select, selectors, shutil, signal, socket, subprocess, sys, tempfile
subprocess._PopenSelector = selectors.SelectSelector  # Linux's own subprocess polls
MISSING = {
    os: '''O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_PATH O_ASYNC O_NOCTTY P_PID P_ALL
        POSIX_SPAWN_OPEN POSIX_SPAWN_DUP2 SF_NODISKIO environb fchmod fork geteuid getgid getpgid
        getpriority getuid killpg memfd_create nice pidfd_open pipe2 posix_spawn posix_spawnp pread
        pwrite register_at_fork sched_getaffinity sendfile setsid statvfs sysconf uname waitid''',
    select: "epoll poll",
    signal: '''SIGALRM SIGCHLD SIGCONT SIGHUP SIGPIPE SIGQUIT SIGRTMIN SIGSTOP SIGTSTP
        SIGUSR1 SIGUSR2 pidfd_send_signal pthread_sigmask setitimer sigwaitinfo''',
    socket: "AF_UNIX AF_NETLINK",
}
for module, names in MISSING.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
from paddock.cli.main import main, run
"""


def python(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process that lacks what Windows lacks."""
    return subprocess.run(
        [sys.executable, "-S", "-c", f"{WITHOUT}{code}", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{folder}", "STAND_IN": str(folder),
             "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip


def paddock(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in such a process."""
    return python("main()", folder, *words)


def test_every_command_that_needs_linux_says_so_and_its_help_too(tmp_path: Path) -> None:
    refused = [name for name in COMMANDS if name not in PORTABLE]
    code = "for name in sys.argv[1:]: print(run([name, '-h']), run(['help', name]))"
    done = python(code, tmp_path, *refused)
    assert done.stdout.split() == ["2"] * 2 * len(refused), done.stderr
    lines = [line for line in done.stderr.splitlines() if "hint:" not in line]
    assert lines == [f"paddock: error: paddock {n} needs Linux" for n in refused for _ in "12"]
    assert {"list", "status", "logs", "stop", "submit"} <= {*refused}


def test_every_other_command_shows_its_help(tmp_path: Path) -> None:
    done = python("for name in sys.argv[1:]: assert not run([name, '-h'])", tmp_path, *PORTABLE)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"usage: paddock {name}" in done.stdout for name in PORTABLE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("explain", "-b", "ssh,hosts=a", "r.py"), "paddock explain of a submission needs Linux"),
        (("explain", "--kubernetes", "a.json"), "paddock explain --kubernetes needs Linux"),
        (("launch", "--record", "record", "r.py"), "no record"),
        (("launch", "--max-restart", "1", "r.py"), "no restarts"),
        (("launch", "--nnodes", "2", "r.py"), "one machine only"),
        (("launch", "no.py"), "script 'no.py' does not exist"),
    ],
)
def test_what_a_command_cannot_do_is_refused_in_a_sentence(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    """Also where a file for the reason is named, and the record's directory is there."""
    (tmp_path / "r.py").touch()
    (tmp_path / "record").mkdir()
    done = paddock(tmp_path, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_ends_with_the_code_of_the_rank_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file for the reason is named, it has it."""
    reason = tmp_path / "reason"
    reason.touch()
    monkeypatch.setenv("PADDOCK_TERMINATION_LOG", str(reason))
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(100)\n"
    (tmp_path / "r.py").write_text(text)
    done = paddock(tmp_path, "launch", "--nproc-per-node", "2", "r.py")
    assert done.returncode == 7
    assert re.search(r"first failure: rank 1 .*exited with code 7\n", done.stderr)
    assert "Traceback" not in done.stderr
    assert "rank 1" in reason.read_text()


@pytest.mark.parametrize(
    ("distributed", "code", "expected"),
    [
        (DISTRIBUTED, 0, "torch: ok in "),
        ("raise ValueError('no gloo here')\n", 1, "no gloo here"),
    ],
)
def test_check_runs_its_job_and_says_why_it_failed(
    distributed: str, code: int, expected: str, tmp_path: Path
) -> None:
    torch = tmp_path / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(TORCH)
    (torch / "distributed.py").write_text(distributed)
    done = paddock(tmp_path, "check", "--framework", "torch")
    assert (done.returncode, done.stderr) == (code, "")
    assert expected in done.stdout


def test_import_paddock_gives_every_name_and_a_call_that_needs_linux_says_so(
    tmp_path: Path,
) -> None:
    code = """\
import paddock
assert all(getattr(paddock, name) is not None for name in paddock.__all__)
assert paddock.explain(paddock.make_job("r.py", nproc=2)).procs
assert paddock.rank() == 0
run = paddock.Run
for call in (paddock.launch, paddock.submit, paddock.sweep, run.find, run.all):
    try:
        call()
    except paddock.UsageError as error:
        print(error)
"""
    (tmp_path / "r.py").touch()
    done = python(code, tmp_path)
    assert done.stdout.split("\n")[:-1] == [
        *(f"paddock.{name} needs Linux" for name in ("launch", "submit", "sweep")),
        *["paddock.Run needs Linux"] * 2,
    ], done.stderr
