"""``paddock explain``: the plan, where each value came from, and the environment of a process.

Starts nothing and reserves nothing: ports that are not fixed show as "free", other nodes are taken
to look like this one. ``paddock launch --dry-run`` prints the plan alone.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from paddock.command_line import FlagTable, flag, read_line, spelled
from paddock.contracts.environment import proc_env, shared_env
from paddock.core.hosts import Devices
from paddock.core.job import Job
from paddock.core.plan import Plan, Proc
from paddock.core.secrets import shown_value
from paddock.core.value import fields_of
from paddock.errors import HelpAsked, UsageError
from paddock.jobfile.args import DEFAULT, is_set
from paddock.jobfile.flags import FLAGS as LAUNCH
from paddock.jobfile.flags import NO_FLAG
from paddock.jobfile.imagined import imagined_plan
from paddock.jobfile.parse import ParsedLaunch, crowd_note, parse, resolved, usable_cores
from paddock.local.facts.devices import find_devices
from paddock.local.output.logs import RUNS, has_own_folder
from paddock.local.report.text import count
from paddock.local.report.width import fitted, reflowed, terminal_width

KUBERNETES = flag("kubernetes", "", "the objects that the operator makes of a PaddleJob, as YAML")
FLAGS = (
    flag("env-of", "RANK|all", "what a process finds around it: 3, server:0, heter:1 or all"),
    flag("json", "", "one JSON value, with all of it"),
    KUBERNETES,
)
TABLE = FlagTable("explain", (*FLAGS, *LAUNCH))
OF_SUBMIT = frozenset(("site", "hosts", "hostfile", "conf"))  # -b, --hosts and the like
MAX_ROWS = 16  # a longer table is not readable; --json has all
MAX_TEXT = 160
ROLES = {"server": "ps", "trainer": "worker"}
OF_COMMAND = ("command.kind",)  # told by the command itself
# Every field of a job that is shown, with where its value came from.
FIELDS = tuple(
    field
    for field in dict.fromkeys((*NO_FLAG, *(field for flag in LAUNCH for field in flag.fields)))
    if field not in OF_COMMAND
)


def run(argv: Sequence[str]) -> int:
    """Print the plan of ``paddock launch`` with the same arguments."""
    words = list(argv)
    if (args := kubernetes_args(words)) is not None:
        _need_linux("--kubernetes")
        from paddock.cli.explain_kubernetes import COMMAND, COMMANDS
        from paddock.cli.family import carry_out

        return carry_out(COMMAND, COMMANDS, args)
    from paddock.backends.flags import split_args

    if not OF_SUBMIT.isdisjoint(split_args(words).own):
        _need_linux("of a submission")
        return _run_submission(words)
    parsed = parse(words, os.environ, python=sys.executable, table=TABLE)
    if parsed.is_help:
        raise HelpAsked("explain", words)
    parsed = resolved(parsed)
    env_of = parsed.values.get("env-of")
    is_json = is_set(parsed.values, "json")
    show_plan(parsed, is_json=is_json, env_of=env_of.text if env_of is not None else "")
    return 0


def _need_linux(what: str) -> None:
    if not hasattr(os, "fork"):  # Windows: sites, and what submits to them, are made for Linux
        hint = "here paddock explain shows what paddock launch does"
        raise UsageError(f"paddock explain {what} needs Linux", hint=hint)


def _run_submission(argv: Sequence[str]) -> int:
    """``paddock explain -b``: the dry run of a submission and its plan, or a rank's environment."""
    from paddock.backends.backend import find_backend
    from paddock.backends.flags import TABLE as SUBMIT
    from paddock.backends.submit import read_args, read_submission
    from paddock.cli.submit import show_dry_run

    line = read_line(argv, FlagTable("explain", (*FLAGS, *SUBMIT.flags)), has_script=True)
    asked = [one for one in line.flags if one.flag.key == "env_of"]
    words = [word for one in line.flags if one not in asked for word in one.words]
    submission = read_submission(read_args(argv if line.problems else [*words, "--", *line.rest]))
    is_json = "json" in submission.extra
    if is_json or not asked:
        plan = find_backend(submission.site.backend).plan(submission)
        show_dry_run(submission, plan, is_json=is_json)
    if not is_json:
        print("" if asked else "\n", end="")
        parsed = ParsedLaunch(submission.job, crowd_note(submission.job, usable_cores()))
        show_plan(parsed, env_of=asked[-1].text if asked else "", is_here=False)
    return 0


def kubernetes_args(words: Sequence[str]) -> list[str] | None:
    """The arguments of ``explain --kubernetes`` without it; None for a plan on machines.

    Earlier spellings: -b kubernetes, --backend kubernetes; --backend is Paddle's for gloo or nccl.

    >>> kubernetes_args(["--json", "--kubernetes", "job.yaml"])
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


def show_plan(
    parsed: ParsedLaunch, *, is_json: bool = False, env_of: str = "", is_here: bool = True
) -> None:
    """Print the plan; with env_of, the environment of that rank, or of all.

    is_here: on this machine, with its devices. Raises UsageError if env_of is no process.
    """
    job = parsed.job
    devices = find_devices(job, os.environ) if is_here else Devices()
    name = socket.gethostname() if is_here else "node0"
    plan = imagined_plan(job, devices, name)
    if not (is_json or env_of):
        print("\n".join(_as_text(parsed, plan, terminal_width() if is_here else None)))
        return
    envs = _environments(job, plan, os.environ if is_here else {}, devices)
    if is_json:
        print(json.dumps(_as_json(parsed, plan, envs), indent=2))
    else:
        print("\n".join(_environment_lines(plan, envs, env_of)))


def _environments(
    job: Job, plan: Plan, base: Mapping[str, str], devices: Devices
) -> list[dict[str, str]]:
    """The variables of each process that it does not inherit unchanged, in the plan's order."""
    directory = os.path.abspath(job.logs.directory)
    if has_own_folder(job):
        directory = os.path.join(directory, RUNS, "<run id>")
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
            takes_reports=sys.platform == "linux",
        )
        for node_rank in range(plan.nnodes)
    }
    envs = (proc_env(shared[proc.node_rank], proc)[0] for proc in plan.procs)
    return [
        {name: shown_value(name, env[name]) for name in sorted(env) if base.get(name) != env[name]}
        for env in envs
    ]


def _as_json(parsed: ParsedLaunch, plan: Plan, envs: list[dict[str, str]]) -> dict[str, object]:
    """The plan as a JSON object: command, notes, processes with environment, sources."""
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
            for field in FIELDS
            for source in (job.sources.get(field, DEFAULT),)
        },
    }


def _as_text(parsed: ParsedLaunch, plan: Plan, width: int | None = None) -> list[str]:
    """The plan for people, on one screen: alike ranks of a node share a row.

    width: of the terminal, to which tables are made to fit.
    """
    job = parsed.job
    nodes = count(plan.nnodes, "node")
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
    lines = [part for line in lines for part in reflowed(line, width)]
    rows = [_row(procs) for procs in _folded(plan)]
    rows = rows if len(rows) <= MAX_ROWS else _by_shape(rows)
    shown = rows if len(rows) <= MAX_ROWS else rows[: MAX_ROWS - 1]
    header = ("role", "rank", "local", "node", "host", "port", "devices")
    lines += ["", *fitted([header, *shown], width)]
    if len(rows) > len(shown):
        lines.append(f"... and {len(rows) - len(shown)} more rows; --json shows all")
    inner = None if width is None else width - 2
    table = fitted([*_given_rows(parsed)], inner)
    lines += ["", "values that are not the default:"] if table else []
    lines.extend("  " + line.replace("\n", "\n  ") for line in table)
    hint = "environment of a rank: add --env-of 0 (or server:0, all)"
    return [*lines, "", *reflowed(hint, width)]


def _given_rows(parsed: ParsedLaunch) -> Iterator[tuple[str, str, str]]:
    """(flag or field of the file, value, source) of each value that the user has given."""
    fields: dict[tuple[str, str, str], list[str]] = {}
    for field in FIELDS:
        source = parsed.job.sources.get(field, DEFAULT)
        if source.kind != "default" and field != "command":
            fields.setdefault((source.kind, source.name, source.text), []).append(field)
    flags = {field: spelled(flag.name) for flag in reversed(LAUNCH) for field in flag.fields}
    places = {"flag": "command line", "file": os.path.basename(parsed.file)}
    for (kind, name, text), decided in fields.items():
        value = _shown_value(parsed.job, decided[0]) if len(decided) == 1 else text
        what, where = name, places.get(kind, kind)
        if kind == "environment":
            what = next((flags[field] for field in decided if field in flags), decided[0])
            where = f"environment {name}"
        value = f"{value:g}" if isinstance(value, float) else value
        yield what, _short(text if value in (None, "", ()) else value), where


def _folded(plan: Plan) -> list[list[Proc]]:
    """The processes in order; those of one node and role that differ by number only are together.

    Processes with more than one device each have a row of their own.
    """

    def shape(one: Proc) -> tuple[object, ...]:
        labels = len(one.device_labels)
        first_port = one.port - one.local_rank if one.port else 0
        return (one.role, one.stage, one.node_rank, one.address, one.device_kind, labels,
                one.rank - one.local_rank, first_port, one.rank if labels > 1 else -1)  # fmt: skip

    return [list(alike) for _, alike in groupby(plan.procs, shape)]


def _row(procs: Sequence[Proc]) -> tuple[str, ...]:
    first, last = procs[0], procs[-1]

    def span(begin: int, end: int) -> str:
        return str(begin) if begin == end else f"{begin}-{end}"

    labels = [label for proc in procs for label in proc.device_labels]
    devices = ",".join(labels)
    if len(labels) > 2 and all(label.isdigit() for label in labels):
        numbers = [int(label) for label in labels]
        if numbers == [*range(numbers[0], numbers[-1] + 1)]:
            devices = span(numbers[0], numbers[-1])
    if len(procs) > 1 and labels:
        devices += ", one each"
    return (
        f"{first.role}{f' (stage {first.stage})' if first.role == 'heter' else ''}",
        span(first.rank, last.rank),
        span(first.local_rank, last.local_rank),
        str(first.node_rank),
        first.host if first.host == first.address else f"{first.host} ({first.address})",
        span(first.port, last.port) if first.port else "free",
        f"{first.device_kind} {devices}" if devices else "cpu",
    )


def _by_shape(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows, with those that differ by node and rank only joined into one, first to last."""
    alike: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        alike.setdefault((row[0], row[2], *row[5:]), []).append(row)
    found = []
    for (role, local, *rest), same in alike.items():
        ranks = f"{same[0][1].partition('-')[0]}-{same[-1][1].rpartition('-')[2]}"
        nodes, hosts = f"{same[0][3]}-{same[-1][3]}", f"{same[0][4]} ... {same[-1][4]}"
        found.append((role, ranks, local, nodes, hosts, *rest) if len(same) > 1 else same[0])
    return found


def _environment_lines(plan: Plan, envs: list[dict[str, str]], asked: str) -> list[str]:
    """NAME=value of one process or of all, as a shell takes them. Raises UsageError.

    What the process inherits unchanged is not shown; port 0 is one that is chosen at the start.
    """
    role, _, rank = asked.rpartition(":")
    role = ROLES.get(role, role) or "worker"
    lines = []
    for proc, env in zip(plan.procs, envs, strict=True):
        if asked == "all" or (proc.role, str(proc.rank)) == (role, rank):
            lines += [f"# {proc.name}"] if asked == "all" else []
            lines += [f"{name}={shlex.quote(text)}" for name, text in env.items()]
    if lines:
        return lines
    names = sorted({proc.role for proc in plan.procs})
    ranges = [f"{name}:0 to {name}:{sum(p.role == name for p in plan.procs) - 1}" for name in names]
    raise UsageError(f"--env-of {asked}: there is no such process", hint=", ".join(ranges))


def _shown_value(job: Job, field: str) -> object:
    """The value of a field path; values of --env are not shown."""
    if field == "extra_env":
        return [name for name, _ in job.extra_env]
    if field == "command":
        return " ".join(job.command.argv())
    if field == "servers.command":
        return " ".join(job.command_of("ps").argv())
    return job.value_of(field)


def _short(content: object) -> str:
    if isinstance(content, (tuple, list)):
        content = ",".join(str(c) for c in content)
    text = str(content)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(text)} characters)"
