"""The reader of a job's spec: every old file, every mistake, and anything at all."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddlejobs import DOCUMENTED, FULL, ONLY_REFUSED_BY_SERVER, REFUSED, job, pod, refused, role
from paddock.operator.read_spec import read_spec
from paddock.operator.schema import FOUND_MAX
from paddock.operator.spec import ExitCodes, FailureRule, GangSpec, JobSpec, SampleSet


def read(spec: object, name: str = "demo") -> JobSpec:
    """A job without problems."""
    found, problems = read_spec(name, spec)
    assert found is not None, problems
    assert problems == ()
    return found


def messages(spec: object, name: str = "demo") -> list[str]:
    """What is wrong with a job that has problems."""
    found, problems = read_spec(name, spec)
    assert found is None
    return [problem.message for problem in problems]


# ------------------------------------------------------------------------------------ good files


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_job_is_read(name: str) -> None:
    """The users' files run unchanged."""
    found = DOCUMENTED[name]
    spec = read(found["spec"], found["metadata"]["name"])
    roles = {r for r in ("ps", "worker", "heter") if r in found["spec"]}
    assert {role.name for role in spec.roles} == roles
    assert spec.mode == ("PS" if "ps" in roles else "Collective")


def test_every_field_of_ours_is_read() -> None:
    """A field that the reader forgets would be accepted and do nothing."""
    spec = read(FULL["spec"], "full")
    assert spec.clean_pod_policy == "Always"
    assert spec.intranet == "DNS"
    assert spec.with_gloo == 2
    assert spec.gang == GangSpec(
        "coscheduling", 3, "q", "high", {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": "2"}, 60
    )
    assert spec.sample_set == SampleSet("set", "/mnt/set", "other")
    assert spec.suspend
    assert (spec.deadline_seconds, spec.backoff_limit) == (3600, 3)
    assert spec.success == "Worker0"
    assert spec.rules == (
        FailureRule("Restart", ("worker",), ("ExitCode",), ExitCodes("In", (101, 102))),
        FailureRule("RestartUncounted", (), ("Evicted", "NodeLost")),
        FailureRule("Fail", exit_codes=ExitCodes("NotIn", (1,))),
    )
    worker = spec.role("worker")
    assert worker is not None
    assert (worker.replicas, worker.minimum, worker.maximum) == (2, 1, 4)
    assert worker.restart_scope == "Replica"
    assert worker.template["metadata"] == {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    warned = ["spec.elastic", "spec.sampleSetRef.namespace"]
    assert [w.partition(":")[0] for w in spec.warnings] == warned
    assert spec.elastic_level is None, "servers are told who the workers are, once"


def test_nothing_given_is_what_the_old_operator_did() -> None:
    """Defaults are part of compatibility; intranet apart, where names need no waiting."""
    spec = read({"worker": role(2)})
    assert (spec.intranet, spec.clean_pod_policy, spec.with_gloo) == ("DNS", "", 0)
    assert (spec.elastic_level, spec.backoff_limit, spec.success) == (None, None, "Workers")
    assert (spec.suspend, spec.sample_set, spec.rules, spec.gang) == (False, None, (), GangSpec())
    assert spec.warnings == ()


def test_a_template_keeps_what_the_table_does_not_know() -> None:
    """New fields of pods, and those of others, go to the cluster as they are."""
    template = pod(resizePolicy=[{"resourceName": "cpu"}])
    template["spec"]["schedulingGates"] = [{"name": "g"}]
    worker = read({"worker": {"replicas": 1, "template": template}}).role("worker")
    assert worker is not None
    assert worker.template == {**template, "metadata": {}}


def test_nulls_are_as_if_not_written() -> None:
    """kubectl and Helm write null for an empty value."""
    template = pod(env=None, args=None, resources=None)
    template["metadata"] = None
    spec = {"worker": {"replicas": 1, "template": template, "requests": None}, "elastic": None}
    worker = read(spec).role("worker")
    assert worker is not None
    assert worker.template == {**pod(), "metadata": {}}


# ---------------------------------------------------------------------------------------- roles


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({"worker": role(1)}, "Single"),
        ({"worker": role(2)}, "Collective"),
        ({"worker": role(1), "elastic": 1}, "Collective"),
        ({"worker": role(1), "ps": role(1)}, "PS"),
        ({"worker": role(2), "ps": role(0)}, "Collective"),
    ],
)
def test_the_mode_follows_from_the_roles(spec: dict[str, Any], mode: str) -> None:
    """As the old operator showed it, but for a role without replicas (its issue 38)."""
    assert read(spec).mode == mode


def test_a_role_without_replicas_is_absent() -> None:
    """There its template may be missing, too."""
    spec = read({"worker": role(1), "ps": {"replicas": 0}})
    assert [r.name for r in spec.roles] == ["worker"]


def test_roles_stand_in_their_order() -> None:
    """Servers first, whatever the file's order is."""
    spec = read({"heter": role(1), "worker": role(1), "ps": role(1)})
    assert [r.name for r in spec.roles] == ["ps", "worker", "heter"]


@pytest.mark.parametrize(
    ("fields", "elastic", "expected"),
    [
        ({"replicas": 3}, None, (None, 3, 3, 3)),
        ({"replicas": 3}, 1, (1, 3, 1, 3)),
        ({"replicas": 3}, 0, (0, 3, 1, 3)),
        ({"replicas": 3}, -1, (None, 3, 3, 3)),
        ({"replicas": 3, "limits": 5}, None, (1, 3, 1, 5)),
        ({"replicas": 3, "limits": 5}, -1, (None, 3, 3, 3)),
        ({"replicas": 3, "limits": 0}, None, (None, 3, 3, 3)),
        ({"replicas": 3, "requests": 2}, None, (1, 3, 2, 3)),
        ({"replicas": 9, "requests": 2, "limits": 4}, None, (1, 4, 2, 4)),
        ({"replicas": 1, "requests": 2, "limits": 4}, None, (1, 2, 2, 4)),
        ({"replicas": 1, "requests": 2}, 1, (1, 2, 2, 2)),
        ({"replicas": 0, "requests": 0, "limits": 4}, None, (1, 0, 0, 4)),
        ({"replicas": 0, "requests": 0}, None, (1, 0, 0, 0)),
    ],
)
def test_elastic_workers_have_a_range(
    fields: dict[str, Any], elastic: int | None, expected: tuple[int | None, int, int, int]
) -> None:
    """Documented: "elastic is auto enabled if limits > 0"; the wanted number stays in the range."""
    spec = read({"worker": {**role(1), **fields}, "elastic": elastic})
    worker = spec.role("worker")
    assert worker is not None
    shown = (spec.elastic_level, worker.replicas, worker.minimum, worker.maximum)
    assert shown == expected


def test_a_number_outside_the_range_is_said() -> None:
    """`kubectl scale` beyond limits is not done in silence."""
    spec = read({"worker": {**role(9), "limits": 4}})
    (warning,) = spec.warnings
    assert "spec.worker.replicas: 9 is not in 1..4" in warning


# --------------------------------------------------------------------------------- compatibility


@pytest.mark.parametrize(
    ("word", "policy", "warning"),
    [
        ("OnFailed", "OnFailure", "'OnFailed' is read as OnFailure"),
        ("Sometimes", "Never", "it is read as Never"),
        ("always", "Never", "it is read as Never"),
    ],
)
def test_odd_clean_pod_policies_are_warned_about(word: str, policy: str, warning: str) -> None:
    """The old operator took any word, and never cleaned for one it did not know."""
    spec = read({"worker": role(1), "cleanPodPolicy": word})
    assert spec.clean_pod_policy == policy
    assert warning in spec.warnings[0]


def test_the_old_user_guides_clean_policy_is_meant() -> None:
    """Its sample says cleanPolicy, which paddle-operator's own definition refused."""
    spec = read({"worker": role(1), "cleanPolicy": "Never"})
    assert (spec.clean_pod_policy, spec.warnings) == (
        "Never", ("spec.cleanPolicy: is read as cleanPodPolicy",),
    )  # fmt: skip
    spec = read({"worker": role(1), "cleanPolicy": "Never", "cleanPodPolicy": "Always"})
    assert (spec.clean_pod_policy, spec.warnings) == (
        "Always", ("spec.cleanPolicy: has no effect beside spec.cleanPodPolicy",),
    )  # fmt: skip


def test_an_unknown_intranet_is_pod_ip() -> None:
    """As in the old operator, but said."""
    spec = read({"worker": role(1), "intranet": "podip"})
    assert spec.intranet == "PodIP"
    assert "spec.intranet: 'podip' is not one of PodIP, Service, Host, DNS" in spec.warnings[0]


@pytest.mark.parametrize("intranet", ["DNS", "PodIP", "Service"])
def test_a_hostname_of_the_template_is_warned_of_where_it_takes_an_address(intranet: str) -> None:
    """A pod's name in DNS is its hostname and its subdomain; others are found without."""
    template = {"spec": {"hostname": "me", "subdomain": "", "containers": [{"name": "a"}]}}
    spec = read({"worker": {"replicas": 2, "template": template}, "intranet": intranet})
    texts = [text for text in spec.warnings if "hostname" in text or "subdomain" in text]
    assert [text.partition(": ")[0] for text in texts] == (
        ["spec.worker.template.spec.hostname"] if intranet == "DNS" else []
    )


def test_a_misspelt_field_is_said_with_the_right_one() -> None:
    """Where an older definition lets it in."""
    spec = read({"worker": role(1), "cleanPodPolcy": "Never"})
    (warning,) = spec.warnings
    assert warning == "spec.cleanPodPolcy: unknown field, has no effect; did you mean" + (
        " 'cleanPodPolicy'?"
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"metadata": {"lables": {"a": "b"}, "creationTimestamp": None}}, ".metadata.lables"),
        ({"sepc": {}}, ".sepc"),
    ],
)
def test_a_misspelt_part_of_a_template_is_said(template: dict[str, Any], said: str) -> None:
    """It does not reach the API server, which tells of those in the pod's spec."""
    worker = role(1)
    worker["template"] = {**worker["template"], **template}
    (warning,) = read({"worker": worker}).warnings
    assert warning.startswith(f"spec.worker.template{said}: unknown field, has no effect; did you")


def test_what_has_no_effect_is_said() -> None:
    """Ranges of servers, and Gloo without servers."""
    spec = read({"worker": role(1), "withGloo": 1})
    assert spec.warnings == ("spec.withGloo: 1 has no effect without spec.ps",)
    spec = read({"worker": role(1), "ps": {**role(1), "limits": 4}})
    assert spec.warnings == ("spec.ps.limits: has no effect, only workers are elastic",)


def test_success_without_workers_is_that_of_all() -> None:
    """There are no workers whose end could be waited for."""
    assert read({"ps": role(1)}).success == "AllRoles"
    spec = read({"ps": role(1), "successPolicy": "Worker0"})
    assert spec.success == "AllRoles"
    assert "spec.successPolicy: Worker0 is read as AllRoles" in spec.warnings[0]


# -------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_the_server_refuses_has_a_problem_here_too(name: str) -> None:
    """An older definition lets everything through."""
    found = refused(name)
    spec, problems = read_spec(found["metadata"]["name"], found.get("spec"))
    if name in ONLY_REFUSED_BY_SERVER:
        assert spec is not None
        assert spec.warnings
        return
    assert spec is None
    assert all(p.message.startswith(("spec", "metadata.name")) for p in problems)
    assert any(p.hint for p in problems) or "entries" in problems[0].message


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "spec: missing"),
        ({}, "spec: no role has replicas above 0"),
        ([], "spec: an empty list is not a mapping"),
        ("text", "spec: 'text' is not a mapping"),
        ({"worker": []}, "spec.worker: an empty list is not a mapping"),
        ({"worker": {"template": pod()}}, "spec.worker.replicas: missing"),
        ({"worker": role(True)}, "spec.worker.replicas: true is not an integer"),
        ({"worker": {**role(1), "replicas": 2.5}}, "spec.worker.replicas: 2.5 is not an integer"),
        ({"worker": {**role(1), "replicas": "2"}}, "spec.worker.replicas: '2' is not an integer"),
        ({"worker": role(-1)}, "spec.worker.replicas: -1 is not in 0..10000"),
        ({"worker": role(10**9)}, "spec.worker.replicas: 1000000000 is not in 0..10000"),
        ({"worker": role(10**5000)},
         "spec.worker.replicas: a number of more than 64 bits is not in 0..10000"),
        ({"worker": {"replicas": 1}}, "spec.worker.template.spec: missing"),
        ({"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}},
         "spec.worker.template.spec.containers: has 0 entries, needs 1 or more"),
        ({"worker": {"replicas": 1, "template": {"spec": {"containers": [5]}}}},
         "spec.worker.template.spec.containers[0]: 5 is not a mapping"),
        ({"worker": {"replicas": 1, "template": {"spec": {"containers": [{}]}}}},
         "spec.worker.template.spec.containers[0].name: missing"),
        ({"worker": role(1, name="Größe")},
         "spec.worker.template.spec.containers[0].name: 'Größe' does not fit"),
        ({"worker": role(1, name="a\n")},
         "spec.worker.template.spec.containers[0].name: 'a\\n' does not fit"),
        ({"worker": role(1, env={"A": "1"})},
         "spec.worker.template.spec.containers[0].env: a mapping is not a list"),
        ({"worker": role(1, env=[{"name": "A", "value": 1}])},
         "spec.worker.template.spec.containers[0].env[0].value: 1 is not text"),
        ({"worker": role(1, resources={"limits": {"cpu": 0.5}})},
         "spec.worker.template.spec.containers[0].resources.limits: 'cpu': 0.5 is not a quantity"),
        ({"worker": role(1), "withGloo": 3}, "spec.withGloo: 3 is not in 0..2"),
        ({"worker": role(1), "suspend": 1}, "spec.suspend: 1 is not true or false"),
        ({"worker": role(1), "successPolicy": "Any"},
         "spec.successPolicy: 'Any' is not one of Workers, AllRoles, Worker0"),
        ({"elastic": 1, "ps": role(1)},
         "spec.elastic: 1 needs spec.worker with replicas above 0"),
        ({"worker": {**role(2), "requests": 3, "limits": 2}},
         "spec.worker.requests: 3 is above spec.worker.limits, 2"),
        ({"worker": role(2), "schedulingPolicy": {"minAvailable": 3}},
         "spec.schedulingPolicy.minAvailable: 3 is above the number of pods, 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_field_value_and_limit(spec: object, message: str) -> None:
    """What is wrong can be found and put right from the message alone."""
    (found,) = messages(spec)
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.b", "metadata.name: 'a.b' is not a name for a Service and for pods"),
        ("1a", "metadata.name: '1a' is not a name"),
        ("größe", "metadata.name: 'größe' is not a name"),
        ("", "metadata.name: '' is not a name"),
        ("n" * 55, "metadata.name: too long: pod 'nnn"),
    ],
)
def test_a_name_must_fit_its_pods(name: str, message: str) -> None:
    """Pods of 67 characters were refused one by one, for ever."""
    (found,) = messages({"worker": role(1)}, name)
    assert found.startswith(message)


def test_the_longest_name_that_fits_is_read() -> None:
    """54 + "-worker-0" = 63."""
    assert read({"worker": role(10)}, "n" * 54).replicas == 10


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody wants to apply a file five times."""
    spec = {"worker": role(-1), "ps": role(1, command="x"), "withGloo": 9, "suspend": "no"}
    assert [m.partition(": ")[0] for m in messages(spec, "A")] == [
        "spec.worker.replicas", "spec.ps.template.spec.containers[0].command", "spec.withGloo",
        "spec.suspend", "metadata.name",
    ]  # fmt: skip


def test_a_thousand_mistakes_are_counted() -> None:
    """A status has room for some."""
    found = messages({"worker": role(1, args=[1] * 1000)})
    assert len(found) == FOUND_MAX + 1
    assert found[-1] == f"{1000 - FOUND_MAX} more problems of this kind"


# ----------------------------------------------------------------------------------- anything

ODD = (10**9, -1, 0, 1, 2, "", "PodIP", "OnFailed", "worker", "\ud800", "a" * 999)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    LEAVES | st.sampled_from(ODD),
    lambda i: st.lists(i, max_size=3) | st.dictionaries(st.text(max_size=9), i, max_size=3),
    max_leaves=8,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a value."""
    found = [at]
    if isinstance(value, dict):
        found += [p for key, inner in value.items() for p in places(inner, (*at, key))]
    elif isinstance(value, list):
        found += [p for key, inner in enumerate(value) for p in places(inner, (*at, key))]
    return found


def replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a place."""
    if not at:
        return new
    found = copy.deepcopy(value)
    inside = found
    for key in at[:-1]:
        inside = inside[key]
    inside[at[-1]] = new
    return found


def check_answer(name: str, raw: object) -> None:
    """Either a usable job or readable problems, and the raw value is left as it was."""
    before = repr(raw)
    spec, problems = read_spec(name, raw)
    assert repr(raw) == before
    assert (spec is None) == bool(problems)
    assert len(problems) <= FOUND_MAX + 1
    for text in (*(p.message for p in problems), *(spec.warnings if spec else ())):
        assert text.isprintable()
        assert len(text) < 1000
    for found in spec.roles if spec else ():
        containers: Any = found.template
        assert isinstance(found.template["metadata"], dict)
        assert all(isinstance(c["name"], str) for c in containers["spec"]["containers"])
        assert 0 <= found.minimum <= found.replicas <= found.maximum


@given(JSON, st.text(max_size=70))
def test_anything_gets_an_answer(raw: object, name: str) -> None:
    """One bad resource took the old operator down for the whole cluster (defect 1)."""
    check_answer(name, raw)


@given(st.data())
def test_a_job_with_anything_inside_gets_an_answer(data: st.DataObject) -> None:
    """Wrong types at any depth, through a definition that checks nothing."""
    spec: Any = copy.deepcopy(FULL["spec"])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.sampled_from(places(spec)[1:]))
        spec = replaced(spec, at, data.draw(JSON))
    check_answer("full", spec)


def test_very_deep_values_get_an_answer() -> None:
    """Deeper than Python's stack."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for spec in (deep, {"worker": deep}, {"worker": {**role(1), "template": {"spec": deep}}}):
        assert messages(spec)
    worker = read({"worker": role(1, volumeDevices=deep)}).role("worker")
    assert worker is not None


def test_keys_that_are_no_text_are_refused() -> None:
    """YAML read on a laptop may have numbers, dates and true for keys."""
    found = messages({"worker": role(1), 5: 1, True: 2})
    assert found == ["spec: key 5 is not text", "spec: key true is not text"]


def test_the_jobs_of_the_documents_are_not_changed_by_reading() -> None:
    """The cache shares them."""
    found = job("demo", worker=role(2, env=None))
    before = copy.deepcopy(found)
    read(found["spec"])
    assert found == before
