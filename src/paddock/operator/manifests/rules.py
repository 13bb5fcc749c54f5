"""The CEL rules of the definition: what types and limits cannot say of a job. Pure.

read_spec.py has the same rules in Python, for clusters whose definition is an older one. They are
kept cheap: no loops, and nothing but counts and the job's name.

Source: https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from dataclasses import dataclass

from paddock.operator.schema import JOB_NAME, NAME_MAX
from paddock.operator.spec import ROLES


@dataclass(frozen=True, slots=True)
class CelRule:
    """A rule of the object at ``path`` ("" for the whole job).

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


def _digits(role: str) -> str:
    """CEL for the digits in the number of a role's last pod, which is one less than its most."""
    limits = ((10, 1), (100, 2), (1000, 3), (10_000, 4))
    return "(" + "".join(f"{_most(role)} <= {n} ? {digits} : " for n, digits in limits) + "5)"


def _name_fits(role: str) -> CelRule:
    """The name of a role's last pod is the pod's host name, which has a limit."""
    there = f"has(self.spec) && has(self.spec.{role}) && {_most(role)} > 0"
    size = f"size(self.metadata.name) + {len(f'-{role}-')} + {_digits(role)}"
    return CelRule(
        "",
        f"!({there}) || {size} <= {NAME_MAX}",
        f"metadata.name is too long: the pods NAME-{role}-N may have {NAME_MAX} characters",
        "spec",
    )


def _role_rules(role: str) -> tuple[CelRule, ...]:
    return (
        CelRule(
            f"spec.{role}",
            "(self.replicas == 0 && !has(self.requests)) ||"
            " (has(self.template) && has(self.template.spec))",
            f"spec.{role}.template.spec is missing: write its containers, each with name and image",
            "template",
        ),
        CelRule(
            f"spec.{role}",
            "!has(self.requests) || !has(self.limits) || self.limits == 0 ||"
            " self.requests <= self.limits",
            f"spec.{role}.requests is above spec.{role}.limits",
            "requests",
        ),
    )


def _pods_at_most() -> str:
    parts = [f"(has(self.spec.{role}) ? {_most(role)} : 0)" for role in ROLES]
    return " + ".join(parts).replace("self.spec.", "self.")


RULES: tuple[CelRule, ...] = (
    CelRule(
        "",
        "has(self.spec)",
        "spec is missing: write spec.worker with replicas and a template",
        "spec",
    ),
    CelRule(
        "",
        f"self.metadata.name.matches('^{JOB_NAME}$')",
        "metadata.name must begin with a letter and have no dots: the job's Service carries it",
        "spec",
    ),
    *(_name_fits(role) for role in ROLES),
    CelRule(
        "spec",
        " || ".join(f"(has(self.{role}) && self.{role}.replicas > 0)" for role in ROLES)
        + " || (has(self.worker) && has(self.worker.requests))",
        "spec has no role with replicas above 0: write spec.worker with replicas and a template,"
        " or suspend: true to stop the job",
    ),
    CelRule(
        "spec",
        "!has(self.elastic) || self.elastic < 0 ||"
        " (has(self.worker) && (self.worker.replicas > 0 || has(self.worker.requests)))",
        "spec.elastic needs spec.worker with replicas above 0: only workers are elastic",
        "elastic",
    ),
    CelRule(
        "spec",
        "!has(self.schedulingPolicy) || !has(self.schedulingPolicy.minAvailable) ||"
        f" self.schedulingPolicy.minAvailable <= {_pods_at_most()}",
        "spec.schedulingPolicy.minAvailable is above the number of pods: they would never start",
        "schedulingPolicy.minAvailable",
    ),
    *(rule for role in ROLES for rule in _role_rules(role)),
)
