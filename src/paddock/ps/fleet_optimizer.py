"""What fleet.distributed_optimizer gives: a framework's optimizer with its rule on the servers."""

from __future__ import annotations

from typing import Any

from paddock.ps.adapters.given import TableClient, rate_of
from paddock.ps.adapters.trainer import TrainerBase
from paddock.ps.translate import framework_of, spec_of


class DistributedOptimizer:
    """step(), minimize(loss), clear_grad() and zero_grad() of a torch or Paddle optimizer.

    A scheduler of the optimizer's is followed, for the dense parameters.
    """

    def __init__(self, client: TableClient, model: Any, optimizer: Any) -> None:
        self.spec = spec_of(optimizer)
        self.inner = optimizer
        self.trainer: TrainerBase
        if framework_of(model) == "torch":
            from paddock.ps.torch import Trainer as TorchTrainer
            from paddock.ps.torch import drive

            self.trainer = TorchTrainer(client, model, optimizer=self.spec)
            if self.trainer.dense is not None:
                drive(optimizer, 0, self.trainer.dense.vector)
        else:
            from paddock.ps.paddle import Trainer as PaddleTrainer

            self.trainer = PaddleTrainer(client, model, optimizer=self.spec)
            if self.trainer.dense is not None:
                vector = self.trainer.dense.vector
                vector.rate = rate_of(client, vector.table, optimizer._learning_rate)

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
