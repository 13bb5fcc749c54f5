"""Checks of a site's table: keys, kinds of values, secrets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paddock.backends.sites.keys import BY_NAME, KEYS, keys_of
from paddock.backends.types import split_list
from paddock.command_line import nearest
from paddock.core.secrets import is_secret, without_login
from paddock.errors import Problem

SECRET_HINT = (
    "take it out of the file, and give it in the environment of the one who submits, "
    "or as the name of a Secret"
)
REFERENCES = [key.name for key in KEYS if key.is_reference]
WHAT = {
    "text": "a text", "int": "a whole number", "bool": "true or false", "path": "a file's name",
    "texts": "a list of texts", "table": "a table of texts", "tables": "a list of tables",
}  # fmt: skip


def secret_problems(table: object, where: str) -> Iterator[Problem]:
    """Yield a problem for each value that looks secret, at any depth: no such file is read.

    >>> [p.message for p in secret_problems({"a": {"password": "x"}, "identity": "k"}, "sites")]
    ['sites: a.password holds a secret']
    """
    for path, value in _leaves(table, ()):
        named = [name for name in path if is_secret(name) and name not in REFERENCES]
        login = isinstance(value, str) and without_login(value) != value
        if (named or login) and value not in ("", None):
            yield Problem(f"{where}: {'.'.join(path)} holds a secret", SECRET_HINT)


def key_problems(backend: str, table: Mapping[str, object], where: str) -> Iterator[Problem]:
    """Yield a problem for each key that the backend lacks, and each value of a wrong kind."""
    known = keys_of(backend)
    for name, value in table.items():
        if name not in known:
            others = BY_NAME[name].backends if name in BY_NAME else ()
            hint = f"it is for {', '.join(others)}" if others else nearest(name, known)
            yield Problem(f"{where}: {backend} has no key '{name}'", hint)
        elif not _fits(known[name].kind, value) and not (name == "hosts" and _are_hosts(value)):
            yield Problem(f"{where}: {name} must be {WHAT[known[name].kind]}, not {value!r}")


def from_text(kind: str, text: str) -> object:
    """Return the value of a key from the command line: ``hosts=h1;h2``.

    A text that does not fit its kind stays.

    >>> from_text("texts", "h1;h2"), from_text("int", "22"), from_text("bool", "true")
    (('h1', 'h2'), 22, True)
    """
    if kind == "texts":
        return split_list(text)
    if kind == "int" and text.isascii() and text.isdigit():
        return int(text[:18])
    if kind == "bool" and text in ("true", "false", "1", "0"):
        return text in ("true", "1")
    return text


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, (*path, str(name)))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each, path)
    else:
        yield path, value


def _fits(kind: str, value: object) -> bool:
    if kind in ("text", "path"):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return isinstance(value, str) or (kind == "text" and is_number)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "texts":
        items = value if isinstance(value, (list, tuple)) else (value,)
        return all(isinstance(each, str) for each in items)
    if kind == "table":
        return isinstance(value, dict) and all(
            isinstance(each, (str, int, float)) for each in value.values()
        )
    return isinstance(value, (list, tuple)) and all(isinstance(each, dict) for each in value)


def _are_hosts(value: object) -> bool:
    """Return True if the value is a list of texts, or of pairs of a host and its address."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(each, str)
        or (
            isinstance(each, (list, tuple))
            and len(each) == 2
            and all(isinstance(e, str) for e in each)
        )
        for each in value
    )
