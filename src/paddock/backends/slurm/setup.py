"""Lines of the user's shell that run before the launchers: `setup`. Pure.

    (bash -n LINES; eval LINES; cd JOB; exec srun ...)

They run in bash, as such lines are written for it, and in a subshell: what they set reaches the
ranks, and neither `exit`, `set -e` nor a name of ours in them harms the script. What bash cannot
read ends the job, too: eval alone would go on to the ranks.
"""

from __future__ import annotations

import shlex

from paddock.backends.types import Submission
from paddock.errors import UsageError

FAILED = "a line of setup ended the job"


def setup_lines(submission: Submission) -> tuple[str, ...]:
    """Return the lines. Raises UsageError for what no shell can read."""
    lines = submission.site.lines("setup")
    if any("\0" in line for line in lines):
        raise UsageError("setup: a line has a NUL character, and no shell can read it")
    return tuple(line for line in lines if line.strip())


def setup_values(
    submission: Submission, names: str, cwd: str, program: str, forget: str
) -> dict[str, str]:
    """Return what the script has around srun, by the marks of its text; nothing without lines.

    names: sets what the script calls by name. cwd, program: quoted. forget: what removes secrets,
    and a semicolon.
    """
    if not (lines := setup_lines(submission)):
        return dict.fromkeys(("SETUP", "SETUP_WHY", "EXEC", "END", "UNREADY"), "")
    text = shlex.quote("\n".join(lines))
    where = "--setup" if submission.extra.get("setup") else submission.source("setup")
    return {
        "SETUP": f'rm -f "$inner/ready"; (setup={text}; bash -n -c "$setup" || exit 2\n'
        f'eval "$setup"\n{names}; cd {cwd} && : >"$inner/ready" &&',
        "SETUP_WHY": f"{where}; the ranks begin in the working directory all the same",
        "EXEC": "exec ",
        "END": ")",
        "UNREADY": f'[ -e "$inner/ready" ] || [ "$told" != 0 ] || [ -e {program}/stop ] ||'
        f' {{ [ "$code" != 0 ] || code=1; state failed "$code" {shlex.quote(FAILED)};'
        f' {forget}exit "$code"; }}',
    }
