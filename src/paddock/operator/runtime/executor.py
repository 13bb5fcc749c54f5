"""Executor: carries out a Decision. Status first, then the actions, group by group.

An operator that is killed in the middle finds its intention in the status, and its objects in the
cluster; nothing else has to be remembered. The JobRecord of a job only saves calls and waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from paddock.kube.client import (
    CONFIG_MAPS,
    COSCHEDULING_GROUPS,
    PADDLE_JOBS,
    PODS,
    SERVICES,
    VOLCANO_GROUPS,
    KubeError,
)
from paddock.operator import messages
from paddock.operator.decision import OF_FORMER, Create, Delete
from paddock.operator.names import LABEL_GROUP_OF, LABEL_JOB, LABEL_POD, job_uid
from paddock.operator.runtime.informer import key_of
from paddock.operator.runtime.job_record import (
    OF_ONE_OBJECT,
    JobRecord,
    call_of,
    explain_conflict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.kube.client import KubeClient, Manifest, PatchKind, Resource, Warn
    from paddock.kube.objects import PaddleJob
    from paddock.operator.decision import Action, Decision, Kind, Patch
    from paddock.operator.runtime.clock import Clock
    from paddock.operator.runtime.informer import Key, ObjectCache
    from paddock.operator.runtime.log import Logger

GROUPS: tuple[Kind, ...] = ("VolcanoGroup", "CoschedulingGroup")
RESOURCES: Mapping[Kind, Resource[Any]] = {
    "Pod": PODS,
    "Service": SERVICES,
    "ConfigMap": CONFIG_MAPS,
    "VolcanoGroup": VOLCANO_GROUPS,
    "CoschedulingGroup": COSCHEDULING_GROUPS,
    "PaddleJob": PADDLE_JOBS,
}
# What the caches select by: objects without that label are not seen. paddle-operator's pods and
# ConfigMaps have the first one only, its Services none, and its jobs go on under us.
SEEN_BY: Mapping[Kind, str] = {"PaddleJob": "", "Pod": LABEL_POD, "ConfigMap": LABEL_POD}
BATCH_MAX = 64

Ended = Literal["done", "conflict", "gone"]


@dataclass(eq=False)
class Executor:
    """stores: the cache of each kind, to compare with. Of one event loop."""

    client: KubeClient
    stores: Mapping[Kind, ObjectCache[Any]]
    _: KW_ONLY
    clock: Clock
    log: Logger

    async def carry_out(self, job: PaddleJob, memory: JobRecord, decision: Decision) -> Ended:
        """Write the status, then act; refused actions become faults in memory.

        "conflict": the job was another by then, decide again. "gone": there is no such job.
        Raises KubeError when the status was refused; no action was taken then. Raises FencedError.
        """
        if decision.status is not None:
            ended = await self._write_status(job, memory, decision.status)
            if ended != "done":
                return ended
        memory.faults.keep(decision.actions)
        now = self.clock.monotonic()
        wanted = [a for a in decision.actions if not memory.faults.hold(a, now)]
        for _, group in groupby(wanted, key=lambda action: (type(action), action.kind)):
            await self._take_group(job, memory, list(group))
        return "done"

    async def _write_status(
        self, job: PaddleJob, memory: JobRecord, status: Mapping[str, object]
    ) -> Ended:
        wanted, present, meta = canonical(status), canonical(job.status), job.metadata
        # An older definition drops fields it does not know: then the answer never equals what was
        # sent, and sending it again would not end. It is sent once more when somebody touches the
        # job: the definition may be a newer one by then.
        is_pruned = (wanted, present, meta.resourceVersion) == (
            memory.sent, memory.answered, memory.version
        )  # fmt: skip
        if wanted == present or is_pruned:
            return "done"
        change: dict[str, object] = {
            "metadata": {"resourceVersion": meta.resourceVersion, "uid": meta.uid},
            "status": merge_change(present, wanted),
        }
        try:
            answer = await self.client.patch(
                PADDLE_JOBS, meta.namespace, meta.name, change, subresource="status"
            )
        except KubeError as error:
            if error.status == 409:
                return "conflict"
            if error.status == 404:
                return "gone"
            raise
        answered = canonical(answer.status)
        is_same = answered == wanted
        memory.sent, memory.answered = (None, None) if is_same else (wanted, answered)
        memory.version = answer.metadata.resourceVersion
        self.stores["PaddleJob"].follow(answer, meta.resourceVersion)
        return "done"

    async def _take_group(
        self, job: PaddleJob, memory: JobRecord, actions: Sequence[Action]
    ) -> None:
        """Slow start: 1, 2, 4, ... at once. A refusal ends the group; the rest is for another pass.

        But for one that is about its object alone. The other groups go on: what refuses Services,
        as a webhook that is down, may take pods.
        """
        at, done, size, is_over = 0, 0, 1, False
        while at < len(actions) and not is_over and self._is_current(job):
            batch = actions[at : at + size]
            answers = await asyncio.gather(
                *(self._take(job, memory, action) for action in batch), return_exceptions=True
            )
            refused = [answer for answer in answers if answer is not None]
            for error in refused:
                if not isinstance(error, KubeError):
                    raise error
                is_over |= error.reason not in OF_ONE_OBJECT
            at += len(batch)
            done += len(batch) - len(refused)
            size = min(size * 2, BATCH_MAX)
        if done:
            verb, kind, _ = call_of(actions[0])
            is_asked = isinstance(actions[0], Create) and actions[0].dry_run
            count = f"{done}/{len(actions)}"
            self.log.info(
                "ask" if is_asked else verb, job="/".join(key_of(job)), kind=kind, objects=count
            )

    def _is_current(self, job: PaddleJob) -> bool:
        """True while the job is still as observed: not deleted, replaced or changed."""
        now = self.stores["PaddleJob"].get((job.metadata.namespace, job.metadata.name))
        return (
            now is not None
            and now.metadata.uid == job.metadata.uid
            and now.metadata.generation == job.metadata.generation
            and bool(now.metadata.deletionTimestamp) == bool(job.metadata.deletionTimestamp)
        )

    async def _take(self, job: PaddleJob, memory: JobRecord, action: Action) -> None:
        """Make one call. Raises KubeError after noting the failed call."""
        try:
            if isinstance(action, Create) and action.dry_run:
                await self._ask(job, memory, action)
            elif isinstance(action, Create):
                await self._create(job, memory, action)
            elif isinstance(action, Delete):
                await self._delete(job, memory, action)
            else:
                await self._patch(job, memory, action)
        except KubeError as error:
            fault = memory.faults.record(
                action, error, now=self.clock.now(), monotonic=self.clock.monotonic()
            )
            is_normal = error.is_of_ending_namespace or error.reason == OF_FORMER
            log = self.log.info if is_normal else self.log.warning
            log(
                f"could not {fault.verb} {fault.kind} {fault.name}",
                job="/".join(key_of(job)), reason=error.message, tries=fault.count,
                again_in=f"{fault.retry_at - fault.at:.1f}s",
            )  # fmt: skip
            raise
        memory.faults.succeed(action)

    async def _create(self, job: PaddleJob, memory: JobRecord, action: Create) -> None:
        warnings: list[str] = []
        now = self.clock.monotonic()
        expected = memory.expectations
        with expected.expecting("create", action.kind, action.name, now) as token:
            is_made = await self._make(job, action, warnings.append)
        if action.kind == "Pod" and is_made:
            unknown = messages.unknown_fields(job.metadata.name, action.name, warnings)
            memory.unknown = (memory.unknown or frozenset()) | unknown
        # Made by us before, and the answer was lost or the cache is behind.
        key = (job.metadata.namespace, action.name)
        if not is_made and self._owner(action.kind, key) == job.metadata.uid:
            expected.withdraw(token)

    async def _ask(self, job: PaddleJob, memory: JobRecord, action: Create) -> None:
        """Raises KubeError when the API server would not take it."""
        resource, namespace = RESOURCES[action.kind], job.metadata.namespace
        is_there = self._owner(action.kind, (namespace, action.name)) == job.metadata.uid
        try:
            await self.client.create(resource, namespace, action.manifest, dry_run=True)
        except KubeError as error:
            # What is in it was looked at before; a quota counts the pod that is to go.
            would_fit = error.reason == "AlreadyExists" or "exceeded quota" in error.message
            if not is_there or not would_fit:
                raise
        memory.allowed.add(action.name)

    async def _make(self, job: PaddleJob, action: Create, warn: Warn) -> bool:
        """False: it is there, and ours; made visible, if somebody took its label.

        A PodGroup that nobody controls was made by a user, for the job of its name: it is used.
        """
        resource, namespace = RESOURCES[action.kind], job.metadata.namespace
        try:
            await self.client.create(resource, namespace, action.manifest, warn=warn)
            return True
        except KubeError as error:
            if error.reason != "AlreadyExists":
                raise
            taken = error
        try:
            there = (await self.client.get(resource, namespace, action.name)).metadata
        except KubeError as error:
            if error.status != 404:
                raise
            # It has just gone.
            await self.client.create(resource, namespace, action.manifest, warn=warn)
            return True
        label = SEEN_BY.get(action.kind, LABEL_JOB)
        # No other label: without its attempt it counts as of an earlier one, and is replaced.
        labels = {label: action.name if label == LABEL_POD else job.metadata.name}
        if action.kind in GROUPS and not there.controller_uid:
            labels[LABEL_GROUP_OF] = job.metadata.uid
        elif there.controller_uid != job.metadata.uid:
            raise explain_conflict(taken, there.controller, job.metadata.name)
        if any(not there.label(name) for name in labels) or job_uid(there) != job.metadata.uid:
            change: Manifest = {"metadata": {"uid": there.uid, "labels": labels}}
            await self.client.patch(resource, namespace, action.name, change)
            self.log.info(
                "took back what had no label", job="/".join(key_of(job)), kind=action.kind,
                name=action.name, label=label,
            )  # fmt: skip
        return False

    async def _delete(self, job: PaddleJob, memory: JobRecord, action: Delete) -> None:
        resource, namespace = RESOURCES[action.kind], job.metadata.namespace
        expected = memory.expectations
        known = self.stores[action.kind].get((namespace, action.name))
        token = None
        meta = known.metadata if known is not None else None
        # One that is going already may not change by this: nothing to wait for then.
        if meta is not None and meta.uid == action.uid and not meta.deletionTimestamp:
            now = self.clock.monotonic()
            token = expected.expect("delete", action.kind, action.uid, now)
        try:
            await self.client.delete(
                resource, namespace, action.name,
                uid=action.uid, grace_seconds=action.grace_seconds,
            )  # fmt: skip
        except KubeError as error:
            if error.status in (404, 409):  # It is gone, or another has its name.
                return
            if token is not None:
                expected.withdraw(token)
            raise

    async def _patch(self, job: PaddleJob, memory: JobRecord, action: Patch) -> None:
        resource, namespace = RESOURCES[action.kind], job.metadata.namespace
        expected = memory.expectations
        known = self.stores[action.kind].get((namespace, action.name))
        change: Manifest | list[object]
        kind: PatchKind = "merge"
        if isinstance(action.change, tuple):
            is_that = {"op": "test", "path": "/metadata/uid", "value": action.uid}
            change, kind = [is_that, *action.change], "json"
        else:
            metadata = action.change.get("metadata")
            inside = dict(metadata) if isinstance(metadata, dict) else {}
            change = {**action.change, "metadata": {**inside, "uid": action.uid}}
        now = self.clock.monotonic()
        try:
            with expected.expecting("change", action.kind, action.name, now) as token:
                answer = await self.client.patch(
                    resource, namespace, action.name, change, kind=kind
                )
        except KubeError as error:
            # Another uid is refused as a change of a field that cannot change, or by its test.
            fields = [field for field, _ in error.causes]
            is_another = "metadata.uid" in fields or (kind == "json" and error.status == 422)
            if error.status in (404, 409) or is_another:
                return
            raise
        if known is None or known.metadata.resourceVersion == answer.metadata.resourceVersion:
            expected.withdraw(token)  # It was like that already: no change will be seen.

    def _owner(self, kind: Kind, key: Key) -> str:
        known = self.stores[kind].get(key)
        return job_uid(known.metadata) if known is not None else ""


def canonical(value: object) -> object:
    """The value as the API server would give it back: no nulls in objects, lists of plain values.

    >>> canonical({"a": None, "b": ({"c": 1, "d": None},)})
    {'b': [{'c': 1}]}
    """
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    return value


def merge_change(old: object, new: object) -> object:
    """The merge patch (RFC 7386) that makes ``old`` into ``new``; {} when they are equal.

    Both canonical. Lists are replaced as a whole.

    >>> merge_change({"phase": "Pending", "ps": {"pending": 1}}, {"ps": {"running": 1}})
    {'ps': {'running': 1, 'pending': None}, 'phase': None}
    """
    if not isinstance(new, dict):
        return new
    if not isinstance(old, dict):
        old = {}
    changed = {
        name: merge_change(old[name], value) if name in old else value
        for name, value in new.items()
        if name not in old or old[name] != value
    }
    return changed | dict.fromkeys(name for name in old if name not in new)
