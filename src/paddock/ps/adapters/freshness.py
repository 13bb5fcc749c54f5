"""A model's dense values are the servers' newest ones whenever it computes.

A trainer pulls them at the end of its batch. Others change them at other times: by a load, by
their own batches, while this one waits or judges. So a model asks before it computes:

    it learns          nothing, unless client.changes moved since: a bare step(), an all_reduce()
    it judges          once a forward, whether the vector's version is another one; a pull if so
    rows come          nothing, unless a server says with them that it has loaded a checkpoint since
    load(), barrier()  the client itself has the copies look (Client.watch)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.ps.adapters.dense import DenseBase


def never() -> bool:
    """For frameworks without such a compiler."""
    return False


def at_once(call: Callable[..., object], *values: object) -> None:
    """As never()."""
    call(*values)


class Freshness:
    """A hook before a module's forward, and before look-ups of its embeddings, which may be called
    without it. In a copy of the module it idles: a copy's values are its own.
    """

    def __init__(self, dense: DenseBase | None, module: Any = None) -> None:
        self._dense, self._module = dense, module
        self._in_one_graph = never if dense is None else dense.framework.in_one_graph
        self._apart = at_once if dense is None else dense.framework.apart
        # Tables looked up in since the servers were last asked, in an evaluation; None: learning.
        self._looked_up: set[int] | None = None

    def __call__(self, module: Any, inputs: object) -> None:
        # A compiler that makes one graph of a model can leave no place in it to ask servers.
        if not self._in_one_graph():
            self.before_forward()

    def before_forward(self) -> None:
        """A module is about to compute."""
        self._apart(self._check, 0)

    def end(self) -> None:
        """Another one watches over the module now."""
        self._dense = None

    def refresh(self) -> None:
        """As the dense values' own."""
        if self._dense is not None:
            self._dense.refresh()

    def before_rows(self, table: object) -> None:
        """A table's rows are about to be pulled; for the second time: for the next batch."""
        self._apart(self._check, id(table))

    def after_rows(self) -> None:
        """They may be a loaded checkpoint's, and go with its dense values."""
        if self._dense is not None:
            self._apart(self._dense.catch_up)

    # Not a part of what torch.compile makes of the model: it would be compiled anew each step.
    before_forward._torchdynamo_disable = True  # type: ignore[attr-defined]
    before_rows._torchdynamo_disable = True  # type: ignore[attr-defined]
    after_rows._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _check(self, table: int) -> None:
        dense = self._dense
        if dense is None:
            return
        if self._module.training and dense.framework.with_gradients():
            self._looked_up = None
            dense.catch_up()
            return
        if not table or self._looked_up is None or table in self._looked_up:
            dense.refresh()
            self._looked_up = set()
        if table:
            self._looked_up.add(table)

    def __reduce__(self) -> tuple[Any, ...]:
        return Freshness, (None,)


IDLE = Freshness(None)
