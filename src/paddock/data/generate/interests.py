"""Items that users had before and are offered, for models of sequences (DIN). No I/O here.

A line is `click:`, then `hist_item:` `hist_cat:` for each item before, 1 to 12 of them, and
`target_item:` `target_cat:`. A user has three categories that most items before are of. Who clicks
is decided by a weight of the item that is offered, and by whether one of those before is of its
category: a sum of all of them says that badly, attention to the right one says it well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.data.generate.ceiling import Maker, hidden_weights, rows_text, tokens

KIND = 3
VOCAB, CATEGORIES = 1000, 20
VOCAB_MAX = 63000  # PaddleRec's table has 63001 rows; 0 is for padding.
LONGEST = 12
FAVOURITES, FAVOURITE_SHARE = 3, 0.9
OFFERED_SHARE = 0.5  # of the items offered that are of a favourite category
BIAS, MATCH_WEIGHT, ITEM_WEIGHT = 0.2, 1.5, 1.0


class Interests(Maker):
    """Makes lines of slot text. Item i is of category 1 + (i - 1) % 20."""

    vocabs = VOCAB, CATEGORIES, VOCAB_MAX, "items"

    def __init__(self, form: str, vocab: int | None) -> None:
        super().__init__(form, vocab)
        items = range(1, self.vocab + 1)
        category = [1 + (item - 1) % CATEGORIES for item in items]
        pairs = list(zip(items, category, strict=True))
        self._past = tokens(["", *(f" hist_item:{i} hist_cat:{c}" for i, c in pairs)])
        self._offer = tokens(["", *(f" target_item:{i} target_cat:{c}\n" for i, c in pairs)])
        self._weights = hidden_weights(KIND, 0, self.vocab + 1) * ITEM_WEIGHT

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The lines of so many examples."""
        favourites = rng.integers(0, CATEGORIES, (examples, FAVOURITES))
        past = self._items(rng, favourites, FAVOURITE_SHARE, LONGEST)
        past[np.arange(LONGEST) >= rng.integers(1, LONGEST + 1, (examples, 1))] = 0
        offer = self._items(rng, favourites, OFFERED_SHARE, 1)
        is_same = ((past - offer) % CATEGORIES == 0) & (past > 0)
        match = np.where(is_same.any(1), MATCH_WEIGHT, -MATCH_WEIGHT)
        odds = BIAS + match + self._weights[offer[:, 0]]
        label = self.draw_labels(rng, odds)
        return rows_text(
            [
                (tokens(["click:0", "click:1"]), label),
                *((self._past, past[:, place]) for place in range(LONGEST)),
                (self._offer, offer[:, 0]),
            ]
        )

    def _items(
        self, rng: np.random.Generator, favourites: NDArray[np.int64], share: float, count: int
    ) -> NDArray[np.int64]:
        """(examples, count): any item of a favourite category, or of any."""
        shape = (len(favourites), count)
        chosen = np.take_along_axis(favourites, rng.integers(0, FAVOURITES, shape), 1)
        is_any = rng.random(shape) >= share
        category = np.where(is_any, rng.integers(0, CATEGORIES, shape), chosen)
        rounds = rng.integers(0, self.vocab // CATEGORIES, shape)
        found: NDArray[np.int64] = 1 + rounds * CATEGORIES + category
        return found
