"""Orders to running servers from outside the job: `paddock ps`. Never a trainer, never counted.

The links are of purpose "admin": the coordinator is not joined, so nobody waits for us. Reading
needs no job name; writing goes to the job that is named, and servers of another one refuse.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from paddock.errors import PaddockError, UsageError
from paddock.ps.client import checkpoints
from paddock.ps.client.partition import Column, RemoteTable, frames, partition
from paddock.ps.client.redirect import shrink
from paddock.ps.client.server_connection import OnProgress, ServerConnection, no_progress
from paddock.ps.client.trainer_config import SERVERS, read_trainer_config
from paddock.ps.connection import FrameConnection, Identity, read_token
from paddock.ps.spec import SparseSpec, from_json
from paddock.ps.storage.checkpoint import Checkpoint
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op

PURPOSE = "admin"
# A shard that moves is asked for again after so long, and for so long. A step of sync that takes
# longer is not waited for.
LOOK_SECONDS = 0.05
MOVING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Addresses of the servers and how to reach them. job: whose, for orders that write."""

    endpoints: tuple[str, ...]
    job: str = "default"
    token: bytes = b""
    tls_ca: str = ""
    timeout: float = 10.0


def read_admin_settings(
    env: Mapping[str, str],
    *,
    endpoints: str | None = None,
    job: str | None = None,
    token_file: str | None = None,
    tls_ca: str | None = None,
    timeout: float = 10.0,
) -> AdminSettings:
    """The settings; arguments first, then the environment. Raises UsageError."""
    if not endpoints and not env.get(SERVERS, "").strip(" ,"):
        raise UsageError(
            f"no server is named: --endpoints is not given and {SERVERS} is not set",
            hint="--endpoints host:port,host:port",
        )
    trainer = {name: text for name, text in env.items() if name != "TRAINING_ROLE"}
    place = read_trainer_config(
        trainer, endpoints or None, 0, 1, job, token_file or None, tls_ca or None
    )
    ca = place.tls_ca
    if ca and not Path(ca).is_file():
        raise UsageError(f"--tls-ca {ca}: no such file", hint="certificates in PEM form")
    if not timeout > 0:
        raise UsageError(f"--timeout is {timeout:g}", hint="seconds, more than 0")
    return AdminSettings(place.endpoints, place.job, read_token(place.token_file), ca, timeout)


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A process at one endpoint. facts: its status; None when it gave none, and why."""

    server: int
    endpoint: str
    facts: dict[str, Any] | None
    problem: PaddockError | None


@dataclass(frozen=True, slots=True)
class MovedShard:
    """The result of a move. seconds: pushes waited so long; 0.0: the shard was there already."""

    table: str
    shard: int
    source: int
    to: int
    bytes: int
    seconds: float


class Admin:
    """A connection to all servers of a job, for people and their tools.

    progress: told (servers or shards done, of how many) by orders that take long.
    """

    def __init__(self, settings: AdminSettings) -> None:
        from paddock import __version__

        self.settings = settings
        self.progress: OnProgress = no_progress
        self._identity = Identity(settings.job, 0, 0, __version__, settings.token, settings.tls_ca)
        count = len(settings.endpoints)
        self.peers = [
            ServerConnection(i, e, self._identity, settings.timeout, purpose=PURPOSE, servers=count)
            for i, e in enumerate(settings.endpoints)
        ]

    # ----------------------------------------------------------------------------------- reading

    def look(self) -> list[ServerStatus]:
        """The status of every process, replicas included; those out of reach as well."""
        places = [
            (index, one)
            for index, endpoint in enumerate(self.settings.endpoints)
            for one in endpoint.split("|")
        ]
        with ThreadPoolExecutor(min(16, len(places))) as pool:
            return list(pool.map(self._look_at, places))

    def _look_at(self, place: tuple[int, str]) -> ServerStatus:
        server, endpoint = place
        try:
            link = FrameConnection(endpoint, self._identity, PURPOSE, self.settings.timeout)
            try:
                link.stream.send(Header(Op.STATUS), b"{}")
                _, body = link.receive()
            finally:
                link.close()
            return ServerStatus(server, endpoint, json.loads(bytes(body)), None)
        except PaddockError as error:
            return ServerStatus(server, endpoint, None, _named(error, endpoint))

    def connect(self) -> None:
        """Reach every server now, once. Raises PaddockError naming the first that is not there."""
        for peer in self.peers:
            try:
                peer.link(PURPOSE)
            except RequestError:
                raise
            except PaddockError as error:
                raise _named(error, peer.endpoints[0]) from error

    def tables(self) -> list[dict[str, Any]]:
        """Every table over all servers: spec, rows, bytes, step, and the shards of each server."""
        found: dict[str, dict[str, Any]] = {}
        for peer in self.peers:
            for table in peer.tables():
                here = found.setdefault(
                    table["name"],
                    {**table, "rows": 0, "bytes": 0, "step": 0, "servers": {}, "numbers": {}},
                )
                here["rows"] += table.get("rows", 0)
                here["bytes"] += table["bytes"]
                here["step"] = max(here["step"], table["step"])
                here["servers"][str(peer.index)] = len(table["owned"])
                here["numbers"][str(peer.index)] = table["number"]
                for name in ("number", "owned", "moves"):
                    here.pop(name, None)
        return [found[name] for name in sorted(found)]

    def place(self, table: str) -> RemoteTable:
        """The owner of each shard of a table. Raises UsageError when there is no such table."""
        told = [peer.tables() for peer in self.peers]
        mine = [next((t for t in tables if t["name"] == table), None) for tables in told]
        if any(one is None for one in mine):
            names = sorted({t["name"] for tables in told for t in tables})
            raise UsageError(
                f"the servers have no table {table!r}",
                hint="they have " + (", ".join(names) or "none yet"),
            )
        held = [one for one in mine if one is not None]
        spec = from_json(held[0]["spec"])
        owner = np.full(spec.shards, -1, np.int32)
        for server, one in enumerate(held):
            owner[one["owned"]] = server
        if (owner < 0).any():
            shard = int(np.argmin(owner))
            raise PaddockError(
                f"table {table!r}: shard {shard} is on its way from one server to another",
                hint="ask again; if this lasts, is a server down? paddock ps status",
                retryable=True,
            )
        return RemoteTable(spec, [int(one["number"]) for one in held], owner)

    # ------------------------------------------------------------------------------------ orders

    def job(self) -> str:
        """The servers' own name of the job."""
        return self.peers[0].link(PURPOSE).welcome.job

    def save(self, directory: str, *, mode: str = "full", keep: int = 3) -> str:
        """Write a checkpoint of the servers' job; its name."""
        return checkpoints.save(
            self.peers, directory, mode, self.job(), keep=keep, progress=self.progress
        )

    def load(self, directory: str, *, name: str = "", of_job: str | None = None) -> Checkpoint:
        """Have the servers read a checkpoint; of_job: of another job, by its name."""
        job = of_job or self.settings.job
        return checkpoints.load(self.peers, directory, job, name, self.progress)

    def snapshot(self) -> list[int]:
        """Have each server write a snapshot into its data directory; their log positions."""
        answers = [p.ask(Op.CONTROL, {"do": "snapshot"}, wait=True) for p in self.peers]
        return [int(answer["lsn"]) for answer in answers]

    def shrink(self, table: str) -> int:
        """Decay statistics and drop what the accessor gives up, shard by shard; rows dropped."""
        remote = self.place(table)
        if not isinstance(remote.spec, SparseSpec):
            raise UsageError(f"table {table!r} is dense", hint="sparse tables shrink")
        until = time.monotonic() + MOVING_SECONDS

        def handle_moved(refusal: RequestError) -> None:
            if refusal.code != "moved" or time.monotonic() > until:
                raise refusal
            time.sleep(LOOK_SECONDS)
            remote.owners = self._settled(table, until).owners

        return shrink(self.peers, remote, handle_moved, self.progress)

    def move(
        self, table: str, shard: int, to: int, *, seconds: float = MOVING_SECONDS
    ) -> MovedShard:
        """Give one shard to another server, while trainers go on; the servers do it.

        Where it is already nothing happens. An order that was not answered may be given again.
        """
        self._check_job()
        until = time.monotonic() + seconds
        while True:
            owner = self._settled(table, until).owners
            if not 0 <= shard < len(owner):
                raise UsageError(
                    f"table {table!r} has no shard {shard}", hint=f"0 to {len(owner) - 1}"
                )
            source = int(owner[shard])
            if source == to:
                return MovedShard(table, shard, source, to, 0, 0.0)
            order = {"do": "move", "table": table, "shard": shard, "to": to, "seconds": seconds}
            try:
                did = self.peers[source].ask(Op.CONTROL, order, wait=True)
                return MovedShard(table, shard, source, to, did["bytes"], did["seconds"])
            except RequestError as refusal:
                if refusal.code != "moved" or time.monotonic() > until:  # By somebody else.
                    raise

    def rebalance(self, table: str) -> list[MovedShard]:
        """Have every server own as many shards as the others, give or take one; few moves."""
        self._check_job()
        owner = self._settled(table, time.monotonic() + MOVING_SECONDS).owners
        return [self.move(table, *one) for one in plan_moves(owner.tolist(), len(self.peers))]

    def _settled(self, table: str, until: float) -> RemoteTable:
        """The owner of each shard, once no shard is on its way."""
        while True:
            try:
                return self.place(table)
            except PaddockError as error:
                if not error.retryable or time.monotonic() > until:
                    raise
            time.sleep(LOOK_SECONDS)

    def _check_job(self) -> None:
        """An order in several parts stops before its first part if the job is another one."""
        mine, its = self.settings.job, self.job()
        if mine != its:
            raise UsageError(
                f"the servers serve job {its!r}, this order is for job {mine!r}",
                hint=f"--job {its}, if that is the one you mean",
            )

    def set(self, table: str, columns: list[Column]) -> None:
        """Give distinct keys these weights, (n, dim), or a vector all its elements. Repeating it
        changes nothing.
        """
        remote = self.place(table)
        for server, header, body in frames(remote, Op.SET, *partition(remote, columns), 0):
            self.peers[server].exchange(header, *body)

    def close(self) -> None:
        """End the connections."""
        for peer in self.peers:
            peer.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _named(error: PaddockError, endpoint: str) -> PaddockError:
    """The error with the server's endpoint in it."""
    if isinstance(error, RequestError) or endpoint in error.message:
        return error
    return PaddockError(f"server {endpoint}: {error.message}", hint=error.hint)


def plan_moves(owner: list[int], servers: int) -> list[tuple[int, int]]:
    """(shard, to): the moves that make the numbers of shards equal, give or take one.

    >>> plan_moves([0, 0, 0, 1], 3)
    [(2, 2)]
    """
    held: list[list[int]] = [[] for _ in range(servers)]
    for shard, server in enumerate(owner):
        held[server].append(shard)
    moves: list[tuple[int, int]] = []
    while True:
        counts = [len(shards) for shards in held]
        most, least = counts.index(max(counts)), counts.index(min(counts))
        if counts[most] - counts[least] <= 1:
            return moves
        shard = held[most].pop()
        held[least].append(shard)
        moves.append((shard, least))
