"""ModelBase, which a user's `class Model` builds on, in dygraph form; and the other old names.

As in PaddleRec 1.8.5 (core/model.py), with tensors of one batch where that had variables of a
program: layers are made once, in `_init_hyper_parameters` (or where net() finds none yet), and
net() is called for each batch. It sets `_cost`, `_metrics` and `_infer_results`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from paddock.errors import UsageError
from paddock.rec.readers.paddlerec import ENVS, NAMESPACE, PaddleRecEnvs

OPTIMIZERS = ("SGD", "ADAM", "ADAGRAD")


class ModelBase:
    """The base class. `settings` and `slots` are set by whoever loads the model's file."""

    settings = PaddleRecEnvs({})
    slots: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # sparse, dense

    def __init__(self, config: object = None) -> None:
        self._cost: Any = None
        self._metrics: dict[str, Any] = {}
        self._infer_results: dict[str, Any] = {}
        self._data_var: list[Any] = []
        self._infer_data_var: list[Any] = []
        self._sparse_data_var: list[Any] = []
        self._dense_data_var: list[Any] = []
        self._sparse_data_var_map: dict[str, Any] = {}
        self._dense_data_var_map: dict[str, Any] = {}
        self._namespace = NAMESPACE
        self._env = config
        self._init_hyper_parameters()

    def _init_hyper_parameters(self) -> None:
        """The user's: read hyper-parameters, make layers."""

    def input_data(self, is_infer: bool = False, **_: object) -> list[Any]:
        """The batch's tensors: dense slots, then sparse ones; (examples, width) each."""
        return [*self._dense_data_var, *self._sparse_data_var]

    def net(self, inputs: Any, is_infer: bool = False) -> Any:
        """The user's: compute, and set _cost and _metrics, or _infer_results."""

    def train_net(self) -> None:
        """The user's, in models that have one; else net()."""
        self._data_var = self.input_data(is_infer=False)
        _call(self.net, self._data_var, is_infer=False)

    def infer_net(self) -> None:
        """The user's, in models that have one; else net() with is_infer."""

    def run(self, inputs: Mapping[str, Any], *, is_infer: bool) -> None:
        """The user's hooks compute one batch."""
        sparse, dense = ({n: inputs[n] for n in names if n in inputs} for names in self.slots)
        self._sparse_data_var_map, self._sparse_data_var = sparse, list(sparse.values())
        self._dense_data_var_map, self._dense_data_var = dense, list(dense.values())
        if not is_infer:
            self._cost = None
            self.train_net()
            return
        self._infer_results.clear()
        self._infer_data_var = self._data_var = self.input_data(is_infer=True)
        _call(self.net, self._infer_data_var, is_infer=True)
        if not self._infer_results:
            self.infer_net()

    def get_inputs(self) -> list[Any]:
        """The tensors of the batch."""
        return self._data_var

    def get_avg_cost(self) -> Any:
        """The loss."""
        return self._cost

    def get_metrics(self) -> dict[str, Any]:
        """By the name that is printed."""
        return self._metrics

    def get_infer_results(self) -> dict[str, Any]:
        """By the name that is printed."""
        return self._infer_results

    def _build_optimizer(self, name: str, lr: Any, strategy: object = None) -> Any:
        """SGD, Adam (lazy, as there) or Adagrad. Raises UsageError."""
        from paddle import optimizer

        try:
            rate = lr if callable(lr) else float(lr)
        except (TypeError, ValueError):
            raise UsageError(
                f"hyper_parameters.optimizer.learning_rate is {lr!r}", hint="a number: 0.001"
            ) from None
        kinds = {"SGD": optimizer.SGD, "ADAGRAD": optimizer.Adagrad}
        kind = str(name).upper()
        if kind == "ADAM":
            return optimizer.Adam(rate, lazy_mode=True)
        if kind not in kinds:
            raise UsageError(
                f"hyper_parameters.optimizer.class is {name!r}",
                hint=f"one of {', '.join(OPTIMIZERS)}, or write optimizer() in model.py",
            )
        return kinds[kind](rate)

    def optimizer(self) -> Any:
        """That of hyper_parameters.optimizer, where the user writes none."""
        find = self.settings.find
        return self._build_optimizer(
            find("hyper_parameters.optimizer.class", find("hyper_parameters.optimizer", "SGD")),
            find(
                "hyper_parameters.optimizer.learning_rate", find("hyper_parameters.learning_rate")
            ),
        )


def _call(net: Any, inputs: Any, *, is_infer: bool) -> None:
    """net(inputs, is_infer), net(inputs) or net(): models of all ages."""
    wanted = inspect.signature(net).parameters
    if not wanted:
        net()
    elif "is_infer" in wanted:
        net(inputs, is_infer=is_infer) if len(wanted) > 1 else net(is_infer=is_infer)
    else:
        net(inputs)


class LegacyMetric:
    """The base class of metrics; (score, label) in _metrics takes its place."""

    def __init__(self, *_: object, **__: object) -> None:
        name = type(self).__name__
        raise UsageError(
            f"metric {name} works on a program's variables",
            hint=f"self._metrics['{name}'] = (score, label); or an object of paddle.metric",
        )


class AUC(tuple[Any, Any]):
    """AUC(input=score, label=label), as (score, label)."""

    def __new__(cls, input: Any, label: Any, *_: object, **__: object) -> AUC:
        """The other arguments say how it was counted."""
        return super().__new__(cls, (input, label))


def packages(settings: PaddleRecEnvs) -> dict[str, dict[str, Any]]:
    """paddlerec.core.*, as a user's file imports it."""
    names = ("PrecisionRecall", "RecallK", "PosNegRatio")
    metrics = {"AUC": AUC, **{name: type(name, (LegacyMetric,), {}) for name in names}}
    return {
        "paddlerec.core.model": {"ModelBase": ModelBase, "Model": ModelBase},
        "paddlerec.core.metric": {"Metric": LegacyMetric},
        "paddlerec.core.metrics": metrics,
        ENVS: settings.envs(),
    }
