"""The dispatcher: which worker reads which chunk, so that a pass has each record once. Pure.

`handle` takes an event, changes the dispatcher, and returns a reply. What it changed is in
`changes()`, by key; a dispatcher made from all keys is the same dispatcher. Whoever drives it
keeps the changes before it gives the reply (dispatcher.py: in the log of the parameter server).
Every reply may be lost and every event come twice: an event says what is to be, not what to add.

    chunk       event                                        becomes
    ---------   ------------------------------------------   -------------------------------------
    to do       Turn of a worker that may hold one more      leased, by a number of its own
    leased      Turn that says done                          done
    leased      Turn that says failed, tries are left        to do, from there on; in batches alone
    leased      Turn that says failed, no tries are left     set aside: counted, named
    leased      Begin of a newer life of the worker          leased, to that life
    leased      the same, the tenth one at the same record   set aside
    leased      Leave of the worker                          to do, from the first one not trained
    leased      Gone, then Found (how far the worker was)    to do, from there
    any other   any report of a lease that is not held       as it was: the report is of no effect

    Turn, when the worker holds no lease afterwards          reply
    ------------------------------------------------------   ---------------------------------------
    a chunk is to do                                         Granted
    none is, another worker holds a lease                    Wait: it may come back
    none is, a worker that is gone holds a lease             Ask: find out how far that one was
    none is to do and none is leased                         Over; also to who is a pass behind
    more chunks are set aside than the plan allows           Failed

"Over" is not a state that somebody enters: it is asked anew at every Turn, so whatever came last
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

from paddock.data import dispatch_words as w

# Deaths of workers at one record of a chunk, before it is set aside: it may be the program's fault.
DEATHS_MAX = 10


class Dispatch:
    """The dispatcher of one set of data.

    notes: what `changes()` gave, of all times. serial: above the number of any lease of another
    past, where the notes were rolled back. past: what they were rolled back to, if ever.

    >>> dispatch = Dispatch({})
    >>> dispatch.handle(w.Begin(0, 1, w.Plan("ab", chunks=1, seed=None)))
    Granted(pass_=0, leases=(), is_over=False, is_robbed=False)
    >>> dispatch.handle(w.Turn(0, 1, "ab", 0)).leases[0][:3]
    (1, 0, 0)
    >>> dispatch.handle(w.Turn(0, 1, "ab", 0, (w.Report(1, records=10),)))
    Over(is_last=False)
    """

    def __init__(self, notes: Mapping[str, Any], serial: int = 0, past: str = "") -> None:
        course = notes.get("course")
        self.course = None if course is None else _course(course)
        self.serial = serial
        self.back = [w.Rest(*one) for one in notes.get("back") or ()]
        self.aside = [w.Aside(*one) for one in notes.get("aside") or ()]
        self.workers = {
            int(key[2:]): _worker(value)
            for key, value in notes.items()
            if key.startswith("w/") and value is not None
        }
        self._changed: set[str] = set()
        if self.course is not None and self.course.past != past:
            # Servers saved their parts one after the other: some have batches that others lack,
            # of leases that these notes do not know. Nobody can do the same batches again.
            self.course.past = past
            self._changed.add("course")
            for number, worker in self.workers.items():
                worker.is_robbed = True
                self._touch(number)
        self._past = past

    def changes(self) -> dict[str, Any]:
        """What is different since the last time, JSON-ready, by key; None: it is no more."""
        found = {key: self._note(key) for key in sorted(self._changed)}
        self._changed.clear()
        return found

    def _note(self, key: str) -> Any:
        if key == "course":
            return None if self.course is None else asdict(self.course)
        if key in ("back", "aside"):
            return [list(one) for one in getattr(self, key)] or None
        worker = self.workers.get(int(key[2:]))
        if worker is None:
            return None
        leases = [list(lease) for lease in worker.leases]
        return [worker.life, leases, worker.waits, worker.is_gone, worker.is_robbed]

    # ----------------------------------------------------------------------------- what is known

    @property
    def is_over(self) -> bool:
        """Whether every chunk of the pass is done or set aside."""
        course = self.course
        return (
            course is not None
            and course.cursor >= course.plan.chunks
            and not self.back
            and not any(worker.leases for worker in self.workers.values())
        )

    def holders(self) -> Iterator[tuple[int, w.Worker]]:
        """Workers that hold leases, by number."""
        return ((n, worker) for n, worker in sorted(self.workers.items()) if worker.leases)

    def describe(self) -> dict[str, Any]:
        """How far the pass is, for people and programs."""
        if self.course is None:
            return {}
        plan, leased = self.course.plan, sum(len(w.leases) for _, w in self.holders())
        aside = [one for one in self.aside if one.pass_ == self.course.pass_]
        given = self.course.cursor - len(self.back) - leased - len(aside)
        return {
            "pass": self.course.pass_,
            "passes": plan.passes,
            "chunks": plan.chunks,
            "done": given,
            "leased": leased,
            "records": self.course.records,
            "again": self.course.again,
            "aside": [one._asdict() for one in self.aside],
            "holders": {str(n): len(worker.leases) for n, worker in self.holders()},
            "is_over": self.is_over,
        }

    # ------------------------------------------------------------------------------------ events

    def handle(self, event: w.Event) -> w.Reply:
        """What the event leads to."""
        if isinstance(event, w.Begin):
            return self._begin(event)
        worker = self.workers.get(event.worker)
        if isinstance(event, w.Gone):
            if worker is not None and not worker.is_gone:
                worker.is_gone = True
                self._touch(event.worker)
            return w.Done()
        if isinstance(event, w.Turn) and self.course and event.digest != self.course.plan.digest:
            return w.Over(is_last=True)  # Others have gone on to other data.
        if worker is None or worker.life != event.life:
            return w.Anew() if isinstance(event, w.Turn) else w.Done()
        if isinstance(event, w.Turn):
            return self._turn(event, worker)
        if isinstance(event, w.Found) and worker.is_gone:
            self._rob(event, worker)
        if isinstance(event, w.Leave):
            for lease in worker.leases:
                start = max(lease.start, event.seen.get(lease.number, 0))
                self._return(_rest(lease, start))
            self._forget(event.worker)
        return w.Done()

    def _begin(self, event: w.Begin) -> w.Reply:
        plan, course = event.plan, self.course
        if course is None or (self.is_over and course.plan.digest != plan.digest):
            self._open(plan)
        elif _kind(course.plan) != _kind(plan):
            return w.Differs(course.plan)
        elif course.plan != plan:
            course.plan = plan  # How often, and what may fail, is the newest life's to say.
            self._changed.add("course")
        assert self.course is not None
        worker = self.workers.setdefault(event.worker, w.Worker(event.life))
        if worker.leases and worker.life != event.life:
            self._count_death(worker, event.seen)
        is_robbed = worker.is_robbed
        self.workers[event.worker] = w.Worker(event.life, worker.leases, worker.waits)
        self._touch(event.worker)
        return w.Granted(self.course.pass_, tuple(worker.leases), self.is_over, is_robbed)

    def _open(self, plan: w.Plan) -> None:
        past = self.course
        self.course = w.Course(plan, past=self._past)
        if past is not None:
            self.course.next, self.course.again = past.next, past.again
        for number in list(self.workers):
            self._forget(number)
        self.aside.clear()
        self._changed |= {"course", "aside"}

    def _turn(self, event: w.Turn, worker: w.Worker) -> w.Reply:
        course = self.course
        if course is None or worker.is_gone:
            return w.Anew()
        for report in event.reports:
            self._end(event.worker, worker, report)
        if event.pass_ == course.pass_ + 1 and self.is_over:
            if course.plan.passes and event.pass_ >= course.plan.passes:
                return w.Over(is_last=True)
            course.pass_, course.cursor, course.records = event.pass_, 0, 0
            self._changed.add("course")
            for number, one in self.workers.items():
                if one.waits:  # No batch goes over from pass to pass.
                    one.waits = False
                    self._touch(number)
        if event.pass_ < course.pass_:
            return w.Over(is_last=False)
        if event.pass_ > course.pass_:
            return w.Anew()
        aside = tuple(one for one in self.aside if one.pass_ == course.pass_)
        if len(aside) > (w.ASIDE_MAX if course.plan.aside is None else course.plan.aside):
            return w.Failed(aside)
        hold = min(event.hold, w.LEASES_MAX)
        while len(worker.leases) < hold and self._grant(worker):
            self._touch(event.worker)
        if self.is_over:
            return w.Over(course.plan.passes == course.pass_ + 1)
        if len(worker.leases) < hold and not worker.waits:
            # What comes after a wait begins a batch: so that a life that reads the same leases
            # again cuts the same batches.
            worker.waits = True
            self._touch(event.worker)
        if worker.leases:
            return w.Granted(course.pass_, tuple(worker.leases))
        for number, holder in self.holders():
            if holder.is_gone:
                return w.Ask(number, holder.life)
        return w.Wait(tuple(number for number, _ in self.holders()))

    # ------------------------------------------------------------------------------------ leases

    def _grant(self, worker: w.Worker) -> bool:
        """Lease the next chunk that is to do; False when there is none."""
        course = self.course
        assert course is not None
        if self.back:
            rest = self.back.pop(0)
            self._changed.add("back")
        elif course.cursor < course.plan.chunks:
            plan = course.plan
            rest = w.Rest(w.place_in(plan.chunks, plan.seed, course.pass_, course.cursor), 0)
            course.cursor += 1
        else:
            return False
        is_alone = worker.waits or rest != w.Rest(rest.chunk, 0)
        number = max(course.next, self.serial)
        lease = w.Lease(
            number, rest.chunk, rest.start, is_alone, rest.tries, rest.deaths, rest.start
        )
        worker.leases.append(lease)
        worker.waits = False
        course.next = number + 1
        self._changed.add("course")
        return True

    def _end(self, number: int, worker: w.Worker, report: w.Report) -> None:
        """A lease has ended. # leased -> done, to do, set aside"""
        lease = next((one for one in worker.leases if one.number == report.number), None)
        if lease is None or self.course is None:
            return  # It was said before, or is not this worker's any more.
        worker.leases.remove(lease)
        self._touch(number)
        if not report.reason:
            self.course.records += report.records
            self._changed.add("course")
            return
        rest = _rest(lease, report.records)
        self._return(rest._replace(tries=rest.tries + 1), report.reason)

    def _return(self, rest: w.Rest, reason: str = "its worker died there, again and again") -> None:
        """# leased -> to do, or set aside"""
        assert self.course is not None
        if rest.tries < self.course.plan.tries and rest.deaths < DEATHS_MAX:
            self.back.append(rest)
            self._changed.add("back")
            return
        reason = reason[: w.REASON_LENGTH_MAX]
        self.aside.append(w.Aside(self.course.pass_, rest.chunk, rest.start, reason))
        del self.aside[: -w.ASIDE_MAX - 1]
        self.course.records += rest.start
        self._changed |= {"aside", "course"}

    def _count_death(self, worker: w.Worker, seen: Mapping[int, int]) -> None:
        """A life has ended in its oldest lease, and another one goes on there."""
        lease = worker.leases[0]
        rest = _rest(lease, seen.get(lease.number, 0))
        if rest.deaths + 1 < DEATHS_MAX:
            worker.leases[0] = lease._replace(
                tries=rest.tries, deaths=rest.deaths + 1, seen=rest.start
            )
            return
        del worker.leases[0]
        worker.is_robbed = True
        self._return(rest._replace(deaths=rest.deaths + 1))

    def _rob(self, found: w.Found, worker: w.Worker) -> None:
        """The leases of a worker that is gone. # leased -> to do, or set aside"""
        assert self.course is not None
        for place, lease in enumerate(worker.leases):
            least, most = found.seen.get(lease.number, (0, 0))
            rest = _rest(lease, least)
            self._return(rest._replace(deaths=rest.deaths + (place == 0)))
            self.course.again += max(0, most - rest.start)
        worker.leases.clear()
        worker.is_robbed = True
        self._touch(found.worker)
        self._changed.add("course")

    def _touch(self, worker: int) -> None:
        self._changed.add(f"w/{worker}")

    def _forget(self, worker: int) -> None:
        del self.workers[worker]
        self._touch(worker)


def _rest(lease: w.Lease, records: int) -> w.Rest:
    """What is left of a lease; what failed before a record that is done is forgotten."""
    start = max(lease.start, records)
    if start > lease.seen:
        return w.Rest(lease.chunk, start)
    return w.Rest(lease.chunk, start, lease.tries, lease.deaths)


def _kind(plan: w.Plan) -> w.Plan:
    """What must be the same for a pass to go on."""
    return replace(plan, passes=0, tries=0, aside=None)


def _course(data: Mapping[str, Any]) -> w.Course:
    return w.Course(**{**data, "plan": w.Plan(**data["plan"])})


def _worker(data: list[Any]) -> w.Worker:
    life, leases, *facts = data
    return w.Worker(life, [w.Lease(*lease) for lease in leases], *facts)
