"""Replays a story about jobs: commands happen in a cluster in memory, what the operator does then
is written down.

A story is prose and blocks. A block is commands, a line ``----`` and what is expected. Indented
lines are YAML and belong to the command above them. After the commands of a block (and before one
about pods, when one about jobs came before it) the operator looks at every job, and pods go on,
until nothing is left to do::

    job demo
      ps: 2                          a number is a role with that many replicas and one container
      worker: {replicas: 2, image: train:2}
    run all
    fail worker-1 exit 1 "ValueError: no"
    ----
    Restarting PS 0/4, attempt 1
      because: worker-1 on node-1 failed first: ...
      delete Pod demo-ps-0 demo-ps-1 demo-worker-0 (attempt 1 begins)
      event Warning Restarting: ...

Commands: tests/operator_story.py.
"""

from __future__ import annotations

from operator_story import Story

RULE = "----"


def replay(text: str) -> str:
    """The story with its expectations replaced by what happens now."""
    story = Story()
    out: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        if lines[at] != RULE:
            out.append(lines[at])
            at += 1
            continue
        begin = len(out)
        while begin > 0 and out[begin - 1]:
            begin -= 1
        out.append(RULE)
        out += story.play(out[begin:-1])
        at += 1
        while at < len(lines) and lines[at]:
            at += 1
    return "\n".join(out)
