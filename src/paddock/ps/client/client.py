"""The trainer's half of the parameter server: numpy in, numpy out.

    from paddock.ps import Client, SparseSpec

    with Client() as ps:                      # servers and trainer from the environment
        ps.create(SparseSpec("words", dim=16))
        rows = ps.pull("words", ids)          # ids int64 of any shape -> float32[..., 16]
        ps.push("words", ids, gradients)      # as rows; repeated ids are added up
        ps.step()                             # the end of a batch

A Client belongs to one thread at a time: a call that pulls, pushes or waits for pushes while one of
another thread does so raises UsageError. Every call either did its work, or raises; what a server
refuses or could not be told of is raised at the latest by the next call.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddock.errors import UsageError
from paddock.ps.client import reduce
from paddock.ps.client.partition import Column, RemoteTable, Rows, Runs
from paddock.ps.client.redirect import RetryBudget, handle_moved, shrink
from paddock.ps.client.server_connection import OneThread, ServerConnection
from paddock.ps.client.server_group import ServerGroup, Wanted
from paddock.ps.client.strategy import Strategy, make_strategy
from paddock.ps.client.trainer_config import TrainerConfig, read_trainer_config
from paddock.ps.connection import Identity, read_token
from paddock.ps.optimizers.rules import check_optimizer, check_table
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.spec import DenseSpec, SparseSpec, TableSpec, to_json
from paddock.ps.table.coerce import as_floats, as_keys
from paddock.ps.table.finite import check_finite
from paddock.ps.table.sharding import deal, expand, sum_by, unique
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from paddock.ps.wire.offsets import OffsetProgress, check_offset

if TYPE_CHECKING:
    from paddock.ps.adapters.arguments import Refreshed

Version = Mapping[int, int]  # of a dense table; by server


# To find repeats among fewer keys takes longer than to fetch some rows twice.
ASKED_AS_GIVEN = 64


class Client:
    """A trainer's connection to all servers of a job; a context manager, which closes it.

    Args:
        endpoints: "host:port" of each server, in order. None: PADDLE_PSERVERS_IP_PORT_LIST.
        trainer: This trainer's number, from 0. None: PADDLE_TRAINER_ID.
        trainers: How many there are. None: PADDLE_TRAINERS_NUM.
        strategy: sync, half_async, async, geo or staleness.
        staleness: Batches that a trainer may be ahead of the slowest one (staleness).
        window: Batches whose pushes may be unacknowledged (async).
        timeout: Seconds after which an unreachable server is an error.
        token_file: File with the servers' secret. None: PADDOCK_PS_TOKEN_FILE; "" for none.
        tls_ca: Who signed the servers' certificates, PEM. None: PADDOCK_PS_TLS_CA; "" for none.
        job: The job's id, as the servers have it. None: PADDLE_JOB_ID or PADDOCK_JOB_ID.
        geo_step: Batches between two exchanges (geo).
        geo_merge: An exchange sends a trainer's differences divided by the number of trainers
            (mean), or as they are (sum).

    Raises:
        UsageError: with all that is missing or wrong.
        RequestError: a server does not take this trainer.
        PaddockError: a server has not answered for `timeout` seconds.
    """

    def __init__(
        self,
        endpoints: Sequence[str] | str | None = None,
        *,
        trainer: int | None = None,
        trainers: int | None = None,
        strategy: str = "async",
        staleness: int = 0,
        window: int = 2,
        timeout: float = 60.0,
        token_file: str | None = None,
        tls_ca: str | None = None,
        job: str | None = None,
        geo_step: int = 100,
        geo_merge: str = "mean",
    ) -> None:
        place = read_trainer_config(
            os.environ, endpoints, trainer, trainers, job, token_file, tls_ca
        )
        self.place: TrainerConfig = place
        self.strategy: Strategy = make_strategy(
            strategy, staleness, window, geo_step, place, geo_merge
        )
        # Called when a batch ends, before the strategy acts: to note the position, say.
        self.before_step: Callable[[], None] | None = None
        self._turns: dict[str, int] = {}
        self._copies: WeakSet[Refreshed] = WeakSet()
        self._changes = 0
        self._one_thread = OneThread()  # at a time, over the links that pull and push
        from paddock import __version__

        token = read_token(place.token_file)
        identity = Identity(place.job, place.trainer, 0, __version__, token, place.tls_ca)
        self.peers = [
            ServerConnection(i, e, identity, timeout, servers=len(place.endpoints))
            for i, e in enumerate(place.endpoints)
        ]
        self.group = ServerGroup(self.peers, secrets.token_hex(8))
        try:
            for peer in self.peers:
                peer.retry("control", lambda link: None)
            self.strategy.join(self.group)
        except BaseException:
            for peer in self.peers:
                peer.close()
            raise

    # ------------------------------------------------------------------------------------ tables

    def create(self, spec: TableSpec) -> None:
        """Declare a table; every trainer declares it alike, the first one makes it.

        Raises:
            UsageError: with all that is wrong with the spec, or what the strategy cannot honour.
            RequestError: the servers have a table of this name with another spec.
        """
        if not isinstance(spec, (SparseSpec, DenseSpec)):
            raise UsageError(
                f"create() was given {spec!r}, which is no table's spec",
                hint='SparseSpec("words", dim=16) or DenseSpec("bias", size=1000)',
            )
        check_table(spec)
        self.strategy.check_table(spec)
        answers = [peer.ask(Op.CREATE, to_json(spec)) for peer in self.peers]
        numbers = [int(answer["table"]) for answer in answers]
        remote = self.group.tables.get(spec.name)
        if remote is not None and remote.spec == spec and remote.numbers == numbers:
            return  # What is on its way, and its order, belongs to what is known.
        # The table's routing: as dealt, or as the servers say (torchrec: sharding plan).
        dealt = [len(shards) for shards in deal(spec.shards, len(self.peers))]
        owners = np.repeat(np.arange(len(dealt), dtype=np.int32), dealt)
        for server, answer in enumerate(answers):
            owners[answer.get("owned", [])] = server
        self.group.tables[spec.name] = RemoteTable(spec, numbers, owners)

    def spec(self, table: str) -> TableSpec:
        """The spec of a table this client created."""
        return self._table(table).spec

    @property
    def tables(self) -> dict[str, TableSpec]:
        """The specs of the tables that this client created, by name."""
        return {name: remote.spec for name, remote in self.group.tables.items()}

    def _table(self, table: str, kind: type[TableSpec] | None = None) -> RemoteTable:
        """A table that was created here, of this kind. Raises UsageError."""
        remote = self.group.tables.get(table)
        if remote is None or self.peers[0].is_ended:
            self.peers[0].check_open()
            names = ", ".join(self.group.tables) or "none yet"
            raise UsageError(
                f"table {table!r} is not known to this client (it has: {names})",
                hint="client.create(SparseSpec(...)) or DenseSpec first",
            )
        if kind is not None and not isinstance(remote.spec, kind):
            calls = {"dense": "pull_dense, push_dense, set_dense"}
            raise UsageError(
                f"table {table!r} is {remote.spec.kind}",
                hint=calls.get(remote.spec.kind, "pull, push and set take keys"),
            )
        return remote

    # ------------------------------------------------------------------------------------ sparse

    def pull(self, table: str, keys: ArrayLike, *, distinct: bool = False) -> Rows:
        """Rows of a sparse table. A key that was never pushed has its initial value.

        Args:
            table: Its name.
            keys: int64 of any shape; they may repeat.
            distinct: No key repeats, as adapters know. It is believed; one that does is fetched
                twice.

        Returns:
            float32, of the shape (*keys.shape, dim), in the order of the keys.
        """
        self._table(table, SparseSpec)
        return self.pull_many({table: keys}, distinct=distinct)[table]

    def pull_many(self, wanted: Mapping[str, Any], *, distinct: bool = False) -> dict[str, Rows]:
        """Rows of several tables, in one round trip: {table: keys} -> {table: rows}.

        As pull(): (*keys.shape, dim) float32. Of a dense table: None, or the array for its vector.
        """
        asked: list[Wanted] = []
        shapes: dict[str, tuple[tuple[int, ...], NDArray[np.int32] | None]] = {}
        for table, given in wanted.items():
            remote = self._table(table)
            if isinstance(remote.spec, DenseSpec):
                asked.append((remote, _vector(remote.spec, given)))
                continue
            keys = as_keys(table, given)
            flat, inverse = keys.reshape(-1), None
            if not distinct and (len(flat) > ASKED_AS_GIVEN or remote.ahead is not None):
                once, inverse = unique(flat)
                remote.pulled, flat = (flat.copy(), once, inverse), once
            asked.append((remote, flat))
            shapes[table] = (*keys.shape, remote.spec.dim), inverse
        with self._one_thread:
            found = dict(zip(wanted, self.strategy.pull(self.group, asked), strict=True))
        for table, (shape, inverse) in shapes.items():
            rows = found[table]
            if inverse is not None and len(rows) < len(inverse):
                rows = expand(rows, inverse)
            found[table] = rows.reshape(shape)
        return found

    def prefetch(self, table: str, keys: ArrayLike) -> None:
        """Ask for rows of int64 keys now; the next pull of the same keys finds them on their way.

        They are as of now: one batch older than those of a pull after the push. In sync all are of
        the step that is open: step() waits for them.
        """
        remote = self._table(table, SparseSpec)
        once, _ = unique(as_keys(table, keys))
        with self._one_thread:
            self.group.prefetch(remote, once)

    def push(
        self,
        table: str,
        keys: ArrayLike,
        grads: ArrayLike,
        *,
        shows: ArrayLike | None = None,
        clicks: ArrayLike | None = None,
        distinct: bool = False,
    ) -> None:
        """Send gradients of rows. After "has not answered" a push stays queued: flush() later.

        Args:
            table: Its name.
            keys: int64 of any shape; the gradients of a repeated key add up.
            grads: float32, (*keys.shape, dim), all finite.
            shows: float32 of keys' shape, for tables with statistics.
            clicks: As shows.
            distinct: No key repeats, as adapters know. It is believed: of one that does the servers
                apply all gradients in turn, and count the last shows and clicks only.

        Raises:
            UsageError: a shape or a type is wrong; nothing was sent.
            RequestError: a gradient is not finite; nothing was sent.
        """
        self._table(table, SparseSpec)
        self.push_many({table: (keys, grads, shows, clicks)}, distinct=distinct)

    def check_push(
        self,
        table: str,
        keys: ArrayLike,
        grads: ArrayLike,
        shows: ArrayLike | None = None,
        clicks: ArrayLike | None = None,
        *,
        distinct: bool = False,
    ) -> list[Column]:
        """The columns of a push, checked, one row a key: distinct keys (n,), gradients, statistics.

        The arrays are the caller's to keep. Sends nothing. Raises UsageError, RequestError.
        """
        remote = self._table(table, SparseSpec)
        spec, pulled = remote.spec, remote.pulled
        assert isinstance(spec, SparseSpec)
        asked = as_keys(table, keys)
        flat = asked.reshape(-1)
        values = as_floats(table, grads, (len(flat), spec.dim), (*asked.shape, spec.dim))
        if (shows is not None or clicks is not None) and not spec.accessor.statistics:
            raise UsageError(
                f"table {table!r} keeps no statistics, but shows or clicks were pushed",
                hint="SparseSpec(..., accessor=AccessorSpec(statistics=True)), or leave them out",
            )
        columns = [values]
        if shows is not None or clicks is not None:
            for given in (shows, clicks):
                column = np.zeros(len(flat), np.float32) if given is None else given
                columns.append(as_floats(table, column, (len(flat), 1), asked.shape))
        # In memory of their own: they are kept until acknowledged.
        if distinct:
            once, inverse = flat.copy(), None
        elif pulled is not None and np.array_equal(pulled[0], flat):
            _, once, inverse = pulled
        else:
            once, inverse = unique(flat)
        if inverse is None or len(once) == len(flat):
            columns = [column.copy() for column in columns]
        else:
            columns = [sum_by(inverse, len(once), column) for column in columns]
        for column in columns:
            check_finite(table, column, once)
        return [once, columns[0], *(column.reshape(-1) for column in columns[1:])]

    def push_many(self, given: Mapping[str, Any], *, distinct: bool = False) -> None:
        """Gradients of several tables: {table: (keys, gradients[, shows, clicks])}, as push(); of
        a dense one {table: gradients}. When one of them is refused here, none is sent.
        """
        pushes: list[tuple[str, list[Column], Runs | None]] = []
        for table, pushed in given.items():
            if isinstance(self._table(table).spec, DenseSpec):
                vector, runs = self.check_push_dense(table, pushed, None)
                pushes.append((table, [vector.copy()], runs))
                continue
            if not isinstance(pushed, tuple | list) or not 2 <= len(pushed) <= 4:
                raise UsageError(
                    f"table {table!r}: what is pushed is of type {type(pushed).__qualname__}",
                    hint="(keys, gradients) or (keys, gradients, shows, clicks)",
                )
            pushes.append((table, self.check_push(table, *pushed, distinct=distinct), None))
        with self._one_thread:
            for table, columns, part in pushes:
                self.strategy.push(self.group, self._table(table), columns, part)

    def set(self, table: str, keys: ArrayLike, values: ArrayLike) -> None:
        """Give rows these weights, (n, dim); their optimizer state stays. Keys must be distinct."""
        remote = self._table(table, SparseSpec)
        columns = self.check_push(table, keys, values)
        repeated = np.size(keys) - len(columns[0])
        if repeated:
            raise UsageError(f"table {table!r}: set() got {repeated} keys twice")
        self._set(remote, columns)

    # ------------------------------------------------------------------------------------- dense

    def pull_dense(self, table: str, out: Rows | None = None) -> Rows:
        """The whole vector, float32[size]; into `out` when given."""
        self._table(table, DenseSpec)
        return self.pull_many({table: out})[table]

    def version(self, table: str) -> Version:
        """The version of a dense table that was pulled last, for is_current()."""
        return self._table(table, DenseSpec).versions

    def is_current(self, table: str, version: Version) -> bool:
        """True if the servers still have a dense table in this version; asks each, pulls nothing.

        In geo always False: what would be pulled is here.
        """
        if self.peers[0].is_ended:  # What is here stays.
            return True
        remote = self._table(table, DenseSpec)
        with self._one_thread:
            return self.strategy.has_version(self.group, remote, version)

    def watch(self, copy: Refreshed) -> None:
        """`copy.refresh()` is called behind load() and barrier(); `changes` tells of the rest."""
        self._copies.add(copy)

    def _refresh_copies(self) -> None:
        self._changes += 1
        with self._one_thread:
            self.group.forget_pulls()
        for copy in list(self._copies):
            copy.refresh()

    def push_dense(
        self, table: str, grads: ArrayLike, *, used: Sequence[bool] | None = None
    ) -> None:
        """Send the gradient of the whole vector.

        Args:
            table: Its name.
            grads: (size,) float32.
            used: Whether each of the spec's parts has one; the optimizer leaves the others be.
        """
        values, runs = self.check_push_dense(table, grads, used)
        with self._one_thread:
            self.strategy.push(self.group, self._table(table), [values.copy()], runs)

    def check_push_dense(
        self, table: str, grads: ArrayLike, used: Sequence[bool] | None
    ) -> tuple[Rows, Runs]:
        """The checked vector of a push_dense(), (size,) float32, perhaps the caller's; not sent."""
        spec = self._table(table, DenseSpec).spec
        assert isinstance(spec, DenseSpec)
        values = as_floats(table, grads, (spec.size, 1), (spec.size,)).reshape(-1)
        check_finite(table, values, None)
        return values, spec.runs(used)

    def set_dense(self, table: str, values: ArrayLike) -> None:
        """Give the vector these values, (size,); done when all servers have them."""
        remote = self._table(table, DenseSpec)
        vector, _ = self.check_push_dense(table, values, None)
        self._set(remote, [vector.copy()])
        self._changes += 1

    def _set(self, remote: RemoteTable, columns: list[Column]) -> None:
        with self._one_thread:
            self.strategy.forget(remote.spec.name, columns)
            self.group.post(Op.SET, remote, columns)
            self.group.wait_acked(0)

    def set_lr(self, table: str, lr: float, correction: float = 1.0) -> None:
        """The table's learning rate from now on, in place of its spec's; its schedule goes on.

        In sync from the step on that is open, whoever of its trainers says it (the first of them,
        where they differ); in the others from this trainer's next push on. It stays after a
        restart and in checkpoints.

        Args:
            table: Its name.
            lr: 0 or more.
            correction: What optimizer adam_told multiplies its epsilon by: above 0, at most 1.
        """
        remote = self._table(table)
        problems = check_optimizer(replace(remote.spec.optimizer, lr=lr))
        if problems:
            raise UsageError.of(problems)
        if not 0.0 < correction <= 1.0:
            raise UsageError(
                f"table {table!r}: correction is {correction}", hint="above 0, at most 1"
            )
        with self._one_thread:
            self.strategy.set_rate(self.group, remote, Rate(float(lr), float(correction)))

    # ------------------------------------------------------------------------- batches and order

    def step(self, *, ended: int = 0) -> None:
        """The end of a batch: what the strategy asks for happens here.

        Args:
            ended: In sync: how many passes over its data this trainer is through with; each time
                more, and kept after a restart. All trainers see it in `ended` after this step.
        """
        with self._one_thread:
            if self.before_step is not None:
                self.before_step()
            self.group.ended = ended
            self.strategy.step(self.group)
            self.group.batch += 1

    @property
    def changes(self) -> int:
        """Another number when tables may have changed: by step(), set_dense(), load(), a barrier
        or an all_reduce(), and when rows come of which a server says that it has loaded since. Of
        others' pushes between them it knows nothing.
        """
        return self.group.batch + self.group.loads + self._changes

    @property
    def ended(self) -> int:
        """The number of passes that every trainer had said to step() by the newest step of sync."""
        return min(self.group.all_ended.get(number, 0) for number in range(self.place.trainers))

    def flush(self) -> None:
        """Wait until everything pushed is acknowledged."""
        with self._one_thread:
            self.strategy.flush(self.group)
            self.group.wait_acked(0)

    def barrier(self, name: str = "all", *, timeout: float | None = None) -> None:
        """Wait for all trainers of the job, as long as none is lost; at most `timeout` seconds.

        Raises:
            RequestError: names who is lost, has not come in time, or waits elsewhere.
        """
        if timeout is not None and not timeout > 0:
            raise UsageError(f"barrier {name!r}: timeout is {timeout}", hint="seconds, or None")
        self.flush()
        self._turns[name] = self._turns.get(name, 0) + 1
        self._arrive(name, self._turns[name], timeout or 0.0, is_counted=False)
        self._refresh_copies()

    def meet(self, name: str, turn: int) -> None:
        """As barrier(), for trainers that count their meetings over all their incarnations, from 1.

        Who was started again and comes to one that has been is let through. Sends nothing: in geo
        no differences are exchanged.
        """
        with self._one_thread:
            self.group.wait_acked(0)
        self._arrive(name, turn, 0.0, is_counted=True)

    def _arrive(self, name: str, turn: int, seconds: float, *, is_counted: bool) -> None:
        where = {
            "name": name,
            "turn": turn,
            "is_fresh": self.group.batch == 0,
            "seconds": seconds,
            "is_counted": is_counted,
        }
        self.peers[0].ask(Op.ARRIVE, where, step=self.group.step - 1, again=True)
        self._changes += 1  # The others may have loaded a checkpoint, or learned.
        with self._one_thread:
            self.strategy.check_loads(self.group)

    def status(self) -> list[dict[str, Any]]:
        """The status of each server."""
        return [peer.ask(Op.STATUS, {}) for peer in self.peers]

    def digest(self) -> dict[str, str]:
        """A hash of each table's content: weights, optimizer state, statistics. Hex, 16 digits.

        Equal for equal content, whatever the number of servers and the order of arrival. The
        servers are asked in turn: for the content of one moment nobody pushes, and no shard moves.
        """
        self.flush()
        total: dict[str, int] = {}
        for peer in self.peers:
            for name, value in peer.ask(Op.CONTROL, {"do": "digest"})["tables"].items():
                total[name] = (total.get(name, 0) + int(value)) & 0xFFFFFFFFFFFFFFFF
        return {name: f"{value:016x}" for name, value in sorted(total.items())}

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        mode: str = "full",
        keep: int = 3,
        exchanges: bool = True,
    ) -> str:
        """Write a checkpoint of all servers. The one before stays until this one is whole.

        Args:
            directory: Of this process. What servers cannot write there themselves is fetched.
            mode: "full", or "delta": the rows changed since the newest.
            keep: How many of the newest stay.
            exchanges: In geo this trainer's differences are sent first. False: they wait.

        Returns:
            The checkpoint's name.
        """
        from paddock.ps.client.checkpoints import save

        if exchanges:
            self.flush()
        with self._one_thread:
            self.group.wait_acked(0)
        return save(self.peers, os.fspath(directory), mode, self.place.job, keep=keep)

    def check_save(self, directory: str | os.PathLike[str]) -> list[int]:
        """Check that save() can write there; returns the servers whose parts it would fetch.

        To be called before hours of training. Raises PaddockError.
        """
        from paddock.ps.client.checkpoints import check_save

        return check_save(self.peers, os.fspath(directory))

    def load(self, directory: str | os.PathLike[str], *, of_job: str | None = None) -> None:
        """Read a checkpoint, whatever number of servers wrote it.

        Args:
            directory: As given to save().
            of_job: Whose it is, if another job's.
        """
        from paddock.ps.client.checkpoints import load
        from paddock.ps.storage.checkpoint import objection_to_resume

        with self._one_thread:
            self.flush()
            checkpoint = load(self.peers, os.fspath(directory), of_job or self.place.job)
            self.group.progress = OffsetProgress(len(self.peers))
            self.group.ask_loads()
            for table in self.group.tables:
                self.strategy.forget(table)
            self.strategy.forget_loaded(self.group)
        self._refresh_copies()
        problem = objection_to_resume(checkpoint, len(self.peers))
        if problem:
            warnings.warn(problem, stacklevel=2)

    def commit_offset(self, offset: dict[str, Any]) -> None:
        """The servers note how far this trainer has read its data, with all it pushed before.

        The offset is kept with the step, and in checkpoints.

        Args:
            offset: Any JSON of at most 4 KiB, such as {"file": 3, "line": 4000}.
        """
        try:
            check_offset(offset)
        except RequestError as error:
            raise UsageError(error.message, hint=error.hint) from error
        with self._one_thread:
            self.strategy.commit_offset(self.group, offset)

    def resume_offset(self, *, replays: bool = True) -> dict[str, Any] | None:
        """The offset that this trainer, or its former incarnation, committed last; None for none.

        Args:
            replays: To be called before the first push of an incarnation: the batches that come
                next are those after this offset, in the same order, and what servers have of them
                already is not sent again. False: other batches follow, and everything is sent.
        """
        if replays:
            self.flush()
        found: dict[str, Any] | None = self.strategy.resume_offset(self.group, replays=replays)
        return found

    def offsets(self, trainer: int | None = None) -> tuple[Any, Any]:
        """The offsets of a trainer on the server that is least far, and on the furthest one.

        None where a server has none; in sync both are that of the newest complete step.

        Args:
            trainer: Its number; None: this trainer's.
        """
        return self.strategy.offsets(self.group.marks(trainer))

    # ------------------------------------------------------------------------------- coordination

    @property
    def incarnation(self) -> int:
        """The number of this trainer's process; server 0 counts them, from 1, over all restarts."""
        return self.peers[0].identity.incarnation

    @property
    def open_step(self) -> int:
        """The number of the step that the next step() completes, from 1; in sync and staleness."""
        return self.group.step

    def kv_set(self, key: str, value: Any, *, in_checkpoints: bool = False) -> None:
        """Server 0 stores a JSON value under a key, as safely as a push. None removes the key.

        Args:
            key: 1 to 200 characters.
            value: At most 1 MiB of JSON.
            in_checkpoints: Checkpoints have the key, and a loaded one brings its own value. False:
                the key belongs to this job alone.
        """
        self._kv({"set": {key: value}}, in_checkpoints=in_checkpoints)

    def kv_get(self, key: str, *, in_checkpoints: bool = False) -> Any:
        """The JSON value that server 0 has under a key; None where no trainer has set it."""
        return self._kv({"get": [key]}, in_checkpoints=in_checkpoints).get(key)

    def _kv(self, question: dict[str, Any], *, in_checkpoints: bool = False) -> dict[str, Any]:
        answer = self.call("kv" if in_checkpoints else "job", question)
        return dict(answer["values"])

    def all_reduce(
        self, values: ArrayLike, op: str = "sum", *, name: str = "all", turn: int | None = None
    ) -> NDArray[Any]:
        """The sum, minimum or maximum of all trainers' arrays, element by element.

        All trainers make the same calls, and all get the same bits: arrays are added in the order
        of trainers. A barrier is part of it, which sends nothing: in geo no differences.

        Args:
            values: (...) float64, float32 or int64, of one shape and type in all trainers; 512 KiB.
            op: sum, min or max.
            name: What is reduced. The calls of each name are counted apart.
            turn: The number of the call, from 0, in a program that goes on after a restart. None:
                the client counts, from 0 in each of its incarnations.

        Raises:
            UsageError: the arrays of two trainers differ in shape or type.
            PaddockError: a trainer's values are lost: it was started again with another count.
        """
        array = reduce.check_values(values, op)
        if turn is None:
            turn = self._turns.get(f"all_reduce/{name}", 0)
            self._turns[f"all_reduce/{name}"] = turn + 1
        # Two slots take turns: a trainer that is one turn behind does not meet those ahead.
        slot = f"all_reduce/{name}/{turn % 2}"
        keys = [f"{slot}/{trainer}" for trainer in range(self.place.trainers)]
        mine = keys[self.place.trainer]
        # The values of the incarnation before stay: others may have read them.
        if self._kv({"get": [mine]}).get(mine, {}).get("turn") != turn:
            self._kv({"set": {mine: reduce.to_json(array, turn)}})
        self.meet(slot, turn // 2 + 1)
        found: dict[str, Any] = {}
        at_once = max(1, reduce.BYTES_MAX // (array.nbytes + 256))  # An answer is one frame.
        for start in range(0, len(keys), at_once):
            found.update(self._kv({"get": keys[start : start + at_once]}))
        return reduce.combine(name, op, turn, [found.get(key, {}) for key in keys])

    def call(self, service: str, question: dict[str, Any]) -> dict[str, Any]:
        """Ask what server 0 hosts under this name. May reach it twice, when an answer is lost."""
        return self.peers[0].ask(Op.CALL, {**question, "service": service})

    def shrink(self, table: str) -> int:
        """Decay statistics, drop rows that the accessor gives up; returns how many."""
        remote = self._table(table, SparseSpec)
        patience = RetryBudget(self.peers[0].timeout)
        return shrink(
            self.peers, remote, lambda no: handle_moved(self.group, remote, [no], patience)
        )

    def close(self) -> None:
        """Flush, say good-bye, and end the connections. May be called twice."""
        if self.peers[0].is_ended:
            return
        try:
            with self._one_thread:
                self.flush()
                self.strategy.leave(self.group)
                for peer in self.peers:
                    peer.ask(Op.CLOSE, {})
        finally:
            for peer in self.peers:
                peer.end()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        for peer in self.peers:  # What failed is told; a second failure would hide it.
            peer.end()


def _vector(spec: DenseSpec, out: object) -> Rows:
    """The array that a dense table is pulled into. Raises UsageError."""
    if out is None:
        return np.empty(spec.size, np.float32)
    if (
        not isinstance(out, np.ndarray)
        or out.shape != (spec.size,)
        or out.dtype != np.float32
        or not out.flags.c_contiguous
    ):
        what = f"{out.dtype}{list(out.shape)}" if isinstance(out, np.ndarray) else repr(out)[:60]
        raise UsageError(
            f"table {spec.name!r}: out is {what}", hint=f"a contiguous float32[{spec.size}]"
        )
    return out
