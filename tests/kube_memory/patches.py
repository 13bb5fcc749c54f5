"""The three kinds of patch, on JSON documents. Pure: what is given is not changed.

Sources: RFC 7386 (merge), RFC 6902 (json),
https://kubernetes.io/docs/reference/using-api/server-side-apply/ (apply).
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PatchError(ValueError):
    """A json patch that does not fit the document."""


def merged(target: Any, change: Any) -> Any:
    """target with change merged into it; null removes.

    >>> merged({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def applied(target: Any, last: Any, now: Any) -> Any:
    """target after an apply: what is given is set, what the last one gave and this does not goes.

    Simpler than the real one: lists are whole values (the real one merges those whose schema names
    keys, as containers or conditions), other managers' fields are never in the way (force), and a
    field that two managers set is removed by either.

    >>> applied({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}, {"a": 4})
    {'a': 4, 'c': 3}
    """
    if not isinstance(now, dict):
        return copy.deepcopy(now)
    result = dict(target) if isinstance(target, dict) else {}
    before = last if isinstance(last, dict) else {}
    for name in before:
        if name not in now:
            result = _without(result, name, before[name])
    for name, value in now.items():
        result[name] = applied(result.get(name), before.get(name), value)
    return result


def _without(target: dict[str, Any], name: str, last: Any) -> dict[str, Any]:
    """target without what was applied under that name; fields of others stay."""
    value = target.get(name)
    result = {key: kept for key, kept in target.items() if key != name}
    if isinstance(last, dict) and isinstance(value, dict):
        for inner in last:
            value = _without(value, inner, last[inner])
        if value:
            result[name] = value
    return result


def json_patched(target: Any, steps: Sequence[Mapping[str, Any]]) -> Any:
    """target after the steps of a json patch. Raises PatchError when one does not fit.

    >>> json_patched({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}])
    {'a': [1, 2]}
    """
    document = copy.deepcopy(target)
    for step in steps:
        document = _step(document, step)
    return document


def _step(document: Any, step: Mapping[str, Any]) -> Any:
    does, path = str(step.get("op")), _tokens(str(step.get("path", "")))
    if does in ("move", "copy"):
        source = _tokens(str(step.get("from", "")))
        value = copy.deepcopy(_at(document, source))
        if does == "move":
            document = _changed(document, source, "remove", None)
        return _changed(document, path, "add", value)
    if does == "test":
        if _at(document, path) != step.get("value"):
            raise PatchError(f"testing value {step.get('path')} failed")
        return document
    if does not in ("add", "remove", "replace"):
        raise PatchError(f"unexpected kind: {does}")
    return _changed(document, path, does, copy.deepcopy(step.get("value")))


def _tokens(pointer: str) -> list[str]:
    """The steps of a JSON pointer (RFC 6901)."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _at(document: Any, path: list[str]) -> Any:
    for token in path:
        if isinstance(document, dict) and token in document:
            document = document[token]
        elif isinstance(document, list) and token.isdigit() and int(token) < len(document):
            document = document[int(token)]
        else:
            raise PatchError(f"path /{'/'.join(path)} is missing")
    return document


def _changed(document: Any, path: list[str], does: str, value: Any) -> Any:
    if not path:
        return value
    parent, token = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        end = len(parent) - (does != "add")
        place = len(parent) if token == "-" else int(token) if token.isdigit() else -1
        if not 0 <= place <= end:
            raise PatchError(f"index {token} is out of bounds")
        if does == "add":
            parent.insert(place, value)
        elif does == "remove":
            del parent[place]
        else:
            parent[place] = value
    elif isinstance(parent, dict):
        if does != "add" and token not in parent:
            raise PatchError(f"key {token} is missing")
        if does == "remove":
            del parent[token]
        else:
            parent[token] = value
    else:
        raise PatchError(f"path /{'/'.join(path)} is missing")
    return document
