"""Sentences of a small language: the next word depends on the two before. No I/O here.

Each word is of one of 16 classes. The classes of the two words before choose 24 words, the first
of which is the most likely; now and then the next word is any. The entropy of a word is known, so
no model's loss can be below it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.data.generate.ceiling import Maker, mixed, rows_text, tokens

VOCAB, VOCAB_MAX = 2000, 1_000_000
CLASSES = 16
LIKELY = 24
ANY_SHARE = 0.02
SENTENCE = 20  # words
GRAM = 5  # of the word2vec demo: four words and the next
HIDDEN_SEED = 1913  # Markov's chain of letters


class Sentences(Maker):
    """Makes lines: a sentence of words, or five consecutive ids of one."""

    # Or five words of a sentence as ids, with commas, as prepare.py writes them.
    forms = ("text", "ngram")
    part_examples = 1 << 14
    vocabs = VOCAB, LIKELY, VOCAB_MAX, "words of the language"

    def __init__(self, form: str, vocab: int | None) -> None:
        super().__init__(form, vocab)
        rng = np.random.default_rng(HIDDEN_SEED)
        pairs = CLASSES * CLASSES
        # Distinct in a row: one step through all words from a drawn one, of a length that fits.
        step = next(i for i in range(self.vocab // 3 + 1, self.vocab) if np.gcd(i, self.vocab) == 1)
        first = rng.integers(0, self.vocab, (pairs, 1))
        self._likely = (first + np.arange(LIKELY) * step) % self.vocab
        numbers = np.arange(self.vocab, dtype=np.uint64)
        self._class_of = (mixed(numbers) % np.uint64(CLASSES)).astype(np.int64)
        shares = 1 / np.arange(1, LIKELY + 1)
        self._shares = shares / shares.sum() * (1 - ANY_SHARE)

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The lines of so many examples."""
        length = SENTENCE if self.form == "text" else GRAM
        ids = self._sentences(rng, examples, SENTENCE)
        if self.form == "ngram":
            start = rng.integers(0, SENTENCE - GRAM + 1, (examples, 1))
            ids = np.take_along_axis(ids, start + np.arange(GRAM), axis=1)
        sign, name = (" ", "w{}") if self.form == "text" else (",", "{}")
        inner = tokens(name.format(i) + sign for i in range(self.vocab))
        last = tokens(name.format(i) + "\n" for i in range(self.vocab))
        return rows_text([(last if i + 1 == length else inner, ids[:, i]) for i in range(length)])

    def _sentences(self, rng: np.random.Generator, count: int, length: int) -> NDArray[np.int64]:
        ids = np.zeros((count, length), np.int64)
        before = last = np.zeros(count, np.int64)  # classes; a sentence begins after class 0, 0
        ends = np.cumsum(self._shares)
        for at in range(length):
            draw = rng.random(count)
            rank = np.minimum(np.searchsorted(ends, draw, "right"), LIKELY - 1)
            likely = self._likely[before * CLASSES + last, rank]
            any_word = rng.integers(0, self.vocab, count)
            ids[:, at] = np.where(draw < ends[-1], likely, any_word)
            before, last = last, self._class_of[ids[:, at]]
        return ids

    def entropy(self) -> float:
        """Nats of a word, the two before it known."""
        any_share = ANY_SHARE / self.vocab
        likely = self._shares + any_share
        others = self.vocab - LIKELY
        return float(-(likely * np.log(likely)).sum() - others * any_share * np.log(any_share))

    def facts(self) -> dict[str, object]:
        """The facts known of all examples made, for the manifest."""
        most = float(self._shares[0]) + ANY_SHARE / self.vocab
        return {
            "vocab": self.vocab,
            "entropy_per_word": round(self.entropy(), 5),
            "best_accuracy": round(most, 5),
            "log_vocab": round(float(np.log(self.vocab)), 5),
        }
