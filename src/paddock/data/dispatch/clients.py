"""A worker's dispatcher and its offset: in this process, or with the parameter servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from paddock.data.dispatch.batches import records_by_lease
from paddock.data.dispatch.messages import (
    Event,
    Poll,
    ProgressReport,
    RegisterWorker,
    ReleaseChunks,
    Reply,
    WorkerLost,
)
from paddock.data.dispatch.service import SERVICE, question_of, reply_from
from paddock.data.dispatch.state import Dispatch
from paddock.errors import UsageError
from paddock.ps.strategies import CLOCKED

if TYPE_CHECKING:
    from paddock.ps import Client

# A worker that has nothing to read and no step to share asks again after so long: from, to.
IDLE_SECONDS = (0.02, 1.0)


class LocalDispatcher:
    """The dispatcher of a single process, and the way to it; its state is all that it knows."""

    worker, incarnation = 0, 1  # numbers of the worker, and of its incarnation

    def __init__(self) -> None:
        self.notes: dict[str, Any] = {}
        self.offset: dict[str, Any] | None = None
        self._dispatch = Dispatch({})

    def seen(self) -> dict[int, int]:
        """Records done by lease, of the offset that any incarnation of this worker committed."""
        return records_by_lease(self.offset)

    def resume(self, *, exactly: bool) -> None:
        """Batches follow. exactly: those that the incarnation before had after its offset."""

    def ask(self, event: Event) -> Reply:
        """The dispatcher's reply; the event may come to it twice."""
        reply = self._dispatch.handle(event)
        self.notes.update(self._dispatch.changes())
        return reply

    def seen_of(self, worker: int) -> dict[int, tuple[int, int]]:
        """Records done by lease, of another worker: on the server least far, on the furthest."""
        return {}

    def commit_offset(self, offset: dict[str, Any]) -> None:
        """The client commits this offset for all that was trained up to now."""
        self.offset = offset

    def keep(self, *, wanted: bool) -> bool:
        """True when all committed offsets are durable. wanted: flush for it."""
        return True

    def idle(self, turn: int) -> None:
        """The worker has nothing to read for the turn-th time, and lets others go on."""
        raise AssertionError("somebody else is waited for, and there is nobody")

    def progress(self) -> dict[str, Any]:
        """How far the pass is."""
        return self._dispatch.describe()

    def to_json(self) -> dict[str, Any]:
        """The dispatcher's state and the worker's offset as JSON: another process goes on there."""
        notes = {key: value for key, value in self.notes.items() if value is not None}
        state: dict[str, Any] = json.loads(json.dumps({"notes": notes, "position": self.offset}))
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """The dispatcher goes on from what `to_json` gave."""
        self.notes, self.offset = dict(state["notes"]), state["position"]
        self._dispatch = Dispatch(self.notes)


class SharedDispatcher:
    """Many workers: the dispatcher is with server 0, and offsets belong to the steps."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._pending: dict[str, Any] | None = None  # committed here, not sent yet
        self._step = -1  # of sync, that the newest offset belongs to
        self._strategy = client.strategy.name

    @property
    def worker(self) -> int:
        """The trainer's number."""
        return self._client.place.trainer

    @property
    def incarnation(self) -> int:
        """The trainer's incarnation, as server 0 numbered it."""
        return self._client.incarnation

    def seen(self) -> dict[int, int]:
        least, _ = self._offsets(None)
        return records_by_lease(least)

    def seen_of(self, worker: int) -> dict[int, tuple[int, int]]:
        least, most = (records_by_lease(offset) for offset in self._offsets(worker))
        return {n: (least.get(n, 0), most.get(n, 0)) for n in least.keys() | most.keys()}

    def _offsets(self, trainer: int | None) -> tuple[Any, Any]:
        """The offsets of a trainer on the server that is least far, and on the furthest."""
        return self._client.offsets(trainer)

    def resume(self, *, exactly: bool) -> None:
        if exactly:  # What servers have of the next batches is not sent again.
            self._client.resume_offset()

    def ask(self, event: Event) -> Reply:
        assert isinstance(event, RegisterWorker | Poll | ReleaseChunks | ProgressReport), WorkerLost
        return reply_from(self._call(question_of(event)))

    def progress(self) -> dict[str, Any]:
        """How far the pass is."""
        return self._call({"do": "look"})

    def _call(self, question: dict[str, Any]) -> dict[str, Any]:
        return self._client.call(SERVICE, {**question, "stream": self._name})

    def commit_offset(self, offset: dict[str, Any]) -> None:
        self._pending = offset
        if self._strategy != "geo":  # There it goes behind the next exchange, or makes one.
            self._send()

    def _send(self) -> None:
        offset, self._pending = self._pending, None
        if offset is not None:
            self._client.commit_offset(offset)
            self._step = self._client.open_step

    def keep(self, *, wanted: bool) -> bool:
        if self._strategy == "sync":
            return self._client.open_step > self._step
        if wanted or not self._client.strategy.unexchanged:
            self._send()
        if wanted:
            self._client.flush()
        return wanted

    def idle(self, turn: int) -> None:
        if self._strategy in CLOCKED:
            self._client.step()
            return
        first, longest = IDLE_SECONDS
        time.sleep(min(longest, first * 2.0 ** min(turn, 16)))

    def attach(self, before_step: Callable[[], None]) -> None:
        """The client calls this at the end of each of its batches. Raises UsageError."""
        if self._client.before_step is not None:
            raise UsageError(
                "this client's batches are another stream's already",
                hint="a trainer has one position: read its training data by one stream",
            )
        self._client.before_step = before_step

    def detach(self) -> None:
        """The client's batches belong to no stream any more."""
        self._client.before_step = None
