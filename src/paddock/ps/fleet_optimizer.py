"""What fleet.distributed_optimizer gives: a framework's optimizer with its rule on the servers."""

from __future__ import annotations

from typing import Any

from paddock.ps.adapter import TableClient
from paddock.ps.translate import framework_of, spec_of


class DistributedOptimizer:
    """step(), minimize(loss), clear_grad() and zero_grad() of a torch or Paddle optimizer."""

    def __init__(self, client: TableClient, model: Any, optimizer: Any) -> None:
        self.spec = spec_of(optimizer)
        self.inner = optimizer
        self.trainer: Any
        if framework_of(model) == "torch":
            from paddock.ps.torch import Trainer as TorchTrainer

            self.trainer = TorchTrainer(client, model, optimizer=self.spec)
        else:
            from paddock.ps.paddle import Trainer as PaddleTrainer

            self.trainer = PaddleTrainer(client, model, optimizer=self.spec)

    def step(self) -> None:
        """Ends a batch: gradients pushed, the strategy's wait, new values pulled."""
        self.trainer.step()

    def minimize(self, loss: Any) -> None:
        """backward() and step(), Paddle's way."""
        self.trainer.step(loss)

    def clear_grad(self) -> None:
        """Nothing: step() clears what it has pushed."""

    zero_grad = clear_grad
