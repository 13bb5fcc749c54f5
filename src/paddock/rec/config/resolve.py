"""From the words of a command to a Recipe."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.errors import UsageError
from paddock.rec.settings import Recipe


def resolve(argv: Sequence[str]) -> Recipe:
    """argv: -m CONFIG [-b BACKEND] [-o key=value]...; raises UsageError with all problems."""
    raise UsageError(f"no config.yaml is understood yet: {list(argv)}")
