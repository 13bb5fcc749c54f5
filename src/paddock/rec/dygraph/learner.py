"""A PaddleRec 2.x model as a Learner: its own forward, loss, metrics and optimizer."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import paddle
from paddle.utils import unique_name

from paddock.errors import PaddockError, UsageError
from paddock.ps import Client
from paddock.rec.checkpoints import STATE
from paddock.rec.data_parallel import DataParallelTables
from paddock.rec.dygraph.folder import DygraphFolder, user_code
from paddock.rec.dygraph.paddle_patches import within_its_rows
from paddock.rec.dygraph.reading import Batches
from paddock.rec.dygraph.server_trainer import ServerTrainer
from paddock.rec.learner import WorkerRank
from paddock.rec.metrics import MergeableMetric, PaddleMetric, counts_of, number
from paddock.rec.pickles import read_arrays
from paddock.rec.resume import is_of_servers
from paddock.rec.settings import Reading, TrainingRun

PARAMETERS, OPTIMIZER = "rec.pdparams", "rec.pdopt"
LOSS = "loss"


class UserModel(Protocol):
    """A user's DygraphModel, where it is, and its configuration: flat, dotted keys."""

    directory: str
    config: dict[str, Any]

    @property
    def model(self) -> Any:
        """The object whose hooks create_model, train_forward ... are called."""


def load_model(
    run: TrainingRun, client: Client | DataParallelTables | None, place: WorkerRank
) -> FolderLearner:
    return FolderLearner(run, DygraphFolder(run.model_directory, run.config), place, client)


class LocalTrainer:
    """The trainer of a model alone, with the user's optimizer; see ServerTrainer for its calls."""

    def __init__(self, net: Any, optimizer: Any, missing: str) -> None:
        self.net, self.optimizer, self.missing = net, optimizer, missing

    def prefetch(self, batch: Any) -> None:
        """All rows are here."""

    def pull(self) -> None:
        """All parameters are here."""

    @contextmanager
    def batch(self, batch: Any) -> Iterator[None]:
        """Around a forward."""
        if not self.net.training:
            yield
            return
        self.optimizer.clear_grad()
        with within_its_rows(self.optimizer):
            yield

    def step(self, loss: Any) -> None:
        """Backward and update. Raises PaddockError for a loss that is no number."""
        loss.backward()
        check_finite(loss, self.net)
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        """The model's state dict."""
        found: dict[str, Any] = self.net.state_dict()
        return found

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state dict; empty before the first step."""
        found: dict[str, Any] = self.optimizer.state_dict()
        return found

    def shapes(self) -> dict[str, list[int]]:
        """The shape of each entry of state()."""
        return {name: list(one.shape) for name, one in self.net.state_dict().items()}

    def set_state(self, state: dict[str, Any]) -> None:
        """The parameters become these."""
        self.net.set_state_dict({**self.state(), **state} if self.missing == "init" else state)

    def go_on(self, optimizer: Mapping[str, Any]) -> None:
        """The optimizer goes on from a state, whose tensors are arrays."""
        arrays = {k: paddle.to_tensor(v) for k, v in optimizer.items() if isinstance(v, np.ndarray)}
        self.optimizer.set_state_dict({**optimizer, **arrays})


class DygraphLearner:
    """A model with its optimizer.

    client: of the servers that have its parameters, or of tables alike in all workers; None: alone.
    """

    def __init__(
        self,
        run: TrainingRun,
        folder: UserModel,
        place: WorkerRank,
        client: Client | DataParallelTables | None = None,
    ) -> None:
        self._folder, self._client, self.place = folder, client, place
        self._missing = run.warm_start_missing
        config, say = folder.config, place.say
        wants = run.device.startswith("gpu")
        has = paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0
        if wants and not has:
            say("runner.use_gpu is true, but there is no GPU here: training on the CPU")
        paddle.set_device(run.device if wants and has else "cpu")
        seed_all(run.seed)
        # Names begin anew, as in a process of its own: a second model may have the same, and
        # rec.pdopt has the names that PaddleRec's trainer gives.
        with user_code(folder.directory), unique_name.guard():
            self.net: Any = folder.model.create_model(config)
            self.optimizer: Any = folder.model.create_optimizer(self.net, config)
            if not callable(getattr(self.optimizer, "step", None)):
                raise UsageError(
                    f"{folder.directory}: create_optimizer gives {type(self.optimizer).__name__}, "
                    "not an optimizer",
                    hint="a folder with a trainer of its own (trainer.py) runs with that only",
                )
            self._found, names = folder.model.create_metrics()
        is_one = client is None or client.place.trainers == 1
        self.metrics: Mapping[str, MergeableMetric] = {
            name: PaddleMetric(self._finder(at))
            for at, name in enumerate(names)
            if is_one or counts_of(self._found[at]) is not None
        }
        # The others cannot be added up over workers: each worker prints its own.
        self._alone = {at: name for at, name in enumerate(names) if name not in self.metrics}
        self._trainer: LocalTrainer | ServerTrainer
        if client is None:
            self._trainer = LocalTrainer(self.net, self.optimizer, run.warm_start_missing)
            return
        self._trainer = ServerTrainer(
            client,  # type: ignore[arg-type]  # DataParallelTables has the calls that it makes.
            self.net,
            self.optimizer,
            folder=folder.directory,
            idle=str(config.get("runner.idle_rows", "auto")),
            say=say,
        )
        if client.place.trainer:  # Other negatives and other dropout than worker 0's.
            seed_all(run.seed + client.place.trainer)

    def _finder(self, at: int) -> Callable[[], Any]:
        return lambda: self._found[at]

    def prefetch(self, batch: Any) -> None:
        """Ask for the next batch's rows, where strategy and model allow."""
        self._trainer.prefetch(batch)

    def train(self, batch: Any) -> Mapping[str, float]:
        """The model learns one batch, in the order of PaddleRec's trainer."""
        if not self.net.training:
            self.net.train()
        hooks, config = self._folder.model, self._folder.config
        with user_code(self._folder.directory):
            with self._trainer.batch(batch):
                loss, self._found, printed = hooks.train_forward(
                    self.net, self._found, batch, config
                )
            self._trainer.step(loss)
        return self._numbers(printed, loss)

    def evaluate(self, batch: Any) -> Mapping[str, float]:
        """infer_forward, without gradients."""
        if self.net.training:
            self.net.eval()
        hooks, config = self._folder.model, self._folder.config
        if not hasattr(hooks, "infer_forward"):
            raise UsageError(
                f"{self._folder.directory}: DygraphModel has no infer_forward",
                hint="write it, or evaluate with the model's own script",
            )
        around = self._trainer.batch(batch)
        with user_code(self._folder.directory), paddle.no_grad(), around:
            self._found, printed = hooks.infer_forward(self.net, self._found, batch, config)
        return self._numbers(printed, None)

    def _numbers(self, printed: Any, loss: Any) -> dict[str, float]:
        found = {} if loss is None else {LOSS: number(loss)}
        for name, value in (printed if isinstance(printed, dict) else {}).items():
            found[LOSS if name.lower() == LOSS else name] = number(value)
        for at, name in self._alone.items():
            found[name] = number(self._found[at].accumulate())
        return found

    def save(self, directory: str) -> None:
        """PaddleRec's two files: rec.pdparams, whole embeddings included, and rec.pdopt.

        With servers the optimizer's state is theirs, and no rec.pdopt is written; workers that
        train copies have it in tables, which are written beside.
        """
        if isinstance(self._client, DataParallelTables):
            self._client.save(directory)
        self.export(directory)

    def refresh(self) -> None:
        """With servers: parameters and buffers as they have them now."""
        self._trainer.pull()

    def load(self, directory: str) -> None:
        """The parameters; of a checkpoint of our own (it knows its position) the optimizer, too.

        As with PaddleRec's model_init_path, which starts with a new optimizer. Raises UsageError.
        """
        path = os.path.join(directory, PARAMETERS)
        if not os.path.isfile(path):
            raise UsageError(f"{directory} has no {PARAMETERS}", hint="the directory of one epoch")
        state = read_arrays(path)
        _check_fits(path, state, self._trainer.shapes(), self._missing)
        self._trainer.set_state(state)
        rest = os.path.join(directory, OPTIMIZER)
        if isinstance(self._client, DataParallelTables) and is_of_servers(directory):
            self._client.load(directory)
            self._trainer.go_on({})
        elif self._client is None and all(
            map(os.path.isfile, (rest, os.path.join(directory, STATE)))
        ):
            self._trainer.go_on(read_arrays(rest))

    def export(self, directory: str) -> None:
        """The files that PaddleRec's own infer.py loads are written."""
        paddle.save(self._trainer.state(), os.path.join(directory, PARAMETERS))
        if state := self._trainer.optimizer_state():
            paddle.save(state, os.path.join(directory, OPTIMIZER))


class FolderLearner(DygraphLearner):
    """A Learner of a PaddleRec 2.x folder, whose data are the user's RecDataset."""

    _folder: DygraphFolder

    def source(self, reading: Reading, place: WorkerRank | None = None) -> Batches:
        return Batches(self._folder, reading, place or self.place)


def _check_fits(
    path: str, state: dict[str, Any], own: Mapping[str, list[int]], missing: str
) -> None:
    """Raises UsageError naming what another model's checkpoint has and this one's lacks.

    missing: what this one lacks fails, begins as it is (init), or with zeros, put in state (zero).
    """
    lacks = [name for name in own if name not in state]
    if missing == "zero":
        state.update({name: np.zeros(own[name], np.float32) for name in lacks})
    lacks = lacks if missing == "fail" else []
    others = [
        f"{name} {list(state[name].shape)}, here {shape}"
        for name, shape in own.items()
        if name in state and list(state[name].shape) != shape
    ]
    if lacks or others:
        said = "; ".join([f"no {name}" for name in lacks[:5]] + others[:5])
        raise UsageError(f"{path} is of another model: {said}", hint="the same hyper_parameters")


def check_finite(loss: Any, net: Any) -> None:
    """Raises PaddockError for a loss that is no number, before it is in any parameter."""
    if np.isfinite(value := number(loss)):
        return
    bad = [
        name
        for name, one in net.named_parameters()
        if one.grad is not None and not np.isfinite(one.grad.numpy()).all()
    ]
    told = f"; so is the gradient of {', '.join(bad[:5])}" if bad else ""
    raise PaddockError(
        f"the loss is {value}{told}",
        hint="a smaller learning rate, or look at the batch: paddock data check",
    )


def seed_all(seed: int) -> None:
    """Paddle's generator, as PaddleRec does, and those that readers draw from."""
    paddle.seed(seed)
    random.seed(seed)
    np.random.seed(seed)
