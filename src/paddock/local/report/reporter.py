"""The launcher's messages to the people at its node.

Reporter has the wording of Paddle's launcher; launcher.log has all of it. ScreenReporter is the
short screen, few lines on the console unless --console paddle is given:

    paddock: train-3f2a · 3 ranks on node-a · cpu · logs in log/
    what rank 0 prints
    paddock: done · 3 ranks · 1.2 s

A terminal has colour, for the state only (done, stopped, failed, warning), and lines that fit its
width. What is no terminal has the time before each line (docs/decisions/0021-the-screen.md).
"""

from __future__ import annotations

import os
from time import monotonic, strftime

from paddock.core.hosts import ROLE_NOUNS
from paddock.errors import for_terminal, problem_text
from paddock.local.output.console import shown_keys
from paddock.local.report.text import (
    FIRST_FAILURE,
    LEVELS,
    UNREAD,
    cancel_text,
    configuration_lines,
    consequence_text,
    count,
    detail_lines,
    has_last_words,
    job_line,
    launch_line,
    other_environment,
    spans,
    verdict_lines,
    verdict_text,
    wrapped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.errors import PaddockError

GREEN, YELLOW, RED, DIM = "32", "33", "31", "2"
COLOURS = {"warning": YELLOW, "error": RED}


class Reporter:
    """Reports a job's events in text. level: the least of LEVELS shown. write(text): appends.

    Each method is an event of a job; a subclass chooses other texts.
    """

    def __init__(self, level: int, write: Callable[[str], None]) -> None:
        self._level = level
        self._write = write

    def say(self, level: str, text: str) -> None:
        """Report one line, if the level lets it through."""
        self.say_all([(level, text)])

    def say_all(self, lines: Sequence[tuple[str, str]]) -> None:
        """Several (level, text) lines in one write."""
        told = "".join(self.line(lv, text) for lv, text in lines if LEVELS[lv] >= self._level)
        if told:
            self._write(told)

    def line(self, level: str, text: str) -> str:
        """The line as it is written."""
        return launch_line(level, text)

    def echo(self, *texts: str) -> None:
        """Report a line of Paddle's launcher that users' tools may read."""
        self.say_all([("INFO", text) for text in texts])

    def waiting(self, text: str) -> None:
        """Report that the coordinator cannot be reached yet. text: its address, and the reason."""
        self.echo(f"Waiting peer start... {text}")

    def problem(self, error: PaddockError) -> None:
        """Report the error that keeps this node from going on."""
        self._write(problem_text(error))

    def settings(self, shown: Sequence[tuple[str, str]]) -> None:
        """Report the job's settings, before anything starts."""
        self.echo(*configuration_lines(shown))

    def starting(self, plan: Plan, node_rank: int) -> None:
        """Report that this node's processes of an attempt are started next."""

    def started(
        self, plan: Plan, node_rank: int, pod_name: str, *, is_elastic: bool, notes: Sequence[str]
    ) -> None:
        """Report that this node's processes of an attempt have started. notes: about the start."""
        replicas = len(plan.on_node(node_rank))
        self.echo(
            job_line(plan, is_elastic),
            *notes,
            f"Run Pod: {pod_name}, replicas {replicas}, status ready",
            f"Watching Pod: {pod_name}, replicas {replicas}, status running",
        )

    def failed(self, text: str, culprit: Exit) -> None:
        """Report that a process failed and the job goes on."""
        self.say_all([("WARNING", text), *detail_lines(culprit)])

    def over(self, verdict: Verdict, plan: Plan | None, stopped_by: str = "") -> None:
        """Report the verdict. plan: of the last attempt here. stopped_by: as in cancel_text."""
        self.say_all(verdict_lines(verdict, plan, stopped_by))


def is_short(job: Job) -> bool:
    """Return True if the console shows the short screen, and not the lines of Paddle's launcher."""
    return job.logs.console != "paddle"


class ScreenReporter(Reporter):
    """The short screen. write(text): to the console. record(text): to a file. logs(): its folder.

    is_told(text): whether the ranks have just written it to the same console. columns(): width of
    the terminal, 0 where the console is none. run_id: what this run is called, "" for nothing.
    """

    def __init__(
        self,
        job: Job,
        env: Mapping[str, str],
        write: Callable[[str], None],
        record: Callable[[str], None],
        logs: Callable[[], str],
        is_told: Callable[[str], bool] = lambda _text: False,
        *,
        columns: Callable[[], int] = lambda: 0,
        run_id: str = "",
        has_time: bool = True,
    ) -> None:
        super().__init__(LEVELS[job.logs.level], write)
        self._in_full = Reporter(LEVELS[job.logs.level], record)
        self._is_told = is_told
        self._job, self._env = job, env
        self._logs = logs
        self._run_id = run_id
        self._columns = columns
        is_terminal = columns() > 0
        has_colours = is_terminal and env.get("TERM", "dumb") != "dumb"
        self._is_terminal = is_terminal
        self._is_coloured = has_colours and not env.get("NO_COLOR")
        self._has_time = has_time and not is_terminal
        self._dot = " · " if _is_utf8(env) else " - "
        self._began_at = monotonic()
        self._ranks = 0
        self._tail = job.logs.tail
        self._shown: frozenset[tuple[str, int]] = frozenset()  # whose output is here, too

    def say_all(self, lines: Sequence[tuple[str, str]]) -> None:
        """Report lines on the terminal and in the file."""
        super().say_all([(level, for_terminal(text)) for level, text in lines])
        self._in_full.say_all(lines)

    def line(self, level: str, text: str) -> str:
        """ "paddock: text"; above INFO with the level's name."""
        word = level.lower()
        return self._line(text, f"{word}: " if word in COLOURS else "", COLOURS.get(word, ""))

    def _line(self, text: str, state: str = "", colour: str = "") -> str:
        line = wrapped(f"paddock: {state}{text}", self._columns() - 1)
        if state and self._is_coloured:
            word = state.rstrip(": ")
            line = line.replace(word, f"\x1b[{colour}m{word}\x1b[0m", 1)
        stamp = strftime("%Y-%m-%d %H:%M:%S ") if self._has_time else ""
        return f"{stamp}{line}\n"

    def folded(self, lines: int, path: str) -> str:
        """The note on a framework's lines left out (noise.py). path: their log, "" for several."""
        if LEVELS["INFO"] < self._level:
            return ""
        folder = self._logs()
        link = os.path.join(folder, os.path.basename(path))
        where = link if path and os.path.exists(link) else path or os.path.join(folder, "")
        text = self._line(f"{count(lines, 'line')} of framework messages in {_short(where)}")
        return f"\x1b[{DIM}m{text[:-1]}\x1b[0m\n" if self._is_coloured else text

    def problem(self, error: PaddockError) -> None:
        """Report the error within the terminal's width."""
        self._write(wrapped(problem_text(error), self._columns() - 1))

    def echo(self, *texts: str) -> None:
        """Report the line in the file only."""
        self._in_full.echo(*texts)

    def waiting(self, text: str) -> None:
        """Report in Paddock's wording; the file has Paddle's."""
        self._in_full.waiting(text)
        self._tell("INFO", for_terminal(f"waiting for the coordinator: {text}"))

    def starting(self, plan: Plan, node_rank: int) -> None:
        """Report the ranks, nodes and devices of an attempt in one line."""
        self._ranks = plan.world_size or len(plan.procs)
        self._shown = shown_keys(self._tail, plan.on_node(node_rank))
        parts = [self._run_id, *summary(plan, node_rank, self._logs())]
        self._tell("INFO", for_terminal(self._dot.join(part for part in parts if part)))

    def failed(self, text: str, culprit: Exit) -> None:
        """Report a failed process with its last lines, unless the ranks have just shown them."""
        self._in_full.failed(text, culprit)
        self._tell("WARNING", for_terminal(text))
        self._last_words("WARNING", culprit)

    def over(self, verdict: Verdict, plan: Plan | None, stopped_by: str = "") -> None:
        """Report the verdict in a line: for a failure its root cause and consequences."""
        self._in_full.over(verdict, plan, stopped_by)
        culprit = verdict.culprit
        for warning in verdict.warnings:
            self._tell("WARNING", for_terminal(warning))
        if verdict.kind == "succeed":
            parts = ["", count(self._ranks, "rank")]
            parts += [count(verdict.restarts, "restart")] if verdict.restarts else []
            parts += [duration(monotonic() - self._began_at)]
            self._tell("INFO", self._dot.join(parts), "done", GREEN)
        elif verdict.kind == "cancel":
            is_alone = plan is None or plan.nnodes == 1
            told = cancel_text(verdict, stopped_by,
                               is_terminal=self._is_terminal, is_alone=is_alone)  # fmt: skip
            state = "stopped" if told.startswith("stopped") else ""
            self._tell("WARNING", for_terminal(told.removeprefix(state)), state, YELLOW)
        elif culprit is None:
            if verdict.reason:
                self._tell("ERROR", for_terminal(verdict.reason), "failed: ", RED)
        else:
            self._tell("ERROR", for_terminal(verdict_text(verdict)), FIRST_FAILURE, RED)
            self._last_words("ERROR", culprit)
            if other := other_environment(culprit, self._job, self._env):
                self._tell("INFO", for_terminal(other))
            if followed := consequence_text(verdict.exits, culprit):
                self._tell("INFO", followed)
        if verdict.exit_code:
            self._tell("INFO", f"exit code {verdict.exit_code}")

    def _tell(self, level: str, text: str, state: str = "", colour: str = "") -> None:
        """Write on the console only. state: the line's first word, instead of the level's name."""
        if LEVELS[level] < self._level:
            return
        self._write(self._line(text, state, colour) if state else self.line(level, text))

    def _last_words(self, level: str, culprit: Exit) -> None:
        if LEVELS[level] < self._level or not has_last_words(culprit):
            return
        from paddock.local.ending import last_words

        said = last_words(culprit)
        is_above = (culprit.role, culprit.rank) in self._shown and self._is_told(said)
        what = "its output is above" if said and is_above else said
        if not said:
            what = f"it wrote nothing{culprit.silence}"
            if culprit.is_unread:
                what = f"its output {UNREAD}"
        log = f"log: {_short(culprit.log)} on {culprit.host}" if culprit.log else ""
        if what == said:
            self._write(f"{said}\n")
            what = ""
        if told := "; ".join(part for part in (what, for_terminal(log)) if part):
            self._write(self._line(told))


def summary(plan: Plan, node_rank: int, log_dir: str) -> list[str]:
    """ "ranks 8-15 of 16 on node-b", "2 nodes", "gpu 0-7", "logs in log/", "attempt 1"."""
    mine = plan.on_node(node_rank)
    roles = dict.fromkeys(proc.role for proc in mine)
    who = [_who(plan, [proc for proc in mine if proc.role == role]) for role in roles]
    logs = _short(log_dir).rstrip(os.sep) + os.sep
    parts = [f"{' and '.join(who)} on {mine[0].host}"]
    parts += [count(plan.nnodes, "node")] if plan.nnodes > 1 else []
    parts += [_devices(mine), f"logs in {logs}"]
    return [*parts, f"attempt {plan.attempt}"] if plan.attempt else parts


def stderr_columns() -> int:
    """Width of the terminal that shows the launcher's own lines; 0 where it is none."""
    return columns_of(2)


def columns_of(fd: int) -> int:
    """The width of the terminal behind a descriptor, 0 if it is none."""
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 0


def fit_terminal(text: str, fd: int = 2) -> str:
    """A text with lines as wide as the terminal behind a descriptor, if it is one."""
    return wrapped(text, columns_of(fd) - 1)


def _who(plan: Plan, procs: Sequence[Proc]) -> str:
    """The processes of a role on a node: their number, or their ranks if other nodes have some."""
    role, noun = procs[0].role, ROLE_NOUNS[procs[0].role]
    total = len(plan.of_role(role))
    if len(procs) == total:
        return count(total, noun)
    plural = "s" if len(procs) > 1 else ""
    return f"{noun}{plural} {spans([proc.rank for proc in procs])} of {total}"


def _devices(procs: Sequence[Proc]) -> str:
    kinds: dict[str, list[str]] = {}
    for proc in procs:
        kinds.setdefault(proc.device_kind, []).extend(proc.device_labels)
    if len(kinds) > 1 and not kinds.get("cpu", [""]):
        del kinds["cpu"]  # of servers beside workers that have devices
    return " and ".join(
        f"{kind} {_labels(labels)}" if labels else kind for kind, labels in kinds.items()
    )


def _labels(labels: Sequence[str]) -> str:
    unique = dict.fromkeys(labels)
    if all(label.isdigit() for label in unique):
        return spans(sorted(map(int, unique)))
    return ",".join(unique)


def duration(seconds: float) -> str:
    """A duration as people write it.

    >>> duration(1.23), duration(75), duration(3 * 3600 + 120)
    ('1.2 s', '1 min 15 s', '3 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _short(path: str) -> str:
    """The path relative to the working directory, if it is below that."""
    try:
        here = os.getcwd()
    except OSError:
        return path  # the directory is gone
    return path[len(here) + 1 :] if path.startswith(here + os.sep) else path


def _is_utf8(env: Mapping[str, str]) -> bool:
    """Return True if the locale says that the terminal shows more than ASCII."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    return "utf" in locale.lower()
