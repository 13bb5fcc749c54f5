"""An attempt has ended: is the job restarted, or which verdict and exit code does it get? Pure.

    the attempt stopped because     judgement
    -----------------------------   ------------------------------------------------------------
    all workers of a ps job ended   success
    --timeout was over              failure 124, with what was still running
    something failed                that failure, or another attempt (policy.py)
    no rank moved                   failure 124, or another attempt (--on-stall)
    the job was told to stop        cancelled; failure 125 when a node lost what it needs
    nodes come or go                another attempt; success if all workers had just finished

The first reason wins: what made the attempt stop is not changed by what came after.
"""

from __future__ import annotations

from paddock.core.attempt.attempt import WORKER_ROLES
from paddock.core.attempt.exits import find_culprit, unfinished
from paddock.core.attempt.policy import NoRetry, Retry, Verdict, decide_restart
from paddock.core.value import value
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_SIGNAL_BASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from paddock.core.attempt.attempt import Why
    from paddock.core.attempt.exits import Exit
    from paddock.core.job import Job


@value
class AttemptSummary:
    """The facts of a stopped attempt, from which judge decides.

    asked_signal: the job as a whole was told to stop; asked_by_loss: by no signal, but a node
    lost what it needs. leaving: signals of the nodes that were told to leave, by node rank.
    expellable: node ranks that the others could go on without.
    """

    job: Job
    attempt: int
    why: Why
    reason: str
    exits: Sequence[Exit]
    workers: int
    used_restarts: int
    total_restarts: int
    ran_seconds: float
    asked_signal: int = 0
    asked_reason: str = ""
    asked_by_loss: bool = False
    warnings: tuple[str, ...] = ()
    leaving: tuple[tuple[int, int], ...] = ()
    expellable: tuple[int, ...] = ()

    def verdict(
        self,
        kind: Literal["succeed", "fail", "cancel"],
        exit_code: int,
        reason: str,
        *,
        culprit: Exit | None = None,
    ) -> Verdict:
        """A verdict with that exit code and the facts of the attempt.

        clean: no process of it ended otherwise than well (servers apart).
        """
        is_clean = kind == "cancel" and all(e.ok for e in self.exits if e.role != "ps")
        return Verdict(
            kind,
            exit_code,
            reason,
            attempt=self.attempt,
            culprit=culprit,
            exits=tuple(self.exits),
            clean=is_clean,
            restarts=self.total_restarts,
            warnings=self.warnings,
        )

    def succeeded(self) -> Verdict:
        """The verdict of a job that succeeded."""
        return self.verdict("succeed", 0, self.reason if self.why == "success" else "")

    def failed(self, reason: str, culprit: Exit | None = None) -> Verdict:
        """The verdict of a job that failed: its exit code is that of the root cause (culprit)."""
        code = culprit.exit_code if culprit else EXIT_OWN_FAULT
        return self.verdict("fail", code or EXIT_OWN_FAULT, reason, culprit=culprit)

    def cancelled(self, signal: int, reason: str) -> Verdict:
        """The verdict of a job, or of a node, that was told to stop: exit code 128 + signal."""
        return self.verdict("cancel", EXIT_SIGNAL_BASE + signal, reason)

    def ended_as_asked(self) -> Verdict:
        """The verdict of a job that was told to stop, or had to since a node lost what it needs."""
        if self.asked_by_loss:
            return self.failed(self.asked_reason)
        return self.cancelled(self.asked_signal, self.asked_reason)


@value
class NextAttempt:
    """Another attempt follows. text: for people. culprit: the root cause, None if nothing failed.

    again: after how long, and what it costs. expelled: this node rank goes, it failed.
    """

    text: str
    again: Retry
    culprit: Exit | None = None
    expelled: int | None = None

    @property
    def is_restart(self) -> bool:
        """True when it counts as a restart: ranks failed or stalled, and their nodes stay."""
        return self.expelled is None and bool(self.again.reason)


def judge(summary: AttemptSummary) -> Verdict | NextAttempt:
    """Decide what follows a stopped attempt: the verdict of the job, or another attempt."""
    if summary.why == "success":
        return summary.succeeded()
    if summary.why == "deadline":
        return summary.verdict("fail", EXIT_DEADLINE, summary.reason + unfinished(summary.exits))
    if summary.why == "stall":
        return _judge_stall(summary)
    if summary.why == "failure":
        return _judge_failure(summary)
    if summary.asked_signal:
        return summary.ended_as_asked()
    done = sum(1 for e in summary.exits if e.ok and not e.by_us and e.role in WORKER_ROLES)
    if 0 < summary.workers <= done:
        return summary.succeeded()  # the change came when all was done
    return NextAttempt(summary.reason, Retry(0.0, summary.used_restarts, ""))


def judge_end(summary: AttemptSummary, workers_done: int) -> Verdict:
    """Judge an attempt whose processes have all ended, and nothing had made it stop."""
    if workers_done >= summary.workers:
        return summary.succeeded()
    text = "every node says that its processes ended, but not how all of them did"
    return summary.failed(text, find_culprit(summary.exits))


def _judge_failure(summary: AttemptSummary) -> Verdict | NextAttempt:
    culprit = find_culprit(summary.exits)
    if culprit is None:
        return summary.failed(summary.reason)
    was_asked = _was_asked(summary, culprit)
    is_its_own = culprit.cause != "node-lost" and not culprit.is_witness
    if culprit.node_rank in summary.expellable and is_its_own:
        again: Retry | None = Retry(
            0.0, summary.used_restarts, "its node leaves, --elastic-level 0"
        )
        expelled: int | None = culprit.node_rank
    else:
        expelled = None
        found = decide_restart(
            summary.job.restart,
            culprit,
            used=summary.used_restarts,
            ran_seconds=summary.ran_seconds,
        )
        again = found if isinstance(found, Retry) else None
        if culprit.cause == "node-lost" and not summary.job.may_begin_again:
            return summary.failed("", culprit)
        if not isinstance(found, Retry) and not was_asked:
            return summary.failed(found.reason, culprit)
    if summary.asked_signal:
        # It would have gone on; or the same signal was sent to our processes, too.
        return summary.ended_as_asked()
    if again is None or (was_asked and expelled is None):
        return NextAttempt(
            f"node {culprit.node_rank} ({culprit.host}) leaves",
            Retry(0.0, summary.used_restarts, ""),
        )
    text = _restart_text(f"{culprit.name} on {culprit.host} {culprit.how}", again)
    return NextAttempt(text, again, culprit, expelled)


def _judge_stall(summary: AttemptSummary) -> Verdict | NextAttempt:
    if summary.asked_signal:
        return summary.ended_as_asked()
    found: Retry | NoRetry = NoRetry("")
    if summary.job.on_stall == "restart":
        used, ran = summary.used_restarts, summary.ran_seconds
        found = decide_restart(summary.job.restart, None, used=used, ran_seconds=ran)
    if isinstance(found, Retry):
        return NextAttempt(_restart_text(summary.reason, found), found)
    why = f"; {found.reason}" if found.reason else ""
    return summary.verdict("fail", EXIT_DEADLINE, summary.reason + why)


def _restart_text(what: str, again: Retry) -> str:
    delay = f" in {again.delay_seconds:.1f} s" if again.delay_seconds else ""
    return f"restarting ({what}; {again.reason}{delay})"


def _was_asked(summary: AttemptSummary, culprit: Exit) -> bool:
    """Return True if the signal that ended it went to its launcher too (batch step)."""
    asked = dict(summary.leaving).get(culprit.node_rank, summary.asked_signal)
    return asked != 0 and culprit.signal == asked
