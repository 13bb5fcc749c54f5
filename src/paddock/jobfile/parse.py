"""Command line and environment -> ParsedLaunch, which has the Job.

The entry is ``parse(argv, env, python=...)``, without I/O: it checks everything that can be checked
without looking at the machine. ``resolved`` completes the job from the files that it names. No
module is loaded here that the launch path would have to pay for.
"""

from __future__ import annotations

import os

from paddock.command_line import nearest, to_seconds
from paddock.core.job import Elastic, Entrypoint, Job, Logs, Restart, Servers, ValueSource
from paddock.core.plan import find_tail_problems
from paddock.core.value import replace, value
from paddock.errors import Problem, UsageError
from paddock.jobfile.args import FieldReader, LaunchArgs, is_set, to_integer
from paddock.jobfile.environment import apply_environment
from paddock.jobfile.flags import BACKENDS, BY_NAME, DEVICE_KIND_OF_ALIAS, LAUNCH, LEVELS
from paddock.jobfile.nodes import (
    decide_nodes,
    decide_rendezvous,
    decide_start_port,
    hosts_of,
    read_ips,
    read_meeting,
    read_mode,
    read_roles,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddock.command_line import FlagTable
    from paddock.jobfile.args import ArgValue

ELASTIC_RESTARTS = 3  # --max-restart of Paddle, where it has an effect
TAIL_WORDS = ("all", "none", "worker", "ps", "heter")
TAIL_ALIASES = {"trainer": "worker", "server": "ps"}
OF_TORCHRUN = ("rdzv_conf", "signals_to_handle", "logs_specs")
STREAM_FLAGS = ("tee", "redirects", "local_ranks_filter")
OMP_WORDS = ("auto", "share", "keep")  # contracts/environment.py
MAX_ENV = 10_000
PYTHON_VARIABLE = "PYTHON_EXEC"  # torch/distributed/run.py, config_from_args
CROWD = 32  # processes on a core that are warned of: they take turns, and memory runs out


@value
class ParsedLaunch:
    """The job of a command line.

    notes: warnings to print once, without prefix. file: the value of -f, "" if absent; with it
    job.command.program may be "" (see paddlejob.resolve_file). is_help: only help is wanted;
    nothing else was read. values, env_args: the named texts behind the job, and every --env.
    """

    job: Job
    notes: tuple[str, ...] = ()
    file: str = ""
    is_help: bool = False
    values: Mapping[str, ArgValue] = {}
    env_args: tuple[str, ...] = ()


def parse(
    argv: Sequence[str], env: Mapping[str, str], *, python: str, table: FlagTable = LAUNCH
) -> ParsedLaunch:
    """Read the arguments after ``paddock launch``.

    python: the interpreter that runs scripts, unless PYTHON_EXEC names another. table: the flags
    of launch, perhaps with others.
    Raises UsageError with every problem found.

    >>> job = parse(["--gpus", "2,3", "train.py", "--batch_size=64"], {}, python="py").job
    >>> job.devices, job.command.argv()
    (('2', '3'), ('py', '-u', 'train.py', '--batch_size=64'))
    """
    words = LaunchArgs(argv, table)
    if words.is_help:
        return ParsedLaunch(Job(Entrypoint("program", "")), is_help=True)
    problems, notes = words.problems, words.notes
    notes.extend(f"{name} is accepted and ignored: {why}" for name, why in words.ignored.items())
    values = words.values
    if not is_set(values, "ignore_env"):
        if env.get(PYTHON_VARIABLE):
            python = env[PYTHON_VARIABLE]
            notes.append(f"from the environment, as in torchrun: {PYTHON_VARIABLE}={python}")
        reading = apply_environment(values, env)
        notes.extend(reading.notes)
        problems.extend(reading.problems)
    reader = FieldReader(values)
    file = reader.text("file")
    command = Entrypoint("program", "", (), python)
    if words.script:
        command = words.command(python)
        reader.sources["command"] = ValueSource("flag", "command line", command.program)
        problems += _command_problems(words)
    elif words.is_whole and not file:
        what = f"write paddock {table.command} [flags] train.py [arguments]"
        problems.append(Problem("no script is given", what))
    job = build_job(reader, command, words.env, cpu_count=usable_cores())
    problems.extend(reader.problems)
    worker = job.role("worker")
    count = len(worker.endpoints) or (worker.count or 0) * job.nnodes_max if worker else 0
    if job.nnodes_min == job.nnodes_max and count:
        problems.extend(find_tail_problems(job, count))
    notes.extend(reader.notes)
    if problems:
        raise UsageError.of(problems)
    return ParsedLaunch(job, tuple(notes), file, values=values, env_args=tuple(words.env))


def resolved(parsed: ParsedLaunch) -> ParsedLaunch:
    """Complete the job from files: its hosts, a job file, the script, the servers' command."""
    if not parsed.file and any(word.startswith("--") for word in parsed.job.command.args):
        from paddock.jobfile.misplaced import misplaced_note

        parsed = replace(parsed, notes=(*parsed.notes, *misplaced_note(parsed.job.command)))
    if parsed.job.rendezvous.hostfile:
        from paddock.jobfile.dialects.allocation import resolve_hosts

        parsed = replace(parsed, job=resolve_hosts(parsed.job))
    if parsed.file:
        from paddock.jobfile.dialects.paddlejob import resolve_file

        parsed = resolve_file(parsed)
    job = parsed.job
    if job.role("ps") is not None:
        from paddock.jobfile.servers import decide_servers

        job = decide_servers(job)
    return replace(parsed, job=job, notes=(*parsed.notes, *crowd_note(job, usable_cores())))


def _command_problems(words: LaunchArgs) -> list[Problem]:
    if is_set(words.values, "run_path"):
        return []
    found = []
    is_module = is_set(words.values, "module")
    if is_module and is_set(words.values, "no_python"):
        found.append(Problem("-m and --no-python exclude each other", "leave one of them out"))
    if words.script == "run_check" and not is_module:
        hint = "run paddock check --framework paddle"
        found.append(Problem("the built-in script run_check is gone", hint))
    return found


def usable_cores() -> int:
    """Cores this process may use; torchrun counts them the same way (torch._utils.cpu_count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def crowd_note(job: Job, cores: int) -> tuple[str, ...]:
    """A warning about so many processes to a core that the number looks like a mistake.

    >>> from paddock.core.job import Role
    >>> job = Job(Entrypoint("program", "a"), roles=(Role("worker", 500),))
    >>> crowd_note(job, 2)[0]
    '500 processes on 2 cores, 250 on each: was it meant? --nproc-per-node N says how many'
    >>> crowd_note(job, 64)
    ()
    """
    number = sum(role.count or 0 for role in job.roles)
    if number <= CROWD * cores:
        return ()
    source = job.sources.get("roles.worker.count")
    flag = source.name if source is not None and source.name else "--nproc-per-node"
    on = f"{number} processes on {cores} core{'s' * (cores != 1)}, {number // cores} on each"
    return (f"{on}: was it meant? {flag} N says how many",)


def build_job(
    reader: FieldReader,
    command: Entrypoint,
    extra_env: Sequence[str],
    *,
    cpu_count: int,
) -> Job:
    """The Job of these values; problems and notes are left in the reader.

    command: may have an empty program when a file will name it.
    """
    devices, device_kind = _read_devices(reader)
    if any(reader.has(name) for name in OF_TORCHRUN):
        from paddock.jobfile.dialects import torchrun  # only for those who use the flags

        torchrun.apply_rdzv_conf(reader)
        torchrun.check_others(reader)
    mode = read_mode(reader)
    roles, asked_kind = read_roles(reader, mode, cpu_count, devices)
    servers = Servers()
    if reader.has("server_script") or reader.has("server_restarts"):
        from paddock.jobfile.servers import read_servers  # only for those who use the flags

        servers = read_servers(reader, mode, command)
    if asked_kind and device_kind not in ("", asked_kind):
        reader.fault("nproc_per_node", f"but {reader.label('devices')}", "leave one of them out")
    meeting = read_meeting(reader)
    ips = read_ips(reader)
    nnodes = decide_nodes(reader, meeting[1], ips, hosts_of(roles))
    elastic = _read_elastic(reader, nnodes, by=meeting[1])
    rendezvous = decide_rendezvous(
        reader, meeting, ips, roles, nnodes, is_elastic=elastic.level >= 0
    )
    is_elastic = nnodes[0] != nnodes[1] or elastic.level >= 0 or rendezvous.kind == "etcd"
    # The part of the host's devices, from an allocation: its numbers were checked before.
    part, _, parts = reader.text("host_part", "0/1").partition("/")
    job = Job(
        command=command,
        job_id=_read_job_id(reader),
        mode=mode,
        nnodes_min=nnodes[0],
        nnodes_max=nnodes[1],
        roles=roles,
        servers=servers,
        devices=devices,
        device_kind=device_kind or asked_kind,
        host_part=(int(part), int(parts)),
        rendezvous=rendezvous,
        elastic=elastic,
        restart=_read_restart(reader, is_elastic=is_elastic),
        logs=_read_logs(reader),
        start_port=decide_start_port(reader, meeting[0], ips),
        port_range=_read_port_range(reader),
        fixed_port=reader.port("fixed_port"),
        metrics_port=reader.integer("metrics_port", 0, 65535),
        omp_num_threads=_read_omp(reader),
        extra_env=_read_extra_env(reader, extra_env),
        sources=reader.sources,
    )
    job = _with_plain(reader, job)
    if job.on_stall != "report" and not job.stall_after_seconds:
        reader.fault("on_stall", "but --stall-after 0 looks for no stalls", "leave one of them out")
    if job.on_stall == "restart" and not job.restart.max_restarts:
        reader.fault("on_stall", "no restart is allowed", "add --max-restart 3")
    if rendezvous.kind == "alone":
        for field in ("rendezvous.kind", "rendezvous.host", "rendezvous.port"):
            reader.sources.pop(field, None)
    return job


def _with_plain(reader: FieldReader, job: Job) -> Job:
    """The job with every field that is what the text of a flag says (Flag.is_plain)."""
    found: dict[str, dict[str, Any]] = {"": {}}  # of the types that Job has
    for name in reader.values:
        flag = BY_NAME.get(name)
        if flag is None or not flag.is_plain or (value := reader.plain(flag)) in ("", None):
            continue
        part, _, field = flag.field.rpartition(".")
        found.setdefault(part, {})[field] = value
    own = found.pop("")
    parts = {part: replace(getattr(job, part), **fields) for part, fields in found.items()}
    return replace(job, **own, **parts)


def _read_devices(reader: FieldReader) -> tuple[tuple[str, ...] | None, str]:
    """Chosen labels (None: every visible device) and the kind an alias tells."""
    if not reader.has("devices"):
        return None, ""
    name = reader.source("devices").name.lstrip("-")
    kind = DEVICE_KIND_OF_ALIAS.get(name, "")
    if kind:
        reader.note_source("devices", "device_kind")
    labels = reader.items("devices")
    if labels == ("all",):
        return None, kind
    if labels in (("cpu",), ("none",)):
        reader.note_source("devices", "device_kind")
        return None, "cpu"
    for label in dict.fromkeys(x for x in labels if labels.count(x) > 1):
        reader.fault("devices", f"device {label} is named twice", "name every device once")
    for label in labels:
        if any(c.isspace() or c == ";" for c in label) or label.startswith("-"):
            reader.fault("devices", f"'{label}' is not a device", "write labels such as 0,1,2,3")
    return labels, kind


def _read_job_id(reader: FieldReader) -> str:
    job_id = reader.text("job_id", Job.job_id)
    # It becomes part of file names and of keys in etcd.
    if any(c in "/\\" or not c.isprintable() or c.isspace() for c in job_id):
        reader.fault("job_id", "blanks, slashes and control characters are not allowed")
    elif len(job_id) > 200 or job_id in (".", ".."):
        reader.fault("job_id", "not usable as a name", "write a name of at most 200 characters")
    return job_id


def _read_elastic(reader: FieldReader, nnodes: tuple[int, int], *, by: str) -> Elastic:
    level = reader.integer("elastic_level", -1, 1)
    if level is None:
        # Paddle's default of -1 makes every change of membership end the job, as was measured.
        level = 1 if nnodes[0] != nnodes[1] or by == "elastic_server" else -1
    if level == -1 and nnodes[0] != nnodes[1]:
        reader.notes.append(
            f"{reader.label('elastic_level')}: elasticity is off although the number of nodes is "
            f"a range; the job ends when a node joins or leaves"
        )
    wanted = reader.integer("nnodes_wanted", 0) or 0
    if wanted:
        wanted = min(max(wanted, nnodes[0]), nnodes[1])
    return Elastic(level, wanted=wanted)


def _read_restart(reader: FieldReader, *, is_elastic: bool) -> Restart:
    default = ELASTIC_RESTARTS if is_elastic else 0
    count = reader.integer("max_restart", 0)
    initial, longest = 1.0, 60.0
    if reader.has("restart_backoff"):
        first, colon, last = reader.text("restart_backoff").partition(":")
        low = to_seconds(first)
        high = to_seconds(last) if colon else None
        if low is None or (colon and high is None):
            reader.fault("restart_backoff", "not DURATION[:MAX]", "write for example 1:60")
        else:
            initial, longest = low, high if high is not None else max(low, longest)
        if longest < initial:
            reader.fault("restart_backoff", "the maximum is below the first pause")
    causes = tuple(c.lower() for c in reader.items("restart_on"))
    for cause in causes:
        from paddock.core.attempt.policy import restart_words  # only for those who use the flag

        known = restart_words()
        code = to_integer(cause)
        if code is not None and not 1 <= code <= 255:
            reader.fault("restart_on", f"exit code {code} is not in 1..255")
        elif code is None and cause not in known:
            reader.fault("restart_on", f"unknown cause '{cause}'", nearest(cause, known))
    return Restart(
        max_restarts=default if count is None else count,
        backoff_initial_seconds=initial,
        backoff_max_seconds=longest,
        restart_on=() if "any" in causes else causes,
    )


def _read_logs(reader: FieldReader) -> Logs:
    given = reader.values.get("log_dir")
    if given is not None and not given.text.strip():
        reader.fault("log_dir", "empty", "write --log-dir log")
    is_quiet = reader.boolean("quiet")
    level = reader.choice("log_level", (*LEVELS, "WARN"), "ERROR" if is_quiet else "INFO")
    streams: tuple[tuple[int, int], ...] = ()
    if any(reader.has(name) for name in STREAM_FLAGS):
        from paddock.jobfile.dialects.torchrun import read_streams  # only for those who use them

        streams = read_streams(reader)
    return Logs(
        directory=reader.text("log_dir", "log"),
        level="WARNING" if level == "WARN" else level,
        tail=_read_tail(reader),
        streams=streams,
        line_prefix=reader.take("log_line_prefix_template"),  # a blank at its end is meant
    )


def _read_tail(reader: FieldReader) -> tuple[str, ...]:
    if not reader.has("tail"):
        for name in (n for n in STREAM_FLAGS if reader.has(n)):
            reader.note_source(name, "logs.tail")
            return ("all",)  # of torchrun's users, who say which of all they do not want
        return ("0",)
    words = tuple(TAIL_ALIASES.get(w.lower(), w.lower()) for w in reader.items("tail"))
    for word in words:
        if word not in TAIL_WORDS and not (word.isascii() and word.isdigit()):
            reader.fault("tail", f"'{word}' is neither a rank nor a role",
                         nearest(word, TAIL_WORDS, "write all, none, 0,3 or worker"))  # fmt: skip
    if len(words) > 1 and ("all" in words or "none" in words):
        reader.fault("tail", "all and none stand alone")
    return () if words == ("none",) else words


def _read_port_range(reader: FieldReader) -> tuple[int, int] | None:
    if not reader.has("port_range"):
        return None
    low_text, colon, high_text = reader.text("port_range").partition(":")
    low, high = to_integer(low_text), to_integer(high_text)
    if not colon or low is None or high is None or not 0 < low <= high < 65536:
        reader.fault("port_range", "not FIRST:LAST", "write for example PORT_RANGE=35100:64000")
        return None
    return low, high


def _read_omp(reader: FieldReader) -> str:
    word = reader.text("omp_num_threads", "auto").lower()
    count = to_integer(word)
    if word in OMP_WORDS or (count is not None and 1 <= count <= 4096):
        return word
    reader.fault("omp_num_threads", "not a number of threads", "write N, auto, share or keep")
    return "auto"


def _read_extra_env(reader: FieldReader, words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """--env KEY=VALUE, later ones win; --backend is one of them under another name."""
    found: dict[str, str] = {}
    config = reader.text("auto_parallel_config")
    if config:
        # distributed/launch/controllers/collective.py of paddlepaddle 3.3.1.
        found = {"PADDLE_AUTO_PARALLEL_CONFIG": config, "PADDLE_AUTO_PARALLEL_STAGE": "run"}
        reader.notes.append(
            f"{reader.label('auto_parallel_config')}: the processes get it; the tuner, which "
            "Paddle's launcher runs before them (tuner_run_mode), is not run"
        )
    place = f"where the job runs: paddock submit -b {reader.text('backend')}"
    hint = f"choose what the ranks communicate with ({', '.join(BACKENDS)}); {place}"
    backend = reader.choice("backend", BACKENDS, "auto", hint)
    if backend != "auto":
        found["PADDLE_DISTRI_BACKEND"] = backend
    reader.note_source("env")
    if len(words) > MAX_ENV:
        reader.problems.append(Problem(f"--env is given {len(words)} times, at most {MAX_ENV}"))
    for word in words[:MAX_ENV]:
        key, equals, text = word.partition("=")
        if not equals:
            hint = f'write --env {key}="${key}" to pass on a variable of this shell'
            reader.problems.append(Problem(f"--env {key}: there is no '='", hint))
        elif not key or not key.isprintable() or " " in key:
            reader.problems.append(Problem(f"--env: '{key}' is not a variable name"))
        elif "\0" in text:
            reader.problems.append(Problem(f"--env {key}: a zero byte is not allowed"))
        else:
            found[key] = text
    return tuple(found.items())
