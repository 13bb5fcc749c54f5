"""Writes generated examples: the same bytes for the same kind, seed and file number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from paddock.data.generate import census, criteo, interests, shapes, words
from paddock.data.manifest import (
    Manifest,
    Shard,
    file_hash,
    publishing,
    refuse_taken,
    write_manifest,
)
from paddock.errors import Problem, UsageError

FILES_MAX = 100_000  # what five digits number


class Maker(Protocol):
    """Makes the examples of one kind, and knows the best score on what it has made."""

    @property
    def ending(self) -> str:
        """Of the files' names."""

    @property
    def part_examples(self) -> int:
        """How many are made at a time; 0: all of a file."""

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The bytes of so many examples."""

    def facts(self) -> dict[str, object]:
        """What is known of all examples made."""


# Kind -> what makes it, of a form and a vocabulary; its forms, the first is what one gets.
KINDS: dict[str, tuple[Callable[[str, int | None], Maker], tuple[str, ...]]] = {
    "criteo": (criteo.Clicks, criteo.FORMS),
    "census": (census.Incomes, census.FORMS),
    "interests": (interests.Interests, interests.FORMS),
    "words": (words.Sentences, words.FORMS),
    "shapes": (shapes.Images, shapes.FORMS),
}


@dataclass(frozen=True)
class Wanted:
    """What to generate."""

    kind: str
    directory: Path
    examples: int
    files: int = 1
    seed: int = 1
    vocab: int | None = None
    form: str | None = None


def generate(wanted: Wanted, progress: Callable[[int, int], None]) -> Manifest:
    """Write the files and their manifest; all or nothing.

    progress: is told (examples written, of how many). Raises: UsageError for what cannot be made.
    """
    maker, form = _maker(wanted)
    names = [f"part-{number:05d}{maker.ending}" for number in range(wanted.files)]
    refuse_taken(wanted.directory, names)
    shards = []
    done = 0
    with publishing(wanted.directory, "generated data") as directory:
        for number, name in enumerate(names):
            # The first files have what does not divide.
            count = wanted.examples // wanted.files + (number < wanted.examples % wanted.files)
            rng = np.random.default_rng([wanted.seed, number])
            left = count
            with (directory / name).open("wb") as file:
                while left:
                    part = min(left, maker.part_examples or left)
                    file.write(maker.make(rng, part))
                    left -= part
                    done += part
                    progress(done, wanted.examples)
            path = directory / name
            shards.append(Shard(name, count, path.stat().st_size, file_hash(path)))
        facts = {"form": form, "seed": wanted.seed, **maker.facts()}
        manifest = Manifest(wanted.kind, tuple(shards), facts)
        write_manifest(directory, manifest)
    return manifest


def _maker(wanted: Wanted) -> tuple[Maker, str]:
    make, forms = KINDS[wanted.kind]
    problems = []
    form = wanted.form or forms[0]
    if form not in forms:
        hint = f"one of {', '.join(forms)}"
        problems.append(Problem(f"--format is '{form}', which {wanted.kind} has not", hint))
    if not 1 <= wanted.files <= FILES_MAX:
        problems.append(Problem(f"--files is {wanted.files}, the limits are 1 and {FILES_MAX}"))
    elif wanted.examples < wanted.files:
        message = f"--examples is {wanted.examples}, fewer than the {wanted.files} files"
        problems.append(Problem(message, "each file has one example at least"))
    if wanted.seed < 0:
        problems.append(Problem(f"--seed is {wanted.seed}, at least 0 is needed"))
    if problems:
        raise UsageError.of(problems)
    return make(form, wanted.vocab), form
