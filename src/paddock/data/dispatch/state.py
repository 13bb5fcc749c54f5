"""The dispatcher leases chunks to workers, so that a pass has each record once. Pure.

`handle` takes an event, changes the dispatcher, and returns a reply. What it changed is in
`changes()`, by key; a dispatcher made from all keys is the same dispatcher. Whoever drives it
keeps the changes before it gives the reply (service.py: in the log of the parameter server).
Every reply may be lost and every event come twice: an event says what is to be, not what to add.

    chunk       event                                        becomes
    ---------   ------------------------------------------   -------------------------------------
    to do       Poll of a worker that may hold one more      leased, by a number of its own
    leased      Poll that says done                          done
    leased      Poll that says failed, tries are left        to do, from there on; in batches alone
    leased      Poll that says failed, no tries are left     set aside: counted, named
    leased      RegisterWorker of a newer incarnation        leased, to that one
    leased      the same, the tenth one at the same record   set aside
    leased      ReleaseChunks of the worker                  to do, from the first one not trained
    leased      WorkerLost, then ProgressReport              to do, from there
    any other   any report of a lease that is not held       as it was: the report is of no effect

    Poll, when the worker holds no lease afterwards          reply
    ------------------------------------------------------   ---------------------------------------
    a chunk is to do                                         Granted
    none is, another worker holds a lease                    Wait: it may come back
    none is, a worker that is gone holds a lease             AskProgress: how far that one was
    none is to do and none is leased                         Over; also to who is a pass behind
    more chunks are set aside than the plan allows           Failed

"Over" is not a state that somebody enters: it is asked anew at every Poll, so whatever came last
(done, failed, gone, left) ends the pass.

    what                                   after the death of its owner
    ------------------------------------   ------------------------------------------------------
    pass, cursor, leases, tries, counts    kept: changes(), in the servers' log and checkpoints
    which chunks are done                  rebuilt: those before the cursor that are nothing else
    how many records of a lease are done   kept by the worker, as its offset, with its step
    who waits, who is away since when      lost on purpose: workers ask again, time begins anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from paddock.data.dispatch.messages import (
    ASIDE_MAX,
    LEASES_MAX,
    REASON_LENGTH_MAX,
    AskProgress,
    ChunkLease,
    Differs,
    Done,
    Event,
    Failed,
    FailedChunk,
    Granted,
    LeaseHolder,
    LeaseResult,
    Over,
    PassPlan,
    PassState,
    Poll,
    ProgressReport,
    RegisterWorker,
    Rejoin,
    ReleaseChunks,
    Reply,
    ReturnedChunk,
    Wait,
    WorkerLost,
    place_in,
)

# Deaths of workers at one record of a chunk, before it is set aside: it may be the program's fault.
DEATHS_MAX = 10


class Dispatch:
    """The dispatcher of one set of data.

    notes: what `changes()` gave, of all times. serial: above the number of any lease of another
    past, where the notes were rolled back. past: what they were rolled back to, if ever.

    >>> from paddock.data.dispatch.messages import *
    >>> dispatch = Dispatch({})
    >>> dispatch.handle(RegisterWorker(0, 1, PassPlan("ab", chunks=1, seed=None)))
    Granted(pass_=0, leases=(), is_over=False, leases_revoked=False)
    >>> dispatch.handle(Poll(0, 1, "ab", 0)).leases[0][:3]
    (1, 0, 0)
    >>> dispatch.handle(Poll(0, 1, "ab", 0, (LeaseResult(1, records=10),)))
    Over(is_last=False)
    """

    def __init__(self, notes: Mapping[str, Any], serial: int = 0, past: str = "") -> None:
        self._noted = {key: note for key, note in notes.items() if note is not None}
        self.serial = serial
        self._past = past
        self.pass_state: PassState | None = None
        if state := self._noted.get("course"):
            self.pass_state = PassState(**{**state, "plan": PassPlan(**state["plan"])})
        self.back = [ReturnedChunk(*one) for one in self._noted.get("back", ())]
        self.aside = [FailedChunk(*one) for one in self._noted.get("aside", ())]
        self.workers = {
            int(key[2:]): LeaseHolder(note[0], [ChunkLease(*one) for one in note[1]], *note[2:])
            for key, note in self._noted.items()
            if key.startswith("w/")
        }
        if self.pass_state is not None and self.pass_state.past != past:
            # Servers saved their parts one after the other: some have batches that others lack,
            # of leases that these notes do not know. Nobody can do the same batches again.
            self.pass_state.past = past
            for worker in self.workers.values():
                worker.leases_revoked = True

    def changes(self) -> dict[str, Any]:
        """The changes since the last call, JSON-ready, by key; None: the key is removed."""
        before, self._noted = self._noted, self._notes()
        changed = {key: note for key, note in self._noted.items() if before.get(key) != note}
        gone = dict.fromkeys(before.keys() - self._noted.keys())
        return dict(sorted({**changed, **gone}.items()))

    def _notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = {
            f"w/{n}": [
                w.incarnation, [list(one) for one in w.leases], w.waits, w.is_gone, w.leases_revoked
            ]
            for n, w in self.workers.items()
        }  # fmt: skip
        if self.pass_state is not None:
            notes["course"] = asdict(self.pass_state)
        for key, chunks in (("back", self.back), ("aside", self.aside)):
            if chunks:
                notes[key] = [list(one) for one in chunks]
        return notes

    # ----------------------------------------------------------------------------- what is known

    @property
    def is_over(self) -> bool:
        """True when every chunk of the pass is done or set aside."""
        state = self.pass_state
        return (
            state is not None
            and state.cursor >= state.plan.chunks
            and not self.back
            and not any(worker.leases for worker in self.workers.values())
        )

    def holders(self) -> Iterator[tuple[int, LeaseHolder]]:
        """Workers that hold leases, by number."""
        return ((n, worker) for n, worker in sorted(self.workers.items()) if worker.leases)

    def describe(self) -> dict[str, Any]:
        """How far the pass is, for people and programs."""
        if self.pass_state is None:
            return {}
        state, plan = self.pass_state, self.pass_state.plan
        leased = sum(len(worker.leases) for _, worker in self.holders())
        aside = [one for one in self.aside if one.pass_ == state.pass_]
        done = state.cursor - len(self.back) - leased - len(aside)
        return {
            "pass": state.pass_,
            "passes": plan.passes,
            "chunks": plan.chunks,
            "done": done,
            "leased": leased,
            "records": state.records,
            "again": state.again,
            "aside": [one._asdict() for one in self.aside],
            "holders": {str(n): len(worker.leases) for n, worker in self.holders()},
            "is_over": self.is_over,
        }

    # ------------------------------------------------------------------------------------ events

    def handle(self, event: Event) -> Reply:
        """The dispatcher handles an event and returns its reply."""
        if isinstance(event, RegisterWorker):
            return self._register(event)
        worker = self.workers.get(event.worker)
        if isinstance(event, WorkerLost):
            if worker is not None:
                worker.is_gone = True
            return Done()
        if (
            isinstance(event, Poll)
            and self.pass_state
            and event.digest != self.pass_state.plan.digest
        ):
            return Over(is_last=True)  # Others have gone on to other data.
        if worker is None or worker.incarnation != event.incarnation:
            return Rejoin() if isinstance(event, Poll) else Done()
        if isinstance(event, Poll):
            return self._poll(event, worker)
        if isinstance(event, ProgressReport) and worker.is_gone:
            self._revoke(event, worker)
        if isinstance(event, ReleaseChunks):
            for lease in worker.leases:
                start = max(lease.start, event.seen.get(lease.number, 0))
                self._return(_remainder(lease, start))
            del self.workers[event.worker]
        return Done()

    def _register(self, event: RegisterWorker) -> Reply:
        plan, state = event.plan, self.pass_state
        if state is None or (self.is_over and state.plan.digest != plan.digest):
            self._open(plan)
        elif replace(state.plan, passes=plan.passes, tries=plan.tries, aside=plan.aside) != plan:
            return Differs(state.plan)
        else:
            state.plan = plan  # How often, and what may fail, the newest one says.
        assert self.pass_state is not None
        worker = self.workers.setdefault(event.worker, LeaseHolder(event.incarnation))
        if worker.leases and worker.incarnation != event.incarnation:
            self._count_death(worker, event.seen)
        leases_revoked = worker.leases_revoked
        self.workers[event.worker] = LeaseHolder(event.incarnation, worker.leases, worker.waits)
        return Granted(self.pass_state.pass_, tuple(worker.leases), self.is_over, leases_revoked)

    def _open(self, plan: PassPlan) -> None:
        past = self.pass_state
        self.pass_state = PassState(plan, past=self._past)
        if past is not None:
            self.pass_state.next, self.pass_state.again = past.next, past.again
        self.workers.clear()
        self.aside.clear()

    def _poll(self, event: Poll, worker: LeaseHolder) -> Reply:
        state = self.pass_state
        if state is None or worker.is_gone:
            return Rejoin()
        for report in event.reports:
            self._end(worker, report)
        if event.pass_ == state.pass_ + 1 and self.is_over:
            if state.plan.passes and event.pass_ >= state.plan.passes:
                return Over(is_last=True)
            state.pass_, state.cursor, state.records = event.pass_, 0, 0
            for one in self.workers.values():
                one.waits = False  # No batch goes over from pass to pass.
        if event.pass_ < state.pass_:
            return Over(is_last=False)
        if event.pass_ > state.pass_:
            return Rejoin()
        aside = tuple(one for one in self.aside if one.pass_ == state.pass_)
        if len(aside) > (ASIDE_MAX if state.plan.aside is None else state.plan.aside):
            return Failed(aside)
        hold = min(event.hold, LEASES_MAX)
        while len(worker.leases) < hold and self._lease_next_chunk(worker):
            pass
        if self.is_over:
            return Over(state.plan.passes == state.pass_ + 1)
        # What comes after a wait begins a batch: so that an incarnation that reads the same
        # leases again cuts the same batches.
        worker.waits = worker.waits or len(worker.leases) < hold
        if worker.leases:
            return Granted(state.pass_, tuple(worker.leases))
        for number, holder in self.holders():
            if holder.is_gone:
                return AskProgress(number, holder.incarnation)
        return Wait(tuple(number for number, _ in self.holders()))

    # ------------------------------------------------------------------------------------ leases

    def _lease_next_chunk(self, worker: LeaseHolder) -> bool:
        """The dispatcher leases the next chunk to the worker; False when none is to do."""
        state = self.pass_state
        assert state is not None
        if self.back:
            rest = self.back.pop(0)
        elif state.cursor < state.plan.chunks:
            plan = state.plan
            rest = ReturnedChunk(place_in(plan.chunks, plan.seed, state.pass_, state.cursor), 0)
            state.cursor += 1
        else:
            return False
        is_alone = worker.waits or rest != ReturnedChunk(rest.chunk, 0)
        number = max(state.next, self.serial)
        lease = ChunkLease(
            number, rest.chunk, rest.start, is_alone, rest.tries, rest.deaths, rest.start
        )
        worker.leases.append(lease)
        worker.waits = False
        state.next = number + 1
        return True

    def _end(self, worker: LeaseHolder, report: LeaseResult) -> None:
        """A lease has ended. # leased -> done, to do, set aside"""
        lease = next((one for one in worker.leases if one.number == report.number), None)
        if lease is None or self.pass_state is None:
            return  # It was said before, or is not this worker's any more.
        worker.leases.remove(lease)
        if report.reason:
            rest = _remainder(lease, report.records)
            self._return(rest._replace(tries=rest.tries + 1), report.reason)
        else:
            self.pass_state.records += report.records

    def _return(
        self, rest: ReturnedChunk, reason: str = "its worker died there, again and again"
    ) -> None:
        """# leased -> to do, or set aside"""
        assert self.pass_state is not None
        if rest.tries < self.pass_state.plan.tries and rest.deaths < DEATHS_MAX:
            self.back.append(rest)
            return
        reason = reason[:REASON_LENGTH_MAX]
        self.aside.append(FailedChunk(self.pass_state.pass_, rest.chunk, rest.start, reason))
        del self.aside[: -ASIDE_MAX - 1]
        self.pass_state.records += rest.start

    def _count_death(self, worker: LeaseHolder, seen: Mapping[int, int]) -> None:
        """An incarnation has ended in its oldest lease, and the next one goes on there."""
        lease = worker.leases[0]
        rest = _remainder(lease, seen.get(lease.number, 0))
        if rest.deaths + 1 < DEATHS_MAX:
            worker.leases[0] = lease._replace(
                tries=rest.tries, deaths=rest.deaths + 1, seen=rest.start
            )
            return
        del worker.leases[0]
        worker.leases_revoked = True
        self._return(rest._replace(deaths=rest.deaths + 1))

    def _revoke(self, found: ProgressReport, worker: LeaseHolder) -> None:
        """Rebalance: the leases of a worker that is gone. # leased -> to do, or set aside"""
        assert self.pass_state is not None
        for place, lease in enumerate(worker.leases):
            least, most = found.seen.get(lease.number, (0, 0))
            rest = _remainder(lease, least)
            self._return(rest._replace(deaths=rest.deaths + (place == 0)))
            self.pass_state.again += max(0, most - rest.start)
        worker.leases.clear()
        worker.leases_revoked = True


def _remainder(lease: ChunkLease, records: int) -> ReturnedChunk:
    """The rest of a lease; failures before a record that is done are forgotten."""
    start = max(lease.start, records)
    if start > lease.seen:
        return ReturnedChunk(lease.chunk, start)
    return ReturnedChunk(lease.chunk, start, lease.tries, lease.deaths)
