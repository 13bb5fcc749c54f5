"""The Helm chart: the objects of install.py with Helm's expressions where values go. Pure.

With the default values it renders to the objects of deploy/v1/operator.yaml, but for the
namespace, which `helm install --namespace` makes. tests/cluster/test_crd.py compares them.

A text "@name@" of an object becomes the expression or the lines of that name below.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from paddock import __version__
from paddock.operator.manifests import install
from paddock.operator.manifests.crd import HEAD, Tree, crd_text, to_yaml

NAME = "paddock-operator"
KUBERNETES_MIN = ">=1.25.0-0"  # the first whose API server checks rules by itself


@dataclass(frozen=True, slots=True)
class Value:
    """One value of values.yaml. words: the only ones that it may be."""

    path: str
    default: object
    text: str
    words: tuple[str, ...] = ()


VALUES = (
    Value("image.repository", install.REPOSITORY, "The operator's image, without its tag."),
    Value("image.tag", "", "Its tag; the chart's appVersion when empty."),
    Value("image.pullPolicy", "IfNotPresent", "When it is pulled.",
          ("Always", "IfNotPresent", "Never")),
    Value("imagePullSecrets", [], "Secrets of a private registry, as [{name: ...}]."),
    Value("replicas", 1, "One leads, the others wait; with 2 the loss of a node costs less."),
    Value("scheduling", "", "Gang scheduler of every job that names none.", install.SCHEDULERS),
    Value("watchNamespaces", [], "Namespaces whose jobs are served; all when empty."),
    Value("initImage", "", "Image of a container that waits for the others' names, if any."),
    Value("extraArgs", [], "More words for `paddock operator run`."),
    Value("resources", install.RESOURCES, "Of the operator's container."),
    Value("priorityClassName", "", "Of the operator's pod."),
    Value("nodeSelector", {}, "Of the operator's pod."),
    Value("tolerations", [], "Of the operator's pod."),
    Value("affinity", {}, "Of the operator's pod."),
    Value("userRoles", True, "Let view, edit and admin of the cluster see and use jobs."),
    Value("serviceMonitor.enabled", False, "For Prometheus' operator, which must be there."),
    Value("serviceMonitor.labels", {}, "Labels that your Prometheus selects."),
)  # fmt: skip

RAW = {  # Expressions that stand without quotes.
    "replicas": "{{ .Values.replicas }}",
}
QUOTED = {
    "namespace": "{{ .Release.Namespace }}",
    "image": '{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}',
    "pullPolicy": "{{ .Values.image.pullPolicy }}",
    "served": "{{ . }}",
    "from": "{{ $.Release.Namespace }}",
}  # fmt: skip
# Whole lines; %d is the indentation of what is inside.
LINES = {
    "arguments": """\
{{- with .Values.scheduling }}
- --scheduling={{ . }}
{{- end }}
{{- with .Values.watchNamespaces }}
- --namespace={{ join "," . }}
{{- end }}
{{- with .Values.initImage }}
- --init-image={{ . }}
{{- end }}
{{- with .Values.extraArgs }}
{{- toYaml . | nindent %d }}
{{- end }}""",
    "resources": "{{- toYaml .Values.resources | nindent %d }}",
    "placement": """\
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent %d }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent %d }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent %d }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent %d }}
{{- end }}""",
    "monitorLabels": """\
{{- with .Values.serviceMonitor.labels }}
{{- toYaml . | nindent %d }}
{{- end }}""",
}
NOTES = """\
The operator of PaddleJobs starts in namespace {{ .Release.Namespace }}:

  kubectl -n {{ .Release.Namespace }} rollout status deployment/DEPLOYMENT

Helm neither upgrades nor removes the definition of PaddleJob. To do so by hand:

  kubectl apply -f crds/paddlejobs.yaml     (from this chart)
  kubectl delete crd paddlejobs.batch.paddlepaddle.org     (removes all jobs)
""".replace("DEPLOYMENT", install.DEPLOYMENT)


def chart() -> dict[str, str]:
    """Path within the chart's folder -> content."""
    return {
        "Chart.yaml": HEAD + to_yaml(_about()),
        "values.yaml": _values_text(),
        "values.schema.json": json.dumps(_values_schema(), indent=2) + "\n",
        "crds/paddlejobs.yaml": crd_text(),
        "templates/NOTES.txt": NOTES,
        **{f"templates/{name}.yaml": HEAD + text for name, text in _templates().items()},
    }


def _about() -> Tree:
    return {
        "apiVersion": "v2",
        "name": NAME,
        "description": "Runs PaddleJobs: distributed training with Paddle, PyTorch and JAX.",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": KUBERNETES_MIN,
        "keywords": ["PaddlePaddle", "distributed training", "operator"],
    }


def _values_text() -> str:
    lines = [HEAD.rstrip()]
    group = ""
    for value in VALUES:
        parent, _, name = value.path.rpartition(".")
        if parent != group and parent:
            lines.append(f"{parent}:")
        group = parent
        indent = "  " if parent else ""
        lines.append(f"{indent}# {value.text}")
        if value.words:
            known = ", ".join(word or '""' for word in value.words)
            lines.append(f"{indent}# One of {known}.")
        dumped = to_yaml({name: value.default}).rstrip()
        lines += [indent + line for line in dumped.splitlines()]
    return "\n".join(lines) + "\n"


def _values_schema() -> Tree:
    """So that a misspelt value is refused by `helm install` rather than left out."""
    types = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}
    properties: Tree = {"global": {"type": "object"}}
    groups: dict[str, Tree] = {}
    for value in VALUES:
        parent, _, name = value.path.rpartition(".")
        entry: Tree = {"description": value.text, "type": types[type(value.default)]}
        if value.words:
            entry["enum"] = list(value.words)
        if not parent:
            properties[name] = entry
            continue
        if parent not in groups:
            groups[parent] = {}
            properties[parent] = {
                "type": "object",
                "additionalProperties": False,
                "properties": groups[parent],
            }
        groups[parent][name] = entry
    properties["replicas"] = {
        "description": "Pods of the operator.", "type": "integer",
        "minimum": 1, "maximum": install.REPLICAS_MAX,
    }  # fmt: skip
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _templates() -> dict[str, str]:
    space = "@namespace@"
    everywhere = install.bindings(install.Install(namespace=space))
    one = install.bindings(install.Install(namespace="@from@", watch_namespaces=("@served@",)))
    leader = install.binding(
        "RoleBinding", "paddle-leader-election-rolebinding", space,
        ("Role", "paddle-leader-election-role"), space,
    )  # fmt: skip
    roles = [install.cluster_role(), install.leader_role(space), leader]
    return {
        "serviceaccount": _template(install.service_account(space)),
        "rbac": _template(*roles)
        + "{{- if .Values.watchNamespaces }}\n{{- range .Values.watchNamespaces }}\n---\n"
        + _template(*one)
        + "{{- end }}\n{{- else }}\n---\n"
        + _template(*everywhere)
        + "{{- end }}\n",
        "users": _if("userRoles", _template(*install.user_roles())),
        "service": _template(install.metrics_service(space)),
        "servicemonitor": _if("serviceMonitor.enabled", _template(_monitor(space))),
        "deployment": _template(_deployment(space)),
    }


def _if(value: str, text: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _monitor(namespace: str) -> Tree:
    monitor = install.service_monitor(namespace)
    metadata = monitor["metadata"]
    assert isinstance(metadata, dict)
    metadata["labels"] = {**metadata["labels"], "@monitorLabels@": None}
    return monitor


def _deployment(namespace: str) -> Tree:
    settings = replace(install.Install(), namespace=namespace, image="@image@")
    found = install.deployment(settings)
    spec = found["spec"]
    assert isinstance(spec, dict)
    spec["replicas"] = "@replicas@"
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    container["imagePullPolicy"] = "@pullPolicy@"
    container["args"] = [*container["args"], "@arguments@"]
    container["resources"] = {"@resources@": None}
    pod["@placement@"] = None
    return found


def _template(*documents: Tree) -> str:
    """The documents as a template."""
    return "".join(_line(line) for line in to_yaml(*documents).splitlines(keepends=True))


def _line(line: str) -> str:
    whole = re.fullmatch(r"( *)(- )?'@(\w+)@'(: null)?\n", line)
    if whole is not None:
        indent = whole[1]
        text = LINES[whole[3]]
        inner = len(indent) + (2 if re.search(r"^  \{\{", text, re.MULTILINE) else 0)
        return "".join(indent + part + "\n" for part in text.replace("%d", str(inner)).splitlines())
    for name, expression in RAW.items():
        line = line.replace(f"'@{name}@'", expression)
    for name, expression in QUOTED.items():
        line = line.replace(f"'@{name}@'", f'"{expression}"')
    assert "@" not in line, line
    return line
