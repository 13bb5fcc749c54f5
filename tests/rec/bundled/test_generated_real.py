"""ctr-dnn and logistic regression on generated clicks, near the best that any model can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.data.generate.write import generated
from paddock.rec.bundled.learner import load_model
from paddock.rec.learner import WorkerRank
from paddock.rec.settings import Reading
from rec.models.made import MODELS, run_of

pytest.importorskip("torch")
pytest.importorskip("paddle")
pytestmark = [pytest.mark.real, pytest.mark.limit(240)]

SLOTS = ("click", *map(str, range(1, 27)))


def reading(path: str) -> Reading:
    """As the models' own config.yaml reads it."""
    return Reading((path,), 256, sparse_slots=SLOTS, dense_slots={"dense_feature": 13})


def auc_of(model: str, framework: str, rate: float, examples: int) -> tuple[float, float]:
    """On examples that it was not trained on; and the best there is."""
    import json

    train, test = (
        generated(f"generated:criteo?examples={n}&files=2&seed={seed}&vocab=10")
        for n, seed in ((examples, 1), (20_000, 2))
    )
    run = replace(run_of(model, framework), hyper={"optimizer": {"learning_rate": rate}})
    opened = load_model(run, None, WorkerRank())
    for item in opened.source(reading(train)).open(0, None):
        opened.train(item.batch)
    metric = opened.metrics["auc"]
    metric.clear()
    for item in opened.source(reading(test)).open(0, None):
        opened.evaluate(item.batch)
    facts = json.loads((Path(test) / "manifest.json").read_text())
    best = facts["bayes_auc"] if "bayes_auc" in facts else facts["facts"]["bayes_auc"]
    return metric.value(), float(best)


def test_ctr_dnn_comes_within_a_hundredth_of_the_best_auc() -> None:
    """With few ids in a slot, so that half a minute is enough; the bundled config has 1000.

    With PyTorch; Paddle has the same losses, step by step (tests/rec/models/test_models_real.py).
    """
    found, best = auc_of("rank/dnn", "torch", 0.001, 200_000)
    assert best - 0.01 < found < best + 0.01


def test_logistic_regression_learns_the_weights_and_not_the_crosses() -> None:
    """Within two hundredths: a pair of categories has a weight that it cannot have."""
    found, best = auc_of("rank/logistic_regression", "torch", 0.01, 160_000)
    assert best - 0.02 < found < best


def test_every_model_has_a_config_beside_it() -> None:
    """So that -m paddock.models.<folder>.<name> is all one types."""
    models = sorted(MODELS.glob("*/*/model.py"))
    assert len(models) == 10
    assert all((model.parent / "config.yaml").is_file() for model in models)
