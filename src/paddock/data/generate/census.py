"""Incomes in the shape of the census data of PaddleRec's first wide & deep. No I/O here.

A line is `wide_input:` x 8, `deep_input:` x 58, `label:`. deep_input is 53 ones and zeros, one 1
for each attribute, then five numbers; wide_input is crosses of attributes, ones and zeros.
The numbers are scaled to about 1, unlike those of the real data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.data.generate.ceiling import Maker, hidden, hidden_weights, rows_text, tokens

KIND = 2
# Workclass, education, marital status, occupation, relationship: as many values as there.
ATTRIBUTES = (9, 16, 7, 15, 6)
# Pairs of attributes; each has two crosses in wide_input.
CROSSED = ((0, 1), (1, 3), (2, 4), (3, 4))
NUMBERS = 5
NUMBER_WEIGHTS = np.array([0.8, 1.0, 1.2, -0.5, 0.7])
ATTRIBUTE_WEIGHT, CROSS_WEIGHT = 0.8, 0.9
BIAS = -1.5
STEPS = 100  # a number is written with two digits behind the point
NUMBER_MAX = 4.0
WIDE, DEEP = 2 * len(CROSSED), sum(ATTRIBUTES) + NUMBERS


class Incomes(Maker):
    """Makes lines of slot text."""

    def __init__(self, form: str, vocab: int | None) -> None:
        super().__init__(form, vocab)
        self._numbers = tokens(
            f" deep_input:{step / STEPS:.2f}" for step in range(int(NUMBER_MAX * STEPS) + 1)
        )
        # One word for a whole attribute: all its ones and zeros.
        self._attributes = [
            tokens(
                "".join(f" deep_input:{float(value == i)}" for i in range(count))
                for value in range(count)
            )
            for count in ATTRIBUTES
        ]

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The lines of so many examples."""
        values = [(rng.beta(1.2, 2, examples) * count).astype(np.int64) for count in ATTRIBUTES]
        steps = np.minimum(rng.lognormal(-0.5, 0.6, (NUMBERS, examples)), NUMBER_MAX) * STEPS
        steps = steps.astype(np.int64)
        crosses = _crosses(values)
        odds = BIAS + NUMBER_WEIGHTS @ (steps / STEPS - 0.7)
        for number, value in enumerate(values):
            odds += hidden_weights(KIND, number, ATTRIBUTES[number])[value] * ATTRIBUTE_WEIGHT
        for number, cross in enumerate(crosses):
            odds += cross * CROSS_WEIGHT * (-1) ** number
        label = self.draw_labels(rng, odds)
        wide = tokens([" wide_input:0.0", " wide_input:1.0"])
        return rows_text(
            [
                (tokens(["wide_input:0.0", "wide_input:1.0"]), crosses[0]),
                *((wide, cross) for cross in crosses[1:]),
                *zip(self._attributes, values, strict=True),
                *((self._numbers, step) for step in steps),
                (tokens([" label:0\n", " label:1\n"]), label),
            ]
        )


def _crosses(values: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Ones where a pair of attributes is among the quarter of pairs that belong to the cross."""
    found = []
    for number, (left, right) in enumerate(CROSSED):
        pair = values[left] * ATTRIBUTES[right] + values[right]
        count = ATTRIBUTES[left] * ATTRIBUTES[right]
        quarter = (hidden(KIND, len(ATTRIBUTES) + number, count) & np.uint64(3)).astype(np.int64)
        found += [(quarter[pair] == i).astype(np.int64) for i in (0, 1)]
    return found
