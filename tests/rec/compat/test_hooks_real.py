"""Old Model hooks on the real Paddle: a folder as its users have it, in dygraph form."""

from __future__ import annotations

import io
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import PaddockError, UsageError
from paddock.rec import loop
from paddock.rec.checkpoints import SaveSchedule
from paddock.rec.learner import WorkerRank
from paddock.rec.report import TrainingReport
from paddock.rec.settings import ModelKind, Reading, Saving, Task, TrainingRun
from paddock.rec.worker_group import WorkerGroup

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
    paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.real

MODEL = """
import paddle
from paddle import nn
from paddlerec.core.utils import envs
from paddlerec.core.model import ModelBase


class Model(ModelBase):
    def __init__(self, config):
        ModelBase.__init__(self, config)

    def _init_hyper_parameters(self):
        rows = envs.get_global_env("hyper_parameters.sparse_feature_number")
        dim = envs.get_global_env("hyper_parameters.sparse_feature_dim")
        self.learning_rate = envs.get_global_env("hyper_parameters.optimizer.learning_rate")
        self.embedding = nn.Embedding(rows, dim, sparse=True)
        self.layers = [nn.Linear(2 * dim + 2, 16), nn.Linear(16, 2)]

    def net(self, inputs, is_infer=False):
        label, slots, dense = self._sparse_data_var[0], self._sparse_data_var[1:], inputs[0]
        pooled = [self.embedding(ids).sum(1) for ids in slots]
        out = paddle.concat([*pooled, dense], 1)
        out = self.layers[1](nn.functional.relu(self.layers[0](out)))
        score = nn.functional.softmax(out)
        if is_infer:
            self._infer_results["AUC"] = (score, label)
            return
        self._metrics["AUC"] = (score, label)
        self._metrics["mean"] = score.mean()
        self._cost = nn.functional.cross_entropy(out, label)

    def optimizer(self):
        return paddle.optimizer.Adam(self.learning_rate, lazy_mode=True)
"""
HYPER = {
    "hyper_parameters.sparse_feature_number": 50,
    "hyper_parameters.sparse_feature_dim": 4,
    "hyper_parameters.optimizer.class": "SGD",
    "hyper_parameters.optimizer.learning_rate": 0.02,
}


def folder(directory: Path, model: str = MODEL, **more: Any) -> TrainingRun:
    """A run of this model over 400 examples in slot text."""
    draw = np.random.default_rng(1)
    hidden = draw.normal(size=50) * 2
    lines = []
    for _ in range(400):
        one, many = int(draw.integers(50)), draw.integers(0, 50, draw.integers(1, 4)).tolist()
        a, b = draw.normal(size=2)
        logit = hidden[one] + hidden[many].sum() * 0.3 + a
        label = int(draw.random() < 1 / (1 + math.exp(-logit)))
        slots = "".join(f" 2:{value}" for value in many)
        lines.append(f"click:{label} dense:{a:.4f} dense:{b:.4f} 1:{one}{slots}\n")
    (directory / "data").mkdir()
    (directory / "data" / "part-0").write_text("".join(lines), encoding="utf-8")
    (directory / "model.py").write_text(model, encoding="utf-8")
    reading = Reading((str(directory / "data"),), 50, sparse_slots=("click", "1", "2"),
                      dense_slots={"dense": 2})  # fmt: skip
    return TrainingRun(
        "test", Task.TRAIN, ModelKind.HOOKS, str(directory), str(directory / "model.py"),
        config=HYPER, reading=reading, epochs=6, **more,
    )  # fmt: skip


def trained(run: TrainingRun, client: ps.Client | None = None) -> tuple[Any, Any]:
    """The model after its epochs."""
    from paddock.rec.compat.hooks import load_model

    opened = load_model(run, client, WorkerRank(servers=0 if client is None else 1))
    assert run.reading is not None
    report = TrainingReport(io.StringIO(), 100, lambda: 0.0)
    due = SaveSchedule(Saving(), lambda: 0.0)
    source = opened.source(run.reading)
    return opened, loop.train(run, opened, source, WorkerGroup(), report, due, None)


def test_a_model_of_old_hooks_learns_alone(tmp_path: Path) -> None:
    """Its AUC adds up over workers, under the name that it gave."""
    opened, numbers = trained(folder(tmp_path))
    assert numbers["AUC"] > 0.8, numbers
    assert numbers["loss"] < 0.6
    opened.save(str(tmp_path))
    assert (tmp_path / "rec.pdparams").is_file()
    run = folder_again(tmp_path)
    found = loop.evaluate(
        opened,
        opened.source(run),
        WorkerGroup(),
        TrainingReport(io.StringIO(), 1, lambda: 0.0),
        "x",
        0,
    )
    assert found["AUC"] > 0.8
    assert "loss" not in found, "infer computes none"


def folder_again(directory: Path) -> Reading:
    """The data of folder()."""
    return Reading((str(directory / "data"),), 64, sparse_slots=("click", "1", "2"),
                   dense_slots={"dense": 2})  # fmt: skip


def test_a_model_of_old_hooks_learns_with_servers_as_it_does_alone(tmp_path: Path) -> None:
    """The same numbers to float32's rounding: its embedding is a table of theirs."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    _, alone = trained(folder(tmp_path / "a"))
    with ps.local("sync") as client:
        _, served = trained(folder(tmp_path / "b"), client)
        specs = [known.spec for known in client.group.tables.values()]
        assert [one.dim for one in specs if isinstance(one, ps.SparseSpec)] == [4]
    assert served == pytest.approx(alone, abs=2e-4)


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("        self._cost = nn.functional.cross_entropy(out, label)\n", "", "has set no _cost"),
        ("pooled = [self.embedding(ids)", "pooled = [nn.Embedding(50, 4)(ids)",
         "model.py:21: net.. makes a new Embedding for each batch"),
        ("_metrics[\"AUC\"]", "_metrics[\"AUX\"]", "there is no such metric"),
        ("class Model(", "class Other(", "has no class Model"),
        ("import paddle\n", "import paddle\nimport nowhere\n", "imports nowhere"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_model_is_said(
    tmp_path: Path, line: str, instead: str, said: str
) -> None:
    """With the file, and the line where there is one."""
    assert line in MODEL
    run = folder(tmp_path, MODEL.replace(line, instead))
    with pytest.raises(UsageError, match=said):
        trained(run)


def test_layers_that_net_makes_once_are_found(tmp_path: Path) -> None:
    """Before the optimizer is made, by a batch of zeros."""
    late = MODEL.replace(
        "        self.layers = [nn.Linear(2 * dim + 2, 16), nn.Linear(16, 2)]\n", ""
    ).replace(
        "        pooled =",
        "        if not hasattr(self, 'layers'):\n"
        "            self.layers = [nn.Linear(10, 16), nn.Linear(16, 2)]\n        pooled =",
    )
    _, numbers = trained(folder(tmp_path, late))
    assert numbers["AUC"] > 0.8


def test_a_loss_that_is_no_number_names_batch_and_parameters(tmp_path: Path) -> None:
    """Before it is in any of them; with servers it is their refusal, which names the table."""
    bad = MODEL.replace("cross_entropy(out, label)", "cross_entropy(out * float('inf'), label)")
    said = "batch 0 of epoch 0: the loss is nan; so is the gradient of .*layers_1.weight"
    with pytest.raises(PaddockError, match=said):
        trained(folder(tmp_path, bad))


def test_what_a_checkpoint_lacks_begins_as_the_run_says(tmp_path: Path) -> None:
    """fail names it; init leaves it as it is; zero makes it zero."""
    opened, _ = trained(folder(tmp_path))
    old = {k: v for k, v in opened.net.state_dict().items() if "layers_1" not in k}
    paddle.save(old, str(tmp_path / "rec.pdparams"))
    from paddock.rec.compat.hooks import load_model

    made = {}
    for missing in ("fail", "init", "zero"):
        (tmp_path / missing).mkdir()
        run = folder(tmp_path / missing, warm_start_missing=missing)
        made[missing] = load_model(run, None, WorkerRank())
    with pytest.raises(UsageError, match="layers_1"):
        made["fail"].load(str(tmp_path))
    for missing, is_zero in (("init", False), ("zero", True)):
        made[missing].load(str(tmp_path))
        state = made[missing].net.state_dict()  # type: ignore[attr-defined]
        assert bool((state["layers_1.weight"].numpy() == 0).all()) is is_zero
        assert (state["layers_0.weight"].numpy() == old["layers_0.weight"].numpy()).all()
