"""Checks of a site's table: keys, kinds of values, secrets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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


def _all_are(kinds: type | tuple[type, ...], value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, kinds) for each in value)


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and _all_are((str, int, float), [*value.values()])


# Kind -> as people call it, and whether a value is of it; bool is an int.
KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "text": ("a text", lambda v: isinstance(v, (str, int, float)) and not isinstance(v, bool)),
    "int": ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool)),
    "bool": ("true or false", lambda v: isinstance(v, bool)),
    "path": ("a file's name", lambda v: isinstance(v, str)),
    "texts": ("a list of texts", lambda v: isinstance(v, str) or _all_are(str, v)),
    "table": ("a table of texts", _is_table),
    "tables": ("a list of tables", lambda v: _all_are(dict, v)),
}


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
            continue
        what, fits = KINDS[known[name].kind]
        if not fits(value) and not (name == "hosts" and _are_hosts(value)):
            yield Problem(f"{where}: {name} must be {what}, not {value!r}")


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


def _are_hosts(value: object) -> bool:
    """Return True if the value is a list of texts, or of pairs of a host and its address."""
    return isinstance(value, (list, tuple)) and all(
        isinstance(each, str) or (_all_are(str, each) and len(each) == 2) for each in value
    )
