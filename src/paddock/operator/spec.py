"""The spec of a PaddleJob: RawSpec has its fields, JobSpec is what they mean together. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

RoleName = Literal["ps", "worker", "heter"]
ROLES: tuple[RoleName, ...] = ("ps", "worker", "heter")  # in the order they are shown and made
Intranet = Literal["PodIP", "Service", "Host", "DNS"]
CleanPodPolicy = Literal["", "Always", "Never", "OnFailure", "OnCompletion"]
SuccessPolicy = Literal["Workers", "AllRoles", "Worker0"]
RestartScope = Literal["Job", "Replica"]
RuleAction = Literal["Fail", "Restart", "RestartUncounted", "Ignore"]
Cause = Literal[
    "Evicted", "Preempted", "NodeLost", "Deleted", "OOMKilled", "ExitCode", "Signal", "Startup"
]
# Nobody's program failed: the cluster took the pod away.
DISRUPTIONS: tuple[Cause, ...] = ("Evicted", "Preempted", "NodeLost", "Deleted")


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """A role. replicas: now wanted. minimum, maximum: of an elastic role, else both replicas.

    template: the raw pod template, {"metadata": ..., "spec": ...}; its spec has at least one
    container, each a mapping with a name. restart_scope: what a failed replica takes with it.
    """

    name: RoleName
    replicas: int
    minimum: int
    maximum: int
    template: Mapping[str, Any]
    restart_scope: RestartScope = "Job"

    def containers(self, which: str = "containers") -> list[Mapping[str, Any]]:
        """The containers of its pods, or which="initContainers"."""
        found: list[Mapping[str, Any]] = self.template.get("spec", {}).get(which, [])
        return found


def field_of(value: object, name: str) -> object:
    """A field of a raw object; None where it is no object or has no such field."""
    return value.get(name) if isinstance(value, Mapping) else None


def as_list(value: object) -> list[object]:
    """A list, [] for anything else."""
    return value if isinstance(value, list) else []


class ExitCodes(msgspec.Struct, frozen=True, rename="camel"):
    """Exit codes of a container. container_name: "" for the first."""

    operator: Literal["In", "NotIn"] = "In"
    values: tuple[int, ...] = ()
    container_name: str = ""

    def has(self, code: int | None) -> bool:
        """True when the rule is for that code; never for one that has not failed."""
        return bool(code) and (code in self.values) == (self.operator == "In")


class FailureRule(msgspec.Struct, frozen=True, rename="camel"):
    """A rule of failurePolicy: the first whose roles, causes and exit codes all fit decides.

    Empty means any.
    """

    action: RuleAction = "Restart"
    roles: tuple[RoleName, ...] = ()
    causes: tuple[Cause, ...] = ()
    exit_codes: ExitCodes | None = None


class FailurePolicy(msgspec.Struct, frozen=True):
    rules: tuple[FailureRule, ...] = ()


class GangSpec(msgspec.Struct, frozen=True, rename="camel"):
    """schedulingPolicy. scheduler: "" for the operator's own setting."""

    scheduler: Literal["", "none", "volcano", "coscheduling"] = ""
    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""
    min_resources: dict[str, object] = {}
    timeout_seconds: int | None = None


class SampleSet(msgspec.Struct, frozen=True, rename="camel"):
    """sampleSetRef of PaddleCloud: a claim of that name, mounted in every container 0."""

    name: str = ""
    mount_path: str = ""
    namespace: str | None = None


class RawRole(msgspec.Struct, frozen=True, rename="camel"):
    """A role as the spec has it."""

    replicas: int | None = None
    requests: int | None = None
    limits: int | None = None
    restart_scope: RestartScope = "Job"
    template: dict[str, Any] = {}


class RawSpec(msgspec.Struct, frozen=True, rename="camel"):
    """spec of a PaddleJob, each field by itself correct or left out (schema.py).

    Its ttl is read from the document (read_seconds): that of a spec with mistakes counts, too.
    """

    ps: RawRole | None = None
    worker: RawRole | None = None
    heter: RawRole | None = None
    clean_pod_policy: str = ""
    clean_policy: str = ""
    intranet: str = ""
    with_gloo: int = 0
    elastic: int | None = None
    scheduling_policy: GangSpec = GangSpec()
    sample_set_ref: SampleSet | None = None
    suspend: bool = False
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    success_policy: SuccessPolicy | Literal[""] = ""
    failure_policy: FailurePolicy = FailurePolicy()


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job without a mistake in it. roles: only those with replicas > 0 or elastic.

    elastic_level: None when the job is not elastic. backoff_limit: None when not given, and then
    only disruptions are answered with a restart (policies/restart.py).
    """

    roles: tuple[RoleSpec, ...]
    mode: Literal["PS", "Collective", "Single"]
    intranet: Intranet = "PodIP"
    clean_pod_policy: CleanPodPolicy = ""
    with_gloo: int = 0
    elastic_level: int | None = None
    gang: GangSpec = GangSpec()  # noqa: RUF009 - frozen
    sample_set: SampleSet | None = None
    suspend: bool = False
    deadline_seconds: int | None = None
    backoff_limit: int | None = None
    success: SuccessPolicy = "Workers"
    rules: tuple[FailureRule, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_elastic(self) -> bool:
        """True when the number of workers may change while they run."""
        return self.elastic_level is not None

    @property
    def is_named(self) -> bool:
        """True when addresses are names, known before there is a pod."""
        return self.intranet in ("Service", "DNS")

    def role(self, name: RoleName) -> RoleSpec | None:
        """That role, or None."""
        return next((role for role in self.roles if role.name == name), None)

    @property
    def replicas(self) -> int:
        return sum(role.replicas for role in self.roles)
