"""geo: the trainer learns on its own copy, and exchanges differences every geo_step batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.client.place import Place
from paddock.ps.client.strategy import Runs, Strategy
from paddock.ps.client.traffic import RowsOf, VectorOf
from paddock.ps.consistency.geo import GeoRows, GeoVector, Pace
from paddock.ps.link import Link
from paddock.ps.optimizers.schedules import learning_rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.protocol.frames import BODY_MAX, Flag, Header, Op
from paddock.ps.spec import DenseSpec, SparseSpec
from paddock.ps.table.dense import DenseTable, updaters_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.ps.client.peer import Peer
    from paddock.ps.client.traffic import Known, Traffic, Wanted

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]
DELTA, LAST = int(Flag.DELTA), int(Flag.LAST)


@dataclass(slots=True)
class LocalRows:
    """A sparse table's copy. seen: per server, the version whose changes are here."""

    known: Known
    rows: GeoRows
    updater: Updater
    seen: list[int]
    step: int = 0
    lr: float | None = None


@dataclass(slots=True)
class LocalVector:
    """A dense table's copy, as the servers have it, and what of it is exchanged."""

    known: Known
    spec: DenseSpec
    vector: GeoVector
    table: DenseTable
    step: int = 0
    lr: float | None = None


class Geo(Strategy):
    """Pulls read the copy, pushes change it with the table's own optimizer, here."""

    name = "geo"

    def __init__(self, window: int, place: Place, geo_step: int, merge: str) -> None:
        super().__init__(window, place)
        if geo_step < 1:
            raise UsageError(f"geo_step is {geo_step}", hint="1 or more batches")
        if merge not in ("mean", "sum"):
            raise UsageError(f"geo_merge is {merge!r}", hint="mean or sum")
        self._share = place.trainers if merge == "mean" else 1
        self._pace = Pace(batches=geo_step)
        self._sparse: dict[str, LocalRows] = {}
        self._dense: dict[str, LocalVector] = {}

    def terms(self) -> dict[str, Any]:
        """What all trainers of a job must agree on."""
        return {"strategy": self.name, "staleness": 0}

    def pull(self, traffic: Traffic, wanted: Sequence[Wanted]) -> list[Rows]:
        """From the copies; what is not in them is fetched, of all tables in one round trip."""
        self._fetch(traffic, wanted)
        return [self._read(one) for one in wanted]

    def _read(self, wanted: Wanted) -> Rows:
        if isinstance(wanted, VectorOf):
            self._dense[wanted.spec.name].table.pull(0, wanted.out)
            return wanted.out
        rows = self._rows(wanted).rows
        found: Rows = rows.values[rows.find(wanted.keys), : rows.dim].copy()
        return found

    def _fetch(self, traffic: Traffic, wanted: Sequence[Wanted]) -> None:
        """Have copies of all this."""
        lacks: list[Wanted] = []
        for one in wanted:
            if isinstance(one, RowsOf):
                missing = self._rows(one).rows.missing(one.keys)
                if len(missing):
                    lacks.append(replace(one, keys=missing))
            elif one.spec.name not in self._dense:
                lacks.append(replace(one, out=np.empty(one.spec.size, np.float32)))
        for one, values in zip(lacks, traffic.pull(lacks) if lacks else (), strict=True):
            if isinstance(one, RowsOf):
                self._rows(one).rows.insert(one.keys, values)
            else:
                self._dense[one.spec.name] = _copied(one, values)

    def _rows(self, wanted: RowsOf) -> LocalRows:
        spec = wanted.spec
        local = self._sparse.get(spec.name)
        if local is None:
            updater = Updater(spec.optimizer, spec.dim)
            rows = GeoRows(spec.dim, updater.initial_state)
            local = LocalRows(wanted.known, rows, updater, [0] * len(wanted.known.numbers))
            self._sparse[spec.name] = local
        return local

    def push(
        self,
        traffic: Traffic,
        table: str,
        known: Known,
        distinct: Keys,
        rows: Rows,
        extra: list[Rows],
    ) -> None:
        """Update the copy."""
        if extra:
            raise UsageError(
                f"table {table!r}: geo keeps no shows and clicks",
                hint="another strategy, or leave them out",
            )
        assert isinstance(known.spec, SparseSpec)
        wanted = RowsOf(known, known.spec, distinct)
        self._fetch(traffic, [wanted])
        local = self._rows(wanted)
        at = local.rows.find(distinct)
        lr = learning_rate(known.spec.optimizer, local.step, local.lr)
        local.updater.apply(local.rows.values, at, rows, lr)
        local.rows.touch(at)
        local.step += 1

    def push_dense(self, traffic: Traffic, known: Known, grads: Rows, runs: Runs) -> None:
        """Update the copy of the vector."""
        local = self._vector(traffic, known)
        lr = learning_rate(known.spec.optimizer, local.step, local.lr)
        for start, stop in runs:
            local.table.push(start, grads[start:stop].copy(), lr=lr)
        local.step += 1

    def _vector(self, traffic: Traffic, known: Known) -> LocalVector:
        assert isinstance(known.spec, DenseSpec)
        self._fetch(traffic, [VectorOf(known, known.spec, np.empty(0, np.float32))])
        return self._dense[known.spec.name]

    def forget(self, table: str) -> None:
        self._dense.pop(table, None)

    def set_lr(self, traffic: Traffic, known: Known, lr: float) -> None:
        """Of the copy: the servers' optimizers are not asked."""
        if isinstance(known.spec, SparseSpec):
            self._rows(RowsOf(known, known.spec, np.empty(0, np.int64))).lr = lr
        else:
            self._vector(traffic, known).lr = lr

    def step(self, traffic: Traffic) -> None:
        """Count the batch; exchange when it is time."""
        if self._pace.batch(now=time.monotonic()):
            self.flush(traffic)

    def flush(self, traffic: Traffic) -> None:
        """Send what was learned here, take over what was learned elsewhere."""
        servers = range(len(traffic.peers))
        again = [server for server in servers if traffic.progress.has_more(server)]
        self._send(traffic, self._share)
        traffic.finish_pulls()
        for local in self._sparse.values():
            for server in again:  # It has what was not sent now: all of its rows are taken over.
                local.seen[server] = 0
            for server, peer in enumerate(traffic.peers):
                local.seen[server] = _receive(peer, server, local)
        vectors = list(self._dense.values())
        outs = [np.empty(one.spec.size, np.float32) for one in vectors]
        wanted = [VectorOf(v.known, v.spec, out) for v, out in zip(vectors, outs, strict=True)]
        for dense, server_has in zip(vectors, traffic.pull(wanted), strict=True):
            dense.vector.receive(server_has)
            dense.table.set(0, dense.vector.latest)

    def _send(self, traffic: Traffic, share: int) -> None:
        """Push what was learned, divided by share; 0: all that is left."""
        for local in self._sparse.values():
            rows = local.rows
            keys, delta = rows.take_delta(share) if share else rows.take_rest()
            if len(keys):
                traffic.post_sparse(Op.PUSH, local.known, keys, delta, [], DELTA)
        for dense in self._dense.values():
            dense.table.pull(0, dense.vector.latest)
            delta = dense.vector.take_delta(share or 1)
            traffic.post_dense(Op.PUSH_DENSE, dense.known, delta, DELTA, [(0, len(delta))])
        traffic.settle(0)

    def leave(self, traffic: Traffic) -> None:
        """The trainer ends; what the mean has left here would die with it."""
        self._send(traffic, 0)
        super().leave(traffic)


def _copied(wanted: VectorOf, values: Rows) -> LocalVector:
    table = DenseTable(wanted.spec, updaters_of(wanted.spec, range(wanted.spec.shards)))
    table.set(0, values)
    return LocalVector(wanted.known, wanted.spec, GeoVector(values), table)


def _receive(peer: Peer, server: int, local: LocalRows) -> int:
    """Rows of one server that changed since the last time; the version they are of.

    Taking a row over twice changes nothing, so a broken exchange is simply made again.
    """
    header = Header(
        Op.PULL_CHANGED,
        table=local.known.numbers[server],
        trainer=peer.identity.trainer,
        step=local.seen[server],
    )
    body = memoryview(bytearray(BODY_MAX))

    def exchange(link: Link) -> int:
        link.send(header)
        while True:
            answer = link.receive_into(body)
            keys = np.frombuffer(body, np.int64, answer.count)
            rows = np.frombuffer(body, np.float32, answer.count * local.rows.dim, 8 * answer.count)
            local.rows.receive(keys, rows.reshape(answer.count, local.rows.dim))
            if answer.flags & LAST:
                return answer.step

    return peer.retry("pull", exchange)
