"""The ids and examples that every side of the benchmarks trains on; deterministic, numpy only.

A stream shaped like Criteo's: 26 columns of ids, 13 numbers, a label. Ids of a column follow a
Zipf law over its own vocabulary; the label is drawn from a logistic model whose weights are a
hash of the ids, so there is something to learn (the best possible AUC is about 0.85). The files
are written once and read by all sides: no side draws numbers of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLOTS = 26
NUMBERS = 13
VOCABULARY = 40_000  # ids of one slot
EXPONENT = 1.05
ID_SEED = 5
ID_BATCHES = (1, 32, 1024, 8192)  # examples; 26 ids each
ID_ROUNDS = 40  # different batches of each size, used in turn: no client remembers so many
PART_SEED = 1000  # part k is drawn with seed 1000 + k
PART_ROWS = 100_000
# What a change of the files' content must raise: folders written before are not used then.
FORMAT = 2


def zipf(rng: np.random.Generator, count: int, vocabulary: int) -> NDArray[np.int64]:
    """``count`` ranks below vocabulary, P(r) about (r + 1) ** -1.05: the inverse of the CDF."""
    left = 1.0 - EXPONENT
    drawn = rng.random(count)
    ranks = (drawn * ((vocabulary + 1.0) ** left - 1.0) + 1.0) ** (1.0 / left) - 1.0
    return np.minimum(ranks.astype(np.int64), vocabulary - 1)


def hashed(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """A 62-bit hash of each id: the finisher of splitmix64, less its two lowest bits."""
    x = ids.astype(np.uint64)
    with np.errstate(over="ignore"):
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(2)).astype(np.int64)


def draw_ids(
    rng: np.random.Generator, examples: int, vocabulary: int = VOCABULARY
) -> NDArray[np.int64]:
    """int64[26, examples]; slot s uses the ids s * vocabulary + 1 to (s + 1) * vocabulary."""
    ranks = zipf(rng, SLOTS * examples, vocabulary).reshape(SLOTS, examples)
    return ranks + 1 + vocabulary * np.arange(SLOTS, dtype=np.int64)[:, None]


def draw_examples(
    rng: np.random.Generator, examples: int, vocabulary: int = VOCABULARY
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """ids int64[26, examples], numbers float32[examples, 13], labels int64[examples]."""
    ids = draw_ids(rng, examples, vocabulary)
    numbers = rng.random((examples, NUMBERS), dtype=np.float32)
    weights = ((hashed(ids) & 0xFFFF).astype(np.float32) / 65536.0 - 0.5) * 1.2
    slopes = np.linspace(-1, 1, NUMBERS, dtype=np.float32)
    logits = weights.sum(0) + (numbers - 0.5) @ slopes - 1.0
    labels = rng.random(examples) < 1.0 / (1.0 + np.exp(-logits))
    return ids, numbers, labels.astype(np.int64)


def write(folder: Path, *, parts: int, rows: int = PART_ROWS) -> Path:
    """Make ids-BATCH.npy and ``parts`` files part-K.npz, part-K.txt; what is there is kept.

    The text is Paddle's MultiSlot form: a count before each slot's values, label first.
    """
    here = folder / f"v{FORMAT}-{rows}"
    here.mkdir(parents=True, exist_ok=True)
    for batch in ID_BATCHES:
        path = here / f"ids-{batch}.npy"
        if not path.exists():
            rng = np.random.default_rng(ID_SEED)
            _save(path, np.stack([draw_ids(rng, batch) for _ in range(ID_ROUNDS)]))
    for part in range(parts):
        path = here / f"part-{part}.npz"
        if path.exists():
            continue
        ids, numbers, labels = draw_examples(np.random.default_rng(PART_SEED + part), rows)
        _write_text(here / f"part-{part}.txt", ids, numbers, labels)
        # Last: its presence says that the text beside it is whole.
        temporary = here / f"part-{part}.tmp.npz"
        np.savez(temporary, ids=ids, numbers=numbers, labels=labels)
        temporary.rename(path)
    (here / "about.json").write_text(json.dumps({"format": FORMAT, "rows": rows}), "utf-8")
    return here


def _write_text(
    path: Path, ids: NDArray[np.int64], numbers: NDArray[np.float32], labels: NDArray[np.int64]
) -> None:
    with open(path, "w", encoding="ascii") as out:
        for row, values, label in zip(ids.T.tolist(), numbers.tolist(), labels.tolist()):  # noqa: B905
            slots = " ".join(f"1 {key}" for key in row)
            out.write(f"1 {label} {slots} {NUMBERS} {' '.join(f'{v:.4f}' for v in values)}\n")


def _save(path: Path, array: NDArray[np.int64]) -> None:
    temporary = path.with_suffix(".tmp.npy")
    np.save(temporary, array)
    temporary.rename(path)


def auc(labels: NDArray[np.int64], scores: NDArray[np.float32]) -> float:
    """Area under the ROC curve, by ranks; equal scores in their order of appearance."""
    sorted_labels = labels[np.argsort(scores, kind="stable")]
    positives = int(sorted_labels.sum())
    negatives = len(labels) - positives
    above = int(np.flatnonzero(sorted_labels).sum()) - positives * (positives - 1) // 2
    return above / max(1, positives * negatives)
