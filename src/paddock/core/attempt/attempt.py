"""The attempt: its members, their exits, why it stops; and what follows from that. Pure.


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

from paddock.core.attempt.exits import Exit, add_or_amend, find_culprit, unfinished
from paddock.core.attempt.policy import NoRetry, Retry, Verdict, decide_restart
from paddock.core.job import LEASE_SECONDS
from paddock.core.value import value
from paddock.errors import EXIT_DEADLINE, EXIT_OWN_FAULT, EXIT_SIGNAL_BASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from paddock.core.hosts import Host
    from paddock.core.job import Job
    from paddock.core.rendezvous.member_table import MemberEntry
    from paddock.core.rendezvous.messages import Lost

    Why = Literal["", "failure", "success", "grow", "shrink", "cancel", "deadline", "stall"]

# Roles whose processes end by themselves when the job is done; servers are then told to.
WORKER_ROLES = ("worker", "heter")
# A silent node is noticed after its lease and at most a quarter of it (agent/transport/server.py).
LEASE_NOTICED = 1.25
# An attempt that ended sooner has not trained: to import a framework takes some of it.
START_SECONDS = 10.0
STALLS_MAX = 4  # nodes that one sentence describes


class Attempt:
    """The attempt that runs, or the last one that did."""

    def __init__(
        self,
        number: int = -1,
        members: Iterable[int] = (),
        hosts: Iterable[Host] = (),
        now: float = 0.0,
        lease_seconds: float = 0.0,
    ) -> None:
        """members: in node-rank order, as are their hosts."""
        self.number = number
        self._noticed_ns = min(lease_seconds, LEASE_SECONDS) * LEASE_NOTICED * 1e9
        self.members = dict.fromkeys(members)
        self.unstopped = set(self.members)
        self.hosts = tuple(hosts)
        self.workers = sum(
            count for h in self.hosts for role, _, count in h.slots if role in WORKER_ROLES
        )
        self.workers_done = 0
        self._order = tuple(self.members)
        counts = (sum(n for role, _, n in h.slots if role == "worker") for h in self.hosts)
        self._alive = dict(zip(self._order, counts, strict=False))  # workers of each member
        self.exits: list[Exit] = []
        self.stalled: dict[int, tuple[bool, str]] = {}  # members whose ranks stand still
        self.why: Why = ""
        self.reason = ""
        self.started_at = now
        self._digest: int | None = None  # of the first plan that was reported

    def end(self) -> None:
        """End the attempt: no member has a part in it any more; its exits stay known."""
        self.members, self.unstopped = {}, set()

    def remove(self, member: int) -> None:
        self.members.pop(member, None)
        self.unstopped.discard(member)

    def add_exit(self, exit_: Exit) -> None:
        if add_or_amend(self.exits, exit_):
            return
        if exit_.ok and exit_.role in WORKER_ROLES:
            self.workers_done += 1
        if exit_.role == "worker" and 0 <= exit_.node_rank < len(self._alive):
            member = self._order[exit_.node_rank]
            self._alive[member] -= 1
            self.stalled.pop(member, None)  # it has moved

    def stall(self, member: int, text: str, has_suspect: bool) -> None:
        """Record that no rank of a member moves, or that one does ("")."""
        self.stalled.pop(member, None)
        if text:
            self.stalled[member] = (not has_suspect, text)

    @property
    def stall_text(self) -> str:
        """The places of all ranks, the suspects first, once none moves on any node; else "".

        A node whose workers have ended, or that has servers only, has no part in it.
        """
        moving = self.unstopped - self.stalled.keys()
        if not self.stalled or any(self._alive.get(member, 0) > 0 for member in moving):
            return ""
        texts = [each for _, each in sorted(self.stalled.values())]
        more = f"; and {len(texts) - STALLS_MAX} more nodes" if len(texts) > STALLS_MAX else ""
        return "stalled: " + "; ".join(texts[:STALLS_MAX]) + more

    @property
    def has_done_its_work(self) -> bool:
        """Every worker, if it has any, ended well."""
        return 0 < self.workers <= self.workers_done

    def is_other_plan(self, digest: int) -> bool:
        if self._digest is None:
            self._digest = digest
        return digest != self._digest

    def add_loss(self, peer: MemberEntry, lost: Lost) -> None:
        """Record the loss of a node, whose part had not ended, as an exit among the others."""
        is_ours = lost.ending == "expelled" or peer.leaving != 0
        self.exits.append(
            Exit(
                role="node",
                rank=-1,
                node_rank=peer.assigned_rank or 0,
                host=peer.host.name,
                attempt=self.number,
                at_ns=lost.at_ns,
                code=lost.exit_code,
                cause="node-lost",
                by_us=is_ours or self._is_late(lost),
                tail=lost.how,
            )
        )

    def _is_late(self, lost: Lost) -> bool:
        """Return True if a node was lost too late to be the root cause of the stop.

        A silent node is noticed late, and its peers' "connection reset" comes before.
        """
        first_ns = min((e.at_ns for e in self.exits if e.failed), default=None)
        return first_ns is not None and lost.at_ns - self._noticed_ns > first_ns


@value
class AttemptSummary:
    """The facts from which judge decides what follows a stopped attempt.

    attempt: the one that is now; stopped: it, or the one before while nodes are awaited.
    asked_signal: the job as a whole was told to stop; asked_by_loss: by no signal, but a node
    lost what it needs. leaving: signals of the nodes that were told to leave, by node rank.
    expellable: node ranks that the others could go on without. futile: NextAttempt.futile of the
    attempt before, "" where another coordinator judged that.
    """

    job: Job
    attempt: int
    stopped: Attempt
    used_restarts: int
    total_restarts: int
    ran_seconds: float
    asked_signal: int = 0
    asked_reason: str = ""
    asked_by_loss: bool = False
    warnings: tuple[str, ...] = ()
    leaving: tuple[tuple[int, int], ...] = ()
    expellable: tuple[int, ...] = ()
    futile: str = ""

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
        is_clean = kind == "cancel" and all(e.ok for e in self.stopped.exits if e.role != "ps")
        return Verdict(
            kind,
            exit_code,
            reason,
            attempt=self.attempt,
            culprit=culprit,
            exits=tuple(self.stopped.exits),
            clean=is_clean,
            restarts=self.total_restarts,
            warnings=self.warnings,
        )

    def succeeded(self) -> Verdict:
        return self.verdict(
            "succeed", 0, self.stopped.reason if self.stopped.why == "success" else ""
        )

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

    again: after how long, and what it costs. expelled: this node rank goes, it failed. futile: the
    last words of all ranks that failed, where a restart does not mend them; "" otherwise.
    """

    text: str
    again: Retry
    culprit: Exit | None = None
    expelled: int | None = None
    futile: str = ""

    @property
    def is_restart(self) -> bool:
        """True when it counts as a restart: ranks failed or stalled, and their nodes stay."""
        return self.expelled is None and bool(self.again.reason)


def decide_next(summary: AttemptSummary) -> Verdict | NextAttempt:
    """Decide what follows a stopped attempt: the verdict of the job, or another attempt."""
    stopped = summary.stopped
    if stopped.why == "success":
        return summary.succeeded()
    if stopped.why == "deadline":
        return summary.verdict("fail", EXIT_DEADLINE, stopped.reason + unfinished(stopped.exits))
    if stopped.why == "stall":
        return _decide_after_stall(summary)
    if stopped.why == "failure":
        return _decide_after_failure(summary)
    if summary.asked_signal:
        return summary.ended_as_asked()
    done = sum(1 for e in stopped.exits if e.ok and not e.by_us and e.role in WORKER_ROLES)
    if 0 < stopped.workers <= done:
        return summary.succeeded()  # the change came when all was done
    return NextAttempt(stopped.reason, Retry(0.0, summary.used_restarts, ""))


def decide_end(summary: AttemptSummary) -> Verdict:
    """Judge an attempt whose processes have all ended, and nothing had made it stop."""
    if summary.stopped.workers_done >= summary.stopped.workers:
        return summary.succeeded()
    text = "every node says that its processes ended, but not how all of them did"
    return summary.failed(text, find_culprit(summary.stopped.exits))


def _decide_after_failure(summary: AttemptSummary) -> Verdict | NextAttempt:
    culprit = find_culprit(summary.stopped.exits)
    if culprit is None:
        return summary.failed(summary.stopped.reason)
    was_asked = _was_asked(summary, culprit)
    futile = _futile_words(summary)
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
            is_futile=futile != "" and futile == summary.futile,
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
    return NextAttempt(text, again, culprit, expelled, futile)


def _futile_words(summary: AttemptSummary) -> str:
    """The last words of the ranks that failed, if they are alike and another start mends nothing.

    Only of an attempt that ended at its start: a restart may go on from a checkpoint.
    """
    failed = [e for e in summary.stopped.exits if e.failed]
    if summary.job.restart.max_restarts <= 0 or summary.ran_seconds > START_SECONDS or not failed:
        return ""
    from paddock.core.attempt.termination import futile_line  # not on the way to the first rank

    words = {futile_line(e.tail, e.exit_code) for e in failed}
    return words.pop() if len(words) == 1 else ""


def _decide_after_stall(summary: AttemptSummary) -> Verdict | NextAttempt:
    if summary.asked_signal:
        return summary.ended_as_asked()
    reason = summary.stopped.reason
    found: Retry | NoRetry = NoRetry("")
    if summary.job.on_stall == "restart":
        used, ran = summary.used_restarts, summary.ran_seconds
        found = decide_restart(summary.job.restart, None, used=used, ran_seconds=ran)
    if isinstance(found, Retry):
        return NextAttempt(_restart_text(reason, found), found)
    return summary.verdict("fail", EXIT_DEADLINE, reason + (found.reason and f"; {found.reason}"))


def _restart_text(what: str, again: Retry) -> str:
    delay = f" in {again.delay_seconds:.1f} s" if again.delay_seconds else ""
    return f"restarting ({what}; {again.reason}{delay})"


def _was_asked(summary: AttemptSummary, culprit: Exit) -> bool:
    """Return True if the signal that ended it went to its launcher too (batch step)."""
    asked = dict(summary.leaving).get(culprit.node_rank, summary.asked_signal)
    # A shell, or a program that catches it, ends with that exit code.
    return asked != 0 and culprit.exit_code == EXIT_SIGNAL_BASE + asked
