"""How a user's paddle.optimizer is read: stand-ins with its attributes, no framework."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps.optimizers.rules import check_optimizer
from paddock.rec.dygraph.optimizer import AdamCorrection, clip_gradients, own_rule, rules_of
from paddock.rec.metrics import PaddleMetric, counts_of, number


def made(kind: str, **attributes: Any) -> Any:
    """An optimizer of this class with Paddle's attributes."""
    known = {
        "_learning_rate": 0.01,
        "_parameter_list": [SimpleNamespace(need_clip=True)],
        "_beta1": 0.9,
        "_beta2": 0.999,
        "_epsilon": 1e-8,
        "_lazy_mode": False,
        "_momentum": 0.9,
        "_use_nesterov": False,
        "_rho": 0.95,
        "_centered": False,
        "_weight_decay": 0.01,
        "_apply_decay_param_fun": None,
        "initial_accumulator_value": 0.1,
    }
    one = type(kind, (), {})()
    vars(one).update({**known, **attributes})
    return one


def regularizer(kind: str, coefficient: float) -> Any:
    """One of paddle.regularizer."""
    one = type(kind, (), {})()
    one._coeff = coefficient
    return one


@pytest.mark.parametrize("kind", ["SGD", "Momentum", "Adam", "AdamW", "Adagrad", "RMSProp"])
def test_each_known_optimizer_has_rules_that_servers_take(kind: str) -> None:
    """Both of dense and of sparse gradients."""
    rules = rules_of(made(kind))
    assert not check_optimizer(rules.dense) and not check_optimizer(rules.rows)


def test_rows_move_without_examples_where_paddle_moves_them() -> None:
    """Momentum and RMSProp always; Adam unless it is lazy; SGD and Adagrad never."""
    found = {
        kind: rules_of(made(kind)).moves_idle
        for kind in ("SGD", "Adagrad", "Momentum", "RMSProp", "Adam")
    }
    assert found == {
        "SGD": False, "Adagrad": False, "Momentum": True, "RMSProp": True, "Adam": True,
    }  # fmt: skip
    assert not rules_of(made("Adam", _lazy_mode=True)).moves_idle


def test_everything_that_cannot_be_done_is_said_at_once() -> None:
    """Two problems of one optimizer, and its own name."""
    with pytest.raises(UsageError) as found:
        rules_of(made("Lamb", _amsgrad=True))
    assert [problem.message.split(" has")[0] for problem in found.value.problems] == [
        "Lamb: amsgrad",
        "Lamb",
    ]
    with pytest.raises(UsageError, match="groups of parameters"):
        rules_of(made("SGD", _parameter_list=[{"params": []}]))
    with pytest.raises(UsageError, match="centered"):
        rules_of(made("RMSProp", _centered=True))


def test_a_parameters_own_decay_comes_before_the_optimizers() -> None:
    """ParamAttr(regularizer=..., learning_rate=...); Momentum keeps L2 in its kernel."""
    optimizer = made("SGD", regularization=regularizer("L2Decay", 0.1))
    plain = SimpleNamespace(regularizer=None)
    own = SimpleNamespace(
        regularizer=regularizer("L1Decay", 0.3), optimize_attr={"learning_rate": 2.0}
    )
    spec = rules_of(optimizer).dense
    assert own_rule(spec, plain, optimizer).l2 == 0.1
    found = own_rule(spec, own, optimizer)
    assert (found.lr, found.l1, found.l2) == (0.02, 0.3, 0.0)
    kernel = made("Momentum", _regularization_coeff=0.2)
    assert own_rule(rules_of(kernel).dense, plain, kernel).l2 == 0.2


def test_adamw_decays_only_what_its_function_names() -> None:
    """apply_decay_param_fun."""
    optimizer = made("AdamW", _apply_decay_param_fun=lambda name: name == "w")
    decays = [
        own_rule(rules_of(optimizer).dense, SimpleNamespace(name=name), optimizer)
        for name in ("w", "b")
    ]
    assert [spec.options["weight_decay"] for spec in decays] == [0.01, 0.0]


def test_the_correction_is_that_of_the_next_step() -> None:
    """Asked again, or out of order, it is the same."""
    correction = AdamCorrection(0.9, 0.999)
    for step in (1, 2, 50, 3, 1):
        ahead = step + 1
        wanted = 0.01 * (1 - 0.999**ahead) ** 0.5 / (1 - 0.9**ahead)
        rate = correction(0.01, step)
        assert abs(rate.lr / wanted - 1) < 1e-4
        assert abs(rate.correction / (1 - 0.999**ahead) ** 0.5 - 1) < 1e-4
    assert correction(0.01, 10**6) == (float(np.float32(0.01)), 1.0)


def test_gradients_are_clipped_as_paddle_does() -> None:
    """By the norm of all, of each, and element by element."""

    def clipped(kind: str, **limits: float) -> list[list[float]]:
        grads = [np.array([3.0, 0.0], np.float32), np.array([[4.0]], np.float32)]
        clip = type(kind, (), limits)()
        clip_gradients(grads, clip)
        return [grad.reshape(-1).tolist() for grad in grads]

    assert np.allclose(
        np.concatenate(clipped("ClipGradByGlobalNorm", clip_norm=1.0)), [0.6, 0, 0.8]
    )
    assert clipped("ClipGradByGlobalNorm", clip_norm=9.0) == [[3.0, 0.0], [4.0]]
    assert np.allclose(np.concatenate(clipped("ClipGradByNorm", clip_norm=1.0)), [1, 0, 1])
    assert clipped("ClipGradByValue", min=-1.0, max=2.0) == [[2.0, 0.0], [2.0]]


class Recall:
    """As Paddle's: two counts."""

    __module__ = "paddle.metric.metrics"

    def __init__(self) -> None:
        self.tp, self.fn = 0, 0

    def accumulate(self) -> float:
        """tp / (tp + fn)."""
        return self.tp / max(1, self.tp + self.fn)

    def reset(self) -> None:
        """None."""
        self.tp, self.fn = 0, 0


def test_counts_of_two_workers_make_one_metric() -> None:
    """Not the mean of two recalls; what each has counted stays its own."""
    one, two = type("Mine", (Recall,), {})(), Recall()
    one.tp, one.fn, two.tp, two.fn = 1, 1, 8, 2
    first, second = PaddleMetric(lambda: one), PaddleMetric(lambda: two)
    assert first.value(first.state() + second.state()) == 9 / 12
    assert first.value() == 0.5 and one.tp == 1
    first.clear()
    assert first.value() == 0.0 and counts_of(object()) is None


def test_what_is_printed_is_one_number() -> None:
    """The mean of a tensor with several; text is refused."""
    assert number(np.array([[1.0], [2.0]])) == 1.5 and number(3) == 3.0
    with pytest.raises(Exception, match="not a number"):
        number("high")
