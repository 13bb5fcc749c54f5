"""The launcher's lines, as the users' documents show them. Pure but for the time of day."""

from __future__ import annotations

import time

from paddock.core.attempt.exits import NOT_STARTED, SIGNAL_NAMES, own_failures
from paddock.errors import EXIT_SIGNAL_BASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.core.plan import Plan

LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50}
RULE_WIDTH = 80
UNREAD = "could not be read in time"
ABSENT_MAX = 4  # told with their last lines
FIRST_FAILURE = "first failure: "  # before the root cause


def launch_line(level: str, message: str) -> str:
    """ "LAUNCH INFO 2022-05-18 11:53:09,773 message", as Paddle's launcher writes it."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"LAUNCH {level} {stamp},{int(now * 1000) % 1000:03d} {message}\n"


def configuration_lines(shown: Sequence[tuple[str, str]]) -> list[str]:
    """The block users compare their settings with."""
    return [
        "-----------  Configuration  ----------------------",
        *(f"{name}: {text}" for name, text in shown),
        "-" * 50,
    ]


def job_line(plan: Plan, is_elastic: bool) -> str:
    """ "Job: default, mode collective, replicas 1[1:1], elastic False"."""
    return (
        f"Job: {plan.job_id}, mode {plan.mode}, "
        f"replicas {plan.nnodes}[{plan.nnodes_min}:{plan.nnodes_max}], elastic {is_elastic}"
    )


def servers_lines(plan: Plan) -> list[str]:
    """The commands that ask Paddock's own servers; none for a job without servers."""
    endpoints = ",".join(proc.endpoint for proc in plan.of_role("ps"))
    return [f"servers: paddock ps status --endpoints {endpoints}"] if endpoints else []


def copy_block(command: str) -> str:
    """The command line for the other nodes."""
    rule = "-" * RULE_WIDTH
    return f"Copy the following command to other nodes to run.\n{rule}\n{command}\n{rule}\n"


def verdict_lines(
    verdict: Verdict, plan: Plan | None, stopped_by: str = ""
) -> list[tuple[str, str]]:
    """(level, text) lines of the final report; the same facts on every node."""
    warnings = [("WARNING", text) for text in verdict.warnings]
    return [*warnings, *_end_lines(verdict, plan, stopped_by)]


def _end_lines(verdict: Verdict, plan: Plan | None, stopped_by: str) -> list[tuple[str, str]]:
    if verdict.kind == "succeed":
        lines = [("INFO", "Pod completed")]
        if verdict.restarts:
            lines.append(("INFO", f"job finished after {count(verdict.restarts, 'restart')}"))
        return [*lines, ("INFO", "Exit code 0")]
    if verdict.kind == "cancel":
        return [
            ("WARNING", cancel_text(verdict, stopped_by)),
            ("INFO", f"Exit code {verdict.exit_code}"),
        ]
    return _failure_lines(verdict, plan)


def cancel_text(
    verdict: Verdict, stopped_by: str = "", *, is_terminal: bool = False, is_alone: bool = False
) -> str:
    """ "stopped by SIGTERM (node a was told to stop); SIGTERM ended 2 ranks".

    stopped_by: what told this launcher, if no signal did. is_alone: on one node, which needs no
    name.
    """
    number = verdict.exit_code - EXIT_SIGNAL_BASE
    by = stopped_by or SIGNAL_NAMES.get(number, f"signal {number}")
    by = "Ctrl-C" if number == 2 and is_terminal else by
    who = "" if is_alone or not verdict.reason else f" ({verdict.reason})"
    ranks = [e for e in verdict.exits if e.role != "ps" and e.rank >= 0]
    bad = sum(not e.ok for e in ranks)
    ends, usual = [], 0
    for asked in dict.fromkeys((number, 15)):  # no handler
        ended = sum(e.by_us and e.exit_code == EXIT_SIGNAL_BASE + asked for e in ranks)
        usual += ended
        ends += [f"{SIGNAL_NAMES.get(asked)} ended {count(ended, 'rank')}"] if ended else []
    ends += [f"{count(bad - usual, 'rank')} did not exit cleanly"] if bad > usual else []
    end = "; ".join(ends) or ("all ranks exited cleanly" if ranks else "no rank was running")
    if verdict.job_continues:
        return f"this node left after {by}{who}, the job continues without it; {end}"
    return f"stopped by {by}{who}; {end}"


def _failure_lines(verdict: Verdict, plan: Plan | None) -> list[tuple[str, str]]:
    culprit = verdict.culprit
    lines = [("INFO", "Pod failed")]
    if culprit is None:
        if verdict.reason:
            lines.append(("ERROR", verdict.reason))
        return [*lines, ("INFO", f"Exit code {verdict.exit_code}")]
    lines.append(("ERROR", FIRST_FAILURE + verdict_text(verdict)))
    lines += detail_lines(culprit)
    consequences = consequence_text(verdict.exits, culprit)
    if consequences:
        lines.append(("INFO", consequences))
    failed = [culprit, *followers(verdict.exits, culprit)]
    aborted = list(dict.fromkeys(e.rank for e in failed if e.role == "worker"))
    if plan is not None and aborted:
        ranks = ",".join(str(r) for r in aborted)
        # The line of the users' documents; its quotes are part of it there, not here.
        lines.append(
            (
                "ERROR",
                f"ABORT!!! Out of all {plan.world_size} trainers, the trainer process with "
                f"rank=[{ranks}] was aborted. Please check its log.",
            )
        )
    return [*lines, ("INFO", f"Exit code {verdict.exit_code}")]


def verdict_text(verdict: Verdict) -> str:
    """The reason of the job's end in one sentence: the root cause (culprit), where there is one."""
    culprit = verdict.culprit
    return verdict.reason if culprit is None else _reason(verdict, culprit_text(culprit))


def recorded_text(verdict: Verdict) -> str:
    """The same for where the last lines of the root cause are not shown below: with its error."""
    culprit = verdict.culprit
    return verdict.reason if culprit is None else _reason(verdict, error_text(culprit))


def _reason(verdict: Verdict, who: str) -> str:
    assert verdict.culprit is not None
    again = f"; {verdict.reason}" if verdict.reason else ""
    return f"{who}{absent_text(verdict.exits, verdict.culprit)}{again}"


def end_text(verdict: Verdict, stopped_by: str = "", *, is_alone: bool = False) -> str:
    """The text for records, also where the job was told to end (cancel_text)."""
    if verdict.kind == "cancel":
        return cancel_text(verdict, stopped_by, is_alone=is_alone)
    return recorded_text(verdict)


def detail_lines(culprit: Exit) -> list[tuple[str, str]]:
    """A failed process's traceback, or its last lines, and where the rest is."""
    if not has_last_words(culprit):
        return []
    if not culprit.tail:
        log = f"(log: {culprit.log} on {culprit.host})"
        text = f"{culprit.name} wrote nothing {log}{culprit.silence}"
        if culprit.is_unread:
            text = f"the output of {culprit.name} {UNREAD} {log}"
        return [("ERROR", text)] if culprit.log else []
    from paddock.local.ending import last_words  # once a rank has failed

    shown = last_words(culprit)
    where = f" (log: {culprit.log} on {culprit.host})" if culprit.log else ""
    return [("ERROR", f"{' ERROR LOG DETAIL ':-^66}{where}\n{shown}")]


def other_environment(culprit: Exit, job: Job, env: Mapping[str, str]) -> str:
    """A sentence for a missing module where the user's active environment is another; "" else."""
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX", "")
    python = job.command.python
    is_ours = not active or job.command.kind == "program" or python.startswith(f"{active}/")
    if is_ours or "ModuleNotFoundError: No module named" not in culprit.tail:
        return ""
    return (
        f"the ranks ran {python}, and the active environment is {active}; "
        f"PYTHON_EXEC={active}/bin/python before the command runs its Python"
    )


def has_last_words(culprit: Exit) -> bool:
    """True for a process that has run, with its last lines kept."""
    return culprit.cause not in ("node-lost", *NOT_STARTED)


def culprit_text(culprit: Exit) -> str:
    """ "rank 3 (pid 812) on node1 exited with code 7, attempt 1"."""
    who = " (not by Paddock: see dmesg or the batch system)" if _is_foreign_kill(culprit) else ""
    attempt = f", attempt {culprit.attempt}" if culprit.attempt else ""
    return f"{_place(culprit)} {culprit.how}{who}{attempt}"


def error_text(culprit: Exit) -> str:
    """ "rank 3 (pid 812) on node1 raised ValueError: no"; with a code of its own, its last line.

    A signal, a lost node and a rank that could not be started say enough by themselves: the last
    line before them is one of progress.
    """
    if culprit.signal or culprit.cause != "exit":
        return culprit_text(culprit)
    from paddock.core.attempt.termination import error_line, exception_line  # once a rank failed

    error = exception_line(culprit.tail, culprit.code)
    if error and not culprit.timed_out:  # the code of every uncaught exception is 1
        attempt = f" (attempt {culprit.attempt})" if culprit.attempt else ""
        return f"{_place(culprit)} raised {error}{attempt}"
    error = error or error_line(culprit.tail, culprit.code)
    return culprit_text(culprit) + f"; last line: {error}" * bool(error)


def _place(culprit: Exit) -> str:
    pid = f" (pid {culprit.pid})" if culprit.pid else ""
    return f"{culprit.name}{pid} on {culprit.host}"


def _is_foreign_kill(culprit: Exit) -> bool:
    return culprit.signal == 9 and culprit.cause == "signal" and not culprit.by_us


def followers(exits: Sequence[Exit], culprit: Exit) -> list[Exit]:
    """The exits of other processes that failed by themselves, in order of rank."""
    others = [e for e in own_failures(exits) if e.rank >= 0]
    others.sort(key=_role_and_rank)
    return [e for e in others if (e.role, e.rank) != (culprit.role, culprit.rank)]


def consequence_text(exits: Sequence[Exit], culprit: Exit) -> str:
    """The processes that ended because of the root cause (culprit), and how."""
    followed = followers(exits, culprit)
    known = {(e.role, e.rank) for e in (culprit, *followed)}
    stopped = [e for e in exits if e.by_us and e.rank >= 0 and (e.role, e.rank) not in known]
    parts = []
    if followed:
        parts.append(f"failed after it: {_names(followed)}")
    if stopped:
        parts.append(f"stopped as a result: {_names(stopped)}")
    return "; ".join(parts)


def absent_text(exits: Sequence[Exit], witness: Exit) -> str:
    """The ranks that a victim (witness) had waited for or lost; "" when they cannot be known.

    Those that still ran when a wait was over: one of them did not come. And those that had ended
    well before, whether they were waited for or had closed their connections.
    """
    if not witness.is_witness:
        return ""
    workers = sorted((e for e in exits if e.role == "worker" and e.rank >= 0), key=lambda e: e.rank)
    left = [e for e in workers if e.ok and not e.by_us and e.at_ns < witness.at_ns]
    text = f"; ended before it, with code 0: {_names(left)}" if left else ""
    late = [e for e in workers if witness.timed_out and e.by_us and not _waited_too(e)]
    if not late:
        return text
    if len(late) == 1:
        return f"; {late[0].name} did not arrive ({_running_text(late[0])}){text}"
    who = ", ".join(f"{e.name} ({_running_text(e)})" for e in late[:ABSENT_MAX])
    more = f" and {len(late) - ABSENT_MAX} more" if len(late) > ABSENT_MAX else ""
    return f"; not all of these arrived: {who}{more}{text}"


def _waited_too(exit_: Exit) -> bool:
    """True for a rank that reports a lost peer itself; Paddle's text about our SIGTERM is none."""
    from paddock.local.ending import SIGTERM_OF_PADDLE

    is_ours = SIGTERM_OF_PADDLE in exit_.tail.lower()
    return exit_.timed_out or (exit_.peer_loss and not is_ours)


def _running_text(exit_: Exit) -> str:
    from paddock.local.ending import last_line

    said = last_line(exit_.tail)
    last = f", last line: {said}" if said else ""
    return f"still running on {exit_.host}{last}"


def _names(exits: Sequence[Exit]) -> str:
    names = [e.name for e in sorted(exits, key=_role_and_rank)]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _role_and_rank(exit_: Exit) -> tuple[str, int]:
    return exit_.role, exit_.rank


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges.

    >>> spans([0, 1, 2, 5]), spans([3])
    ('0-2,5', '3')
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def count(number: int, noun: str, plural: str = "") -> str:
    """Number and noun.

    >>> count(1, "restart"), count(2, "restart"), count(2, "process", "processes")
    ('1 restart', '2 restarts', '2 processes')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def wrapped(text: str, width: int, indent: str = "  ") -> str:
    """A text with its lines broken at spaces to at most so many columns; width 0 or less: whole.

    The later parts are indented. A word that is too long, a path for one, stays in one piece.

    >>> print(wrapped("paddock: 2 ranks on node-a · cpu · logs in log/", 29))
    paddock: 2 ranks on node-a ·
      cpu · logs in log/
    """
    lines = []
    for line in text.split("\n"):
        first, *rest = line.replace(" · ", "\0· ").replace(" - ", "\0- ").split(" ")
        parts = [first]
        for word in rest:
            is_blank = not parts[-1].strip()
            if is_blank or width <= 0 or len(parts[-1]) + 1 + len(word) <= width:
                parts[-1] += f" {word}"
            else:
                parts.append(f"{indent}{word}")
        lines += parts
    return "\n".join(lines).replace("\0", " ")
