"""`#PADDOCK --flag value` lines at the head of a user's script, as `#SBATCH` lines are. Pure.

They are read up to the first line that is neither empty nor a comment. The command line wins: put
these arguments before the user's own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from paddock.errors import Problem, refuse

MARK = "#PADDOCK"


@dataclass(frozen=True)
class Directive:
    """A `#PADDOCK` line: its number in the script, from 1, and its arguments."""

    line: int
    words: tuple[str, ...]


def read_directives(text: str) -> tuple[Directive, ...]:
    """Return the directives of a script. Raises UsageError with every line that cannot be read.

    >>> read_directives("#!/bin/sh\\n#PADDOCK --nproc_per_node 2  # two GPUs\\necho\\n#PADDOCK -x")
    (Directive(line=2, words=('--nproc_per_node', '2')),)
    """
    found, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        mark, _, rest = line.partition(" ")
        if mark.rstrip() != MARK:
            continue
        try:
            words = tuple(shlex.split(rest, comments=True))
        except ValueError as error:
            problems.append(Problem(f"line {number} of the script: {error}: {line.strip()}"))
            continue
        if words and not words[0].startswith("-"):
            hint = f"write {MARK} --flag value"
            problems.append(
                Problem(f"line {number} of the script: '{words[0]}' is not a flag", hint)
            )
        found.append(Directive(number, words))
    refuse(problems)
    return tuple(found)
