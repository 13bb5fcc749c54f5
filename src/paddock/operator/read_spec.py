"""The validator of a PaddleJob's spec: a JobSpec, or everything that is wrong. Never raises.

schema.py checks each field by itself, rules.py what they mean together. No I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from paddock.errors import Problem
from paddock.operator.rules import find_mistakes
from paddock.operator.schema import TREE, ProblemList, check, printable, unknown
from paddock.operator.spec import (
    ROLES,
    CleanPodPolicy,
    Intranet,
    JobSpec,
    RawRole,
    RawSpec,
    RoleSpec,
    SuccessPolicy,
    field_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.operator.spec import RoleName

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
    spec = msgspec.convert(check(raw, TREE["spec"], "spec", found) or {}, RawSpec)
    # None when the job is not elastic; below 0 says so whatever the workers' limits are.
    elastic_level = spec.elastic
    worker = spec.worker or RawRole()
    if elastic_level is None and (worker.requests is not None or worker.limits):
        elastic_level = AUTO_ELASTIC_LEVEL
    if elastic_level is not None and elastic_level < 0:
        elastic_level = None
    is_elastic = elastic_level is not None
    made = (_role(role_name, spec, is_elastic, found) for role_name in ROLES)
    roles = tuple(role for role in made if role is not None)
    faulty = tuple(problem.message for problem in found.problems)
    given = None if raw is None else spec
    for mistake in find_mistakes(name, given, roles, elastic_level, faulty):
        found.problem(*mistake)
    if found.problems:
        more = [Problem(f"{found.more} more problems of this kind")] if found.more else []
        return None, (*found.problems, *more)
    return _job(spec, roles, elastic_level, intranet, found), ()


def read_seconds(raw: object, name: str) -> int | None:
    """A limit in time, also of a spec with mistakes elsewhere.

    >>> [read_seconds(raw, "ttl") for raw in ({"ttl": 60}, {}, None)]
    [60, None, None]
    """
    found = field_of(raw, name)
    if isinstance(found, bool) or not isinstance(found, int):
        return None
    return found if found >= 0 else None


def is_suspended(raw: object) -> bool:
    """True when nothing of the job is to run, also of a spec with mistakes elsewhere."""
    return field_of(raw, "suspend") is True


def _job(
    spec: RawSpec,
    roles: tuple[RoleSpec, ...],
    elastic_level: int | None,
    intranet: Intranet,
    found: ProblemList,
) -> JobSpec:
    """The job, when nothing is wrong with it. intranet: where the spec says nothing of it."""
    if spec.intranet:
        if spec.intranet not in INTRANET:
            known = ", ".join(INTRANET)
            what = f"{printable(spec.intranet)} is not one of {known}; it is read as PodIP"
            found.warning("spec.intranet", what)
        intranet = INTRANET.get(spec.intranet, "PodIP")
    fixed = [role.name for role in roles if role.name != "worker"]
    if elastic_level is not None and fixed:  # servers are told who the workers are, once
        found.warning("spec.elastic", f"has no effect: a job with spec.{fixed[0]} is not elastic")
        elastic_level = None
    if spec.clean_policy:
        is_both = "has no effect beside spec.cleanPodPolicy"
        what = is_both if spec.clean_pod_policy else "is read as cleanPodPolicy"
        found.warning("spec.cleanPolicy", what)
    word = spec.clean_pod_policy or spec.clean_policy
    if word == "OnFailed":
        found.warning("spec.cleanPodPolicy", "'OnFailed' is read as OnFailure")
    elif word not in CLEAN:
        known = ", ".join(w for w in CLEAN if w and w != "OnFailed")
        what = f"{printable(word)} is not one of {known}; it is read as Never"
        found.warning("spec.cleanPodPolicy", what)
    success: SuccessPolicy = spec.success_policy or "Workers"
    workers = next((role for role in roles if role.name == "worker"), None)
    if workers is None:  # there is nothing else to wait for
        if spec.success_policy not in ("", "AllRoles"):
            what = f"{spec.success_policy} is read as AllRoles: there are no workers"
            found.warning("spec.successPolicy", what)
        success = "AllRoles"
    mode: Literal["PS", "Collective", "Single"] = "Single"
    if any(role.name == "ps" for role in roles):
        mode = "PS"
    elif workers is not None and (workers.replicas > 1 or elastic_level is not None):
        mode = "Collective"
    if spec.with_gloo and mode != "PS":
        found.warning("spec.withGloo", f"{spec.with_gloo} has no effect without spec.ps")
    samples = spec.sample_set_ref
    if samples is not None and samples.namespace is not None:
        what = "has no effect: claims are of the job's own namespace"
        found.warning("spec.sampleSetRef.namespace", f"{printable(samples.namespace)} {what}")
    _check_rules(spec, roles, found)
    for role in roles:
        if role.restart_scope == "Replica" and intranet not in ("Service", "DNS"):
            found.warning(f"spec.{role.name}.restartScope", "Replica needs intranet Service or DNS,"
                          " where a pod keeps its address; the whole job restarts")  # fmt: skip
        pod = role.template.get("spec", {})
        for name in ("hostname", "subdomain") if intranet == "DNS" else ():
            if field_of(pod, name):
                what = "pods are not found by their address <pod>.<job> then: leave it out, or"
                path = f"spec.{role.name}.template.spec.{name}"
                found.warning(path, f"{what} choose another intranet")
    return JobSpec(
        roles=roles,
        mode=mode,
        intranet=intranet,
        clean_pod_policy=CLEAN.get(word, "Never"),
        with_gloo=spec.with_gloo,
        elastic_level=elastic_level,
        gang=spec.scheduling_policy,
        sample_set=samples,
        suspend=spec.suspend,
        deadline_seconds=spec.active_deadline_seconds,
        backoff_limit=spec.backoff_limit,
        success=success,
        rules=spec.failure_policy.rules,
        warnings=tuple(found.warnings),
    )


def _check_rules(spec: RawSpec, roles: tuple[RoleSpec, ...], found: ProblemList) -> None:
    """Warn of rules about containers that no template has."""
    for number, rule in enumerate(spec.failure_policy.rules):
        name = rule.exit_codes.container_name if rule.exit_codes is not None else ""
        known = {
            str(container.get("name"))
            for role in roles
            if not rule.roles or role.name in rule.roles
            for which in ("containers", "initContainers")
            for container in role.containers(which) or ()
            if isinstance(container, dict)
        }
        if name and name not in known:
            path = f"spec.failurePolicy.rules[{number}].exitCodes.containerName"
            what = f"{printable(name)} is no container of the rule's templates, whose are"
            found.warning(path, f"{what} {', '.join(sorted(known))}; does a webhook add it?")


def _role(name: RoleName, spec: RawSpec, is_elastic: bool, found: ProblemList) -> RoleSpec | None:
    """A role, or None when it is absent or has no usable number of replicas."""
    path = f"spec.{name}"
    raw: RawRole = getattr(spec, name) or RawRole()
    replicas, requests = raw.replicas, raw.requests
    limits = raw.limits or None  # 0 says the same as nothing
    is_range = is_elastic and name == "worker"
    if replicas is None or (replicas == 0 and not (is_range and requests is not None)):
        return None
    minimum = maximum = replicas
    if is_range:
        minimum = 1 if requests is None else requests
        maximum = max(minimum, limits or replicas)
    for field, number in (("requests", requests), ("limits", raw.limits)):
        if name != "worker" and number is not None:
            found.warning(f"{path}.{field}", "has no effect, only workers are elastic")
    wanted = min(max(replicas, minimum), maximum)
    if wanted != replicas:
        found.warning(f"{path}.replicas", f"{replicas} is not in {minimum}..{maximum}, the range"
                      f" of requests and limits; {wanted} are made")  # fmt: skip
    template, pod, at = raw.template, raw.template.get("spec"), f"{path}.template"
    if not isinstance(pod, dict):  # which a rule says
        return RoleSpec(name, wanted, minimum, maximum, {}, raw.restart_scope)
    names: set[str] = set()
    for number, container in enumerate(pod.get("containers", ())):
        called = container.get("name", "")
        if called and called in names:
            there = f"{at}.spec.containers[{number}].name"
            found.problem(there, f"{printable(called)} is the name of two containers", "rename one")
        names.add(called)
    metadata = template.get("metadata", {})
    known = {at: (template, ("metadata", "spec"))}
    known[f"{at}.metadata"] = metadata, ("labels", "annotations")
    for where, (given, words) in known.items():
        for key in sorted(given.keys() - {*words}):
            found.warning(*unknown(where, key, words))
    template = {**template, "metadata": metadata, "spec": pod}
    return RoleSpec(name, wanted, minimum, maximum, template, raw.restart_scope)
