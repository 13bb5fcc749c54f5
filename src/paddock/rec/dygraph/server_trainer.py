"""A user's model with its parameters on the servers; it computes what it would compute alone.

Every nn.Embedding(sparse=True) becomes a table of rows, all other parameters a dense table for
each rule. Trainer 0 gives the first values, as its own paddle.seed has made them.

Where all rows move at every step (see optimizer.py) rows on servers cannot do the same. In sync,
which is for the numbers of training alone, a table of up to IDLE_MAX numbers is then a dense one,
and travels whole at every step. Else rows stand still until they are pushed, as with lazy_mode. A
line says which; runner.idle_rows: exact | still chooses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.optimizer.lr import ReduceOnPlateau

from paddock.errors import UsageError
from paddock.ps import Client, DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.adapters.dense import ModelBuffers, ModelParameters, set_first
from paddock.ps.adapters.rows import pull_all_rows, set_all_rows
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.paddle import PADDLE
from paddock.rec.dygraph.optimizer import (
    OptimizerRules,
    base_rate,
    clip_gradients,
    decay_of,
    own_rule,
    rules_of,
    times_of,
)
from paddock.rec.dygraph.paddle_patches import as_served
from paddock.rec.dygraph.rows import Floats, IdPredictor, PullCache, ServerEmbedding
from paddock.rec.models import paddle_private as private

IDLE_MAX = 1 << 24
WORTH_SAYING = 1 << 20
STEPS = "rec.steps"
ROWS = "rec.rows"
IDLE = ("auto", "exact", "still")
# Layers that share a weight are known by their objects.
SHARED = re.compile(r"^.*\.weight *= *[\w.\[\]]+\.weight *$", re.MULTILINE)
SUM = OptimizerSpec("sum")


class PersistentGradients(ModelParameters):
    """Parameters that once had a gradient have one in every step, of zeros where unused.

    Paddle's clear_grad() leaves zeros there, by which momentum and decay go on.
    """

    def hold(self, grads: Floats, used: list[bool]) -> None:
        """Gradients (size,) float32 wait for the step; a part once used stays used."""
        before = getattr(self, "_used", used)
        super().hold(grads, [one or was for one, was in zip(used, before, strict=True)])


class ServerTrainer:
    """The trainer takes the place of `loss.backward(); optimizer.step()`.

    folder: where the model's sources are. idle: of IDLE. say: takes a line for the user.
    """

    def __init__(
        self,
        client: Client,
        model: nn.Layer,
        optimizer: Any,
        *,
        folder: str = "",
        idle: str = "auto",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if idle not in IDLE:
            raise UsageError(f"runner.idle_rows is {idle!r}", hint="one of " + ", ".join(IDLE))
        self.client, self.model, self.optimizer = client, model, optimizer
        self._say, self._said = say, set[str]()
        self.rules: OptimizerRules = rules_of(optimizer)
        self.together = PullCache(client)
        self.foresight = IdPredictor()
        self.steps = self._scheduled = self._batches = 0
        self._is_behind = False
        self._keys = list(model.state_dict())
        self._begin_count()
        learned = {id(one) for one in private.parameters_of(optimizer) if not one.stop_gradient}
        sparse = _sparse_layers(model, learned)
        _say_whole(model, learned, say)
        kept = [name for name, one in sparse.items() if self._stays(name, one, folder, idle)]
        self._kept = [sparse.pop(name)[0].weight for name in kept]
        first = [layers[0].weight for layers in sparse.values()]
        self.tables = [self._table(name, layers) for name, layers in sparse.items()]
        self._taken = {id(layer) for layers in sparse.values() for layer in layers}

        def give() -> None:
            for table, weight in zip(self.tables, first, strict=True):
                set_all_rows(self.client, table.rows.table, PADDLE.array(weight))

        # Trainer 0 gives the rows, unless its earlier life or a checkpoint did; all wait.
        set_first(client, ROWS, give)
        self.dense: list[ModelParameters | ModelBuffers] = list(self._dense_parts(learned))
        self.dense += self._buffers()

    # ------------------------------------------------------------------------------------- begin

    def _begin_count(self) -> None:
        """Steps of the job so far, for rules whose correction the trainers know, and those of
        their schedule, which goes on where it was.
        """
        lr = private.rate_of(self.optimizer)
        # ReduceOnPlateau goes by what it was shown.
        self._schedule = lr if callable(lr) and not isinstance(lr, ReduceOnPlateau) else None
        if self.rules.correction is None and self._schedule is None:
            return
        self.client.create(DenseSpec(STEPS, 2, SUM))
        is_mean = self.client.strategy.name in ("sync", "geo")
        total = self.client.pull_dense(STEPS) / (1 if is_mean else self.client.place.trainers)
        self.steps = round(float(total[0]))
        if self._schedule is not None:
            for _ in range(round(float(total[1])) - self._schedule.last_epoch):
                self._schedule.step()
            self._scheduled = self._schedule.last_epoch

    def _count(self) -> None:
        """Tell the servers of this step, and how far the schedule has gone in it."""
        if self.rules.correction is None and self._schedule is None:
            return
        before = self._scheduled
        if self._schedule is not None:
            self._scheduled = self._schedule.last_epoch
        self.client.push_dense(STEPS, np.array([1, self._scheduled - before], np.float32))

    def _stays(self, name: str, layers: list[nn.Embedding], folder: str, idle: str) -> bool:
        """The sparse embedding is a dense table: its weight is used, or all its rows move."""
        weight, say = layers[0].weight, self._say
        size = int(np.prod(weight.shape))
        moves = self.rules.moves_idle or any(decay_of(weight, self.optimizer))
        is_exact = self.client.strategy.name == "sync" and size <= IDLE_MAX
        is_kept = moves and (idle == "exact" or (idle == "auto" and is_exact))
        kind = type(self.optimizer).__name__
        said = re.compile(rf"\b{re.escape(name.split('.')[-1])}\.weight\b")
        sources = Path(folder).glob("*.py") if folder else []
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in sources)
        if not is_kept and any(said.search(SHARED.sub("", text)) for text in texts):
            is_kept = True
            say(
                f"embedding {name}: the model uses its weight, so the whole table travels at every "
                f"step ({_size_text(size)}); call the layer with ids, and only their rows do"
            )
        elif is_kept and size >= WORTH_SAYING:
            say(
                f"embedding {name}: Paddle's {kind} moves all rows at every step, so the whole "
                f"table travels ({_size_text(size)}; runner.idle_rows: still is faster)"
            )
        elif moves and not is_kept:
            say(
                f"embedding {name}: Paddle's {kind} moves all rows at every step, on the servers "
                "only those of the batch move (runner.idle_rows: exact for all)"
            )
        if is_kept:
            for layer in layers:
                private.make_dense(layer)
        return is_kept

    def _table(self, name: str, layers: list[nn.Embedding]) -> ServerEmbedding:
        weight = layers[0].weight
        if private.max_norm_of(layers[0]) is not None:
            raise UsageError(f"embedding {name!r}: max_norm has no equal on the servers")
        keys = [key for key, one in self.model.state_dict().items() if one is weight]
        keys = keys or [f"{name}.weight"]
        spec = SparseSpec(
            keys[0],
            int(weight.shape[1]),
            own_rule(self.rules.rows, weight, self.optimizer),
            InitialSpec("zeros"),
        )
        table = ServerEmbedding(self.together, spec, int(weight.shape[0]), name, keys)
        table.rows.rate = self._rate(times_of(weight), is_sparse=True)
        for layer in layers:
            table.take_over(layer)
        listed = private.parameters_of(self.optimizer)
        listed[:] = [one for one in listed if one is not weight]
        return table

    def _dense_parts(self, learned: set[int]) -> Iterator[ModelParameters | ModelBuffers]:
        """A table for each rule, of all parameters that have it."""
        groups: dict[str, tuple[OptimizerSpec, float, bool, list[Any]]] = {}
        own = [one for _, one in self.model.named_parameters() if id(one) in learned]
        known = {id(one) for one in own}
        # Those of layers in plain lists are the optimizer's alone.
        own += [one for one in private.parameters_of(self.optimizer) if id(one) in learned - known]
        for parameter in own:
            if parameter.dtype != paddle.float32:
                raise UsageError(
                    f"parameter {parameter.name!r} is {parameter.dtype}",
                    hint="on the servers all are float32; or train alone",
                )
            is_sparse = any(parameter is one for one in self._kept)
            base = self.rules.rows if is_sparse else self.rules.dense
            spec, times = own_rule(base, parameter, self.optimizer), times_of(parameter)
            if spec.name == "adam_told":
                spec = replace(spec, options={**spec.options, "idle": 1.0})
            group = groups.setdefault(f"{spec}", (spec, times, is_sparse, []))
            group[3].append(parameter)
        for number, (spec, times, is_sparse, tensors) in enumerate(groups.values()):
            name = f"dense.{number}" if number else "dense"
            kind = ModelParameters if is_sparse else PersistentGradients
            part = kind(PADDLE, self.client, tensors, table=name, optimizer=spec)
            part.rate = self._rate(times, is_sparse=is_sparse)
            yield part

    def _buffers(self) -> list[ModelParameters | ModelBuffers]:
        """Running statistics, as of BatchNorm: what a batch changes in them is added."""
        found = {
            id(one): one
            for layer in self.model.sublayers(include_self=True)
            for name, one in [
                *private.own_buffers(layer).items(),
                *private.own_parameters(layer).items(),
            ]
            if one is not None
            and one.dtype == paddle.float32
            and (name in ("_mean", "_variance") or name in private.own_buffers(layer))
            and one.stop_gradient
        }
        if not found:
            return []
        tensors = list(found.values())
        return [ModelBuffers(PADDLE, self.client, tensors, table="buffers", optimizer=SUM)]

    def _rate(self, times: float, *, is_sparse: bool) -> Callable[[Rate | None], Rate] | None:
        """The rate that a table is told before a push; None where its spec's stays."""
        lr = private.rate_of(self.optimizer)
        correction = self.rules.correction if is_sparse else None
        if not callable(lr) and correction is None:
            return None

        def rate(_: Rate | None) -> Rate:
            now = times * (float(lr()) if callable(lr) else base_rate(self.optimizer))
            return correction(now, self.steps) if correction else Rate(now)

        return rate

    # -------------------------------------------------------------------------------- each batch

    @contextmanager
    def batch(self, batch: Any) -> Iterator[None]:
        """Around a forward: the batch's rows are fetched first, in one round trip."""
        if self._is_behind:
            self.pull()
        counts = {table.rows.table: table.count for table in self.tables}
        self.together.fetch(self.foresight.keys(batch, counts))
        with as_served(self._taken, self._say_dense):
            yield
        if self.foresight.is_known:
            return
        self.foresight.learn(batch, {table.rows.table: table.asked for table in self.tables})
        for table in self.tables:
            table.is_watched, table.asked = False, []

    def prefetch(self, batch: Any) -> None:
        """Ask for the next batch's rows where they may be a batch old."""
        if self.client.strategy.name not in ("async", "half_async"):
            return
        counts = {table.rows.table: table.count for table in self.tables}
        for table, keys in self.foresight.keys(batch, counts).items():
            self.client.prefetch(table, keys)

    def step(self, loss: Any) -> None:
        """backward, push, the strategy's wait, pull.

        Raises RequestError when a gradient is not finite; nothing is sent then.
        """
        parts = [*(table.rows for table in self.tables), *self.dense]
        self.steps += 1
        try:
            loss.backward()
            for part in parts:
                part.combine()
            self._look()
            self._clip()
            for part in parts:
                part.push()
            self._count()
        finally:
            for part in parts:
                part.forget()
        self.client.step()
        for one in self.dense:
            one.pull()

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def _say_dense(self) -> None:
        if self.rules.correction is not None and not self.rules.moves_idle:  # a lazy Adam
            self._say_once(
                "functional.embedding(sparse=True): its weight is a dense table, all rows of which "
                "move at every step; alone lazy_mode moves those of the batch (nn.Embedding does)"
            )

    def _look(self) -> None:
        """Alone Adam's correction counts the batches that have a gradient of a table, here all."""
        self._batches += 1
        for table in self.tables if self.rules.correction is not None else ():
            table.batches += bool(table.rows.held)
            if table.rows.held and table.batches < self._batches:
                self._say_once(
                    f"embedding {table.name}: not in every batch, so its steps of Adam are not "
                    "quite those of training alone"
                )

    def _clip(self) -> None:
        """The user's clip, of this worker's gradients."""
        if self.rules.clip is None:
            return
        dense = [
            view
            for one in self.dense
            if isinstance(one, ModelParameters)
            for view in one.views(one.held)
        ]
        every = [*dense, *(grad for table in self.tables for grad in table.rows.held)]
        clip_gradients(every, self.rules.clip)

    # --------------------------------------------------------------------------- the whole model

    def go_on(self, optimizer: Mapping[str, Any]) -> None:
        """The tables were loaded: parameters and steps as they have them. optimizer: empty."""
        self._begin_count()
        self.pull()

    def pull(self) -> None:
        """Dense parameters become the servers' newest ones."""
        self._is_behind = False
        for part in self.dense:
            part.pull()

    def state(self) -> dict[str, Any]:
        """An ordinary state dict, with the whole embeddings, in the model's own order."""
        own: dict[str, Any] = dict(self.model.state_dict())
        for table in self.tables:
            rows = pull_all_rows(self.client, table.rows.spec, table.count)
            whole = paddle.to_tensor(rows)
            own.update(dict.fromkeys(table.state_keys, whole))
        return {key: own[key] for key in self._keys if key in own}

    def optimizer_state(self) -> dict[str, Any]:
        """Nothing: the servers have it."""
        return {}

    def shapes(self) -> dict[str, list[int]]:
        """The shape of each entry of state()."""
        found = {key: list(one.shape) for key, one in self.model.state_dict().items()}
        for table in self.tables:
            found.update({key: [table.count, table.rows.spec.dim] for key in table.state_keys})
        return found

    def set_state(self, state: dict[str, Any]) -> None:
        """The servers take these values from trainer 0; the others pull before their next batch."""
        rows = {key: table for table in self.tables for key in table.state_keys}
        self.model.set_state_dict({key: one for key, one in state.items() if key not in rows})
        self._is_behind = True
        if self.client.place.trainer == 0:
            for part in self.dense:
                part.set()
            for key, table in rows.items():
                if key in state:
                    values = np.asarray(state[key], np.float32)
                    set_all_rows(self.client, table.rows.table, values)
        self.client.barrier("rec.load")


def _say_whole(model: nn.Layer, learned: set[int], say: Callable[[str], None]) -> None:
    """A large table whose gradients are dense: a step carries all of it, both ways."""
    for name, layer in model.named_sublayers():
        if (
            not isinstance(layer, nn.Embedding)
            or private.is_sparse(layer)
            or id(layer.weight) not in learned
        ):
            continue
        size = int(np.prod(layer.weight.shape))
        if size >= WORTH_SAYING:
            say(
                f"embedding {name}: it is not sparse, so the whole table travels at every step "
                f"({_size_text(size)}); nn.Embedding(..., sparse=True) sends the rows of the batch"
            )


def _size_text(numbers: int) -> str:
    """The size of so many float32, for people."""
    return f"{numbers * 4 / (1 << 20):.1f} MiB"


def _sparse_layers(model: nn.Layer, learned: set[int]) -> dict[str, list[nn.Embedding]]:
    """The sparse embeddings that learn: the first layer's name -> all layers of one weight."""
    found: dict[int, tuple[str, list[nn.Embedding]]] = {}
    for name, layer in model.named_sublayers(include_self=True):
        if (
            isinstance(layer, nn.Embedding)
            and private.is_sparse(layer)
            and id(layer.weight) in learned
        ):
            found.setdefault(id(layer.weight), (name, []))[1].append(layer)
    owners: dict[int, int] = {}
    for layer in model.sublayers(include_self=True):
        for one in private.own_parameters(layer).values():
            if one is not None:
                owners[id(one)] = owners.get(id(one), 0) + 1
    # A weight that another layer shares, such as an output layer's, is used by it.
    return {name: layers for key, (name, layers) in found.items() if owners[key] == len(layers)}
