"""Small batches for each bundled model, and a run of it: what the tests of models share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import paddock.rec.models
from paddock.data.batch import Bag, Batch
from paddock.rec.settings import ModelKind, StrategySpec, Task, TrainingRun

MODELS = Path(paddock.rec.models.__file__).parent
FRAMEWORKS = ("torch", "paddle")
WORDS = 40

# Hyper-parameters that make a model small; a rate at which a few steps show.
SMALL: dict[str, dict[str, Any]] = {
    "rank/dnn": {"fc_sizes": [16, 8]},
    "rank/wide_deep": {"fc_sizes": [16, 8]},
    "rank/deepfm": {"fc_sizes": [16, 8]},
    "rank/logistic_regression": {},
    "rank/fm": {},
    "rank/dcn_v2": {"fc_sizes": [16, 8]},
    "rank/din": {"item_count": 50, "cat_count": 10, "item_emb_size": 8, "cat_emb_size": 4},
    "recall/word2vec": {"sparse_feature_number": WORDS, "sparse_feature_dim": 8},
    "recall/ngram": {"dict_size": WORDS, "emb_size": 8, "hidden_size": 16},
    "vision/resnet": {"layers": 18, "width": 4, "class_num": 4},
}


def run_of(model: str, framework: str, hyper: Mapping[str, Any] | None = None) -> TrainingRun:
    """A training of a small one of these."""
    given = {**SMALL[model], "optimizer.learning_rate": 0.01, **(hyper or {})}
    folder = MODELS / model
    return TrainingRun(
        name="train",
        task=Task.TRAIN,
        contract=ModelKind.BUNDLED,
        model_directory=str(folder),
        model_file=str(folder / "model.py"),
        framework=framework,
        hyper=given,
        strategy=StrategySpec(threads=1),
    )


def clicks(seed: int, size: int = 64, vocab: int = 20) -> Batch:
    """26 slots, 13 numbers; who clicks is told by the first slots."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, vocab, (size, 26)) + np.arange(26) * vocab
    dense = rng.random((size, 13), dtype=np.float32)
    odds = 3.0 * (ids[:, 0] % 2 + ids[:, 1] % 2 - 1.0) + dense[:, 0]
    label = (rng.random(size) < 1 / (1 + np.exp(-odds))).astype(np.float32)
    return Batch(size, {"C": ids}, {"dense_feature": dense}, label)


def batch_of(model: str, seed: int = 0, size: int = 64) -> Batch:
    """What the model reads."""
    rng = np.random.default_rng(seed)
    if model == "rank/din":
        lengths = rng.integers(0, 6, size)
        total = int(lengths.sum())
        target = rng.integers(1, 50, size)
        return Batch(
            size,
            {
                "hist_item": Bag(rng.integers(1, 50, total), lengths),
                "hist_cat": Bag(rng.integers(1, 10, total), lengths),
                "target_item": target,
                "target_cat": rng.integers(1, 10, size),
            },
            label=(target % 2).astype(np.float32),
        )
    if model.startswith("recall/"):
        start = rng.integers(0, WORDS, (size, 1))
        return Batch(size, {"words": (start + np.arange(5)) % WORDS})
    if model == "vision/resnet":
        label = rng.integers(0, 4, size)
        image = np.zeros((size, 3, 16, 16), np.uint8)
        image[np.arange(size), label % 3, :, label // 3 * 8] = 255
        return Batch(size, label=label.astype(np.float32), other={"image": image})
    return clicks(seed, size)
