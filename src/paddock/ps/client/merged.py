"""Several threads of one trainer train through one client; what they push goes out as one push.

    def train(ps):                              # a TrainerThread
        with ps:
            for ids in batches[ps.thread :: 4]:
                rows = ps.pull("words", ids)
                ps.push("words", ids, gradients)
                ps.step()                       # waits for the other threads

    with Client(strategy="half_async") as client:
        client.create(SparseSpec("words", dim=16))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(train, client.merged(threads=4)))

A round ends when every thread that is still there has called step(): what they pushed is merged
as the servers merge trainers (contributions.py), in the order of threads, so that timing
changes no bit. One lock guards the client: while one thread waits for a server, the others
compute. Source: half_async of fluid 1.8 (HalfAsyncCommunicator, the barrier of one trainer's
threads).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.place import Place
from paddock.ps.consistency.contributions import (
    DensePiece,
    SparsePiece,
    merge_dense,
    merge_sparse,
)
from paddock.ps.spec import DenseSpec

if TYPE_CHECKING:
    from paddock.ps.client.client import Client


def _alone(name: str) -> Callable[..., Any]:
    """The method of Client of this name, as one of several threads calls it."""

    def call(self: TrainerThread, *args: Any, **options: Any) -> Any:
        with self.alone() as client:
            return getattr(client, name)(*args, **options)

    return call


class TrainerThread:
    """The client as one thread of several has it; made by Client.merged().

    The calls are Client's; step() and barrier() wait for the other threads. It belongs to one
    thread, whose end is told to the others by leave() or the end of `with`.
    """

    def __init__(self, threads: Threads, thread: int) -> None:
        self.thread = thread
        # By table, what was pushed in this round: SparsePiece, of a dense table DensePiece.
        self.pieces: dict[str, list[Any]] = {}
        self._threads = threads

    @property
    def place(self) -> Place:
        """The trainer's place, the same for all its threads."""
        return self._threads.client.place

    @contextlib.contextmanager
    def alone(self) -> Iterator[Client]:
        """The client itself, which no other thread uses meanwhile: for save() and the like."""
        with self._threads.turned:
            self._threads.check(self.thread)
            yield self._threads.client

    # As Client's, at once. What is read is what the rounds before have made of it; a rate is for
    # what this round pushes, where threads differ the last one's.
    create = _alone("create")
    pull = _alone("pull")
    pull_many = _alone("pull_many")
    pull_dense = _alone("pull_dense")
    set_dense = _alone("set_dense")
    set_lr = _alone("set_lr")

    def prefetch(self, table: str, keys: ArrayLike) -> None:
        """Does nothing: the other threads compute while this one waits for its rows."""

    def push(
        self,
        table: str,
        keys: ArrayLike,
        grads: ArrayLike,
        *,
        shows: ArrayLike | None = None,
        clicks: ArrayLike | None = None,
    ) -> None:
        """Give gradients to this round, as Client.push. Nothing is sent before the round's end."""
        with self.alone() as client:
            piece = SparsePiece(*client.gather(table, keys, grads, shows, clicks))
            self.pieces.setdefault(table, []).append(piece)

    def push_dense(
        self, table: str, grads: ArrayLike, *, used: Sequence[bool] | None = None
    ) -> None:
        """Give the gradient of a vector, as Client.push_dense, to this round."""
        with self.alone() as client:
            vector, runs = client.gather_dense(table, grads, used)
            pieces = [DensePiece(start, vector[start:stop].copy()) for start, stop in runs]
            self.pieces.setdefault(table, []).extend(pieces)

    def step(self) -> None:
        """The end of this thread's batch; returns when the round's push has been sent.

        What the strategy waits for, it has waited for by then. An error of the push is raised in
        every thread; what the push had not sent is dropped.
        """
        self._threads.meet(self.thread, None)

    def barrier(self, name: str = "all") -> None:
        """Wait for the other threads, and for all trainers of the job."""
        self._threads.meet(self.thread, name)

    def leave(self) -> None:
        """This thread has no more batches: the others do not wait for it. May be called twice.

        Raises PaddockError when it pushed and did not call step().
        """
        unsent = sum(map(len, self.pieces.values()))
        self.pieces = {}
        self._threads.leave(self.thread)
        if unsent:
            raise PaddockError(
                f"thread {self.thread}: {unsent} pushes since its last step() were never sent",
                hint="step() after each batch, the last one too",
            )

    def __enter__(self) -> TrainerThread:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.leave()
        else:
            self._threads.end(f"thread {self.thread} ended: {type(error).__name__}: {error}")


class Threads:
    """Who is there, who waits, and the end of a round. turned: guards all of it and the client.

    timeout: seconds that a thread waits for the others.
    """

    def __init__(self, client: Client, count: int, timeout: float) -> None:
        if count < 1:
            raise UsageError(f"threads is {count}", hint="1 or more threads of this trainer")
        self.client = client
        self.turned = threading.Condition(threading.RLock())
        self.all = [TrainerThread(self, thread) for thread in range(count)]
        self._there = set(range(count))
        # Thread -> name of the barrier it waits at, None for the end of the round.
        self._waiting: dict[int, str | None] = {}
        self._timeout = timeout
        self._turns = 0
        # Of the last turn. Nobody begins another before all who waited have seen it.
        self._problem: PaddockError | None = None
        self._end = ""

    def check(self, thread: int) -> None:
        """Raises UsageError after leave(), PaddockError when it cannot go on with the others."""
        if self._end:
            raise PaddockError(self._end, hint="a thread that failed tells why; start all anew")
        if thread not in self._there:
            raise UsageError(f"thread {thread} has left", hint="client.merged() makes new ones")

    def meet(self, thread: int, barrier: str | None) -> None:
        """Wait until all who are there wait for the same; the last one does it for all."""
        with self.turned:
            self.check(thread)
            self._waiting[thread] = barrier
            before = self._turns
            self._turn()
            if not self.turned.wait_for(lambda: self._turns > before or self._end, self._timeout):
                late = ", ".join(map(str, sorted(self._there - self._waiting.keys())))
                what = _call(barrier)
                self.end(f"thread {late} has not called {what} for {self._timeout:g} s")
            if self._turns == before:
                self.check(thread)
            if self._problem is not None:
                raise self._problem

    def leave(self, thread: int) -> None:
        """Go on without this thread."""
        with self.turned:
            self._there.discard(thread)
            self._turn()

    def end(self, why: str) -> None:
        """Go on with none: every thread is told why, at the latest at its next call."""
        with self.turned:
            self._end = self._end or why
            self.turned.notify_all()

    def _turn(self) -> None:
        """Do what all wait for, if nobody is missing."""
        if not self._waiting or self._waiting.keys() != self._there or self._end:
            return
        wanted = {*self._waiting.values()}
        if len(wanted) > 1:
            calls = ", ".join(sorted(map(_call, wanted)))
            self.end(f"the threads wait for one another in different calls: {calls}")
            return
        self._problem = None
        try:
            self._finish(wanted.pop())
        except PaddockError as error:
            self._problem = error
        except BaseException as error:
            self.end(f"the merged push failed: {type(error).__name__}: {error}")
            raise
        self._waiting.clear()
        self._turns += 1
        self.turned.notify_all()

    def _finish(self, barrier: str | None) -> None:
        if barrier is not None:
            self.client.barrier(barrier)
            return
        threads = [self.all[thread] for thread in sorted(self._there)]
        rounds = [one.pieces for one in threads]
        for one in threads:
            one.pieces = {}
        # In the order first pushed to, thread after thread.
        for table in dict.fromkeys(table for pieces in rounds for table in pieces):
            given = [pieces[table] for pieces in rounds if table in pieces]
            if isinstance(self.client.spec(table), DenseSpec):
                parts = merge_dense(given, self._how(table), len(threads))
                whole = np.zeros(parts[-1].stop if parts else 0, np.float32)
                for part in parts:
                    whole[part.start : part.stop] = part.grads
                self.client.push_runs(table, whole, [(part.start, part.stop) for part in parts])
                continue
            for sums in merge_sparse(given, self._how(table), len(threads)):
                self.client.push(table, sums.keys, sums.rows, shows=sums.shows, clicks=sums.clicks)
        self.client.step()

    def _how(self, table: str) -> str:
        is_sum = self.client.paddle_compat or self.client.spec(table).merge == "sum"
        return "sum" if is_sum else "mean"


def _call(barrier: str | None) -> str:
    return "step()" if barrier is None else f"barrier({barrier!r})"
