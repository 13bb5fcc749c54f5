"""Data that is generated where it is read: `generated:criteo?examples=200000&files=8&seed=1`.

For trials and for clusters that have no data yet. The same words give the same bytes on every
machine, so workers need not share a disk; what is made stays in a directory of the user's own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from urllib.parse import parse_qsl

from paddock.data.chunks import GENERATED, MANIFEST
from paddock.data.generate.write import KINDS, GenerateRequest, generate
from paddock.errors import PaddockError, Problem, UsageError

NUMBERS = ("examples", "files", "seed", "vocab")
EXAMPLES, FILES = 100_000, 8
FORM = "format"


def generated(path: str) -> str:
    """The directory of what `path` names, made when it is not there. Raises: UsageError."""
    request = _wanted(path)
    if not (request.directory / MANIFEST).exists():
        try:
            generate(request, lambda done, of: None)
        except PaddockError:  # Another process of this machine was faster?
            if not (request.directory / MANIFEST).exists():
                raise
    return str(request.directory)


def _wanted(path: str) -> GenerateRequest:
    kind, _, query = path.removeprefix(GENERATED).partition("?")
    problems = []
    if kind not in KINDS:
        problems.append(
            Problem(f"'{path}': no data of kind '{kind}'", f"one of {', '.join(KINDS)}")
        )
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in given.items():
        if name not in (*NUMBERS, FORM):
            hint = f"one of {', '.join((*NUMBERS, FORM))}"
            problems.append(Problem(f"'{path}': nothing reads '{name}'", hint))
        elif name in NUMBERS and not (value.isascii() and value.isdigit()):
            problems.append(Problem(f"'{path}': {name} is '{value}'", "a whole number"))
    if problems:
        raise UsageError.of(problems)
    numbers = {name: int(given[name]) for name in NUMBERS if name in given}
    request = {"examples": EXAMPLES, "files": FILES, "seed": 1, **numbers}
    form = given.get(FORM)
    title = "-".join(
        [kind, *(f"{name}{value}" for name, value in sorted(request.items())), form or ""]
    )
    home = Path(tempfile.gettempdir(), f"paddock-generated-{os.getuid()}")
    return GenerateRequest(
        kind, home / title.rstrip("-"), request["examples"], request["files"], request["seed"],
        request.get("vocab"), form,
    )  # fmt: skip
