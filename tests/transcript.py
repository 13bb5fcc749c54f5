"""Transcripts: prose and blocks. A block is a command, a line ``----`` and what is expected."""

from __future__ import annotations

import shlex
from collections.abc import Callable

RULE = "----"
Do = Callable[[list[str]], list[str]]


def replayed(text: str, begin: Callable[[list[str]], Do]) -> str:
    """The transcript with its expectations replaced by what happens now.

    begin: given the first command's words, what carries out the others.
    """
    lines, out = text.split("\n"), list[str]()
    do: Do | None = None
    at = 0
    while at < len(lines):
        out.append(lines[at])
        at += 1
        if at >= len(lines) or lines[at] != RULE:
            continue
        words = shlex.split(lines[at - 1])
        while at < len(lines) and lines[at]:
            at += 1
        if do is None:
            do = begin(words)
            out += [RULE, "ok"]
        else:
            out += [RULE, *do(words)]
    assert do is not None, "a transcript without commands"
    return "\n".join(out)
