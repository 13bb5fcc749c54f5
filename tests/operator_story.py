"""The commands of a story about jobs, and what they do to a cluster in memory.

Pods: ``all``, a role, or ``worker-1``. Each command's docstring has its words.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Any

import yaml

from kube_memory import refusals
from operator_told import shown
from operator_world import GROUPS, NAMESPACE, Document, World, full_spec
from paddock.kube.client import (
    CONFIG_MAPS,
    COSCHEDULING_GROUPS,
    PADDLE_JOBS,
    PODS,
    SERVICES,
    VOLCANO_GROUPS,
    KubeError,
)
from paddock.operator.decision import Kind, OperatorSettings
from paddock.operator.names import LABEL_POD
from paddock.operator.pods import meta_of
from paddock.operator.runtime.executor import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gang_kueue import Kueue
    from operator_world import Look
    from paddock.kube.client import Resource

ABOUT_JOBS = frozenset(("job", "edit", "scale", "suspend", "resume", "group", "install"))
ABOUT_PODS = frozenset(
    (
        "group",
        "run",
        "schedule",
        "bind",
        "prepare",
        "init",
        "unschedulable",
        "waits",
        "succeed",
        "fail",
        "oom",
        "rejected",
    )
)
KINDS: dict[str, Resource[Any]] = {
    "job": PADDLE_JOBS, "pod": PODS, "service": SERVICES, "configmap": CONFIG_MAPS,
    "podgroup": VOLCANO_GROUPS, "podgroup-coscheduling": COSCHEDULING_GROUPS,
}  # fmt: skip


class Story:
    """One cluster and what is told of it. job: whom pods without a job's name belong to."""

    def __init__(self) -> None:
        self.world = World()
        self.job = ""
        self.queue: Kueue | None = None
        self.is_once = False
        self.told: list[str] = []

    def play(self, lines: Sequence[str]) -> list[str]:
        """The answer to one block."""
        self.told, self.is_once = [], False
        is_changed = False
        commands: list[tuple[str, list[str]]] = []
        for line in lines:
            if line.startswith(" "):
                commands[-1][1].append(line)
            else:
                commands.append((line, []))
        for line, inside in commands:
            words = shlex.split(line)
            verb = words.pop(0)
            given = yaml.safe_load("\n".join(inside)) if inside else None
            if verb in ABOUT_PODS and is_changed:
                self.told += self.settled()
                is_changed = False
            is_changed |= verb in ABOUT_JOBS
            try:
                COMMANDS[verb](self, words, given)
            except KubeError as error:
                self.told.append(f"refused: {error.message}")
        if commands and all(line.startswith(("show ", "count ")) for line, _ in commands):
            return self.told
        world = self.world
        shown = self.settled()
        for name in world.jobs():
            wake_at = world.last[name].wake_at if not self.is_once else None
            if wake_at is not None:
                whose = f"{name} " if len(world.jobs()) > 1 else ""
                shown.append(f"{whose}looks again in {wake_at - world.now:g} s")
        return [*self.told, *shown] or ["(nothing)"]

    def settled(self) -> list[str]:
        """What is done now, told."""
        world = self.world
        looks = [world.look(j) for j in world.jobs()] if self.is_once else world.settle()
        return [line for look in looks if look.did_anything for line in self.of(look)]

    # ------------------------------------------------------------------ the commands

    def create(self, words: list[str], given: Any) -> None:
        """job NAME [label=value | finalizer=NAME]... + spec; name of a job that is made."""
        self.job = words[0]
        pairs = dict(word.split("=", 1) for word in words[1:])
        metadata: Document = {}
        if "finalizer" in pairs:
            metadata["finalizers"] = [pairs.pop("finalizer")]
        if pairs:
            metadata["labels"] = pairs
        self.world.create_job(self.job, full_spec(given), **metadata)

    def use(self, words: list[str], given: Any) -> None:
        """use NAME: the following words are about that job."""
        self.job = words[0]

    def fresh(self, words: list[str], given: Any) -> None:
        """fresh [scheduling=..|init_image=..|ipv6]: another cluster, and another operator."""
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        self.world = World(OperatorSettings(**pairs), is_ipv6="ipv6" in words)  # type: ignore[arg-type]

    def edit(self, words: list[str], given: Any) -> None:
        """edit + a merge patch of the spec."""
        self.world.edit(self.job, full_spec(given))

    def scale(self, words: list[str], given: Any) -> None:
        """scale ROLE N."""
        self.world.edit(self.job, {words[0]: {"replicas": int(words[1])}})

    def suspend(self, words: list[str], given: Any) -> None:
        """suspend: spec.suspend is true from now on."""
        self.world.edit(self.job, {"suspend": True})

    def resume(self, words: list[str], given: Any) -> None:
        """resume: spec.suspend is false again."""
        self.world.edit(self.job, {"suspend": False})

    def status(self, words: list[str], given: Any) -> None:
        """status wipe, or status + a merge patch: somebody writes it by hand."""
        change: Document = {"status": given}
        if words == ["wipe"]:
            before = self.world.job(self.job).status
            change = {"status": dict.fromkeys(before if isinstance(before, dict) else {})}
        self.world.server.patch(PADDLE_JOBS, NAMESPACE, self.job, change, subresource="status")

    def up(self, words: list[str], given: Any) -> None:
        """up: what is wanted is made and runs; only the last status is told."""
        self.world.settle()
        for pod in self.which("all"):
            self.world.run(pod)
        lines = [line for look in self.world.settle() for line in self.of(look)]
        self.told += [line for line in lines if not line.startswith(" ")][-1:]

    def run(self, words: list[str], given: Any) -> None:
        """run POD [on NODE]."""
        for pod in self.which(words[0]):
            self.world.run(pod, words[2] if words[1:2] == ["on"] else "")

    def schedule(self, words: list[str], given: Any) -> None:
        """schedule POD [on NODE]: bound and with an address, nothing of it runs."""
        for pod in self.which(words[0]):
            self.world.schedule(pod, words[2] if words[1:2] == ["on"] else "")

    def prepare(self, words: list[str], given: Any) -> None:
        """prepare POD: its node mounts its volumes and makes its network."""
        for pod in self.which(words[0]):
            self.world.kubelet.prepare(f"{NAMESPACE}/{pod}")

    def bind(self, words: list[str], given: Any) -> None:
        """bind POD: the scheduler gives it a node, which says nothing."""
        for pod in self.which(words[0]):
            self.world.kubelet.schedule(f"{NAMESPACE}/{pod}")

    def mesh(self, words: list[str], given: Any) -> None:
        """mesh NAME: a webhook puts a container of that name in front of each new pod's own."""

        def inject(pod: Document) -> None:
            pod["spec"]["containers"].insert(0, {"name": words[0], "image": "mesh:1"})

        self.world.server.mutates["pods"] = inject

    def init(self, words: list[str], given: Any) -> None:
        """init POD: its init containers run."""
        for pod in self.which(words[0]):
            self.world.schedule(pod)
            self.world.kubelet.initialize(f"{NAMESPACE}/{pod}")

    def unready(self, words: list[str], given: Any) -> None:
        """unready POD: its probe says no."""
        for pod in self.which(words[0]):
            self.world.kubelet.ready(f"{NAMESPACE}/{pod}", False)

    def unschedulable(self, words: list[str], given: Any) -> None:
        """unschedulable POD MESSAGE [REASON]: Volcano says Schedulable of pods that would fit."""
        for pod in self.which(words[0]):
            self.world.kubelet.unschedulable(f"{NAMESPACE}/{pod}", *words[1:])

    def waits(self, words: list[str], given: Any) -> None:
        """waits POD REASON MESSAGE: its containers cannot start."""
        for pod in self.which(words[0]):
            self.world.schedule(pod)
            self.world.kubelet.wait(f"{NAMESPACE}/{pod}", words[1], " ".join(words[2:]))

    def succeed(self, words: list[str], given: Any) -> None:
        """succeed POD."""
        for pod in self.which(words[0]):
            self.world.kubelet.succeed(f"{NAMESPACE}/{pod}")

    def fail(self, words: list[str], given: Any) -> None:
        """fail POD [exit N] [reason R] [ago S] [LAST WORDS]: its containers ended by themselves.

        ago: the kubelet tells of it so many seconds later. Indented lines are its last words, too.
        """
        which, pairs, rest = words[0], {"exit": "1", "reason": "Error", "ago": "0"}, words[1:]
        while rest[:1] and rest[0] in pairs:
            pairs[rest[0]] = rest[1]
            rest = rest[2:]
        self.world.now -= float(pairs["ago"])
        for pod in self.which(which):
            self.world.kubelet.fail(
                f"{NAMESPACE}/{pod}", int(pairs["exit"]), pairs["reason"], given or " ".join(rest)
            )
        self.world.now += float(pairs["ago"])

    def container(self, words: list[str], given: Any) -> None:
        """container NAME of POD ends CODE [LAST WORDS]: only that one, and for good."""
        for pod in self.which(words[2]):
            code, said = int(words[4]), " ".join(words[5:])
            self.world.kubelet.end_container(f"{NAMESPACE}/{pod}", words[0], code, said)

    def oom(self, words: list[str], given: Any) -> None:
        """oom POD."""
        for pod in self.which(words[0]):
            self.world.kubelet.fail(f"{NAMESPACE}/{pod}", 137, "OOMKilled")

    def crash(self, words: list[str], given: Any) -> None:
        """crash POD [N] [exit CODE] [LAST WORDS]: the kubelet starts it again, N times."""
        times, rest, code = int(words[1]) if words[1:] else 1, words[2:], 1
        if rest[:1] == ["exit"]:
            code, rest = int(rest[1]), rest[2:]
        for pod in self.which(words[0]):
            for _ in range(times):
                self.world.kubelet.crash(f"{NAMESPACE}/{pod}", code, "Error", " ".join(rest))

    def rejected(self, words: list[str], given: Any) -> None:
        """rejected POD REASON MESSAGE: the node did not take it, or ended it: phase Failed."""
        for pod in self.which(words[0]):
            self.world.schedule(pod)
            status = {"phase": "Failed", "reason": words[1], "message": " ".join(words[2:])}
            change = {"status": status}
            self.world.server.patch(PODS, NAMESPACE, pod, change, subresource="status")

    def evict(self, words: list[str], given: Any) -> None:
        """evict POD: by its kubelet, for its node's sake."""
        for pod in self.which(words[0]):
            self.world.kubelet.evict(f"{NAMESPACE}/{pod}")

    def preempt(self, words: list[str], given: Any) -> None:
        """preempt POD: by the scheduler, for a more important one."""
        for pod in self.which(words[0]):
            self.world.kubelet.preempt(f"{NAMESPACE}/{pod}")

    def lose(self, words: list[str], given: Any) -> None:
        """lose NODE: it is silent."""
        self.world.kubelet.lose_node(words[0])

    def taint(self, words: list[str], given: Any) -> None:
        """taint NODE: the pods of a silent node are deleted; they stay, terminating."""
        self.world.kubelet.evict_lost(words[0])

    def bring(self, words: list[str], given: Any) -> None:
        """bring NODE: it is back."""
        self.world.kubelet.return_node(words[0])

    def keep(self, words: list[str], given: Any) -> None:
        """keep deleted pods: from now on they stay until `let go`."""
        self.world.lets_go = False

    def let(self, words: list[str], given: Any) -> None:
        """let go: deleted pods go, now and later."""
        self.world.lets_go = True

    def delete(self, words: list[str], given: Any) -> None:
        """delete KIND [NAME]...: by a person. KIND is pod, service, configmap, podgroup or job."""
        if words[0] == "pod":
            for pod in self.which(words[1]):
                self.world.delete(PODS, pod)
        for name in words[1:] if words[0] != "pod" else ():
            self.world.delete(KINDS[words[0]], name)
        if words[1:] == []:
            self.world.delete(KINDS[words[0]], self.job)

    def collect(self, words: list[str], given: Any) -> None:
        """collect garbage: what has no owner any more is deleted."""
        self.world.server.collect()

    def stranger(self, words: list[str], given: Any) -> None:
        """stranger KIND NAME: somebody else has an object of that name."""
        manifest: Document = {"metadata": {"name": words[1]}}
        if words[0] == "pod":
            manifest["spec"] = {"containers": [{"name": "c", "image": "theirs"}]}
        elif words[0] == "service":
            manifest["spec"] = {"ports": [{"port": 80}]}
        elif words[0] == "podgroup":
            manifest["spec"] = {"minMember": 2}
        self.world.server.create(KINDS[words[0]], NAMESPACE, manifest)

    def orphan(self, words: list[str], given: Any) -> None:
        """orphan KIND NAME: the job controls it, and an operator before ours made it."""
        owners = meta_of(self.world.job(self.job), words[1])["ownerReferences"]
        manifest: Document = {"metadata": {"name": words[1], "ownerReferences": owners}}
        if words[0] != "service":  # as v0.3.5 has them
            manifest["metadata"]["labels"] = {LABEL_POD: words[1]}
        if words[0] == "pod":
            manifest["spec"] = {"containers": [{"name": "c", "image": "theirs"}]}
        elif words[0] == "service":
            manifest["spec"] = {"ports": [{"port": 80}]}
        self.world.server.create(KINDS[words[0]], NAMESPACE, manifest)

    def unlabel(self, words: list[str], given: Any) -> None:
        """unlabel KIND NAME LABEL...: somebody removes labels."""
        change = {"metadata": {"labels": dict.fromkeys(words[2:])}}
        self.world.server.patch(KINDS[words[0]], NAMESPACE, words[1], change)

    def quota(self, words: list[str], given: Any) -> None:
        """quota N | none: pods in the namespace."""
        limit = None if words[0] == "none" else int(words[0])
        self.world.server.set_quota(NAMESPACE, limit)

    def refuse(self, words: list[str], given: Any) -> None:
        """refuse KIND STATUS REASON MESSAGE | refuse nothing: creates fail from now on."""
        for rule in self.world.server.faults.rules:
            rule.cancel()
        if words[0] == "nothing":
            return
        resource = KINDS[words[0]]
        error = KubeError(words[3], status=int(words[1]), reason=words[2])
        if words[2] == "Invalid":
            field, _, message = words[3].partition(": ")
            error = refusals.invalid(resource, f"{self.job or 'demo'}-worker-0", [(field, message)])
        self.world.server.fail(
            error, times=None, when=lambda call: call.verb == "create" and call.resource == resource
        )

    def group(self, words: list[str], given: Any) -> None:
        """group PHASE [KIND | because WORDS] | asks RESOURCE=AMOUNT...: its scheduler writes it."""
        if words[0] == "asks":
            amounts = dict(word.split("=") for word in words[1:])
            asks = {"spec": {"minResources": amounts}}
            self.world.server.patch(VOLCANO_GROUPS, NAMESPACE, self.job, asks)
            return
        kind: Kind = "CoschedulingGroup" if words[1:] == ["coscheduling"] else "VolcanoGroup"
        change: Document = {"status": {"phase": words[0]}}
        if words[1:2] == ["because"]:
            condition = {"type": "Unschedulable", "status": "True", "message": " ".join(words[2:]),
                         "reason": "NotEnoughResources"}  # fmt: skip
            change["status"]["conditions"] = [condition]
        self.world.server.patch(GROUPS[kind], NAMESPACE, self.job, change, subresource="status")

    def volcano(self, words: list[str], given: Any) -> None:
        """volcano N: its scheduler places pods from now on, N at a time (gang_volcano.py)."""
        self.world.start_volcano(int(words[0]))

    def kueue(self, words: list[str], given: Any) -> None:
        """kueue N | evicts GROUP: it admits N pods at a time, or takes a place back."""
        if words[0] == "evicts":
            assert self.queue is not None
            asyncio.run(self.queue.evict(words[1]))
        else:
            self.queue = self.world.start_kueue(int(words[0]))

    def without(self, words: list[str], given: Any) -> None:
        """without volcano | coscheduling: the cluster does not have it."""
        self.world.serve("VolcanoGroup" if words[0] == "volcano" else "CoschedulingGroup", False)

    def install(self, words: list[str], given: Any) -> None:
        """install volcano | coscheduling."""
        self.world.serve("VolcanoGroup" if words[0] == "volcano" else "CoschedulingGroup", True)

    def etcd(self, words: list[str], given: Any) -> None:
        """etcd HOST:PORT: the namespace has the documents' etcd."""
        self.world.etcd = words[0]

    def tick(self, words: list[str], given: Any) -> None:
        """tick 30s: time passes."""
        self.world.pass_time(float(words[0].removesuffix("s")))

    def kill(self, words: list[str], given: Any) -> None:
        """kill: the operator ends after it has written the next status, before it acts."""
        self.world.killed_at = self.job
        self.world.forget()

    def restart(self, words: list[str], given: Any) -> None:
        """restart: another operator takes over; it knows what the cluster knows."""
        self.world.forget()

    def look(self, words: list[str], given: Any) -> None:
        """look: once only, and no pod goes on."""
        self.is_once = True

    def settle(self, words: list[str], given: Any) -> None:
        """settle: nothing else happens."""

    def count(self, words: list[str], given: Any) -> None:
        """count writes: of the status, since the last time."""
        self.told.append(f"status written {self.world.status_writes} times")
        self.world.status_writes = 0

    def show(self, words: list[str], given: Any) -> None:
        """show status [FIELD]... | env POD [NAME]... | configmap | gone | KIND NAME [PATH]..."""
        what, rest = words[0], words[1:]
        if what == "status":
            status = self.world.job(self.job).status
            found = status if isinstance(status, dict) else {}
            self.tell({k: v for k, v in found.items() if not rest or k in rest})
        elif what == "env":
            for pod in self.which(rest[0]):
                env = self.world.environment(pod)
                assert env is not None, f"{pod} waits for its variables"
                wanted = {k: env.get(k, "(not set)") for k in rest[1:]} if rest[1:] else env
                self.told += [f"{pod} {k}={v}" for k, v in sorted(wanted.items())]
        elif what == "configmap":
            found = self.world.server.get(CONFIG_MAPS, NAMESPACE, self.job).document["data"]
            self.tell({k: v for k, v in found.items() if not rest or k in rest})
        elif what == "objects":
            for kind in ("Pod", "Service", "ConfigMap", *(k for k in GROUPS)):
                if kind not in self.world.without:
                    all_of = self.world.server.all(RESOURCES[kind], NAMESPACE)
                    self.told += [f"{kind} {s.document['metadata']['name']}" for s in all_of]
            self.told = self.told or ["nothing"]
        else:
            name = rest[0] if what != "pod" else self.which(rest[0])[0]
            self.tell(self.world.server.get(KINDS[what], NAMESPACE, name).document, rest[1:])

    # ------------------------------------------------------------------- the telling

    def which(self, word: str) -> list[str]:
        """Names of the pods that a word means."""
        pods = self.world.pods(self.job)
        if word == "all":
            return pods
        found = [p for p in pods if p == f"{self.job}-{word}"] or [
            p for p in pods if p.rpartition("-")[0] == f"{self.job}-{word}"
        ]
        assert found, f"no pod {word} of {self.job}: {pods}"
        return found

    def tell(self, found: object, paths: Sequence[str] = ()) -> None:
        """YAML, whole or only at some paths."""
        for path in paths or [""]:
            here: Any = found
            for part in path.split(".") if path else ():
                here = here[int(part)] if isinstance(here, list) else here.get(part, "(not set)")
            text = yaml.safe_dump({path: here} if path else here, width=10_000)
            self.told += text.rstrip("\n").split("\n")

    def of(self, look: Look) -> list[str]:
        """One look; whose it was, when there are several jobs."""
        lines = shown(look)
        if len(self.world.jobs()) > 1 or look.job != self.job:
            lines[0] = f"{look.job}: {lines[0]}"
        return lines


def commands() -> dict[str, Callable[[Story, list[str], Any], None]]:
    """Every command, by the first word of its docstring."""
    found = [f for f in vars(Story).values() if "given" in getattr(f, "__annotations__", {})]
    return {str(f.__doc__).split()[0].rstrip(":"): f for f in found}


COMMANDS = commands()
