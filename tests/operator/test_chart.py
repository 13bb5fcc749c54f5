"""The Helm chart without helm: its files agree with one another and with the operator.

What helm makes of them is tested in tests/cluster/test_chart.py.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paddock import __version__
from paddock.operator.decision import SCHEDULERS
from paddock.operator.manifests.install import REPLICAS_MAX, REPOSITORY, Install, objects
from paddock.operator.names import LEASE
from paddock.operator.options import read_options

if TYPE_CHECKING:
    from collections.abc import Callable

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "paddock-operator"
TEMPLATES = {
    str(path.relative_to(CHART)): path.read_text("utf-8")
    for path in sorted((CHART / "templates").rglob("*.*"))
}
BEGIN, END = "<!-- values: pytest --record -->\n", "<!-- end of values -->\n"


def values() -> Any:
    """values.yaml."""
    return yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))


def documented() -> dict[str, str]:
    """Path of each value -> its comment in values.yaml, which begins with "# -- "."""
    found: dict[str, str] = {}
    path: list[str] = []
    comment = ""
    for line in (CHART / "values.yaml").read_text("utf-8").splitlines():
        text = line.strip()
        if text.startswith("#"):
            is_first = text.startswith("# -- ")
            comment = text[5:] if is_first else f"{comment} {text[2:]}" if comment else ""
            continue
        if match := re.match(r"( *)([A-Za-z]+):", line):
            path = [*path[: len(match[1]) // 2], match[2]]
            if comment:
                found[".".join(path)] = comment
        comment = ""
    return found


def at(tree: Any, path: str) -> Any:
    """The value of that path."""
    for name in path.split("."):
        tree = tree[name]
    return tree


def leaves(tree: Any, prefix: str = "") -> list[str]:
    """Paths of everything that is no mapping of our own: those are documented."""
    found = []
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value and path not in documented():
            found += leaves(value, f"{path}.")
        else:
            found.append(path)
    return found


def table() -> str:
    """The table of README.md."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, text in documented().items():
        value = at(values(), path)
        default = "see values.yaml" if isinstance(value, dict) and value else json.dumps(value)
        default = default if default.startswith("see") else f"`{default}`"
        lines.append(f"| `{path}` | {default} | {text} |")
    return "\n".join(lines) + "\n"


def test_the_readme_has_every_value_with_its_meaning(
    same_as_golden: Callable[[Path, str], None],
) -> None:
    """pytest --record tests/operator/test_chart.py after a change of values.yaml."""
    head, begin, rest = (CHART / "README.md").read_text("utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert (begin, end) == (BEGIN, END)
    same_as_golden(CHART / "README.md", f"{head}{BEGIN}{table()}{END}{tail}")


def test_every_value_is_documented_used_and_limited() -> None:
    """A value without effect, an expression without a value, or one that the schema refuses."""
    known = leaves(values())
    assert sorted(documented()) == sorted(known)
    # `.Values.image` in a `with` uses all of its group.
    text = "".join(TEMPLATES.values())
    used = {path.rstrip(".") for path in re.findall(r"\.Values\.([A-Za-z.]+)", text)}
    within = {path.rpartition(".")[0] for path in known}
    assert used <= {*known, *within}
    unused = [p for p in known if p not in used and not re.search(rf"\.{p.split('.')[-1]}\b", text)]
    assert unused == []
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    for path in known:
        node = schema
        for name in path.split("."):
            assert node["additionalProperties"] is False
            node = node["properties"][name]


def test_the_schema_has_the_operators_limits() -> None:
    """helm refuses what `paddock operator run` would."""
    limits = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
    assert tuple(limits["scheduling"]["enum"]) == SCHEDULERS
    assert limits["replicas"]["maximum"] == REPLICAS_MAX
    template: Any = objects(Install())[-1]["spec"]
    assert values()["resources"] == template["template"]["spec"]["containers"][0]["resources"]
    assert values()["image"]["repository"] == REPOSITORY


def test_the_chart_has_the_versions_of_paddock() -> None:
    """The image's tag follows from it."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert (about["version"], about["appVersion"]) == (__version__, __version__)


def test_the_name_of_the_lease_is_replaced_by_the_releases() -> None:
    """Two releases in one namespace would otherwise take turns in leading."""
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text("utf-8"))
    assert [rule.get("resourceNames") for rule in rules["leader"]] == [None, [LEASE]]
    assert f'replace "{LEASE}" $full' in TEMPLATES["templates/rbac.yaml"]
    assert sorted(rules) == ["coscheduling", "edit", "leader", "manager", "view", "volcano"]


def test_every_flag_of_the_deployment_is_known() -> None:
    """A flag that the operator does not know ends it at its start."""
    text = TEMPLATES["templates/deployment.yaml"]
    flags = re.findall(r"- (--[a-z-]+)(?:=.*)?$", text, re.MULTILINE)
    words = {"--scheduling": "volcano", "--metrics-bind-address": "0"}
    given = [f if f == "--leader-elect" else f"{f}={words.get(f, 'x')}" for f in flags]
    assert len(flags) == 8
    assert read_options(given).warnings == ()


def test_the_definition_is_in_the_chart_once_where_it_is_upgraded() -> None:
    """Helm never looks at crds/ again after the first installation."""
    assert not (CHART / "crds").exists()
    assert "\nmetadata:\n" in (CHART / "files" / "crd.yaml").read_text("utf-8")
    kinds = [p for p in CHART.rglob("*.yaml") if "kind: CustomResourceDefinition" in p.read_text()]
    assert [p.name for p in kinds] == ["crd.yaml"]
