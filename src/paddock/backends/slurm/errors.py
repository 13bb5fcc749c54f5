"""Complaints of Slurm's commands -> an error that says what is wrong, and what to do. Pure.

Sentences: src/common/slurm_errno.c of Slurm, 20.11 to 25.05.
"""

from __future__ import annotations

from paddock.errors import PaddockError

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
    "more processors requested": "ask for fewer processes on a node: --nproc_per_node",
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
    text = rest if colon else line
    return "".join(c if c.isprintable() else "?" for c in text.strip())
