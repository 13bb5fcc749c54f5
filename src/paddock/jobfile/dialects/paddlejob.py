"""PaddleJob (batch.paddlepaddle.org/v1) -> Job on one machine: every replica is a process.

No I/O here. What a laptop cannot honour is listed, never dropped in silence.
Format: docs/reference/paddlejob.md.
"""

from __future__ import annotations

import os

from paddock.core.job import ValueSource
from paddock.core.value import replace
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import FieldReader
from paddock.jobfile.dialects.container import (
    UNKNOWN,
    DocumentReading,
    PodReading,
    from_file,
    read_pod,
    unknown_field,
)
from paddock.jobfile.document import load_document
from paddock.jobfile.environment import FALLBACKS, MAPPING
from paddock.jobfile.parse import ParsedLaunch, build_job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.job import Entrypoint, Job
    from paddock.jobfile.args import ArgValue

GROUP = "batch.paddlepaddle.org"
ROLES = ("worker", "ps", "heter")
MAX_REPLICAS = 10_000
HEAD = ("apiVersion", "kind", "metadata", "spec", "status")
# Field of spec -> why it has no effect here. Roles and withGloo are read below.
ELSEWHERE = {
    "cleanPodPolicy": "there are no pods to clean",
    "cleanPolicy": "there are no pods to clean; its name is cleanPodPolicy",
    "schedulingPolicy": "nothing is scheduled",
    "intranet": "all processes are on this machine",
    "elastic": "the number of processes is fixed here",
    "sampleSetRef": "no data cache is mounted",
    "suspend": "it starts when it is launched",
    "ttlSecondsAfterFinished": "nothing is kept in a cluster",
    "activeDeadlineSeconds": "give --timeout",
    "backoffLimit": "give --max-restart",
    "successPolicy": "every process must succeed",
    "failurePolicy": "give --restart-on",
}
KNOWN = (*ROLES, "withGloo", *ELSEWHERE)
# What says where nodes are means nothing when all replicas are here.
NODE_FLAGS = (
    "nnodes", "master", "rank", "ips", "host", "elastic_server", "rdzv_endpoint", "rdzv_backend",
    "master_addr", "master_port", "standalone", "elastic_level",
)  # fmt: skip


class _PaddleJobReader(DocumentReading):
    """Reads a PaddleJob; collects values, notes and problems."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: dict[str, int] = {}
        self.pods: dict[str, PodReading] = {}

    def check(self) -> None:
        """Raise UsageError if there are problems: with all, and with misspelt fields as a hint."""
        if self.problems:
            unknown = [line for line in self.not_honoured if UNKNOWN in line]
            raise UsageError.of([*map(Problem, unknown), *self.problems])


def resolve_file(parsed: ParsedLaunch) -> ParsedLaunch:
    """Complete a command line that names a file with -f. Does I/O: reads that file."""
    job, not_honoured = job_from_document(load_document(parsed.file), parsed)
    notes = tuple(f"{parsed.file}: {line}" for line in not_honoured)
    return replace(parsed, job=job, notes=(*parsed.notes, *notes))


def job_from_document(doc: Mapping[str, object], base: ParsedLaunch) -> tuple[Job, list[str]]:
    """The Job of a PaddleJob, and one line per thing that cannot be honoured here.

    base: what flags and environment said; they win over the file. Raises UsageError with every
    problem, each with its path in the document.
    """
    reading = _PaddleJobReader()
    spec = _read_head(doc, reading)
    for role in ROLES:
        if spec.get(role) is not None:
            _read_role(role, spec[role], reading, base.job.command.python)
    _read_rest(spec, reading)
    if spec and not reading.replicas and not reading.problems:
        reading.fault("spec", "no role", "write spec.worker with replicas and a template")
    reading.check()
    command = _choose_command(reading, base.job)
    values = _values(doc, spec, reading, base.job)
    _note_overridden(values, base.values, reading)
    values.update(base.values)
    for listed, counted in (("servers", "server_num"), ("trainers", "trainer_num")):
        if listed in base.values and counted not in base.values:
            values.pop(counted, None)
    reader = FieldReader(values)
    env = [f"{name}={text}" for name, text in _plain_env(reading).items()]
    job = build_job(reader, command, (*env, *base.env_args), cpu_count=os.cpu_count() or 1)
    reading.problems.extend(reader.problems)
    for name in ("server_script", "server_restarts"):
        if name in base.values and job.role("ps") is None:
            reading.fault(base.values[name].source.name, "this file has no servers", "add spec.ps")
    reading.check()
    job = _with_server_command(job, reading, base)
    at_command = base.job.sources.get("command")
    if not base.job.command.program or at_command is None:
        at_command = ValueSource("file", "spec.worker.template.spec.containers[0].command")
    sources = {**job.sources, "command": at_command}
    return replace(job, sources=sources), [*reading.not_honoured, *reader.notes]


def _read_head(doc: Mapping[str, object], reading: _PaddleJobReader) -> dict[str, object]:
    """Check apiVersion and kind; returns spec, {} if it is unusable."""
    version, kind = doc.get("apiVersion"), doc.get("kind")
    if kind != "PaddleJob":
        reading.fault("kind", f"{kind!r} is not PaddleJob", "write kind: PaddleJob")
    if version != f"{GROUP}/v1":
        hint = f"write apiVersion: {GROUP}/v1"
        if isinstance(version, str) and version.startswith("kubeflow.org"):
            hint = f"this is Kubeflow's PaddleJob; {hint}, spec.worker and spec.ps"
        reading.fault("apiVersion", f"{version!r} is not {GROUP}/v1", hint)
    for key in reading.mapping("metadata", doc.get("metadata"), "") or ():
        if key not in ("name", "generateName"):
            reading.not_honoured.append(f"metadata.{key}: there is no cluster")
    for key in doc:
        if key not in HEAD:
            reading.not_honoured.append(unknown_field(key, key, HEAD))
    spec = doc.get("spec")
    if not isinstance(spec, dict) or not spec:
        if not reading.problems:
            reading.fault("spec", "missing or not a mapping", "write spec.worker with replicas")
        return {}
    return spec


def _read_role(name: str, content: object, reading: _PaddleJobReader, python: str) -> None:
    path = f"spec.{name}"
    parts = reading.mapping(path, content, "write replicas and template under it")
    if parts is None:
        return
    replicas = parts.get("replicas")
    if replicas is None:
        reading.fault(f"{path}.replicas", "missing", f"write {path}.replicas: 1")
    elif not isinstance(replicas, int) or isinstance(replicas, bool):
        reading.fault(f"{path}.replicas", f"{replicas!r} is not a whole number")
    elif not 1 <= replicas <= MAX_REPLICAS:
        reading.fault(
            f"{path}.replicas", f"{replicas} is not in 1..{MAX_REPLICAS}",
            f"write {path}.replicas: 1, or remove {path}",
        )  # fmt: skip
    else:
        reading.replicas[name] = replicas
    for key in parts:
        if key in ("requests", "limits"):
            reading.not_honoured.append(f"{path}.{key}: the number of replicas is fixed here")
        elif key not in ("replicas", "template"):
            reading.not_honoured.append(
                unknown_field(f"{path}.{key}", key, ("replicas", "template"))
            )
    reading.pods[name] = read_pod(reading, f"{path}.template", parts.get("template"), python)


def _read_rest(spec: Mapping[str, object], reading: _PaddleJobReader) -> None:
    for key, content in spec.items():
        if key in ROLES or key == "withGloo" or content is None:
            continue
        if key in ELSEWHERE:
            shown = f" {content}" if isinstance(content, (str, int)) else ""
            reading.not_honoured.append(f"spec.{key}:{shown} - {ELSEWHERE[key]}")
        else:
            reading.not_honoured.append(unknown_field(f"spec.{key}", key, KNOWN))


def _choose_command(reading: _PaddleJobReader, base: Job) -> Entrypoint:
    """The job's command: the command line's, else the workers', else the servers'."""
    if base.command.program:
        return base.command
    chosen: Entrypoint | None = None
    by = ""
    for role in ROLES:
        pod = reading.pods.get(role)
        if pod is None or pod.command is None:
            continue
        if chosen is None:
            chosen, by = pod.command, role
        elif pod.command != chosen and role != "ps":  # servers may run what they like
            reading.not_honoured.append(
                f"spec.{role}.template.spec.containers[0].command: differs from spec.{by}, whose "
                "command every process runs"
            )
    if chosen is None:
        first = next(iter(reading.pods), "worker")
        reading.fault(
            f"spec.{first}.template.spec.containers[0].command",
            "missing, and the image's own command is not known here",
            "add it, or name the script after the file: paddock launch -f job.yaml train.py",
        )
        return base.command
    if chosen.program == "run_check":
        reading.fault(
            f"spec.{by}.template.spec.containers[0].command",
            "run_check is built into Paddle's own launcher, which is not used here",
            "paddock check --framework paddle",
        )
    return chosen


def _with_server_command(job: Job, reading: _PaddleJobReader, base: ParsedLaunch) -> Job:
    """Set the servers' command from their container, unless the command line names the script."""
    pod = reading.pods.get("ps")
    own = pod.command if pod is not None and not base.job.command.program else None
    if own is None or own == job.command or "server_script" in base.values:
        return job
    from paddock.jobfile.servers import chosen, is_pserver, to_command

    if is_pserver(own) and own.program == "paddock":  # ours: no program, but this very version
        own = to_command(list(own.args), base.job.command.python)
    path = "spec.ps.template.spec.containers[0].command"
    servers = replace(chosen(own, path), max_restarts=job.servers.max_restarts)
    source = ValueSource("file", path, own.program)
    return replace(job, servers=servers, sources={**job.sources, "servers.command": source})


def _values(
    doc: Mapping[str, object], spec: Mapping[str, object], reading: _PaddleJobReader, base: Job
) -> dict[str, ArgValue]:
    """The document as named texts, like those of a command line."""
    values: dict[str, ArgValue] = {}
    for role in ("ps", "heter", "worker"):  # the workers' pod has the last word
        pod = reading.pods.get(role)
        if pod is None:
            continue
        path = f"spec.{role}.template.spec.containers[0]"
        values.update(pod.values)
        for variable, name in (*MAPPING, *FALLBACKS):
            if variable in pod.env:
                values[name] = from_file(f"{path}.env.{variable}", pod.env[variable])
        if pod.grace_seconds:
            where = f"spec.{role}.template.spec.terminationGracePeriodSeconds"
            values["grace"] = from_file(where, str(pod.grace_seconds))
    for name in NODE_FLAGS:
        if name in values:
            given = values.pop(name)
            reading.not_honoured.append(
                f"{given.source.name} {given.text}: all replicas are on this machine"
            )
    env = _plain_env(reading)
    if env:
        where = "spec.worker.template.spec.containers[0].env"
        values["env"] = from_file(where, ",".join(env))
    _add_counts(values, reading, base)
    if spec.get("withGloo") is not None:
        values["with_gloo"] = from_file("spec.withGloo", str(spec["withGloo"]))
    metadata = doc.get("metadata")
    job_id = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(job_id, str) and job_id:
        values["job_id"] = from_file("metadata.name", job_id)
    return values


def _note_overridden(
    values: Mapping[str, ArgValue], given: Mapping[str, ArgValue], reading: _PaddleJobReader
) -> None:
    """Note fields of the file that a variable of this shell overrides; flags do so silently."""
    for name, before in values.items():
        now = given.get(name, before)
        at, by = before.source, now.source
        if by.kind == "environment" and now.text != before.text:
            reading.not_honoured.append(
                f"{at.name} {at.text}: {by.name}={by.text} decides; see --ignore-env"
            )


def _add_counts(values: dict[str, ArgValue], reading: _PaddleJobReader, base: Job) -> None:
    """Replicas as processes per node; with --nnodes they are shared out evenly."""
    nnodes = base.nnodes_max

    def count_of(role: str, each: int = 1) -> ArgValue:
        replicas = reading.replicas[role]
        path = f"spec.{role}.replicas"
        if replicas * each % nnodes or base.nnodes_min != nnodes:
            shown = str(nnodes) if base.nnodes_min == nnodes else f"{base.nnodes_min}:{nnodes}"
            reading.fault(path, f"{replicas} replicas do not fit --nnodes {shown}",
                          "leave --nnodes out, or choose a number that divides them")  # fmt: skip
        total = max(1, replicas * each // nnodes)
        return from_file(path, str(total), str(replicas))

    for name in ("server_num", "trainer_num", "heter_worker_num", "servers", "trainers"):
        values.pop(name, None)
    each = _processes_each(values, reading)
    is_ps = "ps" in reading.replicas or "heter" in reading.replicas
    if is_ps:
        for name in ("nproc_per_node", "run_mode"):
            values.pop(name, None)
    counts = (
        ("worker", "trainer_num" if is_ps else "nproc_per_node", 1 if is_ps else each),
        ("ps", "server_num", 1),
        ("heter", "heter_worker_num", 1),
    )
    for role, name, of_replica in counts:
        if role in reading.replicas:
            values[name] = count_of(role, of_replica)


def _processes_each(values: dict[str, ArgValue], reading: _PaddleJobReader) -> int:
    """Processes of one replica: the inner --nproc-per-node, else one per inner device, else 1.

    The device labels themselves are those of a pod that is not here.
    """
    devices = values.pop("devices", None)
    each = 1
    if devices is not None:
        each = devices.text.count(",") + 1
        reading.not_honoured.append(
            f"{devices.source.name} {devices.text}: devices of a pod; name this machine's with "
            "--devices"
        )
    given = values.get("nproc_per_node")
    text = given.text if given else ""
    if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_REPLICAS:
        return int(text)
    return each


def _plain_env(reading: _PaddleJobReader) -> dict[str, str]:
    """The variables of all containers that are the processes', not the launcher's configuration.

    The workers' win, since all share one environment.
    """
    own = {variable for variable, _ in (*MAPPING, *FALLBACKS)}
    pods = [reading.pods[role] for role in ("ps", "heter", "worker") if role in reading.pods]
    return {name: text for pod in pods for name, text in pod.env.items() if name not in own}
