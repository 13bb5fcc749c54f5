"""``paddock check``: a real all-reduce on two processes here, through ``paddock launch``.

Each framework gets a job of its own, started as a user would start it; what its ranks run is in
``checks/``. This process imports no framework and never waits without a limit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from paddock.cli.family import JSON, CliCommand, ParsedCommand, named
from paddock.cli.launch import has_pidfd
from paddock.cli.main import COMMANDS as NAMES
from paddock.cli.version import FRAMEWORKS, installed
from paddock.command_line import flag
from paddock.core.value import fields_of, value
from paddock.errors import EXIT_DEADLINE, UsageError
from paddock.local.runs.record import TERMINATION_LOG

CHECKED = ("paddle", "torch", "jax")
PROCESSES = 2
# Importing a framework takes seconds, a minute on a cold network file system.
JOB_SECONDS = 180
END_SECONDS = 30
MARK = "paddock-check "  # what rank 0 writes before its findings; see checks/
CAUSE_CHARACTERS = 300
RECORD, REASON = ".paddock", "reason"  # the first as jobdir.INNER, whose module needs Linux


@value
class Finding:
    """The result of one framework's check. status: "ok", "failed" or "not installed"."""

    framework: str
    status: str
    version: str = ""
    seconds: float = 0.0
    device: str = ""
    backend: str = ""
    cause: str = ""
    log_dir: str = ""


def _run(args: ParsedCommand) -> int:
    """Check the frameworks asked for, or all that are installed; 0 when all are ok."""
    asked, is_json = args.framework, args.json
    findings = []
    for framework in [asked] if asked else CHECKED:
        finding = check(framework)
        findings.append(finding)
        if not is_json:
            for line in as_lines(finding):
                print(line, flush=True)
    if is_json:
        print(json.dumps({"checks": [dict(fields_of(f)) for f in findings]}, indent=2))
    wanted = findings if asked else [f for f in findings if f.status != "not installed"]
    if not wanted and not is_json:
        print("nothing to check: install paddlepaddle, torch or jax beside paddock")
    return 0 if wanted and all(f.status == "ok" for f in wanted) else 1


def as_lines(finding: Finding) -> list[str]:
    """The finding in one line for people; a second one has the log directory of a failure."""
    name = f"{finding.framework} {finding.version}".strip()
    if finding.status == "not installed":
        return [f"{name}: not installed"]
    if finding.status == "ok":
        return [
            f"{name}: ok in {finding.seconds:.1f} s "
            f"({PROCESSES} processes on {finding.device}, {finding.backend})"
        ]
    lines = [f"{name}: failed after {finding.seconds:.1f} s: {finding.cause}"]
    return [*lines, f"  logs: {finding.log_dir}"] if finding.log_dir else lines


def check(framework: str) -> Finding:
    """Run the job of one framework and tell how it ended. Logs of a failure are kept."""
    if find_spec(framework) is None:
        return Finding(framework, "not installed")
    version = installed(FRAMEWORKS[framework]) or ""
    folder = tempfile.mkdtemp(prefix=f"paddock-check-{framework}-")
    log_dir = os.path.join(folder, "log")
    os.mkdir(os.path.join(folder, RECORD))
    Path(folder, REASON).touch()  # a launcher writes to one that exists
    started = monotonic()
    code, out = _launch(framework, folder, log_dir)
    seconds = round(monotonic() - started, 3)
    found = parse_result(out)
    if code == 0 and found is not None:
        shutil.rmtree(folder, ignore_errors=True)
        device, backend = found
        return Finding(framework, "ok", version, seconds, device, backend)
    cause = cause_of(code, folder)
    return Finding(framework, "failed", version, seconds, cause=cause, log_dir=log_dir)


def _launch(framework: str, folder: str, log_dir: str) -> tuple[int, str]:
    """Launch the job; returns its exit code and stdout."""
    kind = device_kind()
    script = os.path.join(os.path.dirname(__file__), "checks", f"all_reduce_{framework}.py")
    command = [
        *(sys.executable, "-m", "paddock", "launch", "--ignore-env"),  # not another job's settings
        # cause_of reads it; elsewhere there is none, and the launcher's reason has to do.
        *(["--record", os.path.join(folder, RECORD)] if has_pidfd() else []),
        *("--nproc-per-node", str(PROCESSES), "--framework", framework),
        *("--job-id", f"check-{framework}", "--log-dir", log_dir, "--log-level", "ERROR"),
        *("--timeout", str(JOB_SECONDS), "--grace", "2s"),
        *(["--devices", "cpu"] if kind == "cpu" else []),
        *(script, kind),
    ]
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = [source, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    try:
        done = subprocess.run(
            command,
            cwd=folder,  # nothing of where the user stands is imported by accident
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path),
                TERMINATION_LOG: os.path.join(folder, REASON),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=JOB_SECONDS + END_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return EXIT_DEADLINE, ""
    return done.returncode, done.stdout.decode("utf-8", "replace")


def device_kind() -> str:
    """The kind of device that each of the two processes gets; "cpu" if there are not two."""
    from paddock.core.job import Entrypoint, Job
    from paddock.local.facts.devices import find_devices

    try:
        found = find_devices(Job(Entrypoint("program", "")), os.environ)
    except UsageError:
        return "cpu"
    return found.kind if len(found.labels) >= PROCESSES else "cpu"


def parse_result(out: str) -> tuple[str, str] | None:
    """The device and backend that rank 0 wrote; None when it did not get that far.

    >>> parse_result("some warning\\npaddock-check cpu gloo\\n")
    ('cpu', 'gloo')
    """
    for line in out.splitlines():
        if line.startswith(MARK):
            device, _, backend = line[len(MARK) :].partition(" ")
            return device, backend
    return None


def cause_of(code: int, folder: str) -> str:
    """The cause in one line: the verdict of the job's record."""
    if code == EXIT_DEADLINE:
        return f"not finished after {JOB_SECONDS} s"
    if code == 0:
        return "its ranks ended without a result"
    if not has_pidfd():
        reason = Path(folder, REASON).read_text("utf-8", "replace").strip()
        return (reason or f"exit code {code}")[:CAUSE_CHARACTERS]
    from paddock.backends.node.jobdir import inner, last_error, read_json

    verdict = read_json(inner(folder, "verdict.json"))
    if verdict is None:
        return last_error(folder) or f"exit code {code}"
    return str(verdict["text"])[:CAUSE_CHARACTERS]


COMMANDS = named(
    CliCommand(
        "check",
        NAMES["check"],
        (flag("framework", "", "with this one [each installed one]", choices=CHECKED), JSON),
        _run,
        notes="On two devices where there are as many, else on the CPU. 0 if all are ok.",
    )
)
