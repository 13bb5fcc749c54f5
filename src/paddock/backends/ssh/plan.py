"""Submission -> requests to each host. Pure; values that only the hosts know stand as $NAME.

$ADDRESS_0   the address of host 0 for the others: its address in the site, else the one that
             the submitter's connection came to
$PORT_0      a port that was free there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paddock.backends.common.planned import rows_of
from paddock.backends.flags import foreign
from paddock.backends.sites.hostfile import hosts_of
from paddock.backends.ssh.command import CONNECT_SECONDS, Target
from paddock.backends.types import DEFAULT_ROOT, PlanStep, Site, Submission, SubmissionPlan
from paddock.core.endpoint import join_endpoint
from paddock.errors import Problem, UsageError, refuse

ADDRESS, PORT = "$ADDRESS_0", "$PORT_0"
JOB_FILE = "$JOB/.paddock/launch.json"  # content of the -f file


def targets_of(site: Site) -> tuple[Target, ...]:
    """Return the hosts of a site, in order. Raises UsageError for a host listed twice."""
    found = []
    for host in hosts_of(site):
        found.append(
            Target(
                host.target,
                user=host.user,
                port=host.port,
                address=host.address,
                slots=host.slots,
                identity=site.text("identity"),
                config=site.text("ssh_config"),
                python=site.text("interpreter"),
                connect_seconds=int(site.text("connect_timeout", str(CONNECT_SECONDS))),
            )
        )
    names = [(target.login, target.port) for target in found]
    twice = dict.fromkeys(login for login, port in names if names.count((login, port)) > 1)
    refuse([Problem(f"host {name} is named twice") for name in twice])
    return tuple(found)


def chosen(submission: Submission, targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return the job's hosts, the first of the site's. Raises UsageError for too few."""
    job = submission.job
    if job.nnodes_min > len(targets):
        raise UsageError(
            f"the job needs {job.nnodes_min} nodes, and site '{submission.site.name}' has "
            f"{len(targets)} host{'s' * (len(targets) != 1)}",
            hint=f"write -n {len(targets)}, or name more hosts",
        )
    return tuple(replace(t, has_ps=submission.has_ps) for t in targets[: job.nnodes_max])


def root_of(site: Site) -> str:
    """Return the directory on every host that holds the jobs' directories."""
    return site.text("root") or DEFAULT_ROOT


def launch_args(submission: Submission, targets: Sequence[Target], index: int) -> tuple[str, ...]:
    """Return our own arguments of `paddock launch` on one host, before the user's."""
    job = submission.job
    words: list[str] = []
    if len(targets) > 1:
        words += ["--nnodes", submission.nnodes]
        words += ["--rank", str(index)] if job.nnodes_min == job.nnodes_max else []
        words += ["--master", join_endpoint(targets[0].address or ADDRESS, PORT)]
        words += ["--host", targets[index].address or f"$ADDRESS_{index}"]
    else:
        words += ["--nnodes", "1"]
    if counts := _counts(submission, targets):
        words += ["--nproc_per_node", str(counts[index])] if counts[index] else []
        words += ["--allow_uneven"] if len(set(counts)) > 1 else []
    words += ["--job_id", submission.run_id, "--log_dir", "$JOB/log", "--record", "$JOB/.paddock"]
    return (*words, *(("-f", JOB_FILE) if submission.file else ()))


def _counts(submission: Submission, targets: Sequence[Target]) -> tuple[int, ...]:
    """Return the processes that a host file wants on each host; () if the job says how many."""
    job = submission.job
    is_free = [(role.name, role.count) for role in job.roles] == [("worker", None)]
    is_free = is_free and not submission.file and job.devices in (None, ("cpu",))
    counts = tuple(target.slots for target in targets)
    return counts if is_free and any(counts) else ()


def user_args(submission: Submission) -> tuple[str, ...]:
    """Return the user's arguments after ours: launch flags, the script and its arguments."""
    return (*submission.flags, *(() if submission.file else submission.script))


def plan_of(submission: Submission, targets: Sequence[Target]) -> SubmissionPlan:
    """Return the plan of a submission."""
    targets = chosen(submission, targets)
    devices = ",".join(submission.job.devices or ()) or submission.job.device_kind or "found there"
    rows = rows_of(submission, [target.login for target in targets], devices)
    counts = _counts(submission, targets) or (0,) * len(targets)
    rows = tuple((n, h, str(c or p), d) for (n, h, p, d), c in zip(rows, counts, strict=True))
    directory = f"{root_of(submission.site)}/{submission.run_id}"
    steps = []
    for target in targets:
        what = f"make {directory}"
        if submission.package:
            what += f", and what is in {submission.package} in it"
        if target.has_ps:
            what += "; numpy is asked for: paddock.ps goes with the launcher"
        steps.append(PlanStep(target.login, what))
    for index, target in enumerate(targets):
        words = (*launch_args(submission, targets, index), *user_args(submission))
        where = submission.workspace or directory
        python = target.python or "python3"
        steps.append(PlanStep(target.login, f"in {where}", (python, "$PADDOCK", "launch", *words)))
    return SubmissionPlan(
        rows, tuple(steps), cannot=foreign(submission.site.backend, submission.extra)
    )


def filled(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Fill in the values that hosts have told; longer names first: $PORT_1 is not in $PORT_10.

    >>> filled(["--master", "$ADDRESS_0:$PORT_0"], {"ADDRESS_0": "h", "PORT_0": "1"})
    ['--master', 'h:1']
    """
    found = []
    for word in words:
        for name in sorted(known, key=len, reverse=True):
            word = word.replace(f"${name}", known[name])
        found.append(word)
    return found
