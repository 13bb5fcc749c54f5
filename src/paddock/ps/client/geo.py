"""geo: the trainer learns on its own copy, and exchanges differences every geo_step batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paddock.errors import UsageError
from paddock.ps.client.pieces import LAST, Column, Keys, Known, Rows, Runs
from paddock.ps.client.place import Place
from paddock.ps.client.strategy import Strategy
from paddock.ps.consistency.geo import GeoRows, GeoVector
from paddock.ps.link import Link
from paddock.ps.optimizers.schedules import learning_rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.protocol.frames import BODY_MAX, Flag, Header, Op
from paddock.ps.spec import DenseSpec, SparseSpec
from paddock.ps.table.dense import DenseTable, updaters_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.ps.client.peer import Peer
    from paddock.ps.client.traffic import Traffic, Wanted

DELTA = int(Flag.DELTA)


class Local:
    """A table's copy. step: pushes to it. lr: in place of the spec's."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.step = 0
        self.lr: float | None = None

    def next_rate(self) -> float:
        """The learning rate of the next push."""
        self.step += 1
        return learning_rate(self.known.spec.optimizer, self.step - 1, self.lr)


class LocalRows(Local):
    """Of a sparse table. seen: per server, the version whose changes are here."""

    def __init__(self, known: Known, spec: SparseSpec) -> None:
        super().__init__(known)
        self.updater = Updater(spec.optimizer, spec.dim)
        self.rows = GeoRows(spec.dim, self.updater.initial_state)
        self.seen = [0] * len(known.numbers)

    def missing(self, keys: Keys) -> Column:
        """What of it has to be pulled."""
        return self.rows.missing(keys)

    def insert(self, keys: Keys, values: Rows) -> None:
        """That was pulled."""
        self.rows.insert(keys, values)

    def read(self, keys: Keys) -> Rows:
        """What is pulled of the copy."""
        found: Rows = self.rows.values[self.rows.find(keys), : self.rows.dim].copy()
        return found

    def learn(self, columns: list[Column], _: Runs | None) -> None:
        """A push."""
        keys, grads = columns
        at = self.rows.find(keys)
        self.updater.apply(self.rows.values, at, grads, self.next_rate())
        self.rows.touch(at)

    def take_delta(self, share: int, *, is_rest: bool) -> list[Column]:
        """What is sent."""
        return [*self.rows.take_delta(share, is_rest=is_rest)]

    def receive(self, peer: Peer) -> None:
        """Rows of one server that changed since the last time.

        Taking a row over twice changes nothing, so a broken exchange is simply made again.
        """
        server, rows = peer.index, self.rows
        header = Header(
            Op.PULL_CHANGED,
            table=self.known.numbers[server],
            trainer=peer.identity.trainer,
            step=self.seen[server],
        )
        body = memoryview(bytearray(BODY_MAX))

        def exchange(link: Link) -> int:
            link.send(header)
            while True:
                answer = link.receive_into(body)
                keys = np.frombuffer(body, np.int64, answer.count)
                values = np.frombuffer(body, np.float32, answer.count * rows.dim, 8 * answer.count)
                rows.receive(keys, values.reshape(answer.count, rows.dim))
                if answer.flags & LAST:
                    return answer.step

        self.seen[server] = peer.retry("pull", exchange)


class LocalVector(Local):
    """Of a dense table."""

    def __init__(self, known: Known, spec: DenseSpec) -> None:
        super().__init__(known)
        self.vector = GeoVector(DenseTable(spec, updaters_of(spec, range(spec.shards))))
        self.is_here = False

    def missing(self, out: Rows) -> Column:
        """What of it has to be pulled."""
        return np.empty(0 if self.is_here else self.vector.table.spec.size, np.float32)

    def insert(self, _: Column, values: Rows) -> None:
        """That was pulled."""
        self.vector.receive(values)
        self.is_here = True

    def read(self, out: Rows) -> Rows:
        """What is pulled of the copy."""
        self.vector.table.pull(0, out)
        return out

    def learn(self, columns: list[Column], runs: Runs | None) -> None:
        """A push."""
        lr = self.next_rate()
        for start, stop in runs or ():
            self.vector.table.push(start, columns[0][start:stop], lr=lr)

    def take_delta(self, share: int, *, is_rest: bool) -> list[Column]:
        """What is sent."""
        return [self.vector.take_delta(share)]


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
        self._geo_step = geo_step
        self._copies: dict[str, LocalRows | LocalVector] = {}

    def _copy(self, known: Known) -> LocalRows | LocalVector:
        spec = known.spec
        if spec.name not in self._copies:
            self._copies[spec.name] = (
                LocalVector(known, spec) if isinstance(spec, DenseSpec) else LocalRows(known, spec)
            )
        return self._copies[spec.name]

    def pull(self, traffic: Traffic, wanted: Sequence[Wanted]) -> list[Rows]:
        """From the copies; what is not in them is fetched, of all tables in one round trip."""
        self._fetch(traffic, wanted)
        return [self._copy(known).read(array) for known, array in wanted]

    def _fetch(self, traffic: Traffic, wanted: Sequence[Wanted]) -> None:
        """Have copies of all this."""
        lacks = [(known, self._copy(known).missing(array)) for known, array in wanted]
        lacks = [one for one in lacks if len(one[1])]
        for (known, array), values in zip(lacks, traffic.pull(lacks) if lacks else (), strict=True):
            self._copy(known).insert(array, values)

    def push(
        self, traffic: Traffic, known: Known, columns: list[Column], runs: Runs | None = None
    ) -> None:
        """Update the copy."""
        if len(columns) > 2:
            raise UsageError(
                f"table {known.spec.name!r}: geo keeps no shows and clicks",
                hint="another strategy, or leave them out",
            )
        self._fetch(traffic, [(known, columns[0])])
        self._copy(known).learn(columns, runs)

    def forget(self, table: str) -> None:
        copy = self._copies.get(table)
        if isinstance(copy, LocalVector):
            copy.vector = GeoVector(copy.vector.table)  # Its optimizer's state stays.
            copy.is_here = False

    def set_lr(self, traffic: Traffic, known: Known, lr: float) -> None:
        """Of the copy: the servers' optimizers are not asked."""
        self._fetch(traffic, [(known, np.empty(0, np.int64))])
        self._copy(known).lr = lr

    def step(self, traffic: Traffic) -> None:
        """Exchange when it is time."""
        if (traffic.batch + 1) % self._geo_step == 0:
            self.flush(traffic)

    def flush(self, traffic: Traffic) -> None:
        """Send what was learned here, take over what was learned elsewhere."""
        servers = range(len(traffic.peers))
        again = [server for server in servers if traffic.progress.has_more(server)]
        self._send(traffic, self._share)
        traffic.finish_pulls()
        wanted: list[Wanted] = []
        for copy in self._copies.values():
            if isinstance(copy, LocalVector):
                wanted.append((copy.known, np.empty(copy.vector.table.spec.size, np.float32)))
                continue
            for server in again:  # It has what was not sent now: all of its rows are taken over.
                copy.seen[server] = 0
            for peer in traffic.peers:
                copy.receive(peer)
        vectors = [copy for copy in self._copies.values() if isinstance(copy, LocalVector)]
        for copy, server_has in zip(vectors, traffic.pull(wanted), strict=True):
            copy.vector.receive(server_has)

    def _send(self, traffic: Traffic, share: int, *, is_rest: bool = False) -> None:
        """Push what was learned, divided by share; or all that is left."""
        for copy in self._copies.values():
            columns = copy.take_delta(share, is_rest=is_rest)
            if len(columns[0]):
                traffic.post(Op.PUSH, copy.known, columns, DELTA)
        traffic.settle(0)

    def leave(self, traffic: Traffic) -> None:
        """The trainer ends; what the mean has left here would die with it."""
        self._send(traffic, 1, is_rest=True)
        super().leave(traffic)
