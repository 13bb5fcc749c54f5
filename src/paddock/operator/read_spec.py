"""The raw spec of a PaddleJob -> JobSpec, or everything that is wrong with it. Never raises.

validation.py has judged each field by itself before this reads what they mean together. The rules
here are those of manifests/rules.py, which an older definition does not have. No I/O.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, cast, get_args

from paddock.operator.schema import JOB_NAME, NAME_MAX, TREE
from paddock.operator.spec import (
    ROLES,
    CleanPodPolicy,
    FailureRule,
    GangSpec,
    Intranet,
    JobSpec,
    RestartScope,
    RoleSpec,
    RuleAction,
    SampleSet,
    SuccessPolicy,
)
from paddock.operator.validation import ProblemList, as_mapping, check, printable, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.errors import Problem
    from paddock.operator.spec import Cause, RoleName

AUTO_ELASTIC_LEVEL = 1  # workers start again among themselves, as PADDLE_ELASTIC_LEVEL 1
# What cleanPodPolicy says -> what is done. deepfm.yaml of paddle-operator says OnFailed.
CLEAN: Mapping[str, CleanPodPolicy] = {
    **{word: word for word in get_args(CleanPodPolicy)}, "OnFailed": "OnFailure",
}  # fmt: skip
INTRANET: Mapping[str, Intranet] = {word: word for word in get_args(Intranet)}


def read_spec(
    name: str, raw: object, *, intranet: Intranet = "DNS"
) -> tuple[JobSpec | None, tuple[Problem, ...]]:
    """The job, or None and its problems. name: metadata.name. raw: spec as it came.

    intranet: where the spec says nothing of it.

    >>> pod = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    >>> job, _ = read_spec("mnist", {"worker": {"replicas": 2, "template": pod}})
    >>> job.mode, job.replicas
    ('Collective', 2)
    >>> [p.message for p in read_spec("mnist", {})[1]]
    ['spec: no role has replicas above 0']
    """
    found = ProblemList()
    spec = as_mapping(check(raw, TREE["spec"], "spec", found))
    elastic_level = _elastic_level(spec)
    roles = tuple(
        role
        for role_name in ROLES
        if (role := _role(role_name, spec, elastic_level is not None, found)) is not None
    )
    _check_name(name, roles, found)
    _check_together(raw, spec, roles, elastic_level, found)
    if found.problems:
        return None, found.all_problems()
    return _job(spec, roles, elastic_level, _intranet(spec, intranet, found), found), ()


def read_seconds(raw: object, name: str) -> int | None:
    """A limit in time, also of a spec with mistakes elsewhere.

    >>> [read_seconds(raw, "ttl") for raw in ({"ttl": 60}, {}, None)]
    [60, None, None]
    """
    found = _number(as_mapping(raw), name)
    return found if found is not None and found >= 0 else None


def is_suspended(raw: object) -> bool:
    """Whether nothing of the job is to run, also of a spec with mistakes elsewhere."""
    return as_mapping(raw).get("suspend") is True


def _job(
    spec: Mapping[str, object],
    roles: tuple[RoleSpec, ...],
    elastic_level: int | None,
    intranet: Intranet,
    found: ProblemList,
) -> JobSpec:
    """The job, when nothing is wrong with it."""
    fixed = [role.name for role in roles if role.name != "worker"]
    if elastic_level is not None and fixed:  # servers are told who the workers are, once
        found.warning("spec.elastic", f"has no effect: a job with spec.{fixed[0]} is not elastic")
        elastic_level = None
    clean = _clean(spec, found)
    success = _success(spec, roles, found)
    gloo = _number(spec, "withGloo") or 0
    if gloo and not any(role.name == "ps" for role in roles):
        found.warning("spec.withGloo", f"{gloo} has no effect without spec.ps")
    sample_set = _sample_set(spec, found)
    for role in roles:
        if role.restart_scope == "Replica" and intranet not in ("Service", "DNS"):
            found.warning(f"spec.{role.name}.restartScope", "Replica needs intranet Service or DNS,"
                          " where a pod keeps its address; the whole job restarts")  # fmt: skip
    return JobSpec(
        roles=roles,
        mode=_mode(roles, elastic_level),
        intranet=intranet,
        clean_pod_policy=clean,
        with_gloo=gloo,
        elastic_level=elastic_level,
        gang=_gang(as_mapping(spec.get("schedulingPolicy"))),
        sample_set=sample_set,
        suspend=is_suspended(spec),
        ttl_seconds=_number(spec, "ttlSecondsAfterFinished"),
        deadline_seconds=_number(spec, "activeDeadlineSeconds"),
        backoff_limit=_number(spec, "backoffLimit"),
        success=success,
        rules=_rules(spec),
        warnings=tuple(found.warnings),
    )


def _number(values: Mapping[str, object], name: str) -> int | None:
    found = values.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _word(values: Mapping[str, object], name: str) -> str:
    found = values.get(name)
    return found if isinstance(found, str) else ""


def _items(values: Mapping[str, object], name: str) -> list[object]:
    found = values.get(name)
    return found if isinstance(found, list) else []


def _elastic_level(spec: Mapping[str, object]) -> int | None:
    """None when the job is not elastic. Below 0 says so whatever the workers' limits are."""
    level = _number(spec, "elastic")
    if level is not None:
        return level if level >= 0 else None
    worker = as_mapping(spec.get("worker"))
    is_range = _number(worker, "requests") is not None or bool(_number(worker, "limits"))
    return AUTO_ELASTIC_LEVEL if is_range else None


def _role(
    name: RoleName, spec: Mapping[str, object], is_elastic: bool, found: ProblemList
) -> RoleSpec | None:
    """A role, or None when it is absent or has no usable number of replicas."""
    path = f"spec.{name}"
    raw = as_mapping(spec.get(name))
    replicas, requests = _number(raw, "replicas"), _number(raw, "requests")
    limits = _number(raw, "limits") or None  # 0 says the same as nothing
    if requests is not None and limits is not None and requests > limits:
        found.problem(f"{path}.requests", f"{requests} is above {path}.limits, {limits}",
                      f"write {path}.requests: {limits} or less")  # fmt: skip
        return None
    is_range = is_elastic and name == "worker"
    if replicas is None or (replicas == 0 and not (is_range and requests is not None)):
        return None
    minimum = maximum = replicas
    if is_range:
        minimum = 1 if requests is None else requests
        maximum = max(minimum, limits or replicas)
    for field in ("requests", "limits"):
        if name != "worker" and field in raw:
            found.warning(f"{path}.{field}", "has no effect, only workers are elastic")
    wanted = min(max(replicas, minimum), maximum)
    if wanted != replicas:
        found.warning(f"{path}.replicas", f"{replicas} is not in {minimum}..{maximum}, the range"
                      f" of requests and limits; {wanted} are made")  # fmt: skip
    template = _template(f"{path}.template", raw, found)
    scope = cast(
        "RestartScope", _word(raw, "restartScope") or "Job"
    )  # validation.py knows the words
    return RoleSpec(name, wanted, minimum, maximum, template, scope)


def _template(path: str, raw: Mapping[str, object], found: ProblemList) -> Mapping[str, object]:
    """The pod template with metadata and spec; {} with a problem when it has no spec."""
    template = as_mapping(raw.get("template"))
    pod = template.get("spec")
    if not isinstance(pod, dict):
        if not any(p.message.startswith(path) for p in found.problems):
            found.problem(f"{path}.spec", "missing",
                          "write its containers, each with name and image")  # fmt: skip
        return {}
    names: set[str] = set()
    for at, container in enumerate(_items(pod, "containers")):
        name = _word(as_mapping(container), "name")
        if name and name in names:
            there = f"{path}.spec.containers[{at}].name"
            found.problem(there, f"{printable(name)} is the name of two containers", "rename one")
        names.add(name)
    metadata = as_mapping(template.get("metadata"))
    read = {path: (template, ("metadata", "spec"))}
    read[f"{path}.metadata"] = metadata, ("labels", "annotations")
    for where, (given, known) in read.items():
        for key in sorted(given.keys() - {*known}):
            found.warning(*unknown(where, key, known))
    return {**template, "metadata": metadata, "spec": pod}


def _check_name(name: str, roles: tuple[RoleSpec, ...], found: ProblemList) -> None:
    """The name is that of a Service, and begins the names of the pods, which are host names."""
    if re.fullmatch(JOB_NAME, name) is None:
        what = f"{printable(name)} is not a name for a Service and for pods"
        found.problem("metadata.name", what,
                      "use small letters, digits and -, beginning with a letter")  # fmt: skip
        return
    longest = max(
        (f"{name}-{r.name}-{max(r.maximum, 1) - 1}" for r in roles), default=name, key=len
    )
    if len(longest) > NAME_MAX:
        less = len(longest) - NAME_MAX
        found.problem("metadata.name", f"too long: pod {printable(longest)} would have"
                      f" {len(longest)} characters, the limit is {NAME_MAX}",
                      f"take {less} characters away")  # fmt: skip


def _check_together(
    raw: object,
    spec: Mapping[str, object],
    roles: tuple[RoleSpec, ...],
    elastic_level: int | None,
    found: ProblemList,
) -> None:
    """What no field can be blamed for alone; said only when the fields themselves are right."""
    if found.problems:
        return
    if raw is None:
        found.problem("spec", "missing", "write spec.worker with replicas and a template")
    elif elastic_level is not None and not any(role.name == "worker" for role in roles):
        found.problem("spec.elastic", f"{elastic_level} needs spec.worker with replicas above 0",
                      "write spec.worker, or remove spec.elastic")  # fmt: skip
    elif not roles:
        found.problem("spec", "no role has replicas above 0",
                      "write spec.worker with replicas and a template, or suspend: true to stop"
                      " the job")  # fmt: skip
    least = _number(as_mapping(spec.get("schedulingPolicy")), "minAvailable")
    most = sum(role.maximum for role in roles)
    if roles and least is not None and least > most:
        found.problem("spec.schedulingPolicy.minAvailable", f"{least} is above the number of pods,"
                      f" {most}: they would never start", f"write {most} or less")  # fmt: skip


def _mode(
    roles: tuple[RoleSpec, ...], elastic_level: int | None
) -> Literal["PS", "Collective", "Single"]:
    worker = next((role for role in roles if role.name == "worker"), None)
    if any(role.name == "ps" for role in roles):
        return "PS"
    is_many = worker is not None and (worker.replicas > 1 or elastic_level is not None)
    return "Collective" if is_many else "Single"


def _clean(spec: Mapping[str, object], found: ProblemList) -> CleanPodPolicy:
    word = _word(spec, "cleanPodPolicy")
    if other := _word(spec, "cleanPolicy"):
        what = "has no effect beside spec.cleanPodPolicy" if word else "is read as cleanPodPolicy"
        found.warning("spec.cleanPolicy", what)
        word = word or other
    policy = CLEAN.get(word, "Never")
    if word == "OnFailed":
        found.warning("spec.cleanPodPolicy", "'OnFailed' is read as OnFailure")
    elif word not in CLEAN:
        known = ", ".join(w for w in CLEAN if w and w != "OnFailed")
        what = f"{printable(word)} is not one of {known}; it is read as Never"
        found.warning("spec.cleanPodPolicy", what)
    return policy


def _intranet(spec: Mapping[str, object], default: Intranet, found: ProblemList) -> Intranet:
    word = _word(spec, "intranet")
    if not word:
        return default
    if word not in INTRANET:
        known = ", ".join(INTRANET)
        found.warning(
            "spec.intranet", f"{printable(word)} is not one of {known}; it is read as PodIP"
        )
    return INTRANET.get(word, "PodIP")


def _success(
    spec: Mapping[str, object], roles: tuple[RoleSpec, ...], found: ProblemList
) -> SuccessPolicy:
    """AllRoles for a job without workers: there is nothing else to wait for."""
    word = _word(spec, "successPolicy")
    if any(role.name == "worker" for role in roles):
        return cast("SuccessPolicy", word or "Workers")  # validation.py knows the words
    if word not in ("", "AllRoles"):
        found.warning("spec.successPolicy", f"{word} is read as AllRoles: there are no workers")
    return "AllRoles"


def _gang(raw: Mapping[str, object]) -> GangSpec:
    scheduler = cast(  # validation.py knows the words
        "Literal['', 'none', 'volcano', 'coscheduling']", _word(raw, "scheduler")
    )
    return GangSpec(
        scheduler=scheduler,
        min_available=_number(raw, "minAvailable"),
        queue=_word(raw, "queue"),
        priority_class=_word(raw, "priorityClass"),
        min_resources=as_mapping(raw.get("minResources")),
        timeout_seconds=_number(raw, "timeoutSeconds"),
    )


def _sample_set(spec: Mapping[str, object], found: ProblemList) -> SampleSet | None:
    raw = as_mapping(spec.get("sampleSetRef"))
    if not raw:
        return None
    if "namespace" in raw:
        what = f"{printable(raw['namespace'])} has no effect: claims are of the job's own namespace"
        found.warning("spec.sampleSetRef.namespace", what)
    return SampleSet(_word(raw, "name"), _word(raw, "mountPath"))


def _rules(spec: Mapping[str, object]) -> tuple[FailureRule, ...]:
    rules = []
    for item in _items(as_mapping(spec.get("failurePolicy")), "rules"):
        raw = as_mapping(item)
        codes = as_mapping(raw.get("exitCodes"))
        rules.append(
            FailureRule(
                action=cast("RuleAction", _word(raw, "action")),  # validation.py knows the words
                roles=cast("tuple[RoleName, ...]", tuple(_items(raw, "roles"))),  # here, too
                causes=cast("tuple[Cause, ...]", tuple(_items(raw, "causes"))),  # here, too
                exit_codes=cast("tuple[int, ...]", tuple(_items(codes, "values"))),  # ints only
                not_codes=codes.get("operator") == "NotIn",
            )
        )
    return tuple(rules)
