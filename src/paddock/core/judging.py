"""All processes of an attempt are gone: is the job over, or does another attempt follow? Pure.

    the attempt stopped because     judgement
    -----------------------------   ------------------------------------------------------------
    all workers of a ps job ended   success
    --timeout was over              failure 124, with who was still running
    something failed                that failure, or another attempt (policy.py)
    the job was told to stop        cancelled; failure 125 when a node lost what it needs
    nodes come or go                another attempt; success if all workers had just finished

The first reason wins: what made the attempt stop is not changed by what came after.
"""

from __future__ import annotations

from paddock.core.attempt import WORKER_ROLES
from paddock.core.exits import find_culprit, unfinished
from paddock.core.policy import Again, Verdict, decide_restart
from paddock.core.value import value
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_SIGNAL_BASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from paddock.core.attempt import Why
    from paddock.core.exits import Exit
    from paddock.core.job import Job


@value
class Case:
    """What is known about an attempt.

    asked_signal: the job as a whole was told to stop; asked_by_loss: not by anybody, but a node
    lost what it needs. leaving: signals of the nodes that were told
    to leave, by node rank. expellable: node ranks that the others could go on without.
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
        """A verdict with the facts of the attempt.

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
        """Everybody did what he should."""
        return self.verdict("succeed", 0, self.reason if self.why == "success" else "")

    def failed(self, reason: str, culprit: Exit | None = None) -> Verdict:
        """Somebody did not."""
        code = culprit.exit_code if culprit else EXIT_OWN_FAULT
        return self.verdict("fail", code or EXIT_OWN_FAULT, reason, culprit=culprit)

    def cancelled(self, signal: int, reason: str) -> Verdict:
        """The job, or a node, was told to stop."""
        return self.verdict("cancel", EXIT_SIGNAL_BASE + signal, reason)

    def ended_as_asked(self) -> Verdict:
        """The job as a whole was told to stop, or had to."""
        if self.asked_by_loss:
            return self.failed(self.asked_reason)
        return self.cancelled(self.asked_signal, self.asked_reason)


@value
class GoOn:
    """Another attempt follows. text: for people. culprit: what failed, None if nothing did.

    again: after how long, and what it costs. expelled: this node rank goes, it failed.
    """

    text: str
    again: Again
    culprit: Exit | None = None
    expelled: int | None = None

    @property
    def is_restart(self) -> bool:
        """Something failed, and its node stays."""
        return self.culprit is not None and self.expelled is None


def judge(case: Case) -> Verdict | GoOn:
    """What follows a stopped attempt."""
    if case.why == "success":
        return case.succeeded()
    if case.why == "deadline":
        return case.verdict("fail", EXIT_DEADLINE, case.reason + unfinished(case.exits))
    if case.why == "failure":
        return _judge_failure(case)
    if case.asked_signal:
        return case.ended_as_asked()
    done = sum(1 for e in case.exits if e.ok and not e.by_us and e.role in WORKER_ROLES)
    if 0 < case.workers <= done:
        return case.succeeded()  # the change came when all was done
    return GoOn(case.reason, Again(0.0, case.used_restarts, ""))


def judge_end(case: Case, workers_done: int) -> Verdict:
    """All processes of an attempt ended, and nothing had made it stop."""
    if workers_done >= case.workers:
        return case.succeeded()
    text = "every node says that its processes ended, but not how all of them did"
    return case.failed(text, find_culprit(case.exits))


def _judge_failure(case: Case) -> Verdict | GoOn:
    culprit = find_culprit(case.exits)
    if culprit is None:
        return case.failed(case.reason)
    was_asked = _was_asked(case, culprit)
    is_its_own = culprit.cause != "node-lost" and not culprit.is_witness
    if culprit.node_rank in case.expellable and is_its_own:
        again: Again | None = Again(0.0, case.used_restarts, "its node leaves, --elastic_level 0")
        expelled: int | None = culprit.node_rank
    else:
        expelled = None
        found = decide_restart(
            case.job.restart, culprit, used=case.used_restarts, ran_seconds=case.ran_seconds
        )
        again = found if isinstance(found, Again) else None
        if culprit.cause == "node-lost" and not case.job.may_begin_again:
            return case.failed("", culprit)
        if not isinstance(found, Again) and not was_asked:
            return case.failed(found.reason, culprit)
    if case.asked_signal:
        # It would have gone on; or the same signal was sent to our processes, too.
        return case.ended_as_asked()
    if again is None or (was_asked and expelled is None):
        return GoOn(
            f"node {culprit.node_rank} ({culprit.host}) leaves",
            Again(0.0, case.used_restarts, ""),
        )
    delay = f" in {again.delay_seconds:.1f} s)" if again.delay_seconds else ")"
    text = f"restarting ({culprit.name} on {culprit.host} {culprit.how}; {again.reason}{delay}"
    return GoOn(text, again, culprit, expelled)


def _was_asked(case: Case, culprit: Exit) -> bool:
    """The signal that ended it went to its launcher as well: to the whole batch step, say."""
    asked = dict(case.leaving).get(culprit.node_rank, case.asked_signal)
    return asked != 0 and culprit.signal == asked
