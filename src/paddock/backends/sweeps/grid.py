"""NAME=VALUES of --sweep -> the points of a grid: their values, names and arguments. Pure.

lr=1e-3,1e-4      two values
bs=32:128:32      32, 64, 96 and 128: from START to STOP, STOP too where a step meets it
seed=1:3:1,17     ranges and values may be mixed
at="12:30","a,b"  texts in double quotes are taken as they are; "" in them is a quote
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from paddock.backends.sweeps.machine import SweepPoint
from paddock.command_line import nearest
from paddock.errors import Problem, UsageError, refuse
from paddock.local.runs.entry import as_name

POINTS_MAX = 1000
NAME_MAX, VALUE_MAX = 64, 200  # characters
RUN_NAME_MAX = 48  # of a point: an id has five more, and a label of Kubernetes 63
VARIABLE = "PADDOCK_SWEEP_"
SLOT = "slot"  # the lowest number that no other running point has, from 0
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
PLACE = re.compile(r"\{(\{?)([A-Za-z_][A-Za-z0-9_.-]*)\}(\}?)")
QUOTED = re.compile(r'"((?:[^"]|"")*)"(,|$)')  # as in CSV (RFC 4180)
EXAMPLE = "write --sweep lr=1e-3,1e-4 or --sweep bs=32:128:32"


def read_grid(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of every name, as --sweep gives them. Raises UsageError with all problems.

    >>> read_grid(["lr=1e-3,1e-4", "bs=32:128:32", "p=0.1:0.3:0.1"])
    {'lr': ('1e-3', '1e-4'), 'bs': ('32', '64', '96', '128'), 'p': ('0.1', '0.2', '0.3')}
    """
    found: dict[str, tuple[str, ...]] = {}
    problems: list[Problem] = []
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not NAME.fullmatch(name):
            problems.append(Problem(f"--sweep {text}: not NAME=VALUES", EXAMPLE))
        elif name in found:
            hint = f"write all its values in one: --sweep {name}=A,B"
            problems.append(Problem(f"--sweep {name} is given twice", hint))
        else:
            found[name] = tuple(_values(text, listed, problems))
    refuse(problems)
    return found


def _values(text: str, listed: str, problems: list[Problem]) -> Iterable[str]:
    """The values in one --sweep; what is wrong with it is added to the problems."""
    left: str | None = listed
    while left is not None:
        if quoted := QUOTED.match(left):
            left = left[quoted.end() :] if quoted[2] else None
            yield quoted[1].replace('""', '"')
            continue
        part, comma, rest = left.partition(",")
        left = rest if comma else None
        numbers = [_number(each) for each in part.split(":")]
        if len(numbers) == 1 or numbers[0] is None:
            yield part
            continue
        start, stop, step = (
            (*numbers, None, None)[:3] if all(map(_is_sound, numbers)) else [None] * 3
        )
        hint = f'a range is START:STOP:STEP, as 32:128:32; a text is "{part}", in double quotes'
        if len(numbers) != 3 or start is None or stop is None or step is None:
            problems.append(Problem(f"--sweep {text}: '{part}' is not a range", hint))
        elif not step or (stop - start) / step < 0:
            why = "its step is 0" if not step else f"no step of {step} leads there"
            problems.append(Problem(f"--sweep {text}: '{part}' has no end: {why}", hint))
        elif (steps := int((stop - start) / step)) >= POINTS_MAX:
            what = f"--sweep {text}: '{part}' has {steps + 1} values, the limit is {POINTS_MAX}"
            problems.append(Problem(what, "take a larger step"))
        else:
            yield from (f"{start + at * step:f}" for at in range(steps + 1))


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _is_sound(number: Decimal | None) -> bool:
    return number is not None and number.is_finite() and abs(number.adjusted()) < VALUE_MAX


def points_of(
    grid: Mapping[str, Sequence[object]], name: str, example: str = EXAMPLE
) -> tuple[SweepPoint, ...]:
    """All points of a grid, the last name's values change first. name: of the sweep.

    example: how to give values.

    Raises UsageError with all problems: no value, two that are the same, too many points.

    >>> [point.name for point in points_of({"lr": [1e-3], "bs": [32, 64]}, "train")]
    ['train-lr0-001-bs32', 'train-lr0-001-bs64']
    """
    texts = {key: [str(value) for value in values] for key, values in grid.items()}
    problems: list[Problem] = []
    size, variables = 1, dict[str, str]()
    for key, values in texts.items():
        size *= len(values)
        other = variables.setdefault(variable_of(key), key)
        if not NAME.fullmatch(key) or len(key) > NAME_MAX or key == SLOT:
            hint = f"letters, digits, '_', '-' and '.', at most {NAME_MAX}; not '{SLOT}'"
            problems.append(Problem(f"sweep: '{key}' is not a name", hint))
        elif other != key:
            what = f"sweep: {other} and {key} have the same variable {variable_of(key)}"
            problems.append(Problem(what, "give one of them another name"))
        if not values or "" in values:
            problems.append(Problem(f"sweep: {key} has no value, or an empty one", example))
        for value in dict.fromkeys(values):
            if len(value) > VALUE_MAX or not (value.isprintable() or not value):
                what = f"sweep: a value of {key} is too long or unprintable: {value[:20]!r}"
                problems.append(Problem(what, f"at most {VALUE_MAX} printable characters"))
            if values.count(value) > 1:
                what = f"sweep: two points are the same: {key} is {value} twice"
                problems.append(Problem(what, "leave one out"))
    if size > POINTS_MAX:
        what = f"sweep: the grid has {size} points, the limit is {POINTS_MAX}"
        problems.append(Problem(what, "leave values out, or make several sweeps"))
    if not texts:
        problems.append(Problem("sweep: the grid is empty", example))
    refuse(problems)
    found: dict[str, SweepPoint] = {}
    for at, chosen in enumerate(itertools.product(*texts.values()), 1):
        pairs = dict(zip(texts, chosen, strict=True))
        full = "-".join([name, *(as_name(key + value) for key, value in pairs.items())])
        if len(full) > RUN_NAME_MAX or full in found:
            full = f"{full[: RUN_NAME_MAX - 5].rstrip('-')}-{at}"
        found[full] = SweepPoint(full, pairs)
    return tuple(found.values())


def variable_of(key: str) -> str:
    """The environment variable in which a program finds the value.

    >>> variable_of("optimizer.lr")
    'PADDOCK_SWEEP_OPTIMIZER_LR'
    """
    return VARIABLE + re.sub(r"\W", "_", key).upper()


def filled(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Arguments with {name} replaced by its value; {{name}} becomes {name}.

    >>> filled(["--out={lr}", "{{lr}}", '{"a": {}}'], {"lr": "0.1"})
    ['--out=0.1', '{lr}', '{"a": {}}']
    """

    def value(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        return f"{{{name}}}" if opening and closing else opening + values[name] + closing

    return [PLACE.sub(value, word) for word in words]


def places(words: Iterable[str]) -> list[str]:
    """The names in braces in some arguments: {name}, and not {{name}}.

    >>> places(["a={lr}", "{{no}}"])
    ['lr']
    """
    found = (match.groups() for word in words for match in PLACE.finditer(word))
    return [name for opening, name, closing in found if not (opening and closing)]


def check_places(words: Iterable[str], keys: Iterable[str]) -> None:
    """Raise UsageError for every {name} that no --sweep gives."""
    known = [*keys, SLOT]
    unknown = [name for name in dict.fromkeys(places(words)) if name not in known]
    if unknown:
        raise UsageError.of([
            Problem(f"{{{name}}} is no name of a --sweep",
                    nearest(name, known, f"to write it as it is: {{{{{name}}}}}"))
            for name in unknown
        ])  # fmt: skip


def script_args(words: Sequence[str], flags: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """The program's arguments at a point: filled, and --name=value for each name not used.

    flags: other words in which a name counts as used.

    >>> script_args(["--out={lr}"], (), {"lr": "0.1", "bs": "32", "slot": "0"})
    ['--out=0.1', '--bs=32']
    """
    used = {SLOT, *places(words), *places(flags)}
    more = [f"--{key}={value}" for key, value in values.items() if key not in used]
    return [*filled(words, values), *more]
