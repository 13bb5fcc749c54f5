"""``paddock explain``: the plan, the environment of every process, and where each value came from.

Starts nothing and reserves nothing: ports that are not fixed show as "free", other nodes are taken
to look like this one.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from paddock.cli.launch import resolved
from paddock.contracts.environment import proc_env, shared_env
from paddock.core.hosts import LOOPBACK, host_of
from paddock.core.plan import make_plan
from paddock.core.secrets import shown_value
from paddock.core.value import fields_of
from paddock.jobfile.nodes import hosts_of
from paddock.jobfile.parse import Parsed, parse
from paddock.local.devices import find_devices
from paddock.local.limits import usable_cores
from paddock.local.text import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.core.hosts import Devices, Host
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc

# A longer table helps nobody; --json has all.
MAX_ROWS = 64
MAX_TEXT = 160
UID = "<run>"  # of a run that has not begun


def run(argv: Sequence[str]) -> int:
    """Print what ``paddock launch`` with the same words would do."""
    words = list(argv)
    if (for_kubernetes := words_for_kubernetes(words)) is not None:
        from paddock.cli import explain_kubernetes
        from paddock.cli.operator import missing_extra

        try:
            return explain_kubernetes.run(for_kubernetes)
        except ImportError as error:
            raise missing_extra(error) from error
    if is_submission(words):
        from paddock.cli import explain_submission

        return explain_submission.run(words)
    # Only the first word: later ones may be the script's own.
    is_json = words[:1] == ["--json"]
    parsed = parse(words[1:] if is_json else words, os.environ, python=sys.executable)
    if parsed.is_help:
        from paddock.cli.help import command_help

        print(command_help("explain"), end="")
        return 0
    parsed = resolved(parsed)
    devices = find_devices(parsed.job, os.environ)
    hosts = imagined_hosts(parsed.job, devices, socket.gethostname())
    plan = make_plan(parsed.job, hosts, 0, UID)
    envs = environments(parsed.job, plan, os.environ, devices)
    if is_json:
        print(json.dumps(as_json(parsed, plan, envs), indent=2))
    else:
        for line in as_text(parsed, plan, envs):
            print(line)
    return 0


def is_submission(words: Sequence[str]) -> bool:
    """Whether the words are those of ``paddock submit``: where it runs is said by -b or --hosts.

    >>> is_submission(["-b", "slurm", "train.py"]), is_submission(["train.py", "-b"])
    (True, False)
    """
    from paddock.backends.flags import split_words

    own = split_words(words).own
    return bool({"b", "hosts", "hostfile", "conf"} & own.keys())


def words_for_kubernetes(words: Sequence[str]) -> list[str] | None:
    """The words of ``explain --kubernetes`` without it; None for a plan on machines.

    It was -b kubernetes and --backend kubernetes once; --backend is Paddle's word for gloo or nccl.

    >>> words_for_kubernetes(["--json", "--kubernetes", "job.yaml"])
    ['--json', 'job.yaml']
    """
    ahead = words[:1] if words[:1] == ["--json"] else []
    first, *left = words[len(ahead) :] or [""]
    name, equals, value = first.partition("=")
    if name in ("-b", "--backend") and (equals or left):
        value = value if equals else left.pop(0)
        is_file = any(word.endswith((".yaml", ".yml", ".json")) for word in left)
        first = "--kubernetes" if value in ("kubernetes", "k8s") and is_file else first
    return [*ahead, *left] if first == "--kubernetes" else None


def imagined_hosts(job: Job, devices: Devices, name: str) -> tuple[Host, ...]:
    """The hosts of a job before anyone has joined: known addresses, else node0, node1, ..."""
    meeting = job.rendezvous
    own_rank = meeting.node_rank or 0
    known = meeting.ips or (() if meeting.kind == "alone" else hosts_of(job.roles))
    hosts = []
    for node_rank in range(job.nnodes_min):
        is_own = node_rank == own_rank and not meeting.ips
        address = f"node{node_rank}"
        if node_rank < len(known):
            address = known[node_rank]
        elif is_own and (meeting.own_host or meeting.kind == "alone"):
            address = meeting.own_host or LOOPBACK
        # Who gives one node its rank gives all of them theirs.
        rank = node_rank if meeting.node_rank is not None else 0
        own_name = name if is_own else address
        hosts.append(host_of(job, devices, name=own_name, address=address, node_rank=rank))
    return tuple(hosts)


def environments(
    job: Job, plan: Plan, base: Mapping[str, str], devices: Devices
) -> list[dict[str, str]]:
    """What each process gets beyond what it inherits unchanged, in the plan's order."""
    found = []
    directory = os.path.abspath(job.logs.directory)
    shared = {
        node_rank: shared_env(
            {**base, **dict(devices.env)},
            job,
            plan,
            node_rank=node_rank,
            cores=usable_cores(),
            log_dir=directory,
            run_dir="<run directory>",
            pod_name="<pod>",
        )
        for node_rank in range(plan.nnodes)
    }
    for proc in plan.procs:
        env = proc_env(shared[proc.node_rank], proc).env
        found.append(
            {
                name: shown_value(name, env[name])
                for name in sorted(env)
                if base.get(name) != env[name]
            }
        )
    return found


def as_json(parsed: Parsed, plan: Plan, envs: list[dict[str, str]]) -> dict[str, object]:
    """One JSON object: command, notes, processes with environment, sources."""
    job = parsed.job
    return {
        "command": list(job.command.argv()),
        "server_command": list(job.command_of("ps").argv()) if job.role("ps") else None,
        "job_id": job.job_id,
        "mode": job.mode,
        "nnodes": plan.nnodes,
        "nnodes_min": job.nnodes_min,
        "nnodes_max": job.nnodes_max,
        "world_size": plan.world_size,
        "notes": list(parsed.notes),
        "processes": [
            {**dict(fields_of(proc)), "environment": env}
            for proc, env in zip(plan.procs, envs, strict=True)
        ],
        "values": {
            field: {
                "value": _shown_value(job, field),
                "from": source.kind,
                "name": source.name,
                "text": source.text,
            }
            for field, source in job.sources.items()
        },
    }


def as_text(parsed: Parsed, plan: Plan, envs: list[dict[str, str]]) -> list[str]:
    """The same for people."""
    job = parsed.job
    nodes = f"{plan.nnodes} node{'s' if plan.nnodes > 1 else ''}"
    if job.nnodes_max > job.nnodes_min:
        nodes += f" (up to {job.nnodes_max})"
    lines = [f"note: {note}" for note in parsed.notes]
    processes = count(len(plan.procs), "process", "processes")
    lines.append(f"job {job.job_id}, mode {job.mode}, {nodes}, {processes}")
    lines.append(f"each runs: {' '.join(job.command.argv())}")
    if job.servers.command is not None:
        lines.append(f"but servers: {' '.join(job.servers.command.argv())}")
    if job.servers.why:
        lines.append(f"note: {job.servers.why}")
    lines.append("")
    header = ("role", "rank", "local", "node", "host", "port", "devices")
    rows = [_row(proc) for proc in plan.procs[:MAX_ROWS]]
    lines.extend(_table([header, *rows]))
    if len(plan.procs) > MAX_ROWS:
        lines.append(f"... and {len(plan.procs) - MAX_ROWS} more; --json shows all")
    lines.extend(_environment_lines(plan, envs))
    lines += ["", "values that are not the default:"]
    given = [(f, s) for f, s in job.sources.items() if s.kind != "default"]
    table = [(f, _short(_shown_value(job, f)), f"{s.kind} {s.name}".strip()) for f, s in given]
    lines.extend("  " + line for line in _table(table))
    return lines


def _row(proc: Proc) -> tuple[str, ...]:
    devices = ",".join(proc.device_labels)
    return (
        f"{proc.role}{f' (stage {proc.stage})' if proc.role == 'heter' else ''}",
        str(proc.rank),
        str(proc.local_rank),
        str(proc.node_rank),
        proc.host if proc.host == proc.address else f"{proc.host} ({proc.address})",
        str(proc.port) if proc.port else "free",
        f"{proc.device_kind} {devices}" if devices else "cpu",
    )


def _environment_lines(plan: Plan, envs: list[dict[str, str]]) -> list[str]:
    """What all have in common once, then the rest of each."""
    if not envs:
        return []
    common = {n: t for n, t in envs[0].items() if all(e.get(n) == t for e in envs)}
    lines = ["", "environment of every process (port 0: chosen at the start):"]
    lines.extend(f"  {name}={_short(text)}" for name, text in common.items())
    for proc, env in list(zip(plan.procs, envs, strict=True))[:MAX_ROWS]:
        own = {n: t for n, t in env.items() if n not in common}
        if own:
            lines += ["", f"environment of {proc.name}:"]
            lines.extend(f"  {name}={_short(text)}" for name, text in own.items())
    return lines


def _shown_value(job: Job, field: str) -> object:
    """The value of a field path; values of --env are not shown."""
    if field == "extra_env":
        return [name for name, _ in job.extra_env]
    if field == "command":
        return " ".join(job.command.argv())
    if field == "servers.command":
        return " ".join(job.command_of("ps").argv())
    first, _, rest = field.partition(".")
    if first == "roles":
        name, _, part = rest.partition(".")
        found = [getattr(r, part) for r in job.roles if r.name == name]
        return found[0] if len(found) == 1 else found
    part = getattr(job, first)
    return getattr(part, rest) if rest else part


def _short(content: object) -> str:
    if isinstance(content, (tuple, list)):
        content = ",".join(str(c) for c in content)
    text = str(content)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
