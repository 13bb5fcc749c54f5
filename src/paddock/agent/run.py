"""What one launcher process owns: the loop, the output, and its node's part in a job."""

from __future__ import annotations

import os

from paddock.agent.member import Member
from paddock.core.job import Job
from paddock.local.loop import Loop
from paddock.local.output import Output
from paddock.local.reporter import Reporter, is_short
from paddock.local.share import Share
from paddock.local.text import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.agent.recorder import Recorder
    from paddock.local.warm.kept import Kept

OUTPUT_SECONDS = 2.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Run:
    """Everything one launcher process owns; what the simulator replaces is passed in."""

    def __init__(
        self,
        job: Job,
        env: Mapping[str, str],
        *,
        loop: Loop,
        share: Share,
        say_raw: Callable[..., None],
        pod_name: str,
        recorder: Recorder | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self.job = job
        self.env = env
        self.loop = loop
        self.say_raw = say_raw
        self.exit_code = 0
        self.member = Member(
            job,
            loop,
            share,
            say_raw=say_raw,
            pod_name=pod_name,
            on_over=self._on_over,
            reporter=reporter or Reporter(LEVELS[job.logs.level], say_raw),
        )
        self.on_news = recorder.on_news if recorder is not None else None
        self.on_reign_over = recorder.on_reign_over if recorder is not None else lambda: None
        if recorder is not None:
            self.member.on_verdict = recorder.on_verdict
        self._is_over = False
        self._may_end = True
        self._closers: list[Callable[[], None]] = []

    def _on_over(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._is_over = True
        if self._may_end:
            self.loop.stop()

    @property
    def is_ended(self) -> bool:
        """True when there is nothing to wait for."""
        return self._is_over and self._may_end

    def end_when_over(self) -> None:
        """Nothing else has to be done before this process ends (see server.py)."""
        self._may_end = True
        if self._is_over:
            self.loop.stop()

    def hold_end(self) -> None:
        """Do not end with the member's part: others have still to be told."""
        self._may_end = False

    def at_end(self, close: Callable[[], None]) -> None:
        """Call this when the job is over, before the last lines are written."""
        self._closers.append(close)

    def close(self) -> None:
        """Call what at_end was told, and give back what the member holds."""
        for close in self._closers:
            close()
        self.member.close()

    def new_uid(self) -> str:
        """Sixteen hex digits that no other run has."""
        return os.urandom(8).hex()


class Launcher:
    """A Run on this machine, with its real loop, output and processes."""

    def __init__(self, job: Job, env: Mapping[str, str], kept: Kept | None = None) -> None:
        """kept: the loop, and what the launch before has left, of a launcher that stays."""
        self.loop = Loop() if kept is None else kept.loop
        self.output = Output(on_lost=self._on_lost)
        pod_name = _pod_name()
        share = Share(job, self.loop, self.output, env, pod_name, kept)
        self.run = Run(
            job,
            env,
            loop=self.loop,
            share=share,
            say_raw=self.output.say,
            pod_name=pod_name,
            recorder=_recorder(job, self.loop, self.output, pod_name),
            reporter=_screen(job, env, share, self.output) if is_short(job) else None,
        )

    def _on_lost(self, text: str) -> None:
        """In the output thread."""
        self.loop.post(lambda: self.run.member.warn(text))

    def finish(self) -> int:
        """Close everything; returns the exit code."""
        self.run.close()
        self.output.stop(OUTPUT_SECONDS)
        return self.run.exit_code


def _recorder(job: Job, loop: Loop, output: Output, pod_name: str) -> Recorder | None:
    """Of --record. Raises UsageError."""
    if not job.record:
        return None
    from paddock.agent.recorder import Recorder, launcher_name  # only for those who use the flag
    from paddock.local.record import RecordFolder

    return Recorder(job, loop, RecordFolder(job.record, output), launcher_name(pod_name))


def _screen(job: Job, env: Mapping[str, str], share: Share, output: Output) -> Reporter:
    """Of a terminal."""
    from paddock.local.screen import ScreenReporter

    return ScreenReporter(
        job,
        env,
        output.say,
        share.record,
        lambda: share.logs,
        output.has_shown,
        is_terminal=os.isatty(2),
    )


def _pod_name() -> str:
    """Six lower-case letters, as in the users' documents."""
    return "".join(LETTERS[b % 26] for b in os.urandom(6))
