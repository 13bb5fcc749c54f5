"""What fleet.distributed_optimizer gives: a framework's optimizer with its rule on the servers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from paddock.ps.adapters.given import TableClient
from paddock.ps.adapters.trainer import TrainerBase
from paddock.ps.translate import framework_of, spec_of


class DistributedOptimizer:
    """step(), minimize(loss), clear_grad() and zero_grad() of a torch or Paddle optimizer.

    A scheduler of the optimizer's is followed, for the dense parameters.
    """

    def __init__(self, client: TableClient, model: Any, optimizer: Any) -> None:
        self.spec = spec_of(optimizer)
        self.inner = optimizer
        adapter = import_module(f"paddock.ps.{framework_of(model)}")
        self.trainer: TrainerBase = adapter.Trainer(client, model, optimizer=self.spec)
        if self.trainer.dense is not None:
            self.trainer.dense.vector.rate = adapter.rate_of(optimizer)

    def step(self) -> None:
        """Ends a batch: gradients pushed, the strategy's wait, new values pulled."""
        self.minimize(None)

    def minimize(self, loss: Any) -> None:
        """backward() and step(), Paddle's way."""
        self.trainer.step(loss)
        self.inner._opt_called = True  # Else torch's schedulers warn that step() was not called.

    def clear_grad(self) -> None:
        """Nothing: step() clears what it has pushed."""

    zero_grad = clear_grad
