"""Submission -> the command line of mpirun, and the files written for it. Pure."""

from __future__ import annotations

import math
import shlex
import zlib
from collections.abc import Sequence

from paddock.backends.common.planned import bad_names, job_text, making, rows_of
from paddock.backends.flags import foreign
from paddock.backends.mpi.command import (
    GATE,
    REASONS,
    SHELL,
    START,
    STOP_MARGIN_SECONDS,
    Mpirun,
    hostfile_text,
    mpirun_rows,
    ssh_args_of,
)
from paddock.backends.node.jobdir import INNER
from paddock.backends.sites.hostfile import HostLine, hosts_of
from paddock.backends.types import PlanStep, Submission, SubmissionPlan
from paddock.core.endpoint import join_endpoint
from paddock.errors import Problem, refuse

SCRIPT = f"{INNER}/mpirun.sh"
START_FILE = f"{INNER}/start.sh"
PORTS = (20_000, 10_000)  # first, count: below those that Linux gives away (32768)
OF_SERVERS = ("--server_num", "--servers", "--trainers", "--trainer_num", "--worker_num")


def plan_of(
    submission: Submission,
    mpirun: Mpirun,
    folder: str,
    cwd: str,
    *,
    is_root: bool = False,
    is_allocated: bool = False,
) -> SubmissionPlan:
    """Return the plan of a submission. Raises UsageError with every problem.

    folder: the job's directory. cwd: the working directory of ranks. Without hosts mpirun takes
    those of its allocation (is_allocated), or this machine.
    """
    site, job = submission.site, submission.job
    problems: list[str] = []
    hosts = hosts_of(site)[: job.nnodes_max]
    count = job.nnodes_max
    if job.nnodes_min != job.nnodes_max:
        problems.append("mpirun starts a fixed number of launchers: write -n N")
    if hosts and count > len(hosts):
        problems.append(f"-n {count} is more than the {len(hosts)} hosts of {site.name}")
    ssh_args = ssh_args_of(hosts, site.text("ssh_config"), problems)
    hostfile = f"{folder}/{INNER}/hostfile" if hosts else ""
    names = [name for name, _ in submission.env]
    words = [*_own_words(submission, hosts, folder, problems), *_user_words(submission, folder)]
    python = site.text("interpreter") or "python3"
    start = f"{folder}/{START_FILE}"
    rows = mpirun_rows(
        mpirun, hostfile, count, variables=names, ssh_args=ssh_args, nic=site.text("nic"),
        is_root=is_root, more=_more(submission),
    )  # fmt: skip
    rows.append((("sh", "-c", GATE), "says so where the hosts share nothing"))
    rows.append(((start, cwd, python, f"{folder}/log"), "working directory, Python, logs"))
    rows.append((tuple(words), "words of paddock launch"))
    refuse([*map(Problem, problems), *bad_names(submission)])
    lines = [shlex.join(group) for group, _ in rows]
    seconds = str(math.ceil(job.grace_seconds) + STOP_MARGIN_SECONDS)
    shell = SHELL.replace("SECONDS", seconds, 1).replace("MPIRUN", " \\\n  ".join(lines), 1)
    files = {f"{folder}/{SCRIPT}": shell}
    files[start] = START
    files[f"{folder}/{INNER}/job.json"] = job_text(submission)
    why = dict(REASONS)
    for at, (line, (_, reason)) in enumerate(zip(lines, rows, strict=True), 1):
        text = f"{line} \\" if at < len(lines) else f"{line} &"
        why |= {text.splitlines()[-1].strip(): reason} if reason else {}
    if hosts:
        text = hostfile_text(mpirun, hosts)
        files[hostfile] = text
        why |= dict.fromkeys(text.splitlines(), site.sources.get("hosts", "hosts of the site"))
    if submission.file:
        files[f"{folder}/{INNER}/launch.json"] = submission.file
    what = making(submission, folder, "the launcher")
    steps = (
        PlanStep("here", f"{what}; the hosts must see it"),
        PlanStep("here", "start", tuple(word for group, _ in rows for word in group)),
    )
    targets = [host.target for host in hosts] or ["chosen by mpirun"] * count
    devices = ",".join(job.devices or ()) or "found there"
    cannot = foreign("mpi", submission.extra)
    if not (hosts or is_allocated):
        cannot += ("no hosts are named, so that all runs on this machine: --hosts, --hostfile",)
    return SubmissionPlan(rows_of(submission, targets, devices), steps, files, cannot, why)


def port_of(run_id: str) -> int:
    """Return the rendezvous port of the launchers: another one for each job.

    >>> PORTS[0] <= port_of("train-3f2a") < sum(PORTS)
    True
    """
    return PORTS[0] + zlib.crc32(run_id.encode()) % PORTS[1]


def _own_words(
    submission: Submission, hosts: Sequence[HostLine], folder: str, problems: list[str]
) -> list[str]:
    site, job = submission.site, submission.job
    words = ["--nnodes", str(job.nnodes_max)]
    if hosts or job.nnodes_max == 1:
        words.append("--ignore_env")  # everything is said here
    if len(hosts) > 1 and job.nnodes_max > 1:
        port = int(site.text("port_base", "0") or 0) or port_of(submission.run_id)
        words += ["--master", join_endpoint(hosts[0].reached_at, port)]
    words += ["--job_id", submission.run_id, "--log_dir", f"{folder}/log/{{node}}"]
    words += ["--record", f"{folder}/{INNER}"]
    if submission.is_detached:
        words += ["--tail", "none"]  # the console is not watched: paddock logs has it all
    if site.text("ports"):
        words += ["--start_port", site.text("ports")]
    for name, text in site.table("paddle_init").items():
        words += ["--env", f"PADDLE_INIT_{name}={text}"]
    return words + _servers(submission, hosts, problems)


def _servers(submission: Submission, hosts: Sequence[HostLine], problems: list[str]) -> list[str]:
    """Return the flags of --servers_on: its hosts run servers only, the others trainers only.

    even: hosts 0, 2, 4, ... as PaddleRec's mpirun had it.
    """
    wish = submission.extra.get("servers_on", "")
    if not wish:
        return []
    if any(flag.partition("=")[0].replace("-", "_").replace("__", "--", 1) in OF_SERVERS
           for flag in submission.flags):  # fmt: skip
        problems.append("--servers_on names the servers: leave out --servers, --server_num, ...")
    names = [host.target for host in hosts]
    chosen = names[::2] if wish == "even" else [each.strip() for each in wish.split(",")]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        problems.append(f"--servers_on {', '.join(unknown)}: not among the hosts")
    if not hosts or len(chosen) == len(names):
        problems.append("--servers_on leaves no host for trainers")
    port = submission.site.text("ports") or str(port_of(submission.run_id) + 1)
    servers = [join_endpoint(h.reached_at, port) for h in hosts if h.target in chosen]
    trainers = [join_endpoint(h.reached_at, port) for h in hosts if h.target not in chosen]
    return ["--servers", ",".join(servers), "--trainers", ",".join(trainers)]


def _user_words(submission: Submission, folder: str) -> list[str]:
    file = ["-f", f"{folder}/{INNER}/launch.json"] if submission.file else []
    return [*submission.flags, *(file or submission.script)]


def _more(submission: Submission) -> tuple[str, ...]:
    found = submission.site.options.get("mpirun_args", ())
    if isinstance(found, str):
        return tuple(shlex.split(found))
    assert isinstance(found, (list, tuple))
    return tuple(str(each) for each in found)
