"""Submission -> the sbatch script, line by line with what caused each. Pure.

    sbatch -- job.sbatch (first node) -- srun -- sh -- paddock launch (one on each node) -- ranks

Slurm signals every process of a step at once, ranks and all. So the script is signalled alone
(--batch, --signal=B:), and passes it on to the launchers only, who give their ranks the grace.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paddock.backends.common.planned import BASE, bad_names, env_text, job_text, making, rows_of
from paddock.backends.flags import foreign
from paddock.backends.slurm.arrays import FILL, array_of, raw_lines
from paddock.backends.slurm.setup import setup_lines, setup_values
from paddock.backends.types import Handle, PlanStep, Submission, SubmissionPlan, parse_handle
from paddock.command_line import read_line
from paddock.errors import Problem, UsageError, refuse
from paddock.jobfile.flags import LAUNCH
from paddock.local.runs.record import ERROR

INNER = ".paddock"
ENV = "env"  # the file with the variables of --env
MARK = "paddock:"  # how the comment of our jobs begins; the job directory follows
# sbatch's option -> the word of the profile or the command line.
OPTIONS = {
    "partition": "partition", "account": "account", "qos": "qos", "constraint": "constraint",
    "gres": "gres", "nodelist": "nodes", "time": "time", "array": "array", "mem": "memory",
    "clusters": "cluster", "cpus-per-task": "cpus",
}  # fmt: skip
REQUEUES_MAX = 3  # unless `requeues` says otherwise
SIGNAL_MARGIN_SECONDS = 30  # for srun, the launchers' own goodbyes and scontrol
SIGNAL_EARLY_SECONDS = 60  # that Slurm may send it, sbatch(1)
WAIT_MARGIN_SECONDS = 10
REQUEUE = ("always", "saved", "never")  # what goes back into the queue when told to end in time
# A nested sbatch may inherit these two from an array around it, so other jobs do not read them.
ARRAY_TASK = '"${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"'
# What a task says when it cannot start: it is kept as a launcher's error, so that status shows it.
FIRST_WORDS = (
    'command -v "$1" >/dev/null || { PADDOCK_WHY="interpreter $1 is not on $SLURMD_NODENAME";'
    f' echo "$PADDOCK_WHY" >"$0/{ERROR}"; echo "paddock: error: $PADDOCK_WHY" >&2; exit 127; }};'
    ' echo $$ >"$0/pid.$SLURM_NODEID"; exec "$@"'
)
READ_ENV = 'PADDOCK_ENV=$1; shift; . "$PADDOCK_ENV"; '  # before them
# What comes after the #SBATCH lines; behind " ## " the reason of a line.
SCRIPT = """\
inner="$job"/@INNER@
umask 077 ## nobody else reads the job's files
unset SLURM_EXPORT_ENV ## else steps would lack what the nodes' prolog has set
state() { printf '{"state": "%s", "code": %s, "why": "%s", "at": %s, "attempt": %s}\\n' "$1" "$2"\
 "$3" "$(date +%s)" "${SLURM_RESTART_COUNT:-0}" >"$inner/state.json.$$" &&\
 mv "$inner/state.json.$$" "$inner/state.json"; }\
 ## how the job is, whole or not at all: what Slurm forgets
id=@JOB_ID@@JOB_ID_WHY@
in_slurm() { squeue --noheader --jobs="$id" --format="%T %r" | grep . || echo RUNNING; }\
 ## RUNNING, or what Slurm does to it; a controller that does not answer does nothing
told=0; tell() { [ $((told += 1)) = 1 ] || return 0; case "$(in_slurm)" in RUNNING*)\
 (srun --overlap --input=none --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1\
 sh -c 'until [ -s "$0/pid.$SLURM_NODEID" ]; do sleep 0.2; done;\
 kill -TERM "$(cat "$0/pid.$SLURM_NODEID")"' "$inner" &) ;; esac; }\
 ## the launchers are told to end, once, and not their ranks; if Slurm ends the job,\
 it tells all; in a subshell, for $! is the launchers'
trap tell TERM ## from --signal, paddock stop, or scancel --batch
mkdir -p "$inner" "$job/log"
@FILL@
rm -f "$inner/status.json" "$inner/verdict.json" "$inner/@ERROR@" "$inner"/pid.*\
 ## of the attempt before
state running null ''
cd @CWD@ || { state failed 2 'the working directory is not on the node'; @FORGET_FIRST@exit 2; }\
 ## @CWD_WHY@
@SETUP@ ## @SETUP_WHY@
@EXEC@srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --input=none --cpu-bind=none\
 --wait=@WAIT@ --kill-on-bad-exit=0@ELASTIC@ \\\
 ## a launcher on each node; they end each other, in order, and srun what is left
  sh -c '@FIRST@' "$inner" @ENV_FILE@\\\
 ## whether there is a Python; its number, for the signal above
  @PYTHON@ @PROGRAM@/program/__main__.py launch --tail none --log_dir "$job/log/{node}"\
 --record "$inner" --token_file @PROGRAM@/token@JOB_FILE@ \\\
 ## interpreter; logs and records in the job directory; the key in a file
  --nnodes @NODES@ --job_id @ID@ @WORDS@@END@ & ## your own words
srun=$!
if [ -e @PROGRAM@/stop ]; then tell; fi ## a signal that came before this script could hear it
wait "$srun"; code=$?; while kill -0 "$srun" 2>/dev/null; do wait "$srun"; code=$?; done\
 ## a signal interrupts wait, not srun
rm -f "$inner"/pid.*
@UNREADY@ ## a rank never began
again=; if grep -qs '"kind": "fail", "code": 125' "$inner/verdict.json"; then code=125;\
 again='a node was lost'\
 ## the launchers say so; srun may have been ended by Slurm, for the same reason
elif grep -qs '"kind": "cancel"' "$inner/verdict.json" ||\
 { [ "$told" != 0 ] && [ "$code" = 143 ] && [ ! -s "$inner/verdict.json" ]; }\
; then again='asked to end in time'; fi\
 ## time limit, preemption; by the verdict, since a rank may end with 143 by itself; there is none\
 where the launchers were told before they could hear it
now=$(in_slurm)
near() { end=$(SLURM_TIME_FORMAT=%s squeue --noheader --jobs="$id" --format=%e);\
 case "$end" in ''|*[!0-9]*) return 1 ;; esac; [ $((end - $(date +%s))) -le @NEAR@ ]; }\
 ## whether the time limit was why; the signal may be a minute early
unsaved=; if [ @REQUEUE@ = saved ] && [ "$again" = 'asked to end in time' ] &&\
 [ -s "$inner/verdict.json" ] && ! grep -qs '"is_clean": true' "$inner/verdict.json"; then\
 unsaved='asked to end in time'; if near; then unsaved='the time limit is reached'; fi; fi\
 ## @REQUEUE_WHY@; it would start from the beginning, and be ended there again
if [ "$code" = 0 ]; then state succeeded 0 ''
elif [ -e @PROGRAM@/stop ]; then state cancelled "$code" "paddock stop" ## told by that file
elif [ "$unsaved" ] && case "$now" in RUNNING*) ;; *) false ;; esac; then\
 state failed "$code" "$unsaved, and not all ranks saved and exited with 0 (--requeue)"
else case "$again/$now" in
  ?*/RUNNING*) if [ "${SLURM_RESTART_COUNT:-0}" -lt @LIMIT@ ]; then
      state pending null "$again: back into the queue"
      scontrol requeue "$id" && exit "$code"\
 ## the number of the attempt is kept by Slurm; @LIMIT@ times at most
    fi; state failed "$code" "$again, and no requeue is left" ;;
  *TimeLimit*) state failed "$code" 'the time limit is reached' ;;
  asked*) state cancelled "$code" 'Slurm ended it: scancel, or preemption' ;;
  *) state failed "$code" '' ;;
esac; fi
@FORGET@ ## no secret stays behind
exit "$code"
"""


@dataclass(frozen=True)
class ScriptLine:
    """A line of the sbatch script, and the reason why it is there."""

    text: str
    why: str = ""


def build_script(submission: Submission, folder: str) -> tuple[ScriptLine, ...]:
    """Return the sbatch script. folder: the job directory. Raises UsageError with every problem."""
    head = list(_head(submission, folder))
    job, quoted = submission.job, shlex.quote(folder)
    is_array, env = bool(array_of(submission)), env_file(submission)
    is_filled = is_array and not submission.workspace
    where = shlex.quote(submission.workspace or folder)
    # The key and --env; the tasks of an array need them.
    forget = "" if is_array else f"rm -f {quoted}/{INNER}/token {quoted}/{INNER}/{ENV}"
    wait_seconds = math.ceil(job.grace_seconds + job.rendezvous.lease_seconds) + WAIT_MARGIN_SECONDS
    cwd = '"$job"' if is_filled else where
    forget_first = f"{forget}; " if forget else ""
    each = f'job={quoted}/"$SLURM_ARRAY_TASK_ID"' if is_array else f"job={quoted}"
    names = f'{each}; inner="$job"/{INNER}'
    values = {
        **setup_values(submission, names, cwd, f"{quoted}/{INNER}", forget_first),
        "INNER": INNER,
        "JOB_ID": ARRAY_TASK if is_array else '"$SLURM_JOB_ID"',
        "JOB_ID_WHY": " ## one task has the array's own number, which means all tasks"
        if is_array
        else "",
        "ERROR": ERROR,
        "PROGRAM": f"{quoted}/{INNER}",
        "FILL": FILL if is_filled else "",
        "CWD": cwd,
        "CWD_WHY": "--workspace" if submission.workspace else "where the package is",
        "FORGET": forget,
        "FORGET_FIRST": forget_first,
        "WAIT": str(0 if job.is_elastic else wait_seconds),
        "ELASTIC": " --no-kill" if job.is_elastic else "",
        "FIRST": f"{READ_ENV}{FIRST_WORDS}" if env else FIRST_WORDS,
        "ENV_FILE": f"{quoted}/{INNER}/{ENV} " if env else "",
        "PYTHON": shlex.quote(submission.option("interpreter") or "python3"),
        "JOB_FILE": f" -f {quoted}/{INNER}/launch.json" if submission.file else "",
        "WORDS": shlex.join(launch_args(submission)),
        "NODES": submission.nnodes,
        "ID": shlex.quote(submission.run_id) + '-"$SLURM_ARRAY_TASK_ID"' * is_array,
        "LIMIT": str(_requeues(submission)),
        "REQUEUE": _requeue(submission),
        "REQUEUE_WHY": submission.source("requeue") or "--requeue saved, unless you say otherwise",
        "NEAR": str(_signal_seconds(submission) + SIGNAL_EARLY_SECONDS),
    }
    lines = [ScriptLine(each, "a directory for each of the array" if is_array else "")]
    for line in SCRIPT.replace("@FILL@", values["FILL"]).splitlines():
        parts = line.partition(" ## ")[::2]
        text, why = (re.sub("@([A-Z_]+)@", lambda found: values[found[1]], p) for p in parts)
        lines += [ScriptLine(text, why)] if text else []
    shell = "bash" if setup_lines(submission) else "sh"
    return (ScriptLine(f"#!/bin/{shell}"), *head, *lines)


def script_text(lines: tuple[ScriptLine, ...]) -> str:
    """Return the text of the script, as sbatch reads it."""
    return "".join(f"{line.text}\n" for line in lines)


def nodes_wanted(submission: Submission) -> str:
    """Return the number of nodes, as sbatch takes it: N, or MIN-MAX."""
    return submission.nnodes.replace(":", "-")


def after_handles(submission: Submission, end: str = "") -> tuple[Handle, ...]:
    """Return the jobs of --after; place is "" where only the number is given. Raises UsageError.

    end: ok or any, only those with that end; "" for all.
    """
    found = []
    for word in submission.option("after").replace(",", " ").split():
        name = word.removesuffix(":ok").removesuffix(":any")
        if end and end != ("any" if word.endswith(":any") else "ok"):
            continue
        handle = parse_handle(name) or Handle("slurm", "", name)
        if handle.backend != "slurm" or not re.fullmatch(r"\d+(_\d+)?", handle.name, re.ASCII):
            raise UsageError(
                f"--after {word}: not a job of Slurm", hint="write slurm://CLUSTER/NUMBER"
            )
        found.append(handle)
    return tuple(found)


def sbatch_word(text: str) -> str:
    """Quote a value for a #SBATCH line: sbatch removes quotes and backslashes, and expands nothing.

    >>> sbatch_word("gpu:2"), sbatch_word('my "job" #1')
    ('gpu:2', '"my \\\\"job\\\\" #1"')
    """
    if re.fullmatch(r"[\w.,:/%@+=~&|()\[\]*-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _head(submission: Submission, folder: str) -> Iterator[ScriptLine]:
    job = submission.job
    rows = [
        ("job-name", submission.name, "--name"),
        ("comment", MARK + folder, "so that `paddock list --discover` finds it"),
        ("nodes", nodes_wanted(submission), f"--nnodes {nodes_wanted(submission)}"),
        ("ntasks-per-node", "1", "one launcher on each node; it starts the ranks"),
    ]
    for name, word in OPTIONS.items():
        if value := submission.option(word):
            rows.append((name, value, submission.source(word)))
    worker = job.role("worker")
    count = worker.count if worker is not None else None
    if count and not submission.option("cpus"):
        rows.append(("cpus-per-task", str(count), f"{count} processes on a node: a core for each"))
    kinds = {f"after{end}": after_handles(submission, end) for end in ("ok", "any")}
    texts = [":".join([kind, *(h.name for h in after)]) for kind, after in kinds.items() if after]
    if texts:
        rows.append(("dependency", ",".join(texts), submission.source("after")))
        rows.append(("kill-on-invalid-dep", "yes", "a job that can never start is cancelled"))
    seconds = _signal_seconds(submission)
    why = f"--grace {job.grace_seconds:g}: before the time limit, to this script alone"
    rows.append(("signal", f"B:TERM@{seconds}", why))
    if _requeues(submission):
        rows.append(("requeue", "", "a job whose node is lost starts again"))
    else:
        why = submission.source("requeue") if _requeue(submission) == "never" else "requeues = 0"
        rows.append(("no-requeue", "", why))
    why = "variables of this shell that travel; those that you name are in a file"
    rows.append(("export", ",".join(BASE), why))
    rows.append(("open-mode", "append", "what was said before a restart is kept"))
    name = "console-%a.log" if array_of(submission) else "console.log"
    output = folder.replace("%", "%%") + f"/log/{name}"
    rows.append(("output", output, "what the launchers say"))
    rows.append(("chdir", folder.replace("%", "%%"), "the job directory, seen by all nodes"))
    bad = [n for n, value, _ in rows if any(not c.isprintable() for c in value)]
    refuse([Problem(f"--{n}: sbatch takes one line of text") for n in bad])
    for name, value, why in rows:
        yield ScriptLine(f"#SBATCH --{name}" + (f"={sbatch_word(value)}" if value else ""), why)
    for raw in raw_lines(submission):
        text = raw if raw.startswith("#SBATCH") else f"#SBATCH {raw}"
        yield ScriptLine(
            text, submission.site.sources.get("sbatch_lines", "sbatch_lines of the site")
        )


def split_env(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the launcher's arguments from --env, whose values are in no script.

    >>> split_env(["--env", "KEY=secret", "--grace", "5", "--env=A=b"])
    (['--grace', '5'], ['--env', 'KEY=secret', '--env=A=b'])
    """
    words: dict[bool, list[str]] = {True: [], False: []}
    for one in read_line(flags, LAUNCH).flags:
        words[one.flag.name == "env"] += one.words
    return words[False], words[True]


def env_file(submission: Submission) -> str:
    """Return the shell lines that set --env on each node, for a file of mode 0600; "" for none.

    The launcher takes the place of "$@"; variables that it sets itself are arguments of it.
    """
    words = split_env(submission.flags)[1]
    lines = f"set -a\n{env_text(submission.env)}set +a\n" if submission.env else ""
    if words:
        lines += "PADDOCK_PYTHON=$1 PADDOCK_PROGRAM=$2; shift 3\n"
        lines += f'set -- "$PADDOCK_PYTHON" "$PADDOCK_PROGRAM" launch {shlex.join(words)} "$@"\n'
    return lines


def launch_args(submission: Submission) -> tuple[str, ...]:
    """Return the user's own arguments of paddock launch, on every node."""
    return (*split_env(submission.flags)[0], *submission.script)


def _signal_seconds(submission: Submission) -> int:
    """Return how long before the time limit the script is told."""
    return math.ceil(submission.job.grace_seconds) + SIGNAL_MARGIN_SECONDS


def _requeue(submission: Submission) -> str:
    """Return which job goes back into the queue, a word of REQUEUE. Raises UsageError."""
    word = submission.option("requeue") or "saved"
    if word not in REQUEUE:
        hint = "always, saved (if all ranks exited with 0 when told to end), or never"
        raise UsageError(f"requeue {word}: not known", hint=hint)
    return word


def _requeues(submission: Submission) -> int:
    if _requeue(submission) == "never":
        return 0
    text = submission.option("requeues") or str(REQUEUES_MAX)
    if not text.isdecimal():
        raise UsageError(f"requeues = {text}: not a whole number")
    return int(text)


def plan_of(submission: Submission, root: str) -> SubmissionPlan:
    """Return the plan of a submission. Raises UsageError."""
    why = "it would tell Slurm something; see sbatch_lines in the site"
    bad = [name for name, _ in submission.env if name.startswith(("SLURM_", "SBATCH_"))]
    refuse([*bad_names(submission), *(Problem(f"--env {name}: {why}") for name in bad)])
    folder = f"{root}/{submission.run_id}"
    lines = build_script(submission, folder)
    script = f"{folder}/{INNER}/job.sbatch"
    files = {
        script: script_text(lines),
        f"{folder}/{INNER}/job.json": job_text(submission, cwd=submission.workspace),
    }
    if submission.file:
        files[f"{folder}/{INNER}/launch.json"] = submission.file
    steps = [
        PlanStep("here", making(submission, folder, "the launcher and a key for this job")),
        PlanStep("here", "hand it to Slurm", ("sbatch", "--parsable", script)),
    ]
    if submission.env:
        names = " ".join(name for name, _ in submission.env)
        steps.insert(1, PlanStep("here", f"write {INNER}/{ENV}, for you alone, with {names}"))
    hosts = ["chosen by Slurm"] * submission.job.nnodes_max
    rows = rows_of(submission, hosts, submission.option("gres") or "found there")
    cannot = foreign("slurm", submission.extra)
    if ":" in submission.nnodes:
        cannot += ("growing: Slurm decides once, between both numbers, how many nodes there are",)
    reasons = {line.text.strip(): line.why for line in lines if line.why}
    return SubmissionPlan(rows, tuple(steps), files, cannot, reasons)
