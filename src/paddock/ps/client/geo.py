"""geo: the trainer learns on its own copy, and exchanges differences every geo_step batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paddock.errors import UsageError, refuse
from paddock.ps.client.geo_copy import GeoRows, GeoVector
from paddock.ps.client.partition import LAST, Column, RemoteTable, Rows, Runs
from paddock.ps.client.strategy import Strategy
from paddock.ps.client.trainer_config import TrainerConfig
from paddock.ps.connection import FrameConnection
from paddock.ps.honoured import refusals
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.spec import DenseSpec, TableSpec
from paddock.ps.wire.frames import BODY_MAX, FrameFlag, Header, Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.ps.client.server_connection import ServerConnection
    from paddock.ps.client.server_group import ServerGroup, Wanted

DELTA = int(FrameFlag.DELTA)


class Geo(Strategy):
    """Pulls read the copy, pushes change it with the table's own optimizer, here."""

    name = "geo"

    def __init__(self, window: int, place: TrainerConfig, geo_step: int, merge: str) -> None:
        super().__init__(window, place)
        if geo_step < 1:
            raise UsageError(f"geo_step is {geo_step}", hint="1 or more batches")
        if merge not in ("mean", "sum"):
            raise UsageError(f"geo_merge is {merge!r}", hint="mean or sum")
        self._share = place.trainers if merge == "mean" else 1
        self._geo_step = geo_step
        # An incarnation that goes on from an offset, which is committed with an exchange, so has
        # the next ones behind the same batches as the incarnation before.
        self.unexchanged = 0
        self._copies: dict[str, tuple[RemoteTable, GeoRows | GeoVector]] = {}
        # By table and server: the version whose changes are here.
        self._seen: dict[tuple[str, int], int] = {}
        self._loads = 0  # of the group, when the copies were made

    def join(self, group: ServerGroup) -> None:
        super().join(group)
        self._loads = group.loads

    def check_table(self, spec: TableSpec) -> None:
        refuse([*refusals(spec, "geo", adds_up=self._share == 1 < self.place.trainers)])

    def _copy(self, remote: RemoteTable) -> GeoRows | GeoVector:
        spec = remote.spec
        if spec.name not in self._copies:
            copy = GeoVector(spec) if isinstance(spec, DenseSpec) else GeoRows(spec)
            self._copies[spec.name] = remote, copy
        return self._copies[spec.name][1]

    def pull(self, group: ServerGroup, wanted: Sequence[Wanted]) -> list[Rows]:
        """Rows (n, dim) float32 of the copies; what they lack is fetched, of all tables at once."""
        self._fetch(group, wanted)
        return [self._copy(remote).read(array) for remote, array in wanted]

    def has_version(self, group: ServerGroup, remote: RemoteTable, versions: object) -> bool:
        """False: to read the copy here is as cheap as to compare it."""
        return False

    def _fetch(self, group: ServerGroup, wanted: Sequence[Wanted]) -> None:
        """Have copies of all this."""
        lacks: list[Wanted] = [(one, self._copy(one).missing(array)) for one, array in wanted]
        lacks = [one for one in lacks if len(one[1])]
        if not lacks:
            return
        server_has = group.pull(lacks)
        if self.forget_loaded(group):  # The rows of before do not go with these.
            self._fetch(group, wanted)
            return
        for (remote, array), values in zip(lacks, server_has, strict=True):
            self._copy(remote).insert(array, values)

    def check_loads(self, group: ServerGroup) -> None:
        if self._copies:
            group.ask_loads()
        self.forget_loaded(group)

    def forget_loaded(self, group: ServerGroup) -> bool:
        has_loaded = group.loads != self._loads
        self._loads = group.loads
        if has_loaded:
            for table in self._copies:
                self.forget(table)
        return has_loaded

    def push(
        self,
        group: ServerGroup,
        remote: RemoteTable,
        columns: list[Column],
        runs: Runs | None = None,
    ) -> None:
        """Update the copy by gradients, (n, dim) of distinct keys (n,)."""
        if len(columns) > 2:
            raise UsageError(
                f"table {remote.spec.name!r}: geo keeps no shows and clicks",
                hint="another strategy, or leave them out",
            )
        self._fetch(group, [(remote, columns[0])])
        self._copy(remote).learn(columns, runs)

    def forget(self, table: str, columns: list[Column] | None = None) -> None:
        """The copy drops these rows, [keys (n,) int64], or None: all of them."""
        _, copy = self._copies.get(table, (None, None))
        if copy is not None:
            copy.forget(columns)

    def set_rate(self, group: ServerGroup, remote: RemoteTable, rate: Rate) -> None:
        """The copy's learning rate changes; the servers' optimizers are not asked."""
        self._fetch(group, [(remote, np.empty(0, np.int64))])
        self._copy(remote).rates.set(rate)

    def step(self, group: ServerGroup) -> None:
        """Exchange when it is time."""
        self.unexchanged += 1
        if self.unexchanged >= self._geo_step:
            self.flush(group)

    def flush(self, group: ServerGroup) -> None:
        """Send what was learned here, take over what was learned elsewhere."""
        self.unexchanged = 0
        self.check_loads(group)  # Differences to what was before it are none to what is now.
        servers = range(len(group.peers))
        again = [server for server in servers if group.progress.has_more(server)]
        self._send(group, self._share)
        group.finish_pulls()
        vectors: list[tuple[RemoteTable, GeoVector]] = []
        for remote, copy in self._copies.values():
            if isinstance(copy, GeoVector):
                vectors.append((remote, copy))
                continue
            for peer in group.peers:
                if peer.index in again:  # It has what was not sent now: all its rows are taken.
                    self._seen.pop((remote.spec.name, peer.index), None)
                self._receive(peer, remote, copy)
        wanted = [(remote, np.empty(copy.size, np.float32)) for remote, copy in vectors]
        for (_, copy), server_has in zip(vectors, group.pull(wanted), strict=True):
            copy.receive(server_has)

    def _receive(self, peer: ServerConnection, remote: RemoteTable, copy: GeoRows) -> None:
        """Rows of one server that changed since the last time.

        Taking a row over twice changes nothing, so a broken exchange is simply made again.
        """
        place = remote.spec.name, peer.index
        header = Header(
            Op.PULL_CHANGED,
            table=remote.numbers[peer.index],
            trainer=peer.identity.trainer,
            step=self._seen.get(place, 0),
        )
        body = memoryview(bytearray(BODY_MAX))

        def exchange(link: FrameConnection) -> int:
            link.stream.send(header)
            while True:
                answer, _ = link.receive(body)
                keys = np.frombuffer(body, np.int64, answer.count)
                rows = np.frombuffer(body, np.float32, answer.count * copy.dim, 8 * answer.count)
                copy.receive(keys, rows.reshape(answer.count, copy.dim))
                if answer.flags & LAST:
                    return answer.step

        self._seen[place] = peer.retry("pull", exchange)

    def _send(self, group: ServerGroup, share: int, *, is_rest: bool = False) -> None:
        """Push what was learned, divided by share; or all that is left."""
        for remote, copy in self._copies.values():
            columns = copy.take_delta(share, is_rest=is_rest)
            if len(columns[0]):
                group.post(Op.PUSH, remote, columns, DELTA)
        group.wait_acked(0)

    def leave(self, group: ServerGroup) -> None:
        """The trainer ends; what the mean has left here would die with it."""
        self._send(group, 1, is_rest=True)
        super().leave(group)
