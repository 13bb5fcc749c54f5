"""The Ray backend: that of ssh, with an actor on each node in place of sshd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from paddock.backends.backend import Say
from paddock.backends.ray.client import ANSWER_SECONDS, HELLO_SECONDS, RelayConnection, ask
from paddock.backends.ray.plan import (
    RayTarget,
    address_of,
    bundle_of,
    plan_of,
    seconds_of,
    strategy_of,
    target_of,
    targets_of,
)
from paddock.backends.registry import RegisteredJob
from paddock.backends.ssh.channel import Channel
from paddock.backends.ssh.command import Target
from paddock.backends.ssh.driver import Ssh
from paddock.backends.ssh.plan import root_of
from paddock.backends.ssh.pool import all_or_none, at_all
from paddock.backends.ssh.state import found_jobs
from paddock.backends.types import Handle, Site, Submission, SubmissionPlan


class Ray(Ssh):
    """The backend for a Ray cluster that is there already."""

    target_kind = RayTarget
    is_held = True

    def plan(self, submission: Submission) -> SubmissionPlan:
        return plan_of(submission)

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        """Reserve the nodes, and start the job there; Ray gives them back when it has ended."""
        run.keep(
            targets=[], root=root_of(submission.site), id=submission.run_id,
            cwd=submission.workspace, may_run=[],
        )  # fmt: skip
        with _reserved(submission, run, say) as (relay, targets):

            def keep(requests: list[dict[str, Any]]) -> None:
                asked = [{"op": "status", **request} for request in requests]
                relay.send({"op": "keep", "requests": asked})
                relay.receive()

            return self._submit(submission, targets, run, say, keep)

    def discover(self, site: Site) -> list[tuple[Handle, dict[str, object]]]:
        """Return the jobs of all nodes that are alive, each from its first node."""
        targets = self._targets(site)

        def look(target: RayTarget) -> list[dict[str, Any]]:
            with Channel(target) as channel:
                answer = channel.ask("discover", root=root_of(site))
            rows = found_jobs(answer, targets)
            return [row for row in rows if row["details"]["targets"][0]["name"] == target.name]

        rows = [row for found in all_or_none(at_all(targets, look)) for row in found]
        return [(Handle(site.backend, site.name, row["id"]), row) for row in rows]

    def _run_targets(self, run: RegisteredJob) -> list[Target]:
        return [RayTarget(**{**asdict(t), "holder": ""}) for t in super()._run_targets(run)]

    def _targets(self, site: Site) -> tuple[RayTarget, ...]:
        answer, seconds = ask(address_of(site), {"op": "nodes"}), seconds_of(site)
        return tuple(target_of(row, answer["cluster"], seconds) for row in answer["nodes"])


@contextmanager
def _reserved(
    submission: Submission, run: RegisteredJob, say: Say
) -> Iterator[tuple[RelayConnection, tuple[RayTarget, ...]]]:
    """Wait for the job's nodes; unless they are kept for it, Ray has them back in the end."""
    site = submission.site
    relay = RelayConnection(address_of(site))
    try:
        relay.send({
            "op": "reserve", "id": submission.run_id,
            "name": submission.name if submission.takes_name else "",
            "count": submission.job.nnodes_max, "bundle": bundle_of(submission),
            "strategy": strategy_of(site), "waits": int(site.text("wait") or 0),
            "is_detached": submission.is_detached,
        })  # fmt: skip
        said = ""
        with run.telling(lambda: said or "waiting for Ray"):
            while "waiting" in (answer := relay.receive(HELLO_SECONDS + ANSWER_SECONDS)):
                if not said:
                    say(answer["waiting"])
                said = answer["waiting"]
        yield relay, targets_of(submission, answer["cluster"], answer["nodes"])
    finally:
        relay.close()
