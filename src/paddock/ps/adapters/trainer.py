"""The trainer that torch and Paddle share: one batch after another."""

from __future__ import annotations

from typing import Any

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import Scheduler, TableClient
from paddock.ps.adapters.dense import DenseBase, ModelBuffers, ModelParameters, push_batch
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.rows import EmbeddingTable
from paddock.ps.spec import OptimizerSpec


class TrainerBase:
    """A trainer pushes all tables of a model as one step each batch, and pulls new values."""

    dense_type: type[DenseBase]

    def __init__(
        self,
        client: TableClient,
        module: Any,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | Scheduler | None = None,
    ) -> None:
        framework = self.dense_type.framework
        self.client, self.module = client, module
        self.tables = [m.rows for m in framework.modules(module) if isinstance(m, EmbeddingBase)]
        for rows in self.tables:
            rows.at_once = False
        self.dense = (
            self.dense_type(client, module, table=table, optimizer=optimizer, lr=lr)
            if framework.trained(module)
            else None
        )
        dense = [] if self.dense is None else self.dense.parts
        self.parts: list[EmbeddingTable | ModelParameters | ModelBuffers] = [*self.tables, *dense]

    def step(self, loss: Any = None) -> None:
        """Ends a batch: backward of loss (where given), push, step, pull.

        Raises RequestError when a gradient is not finite: nothing of the batch is sent then, its
        gradients are dropped, and the next batch goes on as if this one had not been. Raises
        UsageError when loss is no tensor.
        """
        if loss is not None:
            if not isinstance(loss, self.dense_type.framework.tensor):
                raise UsageError(
                    f"step() got a {type(loss).__name__}, not the loss as a tensor",
                    hint="trainer.step(loss); or loss.backward() and then trainer.step()",
                )
            try:
                loss.backward()
            except BaseException:  # Half the gradients would be worse than none.
                self.forget()
                raise
        self.end()

    def end(self) -> None:
        """The gradients are there: push, step, pull."""
        if self.dense is not None:
            try:
                self.dense.follow()
            except BaseException:
                self.forget()
                raise
        push_batch(self.parts)
        self.client.step()
        if self.dense is not None:
            self.dense.pull()

    def forget(self) -> None:
        """Drops what backward() has left to be pushed: a batch to be left out."""
        for part in self.parts:
            part.forget()
