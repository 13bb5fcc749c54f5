"""Workers without servers: each trains a copy of the model, and all copies stay alike.

At the end of a batch the workers add up their gradients, and each applies the mean: as data
parallel training does, with the optimizers of the servers. A worker that has no more batches of an
epoch goes on with gradients of zero, until all have none; as in sync with servers a mean divides
by all workers.

What travels in one exchange, all of it added up:

    gradients of all tables     zeros from who has no batch, or left a part out
    which parts were used       for each part how many workers used it: none, and it stays as it is
    who has trained             0: the epoch is over, and nothing is applied
    who asks for a checkpoint   the first worker: at the next exchange all say where they are
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError, UsageError
from paddock.ps.local_tables import Floats
from paddock.ps.local_tables import LocalTables as Tables
from paddock.ps.spec import TableSpec
from paddock.rec.learner import WorkerRank
from paddock.rec.worker_group import WorkerGroup, WorkerOffset


class AllReduceGroup:
    """Processes that add up arrays; all of them make the same calls.

    distributed: the framework's module, with its group of all processes of the job.
    """

    def __init__(self, distributed: Any) -> None:
        self._distributed = distributed
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def add(self, numbers: NDArray[Any]) -> None:
        """In place, the sum over all. numbers: contiguous, float32 or float64."""
        raise NotImplementedError

    def gather(self, thing: object) -> list[Any]:
        """Each process's thing, by rank; pickled, between processes of one job."""
        found: list[Any] = [None] * self.size
        self._distributed.all_gather_object(found, thing)
        return found[-self.size :]  # torch fills the list, Paddle adds to it

    def close(self) -> None:
        """This process leaves."""
        self._distributed.destroy_process_group()


@dataclass(frozen=True)
class AllSync:
    """As a client's strategy."""

    name: str = "sync"


class DataParallelTables(Tables):
    """Dense tables of this process, alike in all of a group."""

    def __init__(self, group: AllReduceGroup) -> None:
        super().__init__()
        self.group, self.strategy = group, AllSync()
        self.asks = self.is_asked = False  # for a checkpoint: this worker; any
        self._held: dict[str, tuple[Floats, Sequence[bool] | None]] = {}

    def create(self, spec: TableSpec) -> None:
        """Makes the table. Raises UsageError for rows by id, of which each would have its own."""
        if spec.kind == "sparse":
            raise UsageError(
                f"{self.group.size} workers, no servers, and table {spec.name!r} has rows by id",
                hint="server_num: 1 or more; without servers only dense models train together",
            )
        super().create(spec)

    def push_dense(self, table: str, grads: Floats, *, used: Sequence[bool] | None = None) -> None:
        """Keeps the gradient, (size,) float32, until step()."""
        self._held[table] = grads, used

    def step(self) -> None:
        """The end of a batch: the mean of all workers' gradients is applied."""
        self._exchange(has_trained=True)

    def idle(self) -> bool:
        """This worker has no batch: whether another one had, and what it learned is applied."""
        return self._exchange(has_trained=False)

    def _exchange(self, *, has_trained: bool) -> bool:
        specs = {name: one.spec for name, one in self._dense.items()}
        sizes = [(spec.size, max(1, len(spec.parts))) for spec in specs.values()]
        whole = np.zeros(sum(map(sum, sizes)) + 2, np.float32)
        places, at = {}, 0
        for name, (size, parts) in zip(specs, sizes, strict=True):
            places[name] = whole[at : at + size], whole[at + size : at + size + parts]
            at += size + parts
        for name, (grads, used) in self._held.items():
            places[name][0][...] = grads
            places[name][1][...] = 1.0 if used is None else used
        self._held = {}
        whole[-2:] = has_trained, self.asks
        self.asks = False
        self.group.add(whole)
        self.is_asked = bool(whole[-1])
        if not whole[-2]:
            return False
        for name, (grads, counts) in places.items():
            if counts.any():
                grads /= self.group.size
                used = (counts > 0).tolist() if specs[name].parts else None
                super().push_dense(name, grads, used=used)
        super().step()
        return True


class DataParallelWorkers(WorkerGroup):
    """The workers that train copies. Checkpoints are written by the first of them."""

    def __init__(self, tables: DataParallelTables) -> None:
        self.tables, self.group = tables, tables.group
        self.worker, self.workers = self.group.rank, self.group.size
        self.rank = WorkerRank(self.worker, self.workers)
        self._step, self._positions = -1, dict[str, WorkerOffset]()

    def start(self, choose: Callable[[], WorkerOffset | None]) -> WorkerOffset | None:
        """The offset that `choose` returns. Raises PaddockError where the copies are not alike."""
        position = choose()
        digests = self.group.gather(self.tables.digest())
        if any(one != digests[0] for one in digests):
            raise PaddockError(
                f"the {self.workers} workers do not begin with the same model",
                hint="all need the same files, and see the same directory of checkpoints",
            )
        return position

    def after_step(self, position: WorkerOffset) -> None:
        """All workers exchange their offsets when the first worker has asked for a checkpoint."""
        if self.tables.is_asked:
            self._gather(position)

    def is_even(self, position: WorkerOffset) -> bool:
        """True if all have exchanged offsets at this step; else the next exchange asks for them."""
        self.tables.asks = self._step != position["step"]
        return not self.tables.asks

    def end_epoch(self, position: WorkerOffset) -> None:
        """With batches of zeros until nobody has others."""
        while self.tables.idle():
            self.after_step(position)
        self._gather(position)

    def positions(self, position: WorkerOffset) -> dict[str, WorkerOffset]:
        """The offsets of all workers, as they were exchanged last."""
        return self._positions

    def total(self, kind: str, number: int, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of all workers' counts, (n,) float64."""
        whole = np.array(counts)
        self.group.add(whole)
        return whole

    def meet(self, kind: str, number: int) -> None:
        """All add something."""
        self.group.add(np.zeros(1))

    def _gather(self, position: WorkerOffset) -> None:
        told = self.group.gather({**position, "workers": self.workers})
        self._step = position["step"]
        self._positions = {str(worker): one for worker, one in enumerate(told)}
