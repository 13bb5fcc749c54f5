"""The status of a job as a merge patch: what differs, and whether anything does. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def canonical(value: object) -> object:
    """The value as the API server would give it back: no nulls in objects, lists of plain values.

    >>> canonical({"a": None, "b": ({"c": 1, "d": None},)})
    {'b': [{'c': 1}]}
    """
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    return value


def merge_change(old: object, new: object) -> object:
    """The merge patch (RFC 7386) that makes ``old`` into ``new``; {} when they are equal.

    Both canonical. Lists are replaced as a whole.

    >>> merge_change({"phase": "Pending", "ps": {"pending": 1}}, {"ps": {"running": 1}})
    {'ps': {'running': 1, 'pending': None}, 'phase': None}
    """
    if not isinstance(new, dict):
        return new
    if not isinstance(old, dict):
        old = {}
    change: dict[str, object] = {}
    for name, value in new.items():
        if name not in old:
            change[name] = value
        elif old[name] != value:
            change[name] = merge_change(old[name], value)
    for name in old:
        if name not in new:
            change[name] = None
    return change
