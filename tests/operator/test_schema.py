"""The table of fields, and the definition made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import pytest
import yaml

from paddlejobs import DOCUMENTED, FULL
from paddock.errors import UsageError
from paddock.operator.manifests.crd import crd, crd_text, crd_v1beta1
from paddock.operator.rules import RULES
from paddock.operator.schema import (
    CODES_MAX,
    LABEL,
    NAME_MAX,
    PHASES,
    REPLICAS_MAX,
    ROLE,
    TREE,
    Field,
    rows,
)
from paddock.operator.spec import (
    ROLES,
    Cause,
    CleanPodPolicy,
    Intranet,
    RestartScope,
    RoleName,
    RuleAction,
    SuccessPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# PaddleFlow's kube_paddle_job.go: any other phase is an error there.
PADDLEFLOW_PHASES = {
    "Starting", "Pending", "Running", "Restarting", "Completing", "Scaling", "Terminating",
    "Aborting", "Completed", "Succeed", "Aborted", "Failed", "Terminated", "Unknown",
}  # fmt: skip
# Fields of spec and status in paddle-operator v0.3.5.
OLD = """
cleanPodPolicy schedulingPolicy.minAvailable schedulingPolicy.queue schedulingPolicy.priorityClass
schedulingPolicy.minResources intranet withGloo ps.replicas ps.requests ps.limits ps.template
worker.replicas worker.template heter.replicas heter.template elastic sampleSetRef.name
sampleSetRef.namespace sampleSetRef.mountPath
"""
OLD_STATUS = """
phase mode ps.pending ps.starting ps.running ps.failed ps.succeeded ps.unknown ps.refs[]
worker.running heter.running elastic startTime completionTime observedGeneration
"""


def fields(inside: Mapping[str, Field] = TREE) -> list[Field]:
    """Every field with its full path, parents before children."""
    return [one for field in inside.values() for one in (field, *fields(field.children))]


def schema() -> dict[str, Any]:
    """openAPIV3Schema of the definition."""
    found: Any = crd()
    whole: dict[str, Any] = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return whole


def each(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema inside a schema, with the path of its field."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from each(child, f"{path}.{name}".lstrip("."))
    if "items" in node:
        yield from each(node["items"], f"{path}[]")
    if "additionalProperties" in node:
        yield from each(node["additionalProperties"], f"{path}.*")


def unknown(value: Any, node: dict[str, Any], path: str) -> list[str]:
    """Fields of a value that strict validation would refuse."""
    if isinstance(value, list):
        return [u for v in value for u in unknown(v, node["items"], f"{path}[]")]
    if not isinstance(value, dict) or node.get("x-kubernetes-preserve-unknown-fields"):
        return []
    found = []
    for key, inner in value.items():
        if "additionalProperties" in node:
            continue
        if key not in node.get("properties", {}):
            found.append(f"{path}.{key}")
        else:
            found += unknown(inner, node["properties"][key], f"{path}.{key}")
    return found


def test_every_old_field_is_there() -> None:
    """A file of the old operator must not lose a field, nor its readers one of the status."""
    known = {field.path for field in fields()}
    assert {f"spec.{path}" for path in OLD.split()} <= known
    assert {f"status.{path}" for path in OLD_STATUS.split()} <= known


def test_every_path_stands_in_the_table_once() -> None:
    """A second row would win silently."""
    paths = [row.path for row in rows() if ROLE not in row.path]
    paths += [row.path.replace(ROLE, r) for row in rows() for r in ROLES if ROLE in row.path]
    assert len(paths) == len(set(paths))


def test_every_field_says_what_it_means() -> None:
    """`kubectl explain` and the reference are as good as the table."""
    assert [f.path for f in rows() if not f.text.endswith(".") or len(f.text) < 8] == []


def test_every_parent_has_a_row() -> None:
    """The tree cannot be made otherwise; each role has the same fields."""
    spec = TREE["spec"].children
    assert set(spec["ps"].children) == set(spec["worker"].children) == set(spec["heter"].children)
    assert all(ROLE not in field.path for field in fields())


def test_the_phases_are_those_that_paddleflow_knows() -> None:
    """It answers any other phase with an error."""
    assert set(PHASES) <= PADDLEFLOW_PHASES


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("spec.cleanPodPolicy", get_args(CleanPodPolicy)),
        ("spec.intranet", get_args(Intranet)),
        ("spec.successPolicy", get_args(SuccessPolicy)),
        ("spec.worker.restartScope", get_args(RestartScope)),
        ("spec.failurePolicy.rules[].action", get_args(RuleAction)),
        ("spec.failurePolicy.rules[].roles[]", get_args(RoleName)),
        ("spec.failurePolicy.rules[].causes[]", get_args(Cause)),
    ],
)
def test_the_words_are_those_of_the_job(path: str, words: tuple[str, ...]) -> None:
    """JobSpec's types and the table say the same."""
    (row,) = [f for f in fields() if f.path == path]
    assert {w for w in row.values if w} == {w for w in words if w}


def test_limits_and_phases_are_those_of_the_code() -> None:
    """The table is data, and repeats the numbers that the code counts with."""
    known = {f.path: f for f in fields()}
    role, gang = known["spec.worker.replicas"], known["spec.schedulingPolicy.minAvailable"]
    assert (role.most, gang.most) == (REPLICAS_MAX, 3 * REPLICAS_MAX)
    codes = known["spec.failurePolicy.rules[].exitCodes.values[]"]
    name = known["spec.worker.template.spec.containers[].name"]
    assert (codes.most, name.most, name.pattern) == (CODES_MAX, NAME_MAX, f"^{LABEL}$")
    assert known["status.phase"].text == f"One of {', '.join(PHASES)}."


def test_the_definition_is_structural() -> None:
    """Each node has a type, or is int-or-string; a server refuses the whole definition otherwise.

    Source: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/
    custom-resource-definitions/#specifying-a-structural-schema
    """
    wrong = [
        path
        for path, node in each(schema())
        if ("type" not in node) != bool(node.get("x-kubernetes-int-or-string"))
        or (node.get("type") == "array") != ("items" in node)
        or ("properties" in node and "additionalProperties" in node)
    ]
    assert wrong == []


def test_required_fields_exist() -> None:
    """A required field that no file can have would refuse every job."""
    for path, node in each(schema()):
        assert set(node.get("required", ())) <= set(node.get("properties", ())), path


def test_keys_of_lists_are_required() -> None:
    """A server refuses a list whose key may be absent."""
    for path, node in each(schema()):
        if node.get("x-kubernetes-list-type") == "map":
            assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"]), path


def test_clean_pod_policy_has_no_fixed_words() -> None:
    """deepfm.yaml says OnFailed, and has to be accepted."""
    assert "enum" not in schema()["properties"]["spec"]["properties"]["cleanPodPolicy"]


@pytest.mark.parametrize("name", [*DOCUMENTED, "full"])
def test_a_documented_job_has_no_unknown_field(name: str) -> None:
    """kubectl refuses unknown fields since 1.27."""
    found = {**DOCUMENTED, "full": FULL}[name]
    assert unknown(found["spec"], schema()["properties"]["spec"], "spec") == []


def test_pods_keep_fields_that_the_table_does_not_know() -> None:
    """The old definition was frozen at Kubernetes 0.23 and cut newer fields away."""
    template = schema()["properties"]["spec"]["properties"]["worker"]["properties"]["template"]
    container = template["properties"]["spec"]["properties"]["containers"]["items"]
    for node in (template, template["properties"]["metadata"], container):
        assert node["x-kubernetes-preserve-unknown-fields"] is True


def test_columns_are_status_mode_and_age() -> None:
    """As the documents show `kubectl get pdj`; the others only with -o wide."""
    found: Any = crd()
    columns = found["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if "priority" not in c] == ["Status", "Mode", "Age"]
    assert {c["name"] for c in columns if c.get("priority")} == {"Ready", "Restarts", "Reason"}


def test_columns_and_subresources_name_fields() -> None:
    """A misspelt path would show an empty column for ever."""
    found: Any = crd()
    version = found["spec"]["versions"][0]
    scale = version["subresources"]["scale"]
    paths = [c["jsonPath"] for c in version["additionalPrinterColumns"]]
    paths += [f["jsonPath"] for f in version["selectableFields"]] + list(scale.values())
    known = {f".{field.path}" for field in fields()} | {".metadata.creationTimestamp"}
    assert set(paths) <= known


def test_rules_name_their_field_and_fit() -> None:
    """One line each, and the field that is blamed exists."""
    known = {field.path for field in fields()}
    for rule in RULES:
        assert "\n" not in rule.message
        assert rule.message.startswith(("spec", "metadata.name")), rule.message
        if rule.at:
            assert f"{rule.path}.{rule.at}".lstrip(".") in known, rule


def test_the_definition_stays_small() -> None:
    """`kubectl apply` keeps it in an annotation of at most 256 KiB."""
    assert len(crd_text().encode()) < 100_000


def test_the_text_is_the_definition() -> None:
    """Nothing is lost on the way to YAML."""
    assert yaml.safe_load(crd_text()) == crd()


def test_the_old_version_has_nothing_new() -> None:
    """1.15 knows no extensions; nothing is pruned there, so nothing needs to be kept."""
    text = crd_text("v1beta1")
    assert yaml.safe_load(text) == crd_v1beta1()
    assert "x-kubernetes" not in text
    assert "selectableFields" not in text
    assert "jsonPath" not in text
    assert text.splitlines()[1].startswith("# For Kubernetes 1.15 and older")


def test_another_version_is_refused() -> None:
    """`paddock operator crd --version v2` must not print half a file."""
    with pytest.raises(UsageError, match="'v2' of the definition is not one of v1, v1beta1"):
        crd_text("v2")
