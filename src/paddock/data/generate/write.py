"""Writes generated examples: the same bytes for the same kind, seed and file number.

`generated:criteo?examples=200000&files=8&seed=1` is made where it is read: for trials, and for
clusters that have no data yet. Workers need not share a disk; what is made stays in a directory of
the user's own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from paddock.data.chunks import GENERATED, MANIFEST, even_edges
from paddock.data.generate import census, criteo, interests, shapes, words
from paddock.data.generate.ceiling import Maker
from paddock.data.manifest import Manifest, publishing, refuse_taken, write_manifest
from paddock.errors import PaddockError, Problem, UsageError

FILES_MAX = 100_000  # what five digits number


KINDS: dict[str, type[Maker]] = {
    "criteo": criteo.CriteoExamples,
    "census": census.Incomes,
    "interests": interests.Interests,
    "words": words.Sentences,
    "shapes": shapes.Images,
}


@dataclass(frozen=True)
class GenerateRequest:
    """The data to generate: kind, number of examples and files, seed."""

    kind: str
    directory: Path
    examples: int
    files: int = 1
    seed: int = 1
    vocab: int | None = None
    form: str | None = None


def generate(request: GenerateRequest, progress: Callable[[int, int], None]) -> Manifest:
    """Write the files and their manifest; all or nothing.

    progress: is told (examples written, of how many). Raises: UsageError for what cannot be made.
    """
    maker = _maker(request)
    names = [f"part-{number:05d}{maker.ending}" for number in range(request.files)]
    refuse_taken(request.directory, names)
    edges = pairwise(even_edges(request.examples, request.files))
    counts = {name: end - begin for name, (begin, end) in zip(names, edges, strict=True)}
    done = 0
    with publishing(request.directory, "generated data") as directory:
        for number, (name, left) in enumerate(counts.items()):
            rng = np.random.default_rng([request.seed, number])
            with (directory / name).open("wb") as file:
                while left:
                    part = min(left, maker.part_examples or left)
                    file.write(maker.make(rng, part))
                    left -= part
                    done += part
                    progress(done, request.examples)
        facts = {"form": maker.form, "seed": request.seed, **maker.facts()}
        return write_manifest(directory, request.kind, counts, facts)


def _maker(request: GenerateRequest) -> Maker:
    kind, problems = KINDS[request.kind], []
    form = request.form or kind.forms[0]
    if form not in kind.forms:
        hint = f"one of {', '.join(kind.forms)}"
        problems.append(Problem(f"--format is '{form}', which {request.kind} has not", hint))
    if not 1 <= request.files <= FILES_MAX:
        problems.append(Problem(f"--files is {request.files}, the limits are 1 and {FILES_MAX}"))
    elif request.examples < request.files:
        message = f"--examples is {request.examples}, fewer than the {request.files} files"
        problems.append(Problem(message, "each file has one example at least"))
    if request.seed < 0:
        problems.append(Problem(f"--seed is {request.seed}, at least 0 is needed"))
    if problems:
        raise UsageError.of(problems)
    return kind(form, request.vocab)


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
    numbers = {"examples": EXAMPLES, "files": FILES, "seed": 1}
    numbers |= {name: int(given[name]) for name in NUMBERS if name in given}
    form = given.get(FORM)
    parts = [kind, *(f"{name}{value}" for name, value in sorted(numbers.items())), form or ""]
    home = Path(tempfile.gettempdir(), f"paddock-generated-{os.getuid()}")
    return GenerateRequest(kind, home / "-".join(parts).rstrip("-"), form=form, **numbers)
