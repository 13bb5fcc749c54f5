"""Arrays of Slurm: how a job becomes an array, and the directory that each task has. Pure.

A task's directory is JOB/NUMBER. It has what a job's directory has: .paddock with its records, log,
and what is in the package, so that what a task writes is its own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from paddock.backends.types import Submission
from paddock.errors import Problem, UsageError

# As sbatch reads it: -a1-3, -a 1-3, --array=1-3, --array 1-3, and shortened to what is unambiguous.
ARRAY = re.compile(r"-a(?P<short>.*)|--ar(?:r|ra|ray)?(?:=(?P<long>.*))?")
# Part of the script. A plain copy of what is large would be there a thousand times, so files are
# links to the same content; output/ is copied, because tasks write there.
FILL = """\
all=${job%/*}; fill() { for each in "$all"/* "$all"/.[!.]* "$all"/..?* "$all"/log/*; do\
 name=${each#"$all"/};\
 case "$name" in log/console-*.log|log|output|@INNER@) continue ;;\
 *[!0-9]*) ;; *) continue ;; esac;\
 [ -e "$each" ] || [ -L "$each" ] || continue; to=$job/;\
 case "$name" in log/*) to=$job/log/ ;; esac;\
 cp -RPlf "$each" "$to" 2>/dev/null || cp -RPf "$each" "$to" || return 1; done;\
 if [ -e "$all/output" ]; then cp -RPf "$all/output" "$job/" || return 1; fi; : >"$inner/filled"; }\
 ## what a task writes is its own: files of the package as links, output/ as a copy
[ -e "$inner/filled" ] || fill || { state failed 2 'the package cannot be copied for this task';\
 exit 2; } ## a task that is put back finds what it wrote"""


def array_of(submission: Submission) -> str:
    """Return the indices of an array, as sbatch takes them; "" for a job that is no array.

    Lines of the site count as well: they stand last, and the last option of a name counts.
    """
    found = submission.option("array")
    for line in raw_lines(submission):
        found = _array_in(line) or found
    return found


def _array_in(line: str) -> str:
    """Return the array that a line of the site asks for; "" for none.

    >>> _array_in("#SBATCH --mem=1G -a 1-3 # three"), _array_in("--account=a")
    ('1-3', '')
    """
    try:
        words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
    except ValueError:  # sbatch says what is wrong
        return ""
    found = ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if matched := ARRAY.fullmatch(word):
            found = matched["short"] or matched["long"] or following
    return found.removeprefix("=") if found else ""


def raw_lines(submission: Submission) -> tuple[str, ...]:
    """Return the site's own lines for sbatch. Raises UsageError."""
    lines = submission.site.lines("sbatch_lines")
    if any("\n" in line for line in lines):
        raise UsageError("sbatch_lines: each of them is one line")
    return tuple(line.strip() for line in lines if line.strip())


def clashes(names: Iterable[str]) -> list[Problem]:
    """Return a problem for what is in a package where tasks of an array have their directories."""
    why = "a task of the array has a directory of that name"
    hint = "rename it, or name it in .paddockignore"
    return [Problem(f"{name} in the package: {why}", hint) for name in sorted(names)
            if name.isdecimal()]  # fmt: skip
