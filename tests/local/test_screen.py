"""What a person at a terminal is told: few lines, the same facts. And what the file keeps."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from local.test_text import ended, plan_of, stopped
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import Host
from paddock.core.job import Entrypoint, Job, Logs
from paddock.core.plan import make_plan
from paddock.core.value import replace
from paddock.local.ending import stands_in
from paddock.local.report.reporter import ScreenReporter, is_short, summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.jobs import World
    from paddock.core.attempt.exits import Exit

UTF8 = {"LANG": "zh_CN.UTF-8", "TERM": "xterm", "NO_COLOR": "1"}
TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: bad'
JOB = Job(Entrypoint("script", "train.py"))


class Screen:
    """A reporter whose terminal and file are texts."""

    def __init__(
        self,
        level: str = "INFO",
        env: Mapping[str, str] = UTF8,
        said: str = "",
        *,
        columns: int = 200,
        run_id: str = "",
        tail: str = "all",
    ) -> None:
        self.seen: list[str] = []
        self.kept: list[str] = []
        job = replace(JOB, logs=Logs(level=level, tail=(tail,)))
        self.reporter = ScreenReporter(
            job,
            env,
            self.seen.append,
            self.kept.append,
            lambda: "/job/log",
            lambda text: stands_in(said.encode(), text),
            columns=lambda: columns,
            run_id=run_id,
            has_time=False,
        )

    def run(self, ranks: int, verdict: Verdict) -> str:
        """A job from its settings to its end; the time is cut off."""
        plan = plan_of(ranks)
        self.reporter.settings([("devices", "None")])
        self.reporter.starting(plan, 0)
        self.reporter.started(plan, 0, "abcdef", is_elastic=False, notes=["OMP_NUM_THREADS=1"])
        self.reporter.over(verdict, plan)
        return re.sub(r" [\d.]+ s$", " 1.2 s", "".join(self.seen), flags=re.MULTILINE)


def failure(*exits: Exit) -> Verdict:
    """The first of them is the culprit."""
    return Verdict("fail", 1, "", culprit=exits[0], exits=exits)


STARTS = "paddock: 2 ranks on node-a · cpu · logs in /job/log/\n"
FAILS = "paddock: first failure: rank 1 on node-a exited with code 1\n"
STOPS = "paddock: stopped as a result: rank 0\npaddock: exit code 1\n"
CULPRIT = ended(1, 5, TRACEBACK, log="/job/log/workerlog.1")
LOG = "log: /job/log/workerlog.1 on node-a\n"


@pytest.mark.parametrize(
    ("verdict", "said", "level", "wanted"),
    [
        (Verdict("succeed", 0, ""), "", "INFO", f"{STARTS}paddock: done · 2 ranks · 1.2 s\n"),
        (
            Verdict("succeed", 0, "", restarts=2), "", "INFO",
            f"{STARTS}paddock: done · 2 ranks · 2 restarts · 1.2 s\n",
        ),
        (Verdict("succeed", 0, ""), "", "ERROR", ""),
        (
            failure(CULPRIT, stopped(0, 9)), "", "INFO",
            f"{STARTS}{FAILS}{TRACEBACK}\npaddock: {LOG}{STOPS}",
        ),
        (
            failure(CULPRIT, stopped(0, 9)), f"x\n{TRACEBACK}\n", "INFO",
            f"{STARTS}{FAILS}paddock: its output is above; {LOG}{STOPS}",
        ),
        (
            failure(CULPRIT), "[rank0]: " + TRACEBACK.replace("\n", "\r\n[rank0]: "), "WARNING",
            f"{FAILS}paddock: its output is above; {LOG}",
        ),
        (
            failure(CULPRIT), f"{TRACEBACK}\n" + 30 * "more\n", "WARNING",
            f"{FAILS}{TRACEBACK}\npaddock: {LOG}",
        ),
        (
            failure(replace(CULPRIT, host="\x1b[2Jb", tail="\x1b[31mno")), "", "WARNING",
            f"{FAILS}\x1b[31mno\npaddock: {LOG}".replace("node-a", "?[2Jb"),
        ),
        (
            failure(replace(CULPRIT, tail="error")), "0 errors\n", "WARNING",
            f"{FAILS}error\npaddock: {LOG}",
        ),
        (
            failure(replace(CULPRIT, tail="")), "", "WARNING",
            f"{FAILS}paddock: it wrote nothing; {LOG}",
        ),
        (
            Verdict("fail", 124, "the job's limit of 5 s (--timeout) is over"), "", "INFO",
            f"{STARTS}paddock: failed: the job's limit of 5 s (--timeout) is over\n"
            "paddock: exit code 124\n",
        ),
        (
            Verdict("cancel", 130, "asked"), "", "INFO",
            f"{STARTS}paddock: stopped by Ctrl-C; no rank was running\n"
            "paddock: exit code 130\n",
        ),
    ],
)  # fmt: skip
def test_a_job_takes_a_line_before_its_ranks_and_few_after(
    verdict: Verdict, said: str, level: str, wanted: str
) -> None:
    """A traceback that stands above is not shown twice; a success is silent if asked to be."""
    assert Screen(level, said=said).run(2, verdict) == wanted


def test_the_file_keeps_what_the_terminal_leaves_out() -> None:
    """Users' tools find the lines of Paddle's launcher there."""
    screen = Screen()
    screen.run(2, failure(CULPRIT, stopped(0, 9)))
    kept = "".join(screen.kept)
    for line in ("devices: None", "OMP_NUM_THREADS=1", "Watching Pod: abcdef", "ABORT!!!"):
        assert re.search(rf"^LAUNCH (INFO|ERROR) .*{re.escape(line)}", kept, re.MULTILINE), kept


def test_what_is_waited_for_is_in_our_words_here_and_in_paddles_in_the_file() -> None:
    """A follower whose coordinator does not answer yet."""
    screen = Screen()
    screen.reporter.waiting("10.0.0.1:6768 does not answer yet: Connection refused")
    why = "10.0.0.1:6768 does not answer yet: Connection refused\n"
    assert screen.seen == [f"paddock: waiting for the coordinator: {why}"]
    assert "".join(screen.kept).endswith(f" Waiting peer start... {why}")


@pytest.mark.parametrize(
    ("env", "begins"),
    [
        ({"TERM": "xterm", "LANG": "C.UTF-8"}, "paddock: \x1b[32mdone\x1b[0m · 2 ranks · "),
        ({"TERM": "xterm", "LANG": "zh_CN.GBK"}, "paddock: \x1b[32mdone\x1b[0m - 2 ranks - "),
        ({"TERM": "dumb", "LANG": "C.UTF-8"}, "paddock: done · "),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "C.UTF-8", "NO_COLOR": "1"}, "paddock: done - "),
    ],
)
def test_colour_and_dots_are_for_terminals_that_show_them(
    env: Mapping[str, str], begins: str
) -> None:
    """NO_COLOR, TERM=dumb, and locales that are not UTF-8."""
    screen = Screen(env=env)
    screen.run(2, Verdict("succeed", 0, ""))
    assert screen.seen[-1].startswith(begins)


def test_the_summary_tells_this_nodes_part() -> None:
    """Which ranks of how many, on which devices."""
    hosts = tuple(
        Host(
            name=name, address="127.0.0.1", slots=(("worker", 0, 4),), ports=(1, 2, 3, 4),
            service_ports=(5, 6, 7, 8), device_kind="gpu", device_labels=("0", "1", "2", "5"),
            device_indices=(0, 1, 2, 5),
        )
        for name in ("node-a", "node-b")
    )  # fmt: skip
    plan = make_plan(replace(JOB, nnodes_min=2, nnodes_max=2), hosts, 3, "u1d")
    single = tuple(replace(host, slots=(("worker", 0, 1),), ports=(1,)) for host in hosts)
    other = make_plan(replace(JOB, nnodes_min=2, nnodes_max=2), single, 0, "u1d")
    assert summary(other, 0, "/job/log")[:2] == ["rank 0 of 2 on node-a", "2 nodes"]
    told = summary(plan, 1, "/job/log")
    wanted = "ranks 4-7 of 8 on node-b · 2 nodes · gpu 0-2,5 · logs in /job/log/ · attempt 3"
    assert " · ".join(told) == wanted


@pytest.mark.parametrize(
    ("logs", "record", "wanted"),
    [
        (Logs(level="DEBUG"), "", True),
        (Logs(console="paddle"), "", False),
        (Logs(), "/job", True),
    ],
)
def test_paddles_lines_are_for_those_who_ask_for_them(
    logs: Logs, record: str, wanted: bool
) -> None:
    """--console paddle; a submitted job has the screen that every launch has."""
    assert is_short(replace(JOB, logs=logs, record=record)) == wanted


def test_the_run_id_comes_first_and_an_attempt_only_after_a_restart() -> None:
    """Nobody has to learn what attempt 0 is."""
    screen = Screen(run_id="train-3f2a")
    for attempt in (0, 1):
        screen.reporter.starting(replace(plan_of(2), attempt=attempt), 0)
    begin = "paddock: train-3f2a · 2 ranks on node-a · cpu · logs in /job/log/"
    assert screen.seen == [f"{begin}\n", f"{begin} · attempt 1\n"]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_lines_fit_the_terminal_and_break_at_spaces(columns: int) -> None:
    """A word is whole, also one that is longer than a line; colour takes no room."""
    screen = Screen(env={**UTF8, "NO_COLOR": ""}, columns=columns)
    culprit = replace(CULPRIT, tail="", log="/" + 90 * "x", memory="2.0 GiB (cgroup)")
    plain = re.sub(r"\x1b\[\d+m", "", screen.run(2, failure(culprit, stopped(0, 9))))
    words = Screen(columns=1_000).run(2, failure(culprit, stopped(0, 9))).split()
    assert plain.split() == words
    for line in plain.splitlines():
        assert len(line) < columns or len(line.split()) == 1, line
        assert line.startswith(("paddock: ", "  "))


def test_a_traceback_of_another_rank_is_no_substitute_for_the_culprits() -> None:
    """Ranks 0 and 1 say the same; rank 0 is on the screen, rank 1 failed first."""
    screen = Screen(said=TRACEBACK + "\n", tail="0")
    assert f"{FAILS}{TRACEBACK}\n" in screen.run(2, failure(CULPRIT))


def test_a_pipe_has_the_same_lines_with_the_time(world: World) -> None:
    """No colour, nothing of Paddle's launcher; that is in launcher.log."""
    ended = world.run("--nproc_per_node", 2, world.script("print('hello')"), env={"LC_ALL": "C"})
    assert (ended.code, ended.out) == (0, "hello\n")
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d paddock: "
    first, last = ended.err.splitlines()
    assert re.fullmatch(rf"{stamp}train-[0-9a-f]{{4}} - 2 ranks on \S+ - cpu - logs in log/", first)
    assert re.fullmatch(rf"{stamp}done - 2 ranks - [\d.]+ s", last)
    kept = (world.log_dir / "launcher.log").read_text()
    assert "status running" in kept and "Pod completed" in kept


def test_paddles_lines_are_on_the_console_and_in_the_file_if_asked_for(world: World) -> None:
    """PADDOCK_CONSOLE=paddle, as in the pods of a PaddleJob."""
    ended = world.run(world.script("pass"), env={"PADDOCK_CONSOLE": "paddle"})
    assert "status running" in ended.err and "paddock: done" not in ended.err
    assert (world.log_dir / "launcher.log").read_text() == ended.err


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_ctrl_c_at_a_real_terminal_fits_its_width(world: World, columns: int) -> None:
    """It says how long ranks have, what a second one does, and how it ended."""
    silent = "signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler writes a traceback\n"
    script = world.script(
        f"{silent}tell('up', RANK)\nforever()", name="a_script_with_a_long_name.py"
    )
    read_fd, write_fd = os.openpty()
    fcntl.ioctl(write_fd, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    env = {"TERM": "xterm", "LANG": "C.UTF-8"}
    words = ("--nproc_per_node", 2, "--grace", 20, script)
    running = world.start(*words, stdout=write_fd, stderr=write_fd, env=env)
    os.close(write_fd)
    world.events.wait("up", count=2)
    running.signal_group(signal.SIGINT)
    shown = b""
    while b"exit code 130" not in shown:
        shown += os.read(read_fd, 1 << 16)
    assert running.end().code == 130
    os.close(read_fd)
    text = re.sub(r"\x1b\[\d+m", "", shown.decode())
    assert all(len(line) < columns for line in text.split("\r\n"))
    told = re.sub(r"\s+", " ", text)
    assert "waiting up to 20 s for ranks to save; press Ctrl-C again to kill" in told
    assert "paddock: stopped by Ctrl-C; SIGINT ended 2 ranks" in told


def test_the_traceback_of_rank_0_is_on_a_real_terminal_once(world: World) -> None:
    """And a warning of the job's, a summary before it, and a verdict after it."""
    text = "print('hello')\nsys.stdout.flush()\nraise ValueError('bad')"
    words = ("--nproc_per_node", 1, world.script(text))
    ended, lines = world.run_on_terminal(*words, until=b"exit code 1")
    assert ended.code == 1
    assert lines.count("ValueError: bad") == 1
    places = [lines.index(word) for word in ("1 rank on ", "hello", "ValueError", "first failure")]
    assert places == sorted(places)
    assert b"Run Pod: " in (world.log_dir / "launcher.log").read_bytes()


@pytest.mark.parametrize("active", ["elsewhere", "the ranks'", ""])
def test_a_missing_module_tells_of_another_active_environment(world: World, active: str) -> None:
    """As of a paddock that pipx installed, typed in the environment of a project."""
    places = {"elsewhere": "/opt/venv", "the ranks'": os.path.dirname(sys.executable)[:-4], "": ""}
    place = places[active]
    ended = world.run("--nproc_per_node=2", world.script("import nobody_has_this"),
                      env={"VIRTUAL_ENV": place, "CONDA_PREFIX": ""})  # fmt: skip
    assert ended.code == 1
    text = (
        f"the ranks ran {sys.executable}, and the active environment is {place}; "
        f"PYTHON_EXEC={place}/bin/python before the command runs its Python"
    )
    assert (text in ended.err) == (active == "elsewhere")
