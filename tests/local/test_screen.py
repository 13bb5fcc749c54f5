"""What a person at a terminal is told: few lines, the same facts. And what the file keeps."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from local.test_text import ended, plan_of, stopped
from paddock.core.hosts import Host
from paddock.core.job import Command, Job, Logs
from paddock.core.plan import make_plan
from paddock.core.policy import Verdict
from paddock.core.value import replace
from paddock.local.evidence import stands_in
from paddock.local.reporter import is_short
from paddock.local.screen import ScreenReporter, summary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.jobs import World
    from paddock.core.exits import Exit

UTF8 = {"LANG": "zh_CN.UTF-8", "TERM": "xterm", "NO_COLOR": "1"}
TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: bad'
JOB = Job(Command("script", "train.py"))


class Screen:
    """A reporter whose terminal and file are texts."""

    def __init__(self, level: str = "INFO", env: Mapping[str, str] = UTF8, said: str = "") -> None:
        self.seen: list[str] = []
        self.kept: list[str] = []
        job = replace(JOB, logs=Logs(level=level))
        self.reporter = ScreenReporter(
            job,
            env,
            self.seen.append,
            self.kept.append,
            lambda: "/job/log",
            lambda text: stands_in(said.encode(), text),
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


STARTS = "paddock: 2 ranks on node-a · cpu · logs in /job/log/ · attempt 0\n"
FAILS = "paddock: first failure: worker 1 on node-a exited with code 1\n"
STOPS = "paddock: stopped by paddock because of it: worker 0\npaddock: exit code 1\n"
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
            f"{STARTS}{FAILS}paddock: what it said is above; {LOG}{STOPS}",
        ),
        (
            failure(CULPRIT), "[rank0]: " + TRACEBACK.replace("\n", "\r\n[rank0]: "), "WARNING",
            f"{FAILS}paddock: what it said is above; {LOG}",
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
            f"{STARTS}paddock: stopped: job stopped by signal 2 (asked): no process was running\n"
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
    assert summary(other, 0, "/job/log", " · ").startswith("rank 0 of 2 on node-a · 2 nodes · ")
    told = summary(plan, 1, "/job/log", " · ")
    wanted = "ranks 4-7 of 8 on node-b · 2 nodes · gpu 0-2,5 · logs in /job/log/ · attempt 3"
    assert told == wanted


@pytest.mark.parametrize(
    ("logs", "wanted"),
    [
        (Logs(), True),
        (Logs(level="DEBUG"), False),
        (Logs(console="paddle"), False),
        (Logs(level="DEBUG", console="short"), True),
    ],
)
def test_paddles_lines_come_to_a_terminal_that_asks_for_them(logs: Logs, wanted: bool) -> None:
    """--console, else --log_level DEBUG; a pipe or file has them anyway."""
    read_fd, write_fd = os.openpty()
    try:
        assert is_short(replace(JOB, logs=logs), write_fd) == wanted
        assert is_short(replace(JOB, logs=replace(logs, console="auto")), read_fd + 1000) is False
    finally:
        os.close(read_fd)
        os.close(write_fd)


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
