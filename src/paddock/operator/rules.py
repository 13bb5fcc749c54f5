"""The rules between the fields of a PaddleJob: what types and limits cannot say. Pure.

A row has a rule twice, side by side: in CEL for the API server (manifests/crd.py), and in Python
for a cluster whose definition is an older one (read_spec.py), with the values in its message. CEL
is kept cheap: no loops, and nothing but counts and the job's name.

Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.operator.schema import JOB_NAME, NAME_MAX
from paddock.operator.spec import ROLES
from paddock.operator.validation import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.operator.spec import RawSpec, RoleSpec

    Mistake = tuple[str, str, str]  # path, the mistake at that path, hint


@dataclass(frozen=True, slots=True)
class SpecParts:
    """A spec as a rule sees it. faulty: messages about single fields, which are left out here."""

    name: str
    raw: object
    spec: RawSpec
    roles: tuple[RoleSpec, ...]
    elastic_level: int | None
    faulty: tuple[str, ...]

    def role(self, name: str) -> RoleSpec | None:
        """That role, or None."""
        return next((role for role in self.roles if role.name == name), None)


@dataclass(frozen=True, slots=True)
class SpecRule:
    """A rule of the object at ``path`` ("" for the whole job).

    at: the field that is named in the refusal, below path. Messages with values would cost too
    much: the server estimates string(number) as a text without limit. check: the same in Python.
    """

    path: str
    rule: str
    message: str
    check: Callable[[SpecParts], Mistake | None]
    at: str = ""


def _check_spec(job: SpecParts) -> Mistake | None:
    hint = "write spec.worker with replicas and a template"
    return ("spec", "missing", hint) if job.raw is None else None


def _check_name(job: SpecParts) -> Mistake | None:
    if re.fullmatch(JOB_NAME, job.name) is not None:
        return None
    what = f"{printable(job.name)} is not a name for a Service and for pods"
    return "metadata.name", what, "use small letters, digits and -, beginning with a letter"


def _check_some_role(job: SpecParts) -> Mistake | None:
    if job.roles or job.elastic_level is not None:
        return None
    hint = "write spec.worker with replicas and a template, or suspend: true to stop the job"
    return "spec", "no role has replicas above 0", hint


def _check_elastic(job: SpecParts) -> Mistake | None:
    if job.elastic_level is None or job.role("worker") is not None:
        return None
    what = f"{job.elastic_level} needs spec.worker with replicas above 0"
    return "spec.elastic", what, "write spec.worker, or remove spec.elastic"


def _check_min_available(job: SpecParts) -> Mistake | None:
    least = job.spec.scheduling_policy.min_available
    most = sum(role.maximum for role in job.roles)
    if not job.roles or least is None or least <= most:
        return None
    what = f"{least} is above the number of pods, {most}: they would never start"
    return "spec.schedulingPolicy.minAvailable", what, f"write {most} or less"


def _most(role: str) -> str:
    """CEL for the most pods a role may come to have; only workers are elastic."""
    me = f"self.spec.{role}"
    if role != "worker":
        return f"{me}.replicas"
    return f"(has({me}.limits) && {me}.limits > {me}.replicas ? {me}.limits : {me}.replicas)"


def _digits(role: str) -> str:
    """CEL for the digits in the number of a role's last pod, which is one less than its most."""
    limits = ((10, 1), (100, 2), (1000, 3), (10_000, 4))
    return "(" + "".join(f"{_most(role)} <= {n} ? {digits} : " for n, digits in limits) + "5)"


def _name_fits(role: str) -> SpecRule:
    """The name of a role's last pod is the pod's host name, which has a limit."""

    def check(job: SpecParts) -> Mistake | None:
        lasts = {f"{job.name}-{r.name}-{max(r.maximum, 1) - 1}": r.name for r in job.roles}
        longest = max(lasts, default="", key=len)
        less = len(longest) - NAME_MAX
        if less <= 0 or lasts[longest] != role or _check_name(job) is not None:
            return None
        what = f"too long: pod {printable(longest)} would have {len(longest)} characters"
        return "metadata.name", f"{what}, the limit is {NAME_MAX}", f"take {less} characters away"

    there = f"has(self.spec) && has(self.spec.{role}) && {_most(role)} > 0"
    size = f"size(self.metadata.name) + {len(f'-{role}-')} + {_digits(role)}"
    text = f"metadata.name is too long: the pods NAME-{role}-N may have {NAME_MAX} characters"
    return SpecRule("", f"!({there}) || {size} <= {NAME_MAX}", text, check, "spec")


def _role_rules(role: str) -> tuple[SpecRule, ...]:
    path = f"spec.{role}"

    def check_template(job: SpecParts) -> Mistake | None:
        ours, there = job.role(role), f"{path}.template"
        if ours is None or ours.template or any(text.startswith(there) for text in job.faulty):
            return None
        return f"{there}.spec", "missing", "write its containers, each with name and image"

    def check_range(job: SpecParts) -> Mistake | None:
        ours = getattr(job.spec, role)
        if ours is None or not ours.limits or (ours.requests or 0) <= ours.limits:
            return None
        what = f"{ours.requests} is above {path}.limits, {ours.limits}"
        return f"{path}.requests", what, f"write {path}.requests: {ours.limits} or less"

    return (
        SpecRule(path, "(self.replicas == 0 && !has(self.requests)) ||"
                 " (has(self.template) && has(self.template.spec))",
                 f"{path}.template.spec is missing: write its containers, each with name and image",
                 check_template, "template"),
        SpecRule(path, "!has(self.requests) || !has(self.limits) || self.limits == 0 ||"
                 " self.requests <= self.limits", f"{path}.requests is above {path}.limits",
                 check_range, "requests"),
    )  # fmt: skip


_PODS = " + ".join(f"(has(self.spec.{role}) ? {_most(role)} : 0)" for role in ROLES)
RULES: tuple[SpecRule, ...] = (
    SpecRule("", "has(self.spec)",
             "spec is missing: write spec.worker with replicas and a template",
             _check_spec, "spec"),
    SpecRule("", f"self.metadata.name.matches('^{JOB_NAME}$')",
             "metadata.name must begin with a letter and have no dots: the job's Service carries"
             " it", _check_name, "spec"),
    *(_name_fits(role) for role in ROLES),
    SpecRule("spec",
             " || ".join(f"(has(self.{role}) && self.{role}.replicas > 0)" for role in ROLES)
             + " || (has(self.worker) && has(self.worker.requests))",
             "spec has no role with replicas above 0: write spec.worker with replicas and a"
             " template, or suspend: true to stop the job", _check_some_role),
    SpecRule("spec", "!has(self.elastic) || self.elastic < 0 ||"
             " (has(self.worker) && (self.worker.replicas > 0 || has(self.worker.requests)))",
             "spec.elastic needs spec.worker with replicas above 0: only workers are elastic",
             _check_elastic, "elastic"),
    SpecRule("spec", "!has(self.schedulingPolicy) || !has(self.schedulingPolicy.minAvailable) ||"
             f" self.schedulingPolicy.minAvailable <= {_PODS.replace('self.spec.', 'self.')}",
             "spec.schedulingPolicy.minAvailable is above the number of pods: they would never"
             " start", _check_min_available, "schedulingPolicy.minAvailable"),
    *(rule for role in ROLES for rule in _role_rules(role)),
)  # fmt: skip
