"""The status of a job: read back with no trust, written whole, the same for the same facts. Pure.

Only phases that readers of the old operator know: Pending, Starting, Running,
Restarting, Completed, Failed, Terminating. What is new stands in conditions, reason and message.

The memory of the controller is here, so that it may be killed at any point: which attempt it is,
whether that attempt's gate was opened, how many failures counted, when the next attempt may begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from paddock.kube.objects import rfc3339, seconds
from paddock.operator.indexes import read_indexes, write_indexes
from paddock.operator.spec import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.kube.objects import Meta
    from paddock.operator.outcome import Outcome
    from paddock.operator.spec import JobSpec, RoleName

TERMINAL = ("Completed", "Failed")
# Failed for now: nothing ran, or can; a change of the spec is looked at again.
REOPENED = ("InvalidSpec", "InvalidTemplate")
STATES = ("pending", "starting", "running", "failed", "succeeded", "unknown")
REFS_MAX = 200  # pods named per role; all are counted
MESSAGE_MAX = 1024  # characters
NUMBER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, as `kubectl describe` shows it. since: RFC 3339."""

    type: str
    status: bool
    reason: str
    message: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the controller has to remember between two passes.

    gate: the attempt whose gate was opened, -1 for none. counted: failures since the job was last
    healthy. restarts, disruptions: of all time, for people. done: finished replicas of the attempt.
    replacing: uids of failed pods that were counted and are to be made again alone. rendezvous:
    where all elastic pods of the attempt meet, their PADDLE_MASTER.
    """

    attempt: int = 0
    gate: int = -1
    gate_at: float = 0.0
    next_at: float = 0.0
    counted: int = 0
    restarts: int = 0
    disruptions: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0
    host_port: int = 0
    done: frozenset[tuple[RoleName, int]] = frozenset()
    last_failure: Mapping[str, object] = field(default_factory=dict)
    restart_why: str = ""
    replacing: frozenset[str] = frozenset()
    rendezvous: str = ""

    @property
    def failed_at(self) -> float:
        """When a pod last failed, 0.0 if none did."""
        return _time(self.last_failure.get("finishedAt"))


@dataclass(frozen=True, slots=True)
class Previous:
    """The status as it was read."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    mode: str = ""
    observed_generation: int = 0
    memory: Memory = field(default_factory=Memory)
    conditions: tuple[Condition, ...] = ()
    roles: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True when the job has ended for good."""
        return self.phase in TERMINAL and self.reason not in REOPENED


def read_status(raw: object) -> Previous:
    """The previous status; whatever is missing or of a wrong type is as if never written."""
    found = raw if isinstance(raw, dict) else {}
    roles: dict[str, Mapping[str, object]] = {
        r: found[r] for r in ROLES if isinstance(found.get(r), dict)
    }
    done = frozenset(
        (role, index)
        for role in ROLES
        for index in read_indexes(_text(roles.get(role, {}).get("completedIndexes")))
    )
    failure = found.get("lastFailure")
    memory = Memory(
        attempt=_number(found.get("attempt")),
        gate=_number(found.get("startedAttempt"), -1),
        gate_at=_time(found.get("attemptStartTime")),
        next_at=_time(found.get("nextAttemptTime")),
        counted=_number(found.get("countedFailures")),
        restarts=_number(found.get("restarts")),
        disruptions=_number(found.get("disruptions")),
        started_at=_time(found.get("startTime")),
        ended_at=_time(found.get("completionTime")),
        host_port=_number(found.get("hostPort")),
        done=done,
        last_failure=failure if isinstance(failure, dict) else {},
        restart_why=_text(found.get("restartReason")),
        replacing=frozenset(filter(None, map(_text, _list(found.get("replacing"))))),
        rendezvous=_text(found.get("rendezvous")),
    )
    return Previous(
        phase=_text(found.get("phase")),
        reason=_text(found.get("reason")),
        message=_text(found.get("message")),
        mode=_text(found.get("mode")),
        observed_generation=_number(found.get("observedGeneration")),
        memory=memory,
        conditions=_read_conditions(found.get("conditions")),
        roles=roles,
    )


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything a status says, before it is written."""

    phase: str
    reason: str
    message: str
    memory: Memory
    spec: JobSpec | None
    conditions: tuple[Condition, ...]
    pods: tuple[Outcome, ...] = ()
    elastic: str = ""


def write_status(
    picture: Picture, previous: Previous, *, job: str, namespace: str, generation: int, now: float
) -> dict[str, object]:
    """The whole status. The same picture of the same job gives the same bytes."""
    memory, spec = picture.memory, picture.spec
    found: dict[str, object] = {
        "phase": picture.phase,
        "mode": spec.mode if spec is not None else previous.mode or None,
        "reason": picture.reason or None,
        "message": picture.message[:MESSAGE_MAX] or None,
        "observedGeneration": generation,
        "attempt": memory.attempt,
        "startedAttempt": memory.gate if memory.gate >= 0 else None,
        "attemptStartTime": _stamp(memory.gate_at),
        "nextAttemptTime": _stamp(memory.next_at),
        "restartReason": memory.restart_why or None,
        "countedFailures": memory.counted or None,
        "restarts": memory.restarts,
        "disruptions": memory.disruptions or None,
        "startTime": _stamp(memory.started_at),
        "completionTime": _stamp(memory.ended_at),
        "hostPort": memory.host_port or None,
        "lastFailure": dict(memory.last_failure) or None,
        "replacing": sorted(memory.replacing) or None,
        "rendezvous": memory.rendezvous or None,
        "elastic": picture.elastic or None,
        "conditions": _write_conditions(picture.conditions, previous.conditions, now),
    }
    wanted = sum(role.replicas for role in spec.roles) if spec is not None else 0
    ready = sum(1 for o in picture.pods if o.state == "running")
    if spec is not None:
        found["ready"] = f"{ready}/{wanted}"
        found["replicas"] = sum(1 for o in picture.pods if o.role == "worker")
        found["selector"] = f"batch.paddlepaddle.org/job-name={job},paddle-res-type=worker"
        for role in ROLES:
            if spec.role(role) is not None:
                pods = tuple(o for o in picture.pods if o.role == role)
                found[role] = _role_status(role, pods, memory, namespace)
    return {name: value for name, value in found.items() if value is not None}


def kept(previous: Previous, raw: object, **changes: object) -> dict[str, object]:
    """The previous status with a few fields changed; None removes one."""
    found = dict(raw) if isinstance(raw, dict) else {}
    found.update(changes)
    return {name: value for name, value in found.items() if value is not None}


def recounted(
    previous: Previous, raw: object, spec: JobSpec, pods: tuple[Outcome, ...], job: Meta
) -> dict[str, object]:
    """The status of a job that is over, with its pods counted anew; what has ended stays counted.

    pods: those that are there and stay.
    """
    running = sum(1 for o in pods if o.state == "running")
    changes: dict[str, object] = {
        "ready": f"{running}/{spec.replicas}",
        "replicas": sum(1 for o in pods if o.role == "worker"),
    }
    for role in spec.roles:
        before = previous.roles.get(role.name, {})
        ours = tuple(o for o in pods if o.role == role.name)
        found = _role_status(role.name, ours, previous.memory, job.namespace)
        for state in ("failed", "succeeded"):
            found.pop(state, None)
            there = sum(1 for o in ours if o.state == state)
            if count := max(there, _number(before.get(state))):
                found[state] = count
        changes[role.name] = found
    return kept(previous, raw, **changes)


def with_condition(
    conditions: tuple[Condition, ...], type_: str, status: bool, reason: str, message: str = ""
) -> tuple[Condition, ...]:
    """The conditions with one of them set."""
    others = tuple(c for c in conditions if c.type != type_)
    return (*others, Condition(type_, status, reason, message[:MESSAGE_MAX]))


def _role_status(
    role: RoleName, pods: tuple[Outcome, ...], memory: Memory, namespace: str
) -> dict[str, object]:
    counts = dict.fromkeys(STATES, 0)
    for pod in pods:
        counts["unknown" if pod.state == "lost" else pod.state] += 1
    found: dict[str, object] = {state: n for state, n in counts.items() if n}
    done = sorted(index for name, index in memory.done if name == role)
    gone = len(set(done) - {pod.index for pod in pods})
    if gone:  # its pod was removed after it had succeeded
        found["succeeded"] = counts["succeeded"] + gone
    if done:
        found["completedIndexes"] = write_indexes(done)
    refs = [
        {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": o.name, "uid": o.uid}
        for o in sorted(pods, key=lambda o: o.index)[:REFS_MAX]
    ]
    if refs:
        found["refs"] = refs
    return found


def _write_conditions(
    conditions: tuple[Condition, ...], previous: tuple[Condition, ...], now: float
) -> list[dict[str, object]]:
    """Sorted by type; a condition that says the same keeps its time."""
    before = {c.type: c for c in previous}
    found: list[dict[str, object]] = []
    for condition in sorted(conditions, key=lambda c: c.type):
        old = before.get(condition.type)
        since = old.since if old is not None and old.status == condition.status else ""
        entry: dict[str, object] = {
            "type": condition.type,
            "status": "True" if condition.status else "False",
            "reason": condition.reason,
            "lastTransitionTime": since or rfc3339(now),
        }
        if condition.message:
            entry["message"] = condition.message
        found.append(entry)
    return found


def _read_conditions(raw: object) -> tuple[Condition, ...]:
    found: dict[str, Condition] = {}  # of one type, the last one
    for entry in _list(raw):
        if isinstance(entry, dict) and isinstance(entry.get("type"), str):
            since = _text(entry.get("lastTransitionTime"))
            found[entry["type"]] = Condition(
                entry["type"],
                entry.get("status") == "True",
                _text(entry.get("reason")),
                _text(entry.get("message")),
                since,
            )
    return tuple(found.values())


def changed(memory: Memory, **changes: object) -> Memory:
    """The memory with some fields changed."""
    return replace(memory, **changes)  # type: ignore[arg-type]  # checked by replace itself


def _stamp(at: float) -> str | None:
    return rfc3339(at) if at else None


def _time(raw: object) -> float:
    try:  # Times before 1970 are Go's time 0, or nonsense.
        return max(seconds(raw), 0.0) if isinstance(raw, str) else 0.0
    except (ValueError, OverflowError, OSError):  # a year that no clock has
        return 0.0


def _number(raw: object, default: int = 0) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw > NUMBER_MAX:
        return default
    return max(raw, default)


def _list(raw: object) -> list[object]:
    return raw if isinstance(raw, list) else []


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else ""
