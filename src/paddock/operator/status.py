"""The status of a job: read back with no trust, written whole, the same for the same facts. Pure.

Only phases that readers of the old operator know: Pending, Starting, Running,
Restarting, Completed, Failed, Terminating. What is new stands in conditions, reason and message.

The memory of the controller is here, so that it may be killed at any point: which attempt it is,
whether that attempt's gate was opened, how many failures counted, when the next attempt may begin.

| condition | True | False; else as before, or not there |
|---|---|---|
| Valid         | the spec can be carried out  | it has mistakes, or no such pod can ever be made |
| PodsCreated   | no pod is missing            | one is refused; nothing is wanted any more |
| GangScheduled | the scheduler takes the gang | not yet; nothing is wanted any more |
| Running       | every pod runs               | otherwise |
| Restarting    | an attempt follows another   | it runs, or has ended |
| Suspended     | spec.suspend                 | no longer |
| Completed     | the phase is                 | |
| Failed        | the phase is: for good, or until the spec is corrected | |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.kube.objects import rfc3339, seconds
from paddock.operator.indexes import read_indexes, write_indexes
from paddock.operator.spec import ROLES
from paddock.operator.words import no_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.kube.objects import Meta
    from paddock.operator.decision import Observed
    from paddock.operator.outcome import Outcome
    from paddock.operator.spec import JobSpec, RoleName

    Said = tuple[bool, str, str]  # status, reason and message of a condition
    Rule = Callable[["Picture", "Said | None"], "Said | None"]

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
    replacing: uids of pods that failed or were lost, were counted, and are to be made again alone.
    rendezvous: where all elastic pods of the attempt meet, their PADDLE_MASTER. unknown: fields
    that the API server left out of its pods.
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
    unknown: frozenset[str] = frozenset()

    @property
    def failed_at(self) -> float:
        """When a pod last failed, 0.0 if none did."""
        return _time(self.last_failure.get("finishedAt"))


@dataclass(frozen=True, slots=True)
class Previous:
    """The status as it was read. uids: of the pods that it names.

    is_pruned: the definition, one of paddle-operator's, keeps little of what we write.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    mode: str = ""
    observed_generation: int = 0
    memory: Memory = field(default_factory=Memory)
    conditions: tuple[Condition, ...] = ()
    roles: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    uids: Mapping[str, str] = field(default_factory=dict)
    is_pruned: bool = False

    def condition(self, type_: str) -> Condition | None:
        """That condition, or None."""
        return next((c for c in self.conditions if c.type == type_), None)

    @property
    def is_over(self) -> bool:
        """True when the job has ended for good."""
        return has_ended(self.phase, self.reason)


def has_ended(phase: object, reason: object) -> bool:
    """Whether a job of that phase and reason has ended for good."""
    return phase in TERMINAL and reason not in REOPENED


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
        replacing=_texts(found.get("replacing")),
        rendezvous=_text(found.get("rendezvous")),
        unknown=_texts(found.get("unknownFields")),
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
        uids={
            _text(ref.get("name")): _text(ref.get("uid"))
            for of_role in roles.values()
            for ref in _list(of_role.get("refs"))
            if isinstance(ref, dict)
        },
        is_pruned=bool(found.get("phase")) and "attempt" not in found,
    )


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything a status says, before it is written.

    mistake: (reason, message) of what keeps a spec from being carried out; refused: the same of an
    object that cannot be made. gang: (pods may be made, reason, message), None without one.
    """

    phase: str
    reason: str
    message: str
    memory: Memory
    spec: JobSpec | None = None
    pods: tuple[Outcome, ...] = ()
    mistake: tuple[str, str] | None = None
    refused: tuple[str, str] | None = None
    is_whole: bool = False
    gang: Said | None = None
    elastic: str = ""

    @property
    def is_at_rest(self) -> bool:
        """True when nothing of the job is there, or is to be."""
        return self.reason in ("Suspended", *REOPENED) and self.phase in ("Pending", "Failed")


def write_status(
    picture: Picture, observed: Observed, previous: Previous, now: float
) -> dict[str, object]:
    """The whole status. The same picture of the same job gives the same bytes."""
    memory, spec, job = picture.memory, picture.spec, observed.job.metadata
    found: dict[str, object] = {
        "phase": picture.phase,
        "mode": spec.mode if spec is not None else previous.mode or None,
        "reason": picture.reason or None,
        "message": picture.message[:MESSAGE_MAX] or None,
        "observedGeneration": job.generation,
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
        "unknownFields": sorted(memory.unknown) or None,
        "conditions": _write_conditions(picture, previous, job.generation, now),
    }
    pods = picture.pods
    if spec is not None or pods:
        ready = sum(1 for o in pods if o.state == "running")
        found["ready"] = f"{ready}/{spec.replicas if spec is not None else len(pods)}"
        found["replicas"] = sum(1 for o in pods if o.role == "worker")
        found["selector"] = f"batch.paddlepaddle.org/job-name={job.name},paddle-res-type=worker"
    for role in ROLES:
        ours = tuple(o for o in pods if o.role == role)
        if ours or (spec is not None and spec.role(role) is not None):
            found[role] = _role_status(role, ours, memory, job.namespace)
    if picture.elastic and picture.phase not in TERMINAL and not picture.is_at_rest:
        found["elastic"] = picture.elastic
    return {name: value for name, value in found.items() if value is not None}


def kept(raw: object, changes: Mapping[str, object]) -> dict[str, object]:
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
    return kept(raw, changes)


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
        if o.attempt == memory.attempt
    ]
    if refs:
        found["refs"] = refs
    return found


def _valid(picture: Picture, before: Said | None) -> Said | None:
    if picture.mistake is not None:
        return False, *picture.mistake
    warnings = picture.spec.warnings if picture.spec is not None else ()
    if picture.memory.unknown:
        warnings += (no_effect(picture.memory.unknown),)
    if warnings:  # what has no effect, or another one
        return True, "Warnings", "; ".join(warnings)
    return True, "Accepted", ""


def _pods_created(picture: Picture, before: Said | None) -> Said | None:
    if picture.is_at_rest:
        return before and (False, picture.reason, "")
    if picture.refused is not None:
        return False, *picture.refused
    return (True, "Created", "") if picture.is_whole else before


def _gang_scheduled(picture: Picture, before: Said | None) -> Said | None:
    if picture.is_at_rest:
        return before and (False, picture.reason, "")
    return picture.gang or before


def _running(picture: Picture, before: Said | None) -> Said | None:
    is_told_elsewhere = picture.is_at_rest or picture.phase in TERMINAL
    message = "" if is_told_elsewhere else picture.message
    return picture.phase == "Running", picture.reason or picture.phase, message


def _restarting(picture: Picture, before: Said | None) -> Said | None:
    if picture.is_at_rest:
        return before and (False, picture.reason, "")
    if picture.phase == "Restarting":  # why it does; not what it waits for meanwhile
        why = picture.message
        is_new = why == picture.memory.restart_why and (before or ("",))[-1] != why[:MESSAGE_MAX]
        return (True, picture.reason, why) if is_new else before
    return before and (False, "Restarted" if picture.phase == "Running" else picture.phase, "")


def _suspended(picture: Picture, before: Said | None) -> Said | None:
    if picture.reason == "Suspended":
        return True, picture.reason, picture.message
    return before if picture.spec is None else before and (False, "Resumed", "")


def _ended(phase: str) -> Rule:
    def rule(picture: Picture, before: Said | None) -> Said | None:
        is_it = picture.phase == phase
        return (True, picture.reason, picture.message) if is_it else None

    return rule


# The table above: what each says of a picture, and of what it said before; None: it is not there.
CONDITIONS: Mapping[str, Rule] = {
    "Valid": _valid,
    "PodsCreated": _pods_created,
    "GangScheduled": _gang_scheduled,
    "Running": _running,
    "Restarting": _restarting,
    "Suspended": _suspended,
    "Completed": _ended("Completed"),
    "Failed": _ended("Failed"),
}


def _write_conditions(
    picture: Picture, previous: Previous, generation: int, now: float
) -> list[dict[str, object]]:
    """Sorted by type; a condition that says the same keeps its time, an unknown one stays."""
    found: list[dict[str, object]] = []
    for type_ in sorted({*CONDITIONS, *(c.type for c in previous.conditions)}):
        old = previous.condition(type_)
        before = (old.status, old.reason, old.message) if old is not None else None
        said = CONDITIONS[type_](picture, before) if type_ in CONDITIONS else before
        if said is None:
            continue
        status, reason, message = said
        is_same = old is not None and old.status == status
        entry: dict[str, object] = {
            "type": type_,
            "status": "True" if status else "False",
            "reason": reason,
            "lastTransitionTime": (old.since if old is not None and is_same else "")
            or rfc3339(now),
            "observedGeneration": generation,
        }
        if message:
            entry["message"] = message[:MESSAGE_MAX]
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


def _texts(raw: object) -> frozenset[str]:
    return frozenset(filter(None, map(_text, _list(raw))))


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else ""
