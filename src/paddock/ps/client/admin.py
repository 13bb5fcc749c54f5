"""Orders to running servers from outside the job: `paddock ps`. Never a trainer, never counted.

The links are of purpose "admin": the chief is not joined, so nobody waits for us. Reading needs
no job name; writing goes to the job that is named, and servers of another one refuse.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError, UsageError
from paddock.ps.client import checkpoints, move
from paddock.ps.client.move import Moved
from paddock.ps.client.peer import Peer
from paddock.ps.client.place import JOBS, SERVERS, TLS_CA, TOKEN_FILE, read_endpoints
from paddock.ps.durable.checkpoint import Checkpoint
from paddock.ps.link import Identity, Link, read_token
from paddock.ps.protocol.frames import BODY_MAX, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.spec import (
    DENSE_SHARD_MAX,
    DenseSpec,
    SparseSpec,
    TableSpec,
    from_json,
)
from paddock.ps.stream import raw
from paddock.ps.table.sharding import shard_of

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]
PURPOSE = "admin"
# A shard that moves is asked for again after so long, and for so long. A step of sync that takes
# longer is not waited for.
LOOK_SECONDS = 0.05
MOVING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the servers are and how to reach them. job: whose, for orders that write."""

    endpoints: tuple[str, ...]
    job: str = "default"
    token: bytes = b""
    tls_ca: str = ""
    timeout: float = 10.0


def read_settings(
    env: Mapping[str, str],
    *,
    endpoints: str | None = None,
    job: str | None = None,
    token_file: str | None = None,
    tls_ca: str | None = None,
    timeout: float = 10.0,
) -> Settings:
    """The settings; arguments first, then the environment. Raises UsageError."""
    if not endpoints and not env.get(SERVERS, "").strip(" ,"):
        raise UsageError(
            f"no server is named: --endpoints is not given and {SERVERS} is not set",
            hint="--endpoints host:port,host:port",
        )
    token = read_token(token_file or env.get(TOKEN_FILE, ""))
    ca = tls_ca or env.get(TLS_CA, "")
    if ca and not Path(ca).is_file():
        raise UsageError(f"--tls-ca {ca}: no such file", hint="certificates in PEM form")
    if not timeout > 0:
        raise UsageError(f"--timeout is {timeout:g}", hint="seconds, more than 0")
    return Settings(
        read_endpoints(env, endpoints or None),
        job or next((env[name] for name in JOBS if env.get(name)), "default"),
        token,
        ca,
        timeout,
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """One process at one endpoint. facts: its status; None when it gave none, and why."""

    server: int
    endpoint: str
    facts: dict[str, Any] | None
    problem: PaddockError | None


@dataclass(frozen=True, slots=True)
class Placed:
    """A table, and what each server calls it. owner: (shards,) server of each shard."""

    spec: TableSpec
    numbers: tuple[int, ...]
    owner: NDArray[np.int32]


class Admin:
    """A connection to all servers of a job, for people and their tools."""

    def __init__(self, settings: Settings) -> None:
        from paddock import __version__

        self.settings = settings
        self._identity = Identity(settings.job, 0, 0, __version__, settings.token, settings.tls_ca)
        count = len(settings.endpoints)
        self.peers = [
            Peer(i, e, self._identity, settings.timeout, purpose=PURPOSE, servers=count)
            for i, e in enumerate(settings.endpoints)
        ]

    # ----------------------------------------------------------------------------------- reading

    def look(self) -> list[Seen]:
        """The status of every process, replicas included; those out of reach as well."""
        places = [
            (index, one)
            for index, endpoint in enumerate(self.settings.endpoints)
            for one in endpoint.split("|")
        ]
        with ThreadPoolExecutor(min(16, len(places))) as pool:
            return list(pool.map(self._look_at, places))

    def _look_at(self, place: tuple[int, str]) -> Seen:
        server, endpoint = place
        try:
            link = Link(endpoint, self._identity, PURPOSE, self.settings.timeout)
            try:
                link.send(Header(Op.STATUS), b"{}")
                _, body = link.receive()
            finally:
                link.close()
            return Seen(server, endpoint, json.loads(bytes(body)), None)
        except PaddockError as error:
            return Seen(server, endpoint, None, _named(error, endpoint))

    def connect(self) -> None:
        """Reach every server now, once. Raises PaddockError naming the first that is not there."""
        for peer in self.peers:
            try:
                peer.link(PURPOSE)
            except Refusal:
                raise
            except PaddockError as error:
                raise _named(error, peer.endpoints[0]) from error

    def tables(self) -> list[dict[str, Any]]:
        """Every table over all servers: spec, rows, bytes, step, and the shards of each server."""
        found: dict[str, dict[str, Any]] = {}
        for peer in self.peers:
            for table in peer.ask(Op.CONTROL, {"do": "tables"})["tables"]:
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

    def place(self, table: str) -> Placed:
        """Where a table's shards are. Raises UsageError when there is no such table."""
        told = [peer.ask(Op.CONTROL, {"do": "tables"})["tables"] for peer in self.peers]
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
        return Placed(spec, tuple(int(one["number"]) for one in held), owner)

    # ------------------------------------------------------------------------------------ orders

    def job(self) -> str:
        """The servers' own name of the job."""
        return self.peers[0].link(PURPOSE).welcome.job

    def save(self, directory: str, *, mode: str = "full", keep: int = 3) -> str:
        """Write a checkpoint of the servers' job; its name."""
        return checkpoints.save(self.peers, directory, mode, self.job(), keep=keep)

    def load(self, directory: str, *, name: str = "", of_job: str | None = None) -> Checkpoint:
        """Have the servers read a checkpoint; of_job: of another job, by its name."""
        return checkpoints.load(self.peers, directory, of_job or self.settings.job, name)

    def snapshot(self) -> list[int]:
        """Have each server write a snapshot into its data directory; their log positions."""
        answers = [p.ask(Op.CONTROL, {"do": "snapshot"}, wait=True) for p in self.peers]
        return [int(answer["lsn"]) for answer in answers]

    def shrink(self, table: str) -> int:
        """Decay statistics and drop what the accessor gives up, shard by shard; rows dropped."""
        placed = self.place(table)
        if not isinstance(placed.spec, SparseSpec):
            raise UsageError(f"table {table!r} is dense", hint="sparse tables shrink")
        dropped, round_ = 0, os.urandom(8).hex()
        until = time.monotonic() + MOVING_SECONDS
        for shard in range(placed.spec.shards):
            order = {"shard": shard, "round": round_}
            while True:
                server = int(placed.owner[shard])
                try:
                    answer = self.peers[server].ask(Op.SHRINK, order, table=placed.numbers[server])
                    break
                except Refusal as refusal:
                    if refusal.code != "moved" or time.monotonic() > until:
                        raise
                    time.sleep(LOOK_SECONDS)
                    placed = self._settled(table, until)
            dropped += int(answer["dropped"])
        return dropped

    def move(self, table: str, shard: int, to: int, *, seconds: float = MOVING_SECONDS) -> Moved:
        """Give one shard to another server, while trainers go on; the servers do it.

        Where it is already nothing happens. An order that was not answered may be given again.
        """
        self._check_job()
        until = time.monotonic() + seconds
        while True:
            owner = self._settled(table, until).owner
            if not 0 <= shard < len(owner):
                raise UsageError(
                    f"table {table!r} has no shard {shard}", hint=f"0 to {len(owner) - 1}"
                )
            source = int(owner[shard])
            if source == to:
                return Moved(table, shard, source, to, 0, 0.0)
            order = {"do": "move", "table": table, "shard": shard, "to": to, "seconds": seconds}
            try:
                did = self.peers[source].ask(Op.CONTROL, order, wait=True)
                return Moved(table, shard, source, to, did["bytes"], did["seconds"])
            except Refusal as refusal:
                if refusal.code != "moved" or time.monotonic() > until:  # By somebody else.
                    raise

    def rebalance(self, table: str) -> list[Moved]:
        """Have every server own as many shards as the others, give or take one; few moves."""
        self._check_job()
        owner = self._settled(table, time.monotonic() + MOVING_SECONDS).owner
        return [self.move(table, *one) for one in move.plan(owner.tolist(), len(self.peers))]

    def _settled(self, table: str, until: float) -> Placed:
        """Where the shards are, once none is on its way."""
        while True:
            try:
                return self.place(table)
            except PaddockError as error:
                if not error.retryable or time.monotonic() > until:
                    raise
            time.sleep(LOOK_SECONDS)

    def _check_job(self) -> None:
        """What no record tells: an order in several parts stops before its first."""
        mine, its = self.settings.job, self.job()
        if mine != its:
            raise UsageError(
                f"the servers serve job {its!r}, this order is for job {mine!r}",
                hint=f"--job {its}, if that is the one you mean",
            )

    def set_rows(self, table: str, keys: Keys, values: Rows) -> None:
        """Give distinct keys these weights, (n, dim). Repeating it changes nothing."""
        placed = self.place(table)
        spec = placed.spec
        if not isinstance(spec, SparseSpec):
            raise UsageError(f"table {table!r} is dense: it has no keys")
        if values.shape != (len(keys), spec.dim):
            raise UsageError(
                f"table {table!r} has dim {spec.dim}, what is imported is of shape "
                f"{list(values.shape)} for {len(keys)} keys"
            )
        owner = placed.owner[shard_of(keys, spec.shards)]
        most = BODY_MAX // (8 + 4 * spec.dim)
        for server in range(len(self.peers)):
            mine = np.flatnonzero(owner == server)
            for start in range(0, len(mine), most):
                part = mine[start : start + most]
                header = Header(Op.SET, table=placed.numbers[server], count=len(part))
                self._write(server, header, raw(keys[part]), raw(values[part]))

    def set_dense(self, table: str, values: Rows) -> None:
        """Give a dense table these weights, (size,)."""
        placed = self.place(table)
        spec = placed.spec
        if not isinstance(spec, DenseSpec):
            raise UsageError(f"table {table!r} is sparse: its rows have keys")
        if values.shape != (spec.size,):
            raise UsageError(
                f"table {table!r} has {spec.size} elements, what is imported has shape "
                f"{list(values.shape)}"
            )
        for shard, server in enumerate(placed.owner.tolist()):
            start, stop = spec.range(shard)
            assert stop - start <= DENSE_SHARD_MAX
            header = Header(Op.SET_DENSE, table=placed.numbers[server], count=stop - start)
            if stop > start:
                body = start.to_bytes(8, "little")
                self._write(server, header, body, raw(values[start:stop]))

    def _write(self, server: int, header: Header, *body: bytes | memoryview) -> None:
        """One frame that may be repeated without harm, and its acknowledgement."""

        def once(link: Link) -> None:
            link.send(header, *body)
            link.receive()

        self.peers[server].retry(PURPOSE, once)

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
    if isinstance(error, Refusal) or endpoint in error.message:
        return error
    return PaddockError(f"server {endpoint}: {error.message}", hint=error.hint)
