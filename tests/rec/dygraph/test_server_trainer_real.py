"""A PaddleRec 2.x folder on real servers: the numbers of training alone."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps import Client
from paddock.rec.data_parallel import DataParallelTables
from paddock.rec.learner import WorkerRank
from ps.running import environment, inside
from rec.dygraph.folders import copy_example, own_modules, plain_losses, run_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
    paddle = pytest.importorskip("paddle")
from paddock.rec.dygraph import server_trainer
from paddock.rec.dygraph.learner import load_model
from paddock.rec.dygraph.paddle_patches import as_in_paddle_2
from paddock.rec.models import paddle_private as private

pytestmark = pytest.mark.real

WITHOUT_EPSILON = """paddle.optimizer.Adam(
            learning_rate=rate, parameters=dy_model.parameters(), lazy_mode=True
        )"""
# With the usual 1e-8 a gradient that cancels to about as much moves its weight by any part of a
# step: the last digit of a matmul then decides the fourth one of the weight, here and in Paddle.
LAZY = "paddle.optimizer.Adam(rate, epsilon=1e-5, parameters=dy_model.parameters(), lazy_mode=True)"
STEPS = 12
# Float32: a learning step moves a weight by about 1e-2, and there are a dozen.
NEAR = {"rtol": 2e-5, "atol": 3e-6}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, with data, and numbers that rounding does not decide."""
    made = copy_example(tmp_path / "model")
    rewrite(made, "dygraph_model.py", WITHOUT_EPSILON, LAZY)
    return made


def rewrite(folder: Path, name: str, old: str, new: str) -> None:
    """Another line in one of the folder's files."""
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new))


def learn(
    folder: Path, client: Client, steps: int = STEPS, batch: int = 64, **changes: Any
) -> tuple[list[float], Any]:
    """Losses of some steps of this worker, and its learner."""
    place = WorkerRank(client.place.trainer, client.place.trainers, 1)
    run = run_of(folder, runner__train_batch_size=batch, **changes)
    assert run.reading is not None
    opened = load_model(run, client, place)
    losses = []
    for item in opened.source(run.reading).open(0, None):
        if len(losses) < steps:
            losses.append(opened.train(item.batch)["loss"])
    return losses, opened


def check_same(folder: Path, strategy: str = "sync", **changes: Any) -> None:
    """One worker with two servers computes what a plain loop does."""
    with as_in_paddle_2():
        wanted, weights = plain_losses(folder, STEPS)
    with (
        inside(2) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1, strategy=strategy) as client,
    ):
        losses, learner = learn(folder, client, **changes)
        learner.save(str(folder))
    assert np.allclose(losses, wanted, rtol=1e-5, atol=1e-6)
    saved = paddle.load(str(folder / "rec.pdparams"))
    assert list(saved) == list(weights)
    for name, wanted_values in weights.items():
        assert np.allclose(saved[name].numpy(), wanted_values, **NEAR), name


OPTIMIZERS = {
    "adam": "paddle.optimizer.Adam(rate, epsilon=1e-5, parameters=dy_model.parameters())",
    "adam_lazy": LAZY,
    "sgd": "paddle.optimizer.SGD(rate, parameters=dy_model.parameters())",
    "sgd_l2": "paddle.optimizer.SGD(rate, parameters=dy_model.parameters(), weight_decay=0.01)",
    "momentum": "paddle.optimizer.Momentum(rate, parameters=dy_model.parameters())",
    "momentum_l2": "paddle.optimizer.Momentum(rate, 0.8, dy_model.parameters(), True, 0.01)",
    "adagrad": "paddle.optimizer.Adagrad(rate, parameters=dy_model.parameters())",
    "rmsprop": "paddle.optimizer.RMSProp(rate, momentum=0.5, parameters=dy_model.parameters())",
    "clipped": LAZY.removesuffix(")") + ", grad_clip=paddle.nn.ClipGradByGlobalNorm(0.05))",
    "by_norm": "paddle.optimizer.SGD(rate, parameters=dy_model.parameters(), "
    "grad_clip=paddle.nn.ClipGradByNorm(0.01))",
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_gives_the_numbers_of_alone(folder: Path, name: str) -> None:
    """Losses and all weights, embeddings too, after a dozen steps."""
    rewrite(folder, "dygraph_model.py", LAZY, OPTIMIZERS[name])
    check_same(folder)


class Alike:
    """A group of two workers that have the same batches."""

    rank, size = 0, 2

    def add(self, numbers: np.ndarray) -> None:
        """The other one's numbers are these."""
        numbers *= 2

    def close(self) -> None:
        """Nobody leaves."""


def test_a_dense_folder_is_copied_without_servers(folder: Path, tmp_path: Path) -> None:
    """The mean of the workers' gradients moves all copies; saved with the optimizer's state."""
    rewrite(folder, "net.py", "sparse=True", "sparse=False")
    rewrite(folder, "dygraph_model.py", LAZY, OPTIMIZERS["adam"])
    with as_in_paddle_2():
        wanted, weights = plain_losses(folder, STEPS)
    with own_modules(folder):
        losses, learner = learn(folder, DataParallelTables(Alike()))  # type: ignore[arg-type]
        learner.save(str(tmp_path))
        again = learn(folder, DataParallelTables(Alike()), steps=0)[1]  # type: ignore[arg-type]
        again.load(str(tmp_path))
    assert np.allclose(losses, wanted, rtol=1e-5, atol=1e-6)
    assert again._client.digest() == learner._client.digest()
    saved = paddle.load(str(tmp_path / "rec.pdparams"))
    for name, wanted_values in weights.items():
        assert np.allclose(saved[name].numpy(), wanted_values, **NEAR), name


@pytest.mark.parametrize("strategy", ["half_async", "geo"])
def test_one_worker_learns_alike_in_other_strategies(folder: Path, strategy: str) -> None:
    """Of one worker alone only async may be behind: its pulls do not wait for its pushes."""
    check_same(folder, strategy)


def with_schedule(folder: Path) -> None:
    """Stepped by the model's own forward, as PaddleRec's trainer steps none."""
    rewrite(
        folder,
        "dygraph_model.py",
        LAZY,
        LAZY.replace("(rate,", "(self.rate(rate),"),
    )
    rewrite(
        folder,
        "dygraph_model.py",
        "    def create_metrics",
        "    def rate(self, rate):\n"
        "        self.schedule = paddle.optimizer.lr.ExponentialDecay(rate, 0.7)\n"
        "        return self.schedule\n\n"
        "    def create_metrics",
    )
    rewrite(
        folder,
        "dygraph_model.py",
        "        logits = dy_model(slots, dense)\n        loss",
        "        self.schedule.step()\n        logits = dy_model(slots, dense)\n        loss",
    )


def test_a_scheduler_drives_the_servers_rate(folder: Path) -> None:
    """Also where all rows wait for it."""
    with_schedule(folder)
    check_same(folder)


def test_another_life_goes_on_in_the_schedule(folder: Path) -> None:
    """It began anew, with its first rate, after a resume, too: its state is no table's."""
    with_schedule(folder)
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1) as client,
    ):
        learn(folder, client)
        place = WorkerRank(0, 1, 1)
        again: Any = load_model(run_of(folder), client, place)
        assert private.rate_of(again.optimizer).last_epoch == STEPS
        assert np.isclose(again.optimizer.get_lr(), 0.01 * 0.7**STEPS)


def test_parameters_have_their_own_rate_and_decay(folder: Path) -> None:
    """ParamAttr of the embedding and of a layer."""
    rewrite(folder, "dygraph_model.py", LAZY, OPTIMIZERS["sgd"])
    rewrite(folder, "net.py", "std=0.05)", "std=0.05), learning_rate=3.0")
    rewrite(
        folder,
        "net.py",
        "self.wide = nn.Linear(dense_width, 1)",
        "self.wide = nn.Linear(dense_width, 1, weight_attr=paddle.ParamAttr("
        "learning_rate=0.5, regularizer=paddle.regularizer.L2Decay(0.1)))",
    )
    check_same(folder)


@pytest.mark.filterwarnings("ignore:When training, we now always track")
def test_running_statistics_are_those_of_alone(folder: Path) -> None:
    """BatchNorm: the change of a batch is added on the servers."""
    rewrite(
        folder,
        "net.py",
        "self.tower = []",
        "self.norm = nn.BatchNorm1D(widths[0])\n        self.tower = []",
    )
    rewrite(
        folder,
        "net.py",
        "        for linear in self.tower[:-1]",
        "        deep = self.norm(deep)\n        for linear in self.tower[:-1]",
    )
    check_same(folder)


LOOK_UP = "        found = [self.factors(ids).squeeze(1) for ids in slots]\n"
WIDTHS = "        widths = [slots"
WIDE = "return self.wide(dense)"
SECOND = [
    ("net.py", WIDTHS, "        self.some = nn.Linear(3, 1)\n        self.turn = 0\n" + WIDTHS),
    (
        "net.py",
        LOOK_UP,
        LOOK_UP + "        self.turn += 1\n"
        "        extra = self.some(dense) if self.turn % 2 else 0\n",
    ),
    ("net.py", WIDE, "return extra + self.wide(dense)"),
]
# What a model may do beside the example: changes of its files.
ODD: dict[str, list[tuple[str, str, str]]] = {
    # Its row has a gradient in Paddle, too, and counts in the norm.
    "padding_id": [
        ("net.py", "sparse=True,", "sparse=True, padding_idx=1,"),
        ("dygraph_model.py", LAZY, OPTIMIZERS["clipped"]),
    ],
    # clear_grad() leaves zeros behind, by which momentum goes on.
    "layer_in_every_second_batch": SECOND,
    "layer_in_every_second_batch_momentum": [
        *SECOND,
        ("dygraph_model.py", LAZY, OPTIMIZERS["momentum"]),
    ],
    # In a plain list: the optimizer knows its parameters, the model does not.
    "layer_of_the_optimizer_alone": [
        (
            "net.py",
            "self.tower.append(linear)",
            "self.tower.append(linear)\n        self.hidden = [nn.Linear(dense_width, 1)]",
        ),
        ("net.py", WIDE, "return self.hidden[0](dense) + self.wide(dense)"),
        (
            "dygraph_model.py",
            "dy_model.parameters()",
            "dy_model.parameters() + dy_model.hidden[0].parameters()",
        ),
    ],
    # eval() is no no_grad().
    "embedding_in_eval": [("net.py", LOOK_UP, "        self.factors.eval()\n" + LOOK_UP)],
    # The assignment is no use of the weight.
    "two_embeddings_of_one_weight": [
        (
            "net.py",
            WIDTHS,
            "        self.second = nn.Embedding(vocabulary, factors, sparse=True)\n"
            "        self.second.weight = self.factors.weight\n" + WIDTHS,
        ),
        (
            "net.py",
            LOOK_UP,
            LOOK_UP.replace("self.factors(ids)", "(self.factors(ids) + self.second(ids))"),
        ),
    ],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_models_have_the_numbers_of_alone(folder: Path, name: str) -> None:
    """Each learned something else on the servers, and nothing said so."""
    for change in ODD[name]:
        rewrite(folder, *change)
    check_same(folder)


def test_a_loss_over_all_parameters_is_refused(folder: Path) -> None:
    """Those of the embeddings were left out of its norm, without a word."""
    norm = "sum((one**2).sum() for one in dy_model.parameters())"
    rewrite(
        folder,
        "dygraph_model.py",
        "(logits, label)\n        self",
        f"(logits, label) + {norm}\n        self",
    )
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1) as client,
        pytest.raises(UsageError, match="asks for all its parameters"),
    ):
        learn(folder, client)


def workers(folder: Path, *words: str, count: int = 2) -> list[list[float]]:
    """The losses of workers that are processes of their own, on one server."""
    with inside(1, count) as endpoints:
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "rec.dygraph.one_worker", str(folder), *words],
                env=environment(
                    PADDLE_PSERVERS_IP_PORT_LIST=",".join(endpoints),
                    PADDLE_TRAINERS_NUM=str(count),
                    PADDLE_TRAINER_ID=str(worker),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for worker in range(count)
        ]
        said = [process.communicate(timeout=100) for process in running]
    for process, (_, errors) in zip(running, said, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(out) for out, _ in said]


def test_two_workers_on_half_batches_learn_the_whole_batch(folder: Path) -> None:
    """In sync the servers take the mean: the same numbers, whoever is faster."""
    (folder / "data" / "train" / "part-1").unlink()  # One file: the workers share its batches.
    with as_in_paddle_2():
        wanted, weights = plain_losses(folder, 5)
    losses = workers(folder, "32", "5", "sync", str(folder))
    assert np.allclose(np.mean(losses, axis=0), wanted, rtol=1e-5, atol=1e-6)
    saved = paddle.load(str(folder / "rec.pdparams"))
    for name, values in weights.items():
        assert np.allclose(saved[name].numpy(), values, **NEAR), name


@pytest.mark.parametrize("strategy", ["async", "geo"])
def test_two_workers_learn_in_every_strategy(folder: Path, strategy: str) -> None:
    """Not the same numbers, but the loss goes down as far. Who comes late begins lower."""
    losses = workers(folder, "32", "40", strategy)
    first = max(np.mean(one[:8]) for one in losses)
    assert all(np.mean(one[-8:]) < first - 0.1 for one in losses)


def test_an_id_beyond_the_table_is_named(folder: Path) -> None:
    """Paddle says so alone; a table on servers would take any id."""
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1) as client,
        pytest.raises(PaddockError, match="embedding 'factors' has 3000 rows, an id is"),
    ):
        learn(folder, client, hyper_parameters__vocabulary=3000)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("paddle.optimizer.Lamb(rate, parameters=dy_model.parameters())", "Lamb has no equal"),
        ("paddle.optimizer.Adam(rate, amsgrad=True, parameters=dy_model.parameters())", "amsgrad"),
        ("paddle.optimizer.RMSProp(rate, centered=True, parameters=dy_model.parameters())", "cent"),
    ],
)
def test_what_the_servers_cannot_do_is_refused(folder: Path, made: str, said: str) -> None:
    """By the name of the optimizer, before anything is trained."""
    rewrite(folder, "dygraph_model.py", LAZY, made)
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1) as client,
        pytest.raises(UsageError, match=said),
    ):
        learn(folder, client)


def test_a_large_table_stands_still_where_no_example_is(folder: Path) -> None:
    """runner.idle_rows: still; Adam without lazy_mode is then as with it, and a line says so."""
    with as_in_paddle_2():
        wanted, _ = plain_losses(folder, STEPS)
    rewrite(folder, "dygraph_model.py", LAZY, OPTIMIZERS["adam"])
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1, strategy="sync") as client,
    ):
        losses, _ = learn(folder, client, runner__idle_rows="still")
    assert np.allclose(losses, wanted, rtol=1e-5, atol=1e-6)


def test_a_weight_that_the_model_uses_stays_with_it(folder: Path) -> None:
    """An output layer that shares the embedding's weight: a dense table, the same numbers."""
    old = "        return self.wide(dense)"
    rewrite(folder, "net.py", old, "        dense = dense * self.factors.weight[:5].mean()\n" + old)
    rewrite(folder, "dygraph_model.py", LAZY, OPTIMIZERS["sgd"])
    rewrite(folder, "net.py", "sparse=True", "sparse=False")
    with as_in_paddle_2():
        wanted, _ = plain_losses(folder, STEPS)
    rewrite(folder, "net.py", "sparse=False", "sparse=True")
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1, strategy="sync") as client,
    ):
        losses, _ = learn(folder, client)
    assert np.allclose(losses, wanted, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_goes_on_to_the_servers(folder: Path) -> None:
    """Of a run alone; the scores are the same, and come back the same."""
    with own_modules(folder):
        alone = load_model(run_of(folder), None, WorkerRank())
        run = run_of(folder)
        assert run.reading is not None and run.test is not None
        for item in alone.source(run.reading).open(0, None):
            alone.train(item.batch)
        alone.save(str(folder))
        with inside(2) as endpoints, Client(endpoints, trainer=0, trainers=1) as client:
            served = load_model(run, client, WorkerRank(0, 1, 2))
            served.load(str(folder))
            alone.metrics["auc"].clear()
            for item in alone.source(run.test).open(0, None):
                alone.evaluate(item.batch)
                served.evaluate(item.batch)
            (folder / "again").mkdir()
            served.export(str(folder / "again"))
    aucs = [one.metrics["auc"].value() for one in (alone, served)]
    assert abs(aucs[0] - aucs[1]) < 1e-6 and aucs[0] > 0.6
    before, after = (paddle.load(str(at / "rec.pdparams")) for at in (folder, folder / "again"))
    assert list(before) == list(after)
    assert all((before[name].numpy() == after[name].numpy()).all() for name in before)


def test_a_large_table_that_travels_whole_is_told_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every step carries all of it, both ways: which one, how much, and what to change."""
    monkeypatch.setattr(server_trainer, "WORTH_SAYING", 1)
    rewrite(folder, "net.py", "sparse=True", "sparse=False")
    with (
        inside(1) as endpoints,
        own_modules(folder),
        Client(endpoints, trainer=0, trainers=1, strategy="sync") as client,
    ):
        learn(folder, client, steps=3)
    told = [line for line in capsys.readouterr().out.splitlines() if "it is not sparse" in line]
    assert told and len(told) == len(set(told))
    assert all("MiB); nn.Embedding(..., sparse=True) sends the rows" in line for line in told)
