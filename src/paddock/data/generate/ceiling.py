"""All kinds share a base class, the best score that a model can have, and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError

BUCKETS = 1 << 16
ODDS_MAX = 16.0

Floats = NDArray[np.float64]


class Maker:
    """Makes the examples of one kind, in one of its forms, and knows the best score on them.

    ending: of the files' names. part_examples: made at a time; 0: all of a file. vocabs: the
    default, the least and the most of `--vocab`, and what it counts; None where there is none.
    """

    forms: tuple[str, ...] = ("slots",)
    ending = ".txt"
    part_examples = 1 << 15
    vocabs: tuple[int, int, int, str] | None = None

    def __init__(self, form: str, vocab: int | None) -> None:
        self.form, self.vocab, self._ceiling = form, 0, Ceiling()
        if self.vocabs is not None:
            default, least, most, what = self.vocabs
            self.vocab = default if vocab is None else vocab
            if not least <= self.vocab <= most:
                message = f"--vocab is {vocab}, the limits are {least} and {most}"
                raise UsageError(message, hint=f"it is the number of {what}")
        elif vocab is not None:
            raise UsageError("--vocab is for criteo, interests and words", hint="leave it out")

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The bytes of so many examples."""
        raise NotImplementedError

    def draw_labels(self, rng: np.random.Generator, odds: Floats) -> NDArray[np.int64]:
        """Labels, 0 or 1, (n,) int64, of examples with these log-odds, (n,) float64; counted."""
        label = (rng.random(len(odds)) < 1 / (1 + np.exp(-odds))).astype(np.int64)
        self._ceiling.add(odds, label)
        return label

    def facts(self) -> dict[str, object]:
        """The facts known of all examples made, for the manifest."""
        own = {"vocab": self.vocab} if self.vocabs is not None else {}
        return {**own, **self._ceiling.facts()}


class Ceiling:
    """AUC and log loss of the hidden probabilities against the labels that were drawn.

    The log-odds are counted in buckets of 1/2048; the AUC is exact to about 1e-4 of that of one's
    own sort, for any number of examples.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((2, BUCKETS), np.int64)
        self._loss = 0.0

    def add(self, odds: Floats, label: NDArray[np.int64]) -> None:
        """Count examples. odds: (n,) log-odds of label 1. label: (n,) 0 or 1."""
        scaled = (odds + ODDS_MAX) * (BUCKETS / (2 * ODDS_MAX))
        buckets = np.clip(scaled, 0, BUCKETS - 1).astype(np.int64)
        for value in (0, 1):
            self._counts[value] += np.bincount(buckets[label == value], minlength=BUCKETS)
        self._loss += float(np.logaddexp(0, np.where(label == 1, -odds, odds)).sum())

    def facts(self) -> dict[str, object]:
        """bayes_auc, None without both labels; bayes_loss, nats an example; share of label 1."""
        others, clicks = self._counts.astype(np.float64)
        total = others.sum(), clicks.sum()
        below = np.cumsum(others) - others / 2
        pairs = total[0] * total[1]
        return {
            "bayes_auc": round(float(below @ clicks / pairs), 5) if pairs else None,
            "bayes_loss": round(self._loss / max(1.0, float(sum(total))), 5),
            "label_share": round(float(total[1] / max(1.0, sum(total))), 5),
        }


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A well mixed uint64 for each (the finalizer of splitmix64, Steele et al. 2014)."""
    x = numbers + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return found


def hidden(kind: int, column: int, count: int) -> NDArray[np.uint64]:
    """A hash of each value 0 to count - 1 of a column, (count,) uint64; no seed changes it."""
    return mixed(np.arange(count, dtype=np.uint64) + np.uint64((kind << 56) | (column << 40)))


def hidden_weights(kind: int, column: int, count: int) -> Floats:
    """Each column value's weight in the log-odds: (count,) float64, uniform in [-1, 1)."""
    shares: Floats = (hidden(kind, column, count) >> np.uint64(11)).astype(np.float64) / (1 << 52)
    return shares - 1.0


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
