"""An optimizer as the server has it: its options, its state per row, and its update.

``rules.py`` has them. Arithmetic is float32, and an update gives the same bits in numba's loops
and on numpy's arrays: servers with and without numba, a primary and its replica, a replayed log,
all agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from paddock.errors import Problem
from paddock.ps.jit import F32, F64, I64

# loops(values (capacity, width), rows (n,) distinct, grads (n, dim), lr, options in declared
# order): updates values[rows] in place, reads grads.
Loops = Callable[[F32, I64, F32, float, F64], None]
# arrays(block (n, width), grads (n, dim), lr, options): the same on rows already gathered.
Arrays = Callable[[F32, F32, float, F64], None]


@dataclass(frozen=True, slots=True)
class Option:
    """A number that a rule takes. low and high are allowed themselves unless above/below is set.

    >>> Option(0.9, high=1.0, below=True).range
    'at least 0, below 1'
    """

    default: float
    low: float = 0.0
    high: float = math.inf
    above: bool = False
    below: bool = False
    flag: bool = False

    @property
    def range(self) -> str:
        """The allowed values in words, for a hint."""
        if self.flag:
            return "0 or 1"
        text = f"{'above' if self.above else 'at least'} {self.low:g}"
        if math.isfinite(self.high):
            text += f", {'below' if self.below else 'at most'} {self.high:g}"
        return text

    def accepts(self, value: object) -> bool:
        """The value is a finite number in the range (bool counts for a flag only)."""
        if not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if self.flag or isinstance(value, bool):
            return self.flag and value in (0, 1)
        fits_low = value > self.low if self.above else value >= self.low
        return fits_low and (value < self.high if self.below else value <= self.high)


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of a row's state: dim floats, or one float per row.

    initial: the option that has its first value, else 0. when: the option that it is kept for.
    """

    name: str
    initial: str = ""
    when: str = ""
    per_row: bool = False


@dataclass(frozen=True, slots=True)
class OptimizerRule:
    """An optimizer. slots: the state after the weights, per-row scalars last.

    arrays: for numpy, where the loops cannot run on arrays. rate: in place of any learning rate.
    refuses: fields of OptimizerSpec that make no sense with this rule, and what to use instead.
    """

    name: str
    loops: Loops
    options: Mapping[str, Option] = field(default_factory=dict)
    slots: tuple[Slot, ...] = ()
    arrays: Arrays | None = None
    rate: float | None = None
    refuses: Mapping[str, str] = field(default_factory=dict)

    def complete(self, options: Mapping[str, float]) -> dict[str, float]:
        """The given options with the defaults of the others, in declared order."""
        return {
            name: float(options.get(name, option.default)) for name, option in self.options.items()
        }

    def check(self, options: Mapping[str, float]) -> list[Problem]:
        """Every option that is unknown or out of its range."""
        found = []
        known = ", ".join(self.options) or "none"
        for name, value in options.items():
            option = self.options.get(name)
            if option is None:
                found.append(
                    Problem(f"optimizer {self.name!r} has no option {name!r}", f"it has: {known}")
                )
            elif not option.accepts(value):
                found.append(Problem(f"optimizer {self.name!r}: {name} is {value!r}", option.range))
        return found
