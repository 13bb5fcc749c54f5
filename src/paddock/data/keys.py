"""The value of a line's key: a field by its number, or a slot by its name. Pure."""

from __future__ import annotations

from collections.abc import Callable

SEPARATORS = (b"\t", b",", b" ")

Key = Callable[[bytes], bytes | None]


def key_of(column: str, first_line: bytes) -> Key:
    """A function from a line to its value, None for a line without one.

    column: a field's number from 1, or a slot's name, with ':' behind it where it is a number.
    first_line: says what separates fields: tab, else comma, else blank.

    >>> key_of("2", b"1,ann,x")(b"0,bob,y"), key_of("7:", b"")(b"click:0 7:12 7:13 8:1")
    (b'bob', b'12 13')
    """
    if not column.isdecimal():
        return _slot(column.removesuffix(":").encode() + b":")
    separator = next((sign for sign in SEPARATORS if sign in first_line), b" ")
    place = int(column) - 1

    def field(line: bytes) -> bytes | None:
        fields = line.rstrip(b"\r").split(separator, place + 1)
        return fields[place] if 0 <= place < len(fields) else None

    return field


def _slot(start: bytes) -> Key:
    def values(line: bytes) -> bytes | None:
        found = [word[len(start) :] for word in line.split() if word.startswith(start)]
        return b" ".join(found) if found else None

    return values
