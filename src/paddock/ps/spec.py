"""What a table is: the values a trainer declares and every server agrees on. No I/O here.

A spec is plain data: it travels as JSON, is kept in checkpoints, and two trainers that declare
the same table must declare equal specs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from math import isfinite
from typing import Any, Literal

from paddock.errors import Problem, UsageError

DIM_MAX = 1024
# Each table is cut into this many shards, dealt to the servers in contiguous ranges. The number
# is part of a checkpoint; the number of servers is not.
SHARDS = 64
INITIALIZERS = ("uniform", "normal", "zeros", "constant", "xavier")
SCHEDULES = ("constant", "exponential", "natural_exp", "noam", "inverse_time", "piecewise")
EVICTIONS = ("refuse", "lru")


@dataclass(frozen=True, slots=True)
class InitialSpec:
    """First value of a row: a pure function of (seed, key, column), so of no server and no order.

    scale: half-width of uniform, standard deviation of normal, the value of constant; xavier
    takes it from fan_in + fan_out (dim when 0).
    """

    kind: str = "uniform"
    scale: float = 1e-3
    seed: int = 0
    fan: int = 0


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """Learning rate as a function of the global step, times the optimizer's own.

    constant: 1. exponential: rate ** (step / every). natural_exp: exp(-rate * step / every).
    inverse_time: 1 / (1 + rate * step / every). staircase floors step / every.
    noam: dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5).
    piecewise: values[i] before boundaries[i], values[-1] after the last.
    warmup_steps (all but noam): linear from warmup_start to the schedule.
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
    """Which rule updates a table. options: the optimizer's own numbers (its file lists them).

    bound: weights are kept in [-bound, bound] after each update; 0 is no bound.
    clip_value: each element of a gradient; clip_norm: each row's gradient (2-norm); 0 is none.
    l1, l2: added to the gradient as l1 * sign(w) + l2 * w (coupled, as in torch's weight_decay).
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

    score = (show - click) * nonclick_coeff + click * click_coeff
    admit_*: a key gets a row only after this many pushes / with this probability / at this score;
    before, pulls see its initial value and pushes only count.
    unlock_score: the columns from unlock_from on stay at their initial value until this score.
    ttl_seconds: shrink drops rows not pushed for so long. decay: shrink multiplies show and click
    by it. delete_score: shrink drops rows below it.
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
    """A table of rows by int64 key, made when first pushed. merge: how a step's contributions add.

    max_rows: 0 is no limit but the server's memory limit; eviction says what happens at it.
    """

    name: str
    dim: int
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
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

    A shard is updated as a whole. shards: 0 chooses a power of two that makes shards of about
    64 Ki elements: a small vector is one shard, on one server. parts: lengths of the pieces, such
    as a model's parameters, that are pushed together or left out; each is cut by itself.
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
        if self.shards == 0 and self.size > 0:
            shards = sum(map(dense_shards, self.parts)) or dense_shards(self.size)
            object.__setattr__(self, "shards", shards)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each shard starts, in elements, and where the last one stops.

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
    shards = min(1, size)
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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62


# A field's annotation -> what it must be, and the words for it.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "tuple[int, ...]": (
        lambda value: isinstance(value, tuple) and all(map(_is_whole, value)),
        "a tuple of whole numbers",
    ),
    "tuple[float, ...]": (
        lambda value: isinstance(value, tuple) and all(map(_is_number, value)),
        "a tuple of numbers",
    ),
    "dict[str, float]": (
        lambda value: (
            isinstance(value, dict)
            and all(isinstance(n, str) and isinstance(v, (int, float)) for n, v in value.items())
        ),
        "a dict of numbers",
    ),
}


def _wrong_types(part: Any, where: str) -> list[Problem]:
    """A problem for each field whose value is of another type than it says, inner specs too."""
    found: list[Problem] = []
    for one in fields(part):
        value = getattr(part, one.name)
        if one.name in _PARTS:
            if isinstance(value, _PARTS[one.name]):
                found += _wrong_types(value, f"{where}: {one.name}")
            else:
                wanted = _PARTS[one.name].__name__
                found.append(Problem(f"{where}: {one.name} is {value!r}", f"{wanted}(...)"))
        elif one.type in _KINDS and not _KINDS[str(one.type)][0](value):
            found.append(Problem(f"{where}: {one.name} is {value!r}", _KINDS[str(one.type)][1]))
    return found


def check_spec(spec: TableSpec) -> list[Problem]:
    """What is wrong with a spec by itself; the optimizer's options are checked by its table."""
    where = f"table {spec.name!r}"
    found = _wrong_types(spec, where)
    if found:
        return found

    def need(fact: bool, message: str, hint: str = "") -> None:
        if not fact:
            found.append(Problem(f"{where}: {message}", hint))

    need(
        0 < len(spec.name) <= 100 and spec.name.replace("_", "").replace(".", "").isalnum(),
        "its name must be 1 to 100 letters, digits, '_' or '.'",
    )
    if isinstance(spec, SparseSpec):
        need(1 <= spec.dim <= DIM_MAX, f"dim is {spec.dim}", f"1 to {DIM_MAX}")
        need(spec.eviction in EVICTIONS, f"eviction {spec.eviction!r}", " or ".join(EVICTIONS))
        need(spec.max_rows >= 0, f"max_rows is {spec.max_rows}", "0 for no limit")
        accessor = spec.accessor
        need(
            0.0 < accessor.admit_probability <= 1.0,
            f"admit_probability is {accessor.admit_probability}",
            "above 0, at most 1",
        )
        need(0.0 < accessor.decay <= 1.0, f"decay is {accessor.decay}", "above 0, at most 1")
        scored = accessor.admit_score or accessor.unlock_score or accessor.delete_score
        need(
            accessor.statistics or not scored,
            "scores need statistics",
            "accessor statistics=True, and push shows and clicks",
        )
    else:
        need(spec.size >= 1, f"size is {spec.size}", "at least 1")
        need(
            not spec.parts or (min(spec.parts) >= 0 and sum(spec.parts) == spec.size),
            f"its {len(spec.parts)} parts have {sum(spec.parts)} elements of {spec.size}",
            "their lengths add up to size",
        )
        need(
            spec.size <= max(1, spec.shards) * DENSE_SHARD_MAX,
            f"{spec.shards} shards of {spec.size} elements are over {DENSE_SHARD_MAX} each",
            "shards=0 chooses",
        )
    need(spec.merge in ("mean", "sum"), f"merge is {spec.merge!r}", "mean or sum")
    parts = () if isinstance(spec, SparseSpec) else spec.parts
    is_right = spec.shards & (spec.shards - 1) == 0
    if parts:
        is_right = spec.shards == sum(map(dense_shards, parts))
    need(
        1 <= spec.shards <= 4096 and is_right,
        f"shards is {spec.shards}",
        "0 with parts, else a power of two; at most 4096 come out",
    )
    need(
        spec.initial.kind in INITIALIZERS,
        f"initializer {spec.initial.kind!r} is unknown",
        "one of " + ", ".join(INITIALIZERS),
    )
    schedule = spec.optimizer.schedule
    need(
        schedule.kind in SCHEDULES,
        f"schedule {schedule.kind!r} is unknown",
        "one of " + ", ".join(SCHEDULES),
    )
    if schedule.kind == "piecewise":
        need(
            len(schedule.values) == len(schedule.boundaries) + 1,
            f"piecewise has {len(schedule.boundaries)} boundaries and "
            f"{len(schedule.values)} values",
            "one value more than boundaries",
        )
    need(spec.initial.fan >= 0, f"initializer fan is {spec.initial.fan}", "0 or more")
    need(
        schedule.dim >= 1 and schedule.warmup_steps >= 0,
        f"schedule dim is {schedule.dim}, warmup_steps is {schedule.warmup_steps}",
        "dim 1 or more, warmup_steps 0 or more",
    )
    need(schedule.every >= 1, f"schedule every is {schedule.every}", "at least 1")
    need(spec.optimizer.lr >= 0.0, f"lr is {spec.optimizer.lr}", "0 or more")
    return found
