"""Click data in the shape of Criteo's: 26 slots of ids, 13 numbers, a label; no download.

    import criteo_like
    for ids, dense, label in criteo_like.batches(options): ...

Who clicks is decided by a hidden logistic model: every id has a weight that is a hash of the id,
so the labels can be learnt, and no program can do better than the hidden model's own AUC (about
0.85). Batch k is a function of (seed, k) alone: each trainer makes its own part of each batch.
"""

import argparse
import os
from collections.abc import Iterator

import numpy as np

SLOTS = 26
NUMBERS = 13
TEST_SEED = 1_000_003


def hashed(ids: np.ndarray) -> np.ndarray:
    """A well mixed uint64 for each id (the finalizer of splitmix64, Steele et al. 2014)."""
    x = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hidden_weights(ids: np.ndarray) -> np.ndarray:
    """What each id adds to the log-odds of a click: uniform in [-0.6, 0.6)."""
    return (hashed(ids) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24) * 1.2 - 0.6


def batch(
    seed: int, number: int, size: int, vocab: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids int64 (size, 26), dense float32 (size, 13), label float32 (size,).

    A few ids of a slot are frequent and most are rare: rank r has a share of about 1 / (r + 1).
    """
    rng = np.random.default_rng([seed, number])
    rank = np.exp(rng.random((size, SLOTS)) * np.log(vocab + 1.0)).astype(np.int64) - 1
    ids = np.minimum(rank, vocab - 1) + np.arange(SLOTS) * vocab
    dense = rng.random((size, NUMBERS), dtype=np.float32)
    odds = hidden_weights(ids).sum(1) + (dense - 0.5) @ np.linspace(-1, 1, NUMBERS) - 1.0
    label = rng.random(size) < 1.0 / (1.0 + np.exp(-odds))
    return ids, dense, label.astype(np.float32)


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """The share of (click, no click) pairs that the score puts in order; ties count half."""
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    rank = (ends - (counts - 1) / 2.0)[inverse]
    clicks = float(label.sum())
    others = len(label) - clicks
    return float((rank[label == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * others))


def options(description: str, **defaults: object) -> argparse.Namespace:
    """What all these examples can be told, and which trainer this is (from the launcher).

    defaults: in place of those below.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    strategies = ("sync", "async", "half_async", "geo", "staleness")
    parser.add_argument("--strategy", default="async", choices=strategies)
    parser.add_argument("--staleness", type=int, default=4, help="batches, for staleness")
    parser.add_argument("--examples", type=int, default=200_000, help="in an epoch, all trainers")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=2048, help="examples, all trainers together")
    parser.add_argument("--vocab", type=int, default=1000, help="ids in each slot")
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(**defaults)
    found = parser.parse_args()
    found.trainer = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    found.trainers = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    return found


def batches(options: argparse.Namespace) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """This trainer's part of every batch of all epochs; together the parts are the whole batch."""
    part = options.batch // options.trainers
    mine = slice(options.trainer * part, (options.trainer + 1) * part)
    for _ in range(options.epochs):
        for number in range(max(1, options.examples // options.batch)):
            made = batch(options.seed, number, options.batch, options.vocab)
            yield made[0][mine], made[1][mine], made[2][mine]


def test_set(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """20,000 examples that no batch contains."""
    return batch(TEST_SEED, 0, 20_000, options.vocab)


def every_id(options: argparse.Namespace) -> np.ndarray:
    """All ids that can occur, int64, in order."""
    return np.arange(SLOTS * options.vocab, dtype=np.int64)
