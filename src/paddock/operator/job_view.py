"""A view of one job at one moment, sorted out for the steps of reconcile. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from paddock.kube.objects import seconds
from paddock.operator import messages, names
from paddock.operator.decision import OF_FORMER
from paddock.operator.environment import VALUE_MAX, rendezvous_of
from paddock.operator.outcome import Outcome, outcome_of
from paddock.operator.pods import (
    ELASTIC_WORLD,
    HOST_PORT_MAX,
    Builder,
    choose_host_port,
    sized,
)
from paddock.operator.policies.gang import KINDS, OPEN_PHASES, Gang, gang_of, kind_of
from paddock.operator.policies.restart import action_of, is_alone
from paddock.operator.silence import silence_of
from paddock.operator.status import REFS_MAX, replace_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.kube.objects import ConfigMap, Pod
    from paddock.operator.decision import FailedCall, ObservedState, OperatorSettings
    from paddock.operator.environment import PodSlot
    from paddock.operator.spec import JobSpec
    from paddock.operator.status import ControllerState, ParsedStatus

INVALID_TEMPLATE = "InvalidTemplate"
# From an address to its name in DNS, and until a failed look-up of it is forgotten.
NAMED_SECONDS = 1.0


@dataclass(frozen=True)
class PaddleJobView:
    """The input of the steps. state: brought up to date. every: the outcomes of all pods."""

    observed: ObservedState
    spec: JobSpec
    previous: ParsedStatus
    state: ControllerState
    settings: OperatorSettings
    now: float
    every: tuple[Outcome, ...]

    def with_state(self, **changes: object) -> PaddleJobView:
        """The same with changes of the state: of the next attempt, say."""
        return replace(self, state=replace_state(self.state, **changes))

    @cached_property
    def builder(self) -> Builder:
        """Makes this attempt's manifests."""
        return Builder(
            self.observed.job, self.spec, self.state, self.settings.init_image, self.gang
        )

    @cached_property
    def gang(self) -> Gang:
        """How its pods are scheduled together."""
        found = gang_of(self.observed, self.spec, self.state.attempt, self.settings)
        if not found.scheduler:
            return found
        its = self.observed.job.metadata.name, KINDS[found.scheduler]
        groups = (g for g in self.observed.pod_groups if (g.metadata.name, kind_of(g)) == its)
        return replace(found, there=next(groups, None))

    @property
    def is_admitted(self) -> bool:
        """True when the gang's scheduler lets its pods be made."""
        if self.gang.there is None:
            return not self.gang.scheduler
        is_open = self.gang.there.status.phase in OPEN_PHASES or self.has_begun
        return is_open or self.gang.scheduler != "volcano"

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """Pods of this attempt that are wanted, by name."""
        wanted = {slot.name for slot in self.builder.slots}
        return {
            o.name: o for o in self.every if o.attempt == self.state.attempt and o.name in wanted
        }

    @cached_property
    def leftovers(self) -> tuple[Outcome, ...]:
        """Pods of earlier attempts, and of replicas that are no longer wanted."""
        return tuple(o for o in self.every if o.name not in self.outcomes)

    @cached_property
    def pods_by_name(self) -> dict[str, Pod]:
        """The pods as they were observed."""
        return {pod.metadata.name: pod for pod in self.observed.pods}

    @property
    def is_started(self) -> bool:
        """True when the programs of this attempt may have begun."""
        return self.state.started_attempt == self.state.attempt

    @cached_property
    def config_map(self) -> ConfigMap | None:
        """The ConfigMap of this attempt; one made before all pods may be of another spec."""
        maps = self.observed.config_maps
        found = next((c for c in maps if names.attempt_of(c) == self.state.attempt), None)
        if found is None or self.has_begun or self.spec.intranet != "DNS" or self.spec.is_elastic:
            return found
        return found if found.data == self.builder.config_map({})["data"] else None

    @cached_property
    def old_config_maps(self) -> tuple[ConfigMap, ...]:
        """ConfigMaps of earlier attempts, or of another spec."""
        return tuple(c for c in self.observed.config_maps if c is not self.config_map)

    @property
    def has_begun(self) -> bool:
        """True when this attempt has, or has had, pods."""
        return bool(self.outcomes or self.state.done) or self.is_started

    @cached_property
    def missing(self) -> tuple[PodSlot, ...]:
        """Wanted pods that are not there and have not succeeded."""
        return tuple(
            slot
            for slot in self.builder.slots
            if slot.name not in self.outcomes and (slot.role, slot.index) not in self.state.done
        )

    @cached_property
    def failures(self) -> tuple[Outcome, ...]:
        """Failed pods of this attempt, and those that went away: the ones that are made again alone
        when they were seen before, others after the gate was opened.
        """
        found = []
        early = {o.name for o in self.early}
        for slot in self.builder.slots:
            if (slot.role, slot.index) in self.state.done or slot.name in early:
                continue
            outcome = self.outcomes.get(slot.name)
            if outcome is None:
                if not self.is_started and slot.name not in self.previous.uids:
                    continue
                outcome = Outcome(
                    slot.name, "", slot.role, slot.index, self.state.attempt, "lost", "Deleted",
                    why="its pod was deleted",
                )  # fmt: skip
            uid = outcome.uid or self.previous.uids.get(outcome.name)
            is_again = uid in self.state.replacing
            if is_alone(outcome, self.spec):  # news since the last pass
                was_again = uid in self.previous.state.replacing
                is_news = not is_again if outcome.uid else uid is not None and not was_again
                is_news = is_news and outcome.state in ("failed", "lost")
            elif outcome.state == "lost":  # it was there, or is wanted by the same world
                # All had addresses once, it too; not while it is being made again.
                is_again |= uid in self.previous.state.replacing
                had_begun = self.is_started or (self.state.attempt_start_time > 0 and not is_again)
                is_news = had_begun and (bool(outcome.uid) or not self.is_scaled)
            else:
                is_news = outcome.state == "failed" and not is_again
            if is_news:
                found.append(outcome)
        return tuple(found)

    @cached_property
    def early(self) -> tuple[Outcome, ...]:
        """Programs that ended before all pods had addresses, where nothing made them wait.

        Paddle's store gives up at once on a name that is not there yet (tcp_utils.cc, 3.3.1). Each
        is made again once, so that it does no harm when a failure of another cause is among them.
        """
        spec = self.spec
        if spec.intranet != "DNS" or spec.is_elastic or spec.replicas == 1:
            return ()
        if self.previous.is_pruned:
            return ()  # nothing would tell when all had addresses, and this would not end
        # It ended before all had addresses: in the seconds that nodes tell, and late. While one is
        # made again not all have them, either; but trainers with servers need not wait for it, and
        # a server that was at work must not come back empty.
        gate_at = self.state.attempt_start_time
        is_waited_for = not gate_at or (not self.is_started and spec.role("ps") is None)
        return tuple(
            o
            for o in self.outcomes.values()
            if o.state == "failed"
            and o.cause in ("ExitCode", "Signal")
            and o.uid not in self.state.replacing
            and (is_waited_for or 0 < o.at <= gate_at + NAMED_SECONDS)
            and not self.pods_by_name[o.name].metadata.annotation(names.ANNOTATION_AGAIN)
            and action_of(o, spec) == "Restart"
        )

    @cached_property
    def too_long(self) -> dict[str, int]:
        """Lists that no variable can hold, and their length; known with the addresses."""
        meta = self.observed.job.metadata
        names_max = max(len(meta.name), len(meta.namespace))
        longest = len(f"{meta.name}-worker-99999.:36000,") + names_max
        is_short = self.spec.is_elastic or longest * self.spec.replicas <= VALUE_MAX
        if is_short or not (self.spec.is_named or self.is_started):
            return {}
        return self.builder.environments(self.pods_by_name).too_long()

    @cached_property
    def is_scaled(self) -> bool:
        """True when pods of this attempt were made for another number of replicas."""
        world = self.builder.world()
        return any(
            names.attempt_of(pod) == self.state.attempt
            and pod.metadata.annotation(names.ANNOTATION_WORLD) not in ("", world)
            for pod in self.observed.pods
        )

    @cached_property
    def outdated(self) -> tuple[Outcome, ...]:
        """Pods that wait for what will not come by itself, and whose template was changed since."""
        stuck = [o for o in self.outcomes.values() if o.waits_for and not o.is_terminating]
        return self._of_another_template(stuck)

    @property
    def has_new_template(self) -> bool:
        """True when pods at work were made from another template than the job has now."""
        return bool(self._of_another_template(self.at_work))

    def _of_another_template(self, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
        """Return those of these pods; what the first operators made has no hash, and is unknown."""
        known = [o for o in outcomes if o.name in self.pods_by_name and self.spec.role(o.role)]
        hashes = {role: self.builder.template_hash(role) for role in {o.role for o in known}}
        made_from = {
            o.name: self.pods_by_name[o.name].metadata.annotation(names.ANNOTATION_TEMPLATE)
            for o in known
        }
        return tuple(o for o in known if made_from[o.name] not in ("", hashes[o.role]))

    @cached_property
    def at_work(self) -> tuple[Outcome, ...]:
        """Pods of this attempt that have begun their work: only what ends the job may end these."""

        is_all = self.is_started or self.state.attempt_start_time > 0
        is_all = is_all or self.builder.world() == ELASTIC_WORLD
        return tuple(
            o
            for o in self.every
            if o.attempt == self.state.attempt and o.is_at_work
            and (is_all or self._world_of(o.name) == ELASTIC_WORLD)
        )  # fmt: skip

    @cached_property
    def as_made(self) -> PaddleJobView:
        """The same with the numbers of replicas that the pods of this attempt were made for."""
        if not self.is_scaled:
            return self
        worlds = {self._world_of(o.name) for o in self.every if o.attempt == self.state.attempt}
        world = min(worlds - {"", self.builder.world()})
        return replace(self, spec=sized(self.spec, world))

    def _world_of(self, pod: str) -> str:
        return self.pods_by_name[pod].metadata.annotation(names.ANNOTATION_WORLD)

    @cached_property
    def mistake(self) -> tuple[str, str] | None:
        """(reason, message) when no pod of that template can ever be made: nor is it tried."""
        for call in self.failed_creates:
            if messages.is_about_template(call):
                return INVALID_TEMPLATE, messages.failed_call_text(call)
        known = self.previous.conditions.get("Valid")
        is_same = self.previous.observed_generation == self.observed.job.metadata.generation
        if is_same and known is not None and known.reason == INVALID_TEMPLATE:
            return known.reason, known.message
        return None

    @cached_property
    def failed_creates(self) -> tuple[FailedCall, ...]:
        """Refused creates, pods first; those that wait for a deleted job's objects, last."""
        found = [f for f in self.observed.failed_calls if f.verb == "create"]
        return tuple(sorted(found, key=lambda f: (f.reason == OF_FORMER, f.kind != "Pod", f.name)))

    def force_at(self, outcome: Outcome) -> float | None:
        """When a terminating pod of a lost node may be removed from the record by force."""
        pod = self.pods_by_name[outcome.name]
        if not outcome.is_terminating or outcome.node not in self._lost_nodes:
            return None
        return seconds(pod.metadata.deletionTimestamp) + self.settings.force_delete_seconds

    @cached_property
    def _lost_nodes(self) -> frozenset[str]:
        return frozenset(o.node for o in self.every if o.cause == "NodeLost" and o.node)


def make_view(
    observed: ObservedState,
    spec: JobSpec,
    previous: ParsedStatus,
    settings: OperatorSettings,
    now: float,
) -> PaddleJobView:
    """Sort out one job; brings the controller's state up to date with the pods."""
    state = replace_state(previous.state, completion_time=0.0)
    job = observed.job.metadata
    attempts = (*map(names.attempt_of, observed.pods), *map(names.attempt_of, observed.config_maps))
    latest = max(attempts, default=0)
    if latest > state.attempt:  # the status was lost or put back by hand
        state = replace_state(state, attempt=latest, done=frozenset())
    if spec.intranet == "Host" and not 0 < state.host_port <= HOST_PORT_MAX:
        port = choose_host_port(job.uid, observed.taken_ports, settings.host_ports)
        state = replace_state(state, host_port=port)
    if not state.start_time and not spec.suspend:
        state = replace_state(state, start_time=now)
    every = read_pods(observed, now)
    view = PaddleJobView(observed, spec, previous, state, settings, now, every)
    # With DNS it is there before the gate is opened; of that a pruned status keeps the phase.
    is_gate = spec.intranet != "DNS" or (previous.is_pruned and previous.phase == "Running")
    changes: dict[str, object] = {}
    if is_gate and view.config_map is not None and not view.is_started:
        opened_at = state.attempt_start_time or now
        changes = {"started_attempt": state.attempt, "attempt_start_time": opened_at}
    done = state.done | {
        (o.role, o.index)
        for o in view.outcomes.values()
        if o.state == "succeeded" and o.uid not in state.replacing  # it was told to end
    }
    # The end of a replica that is made again alone is our own wish, and no news, where it is to
    # start from another template, or was not wanted and is again before it is gone.
    known = set(previous.uids.values())
    unwanted = (o for o in view.outcomes.values() if o.is_terminating and o.uid not in known)
    removed = {
        o.uid for o in (*unwanted, *view.outdated) if o.index < REFS_MAX and is_alone(o, spec)
    }
    replacing = state.replacing & {o.uid for o in view.outcomes.values()} | removed
    rendezvous = state.rendezvous if observed.pods else ""
    if spec.is_elastic and not rendezvous:
        rendezvous = rendezvous_of(job, observed.etcd)
    unknown = state.unknown_fields if observed.unknown is None else observed.unknown
    return view.with_state(
        done=done, replacing=replacing, rendezvous=rendezvous, unknown_fields=unknown, **changes
    )


def read_pods(observed: ObservedState, now: float) -> tuple[Outcome, ...]:
    """The outcome of each pod."""
    found: list[Outcome] = []
    for pod in observed.pods:
        replica = names.replica_of(observed.job.metadata.name, pod.metadata.name)
        # One that is ours by uid, but of no name we give, nobody wants.
        outcome = outcome_of(pod, *(replica or ("worker", -1)))
        is_silent = outcome.state in ("pending", "starting") and not outcome.waits_for
        silence = silence_of(pod) if is_silent else None
        if silence is None:
            pass
        elif now < silence.at:
            outcome = replace(outcome, tells_at=silence.at)
        elif silence.is_stuck:
            outcome = replace(outcome, waits_for=silence.clause)
        else:
            outcome = replace(outcome, slow_for=silence.clause)
        found.append(outcome)
    return tuple(found)
