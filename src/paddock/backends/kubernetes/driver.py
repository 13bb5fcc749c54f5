"""The Kubernetes backend: makes the objects of a plan, and later asks the API server."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from paddock.backends.backend import Received, Say
from paddock.backends.common.histories import Row, fetch_histories
from paddock.backends.common.news import with_news
from paddock.backends.kubernetes.forms import PADDLE, RESOURCES
from paddock.backends.kubernetes.objects import ANNOTATION, is_held, plan_of, told
from paddock.backends.kubernetes.planner import planned
from paddock.backends.registry import RegisteredJob
from paddock.backends.types import (
    FETCHED,
    Handle,
    JobStatus,
    LogChunk,
    LogQuery,
    Site,
    Submission,
    SubmissionPlan,
)
from paddock.errors import PaddockError, UsageError, extra_hint
from paddock.watch.history import STANDS

try:
    from paddock.backends.kubernetes import api, follow
    from paddock.backends.kubernetes.api import explained
    from paddock.backends.kubernetes.parse import ObservedJob, newest_pods, status_of
    from paddock.kube.client import KubeError
    from paddock.kube.http_client import HttpClient
    from paddock.kube.objects import seconds
except ImportError as error:
    LACKS = error.name or str(error)  # a plan does without
else:
    LACKS = ""

T = TypeVar("T")


class Kubernetes:
    """The backend for a namespace of a cluster that the user's kubeconfig names."""

    def plan(self, submission: Submission) -> SubmissionPlan:
        found = planned(submission)
        return plan_of(found.submission, found.options, found.form, found.objects)

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        need_client()
        found = planned(submission)
        objects, site = found.objects, submission.site
        kubeconfig, context = site.text("kubeconfig"), site.text("context")
        namespace = found.options.namespace or api.namespace_of(kubeconfig, context)
        run.keep(
            form=found.form,
            uid="",
            kubeconfig=kubeconfig,
            context=context,
            names=[row[1] for row in plan.rows],
            roles=told(found.submission, found.options, found.form)["roles"],
        )
        run.move(Handle("kubernetes", namespace, objects[0].name))
        say(f"making {len(objects)} objects in namespace {namespace}")

        async def make(client: HttpClient) -> str:
            if not found.options.form and found.form == "job" and await client.serves(PADDLE):
                say("this cluster knows PaddleJobs: form=paddlejob has its operator run the job")
            return await api.make(
                client, namespace, objects, is_held=is_held(found.options, found.form),
                keep=lambda uid: run.keep(uid=uid),
            )  # fmt: skip

        self._ask(run, make)
        return None

    def status(self, run: RegisteredJob) -> JobStatus:
        seen, place = self._look(run), run.handle.place
        status = status_of(seen, was_stopped=bool(run.details.get("is_stopped")))
        if status.state != "running":
            return status
        pods = sorted(newest_pods(seen).items())
        news = self._ask(run, lambda client: api.latest(client, place, pods[-1:]))  # of a worker
        if any(row["kind"] in STANDS for _, rows in news for row in rows):  # who is the suspect?
            news += self._ask(run, lambda client: api.latest(client, place, pods[:-1]))
        return with_news(status, news)

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        if query.follow and query.tail is not None:
            raise UsageError("--tail with --follow is not known here", hint="--since 1m --follow")
        self._learn(run)
        where = (run.details["kubeconfig"], run.details["context"], run.handle.place)
        try:
            yield from follow.stream(*where, lambda client: _see(client, run), query)
        except KubeError as error:
            raise explained(error, f"logs of {run.handle}", run.handle.place) from error

    def history(self, run: RegisteredJob) -> list[Path]:
        """Copy what is new in the pods that run; one that has ended gives out no files.

        What was copied before stays, also without the pods, the job or the cluster.
        """

        def ask_all(asked: Sequence[tuple[str, Row]]) -> Sequence[Row | PaddockError]:
            try:
                pods, place = newest_pods(self._look(run)), run.handle.place
                found = [(pods.get(name), row) for name, row in asked]
                return self._ask(run, lambda client: api.histories(client, place, found))
            except PaddockError as error:
                return [error] * len(asked)

        self._learn(run)
        return fetch_histories(
            run.folder / "history", [(name, {}) for name in run.details["names"]], ask_all
        )

    def stacks(self, run: RegisteredJob, *, native: bool) -> list[dict[str, Any]]:
        """Ask the launchers in the pods that run."""
        pods, place = newest_pods(self._look(run)).values(), run.handle.place
        asked = [pod for pod in pods if pod.status.phase == "Running"]
        if not asked:
            hint = f"paddock status {run.run_id}"
            raise UsageError(f"no pod of {run.handle} runs now", hint=hint)
        return self._ask(run, lambda client: api.stacks(client, place, asked, native=native))

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Suspend the job: its pods get SIGTERM and its grace; the job object stays for status."""
        seen = self._look(run)
        if seen.top is None:
            raise UsageError(f"{run.handle} is not in the cluster any more")
        if not now:
            with suppress(PaddockError):  # it ends with the pods
                self.history(run)
        run.keep(is_stopped=True)
        self._ask(run, lambda client: api.end(client, seen, run.handle.place, now=now))

    def fetch(
        self, run: RegisteredJob, to: Path, say: Say, received: Received,
        parts: Sequence[str] = FETCHED,
    ) -> None:  # fmt: skip
        """Copy the pods' logs. Output of a job is on its volumes, or gone with its pods."""
        if "log" not in parts:
            return
        with suppress(PaddockError):
            self.history(run)
        names, folder = set(newest_pods(self._look(run))), to / "log"
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            files = {n: stack.enter_context(open(folder / n / "console.log", "wb")) for n in names}
            for piece in self.logs(run, LogQuery()):
                pod, _, process = piece.label.partition(" ")
                files[pod].write((f"[{process}] ".encode() if process else b"") + piece.data)
                received(len(piece.data))
        say(f"fetched {len(files)} logs into {folder}; output/ is where your volumes are")

    def delete(self, run: RegisteredJob) -> None:
        seen = self._look(run)
        if seen.top is None:
            return
        resource, uid = RESOURCES[seen.form], seen.top["metadata"]["uid"]
        place, name = run.handle.place, run.handle.name
        self._ask(run, lambda client: client.delete(resource, place, name, uid=uid))

    def discover(self, site: Site) -> list[tuple[Handle, dict[str, object]]]:
        need_client()
        kubeconfig, context = site.text("kubeconfig"), site.text("context")
        namespace = site.text("namespace") or api.namespace_of(kubeconfig, context)
        try:
            jobs = api.ask(kubeconfig, context, lambda client: api.listed(client, namespace))
        except KubeError as error:
            raise explained(error, "list jobs", namespace) from error
        found: list[tuple[Handle, dict[str, object]]] = []
        for form, job in jobs:
            details = {**_details(form, job), "kubeconfig": kubeconfig, "context": context}
            handle = Handle("kubernetes", namespace, job["metadata"]["name"])
            said = _said(job)
            row = {"name": said.get("name"), "command": said.get("program"),
                   "nnodes": len(details["names"]), "details": details,
                   "created_at": seconds(job["metadata"].get("creationTimestamp"))}  # fmt: skip
            found.append((handle, row))
        return found

    def _look(self, run: RegisteredJob) -> ObservedJob:
        self._learn(run)
        return self._ask(run, lambda client: _see(client, run))

    def _learn(self, run: RegisteredJob) -> None:
        """Fill in a run's details, if only its handle is known, from the annotations of the job."""
        need_client()
        if "form" in run.details:
            return
        run.details.update(kubeconfig="", context="")
        place, name = run.handle.place, run.handle.name
        jobs = self._ask(run, lambda client: api.listed(client, place))
        for form, job in jobs:
            if job["metadata"]["name"] == name:
                run.keep(**_details(form, job))
                return
        raise UsageError(f"{run.handle}: no such job of paddock is in namespace '{place}'")

    def _ask(self, run: RegisteredJob, work: Callable[[HttpClient], Awaitable[T]]) -> T:
        try:
            return api.ask(run.details["kubeconfig"], run.details["context"], work)
        except KubeError as error:
            raise explained(error, str(run.handle), run.handle.place) from error


def need_client() -> None:
    """Raise UsageError if the client of the API server is not installed."""
    if LACKS:
        raise UsageError(
            f"jobs on Kubernetes need {LACKS}, which is not installed here",
            hint=extra_hint("operator"),
        )


async def _see(client: HttpClient, run: RegisteredJob) -> ObservedJob:
    form, place, name = run.details["form"], run.handle.place, run.handle.name
    top = await api.top_of(client, form, place, name, run.details["uid"])
    if dict.get(run.details, "is_of_others"):
        pods = await api.pods_of_others(client, place, run.details["uid"])
    else:
        pods = await api.pods_of(client, place, name) if top is not None else ()
    events: list[str] = []
    if top is not None and not pods:
        events = await api.refusals_of(client, place, top["metadata"]["uid"])
    names, roles = run.details["names"], run.details["roles"]
    return ObservedJob(form, top, pods, names, roles, time.time(), events)


def _details(form: str, job: dict[str, Any]) -> dict[str, Any]:
    said = _said(job)
    names, roles = said.get("names"), said.get("roles")
    roles = roles if isinstance(roles, dict) else {}
    return {
        "form": form, "uid": job["metadata"]["uid"],
        "names": [str(name) for name in names] if isinstance(names, list) else [],
        "roles": {str(role): n for role, n in roles.items() if isinstance(n, int)},
    }  # fmt: skip


def _said(job: dict[str, Any]) -> dict[str, Any]:
    """Return our annotation on a job; other users may have changed it."""
    try:
        found = json.loads((job["metadata"].get("annotations") or {}).get(ANNOTATION, ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
