"""Functions that tests of the API run in ranks, as a user's module would have them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SCALE = 3


@dataclass
class Report:
    """A result of a class of this module."""

    rank: int
    loss: float


@cache
def fibonacci(n: int) -> int:
    """A function with a cache, which calls itself through it."""
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Unloadable:
    """A result that cannot be unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


class TwoArgumentsError(Exception):
    """It cannot be unpickled: it is made of one argument then."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class NoTextError(Exception):
    """It has no text."""

    def __str__(self) -> str:
        raise RuntimeError


class OwnBaseError(BaseException):
    """As those of pytest, it is no Exception."""


def raise_one(kind: str) -> None:
    """Raise one of these."""
    raise {
        "TwoArgumentsError": TwoArgumentsError(1, 2),
        "NoTextError": NoTextError(),
        "OwnBaseError": OwnBaseError(),
    }[kind]


class Nameless:
    """A function without a name or a text."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __call__(self) -> int:
        return 5


async def later() -> None:
    """A function of which a call makes a coroutine."""


def count() -> Iterator[int]:
    """A function of which a call makes a generator."""
    yield 1


def talk(characters: int) -> int:
    """Print more than a pipe takes."""
    print("x" * characters, flush=True)
    return characters


def factorial(n: int) -> int:
    """A function that calls itself, by its name among the globals."""
    return 1 if n == 0 else n * factorial(n - 1)


def who() -> tuple[int, int]:
    """The rank and the world size that the environment tells."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def fail_in(rank: int, text: str) -> str:
    """Raise in one rank; the others would go on for a minute."""
    if int(os.environ["RANK"]) == rank:
        raise ValueError(text)
    # sleep: until Paddock ends it
    time.sleep(60)
    return "never"


def stay(seconds: float, path: str = "") -> None:
    """Tell that it runs by a file, and sleep."""
    if path:
        with open(f"{path}.{os.environ['RANK']}", "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
    # sleep: the rank has nothing to do
    time.sleep(seconds)


def names_here() -> tuple[int, list[str]]:
    """The number of paddock-call-* in the working directory, and all names in it."""
    names = os.listdir()
    return sum(name.startswith("paddock-call-") for name in names), names
