"""The parameter server's tables in this process: for one worker without servers.

Has the calls of paddock.ps.Client that the adapters make. The tables, the optimizers and the
checkpoints are the servers' own, so a run alone has the bits of one trainer with servers in sync,
and either can go on from a checkpoint of the other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from paddock.ps.client.trainer_config import TrainerConfig
from paddock.ps.optimizers.rules import check_table
from paddock.ps.optimizers.schedules import Rate, Rates
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import DenseSpec, TableSpec
from paddock.ps.storage.checkpoint import check_specs, open_checkpoint
from paddock.ps.storage.saving import abandon_checkpoint, begin_checkpoint, commit_checkpoint
from paddock.ps.storage.saving import write_part as write_tables
from paddock.ps.table.coerce import as_keys
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable
from paddock.ps.wire.values import to_json

if TYPE_CHECKING:
    from paddock.ps.adapters.arguments import Refreshed

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]


class LocalTables:
    """Tables of this process, called as a Client is."""

    def __init__(self, *, job: str = "default") -> None:
        self.place = TrainerConfig((), 0, 1, job)
        self.steps = 0
        self._sparse: dict[str, SparseTable] = {}
        self._dense: dict[str, DenseTable] = {}
        self._rates: dict[str, Rates] = {}
        self._kv: dict[str, Any] = {}
        self._lsn = 0
        self._copies: WeakSet[Refreshed] = WeakSet()
        self._changes = 0

    def create(self, spec: TableSpec) -> None:
        """Makes the table, or finds the one there is."""
        check_table(spec)
        if isinstance(spec, DenseSpec):
            self._dense.setdefault(spec.name, DenseTable(spec, range(spec.shards)))
        elif spec.name not in self._sparse:
            self._sparse[spec.name] = SparseTable(spec, Updater(spec.optimizer, spec.dim))
        self._rates.setdefault(spec.name, Rates())

    # ---------------------------------------------------------------------------------- batches

    def pull(self, table: str, keys: Keys, *, distinct: bool = False) -> Floats:
        """The rows. keys: int64 of any shape -> (*shape, dim) float32."""
        keys = as_keys(table, keys)
        found = self._sparse[table]
        out = np.empty((keys.size, found.spec.dim), np.float32)
        found.pull(keys.reshape(-1), out)
        return out.reshape(*keys.shape, found.spec.dim)

    def push(
        self,
        table: str,
        keys: Keys,
        grads: Floats,
        *,
        shows: Floats | None = None,
        clicks: Floats | None = None,
        distinct: bool = True,
    ) -> None:
        """The optimizer steps for rows. keys: (n,) int64, distinct; grads: (n, dim) float32."""
        keys = as_keys(table, keys)
        self._lsn += 1
        found = self._sparse[table]
        found.push(
            keys, grads, lr=self._rate(found.spec), now=time.time(), lsn=self._lsn,
            draw_seed=self.steps + 1, shows=shows, clicks=clicks,
        )  # fmt: skip

    def pull_dense(self, table: str, out: Floats | None = None) -> Floats:
        """The dense vector. out, or a new one -> (size,) float32."""
        found = self._dense[table]
        out = np.empty(found.spec.size, np.float32) if out is None else out
        found.pull(0, out)
        return out

    def push_dense(self, table: str, grads: Floats, *, used: Sequence[bool] | None = None) -> None:
        """The optimizer steps for the used parts. grads: (size,) float32, may be overwritten."""
        found = self._dense[table]
        for start, stop in found.spec.runs(used):
            found.push(start, grads[start:stop], lr=self._rate(found.spec))

    def set(self, table: str, keys: Keys, values: Floats) -> None:
        """Rows get these weights. keys: (n,) int64, distinct; values: (n, dim) float32."""
        keys = as_keys(table, keys)
        self._lsn += 1
        self._sparse[table].set(keys, values, now=time.time(), lsn=self._lsn)

    def set_dense(self, table: str, values: Floats) -> None:
        """The dense vector gets these values. values: (size,) float32."""
        self._dense[table].set(0, values)
        self._changes += 1

    def version(self, table: str) -> int:
        """The version of a dense table, for is_current()."""
        return self._dense[table].version

    def is_current(self, table: str, version: object) -> bool:
        """True if a dense table is still of this version."""
        return self._dense[table].version == version

    def watch(self, copy: Refreshed) -> None:
        """As of Client: `copy.refresh()` is called behind load()."""
        self._copies.add(copy)

    @property
    def changes(self) -> int:
        """As of Client: another number when tables may have changed."""
        return self.steps + self._changes

    def set_lr(self, table: str, lr: float, correction: float = 1.0) -> None:
        """The rate from now on, in place of the spec's."""
        self._rates[table].set(Rate(lr, correction))

    def step(self) -> None:
        """The end of a batch."""
        self.steps += 1

    def barrier(self, name: str = "all") -> None:
        """This worker waits for no other: copies of a model begin with the same values."""

    def kv_get(self, key: str, *, in_checkpoints: bool = False) -> Any:
        """The value of a key; None where none was set."""
        return self._kv.get(key)

    def kv_set(self, key: str, value: Any, *, in_checkpoints: bool = False) -> None:
        """The key has this JSON value from now on, in checkpoints too."""
        self._kv[key] = value

    def _rate(self, spec: TableSpec) -> Rate:
        return self._rates[spec.name].at(spec.optimizer, self.steps)

    def _specs(self) -> dict[str, TableSpec]:
        return {name: one.spec for name, one in self._tables().items()}

    def _tables(self) -> dict[str, SparseTable | DenseTable]:
        return {**self._sparse, **self._dense}

    # ------------------------------------------------------------------------------ checkpoints

    def digest(self) -> dict[str, str]:
        """A hash of each table's content, as of servers."""
        tables = self._tables()
        return {name: f"{tables[name].digest():016x}" for name in sorted(tables)}

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes a checkpoint, as one server would."""
        specs, tables = self._specs(), self._tables()
        directory = os.fspath(directory)
        name = begin_checkpoint(directory, self.steps)
        state = {
            "steps": {table: [self.steps, 0] for table in specs},
            "rates": {table: to_json(rates) for table, rates in self._rates.items()},
            "marks": {},
            "notes": {f"kv/{key}": value for key, value in self._kv.items()},
        }
        try:
            write_tables(
                directory, name, index=0, server=0, generation=0, lsn=self._lsn, state=state,
                specs=[specs[table] for table in sorted(specs)],
                owned={table: range(specs[table].shards) for table in specs},
                take=lambda table, shard: tables[table].shard_state(shard),
            )  # fmt: skip
            commit_checkpoint(directory, name, job=self.place.job, step=self.steps, servers=1)
        except BaseException:
            abandon_checkpoint(directory, name)
            raise

    def load(self, directory: str | os.PathLike[str]) -> None:
        """Takes over the newest checkpoint there, whoever wrote it. Tables were created before."""
        checkpoint = open_checkpoint(os.fspath(directory))
        specs = self._specs()
        check_specs(checkpoint, list(specs.values()))
        for spec in checkpoint.specs:
            self.create(spec)
            table = self._tables()[spec.name]
            for shard in range(spec.shards):
                table.load_shard(shard, checkpoint.read(spec.name, shard))
            saved = [one["rates"][spec.name] for one in checkpoint.states if "rates" in one]
            if saved and spec.optimizer.lr == specs.get(spec.name, spec).optimizer.lr:
                self._rates[spec.name].lr = saved[0]["lr"]
        steps = (at[0] for one in checkpoint.states for at in one.get("steps", {}).values())
        self.steps = max(steps, default=0)
        self._lsn = max((one.version for one in checkpoint.entries.values()), default=0) + 1
        self._changes += 1
        for copy in list(self._copies):
            copy.refresh()
