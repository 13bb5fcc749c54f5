"""The restart policy: is a failed attempt followed by another, and after how long?

One pure function over a table of causes. No I/O, no clock: times come in as numbers.
"""

from __future__ import annotations

from paddock.core.attempt.exits import CAUSES
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.attempt.exits import Exit
    from paddock.core.job import Restart
    from paddock.core.value import ExitCode

    VerdictKind = Literal["succeed", "fail", "cancel"]

# Paddle's legacy elastic contract (fleet/elastic/manager.py): 101 "restart me", 102 "relaunch me".
ASKS_RESTART = (101, 102)
# Restarting cannot mend these: the program is not there.
NEVER_RESTART = ("not-found", "not-executable")


@value
class Verdict:
    """The outcome of a job. clean: cancelled, and every process saved and exited 0.

    job_continues: it ended for this node only, which left or was let go. warnings: of its nodes.
    """

    kind: VerdictKind
    exit_code: ExitCode
    reason: str
    attempt: int = 0
    culprit: Exit | None = None
    exits: tuple[Exit, ...] = ()
    clean: bool = False
    job_continues: bool = False
    restarts: int = 0
    warnings: tuple[str, ...] = ()


@value
class Retry:
    """Try again after delay_seconds; used counts restarts spent from the budget."""

    delay_seconds: float
    used: int
    reason: str


@value
class NoRetry:
    """Do not try again, and why."""

    reason: str


def decide_restart(
    restart: Restart,
    culprit: Exit | None,
    *,
    used: int,
    ran_seconds: float,
    is_futile: bool = False,
) -> Retry | NoRetry:
    """Decide whether a failed attempt is restarted, and after how long (exponential backoff).

    culprit: None for ranks that stalled. used: restarts already spent. ran_seconds: how long the
    failed attempt ran. is_futile: the attempt before ended in the same way, and so would the next.
    """
    if culprit is not None and culprit.cause in NEVER_RESTART:
        return NoRetry("the program cannot be started")
    if restart.max_restarts <= 0:
        return NoRetry("")
    if culprit is not None and not _is_restartable(restart.restart_on, culprit):
        return NoRetry(f"--restart-on {','.join(restart.restart_on)} does not cover this cause")
    if is_futile and culprit is not None and str(culprit.exit_code) not in restart.restart_on:
        return NoRetry("it ended so twice at its start, and would again")
    if ran_seconds >= restart.healthy_seconds:
        used = 0
    if used >= restart.max_restarts:
        return NoRetry(f"no restart is left of {restart.max_restarts} (--max-restart)")
    delay = 0.0 if used == 0 else restart.backoff_initial_seconds * 2.0 ** min(used - 1, 32)
    delay = min(delay, restart.backoff_max_seconds)
    return Retry(delay, used + 1, f"restart {used + 1} of {restart.max_restarts}")


def _is_restartable(restart_on: tuple[str, ...], culprit: Exit) -> bool:
    if not restart_on:
        return True
    return (
        "any" in restart_on
        or culprit.cause in restart_on
        or (culprit.cause == "oom" and "signal" in restart_on and "oom" not in restart_on)
        or str(culprit.exit_code) in restart_on
        or culprit.code in ASKS_RESTART
    )


def restart_words() -> tuple[str, ...]:
    """The names that --restart-on accepts besides exit codes."""
    return ("any", *CAUSES)
