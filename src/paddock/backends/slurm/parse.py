"""Answers of Slurm and the job's own files -> the job's status. Pure.

    Slurm knows the job    state.json of this attempt    the job is
    ---------------------  ----------------------------  --------------------------------------
    any state              it has ended                  as the file says: it knows why
    in STATES              else                          as STATES says; RUNNING: starting until
                                                         its ranks are up, stopping when told to
    no                     it has ended                  as the file says
    no                     else                          lost

state.json is written by the script (script.py), and stays when Slurm has forgotten the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.backends.common.recorded import culprit_of, ended, nodes_of
from paddock.backends.text import clean
from paddock.backends.types import FINAL, JobStatus, NodeStatus, State
from paddock.errors import EXIT_SIGNAL_BASE, PaddockError

# squeue --Format, Slurm 20.11 and later; a separator stands behind each field.
FIELDS = ("JobID", "JobArrayID", "State", "Reason", "exit_code", "RestartCnt", "StartTime",
          "EndTime")  # fmt: skip
SQUEUE_FORMAT = ",".join(f"{name}:|" for name in FIELDS)
SACCT_FORMAT = "JobIDRaw,JobID,State,Reason,ExitCode,Start,End"

NODE_LOST, NOT_BOOTED = "a node was lost", "a node did not boot"
# squeue(1), JOB STATE CODES -> our state, and why where the word does not say it.
STATES: dict[str, tuple[State, str]] = {
    "PENDING": ("pending", ""),
    "REQUEUED": ("pending", "put back into the queue"),
    "REQUEUE_FED": ("pending", "put back into the queue"),
    "REQUEUE_HOLD": ("pending", "put back into the queue, and held: scontrol release"),
    "RESV_DEL_HOLD": ("pending", "its reservation is gone, and it is held: scontrol release"),
    "SPECIAL_EXIT": ("pending", "held after a special exit: scontrol release"),
    "CONFIGURING": ("starting", "its nodes are being made ready"),
    "RUNNING": ("running", ""),
    "RESIZING": ("running", ""),
    "SUSPENDED": ("running", "suspended"),
    "STOPPED": ("running", "stopped by a signal"),
    "SIGNALING": ("stopping", ""),
    "COMPLETING": ("stopping", "Slurm clears its nodes"),
    "STAGE_OUT": ("stopping", "its files are staged out"),
    "COMPLETED": ("succeeded", ""),
    "CANCELLED": ("cancelled", "cancelled in Slurm"),
    "REVOKED": ("cancelled", "another cluster of the federation runs it"),
    "FAILED": ("failed", ""),
    "TIMEOUT": ("failed", "the time limit is reached"),
    "DEADLINE": ("failed", "its deadline has passed"),
    "NODE_FAIL": ("failed", NODE_LOST),
    "OUT_OF_MEMORY": ("failed", "out of memory"),
    "BOOT_FAIL": ("failed", NOT_BOOTED),
    "LAUNCH_FAILED": ("failed", "Slurm could not start it"),
    "RECONFIG_FAIL": ("failed", "a node could not be made ready"),
    "PREEMPTED": ("failed", "preempted by another job"),
}
# squeue(1), JOB REASON CODES: why a job waits.
REASONS = {
    "None": "",
    "Resources": "waits for free nodes",
    "Priority": "waits for jobs before it",
    "Dependency": "waits for the job it comes after",
    "DependencyNeverSatisfied": "the job it comes after did not succeed",
    "JobArrayTaskLimit": "waits for others of its array",
    "BeginTime": "its time has not come",
    "JobHeldUser": "held: scontrol release",
    "JobHeldAdmin": "held by the administrator",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no jobs to run",
    "PartitionNodeLimit": "the partition has too few nodes for it",
    "PartitionTimeLimit": "longer than the partition allows",
    "PartitionConfig": "the partition cannot run it as it is",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "Licenses": "waits for a license",
    "BadConstraints": "no node is as it wants them",
}


@dataclass(frozen=True)
class SqueueRow:
    """A row of squeue or sacct: a job, or a task of an array. Times since 1970, 0.0 unknown."""

    number: str
    task: str
    state: str
    reason: str = ""
    code: int | None = None
    restarts: int | None = None
    start: float = 0.0
    end: float = 0.0


@dataclass(frozen=True)
class JobDirectoryState:
    """The state files of a job directory, whether it was stopped, and a launcher's last error."""

    state: Mapping[str, Any] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    is_stopped: bool = False
    last_error: str = ""


def read_squeue(text: str) -> list[SqueueRow]:
    """Parse the output of squeue --Format=SQUEUE_FORMAT."""
    return [
        SqueueRow(number, _task(array), state, reason, _wait_status(code),
                  int(restarts) if restarts.isdecimal() else None, _time(start), _time(end))
        for number, array, state, reason, code, restarts, start, end in _cells(text, len(FIELDS))
    ]  # fmt: skip


def read_sacct(text: str) -> list[SqueueRow]:
    """Parse the output of sacct --parsable2 --allocations --format=SACCT_FORMAT."""
    return [  # the state may be "CANCELLED by 1000"
        SqueueRow(number, _task(array), state.split(" ")[0], reason, _pair(code), None,
                  _time(start), _time(end))
        for number, array, state, reason, code, start, end in _cells(text, 7)
    ]  # fmt: skip


def _cells(text: str, count: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) >= count:
            yield cells[:count]


def _task(array: str) -> str:
    return array.partition("_")[2].strip("[]")


def _wait_status(text: str) -> int | None:
    """Return the exit code from a wait(2) status, as squeue prints it."""
    if not text.isdecimal():
        return None
    status = int(text)
    return EXIT_SIGNAL_BASE + (status & 127) if status & 127 else status >> 8


def _pair(text: str) -> int | None:
    """Return the exit code from CODE:SIGNAL, as sacct prints it."""
    code, _, number = text.partition(":")
    if not (code.isdecimal() and number.isdecimal()):
        return None
    return EXIT_SIGNAL_BASE + int(number) if int(number) else int(code)


def _time(text: str) -> float:
    """Return the time of SLURM_TIME_FORMAT=%s; N/A and Unknown are 0."""
    return float(text) if text.isdecimal() else 0.0


def status_of(
    rows: Sequence[SqueueRow], files: Mapping[str, JobDirectoryState], now: float
) -> JobStatus:
    """Return the job's status. told: by array index, "" for a job that is no array.

    Raises PaddockError for an unknown state: any status would be a guess.
    """
    if not rows:
        tasks = [task for task in files if task] or [""]
        rows = [SqueueRow("", task, "") for task in tasks]
    each = [_one(row, files.get(row.task, JobDirectoryState()), now) for row in rows]
    if len(rows) == 1 and not rows[0].task:
        return each[0]
    pairs = sorted(zip(rows, each, strict=True), key=lambda pair: _order(pair[0].task))
    nodes = tuple(
        NodeStatus(f"task {row.task}", s.state, tuple(r for n in s.nodes for r in n.ranks), s.why)
        for row, s in pairs
    )
    bad = next((s for _, s in pairs if s.state in ("failed", "lost", "cancelled")), None)
    state = _of_all([status.state for status in each])
    shown = bad if bad is not None and state in FINAL else next(
        (s for _, s in pairs if s.state == state), each[0]
    )  # fmt: skip
    return replace(shown, state=state, nodes=nodes, since=max(s.since for s in each))


def _order(task: str) -> tuple[int, str]:
    first = task.replace("-", ",").replace("%", ",").split(",")[0]
    return (int(first) if first.isdecimal() else 0, task)


def _of_all(states: Sequence[State]) -> State:
    alive: tuple[State, ...] = ("stopping", "running", "starting", "pending")
    for state in alive:
        if state in states:
            has_begun = any(s in FINAL for s in states)
            return "running" if state == "pending" and has_begun else state
    ended: tuple[State, ...] = ("failed", "lost", "cancelled")
    return next((state for state in ended if state in states), "succeeded")


def _one(row: SqueueRow, files: JobDirectoryState, now: float) -> JobStatus:
    """Return the status of a job, or of a task of an array."""
    said = str(files.state.get("state", ""))
    attempt = _number(files.state.get("attempt"))
    is_of_now = row.restarts in (None, attempt)
    if said in FINAL and is_of_now:
        code, since = files.state.get("code"), float(files.state.get("at") or row.end)
        return _ended(said, files, now, why="", code=code, since=since, attempt=attempt)
    if not row.state:
        why = "Slurm has forgotten it, and its script has not said how it ended"
        return _ended("lost", files, now, why=why, attempt=attempt)
    if row.state not in STATES:
        raise PaddockError(f"Slurm says {row.state}, which is not known here", retryable=True)
    state, why = STATES[row.state]
    attempt = row.restarts or 0 if row.restarts is not None else attempt
    if state in FINAL:
        if files.is_stopped and state == "failed":  # before its script could say so
            state = "cancelled"
        if row.state == "FAILED" and not (files.state or files.whole or files.verdict):
            why = "its script has not begun: the nodes do not see the job's directory (--root)"
        code = 0 if state == "succeeded" else row.code or None
        return _ended(state, files, now, why=why, code=code, since=row.end, attempt=attempt)
    if state == "pending":
        return JobStatus("pending", now, why=_reason(row.reason) or why, attempt=attempt)
    nodes = _nodes(files, "running") if is_of_now else ()
    if state == "running" and files.is_stopped:
        state = "stopping"
    elif state == "running" and not any(node.ranks for node in nodes):
        state, why = "starting", str(files.whole.get("waiting_for") or why) if is_of_now else why
    return JobStatus(
        state, now, why=why, since=row.start, attempt=attempt + _number(files.whole.get("attempt")),
        nodes=tuple(replace(node, state=state) for node in nodes),
    )  # fmt: skip


def _ended(
    state: State,
    files: JobDirectoryState,
    now: float,
    *,
    why: str,
    code: int | None = None,
    since: float = 0.0,
    attempt: int = 0,
) -> JobStatus:
    """Return the final status, with reason and root cause from the job's own files."""
    has_said = files.state.get("state") in FINAL
    own = str(files.state.get("why") or "") if has_said else "paddock stop" * files.is_stopped
    said = str(files.verdict.get("text") or files.last_error)
    if state == "succeeded":
        shown = ""
    elif state == "cancelled":
        shown = own or why
    else:
        shown = ": ".join(text for text in (own or why, said) if text)
    return JobStatus(
        state, now, why=shown, code=code, since=since,
        attempt=attempt + _number(files.whole.get("attempt")), nodes=_nodes(files, state),
        culprit=culprit_of(files.verdict),
    )  # fmt: skip


def _reason(word: str) -> str:
    """Return the reason why a job waits, with Slurm's own word for it."""
    known = REASONS.get(word)
    return f"{known} ({word})" if known else word if known is None else ""


def _nodes(files: JobDirectoryState, state: State) -> tuple[NodeStatus, ...]:
    """Return hosts and ranks as the coordinator recorded them. state: of the job."""
    nodes = nodes_of(files.whole)
    return ended(nodes, state) if state in FINAL else nodes


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


# Part of a complaint -> hint.
HINTS = {
    "invalid partition": "see the partitions: sinfo --summarize; choose one with --partition",
    "invalid account": "see yours: sacctmgr show associations user=$USER; choose with --account",
    "invalid qos": "see yours: sacctmgr show associations user=$USER; choose one with --qos",
    "invalid feature": "see the features: sinfo --format='%n %f'; choose with --constraint",
    "generic resource": "see what nodes have: sinfo --format='%n %G'; choose with --gres",
    "gres": "see what nodes have: sinfo --format='%n %G'; choose with --gres",
    "node count specification": "ask for fewer nodes, or for another partition",
    "node configuration is not available": "ask for less of each node, or for another partition",
    "more processors requested": "ask for fewer processes on a node: --nproc-per-node",
    "time limit": "ask for less with --time, or for another partition",
    "--time": "write minutes, hours:minutes:seconds or days-hours",
    "qosmax": "a limit of the account or QOS: wait, or ask for less",
    "accounting/qos policy": "a limit of the account or QOS: wait, or ask for less",
    "dependency": "the job that --after names is not known any more",
    "array": "write --array 1-10%2: at most MaxArraySize jobs",
    "unrecognized option": "this Slurm does not know it: see sbatch_lines in the site",
}
UNREACHABLE = (
    "unable to contact slurm controller", "connection refused", "connection timed out",
    "communication connection failure", "could not establish a configuration source",
    "unable to establish configuration source", "zero bytes were transmitted",
)  # fmt: skip
UNKNOWN_JOB = "invalid job id"


def is_unknown_job(output: str) -> bool:
    """Return True if the message says that Slurm no longer knows the job."""
    return UNKNOWN_JOB in output.lower()


def complaint(command: str, output: str) -> PaddockError:
    """Return the error for a command that failed, from its output.

    >>> str(complaint("sbatch", "sbatch: error: invalid partition specified: gpu\\n"))[:50]
    'sbatch: invalid partition specified: gpu (hint: se'
    """
    lines = [_bare(line) for line in output.splitlines() if line.strip()]
    shown = "; ".join(dict.fromkeys(lines)) or "it failed without a word"
    low = shown.lower()
    if any(text in low for text in UNREACHABLE):
        return PaddockError(
            f"the Slurm controller cannot be reached: {lines[-1]}",
            hint="try again; scontrol ping tells how it is",
            retryable=True,
        )
    hint = next((hint for text, hint in HINTS.items() if text in low), "")
    return PaddockError(f"{command}: {shown}", hint=hint)


def _bare(line: str) -> str:
    """Return a line without the command's name and the level in front."""
    _, colon, rest = line.partition(": error: ")
    return clean((rest if colon else line).strip())
