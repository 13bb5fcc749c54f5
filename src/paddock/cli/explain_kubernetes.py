"""``paddock explain --kubernetes job.yaml``: the objects that the operator will make, as YAML.

No cluster is asked: the pure reconcile decides, for a job that was just created.
Addresses that only a cluster knows show as <ip of POD>.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from paddock.cli.family import CliCommand, Operand, ParsedCommand, named
from paddock.command_line import flag
from paddock.errors import UsageError
from paddock.local.report.width import say

if TYPE_CHECKING:
    from paddock.kube.client import Manifest
    from paddock.operator.decision import OperatorSettings

COMMAND = "explain --kubernetes"


def _run(args: ParsedCommand) -> int:
    if (args.file is None) == (args.named is None):
        raise UsageError("name one file: a PaddleJob", hint=f"write paddock {COMMAND} job.yaml")
    args.file = args.file or args.named
    from paddock.jobfile.document import load_document
    from paddock.operator.decision import OperatorSettings

    settings = OperatorSettings(scheduling=args.scheduling or "", init_image=args.init_image or "")
    warnings, objects = objects_of(load_document(args.file), args.namespace or "", settings)
    for warning in warnings:
        say(f"warning: {args.file}: {warning}")
    if args.json:
        print(json.dumps(objects, indent=2))
        return 0
    import yaml

    # Width: a line that is folded cannot be searched.
    print(yaml.safe_dump_all(objects, sort_keys=False, width=10_000), end="")
    return 0


def objects_of(
    document: object, namespace: str, settings: OperatorSettings
) -> tuple[tuple[str, ...], list[Manifest]]:
    """(warnings, manifests in order of creation). Raises UsageError with every problem."""
    from paddock.kube.objects import Meta, PaddleJob, Pod, PodGroup, PodGroupStatus, PodStatus
    from paddock.operator.decision import Create, ObservedState
    from paddock.operator.job_view import make_view
    from paddock.operator.read_spec import read_spec
    from paddock.operator.reconcile import reconcile
    from paddock.operator.status import ParsedStatus

    found = document if isinstance(document, dict) else {}
    if found.get("kind") != "PaddleJob":
        raise UsageError(
            f"kind: {found.get('kind')!r} is not PaddleJob", hint="write kind: PaddleJob"
        )
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    labels = metadata.get("labels")
    spec, problems = read_spec(name, found.get("spec"))
    if spec is None:
        raise UsageError.of(list(problems))
    job = PaddleJob(
        Meta(
            name=name,
            namespace=namespace or str(metadata.get("namespace") or "default"),
            uid="00000000-uid-of-the-job",
            labels={str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {},
        ),
        spec=found.get("spec"),
    )
    first = reconcile(ObservedState(job), 0.0, settings)
    made = {(a.kind, a.name): a.manifest for a in first.actions if isinstance(a, Create)}
    admitted = tuple(
        PodGroup(str(m["apiVersion"]), Meta(name=name), {}, PodGroupStatus(phase="Running"))
        for m in made.values()
        if m["kind"] == "PodGroup"
    )
    then = reconcile(ObservedState(job, pod_groups=admitted), 0.0, settings)
    made.update({(a.kind, a.name): a.manifest for a in then.actions if isinstance(a, Create)})
    facts = make_view(ObservedState(job), spec, ParsedStatus(), settings, 0.0)
    objects = list(made.values())
    builder = facts.builder
    if not spec.is_elastic and spec.intranet != "DNS" and not spec.suspend:
        ips = {slot.name: f"<ip of {slot.name}>" for slot in builder.slots}
        pods = {n: Pod(Meta(n), status=PodStatus(podIP=ip, hostIP=ip)) for n, ip in ips.items()}
        objects.append(builder.config_map(pods))
    return spec.warnings, objects


# fmt: off
COMMANDS = named(CliCommand(COMMAND, "show the objects that the operator makes of a PaddleJob",
    (
    flag("filename", "FILE", "the same, as kubectl's", "f", field="named"),
    flag("namespace", "NAME", "as kubectl's [the file's own]", "n"),
    flag("scheduling", "", "the operator's", choices=("volcano", "coscheduling")),
    flag("init-image", "IMAGE", "the operator's", aliases=("initImage",)),
    flag("json", "", "a JSON list instead of YAML"),
), _run, (Operand("file", "FILE", "a PaddleJob, YAML or JSON", least=0),), extra="operator"))
# fmt: on
