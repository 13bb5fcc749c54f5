"""The input and the output of reconcile. Data only.

``reconcile(observed, now, settings)`` is pure: the same arguments give the same Decision. The shell
first writes ``status`` (with the resourceVersion that was read, so a stale one is refused), then
carries out ``actions`` in order of their groups, then records ``events`` and comes back at
``wake_at`` or at the next change. Because the status is written first, an operator that is killed
between the two finds its intention again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.kube.client import Manifest
    from paddock.kube.objects import ConfigMap, Object, PaddleJob, Pod, PodGroup

Kind = Literal["Pod", "Service", "ConfigMap", "VolcanoGroup", "CoschedulingGroup", "PaddleJob"]
EventType = Literal["Normal", "Warning"]
SCHEDULERS = ("", "volcano", "coscheduling")  # gang schedulers of all jobs; "" for none


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The operator's settings, from its flags.

    scheduling: one of SCHEDULERS.
    init_image: image of a waiting init container, "" for none.
    host_ports: range for jobs with intranet Host, below Linux' ephemeral ports.
    """

    scheduling: str = ""
    init_image: str = ""
    host_ports: tuple[int, int] = (20000, 30000)
    force_delete_seconds: float = 60.0
    backoff_initial_seconds: float = 2.0
    backoff_max_seconds: float = 300.0
    healthy_seconds: float = 600.0


# FailedCall.reason where the name is still that of a deleted job's object.
OF_FORMER = "OfFormerJob"


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call for this job that the API server refused, and has not taken since.

    reason: Status.reason, or OF_FORMER. at: seconds since 1970 of the last try; count: tries.
    retry_at: when the shell will let the same call be made again.
    """

    verb: Literal["create", "delete", "patch"]
    kind: Kind
    name: str
    reason: str
    message: str
    status: int = 0
    at: float = 0.0
    retry_at: float = 0.0
    count: int = 1

    @property
    def identity(self) -> tuple[str, ...]:
        """The parts that a message shows: an equal one is not reported again."""
        return self.verb, self.kind, self.name, self.reason, self.message


@dataclass(frozen=True, slots=True)
class ObservedState:
    """Everything of one job, from the caches. Only what the job's uid controls, sorted by name.

    has_volcano, has_coscheduling: the cluster serves that kind of PodGroup. etcd: "host:port" of
    the Service paddle-elastic-etcd in the job's namespace, "" without one. taken_ports: first host
    port of every other job with intranet Host. allowed: pods that the API server would take, asked
    since the spec was last changed. unknown: fields that it left out of those it has taken
    since then, None when it has taken none.
    """

    job: PaddleJob
    pods: tuple[Pod, ...] = ()
    services: tuple[Object, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    failed_calls: tuple[FailedCall, ...] = ()
    has_volcano: bool = True
    has_coscheduling: bool = True
    etcd: str = ""
    taken_ports: frozenset[int] = frozenset()
    allowed: frozenset[str] = frozenset()
    unknown: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """Create one object from a whole manifest. dry_run: the API server only checks it."""

    kind: Kind
    name: str
    manifest: Manifest
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly that object. grace_seconds: None for the object's own, 0 to force."""

    kind: Kind
    name: str
    uid: str
    grace_seconds: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object of that uid, and no other: a merge patch, or the steps of a JSON patch."""

    kind: Kind
    name: str
    uid: str
    change: Manifest | tuple[Manifest, ...]


Action = Create | Delete | Patch


@dataclass(frozen=True, slots=True)
class EventNote:
    """An event for people: `kubectl describe` shows it. reason: one CamelCase word."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of reconcile. status: the whole status as it should be, None to leave it alone.

    actions: all that is wanted, also what was refused before: the shell holds a refused call back
    until its time, and forgets the refusal of what is no longer wanted.
    wake_at: seconds since 1970 when time alone changes the decision, None when it does not.
    """

    status: Mapping[str, object] | None = None
    actions: tuple[Action, ...] = ()
    notes: tuple[EventNote, ...] = ()
    wake_at: float | None = None
    why: str = field(default="", compare=False)
