"""PaddleJobs whose pods run `probe`, and what becomes of them in a namespace of a real cluster."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from paddlejobs import job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cluster.control.plane import ControlPlane

    Status = Mapping[str, Any]

WAIT_SECONDS_MAX = 90.0
POLL_SECONDS = 0.1
ENDED = ("Completed", "Failed")
JOBS_PATH = "/apis/batch.paddlepaddle.org/v1/namespaces/{}/paddlejobs"
CONTROLLED_BY = ".metadata.ownerReferences[0].uid"
# A pod leaves a lost node after a second, and not after the five minutes of most clusters.
LEAVE_SOON = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 1}
    for what in ("not-ready", "unreachable")
]  # fmt: skip


class Probes:
    """Makes roles of pods with the probe image."""

    def __init__(self, image: str) -> None:
        self.image = image

    def role(self, replicas: int, words: str | list[str], **more: Any) -> dict[str, Any]:
        """A role of pods that do this. more: fields of the role; `pod`: of its pods' spec."""
        fields = dict(more)
        spec = dict(fields.pop("pod", {}))
        container = {
            "name": "main", "image": self.image, "imagePullPolicy": "Never",
            "args": words.split() if isinstance(words, str) else words,
            "resources": {"limits": {"memory": "32Mi"}, "requests": {"cpu": "1m"}},
            **fields.pop("container", {}),
        }  # fmt: skip
        spec = {"terminationGracePeriodSeconds": 1, **spec, "containers": [container]}
        return {"replicas": replicas, "template": {"spec": spec}, **fields}


class Place:
    """One namespace: jobs are made in it with kubectl, and asked after until they are as wanted."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace

    def kubectl(self, *words: object, check: bool = True, stdin: str | None = None) -> str:
        """What kubectl says, to standard output and then to standard error."""
        done = self.plane.kubectl("-n", self.namespace, *words, check=check, stdin=stdin)
        return done.stdout + done.stderr

    def make(self, name: str, **spec: Any) -> None:
        """kubectl apply of a job."""
        self.apply(job(name, **spec))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """kubectl apply of these, all at once."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def patch(self, name: str, spec: Mapping[str, Any], kind: str = "pdj") -> None:
        """kubectl patch of a spec."""
        change = json.dumps({"spec": spec})
        self.kubectl("patch", kind, name, "--type=merge", "-p", change)

    def job(self, name: str) -> dict[str, Any]:
        """A job; {} when there is none."""
        return self._fetch(f"{JOBS_PATH.format(self.namespace)}/{name}")

    def status(self, name: str) -> Status:
        """The status of a job; {} before it has one."""
        found: Status = self.job(name).get("status") or {}
        return found

    def pods(self, name: str = "") -> dict[str, dict[str, Any]]:
        """Pods by name, of one job or of all."""
        return {p["metadata"]["name"]: p for p in self.all("pods", name)}

    def all(self, plural: str, name: str = "") -> list[dict[str, Any]]:
        """Pods, services or configmaps, of one job or of all."""
        path = f"/api/v1/namespaces/{self.namespace}/{plural}"
        if name:
            path += f"?labelSelector=batch.paddlepaddle.org/job-name={name}"
        found: list[dict[str, Any]] = self._fetch(path).get("items") or []
        return found

    def uids(self, name: str) -> dict[str, str]:
        """The uid of each pod of a job, by the pod's name."""
        return {pod: found["metadata"]["uid"] for pod, found in self.pods(name).items()}

    def events(self, name: str) -> list[str]:
        """ "Reason: note" of each event of a job, in the order they were said."""
        words = ("get", "events.events.k8s.io", "-o", "json")
        listed = json.loads(self.kubectl(*words))["items"]
        ours = [e for e in listed if e["regarding"].get("name") == name]
        ours = [e for e in ours if e["regarding"].get("kind") == "PaddleJob"]
        return [f"{e['reason']}: {e['note']}" for e in sorted(ours, key=lambda e: e["eventTime"])]

    def told(self, name: str, text: str) -> str:
        """The event of a job that has that text. They are written after the status, in their turn.

        A job that has ended is so a moment before people are told why.
        """
        what = f"an event of {name} with {text!r}"
        found = self.soon(what, lambda: [e for e in self.events(name) if text in e], name)
        return str(found[0])

    def probe(self, pod: str, *words: str) -> str:
        """What probe says, run inside of a pod that runs."""
        done = self.kubectl("exec", pod, "--", "/bin/probe", *words, check=False)
        return done.strip()

    def logs(self, pod: str) -> str:
        """What a pod has printed; "" where it has not begun, or is gone."""
        status, body = self.plane.fetch(f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log")
        return body.decode("utf-8", "replace") if status == 200 else ""

    def logs_of(self, name: str, *, lines: int = 15) -> str:
        """The end of the log of every pod of a job."""
        logs = ((pod, self.logs(pod).splitlines()[-lines:]) for pod in self.pods(name))
        return "\n".join(f"[{pod}] {line}" for pod, last in logs for line in last)

    def wait(
        self,
        name: str,
        phase: str = "",
        *,
        reason: str = "",
        until: Callable[[Status], object] | None = None,
        seconds: float = WAIT_SECONDS_MAX,
    ) -> Status:
        """The status of a job as soon as it is this; fails with all that is known of it."""

        def is_so() -> Status | None:
            status = self.status(name)
            fits = phase in ("", status.get("phase")) and reason in ("", status.get("reason"))
            return status if status and fits and (until is None or until(status)) else None

        wanted = " ".join(filter(None, (phase, reason))) or "as wanted"
        return self.soon(f"{name} is {wanted}", is_so, name, seconds=seconds)

    def end(self, name: str, *, seconds: float) -> Status:
        """The status of a job that is over."""
        return self.wait(name, until=lambda s: s.get("phase") in ENDED, seconds=seconds)

    def wait_logged(self, name: str, pattern: str, *, seconds: float, lines: int = 15) -> None:
        """Come back when some pod of a job has printed that in its last lines."""
        what = f"{pattern} in a log"
        self.soon(what, lambda: re.search(pattern, self.logs_of(name, lines=lines)), name,
                  seconds=seconds)  # fmt: skip

    def wait_gone(self, kind: str, *names: str, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Come back when none of these objects is there; without names, none of that kind."""
        words = ("get", kind, *names, "-o", "name", "--ignore-not-found")
        self.soon(f"no {kind}", lambda: not self.kubectl(*words).strip(), seconds=seconds)

    def soon(
        self,
        what: str,
        ask: Callable[[], Any],
        name: str = "",
        *,
        seconds: float = WAIT_SECONDS_MAX,
    ) -> Any:
        """The first true answer; fails with what is known of the job of that name."""
        until = time.monotonic() + seconds
        while not (answer := ask()):
            assert time.monotonic() < until, f"not within {seconds:g} s: {what}\n{self.known(name)}"
            time.sleep(POLL_SECONDS)  # sleep: the states of other programs wake nobody here
        return answer

    def known(self, name: str) -> str:
        """All that can be said of a job, for a failed test."""
        lines = [json.dumps(self.status(name), indent=1) if name else "", *self.events(name)]
        for pod, found in self.pods(name).items():
            meta, status = found["metadata"], found.get("status", {})
            going = " (is being deleted)" if "deletionTimestamp" in meta else ""
            states = [c.get("state") for c in status.get("containerStatuses", [])]
            where = found["spec"].get("nodeName")
            lines.append(f"{pod}{going} on {where}: {status.get('phase')} {states}")
        lines.append(self.logs_of(name) if name else "")
        return "\n".join(lines)

    def _fetch(self, path: str) -> dict[str, Any]:
        status, body = self.plane.fetch(path)
        found: dict[str, Any] = json.loads(body) if status == 200 else {}
        return found


def condition(status: Status, type_: str) -> Status:
    """A condition of a job's status; {} without it."""
    found: Iterable[Status] = status.get("conditions") or ()
    return next((c for c in found if c["type"] == type_), {})
