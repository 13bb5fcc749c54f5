"""Every bundled model, in torch and in Paddle, from its one description."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.rec.bundled.learner import BundledLearner
from paddock.rec.learner import WorkerRank
from rec.models.made import FRAMEWORKS, SMALL, batch_of, clicks, run_of

pytest.importorskip("torch")
pytest.importorskip("paddle")
pytestmark = pytest.mark.real


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_loss_of_every_model_falls(model: str, framework: str) -> None:
    """Built, trained for a while, and better at what it has seen."""
    learner = BundledLearner(run_of(model, framework), None, WorkerRank())
    batches = [batch_of(model, seed) for seed in range(4)]
    first = np.mean([learner.evaluate(batch)["loss"] for batch in batches])
    for _ in range(10):
        for batch in batches:
            learner.prefetch(batch)
            learner.train(batch)
    last = np.mean([learner.evaluate(batch)["loss"] for batch in batches])
    assert last < first - 0.02
    assert learner.unread == []
    assert all(np.isfinite(metric.value()) for metric in learner.metrics.values())


@pytest.mark.parametrize("model", sorted(set(SMALL) - {"recall/ngram"}))
def test_both_frameworks_begin_alike_and_learn_alike(model: str) -> None:
    """First values depend on seed and name alone; the optimizer is the tables'."""
    losses = {}
    for framework in FRAMEWORKS:
        learner = BundledLearner(run_of(model, framework), None, WorkerRank())
        losses[framework] = [learner.train(batch_of(model, seed))["loss"] for seed in range(3)]
    assert losses["torch"] == pytest.approx(losses["paddle"], rel=1e-4)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_slot_of_several_ids_is_their_sum(framework: str) -> None:
    """Slots of one id as bags give the same scores as the matrix of ids; two ids add up."""
    from paddock.data.batch import Bag, Batch

    learner = BundledLearner(run_of("rank/dnn", framework), None, WorkerRank())
    batch = clicks(0, 8)
    ids = batch.ids["C"]
    assert isinstance(ids, np.ndarray)
    bags = {str(i): Bag(ids[:, i].copy(), np.ones(8, np.int64)) for i in range(26)}
    plain = learner.scores(batch)
    assert learner.scores(Batch(8, bags, batch.dense)) == pytest.approx(plain)
    bags["3"] = Bag(np.repeat(bags["3"].values, 2), np.full(8, 2))
    assert learner.scores(Batch(8, bags, batch.dense)) != pytest.approx(plain)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_cannot_be_trained_on_is_told(framework: str) -> None:
    """A NaN in the data (Paddle's relu makes 0 of it), an id too large, no labels."""
    learner = BundledLearner(run_of("rank/dnn", framework), None, WorkerRank())
    bad = clicks(0)
    bad.dense["dense_feature"][0, 0] = np.nan
    with pytest.raises(
        PaddockError, match=r"loss is nan; tables SparseFeat|table .dense.: element"
    ):
        learner.train(bad)
    far = clicks(0)
    far.ids["C"][5, 2] = 1000001  # type: ignore[index]
    with pytest.raises(UsageError, match="id 1000001 for table 'SparseFeatFactors'"):
        learner.train(far)
    from dataclasses import replace

    with pytest.raises(UsageError, match="without labels"):
        learner.train(replace(clicks(0), label=np.empty(0, np.float32)))
    with pytest.raises(UsageError, match="a label is 2, and the model has labels from 0 to 1"):
        learner.train(replace(clicks(0), label=clicks(0).label + 1))
    assert np.isfinite(learner.train(clicks(1))["loss"])
