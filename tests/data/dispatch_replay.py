"""Replays a transcript: what workers say goes to a real dispatcher, its answers are written down.

As in tests/scenarios: a block is a command, a line ``----`` and what is expected; other lines are
prose. The first command gives the plan, as ``dispatch chunks=3 passes=1 tries=2``; chunks come in
their order, unless ``seed=`` is given. Then::

    begin 0.1 5:10                life 1 of worker 0; its position: 10 records of lease 5 are done
    begin 0.1 digest=new          it has other data
    turn 0.1 0 done:5:100         in pass 0: lease 5 is done, of 100 records; wants 1 lease
    turn 0.1 0 hold=2 failed:5:7  wants to hold 2; lease 5 failed behind 7 records
    leave 0.1 5:10
    gone 0
    found 0.1 5:10-20             the servers have 10 to 20 records of lease 5
    restart                       the dispatcher dies, and is made again from what it wrote down
    rollback                      the servers load a checkpoint, which was saved by ``save``
"""

from __future__ import annotations

import json
from typing import Any

from paddock.data.dispatch import messages
from paddock.data.dispatch.state import Dispatch
from transcript import replayed


def replay(text: str) -> str:
    """The transcript with its expectations replaced by what happens now."""
    return replayed(text, lambda words: Story(words).do)


class Story:
    """A dispatcher with what it has written down."""

    def __init__(self, words: list[str]) -> None:
        assert words.pop(0) == "dispatch"
        given: dict[str, Any] = {name: int(n) for name, n in (word.split("=") for word in words)}
        self.plan = messages.PassPlan(**{"digest": "data", "seed": None, **given})
        self.notes: dict[str, Any] = {}
        self.saved = "{}"
        self.serial = 0
        self.dispatch = Dispatch({})

    def do(self, words: list[str]) -> list[str]:
        """What the command leads to: the state, and the reply."""
        what, *rest = words
        if what == "save":
            self.saved = json.dumps(self.notes)
        elif what in ("restart", "rollback"):
            if what == "rollback":
                # As the servers' log goes on where it is, so do the numbers of leases.
                assert self.dispatch.pass_state is not None
                self.serial = self.dispatch.pass_state.next
                self.notes = json.loads(self.saved)
            self.dispatch = Dispatch(self.notes, self.serial)
        else:
            reply = self.dispatch.handle(event(self.plan, what, rest))
            self.keep(self.dispatch.changes())
            return [self.state(), shown(reply)]
        return [self.state()]

    def keep(self, changes: dict[str, Any]) -> None:
        """Write it down, as JSON has it."""
        for key, value in json.loads(json.dumps(changes)).items():
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = value

    def state(self) -> str:
        """One line."""
        facts = self.dispatch.describe()
        if not facts:
            return "nothing is known"
        held = [
            f"{number}.{worker.incarnation}{' gone' * worker.is_gone}: "
            + " ".join(lease_text(lease) for lease in worker.leases)
            for number, worker in self.dispatch.holders()
        ]
        back = [f"{rest.chunk}@{rest.start}" for rest in self.dispatch.back]
        parts = [
            f"pass {facts['pass']}: {facts['done']} of {facts['chunks']} done",
            f"{facts['records']} records",
            *held,
            *(["back: " + " ".join(back)] if back else []),
            *([f"aside: {len(self.dispatch.aside)}"] if self.dispatch.aside else []),
        ]
        return "; ".join(parts)


def lease_text(lease: messages.ChunkLease) -> str:
    """A lease: number=chunk, and what is special."""
    text = f"{lease.number}={lease.chunk}"
    return text + f"@{lease.start}" * bool(lease.start) + " alone" * lease.alone


def event(plan: messages.PassPlan, what: str, words: list[str]) -> messages.Event:
    """The event of a command."""
    who = words.pop(0)
    worker, _, incarnation = who.partition(".")
    if what == "gone":
        return messages.WorkerLost(int(worker))
    place = (int(worker), int(incarnation))
    options = dict(word.split("=") for word in words if "=" in word)
    words = [word for word in words if "=" not in word]
    if what == "begin":
        given = messages.PassPlan(**{**{n: getattr(plan, n) for n in plan.__slots__}, **options})
        return messages.RegisterWorker(*place, given, seen(words))
    if what == "leave":
        return messages.ReleaseChunks(*place, seen(words))
    if what == "found":
        found = {int(n): tuple(map(int, r.split("-"))) for n, r in (x.split(":") for x in words)}
        return messages.ProgressReport(*place, found)  # type: ignore[arg-type]  # two of each
    assert what == "turn", what
    pass_ = int(words.pop(0))
    digest = options.get("digest", plan.digest)
    reports = tuple(report(word) for word in words)
    return messages.Poll(*place, digest, pass_, reports, int(options.get("hold", 1)))


def seen(words: list[str]) -> dict[int, int]:
    """lease:records."""
    return {int(number): int(records) for number, records in (word.split(":") for word in words)}


def report(word: str) -> messages.LeaseResult:
    """done:lease:records, or failed:lease:records."""
    what, number, records = word.split(":")
    return messages.LeaseResult(int(number), int(records), "" if what == "done" else "bad line")


def shown(reply: messages.Reply) -> str:
    """The reply on a line."""
    name = "  " + type(reply).__name__
    if isinstance(reply, messages.Granted):
        leases = " ".join(lease_text(lease) for lease in reply.leases)
        return (
            f"{name} {leases}".rstrip() + " over" * reply.is_over + " robbed" * reply.leases_revoked
        )
    if isinstance(reply, messages.Wait):
        return f"{name} for {' '.join(map(str, reply.holders))}"
    if isinstance(reply, messages.AskProgress):
        return f"{name} for {reply.worker}.{reply.incarnation}"
    if isinstance(reply, messages.Over):
        return name + " last" * reply.is_last
    if isinstance(reply, messages.Failed):
        where = ", ".join(f"chunk {one.chunk}@{one.start}: {one.reason}" for one in reply.aside)
        return f"{name} {where}"
    return name
