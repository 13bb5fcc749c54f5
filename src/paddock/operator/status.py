"""The status of a job: read back with no trust, written whole, the same for the same facts. Pure.

Only phases that readers of the old operator know: Pending, Starting, Running,
Restarting, Completed, Failed, Terminating. What is new stands in conditions, reason and message.

The controller keeps its state here, so that it may be killed at any point: which attempt it is,
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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from paddock.kube.objects import rfc3339, seconds
from paddock.operator.messages import unknown_fields_text
from paddock.operator.schema import REPLICAS_MAX
from paddock.operator.spec import ROLES, RoleName, as_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from paddock.kube.objects import Meta
    from paddock.operator.decision import ObservedState
    from paddock.operator.outcome import Outcome
    from paddock.operator.spec import JobSpec

    ConditionValue = tuple[bool, str, str]  # status, reason and message of a condition

TERMINAL = ("Completed", "Failed")
# Failed for now: nothing ran, or can; a change of the spec is looked at again.
REOPENED = ("InvalidSpec", "InvalidTemplate")
CONDITIONS = (
    "Valid", "PodsCreated", "GangScheduled", "Running", "Restarting", "Suspended", "Completed",
    "Failed",
)  # fmt: skip
STATES = ("pending", "starting", "running", "failed", "succeeded", "unknown")
REFS_MAX = 200  # pods named per role; all are counted
MESSAGE_MAX = 1024  # characters
NUMBER_MAX = 2**31 - 1
INDEXES = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4})?)?")
INDEXES_TEXT_MAX = 10 * REPLICAS_MAX  # more than all of them need


@dataclass(frozen=True, slots=True)
class JobCondition:
    """A condition, as `kubectl describe` shows it. since: RFC 3339."""

    status: bool
    reason: str
    message: str = ""
    since: str = ""


class ControllerState(msgspec.Struct, frozen=True, rename="camel"):
    """The controller's state between two passes, by the names that the status has.

    started_attempt: the last whose pods could begin, -1 for none. counted_failures: since the job
    was last healthy. restarts, disruptions: of all time, for people. done: finished replicas of the
    attempt. replacing: uids of pods that failed or were lost, were counted, and are to be made
    again alone. rendezvous: where all elastic pods of the attempt meet, their PADDLE_MASTER.
    unknown_fields: those that the API server left out of its pods.
    """

    attempt: int = 0
    started_attempt: int = -1
    attempt_start_time: float = 0.0
    next_attempt_time: float = 0.0
    restart_reason: str = ""
    counted_failures: int = 0
    restarts: int = 0
    disruptions: int = 0
    start_time: float = 0.0
    completion_time: float = 0.0
    host_port: int = 0
    last_failure: dict[str, object] = {}
    replacing: frozenset[str] = frozenset()
    rendezvous: str = ""
    unknown_fields: frozenset[str] = frozenset()
    done: frozenset[tuple[RoleName, int]] = frozenset()

    @property
    def failed_at(self) -> float:
        """When a pod last failed, 0.0 if none did."""
        return _time(self.last_failure.get("finishedAt"))


replace_state = msgspec.structs.replace


class ParsedStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status as it was read. uids: of the pods that it names.

    is_pruned: the definition, one of paddle-operator's, keeps little of what we write.
    """

    phase: str = ""
    reason: str = ""
    message: str = ""
    mode: str = ""
    observed_generation: int = 0
    state: ControllerState = ControllerState()
    conditions: dict[str, JobCondition] = {}
    roles: dict[RoleName, Mapping[str, object]] = {}
    uids: dict[str, str] = {}
    is_pruned: bool = False


def has_ended(phase: object, reason: object) -> bool:
    """True when a job of that phase and reason has ended for good."""
    return phase in TERMINAL and reason not in REOPENED


def read_status(raw: object) -> ParsedStatus:
    """The previous status; whatever is missing or of a wrong type is as if never written."""
    if not isinstance(raw, dict):
        return ParsedStatus()
    found: dict[str, Any] = raw
    roles: dict[RoleName, Mapping[str, object]] = {
        r: found[r] for r in ROLES if isinstance(found.get(r), dict)
    }
    done: frozenset[tuple[RoleName, int]] = frozenset(
        (role, index)
        for role, counts in roles.items()
        for index in read_indexes(_text(counts.get("completedIndexes")))
    )
    return ParsedStatus(
        **_decode(ParsedStatus, found),
        state=ControllerState(**_decode(ControllerState, found), done=done),
        conditions={  # of one type, the last one
            entry["type"]: JobCondition(
                entry.get("status") == "True",
                _text(entry.get("reason")),
                _text(entry.get("message")),
                _text(entry.get("lastTransitionTime")),
            )
            for entry in as_list(found.get("conditions"))
            if isinstance(entry, dict) and isinstance(entry.get("type"), str)
        },
        roles=roles,
        uids={
            _text(ref.get("name")): _text(ref.get("uid"))
            for of_role in roles.values()
            for ref in as_list(of_role.get("refs"))
            if isinstance(ref, dict)
        },
        is_pruned=bool(found.get("phase")) and "attempt" not in found,
    )


def _decode(
    shape: type[ParsedStatus | ControllerState], raw: Mapping[str, object]
) -> dict[str, Any]:
    """The fields of a struct that a status has under the same name, by READERS."""
    return {
        name: read(raw[key], default) for name, key, default, read in FIELDS[shape] if key in raw
    }


@dataclass(frozen=True, slots=True)
class StatusInput:
    """Everything a status says, before it is written.

    mistake: (reason, message) of what keeps a spec from being carried out; refused: the same of an
    object that cannot be made. gang: (pods may be made, reason, message), None without one.
    """

    phase: str
    reason: str
    message: str
    state: ControllerState
    spec: JobSpec | None = None
    pods: tuple[Outcome, ...] = ()
    mistake: tuple[str, str] | None = None
    refused: tuple[str, str] | None = None
    is_whole: bool = False
    gang: ConditionValue | None = None
    elastic: str = ""


def write_status(
    given: StatusInput, observed: ObservedState, previous: ParsedStatus, now: float
) -> dict[str, object]:
    """The whole status. The same picture of the same job gives the same bytes."""
    state, spec, job = given.state, given.spec, observed.job.metadata
    found: dict[str, object] = {
        "phase": given.phase,
        "mode": spec.mode if spec is not None else previous.mode or None,
        "reason": given.reason or None,
        "message": given.message[:MESSAGE_MAX] or None,
        "observedGeneration": job.generation,
        "attempt": state.attempt,
        "restarts": state.restarts,
    }
    for name, key, default, _ in FIELDS[ControllerState]:
        value = getattr(state, name)
        if value not in (default, {}):
            value = rfc3339(value) if isinstance(value, float) else value
            found[key] = sorted(value) if isinstance(value, frozenset) else value
    conditions: list[dict[str, object]] = []
    # Nothing of the job is there, or is to be.
    is_at_rest = given.reason in ("Suspended", *REOPENED) and given.phase in ("Pending", "Failed")
    # Sorted by type; one that says the same keeps its time, an unknown one stays.
    for type_ in sorted({*CONDITIONS, *previous.conditions}):
        old = previous.conditions.get(type_)
        before = (old.status, old.reason, old.message) if old is not None else None
        if (entry := _condition(type_, given, before, is_at_rest)) is None:
            continue
        status, reason, message = entry
        since = old.since if old is not None and old.status == status else ""
        conditions.append({
            "type": type_,
            "status": "True" if status else "False",
            "reason": reason,
            "lastTransitionTime": since or rfc3339(now),
            "observedGeneration": job.generation,
            **({"message": message[:MESSAGE_MAX]} if message else {}),
        })  # fmt: skip
    found["conditions"] = conditions
    pods = given.pods
    if spec is not None or pods:
        ready = sum(1 for o in pods if o.state == "running")
        found["ready"] = f"{ready}/{spec.replicas if spec is not None else len(pods)}"
        found["replicas"] = sum(1 for o in pods if o.role == "worker")
        found["selector"] = f"batch.paddlepaddle.org/job-name={job.name},paddle-res-type=worker"
    for role in ROLES:
        ours = tuple(o for o in pods if o.role == role)
        if ours or (spec is not None and spec.role(role) is not None):
            found[role] = _role_status(role, ours, state, job.namespace)
    if given.elastic and given.phase not in TERMINAL and not is_at_rest:
        found["elastic"] = given.elastic
    return {name: value for name, value in found.items() if value is not None}


def with_changes(raw: object, changes: Mapping[str, object]) -> dict[str, object]:
    """The previous status with a few fields changed; None removes one."""
    found = dict(raw) if isinstance(raw, dict) else {}
    found.update(changes)
    return {name: value for name, value in found.items() if value is not None}


def recount_pods(
    previous: ParsedStatus, raw: object, spec: JobSpec, pods: tuple[Outcome, ...], job: Meta
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
        found = _role_status(role.name, ours, previous.state, job.namespace)
        for state in ("failed", "succeeded"):
            found.pop(state, None)
            there = sum(1 for o in ours if o.state == state)
            if count := max(there, _number(before.get(state))):
                found[state] = count
        changes[role.name] = found
    return with_changes(raw, changes)


def _role_status(
    role: RoleName, pods: tuple[Outcome, ...], state: ControllerState, namespace: str
) -> dict[str, object]:
    counts = dict.fromkeys(STATES, 0)
    for pod in pods:
        counts["unknown" if pod.state == "lost" else pod.state] += 1
    found: dict[str, object] = {state: n for state, n in counts.items() if n}
    done = sorted(index for name, index in state.done if name == role)
    gone = len(set(done) - {pod.index for pod in pods})
    if gone:  # its pod was removed after it had succeeded
        found["succeeded"] = counts["succeeded"] + gone
    if done:
        found["completedIndexes"] = write_indexes(done)
    refs = [
        {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": o.name, "uid": o.uid}
        for o in sorted(pods, key=lambda o: o.index)[:REFS_MAX]
        if o.attempt == state.attempt
    ]
    if refs:
        found["refs"] = refs
    return found


def _condition(
    type_: str, given: StatusInput, before: ConditionValue | None, is_at_rest: bool
) -> ConditionValue | None:
    """A row of the table above: the condition's new value, None where it is not there."""
    phase, reason, message = given.phase, given.reason, given.message
    if is_at_rest and type_ in ("PodsCreated", "GangScheduled", "Restarting"):
        return before and (False, reason, "")
    match type_:
        case "Valid" if given.mistake is not None:
            return False, *given.mistake
        case "Valid":
            warnings = given.spec.warnings if given.spec is not None else ()
            if given.state.unknown_fields:
                warnings += (unknown_fields_text(given.state.unknown_fields),)
            # What has no effect, or another one.
            return True, "Warnings" if warnings else "Accepted", "; ".join(warnings)
        case "PodsCreated" if given.refused is not None:
            return False, *given.refused
        case "PodsCreated" if given.is_whole:
            return True, "Created", ""
        case "GangScheduled":
            return given.gang or before
        case "Running":
            is_shown_elsewhere = is_at_rest or phase in TERMINAL
            return phase == "Running", reason or phase, "" if is_shown_elsewhere else message
        case "Restarting" if phase == "Restarting":  # why it does; not what it waits for meanwhile
            was = before[-1] if before else ""
            is_new = message == given.state.restart_reason and was != message[:MESSAGE_MAX]
            return (True, reason, message) if is_new else before
        case "Restarting":
            return before and (False, "Restarted" if phase == "Running" else phase, "")
        case "Suspended" if reason == "Suspended":
            return True, reason, message
        case "Suspended" if given.spec is not None:
            return before and (False, "Resumed", "")
        case "Completed" | "Failed":
            return (True, reason, message) if phase == type_ else None
    return before


def write_indexes(indexes: Iterable[int]) -> str:
    """Replica numbers as Kubernetes' indexed Jobs write them: sorted, with ranges.

    >>> write_indexes([7, 0, 1, 2, 3]), write_indexes([])
    ('0-3,7', '')
    """
    parts: list[list[int]] = []
    for index in sorted(set(indexes)):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def read_indexes(text: str) -> frozenset[int]:
    """The numbers of such a text; what is not one is left out.

    Anybody with the right to write a status may have written it, to keep the operator busy.

    >>> sorted(read_indexes("0-3,7,x,9-8"))
    [0, 1, 2, 3, 7]
    """
    found: set[int] = set()
    room = REPLICAS_MAX
    for part in text.split(",") if len(text) <= INDEXES_TEXT_MAX else ():
        if match := INDEXES.fullmatch(part):
            numbers = range(int(match[1]), int(match[2] or match[1]) + 1)[:room]
            room -= len(numbers)
            found.update(numbers)
    return frozenset(found)


def _time(raw: object, default: float = 0.0) -> float:
    try:  # Times before 1970 are Go's time 0, or nonsense.
        return max(seconds(raw), 0.0) if isinstance(raw, str) else 0.0
    except (ValueError, OverflowError, OSError):  # a year that no clock has
        return 0.0


def _number(raw: object, default: int = 0) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw > NUMBER_MAX:
        return default
    return max(raw, default)


def _text(raw: object, default: str = "") -> str:
    return raw if isinstance(raw, str) else default


# How a field of each type is read; one of another type stands elsewhere in a status.
READERS: Mapping[Any, Callable[[Any, Any], object]] = {
    int: _number,
    float: _time,  # RFC 3339
    str: _text,
    frozenset[str]: lambda raw, _: frozenset(filter(None, map(_text, as_list(raw)))),
    dict[str, object]: lambda raw, _: raw if isinstance(raw, dict) else {},
}
# Of each struct: name, name in the status, default, reader.
FIELDS = {
    shape: [
        (field.name, field.encode_name, field.default, READERS[field.type])
        for field in msgspec.structs.fields(shape)
        if field.type in READERS
    ]
    for shape in (ParsedStatus, ControllerState)
}
