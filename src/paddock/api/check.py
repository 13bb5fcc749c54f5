"""Check the target and the keywords of launch, submit and sweep; all problems at once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from types import CodeType

from paddock.errors import Problem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_either(value: Any) -> bool:
    return _is_text(value) or _is_whole(value)


def _is_list(value: Any, is_right: Callable[[Any], bool] = _is_text) -> bool:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return is_list and all(map(is_right, value))


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _is_run_id(value: Any) -> bool:
    return _is_text(value) and (value == "" or RUN_ID.fullmatch(value) is not None)


# Keyword -> is it right, what it has to be, an example. None stands for the default.
KINDS: dict[str, tuple[Callable[[Any], bool], str, str]] = {
    "nproc": (_is_either, "a number of processes", "nproc=2"),
    "nodes": (_is_whole, "a number of nodes", "nodes=2"),
    "devices": (
        lambda it: _is_text(it) or _is_list(it, _is_either), "numbers of devices", "devices=[0, 1]"
    ),
    "hosts": (lambda it: _is_text(it) or _is_list(it), "names of hosts", "hosts=['n1', 'n2']"),
    "max_restarts": (_is_either, "a number of restarts", "max_restarts=1"),
    "timeout": (_is_seconds, "a number of seconds", "timeout=3600"),
    "warm": (lambda it: isinstance(it, (bool, str)), "True, False or a text", "warm=True"),
    "name": (_is_text, "a text", "name='train'"),
    "run_id": (_is_run_id, "letters, digits, dots and dashes", "run_id='train-1'"),
    "site": (_is_text, "the name of a site", "site='slurm'"),
    "package": (lambda it: isinstance(it, (str, os.PathLike)), "a directory", "package='src'"),
    "python": (_is_text, "the path of an interpreter", "python='/usr/bin/python3'"),
    "flags": (_is_list, "a list of texts", "flags=['--grace', '5s']"),
    "result_bytes_max": (
        lambda it: _is_whole(it) and it > 0, "a number above 0", "result_bytes_max=1 << 30"
    ),
    "at_once": (_is_whole, "a number of runs", "at_once=4"),
    "retry_lost": (_is_whole, "a number of tries", "retry_lost=1"),
}  # fmt: skip


def wrong_keywords(given: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the kinds of these keywords; others are left alone."""
    found = []
    for key, value in given.items():
        if key in KINDS and value is not None and not KINDS[key][0](value):
            _, right, example = KINDS[key]
            is_short = isinstance(value, (str, int, float)) and len(repr(value)) < 80
            shown = f"={value!r}:" if is_short else f" has the type {type(value).__name__}:"
            found.append(Problem(f"{key}{shown} not {right}", example))
    return found + _wrong_variables(given.get("env"))


def _wrong_variables(env: Any) -> list[Problem]:
    if env is not None and not isinstance(env, Mapping):
        what = f"env has the type {type(env).__name__}: not names and texts"
        return [Problem(what, "env={'NCCL_DEBUG': 'INFO'}")]
    found = []
    for name, value in (env or {}).items():  # a value may be a secret: it is not shown
        if not _is_text(name) or not name or "=" in name or not _is_word(name):
            found.append(Problem(f"env: {name!r:.80} is not the name of a variable"))
        elif not _is_text(value):
            hint = f"env={{'{name}': str(...)}}"
            found.append(
                Problem(f"env: {name} has the type {type(value).__name__}: not a text", hint)
            )
        elif not _is_word(value):
            found.append(Problem(f"env: {name} has characters that no variable can have"))
    return found


def _is_word(text: str) -> bool:
    """Return True if the system takes a text: it has no NUL and no half of a surrogate pair."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def wrong_target(target: Any, args: Sequence[object]) -> list[Problem]:
    """Return what is wrong with a target, and with the arguments of one that is no function."""
    if callable(target):
        return _wrong_function(target)
    if not _is_text(target) and not _is_list(target, lambda _: True):
        what = f"the target has the type {type(target).__name__}: not a function, a path or words"
        return [Problem(what, "paddock.launch('train.py')")]
    words = [target] if _is_text(target) else [*map(str, target)]
    if not words or not words[0]:
        return [Problem("the target is empty", "paddock.launch('train.py')")]
    return [
        Problem(f"{word!r:.80} has characters that no argument can have")
        for word in (*words, *map(str, args))
        if not _is_word(word)
    ]


def _wrong_function(function: Callable[..., object]) -> list[Problem]:
    from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR

    from paddock.api.function import inner, name_of

    code = getattr(inner(function), "__code__", None)
    flags = code.co_flags if isinstance(code, CodeType) else 0
    if not flags & (CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR):
        return []
    name = name_of(function)
    kind, runs = ("an async", "asyncio.run") if flags & CO_COROUTINE else ("a generator", "list")
    what = f"{name} is {kind} function: its call does not run it"
    return [Problem(what, f"paddock.launch(lambda: {runs}({name}()))")]
