"""The dispatcher: which worker reads which chunk, so that a pass has each record once. Pure.

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
    how many records of a lease are done   kept by the worker, as its position, with its step
    who waits, who is away since when      lost on purpose: workers ask again, time begins anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from paddock.data.dispatch import messages

# Deaths of workers at one record of a chunk, before it is set aside: it may be the program's fault.
DEATHS_MAX = 10


class Dispatch:
    """The dispatcher of one set of data.

    notes: what `changes()` gave, of all times. serial: above the number of any lease of another
    past, where the notes were rolled back. past: what they were rolled back to, if ever.

    >>> dispatch = Dispatch({})
    >>> dispatch.handle(messages.RegisterWorker(0, 1, messages.PassPlan("ab", chunks=1, seed=None)))
    Granted(pass_=0, leases=(), is_over=False, leases_revoked=False)
    >>> dispatch.handle(messages.Poll(0, 1, "ab", 0)).leases[0][:3]
    (1, 0, 0)
    >>> dispatch.handle(messages.Poll(0, 1, "ab", 0, (messages.LeaseResult(1, records=10),)))
    Over(is_last=False)
    """

    def __init__(self, notes: Mapping[str, Any], serial: int = 0, past: str = "") -> None:
        state = notes.get("course")
        self.pass_state = None if state is None else _course(state)
        self.serial = serial
        self.back = [messages.ReturnedChunk(*one) for one in notes.get("back") or ()]
        self.aside = [messages.FailedChunk(*one) for one in notes.get("aside") or ()]
        self.workers = {
            int(key[2:]): _worker(value)
            for key, value in notes.items()
            if key.startswith("w/") and value is not None
        }
        self._changed: set[str] = set()
        if self.pass_state is not None and self.pass_state.past != past:
            # Servers saved their parts one after the other: some have batches that others lack,
            # of leases that these notes do not know. Nobody can do the same batches again.
            self.pass_state.past = past
            self._changed.add("course")
            for number, worker in self.workers.items():
                worker.leases_revoked = True
                self._touch(number)
        self._past = past

    def changes(self) -> dict[str, Any]:
        """The changes since the last call, JSON-ready, by key; None: the key is removed."""
        found = {key: self._note(key) for key in sorted(self._changed)}
        self._changed.clear()
        return found

    def _note(self, key: str) -> Any:
        if key == "course":
            return None if self.pass_state is None else asdict(self.pass_state)
        if key in ("back", "aside"):
            return [list(one) for one in getattr(self, key)] or None
        worker = self.workers.get(int(key[2:]))
        if worker is None:
            return None
        leases = [list(lease) for lease in worker.leases]
        return [worker.incarnation, leases, worker.waits, worker.is_gone, worker.leases_revoked]

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

    def holders(self) -> Iterator[tuple[int, messages.LeaseHolder]]:
        """Workers that hold leases, by number."""
        return ((n, worker) for n, worker in sorted(self.workers.items()) if worker.leases)

    def describe(self) -> dict[str, Any]:
        """How far the pass is, for people and programs."""
        if self.pass_state is None:
            return {}
        plan, leased = (
            self.pass_state.plan,
            sum(len(holder.leases) for _, holder in self.holders()),
        )
        aside = [one for one in self.aside if one.pass_ == self.pass_state.pass_]
        given = self.pass_state.cursor - len(self.back) - leased - len(aside)
        return {
            "pass": self.pass_state.pass_,
            "passes": plan.passes,
            "chunks": plan.chunks,
            "done": given,
            "leased": leased,
            "records": self.pass_state.records,
            "again": self.pass_state.again,
            "aside": [one._asdict() for one in self.aside],
            "holders": {str(n): len(worker.leases) for n, worker in self.holders()},
            "is_over": self.is_over,
        }

    # ------------------------------------------------------------------------------------ events

    def handle(self, event: messages.Event) -> messages.Reply:
        """The dispatcher handles an event and returns its reply."""
        if isinstance(event, messages.RegisterWorker):
            return self._register(event)
        worker = self.workers.get(event.worker)
        if isinstance(event, messages.WorkerLost):
            if worker is not None and not worker.is_gone:
                worker.is_gone = True
                self._touch(event.worker)
            return messages.Done()
        if (
            isinstance(event, messages.Poll)
            and self.pass_state
            and event.digest != self.pass_state.plan.digest
        ):
            return messages.Over(is_last=True)  # Others have gone on to other data.
        if worker is None or worker.incarnation != event.incarnation:
            return messages.Rejoin() if isinstance(event, messages.Poll) else messages.Done()
        if isinstance(event, messages.Poll):
            return self._poll(event, worker)
        if isinstance(event, messages.ProgressReport) and worker.is_gone:
            self._revoke(event, worker)
        if isinstance(event, messages.ReleaseChunks):
            for lease in worker.leases:
                start = max(lease.start, event.seen.get(lease.number, 0))
                self._return(_remainder(lease, start))
            self._forget(event.worker)
        return messages.Done()

    def _register(self, event: messages.RegisterWorker) -> messages.Reply:
        plan, state = event.plan, self.pass_state
        if state is None or (self.is_over and state.plan.digest != plan.digest):
            self._open(plan)
        elif _kind(state.plan) != _kind(plan):
            return messages.Differs(state.plan)
        elif state.plan != plan:
            state.plan = plan  # How often, and what may fail, the newest one says.
            self._changed.add("course")
        assert self.pass_state is not None
        worker = self.workers.setdefault(event.worker, messages.LeaseHolder(event.incarnation))
        if worker.leases and worker.incarnation != event.incarnation:
            self._count_death(worker, event.seen)
        leases_revoked = worker.leases_revoked
        self.workers[event.worker] = messages.LeaseHolder(
            event.incarnation, worker.leases, worker.waits
        )
        self._touch(event.worker)
        return messages.Granted(
            self.pass_state.pass_, tuple(worker.leases), self.is_over, leases_revoked
        )

    def _open(self, plan: messages.PassPlan) -> None:
        past = self.pass_state
        self.pass_state = messages.PassState(plan, past=self._past)
        if past is not None:
            self.pass_state.next, self.pass_state.again = past.next, past.again
        for number in list(self.workers):
            self._forget(number)
        self.aside.clear()
        self._changed |= {"course", "aside"}

    def _poll(self, event: messages.Poll, worker: messages.LeaseHolder) -> messages.Reply:
        state = self.pass_state
        if state is None or worker.is_gone:
            return messages.Rejoin()
        for report in event.reports:
            self._end(event.worker, worker, report)
        if event.pass_ == state.pass_ + 1 and self.is_over:
            if state.plan.passes and event.pass_ >= state.plan.passes:
                return messages.Over(is_last=True)
            state.pass_, state.cursor, state.records = event.pass_, 0, 0
            self._changed.add("course")
            for number, one in self.workers.items():
                if one.waits:  # No batch goes over from pass to pass.
                    one.waits = False
                    self._touch(number)
        if event.pass_ < state.pass_:
            return messages.Over(is_last=False)
        if event.pass_ > state.pass_:
            return messages.Rejoin()
        aside = tuple(one for one in self.aside if one.pass_ == state.pass_)
        if len(aside) > (messages.ASIDE_MAX if state.plan.aside is None else state.plan.aside):
            return messages.Failed(aside)
        hold = min(event.hold, messages.LEASES_MAX)
        while len(worker.leases) < hold and self._lease_next_chunk(worker):
            self._touch(event.worker)
        if self.is_over:
            return messages.Over(state.plan.passes == state.pass_ + 1)
        if len(worker.leases) < hold and not worker.waits:
            # What comes after a wait begins a batch: so that an incarnation that reads the
            # same leases again cuts the same batches.
            worker.waits = True
            self._touch(event.worker)
        if worker.leases:
            return messages.Granted(state.pass_, tuple(worker.leases))
        for number, holder in self.holders():
            if holder.is_gone:
                return messages.AskProgress(number, holder.incarnation)
        return messages.Wait(tuple(number for number, _ in self.holders()))

    # ------------------------------------------------------------------------------------ leases

    def _lease_next_chunk(self, worker: messages.LeaseHolder) -> bool:
        """Lease the next chunk that is to do; False when there is none."""
        state = self.pass_state
        assert state is not None
        if self.back:
            rest = self.back.pop(0)
            self._changed.add("back")
        elif state.cursor < state.plan.chunks:
            plan = state.plan
            rest = messages.ReturnedChunk(
                messages.place_in(plan.chunks, plan.seed, state.pass_, state.cursor), 0
            )
            state.cursor += 1
        else:
            return False
        is_alone = worker.waits or rest != messages.ReturnedChunk(rest.chunk, 0)
        number = max(state.next, self.serial)
        lease = messages.ChunkLease(
            number, rest.chunk, rest.start, is_alone, rest.tries, rest.deaths, rest.start
        )
        worker.leases.append(lease)
        worker.waits = False
        state.next = number + 1
        self._changed.add("course")
        return True

    def _end(self, number: int, worker: messages.LeaseHolder, report: messages.LeaseResult) -> None:
        """A lease has ended. # leased -> done, to do, set aside"""
        lease = next((one for one in worker.leases if one.number == report.number), None)
        if lease is None or self.pass_state is None:
            return  # It was said before, or is not this worker's any more.
        worker.leases.remove(lease)
        self._touch(number)
        if not report.reason:
            self.pass_state.records += report.records
            self._changed.add("course")
            return
        rest = _remainder(lease, report.records)
        self._return(rest._replace(tries=rest.tries + 1), report.reason)

    def _return(
        self, rest: messages.ReturnedChunk, reason: str = "its worker died there, again and again"
    ) -> None:
        """# leased -> to do, or set aside"""
        assert self.pass_state is not None
        if rest.tries < self.pass_state.plan.tries and rest.deaths < DEATHS_MAX:
            self.back.append(rest)
            self._changed.add("back")
            return
        reason = reason[: messages.REASON_LENGTH_MAX]
        self.aside.append(
            messages.FailedChunk(self.pass_state.pass_, rest.chunk, rest.start, reason)
        )
        del self.aside[: -messages.ASIDE_MAX - 1]
        self.pass_state.records += rest.start
        self._changed |= {"aside", "course"}

    def _count_death(self, worker: messages.LeaseHolder, seen: Mapping[int, int]) -> None:
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

    def _revoke(self, found: messages.ProgressReport, worker: messages.LeaseHolder) -> None:
        """The leases of a worker that is gone. # leased -> to do, or set aside"""
        assert self.pass_state is not None
        for place, lease in enumerate(worker.leases):
            least, most = found.seen.get(lease.number, (0, 0))
            rest = _remainder(lease, least)
            self._return(rest._replace(deaths=rest.deaths + (place == 0)))
            self.pass_state.again += max(0, most - rest.start)
        worker.leases.clear()
        worker.leases_revoked = True
        self._touch(found.worker)
        self._changed.add("course")

    def _touch(self, worker: int) -> None:
        self._changed.add(f"w/{worker}")

    def _forget(self, worker: int) -> None:
        del self.workers[worker]
        self._touch(worker)


def _remainder(lease: messages.ChunkLease, records: int) -> messages.ReturnedChunk:
    """The rest of a lease; failures before a record that is done are forgotten."""
    start = max(lease.start, records)
    if start > lease.seen:
        return messages.ReturnedChunk(lease.chunk, start)
    return messages.ReturnedChunk(lease.chunk, start, lease.tries, lease.deaths)


def _kind(plan: messages.PassPlan) -> messages.PassPlan:
    """The part of a plan that must be equal for a pass to continue."""
    return replace(plan, passes=0, tries=0, aside=None)


def _course(data: Mapping[str, Any]) -> messages.PassState:
    return messages.PassState(**{**data, "plan": messages.PassPlan(**data["plan"])})


def _worker(data: list[Any]) -> messages.LeaseHolder:
    incarnation, leases, *facts = data
    return messages.LeaseHolder(
        incarnation, [messages.ChunkLease(*lease) for lease in leases], *facts
    )
