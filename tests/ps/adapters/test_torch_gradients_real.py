"""What torch does to gradients between backward() and step() reaches the rows of tables, too."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps import Client

torch = pytest.importorskip("torch")
from paddock.ps import torch as ps_torch  # noqa: E402 - after torch is known to be there

pytestmark = pytest.mark.real

IDS = [[1, 2, 2], [4, 9, 0]]
IDS_MAX = 10
ROUNDING = 1e-6  # A norm is a sum; that of the rows is of fewer zeros, in another order.


@dataclass
class Pair:
    """A model on servers and its twin of torch alone, with the optimizers of both."""

    client: Client
    model: torch.nn.Module
    trainer: ps_torch.Trainer
    twin: torch.nn.Module
    optimizer: torch.optim.Optimizer

    @property
    def both(self) -> Iterator[tuple[torch.nn.Module, torch.optim.Optimizer]]:
        """Model and optimizer, of the servers first."""
        yield self.model, self.trainer.optimizer
        yield self.twin, self.optimizer

    def check_equal(self, atol: float = 0.0) -> None:
        """Rows and dense parameters have the bits of torch's, or differ by no more than atol."""
        rows = torch.from_numpy(self.client.pull("t", np.arange(IDS_MAX)))
        assert torch.allclose(rows, self.twin.rows.weight, rtol=0, atol=atol)
        assert torch.allclose(self.model.mlp.weight, self.twin.mlp.weight, rtol=0, atol=atol)


def loss_of(model: torch.nn.Module, ids: Iterable[object] = IDS) -> torch.Tensor:
    """A loss far from linear, in which ids repeat."""
    return model.mlp(model.rows(torch.tensor(ids))).pow(2).sum()


@contextmanager
def pair() -> Iterator[Pair]:
    """Both begin with the same values, and learn by SGD."""
    torch.manual_seed(5)
    with ps.local() as client:
        model, twin = torch.nn.Module(), torch.nn.Module()
        model.rows = ps_torch.Embedding(client, "t", 4, optimizer="sgd", lr=0.5)
        model.mlp = torch.nn.Linear(4, 1)
        first = torch.from_numpy(client.pull("t", np.arange(IDS_MAX)))
        twin.rows = torch.nn.Embedding.from_pretrained(first, freeze=False)
        twin.mlp = copy.deepcopy(model.mlp)
        trainer = ps_torch.Trainer(client, model, optimizer="sgd", lr=0.5)
        yield Pair(client, model, trainer, twin, torch.optim.SGD(twin.parameters(), lr=0.5))


def test_a_scaled_loss_teaches_the_rows_what_the_loss_alone_would() -> None:
    """GradScaler multiplies the loss by up to 65,536; pushed so, each row flies away."""
    with pair() as both:
        scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
        for _ in range(3):
            for (model, optimizer), scaler in zip(both.both, scalers, strict=True):
                scaler.scale(loss_of(model)).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            both.check_equal()


def test_gradients_unscaled_by_hand_are_not_unscaled_again() -> None:
    """unscale_(), clip, step(): the order that torch's examples of AMP have."""
    with pair() as both:
        for model, optimizer in both.both:
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            scaler.scale(loss_of(model)).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        both.check_equal(ROUNDING)


@pytest.mark.parametrize("unscaled_by_hand", [False, True])
def test_a_batch_with_an_overflow_in_the_rows_alone_is_skipped(unscaled_by_hand: bool) -> None:
    """And leaves nothing, though nobody calls zero_grad(): the next batch is a clean one."""
    with pair() as both:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
        before = both.client.pull("t", np.arange(IDS_MAX))
        lost = both.model.rows(torch.tensor([1])).sum() * 3e38
        scaler.scale(lost).backward()
        if unscaled_by_hand:
            scaler.unscale_(both.trainer.optimizer)
        scaler.step(both.trainer.optimizer)
        scaler.update()
        assert scaler.get_scale() == 512.0
        assert np.array_equal(both.client.pull("t", np.arange(IDS_MAX)), before)
        scaler.scale(loss_of(both.model)).backward()
        scaler.step(both.trainer.optimizer)
        loss_of(both.twin).backward()
        both.optimizer.step()
        both.check_equal()


def clip_norm(parameters: list[torch.Tensor]) -> torch.Tensor:
    """As nearly everybody clips."""
    return torch.nn.utils.clip_grad_norm_(parameters, 0.3)


def clip_values(parameters: list[torch.Tensor]) -> None:
    """Element by element."""
    torch.nn.utils.clip_grad_value_(parameters, 0.05)


def halve(parameters: list[torch.Tensor]) -> None:
    """By hand."""
    for one in parameters:
        one.grad.mul_(0.5)


@pytest.mark.parametrize("change", [clip_norm, clip_values, halve])
def test_clipping_counts_and_changes_the_rows_gradients(
    change: Callable[[list[torch.Tensor]], object],
) -> None:
    """The norm is that of the whole model, as where nn.Embedding is one of its parameters."""
    with pair() as both:
        norms = []
        for model, optimizer in both.both:
            loss_of(model).backward()
            norms.append(change(list(model.parameters())))
            optimizer.step()
        if norms[0] is not None:
            assert torch.allclose(*norms)
        both.check_equal(ROUNDING)


def test_gradients_accumulate_over_several_backwards() -> None:
    """Four small batches are one step of the rows' optimizer, with the sum of their gradients."""
    with pair() as both:
        for model, optimizer in both.both:
            for ids in ([[1]], [[1]], [[7]], [[1]]):
                (loss_of(model, ids) / 4).backward()
            optimizer.step()
        both.check_equal()


@pytest.mark.parametrize("by", ["optimizer", "model"])
def test_zero_grad_drops_the_rows_gradients(by: str) -> None:
    """Of the model as of the optimizer; running statistics of the batch are no gradients."""
    with pair() as both:
        for model, optimizer in both.both:
            loss_of(model, [[3]]).backward()
            (optimizer if by == "optimizer" else model).zero_grad()
            loss_of(model).backward()
            optimizer.step()
        both.check_equal()


def test_zero_grad_after_the_forward_pass_keeps_running_statistics() -> None:
    """forward, zero_grad, backward, step is an order that many loops have."""
    with ps.local() as client:
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(1), torch.nn.Linear(1, 1))
        trainer = ps_torch.Trainer(client, model, optimizer="sgd", lr=0.1)
        loss = model(torch.ones(2, 1)).sum()
        trainer.optimizer.zero_grad()
        loss.backward()
        trainer.optimizer.step()
        assert model[0].running_mean.tolist() == pytest.approx([0.1])


def test_a_closure_computes_the_gradients_of_the_step() -> None:
    """torch's optimizers call it, and return its loss."""
    with pair() as both:
        losses = []
        for model, optimizer in both.both:

            def closure(
                model: torch.nn.Module = model, optimizer: torch.optim.Optimizer = optimizer
            ) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure))
        assert torch.equal(*losses)
        both.check_equal()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_another_optimizer_cannot_train_the_rows(kind: str) -> None:
    """It would train the parameter of no elements that stands for them."""
    with pair() as both:
        other = getattr(torch.optim, kind)(both.model.parameters(), lr=0.1)
        loss_of(both.model).backward()
        with pytest.raises(UsageError, match="of table 't': its rows are on the servers"):
            other.step()


def test_gradients_of_another_shape_are_refused() -> None:
    """None drops what waits; a tensor of its shape takes its place."""
    with pair() as both:
        weight = both.model.rows.weight
        loss_of(both.model, [[1, 2]]).backward()
        weight.grad = torch.ones(2, 4)
        assert weight.grad.tolist() == [[1.0] * 4] * 2
        with pytest.raises(UsageError, match=r"gradient of shape \(3, 4\)"):
            weight.grad = torch.ones(3, 4)
        weight.grad = None
        assert weight.grad is None


def test_a_hook_of_the_weight_sees_and_changes_the_rows_gradients() -> None:
    """As wandb.watch() looks at them and people mask them; until it is removed."""
    shapes = []
    with pair() as both:
        handles = []
        for model, _ in both.both:
            handles.append(model.rows.weight.register_hook(lambda grad: grad * 0.5))
        both.model.rows.weight.register_hook(lambda grad: shapes.append(tuple(grad.shape)))
        for step in range(3):
            for model, optimizer in both.both:
                optimizer.zero_grad()
                loss_of(model).backward()
                optimizer.step()
            both.check_equal()
            if step == 1:
                for handle in handles:
                    handle.remove()
        assert shapes == [(5, 4)] * 3
        both.model.rows.weight.register_hook(lambda grad: grad[:2])
        with pytest.raises(UsageError, match=r"made a gradient of shape \(2, 4\) of one of"):
            loss_of(both.model).backward()


def test_a_hook_behind_accumulation_changes_what_is_pushed() -> None:
    """register_post_accumulate_grad_hook() is called once for each backward()."""

    def halve_gradient(weight: torch.Tensor) -> None:
        weight.grad.mul_(0.5)

    with pair() as both:
        for model, optimizer in both.both:
            model.rows.weight.register_post_accumulate_grad_hook(halve_gradient)
            loss_of(model).backward()
            optimizer.step()
        both.check_equal()


# Dynamo warns when it copies parameters that are parts of one vector; it reads no gradient of them.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_model_with_a_table_says_what_of_it_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The layers behind the table, or all but the look-up: both learn as without."""
    with pair() as both:
        with pytest.raises(Exception, match=r"table 't' cannot be compiled: .*disable\(Embed"):
            torch.compile(both.model.rows, backend="eager")(torch.tensor([1]))
        both.model.mlp.compile(backend="eager")
        for model, optimizer in both.both:
            loss_of(model).backward()
            optimizer.step()
        both.check_equal()
        passed_by = torch.compiler.disable(ps_torch.Embedding.forward)
        monkeypatch.setattr(ps_torch.Embedding, "forward", passed_by)
        compiled = torch.compile(loss_of, backend="eager")
        for model, optimizer in both.both:
            optimizer.zero_grad()
            (compiled if model is both.model else loss_of)(model).backward()
            optimizer.step()
        both.check_equal()
