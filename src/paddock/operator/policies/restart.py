"""This policy decides whether the job restarts after a failure: all pods, one replica, or the end.

The first rule of failurePolicy that fits decides. Without one:

| who is to blame | backoffLimit not given | backoffLimit N |
|---|---|---|
| the cluster (Evicted, Preempted, NodeLost, Deleted) | whole gang, 3 times | whole gang, N |
| the program (ExitCode, Signal, OOMKilled, Startup)  | the job fails       | whole gang, N |

backoffLimit is JobSet's maxRestarts. Failures are forgotten after healthy_seconds of running
(Settings), so that a job of weeks is not ended by its fourth node. The first restart is at once,
later ones wait, doubling. A replica of a role with restartScope Replica is made again alone, where
its address stays (intranet Service, DNS); without a backoffLimit its program, too, has 3 restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paddock.operator.spec import DISRUPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from paddock.operator.decision import OperatorSettings
    from paddock.operator.outcome import Outcome
    from paddock.operator.spec import JobSpec, RuleAction

DISRUPTIONS_MAX = 3  # restarts after disruptions when backoffLimit is not given
WORN_MAX = 10  # of a container in place, and of an elastic job's pods, without a backoffLimit
REPLICAS_MAX = 200  # made again alone in one pass: the status names them until they are gone


@dataclass(frozen=True, slots=True)
class RestartJob:
    """The whole gang again. limit: of such restarts, None for one that is not counted."""

    culprit: Outcome
    limit: int | None
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class RestartReplicas:
    """These pods again, each alone. counted: how many of them count against the limit."""

    replicas: tuple[Outcome, ...]
    counted_failures: int = 0


@dataclass(frozen=True, slots=True)
class FailJob:
    """The end. reason: one CamelCase word."""

    culprit: Outcome
    reason: str
    limit: int = 0


Verdict = RestartJob | RestartReplicas | FailJob


def decide_restart(
    failures: tuple[Outcome, ...],
    spec: JobSpec,
    settings: OperatorSettings,
    *,
    counted: int,
    is_queued: bool,
) -> Verdict | None:
    """The policy decides whether the job restarts; None when every failure is to be ignored.

    counted: failures against the limit since the job was last healthy. is_queued: Kueue holds the
    job and takes its pods when others need the place; that is no failure of anything, and not
    counted.
    """
    decided = [(o, action) for o in failures if (action := action_of(o, spec)) != "Ignore"]
    if not decided:
        return None
    for outcome, action in decided:
        if action == "Fail":
            return FailJob(outcome, "FailurePolicy")
    if spec.is_elastic:  # a failed pod is made again; those that are left go on meanwhile
        return _replace_alone(decided, counted, limit_of(spec, WORN_MAX))
    alone = [o for o, _ in decided if is_alone(o, spec)]
    together = [(o, action) for o, action in decided if o not in alone]
    if not together:
        return _replace_alone(decided, counted, limit_of(spec, DISRUPTIONS_MAX))
    culprit = find_culprit(tuple(o for o, _ in together))
    is_disruption = culprit.cause in DISRUPTIONS
    if is_queued and is_disruption and not culprit.is_closed_out:
        return RestartJob(culprit, None, 0.0)
    if action_of(culprit, spec) == "RestartUncounted":
        # Nothing else slows a program down that fails as it starts.
        wait = 0.0 if is_disruption else settings.backoff_initial_seconds
        return RestartJob(culprit, None, wait)
    limit = limit_of(spec, DISRUPTIONS_MAX if is_disruption else 0)
    if counted >= limit:
        return FailJob(culprit, "BackoffLimitExceeded" if limit else "PodFailed", limit)
    return RestartJob(culprit, limit, delay(counted, settings))


def action_of(outcome: Outcome, spec: JobSpec) -> RuleAction:
    """The failure policy's action for one failed pod; "Restart" is still subject to the limit."""
    for rule in spec.rules:
        if rule.roles and outcome.role not in rule.roles:
            continue
        if rule.causes and outcome.cause not in rule.causes:
            continue
        codes = rule.exit_codes
        if codes is not None and not codes.has(outcome.code_of(codes.container_name)):
            continue
        return rule.action
    return "Restart"


def _replace_alone(
    decided: Sequence[tuple[Outcome, RuleAction]], counted: int, limit: int
) -> Verdict:
    """Each of these again, alone. What the cluster took away does not count against the limit."""
    batch = decided[:REPLICAS_MAX]
    more = sum(action == "Restart" and o.cause not in DISRUPTIONS for o, action in batch)
    replicas = tuple(o for o, _ in batch)
    if more and counted + more > limit:
        return FailJob(find_culprit(replicas), "BackoffLimitExceeded", limit)
    return RestartReplicas(replicas, more)


def limit_of(spec: JobSpec, otherwise: int) -> int:
    """How many restarts a job has; otherwise: where no backoffLimit is given."""
    return otherwise if spec.backoff_limit is None else spec.backoff_limit


def is_alone(outcome: Outcome, spec: JobSpec) -> bool:
    """True when this replica is made again without the others."""
    if spec.is_elastic:
        return True
    role = spec.role(outcome.role)
    if role is None or outcome.is_closed_out:
        return False
    return role.restart_scope == "Replica" and spec.is_named


def delay(counted: int, settings: OperatorSettings) -> float:
    """Seconds before the next attempt, after so many counted failures.

    >>> from paddock.operator.decision import OperatorSettings
    >>> settings = OperatorSettings(backoff_initial_seconds=2.0, backoff_max_seconds=5.0)
    >>> [delay(n, settings) for n in range(4)]
    [0.0, 2.0, 4.0, 5.0]
    """
    if counted == 0:
        return 0.0
    wait = settings.backoff_initial_seconds * 2.0 ** min(counted - 1, 60)
    return min(settings.backoff_max_seconds, wait)


def find_culprit(failures: tuple[Outcome, ...]) -> Outcome:
    """The culprit (root cause): the first that failed by itself; its victims come later.

    What launchers say counts most: one that ended because of a rank elsewhere is a victim. A
    failure without a time (a deleted pod) comes after those with one; among equal times (Kubernetes
    has no fractions of a second) a program's own exit code before a signal, since survivors are
    often killed, and one that complains of a lost peer last. Who is equal in all of that is tied:
    the number of a pod says nothing of who was first.
    """

    def order(o: Outcome) -> tuple[bool, bool, float, int, bool]:
        own = {"ExitCode": 0, "OOMKilled": 0, "Startup": 1, "Signal": 3}.get(o.cause or "", 2)
        is_known = o.is_root or o.cause in DISRUPTIONS
        return (o.is_root is False, not is_known, o.at or float("inf"), own, o.has_lost_peer)

    first = min(failures, key=lambda o: (order(o), o.role, o.index))
    tied = (o.label for o in failures if o is not first and order(o) == order(first))
    return replace(first, tied=tuple(tied))


def named_by(culprit: Outcome, outcomes: Iterable[Outcome]) -> Outcome:
    """The pod in which the root cause was, where the launcher of another one names its host.

    The pod itself may not have ended yet, as far as the API server knows. outcomes: of all pods.
    """
    if culprit.is_root is not False or not culprit.blamed_host:
        return culprit
    others = [o for o in outcomes if o.name != culprit.name]
    host = culprit.blamed_host
    found = [o for o in others if o.name == host] or [o for o in others if o.node == host]
    if len(found) != 1:
        return culprit
    # Its launcher ends with the same exit code.
    return replace(
        found[0], cause=culprit.cause, exit_code=culprit.exit_code, at=culprit.at, is_root=True,
        why=culprit.why.replace(f" on {host}", "", 1), tied=(),
    )  # fmt: skip
