"""Dataclasses out of JSON, by the types of their fields. Pure.

There tuples and NamedTuples are lists, and the keys of dicts texts. Fields that are not known here
are left out: a newer side may say more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from functools import lru_cache
from types import UnionType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from paddock.ps.wire.errors import RequestError

if TYPE_CHECKING:
    from paddock.ps.xxh3 import Buffer

_hints: Callable[[Any], dict[str, Any]] = lru_cache(get_type_hints)


def to_body(value: Any) -> bytes:
    """A dataclass as a frame's body."""
    return json.dumps(asdict(value)).encode()


def to_json(value: Any) -> dict[str, Any]:
    """A dataclass as it is read again from JSON: with lists, and with texts for keys."""
    data: dict[str, Any] = json.loads(to_body(value))
    return data


def value_from(kind: Any, data: Any, where: str = "it") -> Any:
    """The value of type `kind` that `json.loads` or `asdict` gave. Raises ValueError.

    >>> value_from(dict[int, tuple[str, ...]], {"3": ["a", "b"]})
    {3: ('a', 'b')}
    """
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(data, dict):
        missing = _hints(kind).keys() - data.keys()
        if missing:
            raise ValueError(f"{where} has no {', '.join(sorted(missing))}")
        return cast(Any, kind)(**{n: value_from(t, data[n], n) for n, t in _hints(kind).items()})
    if isinstance(kind, type) and hasattr(kind, "_fields") and isinstance(data, list | tuple):
        pairs = zip(_hints(kind).items(), data, strict=True)  # a NamedTuple
        return kind(*(value_from(t, one, n) for (n, t), one in pairs))
    if origin in (tuple, list) and isinstance(data, list | tuple):
        kinds = inner[:1] * len(data) if origin is list or inner[-1] is ... else inner
        if len(kinds) == len(data):
            return origin(value_from(t, one, where) for t, one in zip(kinds, data, strict=True))
    if origin in (dict, Mapping) and isinstance(data, dict):
        return {inner[0](key): value_from(inner[1], one, where) for key, one in data.items()}
    if origin is UnionType:  # `T | None`
        return None if data is None else value_from(inner[0], data, where)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind in (Any, object) or type(data) is kind:
        return data
    if kind is float and type(data) is int:
        return float(data)
    raise ValueError(f"{where} is {data!r:.40}")


def body_from(kind: Any, body: Buffer, what: str, hint: str = "") -> Any:
    """The value in a frame's body. what: should be in it. Raises RequestError."""
    try:
        return value_from(kind, json.loads(bytes(body)))
    except (ValueError, RecursionError) as error:
        raise RequestError("usage", f"this is no {what}: {error}", hint=hint) from error
