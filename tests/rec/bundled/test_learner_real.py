"""A learner alone and with servers, saved and loaded, and exported to plain programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import PaddockError, UsageError
from paddock.rec.bundled.learner import BundledLearner, framework_of, load_model
from paddock.rec.learner import WorkerRank
from paddock.rec.worker import carry_out
from ps.adapters.served import servers
from rec.models.made import FRAMEWORKS, batch_of, clicks, run_of

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.real

ROWS = 2000
HYPER = {"sparse_feature_number": ROWS}


def trained(framework: str, client: Any = None, model: str = "rank/dnn") -> BundledLearner:
    """After three batches."""
    hyper = HYPER if model == "rank/dnn" else {}
    place = WorkerRank(servers=0 if client is None else 1)
    learner = BundledLearner(run_of(model, framework, hyper), client, place)
    for seed in range(3):
        learner.prefetch(batch_of(model, seed + 1))
        learner.train(batch_of(model, seed))
    return learner


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_who_wants_a_gpu_and_has_none_is_told(
    framework: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a 2.x folder; it was a traceback of the framework."""
    run = replace(run_of("rank/dnn", framework, HYPER), device="gpu")
    monkeypatch.setattr(framework_of(run), "has_gpu", lambda: False)
    load_model(run, None, WorkerRank()).train(batch_of("rank/dnn", 0))
    told = f"device is gpu, but {framework} sees none here: training on the CPU\n"
    assert capsys.readouterr().out == told


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", ["rank/dnn", "rank/din", "vision/resnet"])
def test_alone_and_with_servers_in_sync_are_the_same_bits(framework: str, model: str) -> None:
    """Of all tables: rows, dense parameters, running statistics, optimizer state."""
    alone = trained(framework, model=model)
    with servers(2) as endpoints, ps.Client(endpoints, strategy="sync") as client:
        served = trained(framework, client, model)
        assert client.digest() == alone.client.digest()
        batch = batch_of(model, 9)
        assert np.array_equal(served.scores(batch), alone.scores(batch))


@pytest.mark.parametrize("strategy", ["async", "half_async", "geo"])
def test_every_strategy_learns_with_rows_asked_for_early(strategy: str) -> None:
    """The next batch's rows travel while this one computes; the loss still falls."""
    run = run_of("rank/dnn", "torch", HYPER)
    with servers(2) as endpoints, ps.Client(endpoints, strategy=strategy, geo_step=2) as client:
        learner = BundledLearner(run, client, WorkerRank(servers=2))
        batches = [clicks(seed) for seed in range(4)]
        losses = []
        for number in range(40):
            learner.prefetch(batches[(number + 1) % 4])
            losses.append(learner.train(batches[number % 4])["loss"])
    assert np.mean(losses[-4:]) < np.mean(losses[:4]) - 0.1


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_goes_on_where_it_was_saved(framework: str, tmp_path: Path) -> None:
    """With the same bits as one that was not stopped."""
    whole, saved = trained(framework), trained(framework)
    saved.save(str(tmp_path))
    begun = BundledLearner(run_of("rank/dnn", framework, HYPER), None, WorkerRank())
    begun.load(str(tmp_path))
    for learner in (whole, begun):
        learner.train(clicks(7))
    assert begun.client.digest() == whole.client.digest()
    assert np.array_equal(begun.scores(clicks(8)), whole.scores(clicks(8)))


def test_workers_that_were_told_of_no_other_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them by one variable, and nothing about where: not torch's traceback."""
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "2")
    for name in ("RANK", "MASTER_ADDR", "PADDLE_PSERVERS_IP_PORT_LIST"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(PaddockError, match="2 workers without servers do not find one another"):
        carry_out(run_of("vision/resnet", "torch"))


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """Both models are named."""
    trained("torch").save(str(tmp_path))
    other = BundledLearner(run_of("rank/fm", "torch"), None, WorkerRank())
    with pytest.raises(UsageError, match="of model 'rank/dnn', not of 'rank/fm'"):
        other.load(str(tmp_path))


def test_servers_that_loaded_after_the_model_was_made_are_asked(tmp_path: Path) -> None:
    """Checkpoints are judged one after the other: each with its own dense values."""
    with servers(1) as endpoints, ps.Client(endpoints, strategy="sync") as client:
        learner = trained("torch", client)
        client.save(tmp_path)
        wanted = learner.scores(clicks(8))
    with servers(1) as endpoints, ps.Client(endpoints, strategy="sync") as client:
        again = BundledLearner(run_of("rank/dnn", "torch", HYPER), client, WorkerRank(servers=1))
        client.load(tmp_path)
        assert np.array_equal(again.scores(clicks(8)), wanted)


def test_a_plain_torch_program_has_the_same_scores(tmp_path: Path) -> None:
    """torch.load and torch.nn only; the embedding is inside."""
    learner, batch = trained("torch"), clicks(8)
    learner.export(str(tmp_path))
    assert json.loads((tmp_path / "model.json").read_text())["framework"] == "torch"

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.SparseFeatFactors = torch.nn.Embedding(ROWS, 9)
            self.tower_0 = torch.nn.Linear(247, 16)
            self.tower_1 = torch.nn.Linear(16, 8)
            self.tower_2 = torch.nn.Linear(8, 2)

        def forward(self, ids: Any, dense: Any) -> Any:
            x = torch.cat([self.SparseFeatFactors(ids).flatten(1), dense], 1)
            x = self.tower_2(torch.relu(self.tower_1(torch.relu(self.tower_0(x)))))
            return torch.softmax(x, 1)[:, 1]

    plain = Plain()
    plain.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    ids, dense = torch.from_numpy(batch.ids["C"]), torch.from_numpy(batch.dense["dense_feature"])
    assert plain(ids, dense).detach().numpy() == pytest.approx(learner.scores(batch), abs=1e-6)


def test_a_plain_paddle_program_has_the_same_scores(tmp_path: Path) -> None:
    """paddle.load and paddle.nn only; the embedding is inside."""
    learner, batch = trained("paddle"), clicks(8)
    learner.export(str(tmp_path))

    class Plain(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.SparseFeatFactors = paddle.nn.Embedding(ROWS, 9)
            self.tower_0 = paddle.nn.Linear(247, 16)
            self.tower_1 = paddle.nn.Linear(16, 8)
            self.tower_2 = paddle.nn.Linear(8, 2)

        def forward(self, ids: Any, dense: Any) -> Any:
            relu = paddle.nn.functional.relu
            x = paddle.concat([self.SparseFeatFactors(ids).flatten(1), dense], 1)
            x = self.tower_2(relu(self.tower_1(relu(self.tower_0(x)))))
            return paddle.nn.functional.softmax(x)[:, 1]

    plain = Plain()
    missing, unexpected = plain.set_state_dict(paddle.load(str(tmp_path / "model.pdparams")))
    assert (missing, unexpected) == ([], [])
    ids, dense = map(paddle.to_tensor, (batch.ids["C"], batch.dense["dense_feature"]))
    assert plain(ids, dense).numpy() == pytest.approx(learner.scores(batch), abs=1e-6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_export_is_what_another_run_begins_with(framework: str, tmp_path: Path) -> None:
    """Alone and with servers; of another shape or framework it is refused."""
    learner, batch = trained(framework), clicks(8)
    learner.export(str(tmp_path))
    wanted = learner.scores(batch)
    run = run_of("rank/dnn", framework, HYPER)
    alone = BundledLearner(run, None, WorkerRank())
    alone.load(str(tmp_path))
    assert np.array_equal(alone.scores(batch), wanted)
    with servers(2) as endpoints, ps.Client(endpoints, strategy="sync") as client:
        served = BundledLearner(run, client, WorkerRank(servers=2))
        served.load(str(tmp_path))
        assert np.array_equal(served.scores(batch), wanted)
        served.train(batch)
        assert not np.array_equal(served.scores(batch), wanted)
    other = run_of("rank/dnn", framework, {"sparse_feature_number": ROWS + 1})
    with pytest.raises(UsageError, match=r"other parameters.*SparseFeatFactors.weight"):
        BundledLearner(other, None, WorkerRank()).load(str(tmp_path))
    (elsewhere,) = {"torch", "paddle"} - {framework}
    with pytest.raises(UsageError, match="exported by another framework"):
        BundledLearner(run_of("rank/dnn", elsewhere, HYPER), None, WorkerRank()).load(str(tmp_path))
