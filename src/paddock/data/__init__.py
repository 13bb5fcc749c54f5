"""Training data: split it, check it, deal it out to workers, and read it once."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.data.streams import DataStream, stream

__all__ = ["DataStream", "stream"]


def __dir__() -> list[str]:
    """The public names; nothing is imported for it."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Public names, imported when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paddock.data import streams

    return getattr(streams, name)
