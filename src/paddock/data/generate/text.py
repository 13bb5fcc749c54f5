"""Lines of text from columns of numbers, a whole array at a time. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.bytes_]
Column = tuple[Tokens, NDArray[Any]]


def tokens(words: Iterable[str]) -> Tokens:
    """A table of words, by number: (words,).

    >>> tokens(["a", "bc"])
    array([b'a', b'bc'], dtype='|S2')
    """
    return np.array([word.encode() for word in words], dtype=np.bytes_)


def rows_text(columns: Sequence[Column]) -> bytes:
    """Rows of text: the word of each column's table that its numbers say, one after the other.

    >>> table = tokens(["no\\n", "yes\\n"])
    >>> rows_text([(tokens(["a ", "b "]), np.array([0, 1])), (table, np.array([1, 0]))])
    b'a yes\\nb no\\n'
    """
    rows = len(columns[0][1])
    width = sum(table.itemsize for table, _ in columns)
    text = np.empty((rows, width), np.uint8)
    at = 0
    for table, numbers in columns:
        letters = table.view(np.uint8).reshape(len(table), table.itemsize)
        text[:, at : at + table.itemsize] = letters[numbers]
        at += table.itemsize
    # A table pads its shorter words with zeros.
    found: bytes = text[text != 0].tobytes()
    return found
