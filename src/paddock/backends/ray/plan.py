"""Submission -> what Ray is asked for, and the plan. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paddock.backends.ssh.command import CONNECT_SECONDS, EXIT_NO_PYTHON, Target
from paddock.backends.ssh.plan import plan_of as plan_of_hosts
from paddock.backends.types import PlanStep, Site, Submission, SubmissionPlan
from paddock.errors import Problem, refuse

AUTO = "auto"  # RAY_ADDRESS, or the cluster that this machine is a node of
# Source: ray.util.placement_group, 2.60.
STRATEGIES = {"spread": "STRICT_SPREAD", "pack": "PACK"}
DEVICES = re.compile(r"(?:([\w./-]+)=)?(\d+)", re.ASCII)
WHERE = "Ray's node {}"
ADDRESS = re.compile(r"(ray://)?[^\s/]+:\d+", re.ASCII)
ADDRESS_HINT = "write HOST:PORT, ray://HOST:10001, or auto"


@dataclass(frozen=True)
class RayTarget(Target):
    """A node of a Ray cluster, in place of a host of ssh.

    cluster: Ray's address. node: Ray's id of the node. holder: for the submitter, the name of the
    actor that holds the job's resources there; others ask an actor of their own.
    """

    cluster: str = AUTO
    node: str = ""
    holder: str = ""

    def connect_args(self, control: str, _python: str) -> tuple[str, ...]:
        words = (self.cluster, self.name, self.node, self.holder, str(self.connect_seconds))
        return (_python, "-m", "paddock.backends.ray.client", *words)

    def failure(self, code: int, errors: str) -> tuple[str, str]:
        """Return the last line of the pipe, and the hint behind its tab."""
        what, hint = super().failure(code, errors)
        said, tab, told = (errors.strip().splitlines() or [""])[-1].partition("\t")
        return (said, told) if tab else (what, hint if code == EXIT_NO_PYTHON else "ray status")


def address_of(site: Site) -> str:
    """Return the cluster's address. Raises UsageError: `local` would start a Ray of its own."""
    text = site.text("address") or AUTO
    if not is_address(text):
        refuse([Problem(f"address = {text!r}", ADDRESS_HINT)])
    return text


def is_address(text: str) -> bool:
    """Return True for an address of a Ray cluster that is there.

    >>> [is_address(text) for text in ("auto", "h1:6379", "ray://h1:10001", "h1", "local")]
    [True, True, True, False, False]
    """
    return text == AUTO or ADDRESS.fullmatch(text) is not None


def cluster_text(cluster: str) -> str:
    return "the Ray cluster of this machine" if cluster == AUTO else cluster


def seconds_of(site: Site) -> int:
    return int(site.text("connect_timeout") or CONNECT_SECONDS)


def bundle_of(submission: Submission) -> dict[str, float]:
    """Return Ray's resources of each node of the job. Raises UsageError."""
    worker = submission.job.role("worker")
    count = worker.count if worker is not None else None
    bundle = {"CPU": float(submission.option("cpus") or count or 1)}
    if text := submission.option("gpus"):
        found = DEVICES.fullmatch(text)
        if found is None:
            hint = "write gpus=8, or the name of Ray's resource: gpus=NPU=8"
            refuse([Problem(f"gpus = {text!r} is not a number of devices", hint)])
        assert found is not None
        if int(found[2]):
            bundle[found[1] or "GPU"] = float(found[2])
    return bundle


def strategy_of(site: Site) -> str:
    """Return Ray's placement strategy. Raises UsageError."""
    word = site.text("placement") or "spread"
    if word not in STRATEGIES:
        refuse([Problem(f"placement = {word!r}", f"write {' or '.join(STRATEGIES)}")])
    return STRATEGIES[word]


def resources_text(resources: Mapping[str, float]) -> str:
    """Return Ray's resources as people write them.

    >>> resources_text({"CPU": 4.0, "GPU": 0.5})
    '4 CPU, 0.5 GPU'
    """
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())


def fits(bundle: Mapping[str, float], there: Mapping[str, float]) -> int:
    """Return how many bundles fit into a node's resources.

    >>> fits({"CPU": 2, "GPU": 1}, {"CPU": 8, "GPU": 3}), fits({"GPU": 1}, {"CPU": 8})
    (3, 0)
    """
    return min(int(there.get(name, 0) // amount) for name, amount in bundle.items())


def lack(
    bundle: Mapping[str, float], count: int, strategy: str, nodes: Sequence[Mapping[str, Any]]
) -> str:
    """Return why a cluster can never give so many bundles, "" if it can. nodes: of the relay.

    >>> lack({"CPU": 2}, 2, "STRICT_SPREAD", [{"name": "h1", "resources": {"CPU": 8}}])
    'the job needs 2 nodes with 2 CPU each, and Ray has 1 such node: h1 with 8 CPU'
    """
    room = [fits(bundle, node["resources"]) for node in nodes]
    found = sum(map(bool, room)) if strategy == STRATEGIES["spread"] else sum(room)
    if found >= count:
        return ""
    shown = "; ".join(
        f"{node['name']} with " + resources_text({n: node["resources"].get(n, 0) for n in bundle})
        for node in nodes
    )
    each = "node" if strategy == STRATEGIES["spread"] else "place"
    return (
        f"the job needs {count} {each}{'s' * (count != 1)} with {resources_text(bundle)}"
        f"{' each' * (count != 1)}, and Ray has {found} such {each}{'s' * (found != 1)}:"
        f" {shown or 'no node'}"
    )


def targets_of(
    submission: Submission, cluster: str, rows: Sequence[Mapping[str, Any]]
) -> tuple[RayTarget, ...]:
    """Return the nodes that Ray has given. rows: of the relay's answer."""
    python, seconds = submission.site.text("interpreter"), seconds_of(submission.site)
    found = [target_of(row, cluster, seconds) for row in rows]
    return tuple(
        replace(each, python=python or each.python, has_ps=submission.has_ps) for each in found
    )


def target_of(row: Mapping[str, Any], cluster: str, seconds: int) -> RayTarget:
    """Return a node as a target. row: of the relay's answer."""
    names = ("name", "address", "python", "node", "holder")
    return RayTarget(**{n: row[n] for n in names}, cluster=cluster, connect_seconds=seconds)


def plan_of(submission: Submission) -> SubmissionPlan:
    """Return the plan of a submission: Ray says only when it is asked which nodes it gives."""
    python = submission.site.text("interpreter") or "Ray's Python"
    count, bundle, strategy = (
        submission.job.nnodes_max, bundle_of(submission), strategy_of(submission.site),
    )  # fmt: skip
    targets = [RayTarget(WHERE.format(index), python=python) for index in range(count)]
    plan = plan_of_hosts(submission, targets)
    what = f"ask Ray ({address_of(submission.site)}) for {count} x {resources_text(bundle)}"
    return replace(plan, steps=(PlanStep("here", f"{what}, {strategy}"), *plan.steps))
