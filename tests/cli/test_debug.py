"""`paddock debug`: real ranks under a real pdb, on a real terminal."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.main import run
from typed import SECONDS, Terminal

DEBUG = (sys.executable, "-m", "paddock", "debug")
TRAIN = """\
import itertools, os, sys, time
rank = int(os.environ["RANK"])
total = 0
for step in range(3):
    total += step + rank
    print(f"step {step} total {total}")
if "fail" in sys.argv and rank == 1:
    raise ValueError(f"wrong total {total}")
if "wait" in sys.argv:
    while not os.path.exists("go"):
        time.sleep(0.01)
if "all" in sys.argv:
    raise ValueError(f"wrong total {total}")
if "native" in sys.argv and rank == 1:
    sum(itertools.repeat(0))
if "breakpoint" in sys.argv:
    breakpoint()
elif "set_trace" in sys.argv and rank == 1:
    __import__("pdb").set_trace()
print("done", rank)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def terminal(folder: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """Two ranks, the second of which is debugged; arguments of the script are the parameter."""
    words = ("--rank", "1", "--nproc-per-node", "2", *request.param.split())
    found = Terminal(*DEBUG, *words, cwd=folder)
    found.until("(Pdb rank 1) ")
    yield found
    if found.process.poll() is None:
        found.process.kill()
        found.process.wait()
    os.close(found.master)


def answer(terminal: Terminal, line: str) -> str:
    """What pdb prints for a line: up to the next prompt."""
    terminal.type(line)
    terminal.until(line)
    return terminal.until("(Pdb rank 1) ").strip()


@pytest.mark.parametrize("terminal", ["train.py", "-m train"], indirect=True)
def test_a_rank_stops_at_a_breakpoint_and_both_ranks_finish(
    terminal: Terminal, folder: Path
) -> None:
    """The heart of it: pdb has the terminal, the rank's output its log, the other rank waits."""
    answer(terminal, "b 6")
    assert "train.py(6)" in answer(terminal, "c")
    assert answer(terminal, "p total, rank") == "(1, 1)"
    answer(terminal, "clear 1")
    terminal.type("c")
    assert terminal.end() == 0
    assert "done 1" in terminal.text
    assert "done · 2 ranks" in terminal.text
    assert "done 1" in (folder / "log" / "workerlog.1").read_text()
    assert "Pdb" not in (folder / "log" / "workerlog.1").read_text()


@pytest.mark.parametrize("terminal", ["train.py wait"], indirect=True)
def test_ctrl_c_interrupts_the_rank(terminal: Terminal, folder: Path) -> None:
    """As pdb has it: the job goes on, and at the prompt nothing but a new one comes.

    It is traced: another breakpoint is set.
    """
    answer(terminal, "b 20")
    terminal.type("c")
    terminal.until("step 2 total 6")
    terminal.type("\x03")
    printed = terminal.until("(Pdb rank 1) ")
    assert "Program interrupted" in printed
    assert "train.py(1" in printed
    assert answer(terminal, "p step") == "2"
    # readline misses a signal that comes after its prompt and before its select().
    while not select.select([terminal.master], [], [], 1.0)[0]:
        terminal.type("\x03")
    terminal.until("(Pdb rank 1) ")
    (folder / "go").touch()
    assert "train.py(20)" in answer(terminal, "c")
    terminal.type("c")
    assert terminal.end() == 0


@pytest.mark.parametrize("terminal", ["train.py native"], indirect=True)
def test_ctrl_c_typed_twice_ends_a_job_whose_rank_is_in_native_code(terminal: Terminal) -> None:
    """Python takes a signal between two of its own instructions, which do not come here."""
    terminal.type("c")
    terminal.until("step 2 total 6")
    terminal.type("\x03")
    terminal.until("Ctrl-C again ends the job")
    terminal.type("\x03")
    assert terminal.end() == 130


@contextmanager
def open_pidfd(pid: int) -> Iterator[int]:
    """A descriptor that is ready once the process has ended."""
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("terminal", ["train.py"], indirect=True)
def test_quit_ends_the_job(terminal: Terminal) -> None:
    """No rank can be started again alone."""
    assert "a rank does not start again alone" in answer(terminal, "restart")
    terminal.type("q")
    assert terminal.end() == 130
    assert "stopped" in terminal.text


@pytest.mark.parametrize("terminal", ["train.py"], indirect=True)
def test_a_terminal_that_is_closed_ends_the_job(terminal: Terminal, folder: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_RDWR), terminal.master)
    assert terminal.process.wait(SECONDS) != 0
    assert "Traceback" not in (folder / "log" / "workerlog.1").read_text()


def test_commands_come_from_a_pipe_and_tmpdir_may_be_deep(folder: Path) -> None:
    """A socket's name has 107 bytes at most. The end of the commands ends the job."""
    deep = folder / ("x" * 120)
    deep.mkdir()
    words = ("--rank", "1", "--nproc-per-node", "2", "train.py")
    done = subprocess.run(
        [*DEBUG, *words], cwd=folder, env={**os.environ, "TMPDIR": str(deep)}, input="b 6\nc\n",
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert "train.py(6)" in done.stdout
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize("terminal", ["train.py wait all"], indirect=True)
@pytest.mark.parametrize("way", ["q", "SIGTERM", "SIGKILL"])
def test_the_prompt_outlives_the_failure_of_another_rank(
    terminal: Terminal, folder: Path, way: str
) -> None:
    """An error that all ranks have can be looked at; then the job ends as it would have.

    The end of the launcher ends the rank, too.
    """
    (folder / "go").touch()
    terminal.until("`q` ends it")
    terminal.until("(Pdb rank 1) ")
    rank = int(answer(terminal, "import os; os.getpid()"))
    assert "ValueError: wrong total 6" in answer(terminal, "c")
    if way == "q":
        terminal.type("q")
        assert terminal.end() == 1
        assert "first failure: rank 0" in terminal.text
        return
    with open_pidfd(rank) as ended:
        terminal.process.send_signal(signal.Signals[way])
        assert select.select([ended], [], [], SECONDS)[0]
        terminal.end()


@pytest.mark.parametrize("terminal", ["train.py fail"], indirect=True)
def test_an_uncaught_exception_ends_in_pdb_where_it_was_raised(terminal: Terminal) -> None:
    """The frames are the script's own, and the job then fails as it would have without pdb."""
    printed = answer(terminal, "c")
    assert "ValueError: wrong total 6" in printed
    assert "debugged_rank" not in printed
    assert "train.py(8)" in printed
    assert answer(terminal, "p total") == "6"
    terminal.type("q")
    assert terminal.end() == 1
    assert "rank 1" in terminal.text


@pytest.mark.parametrize("terminal", ["train.py breakpoint", "train.py set_trace"], indirect=True)
def test_breakpoint_stops_the_debugged_rank_alone(terminal: Terminal) -> None:
    """The other rank has no terminal: its breakpoint() does nothing. With another one set.

    pdb.set_trace() does the same in the debugged rank.
    """
    answer(terminal, "b 3")
    answer(terminal, "c")
    assert "train.py(" in answer(terminal, "c")  # from Python 3.13 at the call, before behind it
    assert answer(terminal, "p step") == "2"
    terminal.type("c")
    assert terminal.end() == 0


class Editor:
    """A client of the Debug Adapter Protocol, of the few requests that an editor begins with."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.stream = self.socket.makefile("rwb")
        self.number = 0

    def ask(self, command: str, **arguments: object) -> None:
        """Send a request."""
        self.number += 1
        body = {
            "seq": self.number, "type": "request", "command": command, "arguments": arguments,
        }  # fmt: skip
        data = json.dumps(body).encode()
        self.stream.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self.stream.flush()

    def until(self, name: str) -> dict[str, Any]:
        """The body of the next event of this name, or of the response to such a request."""
        while True:
            length = int(self.stream.readline().split(b":")[1])
            self.stream.readline()
            message = json.loads(self.stream.read(length))
            if name in (message.get("event"), message.get("command")):
                assert message.get("success", True), message
                found: dict[str, Any] = message.get("body") or {}
                return found


@pytest.mark.skipif(not find_spec("debugpy"), reason="debugpy is not installed: make .venv/.dev")
def test_an_editor_attaches_to_the_rank(folder: Path) -> None:
    """As VS Code does: attach, a breakpoint, a variable, go on; both ranks finish."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = (
        "--rank",
        "1",
        "--debugpy",
        str(port),
        "--nproc-per-node",
        "2",
        "train.py",
        "set_trace",
    )
    job = subprocess.Popen(
        [*DEBUG, *words],
        cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert job.stderr is not None
        waiting = f"rank 1 waits for an editor at 127.0.0.1:{port}\n"
        assert any(line.endswith(waiting) for line in job.stderr)
        editor = Editor(port)
        editor.ask("initialize", adapterID="test")
        editor.until("initialize")
        editor.ask("attach", justMyCode=True)
        editor.until("initialized")
        path = str(folder / "train.py")
        editor.ask("setBreakpoints", source={"path": path}, breakpoints=[{"line": 6}])
        editor.ask("configurationDone")
        thread = editor.until("stopped")["threadId"]
        editor.ask("stackTrace", threadId=thread)
        frame = editor.until("stackTrace")["stackFrames"][0]
        editor.ask("evaluate", expression="(rank, total)", frameId=frame["id"])
        assert (frame["line"], editor.until("evaluate")["result"]) == (6, "(1, 1)")
        editor.ask("setBreakpoints", source={"path": path}, breakpoints=[])
        editor.ask("continue", threadId=thread)
        editor.until("stopped")  # at set_trace()
        editor.ask("continue", threadId=thread)
        editor.until("terminated")
        out, errors = job.communicate(timeout=SECONDS)
        editor.socket.close()
    finally:
        job.kill()
    assert job.returncode == 0, errors
    assert "done 1" in out


def test_a_dry_run_shows_the_plan(folder: Path) -> None:
    words = ("--rank", "1", "--nproc-per-node", "2", "--dry-run", "train.py")
    out = subprocess.check_output([*DEBUG, *words], cwd=folder, stdin=subprocess.DEVNULL, text=True)
    assert "2 processes" in out
    assert not (folder / "log").exists()


@pytest.mark.parametrize(
    ("words", "errors"),
    [
        ("--rank 9 --nproc-per-node 2 train.py", ["--rank 9: there is no rank 9, this job has 2"]),
        ("--rank x --debugpy 70000 nosuch.py",
         ["--rank x: not a rank", "--debugpy 70000: not a port", "script 'nosuch.py' does not"]),
        ("train.py", ["--rank is not given"]),
        ("--rank 0,1 --debugpy 0 train.py", ["--rank 0,1: not a rank", "--debugpy 0: not a port"]),
        ("--rank 0 bash -c true", ["'bash' is not run by Python: there is nothing to debug"]),
        ("--rank 0", ["no script is given", "write paddock debug [flags] train.py"]),
    ],
)  # fmt: skip
def test_bad_input_is_told_at_once(
    words: str, errors: list[str], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        assert run(["debug", *words.split()]) == 2
    told = capfd.readouterr().err
    assert all(each in told for each in errors), told
    assert told.count("error:") == len([each for each in errors if "write" not in each])
