"""Specs of tables: the values a trainer declares and every server agrees on. No I/O here.

A spec is plain data: it travels as JSON, is kept in checkpoints, and two trainers that declare
the same table must declare equal specs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from typing import Any, Literal

from paddock.errors import Problem, UsageError

DIM_MAX = 1024
# Each table is cut into this many shards, dealt to the servers in contiguous ranges. The number
# is part of a checkpoint; the number of servers is not.
SHARDS = 64
INITIALIZERS = ("uniform", "normal", "zeros", "constant", "xavier")
SCHEDULES = (
    "constant", "exponential", "natural_exp", "noam", "inverse_time", "piecewise", "cosine",
)  # fmt: skip
EVICTIONS = ("refuse", "lru")
# Before a table's name: the key, of checkpoints, that says that the table has its first values.
READY = "ready/"


@dataclass(frozen=True, slots=True)
class InitialSpec:
    """First value of a row: a pure function of (seed, key, column), so of no server and no order.

    Attributes:
        kind: uniform, normal, xavier, constant or zeros.
        scale: Half-width of uniform, standard deviation of normal, the value of constant.
        seed: Of the random numbers.
        fan: fan_in + fan_out, which xavier takes its scale from; dim when 0.
    """

    kind: str = "uniform"
    scale: float = 1e-3
    seed: int = 0
    fan: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Learning rate as a function of the global step, times the optimizer's own.

    - constant: 1.
    - exponential: rate ** (step / every).
    - natural_exp: exp(-rate * step / every).
    - inverse_time: 1 / (1 + rate * step / every).
    - noam: dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5).
    - piecewise: values[i] before boundaries[i], values[-1] after the last.
    - cosine: half a wave from 1 at step 0 to rate at step `every`, and rate after it.

    staircase floors step / every. warmup_steps (all but noam): linear from warmup_start to the
    schedule.
    """

    kind: str = "constant"
    rate: float = 1.0
    every: int = 1
    staircase: bool = False
    dim: int = 512
    boundaries: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    warmup_steps: int = 0
    warmup_start: float = 0.0


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """Which rule updates a table.

    Attributes:
        name: sgd, adagrad, adam and others: the guide's table has them all.
        lr: Learning rate.
        options: The optimizer's own numbers, by name.
        schedule: What the rate is multiplied by, over the steps.
        bound: Weights are kept in [-bound, bound] after each update; 0 is no bound.
        clip_value: Limit of each element of a gradient; 0 is none.
        clip_norm: Limit of each row's gradient (2-norm); 0 is none.
        l1: The gradient gets l1 * sign(w) (coupled, as in torch's weight_decay).
        l2: The gradient gets l2 * w.
    """

    name: str = "sgd"
    lr: float = 0.01
    options: dict[str, float] = field(default_factory=dict)
    schedule: ScheduleSpec = field(default_factory=ScheduleSpec)
    bound: float = 0.0
    clip_value: float = 0.0
    clip_norm: float = 0.0
    l1: float = 0.0
    l2: float = 0.0


@dataclass(frozen=True, slots=True)
class AccessorSpec:
    """Statistics of a sparse row and what is decided from them. All off by default.

    score = (show - click) * nonclick_coeff + click * click_coeff. A key without a row has its
    initial value when pulled, and pushes of it only count.

    Attributes:
        statistics: Whether shows and clicks are kept.
        nonclick_coeff: Weight of a show without click in the score.
        click_coeff: Weight of a click in the score.
        admit_count: A key gets a row after so many pushes.
        admit_probability: A key gets a row with this probability.
        admit_score: A key gets a row at this score.
        unlock_score: The columns from unlock_from on keep their initial value until this score.
        unlock_from: See unlock_score.
        ttl_seconds: shrink drops rows not pushed for so long; 0 for none.
        decay: shrink multiplies shows and clicks by it.
        delete_score: shrink drops rows below it.
    """

    statistics: bool = False
    nonclick_coeff: float = 0.1
    click_coeff: float = 1.0
    admit_count: int = 0
    admit_probability: float = 1.0
    admit_score: float = 0.0
    unlock_score: float = 0.0
    unlock_from: int = 1
    ttl_seconds: int = 0
    decay: float = 1.0
    delete_score: float = 0.0


@dataclass(frozen=True, slots=True)
class SparseSpec:
    """A table of rows by int64 key, each made when it is first pushed.

    Attributes:
        name: Of the table.
        dim: Length of a row, in float32.
        optimizer: What updates it; adagrad with rate 0.01 when none is named, as in Embedding.
        initial: First value of a row.
        accessor: Statistics, and which keys get and keep a row.
        merge: How a step's contributions add up: mean or sum.
        max_rows: 0 is no limit but the server's memory limit.
        eviction: What happens at the limit: refuse, or lru (the row used longest ago goes).
        shards: Into how many parts the keys are dealt.
    """

    name: str
    dim: int
    # Adagrad: ids are not equally frequent, and sgd gives rare ones hardly a step.
    optimizer: OptimizerSpec = field(default_factory=lambda: OptimizerSpec("adagrad"))
    initial: InitialSpec = field(default_factory=InitialSpec)
    accessor: AccessorSpec = field(default_factory=AccessorSpec)
    merge: str = "mean"
    max_rows: int = 0
    eviction: str = "refuse"
    shards: int = SHARDS
    kind: Literal["sparse"] = "sparse"


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """A flat vector of float32, cut in shards of equal length, give or take one.

    A shard is updated as a whole.

    Attributes:
        name: Of the table.
        size: Length of the vector.
        optimizer: What updates it.
        initial: First values.
        merge: How a step's contributions add up: mean or sum.
        shards: 0 chooses a power of two that makes shards of about 64 Ki elements: a small vector
            is one shard, on one server.
        parts: Lengths of the pieces, such as a model's parameters, that are pushed together or
            left out; each is cut by itself.
    """

    name: str
    size: int
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    initial: InitialSpec = field(default_factory=lambda: InitialSpec("zeros"))
    merge: str = "mean"
    shards: int = 0
    parts: tuple[int, ...] = ()
    kind: Literal["dense"] = "dense"

    def __post_init__(self) -> None:
        if self.shards == 0 and all(map(_is_whole, (self.size, *self.parts))):
            shards = sum(map(dense_shards, self.parts)) or dense_shards(self.size)
            object.__setattr__(self, "shards", shards)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first element of each shard, and the end of the last one.

        >>> DenseSpec("w", 10, shards=4).starts, DenseSpec("w", 10, parts=(7, 0, 3)).starts
        ((0, 2, 5, 7, 10), (0, 7, 10))
        """
        return _starts(self.parts, self.size, self.shards)

    def runs(self, used: Sequence[bool] | None) -> list[tuple[int, int]]:
        """[start, stop) of the elements of these parts, joined where they touch; None: of all.

        >>> DenseSpec("w", 10, parts=(2, 3, 5)).runs([True, True, False])
        [(0, 5)]
        """
        found: list[tuple[int, int]] = []
        if used is None:
            return [(0, self.size)]
        if len(used) != len(self.parts):
            raise UsageError(
                f"table {self.name!r} has {len(self.parts)} parts, {len(used)} were told of",
                hint="DenseSpec(parts=...) says what there is to be left out",
            )
        at = 0
        for length, is_used in zip(self.parts, used, strict=True):
            if is_used and length:
                begin = found.pop()[0] if found and found[-1][1] == at else at
                found.append((begin, at + length))
            at += length
        return found

    def range(self, shard: int) -> tuple[int, int]:
        """[start, stop) of a shard, in elements."""
        return self.starts[shard], self.starts[shard + 1]


TableSpec = SparseSpec | DenseSpec


# Elements of a dense shard: about so many, and never more than a frame holds.
DENSE_SHARD = 1 << 16
DENSE_SHARD_MAX = (1 << 20) - 2


def dense_shards(size: int) -> int:
    """How many shards a dense table of this size gets when nobody says.

    >>> [dense_shards(n) for n in (10, 1 << 17, 1 << 22, 1 << 28)]
    [1, 2, 64, 512]
    """
    shards = min(1, max(0, size))
    while (shards < SHARDS and size > shards * DENSE_SHARD) or size > shards * DENSE_SHARD_MAX:
        shards *= 2
    return shards


@lru_cache
def _starts(parts: tuple[int, ...], size: int, shards: int) -> tuple[int, ...]:
    cut = [(part, dense_shards(part)) for part in parts] or [(size, shards)]
    starts, at = [0], 0
    for length, count in cut:
        starts += [at + (piece + 1) * length // count for piece in range(count)]
        at += length
    return tuple(starts)


def to_json(spec: TableSpec) -> dict[str, Any]:
    """The spec as JSON-ready data; from_json gives an equal spec back."""
    return asdict(spec)


def from_json(data: dict[str, Any]) -> TableSpec:
    """The spec that to_json gave; every problem found is told at once.

    >>> spec = SparseSpec("wide", 8, OptimizerSpec("adagrad", 0.1, {"epsilon": 1e-6}))
    >>> from_json(to_json(spec)) == spec
    True
    """
    problems: list[Problem] = []
    cls = {"sparse": SparseSpec, "dense": DenseSpec}.get(str(data.get("kind")))
    if cls is None:
        raise UsageError(f"table kind is {data.get('kind')!r}", hint="sparse or dense")
    spec = _build(cls, data, f"table {data.get('name')!r}", problems)
    if not problems:
        problems = check_spec(spec)
    if problems:
        raise UsageError.of(problems)
    return spec  # type: ignore[no-any-return]  # _build returns what cls makes


def differences(one: TableSpec, other: TableSpec) -> list[tuple[str, Any, Any]]:
    """(full name, value in one, value in other) of each field in which two specs differ.

    >>> differences(SparseSpec("a", 4), SparseSpec("a", 4, OptimizerSpec("adagrad", 0.5)))
    [('optimizer.lr', 0.01, 0.5)]
    """
    a, b = _fields_of(to_json(one)), _fields_of(to_json(other))
    # Two kinds have nothing in common.
    names = ["kind"] if a["kind"] != b["kind"] else [*a, *(name for name in b if name not in a)]
    pairs = [(name, a.get(name, "not set"), b.get(name, "not set")) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _fields_of(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        is_part = isinstance(value, dict)
        found |= _fields_of(value, f"{prefix}{name}.") if is_part else {prefix + name: value}
    return found


_PARTS: dict[str, type] = {
    "optimizer": OptimizerSpec,
    "initial": InitialSpec,
    "accessor": AccessorSpec,
    "schedule": ScheduleSpec,
}


def _build(cls: type, data: dict[str, Any], where: str, problems: list[Problem]) -> Any:
    known = {f.name: f for f in fields(cls)}
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            problems.append(
                Problem(f"{where}: unknown field {name!r}", hint="one of " + ", ".join(known))
            )
        elif name in _PARTS and isinstance(value, dict):
            values[name] = _build(_PARTS[name], value, f"{where}: {name}", problems)
        else:
            values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return cls(**values)
    except TypeError as error:
        problems.append(Problem(f"{where}: {error}"))
        return None


# What a value must be, and the words for it.
_Rule = tuple[Callable[[Any], bool], str]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62


def _is_a(kind: Any) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


def _all(kind: type[Iterable[Any]], each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind) and all(map(each, value))


def _least(low: int) -> _Rule:
    return lambda value: value >= low, f"{low} or more"


def _one_of(names: Sequence[str]) -> _Rule:
    return lambda value: value in names, "one of " + ", ".join(names)


_ANY: _Rule = (lambda value: True, "")
_SHARE: _Rule = (lambda value: 0.0 < value <= 1.0, "above 0, at most 1")

# By a field's annotation.
_TYPES: dict[str, _Rule] = {
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "str": (_is_a(str), "a text"),
    "bool": (_is_a(bool), "True or False"),
    "tuple[int, ...]": (_all(tuple, _is_whole), "a tuple of whole numbers"),
    "tuple[float, ...]": (_all(tuple, _is_number), "a tuple of numbers"),
    # Which numbers, its rule says.
    "dict[str, float]": (_all(dict, _is_a(str)), "a dict of numbers"),
    **{kind.__name__: (_is_a(kind), f"{kind.__name__}(...)") for kind in _PARTS.values()},
}
_TABLE: dict[str, _Rule] = {
    "name": (
        lambda value: len(value) <= 100 and value.replace("_", "").replace(".", "").isalnum(),
        "1 to 100 letters, digits, '_' or '.'",
    ),
    "merge": _one_of(("mean", "sum")),
}
# By a field's name, of a right type.
_RANGES: dict[type, dict[str, _Rule]] = {
    InitialSpec: {"kind": _one_of(INITIALIZERS), "fan": _least(0)},
    ScheduleSpec: {
        "kind": _one_of(SCHEDULES),
        **dict.fromkeys(("every", "dim"), _least(1)),
        **dict.fromkeys(("warmup_steps", "warmup_start"), _least(0)),
    },
    OptimizerSpec: dict.fromkeys(("lr", "bound", "clip_value", "clip_norm", "l1", "l2"), _least(0)),
    AccessorSpec: {"admit_probability": _SHARE, "decay": _SHARE},
    SparseSpec: {
        **_TABLE,
        "dim": (lambda value: 1 <= value <= DIM_MAX, f"1 to {DIM_MAX}"),
        "max_rows": (lambda value: value >= 0, "0 for no limit"),
        "eviction": _one_of(EVICTIONS),
    },
    DenseSpec: {**_TABLE, "size": _least(1)},
}


def _facts(spec: Any) -> Iterator[tuple[bool, str, str]]:
    """Rules between fields, each (is it so, what is not, a hint)."""
    if isinstance(spec, ScheduleSpec):
        kind, rate, rate_is = spec.kind, spec.rate, f"rate is {spec.rate}"
        if kind == "exponential":
            # A growing one would overflow at a step that depends on the machine's patience.
            yield 0.0 < rate <= 1.0, rate_is, "exponential: above 0, at most 1"
        if kind == "cosine":
            yield 0.0 <= rate <= 1.0, rate_is, "cosine: from 0 to 1"
        if kind in ("natural_exp", "inverse_time"):
            yield rate >= 0.0, rate_is, f"{kind}: 0 or more"
        if kind == "noam":
            yield spec.warmup_steps != 0, "warmup_steps is 0", "at least 1: noam has a warm-up"
        if kind == "piecewise":
            edges, values = spec.boundaries, spec.values
            is_rising = all(low < high for low, high in pairwise((0, *edges)))
            yield is_rising, f"boundaries is {edges}", "rising whole numbers, at least 1"
            is_right = len(values) == len(edges) + 1 and min(values) >= 0.0
            wanted = f"{len(edges) + 1} factors of lr, 0 or more: one more than boundaries"
            yield is_right, f"values is {values}", wanted
    elif isinstance(spec, AccessorSpec):
        scored = spec.admit_score or spec.unlock_score or spec.delete_score
        hint = "accessor statistics=True, and push shows and clicks"
        yield spec.statistics or not scored, "scores need statistics", hint
    elif isinstance(spec, SparseSpec):
        is_right = spec.shards.bit_count() == 1 and 1 <= spec.shards <= 4096
        yield is_right, f"shards is {spec.shards}", "a power of two, at most 4096"
    elif isinstance(spec, DenseSpec):
        parts, size, shards = spec.parts, spec.size, spec.shards
        adds_up = not parts or (min(parts) >= 0 and sum(parts) == size)
        has = f"its {len(parts)} parts have {sum(parts)} elements of {size}"
        yield adds_up, has, "their lengths add up to size"
        over = f"{shards} shards of {size} elements are over {DENSE_SHARD_MAX} each"
        yield size <= max(1, shards) * DENSE_SHARD_MAX, over, "shards=0 chooses"
        is_right = shards == sum(map(dense_shards, parts)) if parts else shards.bit_count() == 1
        hint = "0 with parts, else a power of two; at most 4096 come out"
        yield is_right and 1 <= shards <= 4096, f"shards is {shards}", hint


def check_fields(spec: Any, where: str) -> list[Problem]:
    """The problems with the values of a spec, or of a part of one, each by itself and together."""
    found: list[Problem] = []
    are_typed = True
    for one in fields(spec):
        value = getattr(spec, one.name)
        is_right, words = _TYPES.get(str(one.type), _ANY)
        if not is_right(value):
            are_typed = False
        elif one.name in _PARTS:
            found += check_fields(value, f"{where}: {one.name}")
        else:
            is_right, words = _RANGES.get(type(spec), {}).get(one.name, _ANY)
        if not is_right(value):
            found.append(Problem(f"{where}: {one.name} is {value!r}", words))
    facts = _facts(spec) if are_typed else ()
    return found + [Problem(f"{where}: {what}", hint) for is_so, what, hint in facts if not is_so]


def check_spec(spec: TableSpec) -> list[Problem]:
    """The problems with a spec by itself; its rule checks the optimizer's options."""
    return check_fields(spec, f"table {spec.name!r}")
