"""Sentences for people: status.message, conditions, events. Pure; no decision is made here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from paddock.operator.decision import OF_FORMER
from paddock.operator.environment import VALUE_MAX
from paddock.operator.names import replica_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from paddock.operator.decision import FailedCall
    from paddock.operator.environment import PodSlot
    from paddock.operator.job_view import PaddleJobView
    from paddock.operator.outcome import Outcome
    from paddock.operator.policies.restart import FailJob, RestartJob
    from paddock.operator.spec import RoleName

WEBHOOKS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
UNANSWERED = "failed calling webhook"
# Words of a refusal's message -> its reason; the first that fits.
REFUSALS = {
    "exceeded quota": "QuotaExceeded", "admission webhook": "WebhookRefused",
    UNANSWERED: "WebhookFailed", "ValidatingAdmissionPolicy": "PolicyRefused",
}  # fmt: skip
ADMISSION = ("admission webhook", UNANSWERED, "ValidatingAdmissionPolicy")
# Where the API server looks for a webhook in the cluster. Source: k8s.io/apiserver,
# pkg/util/webhook/client.go: https://SERVICE.NAMESPACE.svc:443/path
NO_SERVICE = re.compile(r'service "[^"]*" not found')
WEBHOOK_AT = re.compile(r"https://[\w-]+\.([\w-]+)\.svc\b")
# Source: sigs.k8s.io/json, strict.go; the API server sends a Warning of each, 4 kB in all.
UNKNOWN_FIELD = re.compile(r'unknown field "(.*)"')
# Source: k8s.io/pod-security-admission, admission/admission.go.
POD_SECURITY = "violates PodSecurity"
# Of 1 MiB of data; of 3 MiB in all (413), or of etcd's 1.5 MiB.
TOO_LARGE = ("Too long", "too large")
# Tries to take a name over from a deleted job, 30 s apart, after which it is told.
FORMER_TRIES = 6
SHOWN_MAX = 3  # pods named in one sentence
# Volcano's reasons of pods that wait for another one: they would fit, or were not tried.
# Source: volcano, pkg/scheduler/api/unschedule_info.go.
WAITS_FOR_OTHERS = ("Schedulable", "Undetermined")


def plural(count: int, what: str) -> str:
    """A number of things.

    >>> plural(1, "pod"), plural(4, "pod")
    ('1 pod', '4 pods')
    """
    return f"{count} {what}" + ("" if count == 1 else "s")


def resize_warning(view: PaddleJobView) -> str:
    """The warning before a fixed job at work gets another size or template."""
    made, spec = view.as_made.spec, view.spec
    what = f"scaling from {made.replicas} to {plural(spec.replicas, 'pod')}"
    if made.replicas == spec.replicas:
        what = f"the roles or the template of {plural(spec.replicas, 'pod')} changed"
    running = plural(len(view.at_work), "running pod")
    text = (
        f"{what}: once the API server accepts the new pods, the {running} end before those start;"
        " if no node has room for all of them, or an image cannot be pulled, none of the job's pods"
        " will run"
    )
    before, after = made.role("worker"), spec.role("worker")
    has_new_size = before is not None and after is not None and before.replicas != after.replicas
    name = view.observed.job.metadata.name
    back = ""
    if view.has_new_template:  # scaling alone would start the old number of the new pods
        back = f"kubectl edit pdj {name}, and put the template back as it was"
        back += f", with {before.replicas} replicas" if before and has_new_size else ""
    elif before and has_new_size:
        back = f"kubectl scale pdj {name} --replicas={before.replicas}"
    return f"{text} (to go back: {back})" if back else text


def culprit_text(outcome: Outcome) -> str:
    """ "worker-3 on node-b failed first: exit code 1 (ValueError: no)".

    First only where that is known: Kubernetes tells when a pod failed in whole seconds.
    """
    why = outcome.why or "without saying why"
    if outcome.is_root is False:
        return f"{outcome.label} failed, but not first: {why}"
    if not outcome.tied:
        return f"{outcome.label} failed first: {why}"
    more = len(outcome.tied) - SHOWN_MAX
    others = ", ".join(outcome.tied[:SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"{outcome.label} failed: {why} (in the same second: {others})"


def restart_text(verdict: RestartJob, view: PaddleJobView) -> str:
    """The sentence of a restart: the culprit and the action."""
    pods = view.spec.replicas
    text = f"{culprit_text(verdict.culprit)}; restarting " + (
        f"all {pods} pods" if pods > 1 else "it"
    )
    if verdict.limit is not None:
        text += f", restart {view.state.counted_failures + 1} of {verdict.limit}"
    if verdict.delay_seconds >= 1:
        text += f" in {verdict.delay_seconds:g} s"
    return text


def failure_text(verdict: FailJob) -> str:
    """The sentence of a failed job: the culprit, and the limit that ended it."""
    text = culprit_text(verdict.culprit)
    if verdict.reason == "BackoffLimitExceeded":
        are = "is" if verdict.limit == 1 else "are"
        return f"{text}; {plural(verdict.limit, 'restart')} {are} used up (backoffLimit)"
    if verdict.reason == "FailurePolicy":
        return f"{text}; failurePolicy ends the job"
    return f"{text}; it is not restarted (spec.backoffLimit allows that)"


def waiting_for(view: PaddleJobView) -> tuple[str, str]:
    """(reason, sentence) of what a job waits for; ("", "") when everything goes on by itself."""
    others = (f for f in view.observed.failed_calls if f.verb != "create")
    former = [f for f in view.failed_creates if f.reason == OF_FORMER]
    lasting = [f for f in (*view.failed_creates, *others) if f.reason != OF_FORMER]
    for call in lasting:
        return failed_call_reason(call), failed_call_text(call)
    stuck = {o: o.waits_for for o in view.outcomes.values() if o.waits_for}
    if stuck:
        return _waiting(stuck)
    for call in former:
        return failed_call_reason(call), failed_call_text(call)
    for first in view.early[:1]:
        return "TooEarly", f"{first.label}: {first.why}; it is made again when all have addresses"
    lost = [o for o in view.outcomes.values() if o.state == "lost"]
    if lost:
        first = min(lost, key=lambda o: (o.role, o.index))
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        return "Stopping", f"waiting for {first.label} to end{more}: {first.why}"
    old = [o for o in view.leftovers if o.is_terminating]
    if old:
        return "Stopping", f"waiting for {_some(old)} of an earlier attempt to end"
    slow = {o: o.slow_for for o in view.outcomes.values() if o.slow_for}
    return _waiting(slow) if slow else ("", "")


def lasting_text(view: PaddleJobView) -> tuple[str, str] | None:
    """(reason, sentence) of pods whose programs have succeeded while another container runs."""
    pods = [o for o in view.outcomes.values() if o.lasting]
    if not pods:
        return None
    first, more = pods[0], f" (and {len(pods) - 1} more)" if len(pods) > 1 else ""
    runs = "runs" if len(first.lasting) == 1 else "run"
    return "SidecarRuns", (
        f"{first.label}{more}: its first container has succeeded, {', '.join(first.lasting)} still"
        f" {runs}, and the job is complete when no container runs (a sidecar that ends with its"
        " pod is an init container with restartPolicy: Always)"
    )


def omitted_lists(view: PaddleJobView) -> str:
    """The warning about lists that no variable can hold, and the rule of their addresses."""
    lists = ", ".join(f"{name} ({size} bytes)" for name, size in sorted(view.too_long.items()))
    job = view.observed.job.metadata.name
    first = view.builder.known_address(f"{job}-worker-0")
    return (
        f"not in the environment, over {VALUE_MAX} bytes: {lists}; addresses follow the numbers: "
        f"{first} is that of worker 0"
    )


def elastic_wait_text(view: PaddleJobView) -> str:
    """The pods that the launchers of an elastic job wait for."""
    up = {o.name for o in view.outcomes.values() if o.state == "running"}
    slots, done = view.builder.slots, view.state.done
    down = [s for s in slots if s.name not in up and (s.role, s.index) not in done]
    return f"{len(up)} of {plural(len(slots), 'pod')} run, waiting for {_some(down)}"


def failed_call_reason(call: FailedCall) -> str:
    """The reason (one CamelCase word) of a refused call.

    >>> from paddock.operator.decision import FailedCall
    >>> failed_call_reason(FailedCall("create", "Pod", "a", "Forbidden", "exceeded quota: q"))
    'QuotaExceeded'
    """
    if call.reason == OF_FORMER and call.count < FORMER_TRIES:
        return "Stopping"
    if call.reason in (OF_FORMER, "AlreadyExists"):
        return "NameTaken"
    found = (reason for words, reason in REFUSALS.items() if words in call.message)
    return next(found, call.reason or "Refused")


def is_about_template(call: FailedCall) -> bool:
    """True when the API server says that it can never take such a pod."""
    # Rules may be changed while the job waits.
    is_rule = any(words in call.message for words in ADMISSION)
    is_content = call.status in (400, 422) and not is_rule
    return call.verb == "create" and call.kind == "Pod" and is_content


def failed_call_text(call: FailedCall) -> str:
    """The sentence of a refused call.

    >>> from paddock.operator.decision import FailedCall
    >>> call = FailedCall("create", "ConfigMap", "a", "", "etcdserver: request is too large")
    >>> failed_call_text(call)[-49:]
    'every pod: write intranet: DNS, or ask for fewer)'
    """
    kind = call.kind.replace("Group", " PodGroup") if "Group" in call.kind else call.kind
    if call.reason == OF_FORMER and call.count < FORMER_TRIES:
        return f"waiting for {kind} {call.name} of the deleted job of this name to end"
    if call.reason == OF_FORMER:
        return (
            f"{kind} {call.name} of the deleted job of this name does not end (is its node lost? "
            f"kubectl delete {kind.lower()} {call.name} --force)"
        )
    if call.reason == "AlreadyExists":
        return (
            f"{kind} {call.name} exists and belongs to somebody else; it is left alone "
            "(delete it, or give this job another name)"
        )
    text = f"cannot {call.verb} {kind} {call.name}: {call.message}"
    if POD_SECURITY in call.message:
        text += (
            " (the label pod-security.kubernetes.io/enforce of the job's namespace says so: change"
            " the template, or create the job in another namespace)"
        )
    if call.kind == "ConfigMap" and any(word in call.message for word in TOO_LARGE):
        text += " (it holds the address of every pod: write intranet: DNS, or ask for fewer)"
    if UNANSWERED in call.message:
        found = WEBHOOK_AT.search(call.message)
        look = f"its program may have been uninstalled: kubectl get {WEBHOOKS}"
        if found is not None and not NO_SERVICE.search(call.message):
            look = f"does its program run? kubectl -n {found[1]} get pods"
        text += (
            f" (until this webhook answers, the API server accepts no {kind} that it must see;"
            f" the job then goes on by itself; {look})"
        )
    return text


def unknown_fields(job: str, pod: str, warnings: Iterable[str]) -> frozenset[str]:
    """Fields that the API server left out of a pod, by their paths in the job.

    >>> unknown_fields("a", "a-ps-0", ['unknown field "spec.nodeNam"', "PodSecurity: no"])
    frozenset({'spec.ps.template.spec.nodeNam'})
    """
    replica = replica_of(job, pod)
    found = (UNKNOWN_FIELD.fullmatch(text) for text in warnings)
    where = f"spec.{replica[0]}.template" if replica is not None else pod
    return frozenset(f"{where}.{match[1]}" for match in found if match)


def unknown_fields_text(fields: Iterable[str]) -> str:
    """The sentence about fields that the API server does not know."""
    listed = ", ".join(sorted(fields))
    return f"not known to the API server, which left it out of the pods: {listed}"


def _waiting(clauses: Mapping[Outcome, str]) -> tuple[str, str]:
    """(reason, sentence) of pods that wait; clauses: for what, reason first."""

    def order(o: Outcome) -> tuple[bool, RoleName, int]:
        return clauses[o].partition(":")[0] in WAITS_FOR_OTHERS, o.role, o.index

    first = min(clauses, key=order)
    more = f" (and {len(clauses) - 1} more)" if len(clauses) > 1 else ""
    reason = clauses[first].partition(":")[0]
    return reason, f"{first.label} waits: {clauses[first]}{more}"


def _some(pods: Sequence[Outcome | PodSlot]) -> str:
    shown = ", ".join(f"{pod.role}-{pod.index}" for pod in pods[:SHOWN_MAX])
    more = len(pods) - SHOWN_MAX
    return shown + (f" and {more} more" if more > 0 else "")
