"""Installs the operator and removes it: applies, waits, verifies, and says each in one line.

step          done when                                            wrong, and waiting will not help
-----------   --------------------------------------------------   --------------------------------
definition    the API server serves it                             its names are taken
objects       each is applied; force, as these files are its own   refused
deployment    the copies of this template are available            a pod of it is in BACKING_OFF
leader        one of the pods holds the lease
jobs          a PaddleJob is accepted, without being made          refused

Everything else that is not yet so is waited for until the deadline, and then said. Applying again
changes nothing; what an older kubectl apply left in the Deployment's template is replaced.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from paddock.errors import PaddockError
from paddock.kube.client import (
    COSCHEDULING_GROUPS,
    CRDS,
    LEASES,
    PADDLE_JOBS,
    PODS,
    VOLCANO_GROUPS,
    KubeError,
    Query,
)
from paddock.kube.objects import Object
from paddock.operator.manifests.crd import crd
from paddock.operator.manifests.install import (
    DEPLOYMENT,
    DEPLOYMENTS,
    GANGS,
    KINDS,
    LABELS,
    POD_SECURITY,
    POLICIES,
    SELECTOR,
    Install,
    group_of,
    objects,
    place_of,
)
from paddock.operator.names import LEASE
from paddock.operator.outcome import waits_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from paddock.kube.client import KubeClient, Manifest, Resource
    from paddock.kube.objects import Meta, Pod
    from paddock.operator.runtime.clock import Clock

T = TypeVar("T")
BACKING_OFF = ("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CrashLoopBackOff")
OF_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull")
IMAGE_HINT = (
    "put the image on the nodes (deploy/images/build.sh operator --load kind), or name one that"
    " they can pull with --image"
)

# What to do when the API server says no, by the HTTP status; 0 is no answer.
HINTS = {
    0: "does the cluster run, and is it this kubeconfig's? kubectl cluster-info",
    401: "the credentials of this kubeconfig are refused: kubectl auth whoami",
    403: "ask an administrator of the cluster, or give them `paddock operator install --dry-run`",
    404: "the cluster lacks its namespace, or its kind",
}

DEFINITION = f"{PADDLE_JOBS.plural}.{PADDLE_JOBS.group}"
POLL_SECONDS = 0.5  # between two looks: three kinds of object are waited for, once
OPERATOR_PODS = ",".join(f"{name}={value}" for name, value in SELECTOR.items())
PART_OF = "app.kubernetes.io/part-of"
POD: Manifest = {"spec": {"containers": [{"name": "none", "image": "localhost/none"}]}}
JOB: Manifest = {
    "metadata": {"name": "paddock-install-check"},
    "spec": {"worker": {"replicas": 1, "template": POD}},
}


class InstallError(PaddockError):
    """The operator does not run, or could not be removed."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, exit_code=1)


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The progress of a step. done: its report; "" when it is not done, for the reason in why."""

    done: str = ""
    why: str = ""
    is_final: bool = False
    hint: str = ""


@dataclass(eq=False)
class Installer:
    """Works on one cluster. report gets a line for each step, wait the step that it waits for."""

    client: KubeClient
    settings: Install
    _: KW_ONLY
    clock: Clock
    report: Callable[[str], None]
    timeout_seconds: float
    wait: Callable[[str], None] = lambda _text: None

    def __post_init__(self) -> None:
        self._ends_at = self.clock.monotonic() + self.timeout_seconds
        self._is_first_check = True

    async def install(self, *, waits: bool, has_monitor: bool = False) -> None:
        """Make it so. Raises InstallError, and KubeError when the server cannot be asked."""
        await self._find_served_kinds()
        found = objects(self.settings)
        if has_monitor:
            found += group_of("monitor", self.settings)
        await self._refuse_a_second()
        await self._refuse_a_release(found)
        has_jobs = await self._has_jobs()
        await self._apply_all("definition", [crd()])
        await self._wait_for("definition", self._check_definition)
        namespace, *rest = found
        if has_jobs:  # the label would refuse people's pods
            metadata: Any = namespace["metadata"]
            metadata["labels"].pop(POD_SECURITY, None)
        await self._apply_all("namespace", [namespace])
        if has_jobs:
            self.report(f"namespace {self.settings.namespace}: has jobs, so any pod may run there")
        deployments = [one for one in rest if one["kind"] == "Deployment"]
        await self._apply_all("rights", [one for one in rest if one["kind"] != "Deployment"])
        await self._take_back(rest)
        if not self.settings.has_policy:  # nor that of an earlier installation
            rules = group_of("policy", self.settings)[::-1]
            if [one for one in rules if await self._delete(*place_of(one))]:
                self.report("policy of an earlier installation: removed")
        if not self.settings.watch_namespaces:
            self.report("rights: in all namespaces; --watch-namespaces A,B limits them to those")
        await self._apply_all("deployment", deployments)
        if waits:
            await self._wait_for("deployment", self._check_deployment)
            await self._wait_for("leader", self._check_leader)
            await self._wait_for("jobs", self._check_jobs)

    async def _find_served_kinds(self) -> None:
        """Rights and rules for the kinds that the API server has."""
        install = self.settings
        if not install.gangs:
            kinds = {"volcano": VOLCANO_GROUPS, "coscheduling": COSCHEDULING_GROUPS}
            gangs = tuple([name for name, kind in kinds.items() if await self._is_served(kind)])
            install = replace(install, gangs=gangs)
        if install.has_policy and not await self._is_served(POLICIES):
            self.report("policy: left out, this API server has no ValidatingAdmissionPolicy (1.30)")
            install = replace(install, has_policy=False)
        self.settings = install

    async def _is_served(self, resource: Resource[Any]) -> bool:
        page = self.client.page(resource, Query(limit=1))
        return await _unless_missing(page, f"{resource.kind} cannot be listed") is not None

    async def _take_back(self, wanted: Sequence[Manifest]) -> int:
        """Remove bindings of an earlier installation: in namespaces that are served no more."""
        stay = [place_of(one) for one in wanted]
        labels = ",".join(f"{name}={value}" for name, value in LABELS.items())
        gone = 0
        for kind in (KINDS["ClusterRoleBinding"], KINDS["RoleBinding"]):
            for one in (await self.client.page(kind, Query(labels=labels))).items:
                meta = one.metadata
                # Also one that others have applied: helm template, Argo CD.
                is_charts = bool(meta.label("helm.sh/chart"))
                is_ours = meta.name.startswith("paddle-manager-") and not is_charts
                place = kind, meta.namespace, meta.name
                gone += is_ours and place not in stay and await self._delete(*place)
        if gone and wanted:
            self.report(f"rights of an earlier installation ({gone} objects): removed")
        return gone

    async def uninstall(self, *, waits: bool, has_definition: bool) -> None:
        """Remove it; with its definition only when that is asked for, since all jobs go with it."""
        # Whatever it was installed with.
        there = (self.settings.namespace,)
        all_of = replace(self.settings, gangs=GANGS, metrics_from=there, has_policy=True)
        namespace, *rest = objects(all_of)
        await self._refuse_a_release(rest)
        found = [*reversed(rest), *group_of("monitor", self.settings)]
        removed = sum([await self._delete(*place_of(one)) for one in found])
        removed += await self._take_back([])
        self.report(f"operator: {f'{removed} objects removed' if removed else 'not there'}")
        if has_definition and await self._delete(CRDS, "", DEFINITION):
            self.report(f"definition {DEFINITION}: removed, and all jobs with it")
            if waits:
                await self._wait_for("definition", lambda: self._check_removed(crd()))
        if kept := await self._keeps():
            self.report(f"namespace {self.settings.namespace}: kept, {kept}")
        elif await self._delete(*place_of(namespace)) and waits:
            await self._wait_for("namespace", lambda: self._check_removed(namespace))

    # ----------------------------------------------------------------------------------- applying

    async def _apply_all(self, what: str, manifests: Sequence[Manifest]) -> None:
        """Apply objects, and say in a line what that did."""
        done = Counter([await self._apply(manifest) for manifest in manifests])
        if len(manifests) == 1:
            self.report(f"{what} {place_of(manifests[0])[2]}: {''.join(done)}")
        else:
            counts = ", ".join(f"{count} {word}" for word, count in done.items())
            self.report(f"{what} ({len(manifests)} objects): {counts}")

    async def _apply(self, manifest: Manifest) -> str:
        resource, namespace, name = place_of(manifest)
        before = (await self._found(resource, namespace, name)).metadata
        try:
            found = await self.client.patch(resource, namespace, name, manifest, kind="apply")
            if before.resourceVersion and resource is DEPLOYMENTS:
                spec: Any = manifest["spec"]
                template: list[object] = [
                    {"op": "replace", "path": "/spec/template", "value": spec["template"]}
                ]
                found = await self.client.patch(resource, namespace, name, template, kind="json")
        except KubeError as error:
            raise refused(f"{resource.kind} {name} is not applied", error) from error
        if not before.resourceVersion:
            return "created"
        return "unchanged" if _is_same(before, found.metadata, manifest) else "changed"

    async def _found(self, resource: Resource[Any], namespace: str, name: str) -> Any:
        """An object; one without metadata when it is not there."""
        found = self.client.get(resource, namespace, name)
        return await _unless_missing(found, f"{resource.kind} {name} cannot be read") or Object()

    async def _refuse_a_second(self) -> None:
        """Two would share the rights of the cluster, and work on the same jobs."""
        found = await self.client.page(DEPLOYMENTS, Query(fields=f"metadata.name={DEPLOYMENT}"))
        for one in found.items:
            if (there := one.metadata.namespace) != self.settings.namespace:
                hint = f"paddock operator uninstall --namespace {there}; or the Helm chart for both"
                raise InstallError(f"an operator is already in namespace {there}", hint=hint)

    async def _refuse_a_release(self, manifests: Sequence[Manifest]) -> None:
        """The chart's operator has its right to jobs from a binding of the same name."""
        for manifest in manifests:
            resource, namespace, name = place_of(manifest)
            if not resource.kind.endswith("Binding"):
                continue
            there = (await self._found(resource, namespace, name)).metadata
            release = there.annotation("meta.helm.sh/release-name")
            if release and there.label(PART_OF) == LABELS[PART_OF]:
                where = there.annotation("meta.helm.sh/release-namespace")
                raise InstallError(
                    f"{resource.kind} {name} belongs to Helm's release {release}",
                    hint=f"helm --namespace {where} uninstall {release}, or go on with helm;"
                    " jobs stay",
                )

    async def _has_jobs(self) -> bool:
        """True where people run jobs where the operator is: paddle-operator's documents said so."""
        jobs = self.client.page(PADDLE_JOBS, Query(self.settings.namespace, limit=1))
        page = await _unless_missing(jobs, "jobs cannot be listed")
        return page is not None and bool(page.items)

    # ------------------------------------------------------------------------------------ waiting

    async def _wait_for(self, what: str, check: Callable[[], Awaitable[RolloutState]]) -> None:
        """Look until it is so. Raises InstallError."""
        while True:
            try:
                found = await check()
            except KubeError as error:
                if not error.retryable:
                    raise refused(what, error) from error
                found = RolloutState(why=error.message)
            self.wait(f"{what}: {found.why}")
            if found.done:
                self.report(f"{what}: {found.done}")
                return
            if found.is_final:
                raise InstallError(f"{what}: {found.why}", hint=found.hint)
            if self.clock.monotonic() >= self._ends_at:
                late = f"not within {self.timeout_seconds:g} s (--timeout)"
                raise InstallError(f"{what}: {found.why}; {late}", hint=found.hint)
            await self.clock.sleep(POLL_SECONDS)

    async def _check_definition(self) -> RolloutState:
        found = await self.client.get(replace(KINDS[CRDS.kind], shape=dict), "", DEFINITION)
        for one in found.get("status", {}).get("conditions") or ():
            if one["type"] == "NamesAccepted" and one["status"] == "False":
                why = f"{one.get('reason')}: {one.get('message')}"
                return RolloutState(why=why, is_final=True)
            if one["type"] == "Established" and one["status"] == "True":
                return RolloutState("established")
        return RolloutState(why="the API server does not serve it yet")

    async def _check_deployment(self) -> RolloutState:
        deployments = replace(DEPLOYMENTS, shape=dict)
        found = await self.client.get(deployments, self.settings.namespace, DEPLOYMENT)
        pods = await self._pods()
        if self._is_first_check:
            # Take away pods that only wait for their image's next try, which may be minutes away.
            for meta in (pod.metadata for pod in pods if waits_for(pod).startswith(OF_IMAGE)):
                await self.client.delete(PODS, meta.namespace, meta.name, uid=meta.uid)
            pods, self._is_first_check = [], False
        return rollout_state(found, pods)

    async def _check_leader(self) -> RolloutState:
        try:
            lease = await self.client.get(LEASES, self.settings.namespace, LEASE)
        except KubeError as error:
            if error.status == 404:
                return RolloutState(why="nobody has asked for the lease")
            raise
        holder = (lease.spec.holderIdentity or "").rpartition("_")[0]
        if holder in {pod.metadata.name for pod in await self._pods()}:
            return RolloutState(holder)
        why = f"the lease is held by {holder}" if holder else "nobody holds the lease"
        return RolloutState(why=why)

    async def _check_jobs(self) -> RolloutState:
        namespace = (*self.settings.watch_namespaces, self.settings.namespace)[0]
        try:
            await self.client.create(PADDLE_JOBS, namespace, JOB, dry_run=True)
        except KubeError as error:
            is_early = error.status == 404 or error.retryable
            why = f"a PaddleJob is refused: {error.message}"
            return RolloutState(why=why, is_final=not is_early)
        return RolloutState("a PaddleJob is accepted")

    async def _check_removed(self, manifest: Manifest) -> RolloutState:
        resource, namespace, name = place_of(manifest)
        if (await self._found(resource, namespace, name)).metadata.resourceVersion:
            return RolloutState(why=f"{name} is still being removed")
        return RolloutState("removed")

    async def _pods(self) -> list[Pod]:
        """The operator's pods that stay."""
        query = Query(self.settings.namespace, labels=OPERATOR_PODS)
        pods = (await self.client.page(PODS, query)).items
        return [pod for pod in pods if not pod.metadata.deletionTimestamp]

    # ----------------------------------------------------------------------------------- removing

    async def _delete(self, resource: Resource[Any], namespace: str, name: str) -> bool:
        """Delete an object; whether it was there."""
        try:
            await self.client.delete(resource, namespace, name)
        except KubeError as error:
            if error.status == 404:
                return False
            raise refused(f"{resource.kind} {name} is not removed", error) from error
        return True

    async def _keeps(self) -> str:
        """Why the namespace stays, "" when nobody else is in it."""
        namespace = self.settings.namespace
        meta = (await self._found(KINDS["Namespace"], "", namespace)).metadata
        name = "app.kubernetes.io/name"
        if meta.name and meta.label(name) != LABELS[name]:
            return "it was not made by this"
        if await self._has_jobs():
            return "there are jobs in it"
        found = await self.client.page(PODS, Query(namespace))
        others = [
            p for p in found.items if not SELECTOR.items() <= (p.metadata.labels or {}).items()
        ]
        return f"there are other pods in it ({others[0].metadata.name})" if others else ""


async def _unless_missing(answer: Awaitable[T], what: str) -> T | None:
    """The answer, None for a 404. Raises InstallError for another refusal: what failed by it."""
    try:
        return await answer
    except KubeError as error:
        if error.status == 404:
            return None
        raise refused(what, error) from error


def rollout_state(found: dict[str, Any], pods: Sequence[Pod]) -> RolloutState:
    """How far a Deployment is, as `kubectl rollout status` has it; or what is wrong with a pod."""
    wanted, status = found["spec"].get("replicas", 1), found.get("status", {})
    is_seen = status.get("observedGeneration", 0) >= found["metadata"].get("generation", 0)
    there, updated, available = (
        status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")
    )
    if is_seen and updated == there == wanted <= available:
        return RolloutState(f"{wanted} of {wanted} available")
    for pod in pods:
        if why := waits_for(pod):
            hint = IMAGE_HINT if why.startswith(OF_IMAGE) else ""
            text = f"pod {pod.metadata.name} on {pod.spec.nodeName or 'no node'}: {why}"
            return RolloutState(why=text, is_final=why.startswith(BACKING_OFF), hint=hint)
    for one in status.get("conditions") or ():
        if one["type"] == "ReplicaFailure" and one["status"] == "True":
            return RolloutState(why=f"{one.get('reason')}: {one.get('message')}")
    return RolloutState(why=f"{available} of {wanted} are available")


def refused(what: str, error: KubeError) -> InstallError:
    """The error of a call that the API server refused: what failed by it, and what to do."""
    return InstallError(f"{what}: {error.message}", hint=HINTS.get(error.status, ""))


def _is_same(before: Meta, now: Meta, manifest: Manifest) -> bool:
    """True where applying the manifest has changed nothing.

    A controller that writes the status at the same time makes a new resourceVersion, too; whatever
    has a status counts its generations.
    """
    if not now.generation:
        return now.resourceVersion == before.resourceVersion
    wanted: Any = manifest["metadata"]
    return now.generation == before.generation and all(
        (getattr(before, what) or {}).get(name) == value
        for what in ("labels", "annotations")
        for name, value in (wanted.get(what) or {}).items()
    )
