"""word2vec, skip-gram: a word's vector tells the words around it from words drawn at random.

Source: Mikolov et al. 2013, "Distributed Representations of Words and Phrases" (arXiv 1310.4546),
(4): the negatives are drawn by the words' counts to the power 3/4. PaddleRec has 300
numbers a word.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Batch
from paddock.ps.spec import InitialSpec
from paddock.rec.models.inputs import Hyper, as_bag, slot_of
from paddock.rec.models.net import ZEROS, Net, Output

POWER = 0.75


class Model:
    """A vector of each word as centre, and one with a bias as neighbour."""

    metrics = ("auc",)  # Of neighbours against drawn words.

    def __init__(self, net: Net, hyper: Hyper) -> None:
        self.net = net
        words, self.dim = hyper("sparse_feature_number", 2000), hyper("sparse_feature_dim", 300)
        self.window, self.drawn = hyper("window_size", 5), hyper("neg_num", 5)
        self.centres = net.table("emb", words, self.dim, InitialSpec("uniform", 0.5 / self.dim))
        self.around = net.table("emb_w", words, self.dim, ZEROS)
        self.bias = net.table("emb_b", words, 1, ZEROS)
        # How often each word was seen, by this worker; one more, so that none is impossible.
        self.counts = np.ones(words)
        self._rng = np.random.default_rng(net.seed)

    def forward(self, batch: Batch) -> Output:
        """The chance to be neighbours, of each pair and its negatives, one behind the other."""
        words = as_bag(slot_of(batch, "words"))
        self.centres.ids(words.values)
        self.counts += np.bincount(words.values, minlength=len(self.counts))
        centre, neighbour = pairs_of(words.values, words.lengths, self.window)
        ends = np.cumsum(self.counts**POWER)
        chosen = np.searchsorted(ends, self._rng.random((len(centre), self.drawn)) * ends[-1])
        others = np.concatenate([neighbour[:, None], chosen], 1)
        rows = self.centres(centre).reshape([-1, 1, self.dim])
        logits = (rows * self.around(others)).sum(2) + self.bias(others).reshape(list(others.shape))
        label = np.zeros(others.shape, np.float32)
        label[:, 0] = 1.0
        found = self.net.click(logits, Batch(label.size, label=label.reshape(-1)))
        # The loss of a pair and its negatives together, as in the paper.
        assert found.loss is not None  # It has its own labels.
        return Output(found.scores, found.loss * float(self.drawn + 1), found.labels)


def pairs_of(
    words: NDArray[np.int64], lengths: NDArray[np.int64], window: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each word and each of those within the window in its sentence: (pairs,), (pairs,).

    >>> centre, neighbour = pairs_of(np.array([7, 8, 9, 5]), np.array([3, 1]), 1)
    >>> list(zip(centre.tolist(), neighbour.tolist()))
    [(7, 8), (8, 9), (8, 7), (9, 8)]
    """
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    centre, neighbour = [], []
    for step in (*range(1, window + 1), *range(-1, -window - 1, -1)):
        stop = max(0, len(words) - abs(step))
        left, right = np.arange(stop) + max(0, -step), np.arange(stop) + max(0, step)
        is_same = sentence[left] == sentence[right]
        centre.append(words[left][is_same])
        neighbour.append(words[right][is_same])
    return np.concatenate(centre), np.concatenate(neighbour)
