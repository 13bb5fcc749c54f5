"""The launcher's messages to the people at its node, in the wording of Paddle's launcher.

The console shows less (screen.py), unless --console paddle is given; launcher.log has all of it.
"""

from __future__ import annotations

from paddock.errors import problem_text
from paddock.local.report.text import (
    LEVELS,
    configuration_lines,
    detail_lines,
    job_line,
    launch_line,
    verdict_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.core.plan import Plan
    from paddock.errors import PaddockError


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
