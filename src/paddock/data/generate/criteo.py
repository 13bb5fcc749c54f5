"""Clicks in the shape of Criteo's: 13 numbers, 26 categories, a label. No I/O here.

A hidden logistic model decides who clicks: each category has a weight, the numbers have
coefficients, and a few pairs of categories have weights of their own, which only a model with
crosses can learn. It is the same for every seed: another seed gives other examples of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.generate.ceiling import (
    Maker,
    Tokens,
    hidden,
    hidden_weights,
    rows_text,
    tokens,
)

KIND = 1
SLOTS = 26
VOCAB = 1000
# All ids of all slots lie below PaddleRec's 1000001 rows, 0 is for padding.
VOCAB_MAX = 1_000_000 // SLOTS
# How PaddleRec's Criteo readers make numbers of columns 1 to 13: (x - min) / diff.
MINS = (0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DIFFS = (20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50)
NUMBERS = len(DIFFS)
# Log-normal, as shares of diff; cut off so that a table holds the text of every value.
MEDIAN, SIGMA, SHARE_MAX = 0.25, 0.8, 3.0
MISSING_SHARE = 0.04
BIAS = -1.2
# Of the first slot; each next one has a little less, so that 26 are not all equally faint.
CATEGORY_WEIGHT, WEIGHT_DECAY, CROSS_WEIGHT = 1.8, 0.72, 0.2
# The share of rank r is about r ** -ZIPF. With 2, PaddleRec's ctr-dnn comes within 0.01 of the
# best AUC in one pass over a million examples; with 1.6 it stays 0.02 below, for want of the rare.
ZIPF = 2.0
COEFFICIENTS = np.linspace(-1.2, 1.2, NUMBERS)
CROSSED = ((0, 1), (2, 5), (3, 8))  # slots


class CriteoExamples(Maker):
    """Makes lines: `slots` (click:0 dense_feature:0.05 ... 1:17 2:1040 ...) or raw `tsv`."""

    forms = ("slots", "tsv")
    vocabs = VOCAB, 2, VOCAB_MAX, "categories of each of 26 slots"

    def __init__(self, form: str, vocab: int | None) -> None:
        super().__init__(form, vocab)
        vocab, slots = self.vocab, range(SLOTS)
        self._weights = [
            hidden_weights(KIND, slot, vocab) * CATEGORY_WEIGHT * WEIGHT_DECAY**slot
            for slot in slots
        ]
        # Half of a slot's categories are of one side, half of the other.
        self._sides = [
            (hidden(KIND, SLOTS + slot, vocab) & np.uint64(1)).astype(np.int64) for slot in slots
        ]
        is_raw = form == "tsv"
        self._label_words = tokens(["0", "1"] if is_raw else ["click:0", "click:1"])
        self._number_words = [_number_words(i, is_raw) for i in range(NUMBERS)]
        self._category_words = [self._words(slot) for slot in slots]

    def _words(self, slot: int) -> Tokens:
        end = "\n" if slot == SLOTS - 1 else ""
        if self.form == "tsv":
            codes = hidden(KIND, 2 * SLOTS + slot, self.vocab) >> np.uint64(32)
            return tokens(f"\t{int(code):08x}{end}" for code in codes)
        first = 1 + slot * self.vocab
        return tokens(f" {slot + 1}:{first + rank}{end}" for rank in range(self.vocab))

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The lines of so many examples."""
        ranks = self._ranks(rng, examples)
        numbers, values = self._numbers(rng, examples)
        odds = self._odds(ranks, values)
        label = self.draw_labels(rng, odds)
        return rows_text(
            [
                (self._label_words, label),
                *zip(self._number_words, numbers, strict=True),
                *zip(self._category_words, ranks, strict=True),
            ]
        )

    def _ranks(self, rng: np.random.Generator, examples: int) -> NDArray[np.int64]:
        """Categories by Zipf's law, the most frequent is 0: Pareto's, cut off and rounded down."""
        tail = 1.0 - ZIPF
        left = 1.0 - rng.random((SLOTS, examples)) * (1.0 - (self.vocab + 1.0) ** tail)
        ranks: NDArray[np.float64] = np.clip(left ** (1.0 / tail), 1, self.vocab)
        return ranks.astype(np.int64) - 1

    def _numbers(
        self, rng: np.random.Generator, examples: int
    ) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:
        """For each column the row of its table of words, 0 for a missing one; and the values."""
        shares = rng.lognormal(np.log(MEDIAN), SIGMA, (NUMBERS, examples))
        is_there = rng.random((NUMBERS, examples)) >= MISSING_SHARE
        steps = [
            (np.minimum(share, SHARE_MAX) * diff).astype(np.int64)
            for share, diff in zip(shares, DIFFS, strict=True)
        ]
        rows = [(step + 1) * there for step, there in zip(steps, is_there, strict=True)]
        values = [
            step / diff * there for step, diff, there in zip(steps, DIFFS, is_there, strict=True)
        ]
        return rows, np.stack(values)

    def _odds(self, ranks: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        odds = BIAS + COEFFICIENTS @ (values - MEDIAN)
        for weights, rank in zip(self._weights, ranks, strict=True):
            odds += weights[rank]
        for left, right in CROSSED:
            same = self._sides[left][ranks[left]] == self._sides[right][ranks[right]]
            odds += np.where(same, CROSS_WEIGHT, -CROSS_WEIGHT)
        return odds


def _number_words(column: int, is_raw: bool) -> Tokens:
    """The words of a column's numbers, by step; the first one is a missing number's."""
    low, diff = MINS[column], DIFFS[column]
    steps = range(int(diff * SHARE_MAX) + 1)
    if is_raw:
        return tokens(["\t", *(f"\t{low + step}" for step in steps)])
    values = (f" dense_feature:{step / diff:.6g}" for step in steps)
    return tokens([" dense_feature:0.0", *values])
