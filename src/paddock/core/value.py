"""Frozen values with named fields, at a cost the launch path can afford.

To the type checker ``@value`` makes a frozen dataclass. At run time it is this file:
importing dataclasses and building 25 of them costs about 20 ms, twice what one rank needs to
start (docs/decisions/0001-light-values.md). A test holds both to the same behaviour.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from dataclasses import replace
    from typing import TypeVar

    from typing_extensions import dataclass_transform

    _T = TypeVar("_T")

    # What a field of a message may hold; agent/transport/wire.py has the ranges.
    Word = str  # of an environment or a line for people: printable, no space
    WordOrNone = str  # a Word, or ""
    Port = int  # 0: none
    OpenPort = int
    Count = int
    AttemptNumber = int  # -1: before the first
    NodeRank = int
    RankOrNone = int  # a rank; -1 of a node
    ExitCode = int
    SignalNumber = int  # 0: none
    Nanoseconds = int  # of a clock: any sign
    Seconds = float  # not negative, finite

    @dataclass_transform(frozen_default=True)
    def value(cls: type[_T]) -> type[_T]:
        """The type checker's view of @value."""
        ...

else:

    def value(cls):
        """Make the annotated names of a class the fields of a frozen value.

        >>> @value
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(1)
        Point(x=1, y=0)
        >>> replace(Point(1), y=2) == Point(1, 2)
        True
        """
        names = tuple(cls.__dict__.get("__annotations__", ()))
        defaults = {n: cls.__dict__[n] for n in names if n in cls.__dict__}
        required = tuple(n for n in names if n not in defaults)
        known = frozenset(names)

        def __init__(self, *args, **kwargs):
            if len(args) > len(names):
                raise TypeError(
                    f"{cls.__name__} takes at most {len(names)} values, got {len(args)}"
                )
            fields = self.__dict__
            fields.update(defaults)
            fields.update(zip(names, args, strict=False))
            if kwargs:
                for name in kwargs:
                    if name not in known or name in names[: len(args)]:
                        raise TypeError(
                            f"{cls.__name__} got an unexpected or doubled field {name!r}"
                        )
                fields.update(kwargs)
            if len(fields) != len(names):
                missing = [n for n in required if n not in fields]
                raise TypeError(f"{cls.__name__} needs {', '.join(missing)}")

        def __setattr__(self, name, _new):
            raise AttributeError(f"cannot assign to field {name!r}: values are frozen")

        def __delattr__(self, name):
            raise AttributeError(f"cannot delete field {name!r}: values are frozen")

        def __eq__(self, other):
            if other.__class__ is not self.__class__:
                return NotImplemented
            mine, theirs = self.__dict__, other.__dict__
            return all(mine[n] == theirs[n] for n in names)

        def __hash__(self):
            return hash(tuple(self.__dict__[n] for n in names))

        def __repr__(self):
            inside = ", ".join(f"{n}={self.__dict__[n]!r}" for n in names)
            return f"{cls.__qualname__}({inside})"

        cls.__init__ = __init__
        cls.__setattr__ = __setattr__
        cls.__delattr__ = __delattr__
        if "__eq__" not in cls.__dict__:
            cls.__eq__, cls.__hash__ = __eq__, __hash__
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = __repr__
        cls.__match_args__ = names
        cls._fields = names
        return cls

    def replace(obj, **changes):
        """Return a copy of a value with some fields changed."""
        return obj.__class__(**{**obj.__dict__, **changes})


def fields_of(obj: object) -> Iterator[tuple[str, object]]:
    """Yield (name, content) of a value's fields, in the order they were declared."""
    for name in obj.__class__.__annotations__:
        yield name, getattr(obj, name)


__all__ = ["fields_of", "replace", "value"]
