"""What a launcher tells a person at a terminal: few lines, and no time stamps.

    paddock: 3 ranks on node-a · cpu · logs in log/ · attempt 0
    what rank 0 prints
    paddock: done · 3 ranks · 1.2 s

All that Paddle's launcher would have said is in ``launcher.log`` beside the logs of the ranks
(docs/decisions/0021-the-screen.md). Colour is for the state only: done, stopped, failed, warning.
"""

from __future__ import annotations

import os
from time import monotonic

from paddock.errors import for_terminal
from paddock.local.evidence import explain_end
from paddock.local.reporter import Reporter
from paddock.local.text import (
    LEVELS,
    cancel_text,
    consequence_text,
    count,
    has_last_words,
    verdict_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.exits import Exit
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc
    from paddock.core.policy import Verdict

GREEN, YELLOW, RED = "32", "33", "31"
COLOURS = {"warning": YELLOW, "error": RED}
NOUNS = {"worker": "rank", "ps": "server", "heter": "heter worker"}


class ScreenReporter(Reporter):
    """write(text): to the terminal. record(text): to a file, in full. logs(): where that is.

    is_told(text): whether the ranks have just written it to the same terminal.
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
        is_terminal: bool = True,
    ) -> None:
        super().__init__(LEVELS[job.logs.level], write)
        self._in_full = Reporter(LEVELS[job.logs.level], record)
        self._is_told = is_told
        self._logs = logs
        has_colours = is_terminal and env.get("TERM", "dumb") != "dumb"
        self._is_coloured = has_colours and not env.get("NO_COLOR")
        self._dot = " · " if _is_utf8(env) else " - "
        self._began_at = monotonic()
        self._ranks = 0

    def say_all(self, lines: Sequence[tuple[str, str]]) -> None:
        """On the terminal, and in the file."""
        super().say_all([(level, for_terminal(text)) for level, text in lines])
        self._in_full.say_all(lines)

    def line(self, level: str, text: str) -> str:
        """ "paddock: text"; what is no mere news says what it is."""
        word = level.lower()
        state = f"{self._state(word, COLOURS[word])}: " if word in COLOURS else ""
        return f"paddock: {state}{text}\n"

    def echo(self, *texts: str) -> None:
        """To the file only."""
        self._in_full.echo(*texts)

    def starting(self, plan: Plan, node_rank: int) -> None:
        """One line of who runs where, with what."""
        self._ranks = plan.world_size or len(plan.procs)
        told = summary(plan, node_rank, self._logs(), self._dot)
        self._tell("INFO", for_terminal(told))

    def failed(self, text: str, culprit: Exit) -> None:
        """Its last words, unless they stand above."""
        self._in_full.failed(text, culprit)
        self._tell("WARNING", for_terminal(text))
        self._last_words("WARNING", culprit)

    def over(self, verdict: Verdict, plan: Plan | None) -> None:
        """How it ended, in a line; of a failure who was first, why, and what followed."""
        self._in_full.over(verdict, plan)
        culprit = verdict.culprit
        for warning in verdict.warnings:
            self._tell("WARNING", for_terminal(warning))
        if verdict.kind == "succeed":
            parts = [self._state("done", GREEN), count(self._ranks, "rank")]
            parts += [count(verdict.restarts, "restart")] if verdict.restarts else []
            self._tell("INFO", self._dot.join([*parts, duration(monotonic() - self._began_at)]))
        elif verdict.kind == "cancel":
            self._tell("WARNING", for_terminal(cancel_text(verdict)), "stopped")
        elif culprit is None:
            if verdict.reason:
                self._tell("ERROR", for_terminal(verdict.reason), "failed")
        else:
            self._tell("ERROR", for_terminal(verdict_text(verdict)), "first failure")
            self._last_words("ERROR", culprit)
            if followed := consequence_text(verdict.exits, culprit):
                self._tell("INFO", followed)
        if verdict.exit_code:
            self._tell("INFO", f"exit code {verdict.exit_code}")

    def _tell(self, level: str, text: str, state: str = "") -> None:
        """On the terminal only. state: instead of the level's own word."""
        if LEVELS[level] < self._level:
            return
        if state:
            colour = COLOURS[level.lower()]
            self._write(f"paddock: {self._state(state, colour)}: {text}\n")
        else:
            self._write(self.line(level, text))

    def _last_words(self, level: str, culprit: Exit) -> None:
        if LEVELS[level] < self._level or not has_last_words(culprit):
            return
        said = explain_end(culprit.tail.encode())
        what = "what it said is above" if said and self._is_told(said) else said
        if not said:
            what = f"it wrote nothing{culprit.silence}"
        log = f"log: {_short(culprit.log)} on {culprit.host}" if culprit.log else ""
        log = for_terminal(log)
        if what == said:
            self._write(f"{said}\n" + (f"paddock: {log}\n" if log else ""))
        else:
            self._write(f"paddock: {what}" + (f"; {log}" if log else "") + "\n")

    def _state(self, word: str, colour: str) -> str:
        return f"\x1b[{colour}m{word}\x1b[0m" if self._is_coloured else word


def summary(plan: Plan, node_rank: int, log_dir: str, dot: str) -> str:
    """ "ranks 8-15 of 16 on node-b · 2 nodes · gpu 0-7 · logs in log/ · attempt 0"."""
    mine = plan.on_node(node_rank)
    roles = dict.fromkeys(proc.role for proc in mine)
    who = [_who(plan, [proc for proc in mine if proc.role == role]) for role in roles]
    logs = _short(log_dir).rstrip(os.sep) + os.sep
    parts = [f"{' and '.join(who)} on {mine[0].host}", _devices(mine), f"logs in {logs}"]
    if plan.nnodes > 1:
        parts.insert(1, count(plan.nnodes, "node"))
    return dot.join([*parts, f"attempt {plan.attempt}"])


def _who(plan: Plan, procs: Sequence[Proc]) -> str:
    """Of one role, on one node: their number, or their ranks where there are others."""
    role, noun = procs[0].role, NOUNS[procs[0].role]
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


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers, those in a row as one.

    >>> spans([0, 1, 2, 5]), spans([3])
    ('0-2,5', '3')
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def duration(seconds: float) -> str:
    """For people.

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
    """As it would be typed from here, if it is below."""
    try:
        here = os.getcwd()
    except OSError:
        return path  # the directory is gone
    return path[len(here) + 1 :] if path.startswith(here + os.sep) else path


def _is_utf8(env: Mapping[str, str]) -> bool:
    """Whether the terminal of this locale shows what is not ASCII, as far as one can know."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    return "utf" in locale.lower()
