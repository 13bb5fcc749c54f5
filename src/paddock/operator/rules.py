"""The rules between the fields of a PaddleJob: what types and limits cannot say. Pure.

Each stands here twice: in RULES in CEL for the API server (manifests/crd.py), and in find_mistakes
for a cluster whose definition is an older one (read_spec.py), with the values in its message. CEL
is kept cheap: no loops, and nothing but counts and the job's name.

Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.operator.schema import JOB_NAME, NAME_MAX, printable
from paddock.operator.spec import ROLES

if TYPE_CHECKING:
    from paddock.operator.spec import RawSpec, RoleSpec

    Mistake = tuple[str, str, str]  # path, the mistake at that path, hint


def find_mistakes(
    name: str,
    spec: RawSpec | None,
    roles: tuple[RoleSpec, ...],
    elastic_level: int | None,
    faulty: tuple[str, ...],
) -> list[Mistake]:
    """The rules in Python: those of the parts, and of the whole when its parts are right.

    name: metadata.name. spec: None where there is none. faulty: messages about single fields, which
    are left out here.
    """
    found: list[Mistake] = []
    if spec is None:
        found.append(("spec", "missing", "write spec.worker with replicas and a template"))
    if re.fullmatch(JOB_NAME, name) is None:
        what = f"{printable(name)} is not a name for a Service and for pods"
        hint = "use small letters, digits and -, beginning with a letter"
        found.append(("metadata.name", what, hint))
    else:
        lasts = (f"{name}-{role.name}-{max(role.maximum, 1) - 1}" for role in roles)
        longest = max(lasts, default="", key=len)
        less = len(longest) - NAME_MAX
        if less > 0:
            what = f"too long: pod {printable(longest)} would have {len(longest)} characters"
            what = f"{what}, the limit is {NAME_MAX}"
            found.append(("metadata.name", what, f"take {less} characters away"))
    by_name = {role.name: role for role in roles}
    for role_name in ROLES:
        path = f"spec.{role_name}"
        raw, role = getattr(spec, role_name, None), by_name.get(role_name)
        is_faulty = any(text.startswith(f"{path}.template") for text in faulty)
        if role is not None and not role.template and not is_faulty:
            hint = "write its containers, each with name and image"
            found.append((f"{path}.template.spec", "missing", hint))
        if raw is not None and raw.limits and (raw.requests or 0) > raw.limits:
            what = f"{raw.requests} is above {path}.limits, {raw.limits}"
            hint = f"write {path}.requests: {raw.limits} or less"
            found.append((f"{path}.requests", what, hint))
    if found or faulty or spec is None:
        return found
    if not roles and elastic_level is None:
        hint = "write spec.worker with replicas and a template, or suspend: true to stop the job"
        found.append(("spec", "no role has replicas above 0", hint))
    if elastic_level is not None and "worker" not in by_name:
        what = f"{elastic_level} needs spec.worker with replicas above 0"
        found.append(("spec.elastic", what, "write spec.worker, or remove spec.elastic"))
    least = spec.scheduling_policy.min_available
    most = sum(role.maximum for role in roles)
    if roles and least is not None and least > most:
        what = f"{least} is above the number of pods, {most}: they would never start"
        found.append(("spec.schedulingPolicy.minAvailable", what, f"write {most} or less"))
    return found


@dataclass(frozen=True, slots=True)
class SpecRule:
    """A rule of the object at ``path`` ("" for the whole job), in CEL.

    at: the field that is named in the refusal, below path. Messages with values would cost too
    much: the server estimates string(number) as a text without limit.
    """

    path: str
    rule: str
    message: str
    at: str = ""


def _most(role: str) -> str:
    """CEL for the most pods a role may come to have; only workers are elastic."""
    me = f"self.spec.{role}"
    if role != "worker":
        return f"{me}.replicas"
    return f"(has({me}.limits) && {me}.limits > {me}.replicas ? {me}.limits : {me}.replicas)"


def _name_fits(role: str) -> SpecRule:
    """The name of a role's last pod is the pod's host name, which has a limit."""
    there = f"has(self.spec) && has(self.spec.{role}) && {_most(role)} > 0"
    limits = ((10, 1), (100, 2), (1000, 3), (10_000, 4))  # of the last number's digits
    digits = "".join(f"{_most(role)} <= {n} ? {digits} : " for n, digits in limits)
    size = f"size(self.metadata.name) + {len(f'-{role}-')} + ({digits}5)"
    text = f"metadata.name is too long: the pods NAME-{role}-N may have {NAME_MAX} characters"
    return SpecRule("", f"!({there}) || {size} <= {NAME_MAX}", text, "spec")


def _role_rules(role: str) -> tuple[SpecRule, ...]:
    path = f"spec.{role}"
    return (
        SpecRule(path, "(self.replicas == 0 && !has(self.requests)) ||"
                 " (has(self.template) && has(self.template.spec))",
                 f"{path}.template.spec is missing: write its containers, each with name and image",
                 "template"),
        SpecRule(path, "!has(self.requests) || !has(self.limits) || self.limits == 0 ||"
                 " self.requests <= self.limits", f"{path}.requests is above {path}.limits",
                 "requests"),
    )  # fmt: skip


_PODS = " + ".join(f"(has(self.spec.{role}) ? {_most(role)} : 0)" for role in ROLES)
RULES: tuple[SpecRule, ...] = (
    SpecRule("", "has(self.spec)",
             "spec is missing: write spec.worker with replicas and a template", "spec"),
    SpecRule("", f"self.metadata.name.matches('^{JOB_NAME}$')",
             "metadata.name must begin with a letter and have no dots: the job's Service carries"
             " it", "spec"),
    *(_name_fits(role) for role in ROLES),
    SpecRule("spec",
             " || ".join(f"(has(self.{role}) && self.{role}.replicas > 0)" for role in ROLES)
             + " || (has(self.worker) && has(self.worker.requests))",
             "spec has no role with replicas above 0: write spec.worker with replicas and a"
             " template, or suspend: true to stop the job"),
    SpecRule("spec", "!has(self.elastic) || self.elastic < 0 ||"
             " (has(self.worker) && (self.worker.replicas > 0 || has(self.worker.requests)))",
             "spec.elastic needs spec.worker with replicas above 0: only workers are elastic",
             "elastic"),
    SpecRule("spec", "!has(self.schedulingPolicy) || !has(self.schedulingPolicy.minAvailable) ||"
             f" self.schedulingPolicy.minAvailable <= {_PODS.replace('self.spec.', 'self.')}",
             "spec.schedulingPolicy.minAvailable is above the number of pods: they would never"
             " start", "schedulingPolicy.minAvailable"),
    *(rule for role in ROLES for rule in _role_rules(role)),
)  # fmt: skip
