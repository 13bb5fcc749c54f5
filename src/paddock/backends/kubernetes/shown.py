"""An object as YAML, each line with its path in the object. Pure.

Plans are written with this only, so that every line can have its reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*")
# YAML 1.1 takes these for something else than text.
RESERVED = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


def yaml_lines(what: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return (path, line) of each line; entries of lists have the path of their list and [].

    >>> for path, line in yaml_lines({"spec": {"args": ["a b"], "size": 2}}): print(path, "|", line)
    spec | spec:
    spec.args |   args:
    spec.args[] |     - "a b"
    spec.size |   size: 2
    """
    return list(_table(what, "", ""))


def _table(what: Mapping[str, object], indent: str, path: str) -> Iterator[tuple[str, str]]:
    for key, part in what.items():
        here = f"{path}.{key}" if path else key
        yield from _entry(f"{indent}{_scalar(key)}:", part, indent, here)


def _entry(head: str, part: object, indent: str, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(part, dict) and part:
        yield path, head
        yield from _table(part, indent + "  ", path)
    elif isinstance(part, list) and part:
        yield path, head
        for one in part:
            yield from _item(one, indent + "  ", f"{path}[]")
    elif isinstance(part, str) and _is_block(part):
        yield path, f"{head} |"
        for line in part[:-1].split("\n"):
            yield path, f"{indent}  {line}".rstrip()
    else:
        yield path, f"{head} {_scalar(part)}"


def _item(one: object, indent: str, path: str) -> Iterator[tuple[str, str]]:
    if not (isinstance(one, dict) and one):
        yield from _entry(f"{indent}-", one, indent, path)
        return
    for number, (where, line) in enumerate(_table(one, indent + "  ", path)):
        yield where, f"{indent}- {line[len(indent) + 2 :]}" if number == 0 else line


def _is_block(text: str) -> bool:
    """Return True if a text is readable, and survives, as a YAML block of lines below a bar."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.strip() and line for line in lines[:-1])
    return len(lines) > 2 and not lines[-1] and plain


def _scalar(what: object) -> str:
    if not isinstance(what, str):
        return json.dumps(what)
    if PLAIN.fullmatch(what) and what.lower() not in RESERVED:
        return what
    quoted = json.dumps(what, ensure_ascii=False)
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in quoted)


def _escaped(code: int) -> str:
    """Return a character's escape in YAML, where JSON's surrogate pairs would be two characters."""
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
