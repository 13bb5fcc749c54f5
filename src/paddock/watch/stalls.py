"""Has a job stopped moving, and which rank is the suspect? Pure: the watcher measures.

what a look shows, of all ranks          then
---------------------------------------  -----------------------------------------------------------
a log, step, byte count moves            nothing; the longest pause between two is learned
all ranks have ended, or there are none  nothing: other nodes may go on
a rank is stopped (SIGSTOP) or traced    a notice, once: its user did that
nothing moves, for as long as a pause    stacks are asked for, and again after TWICE_SECONDS, until
  may be (patience)                      LOOKS are there
  every rank sleeps                      a stall
  a rank is in pdb                       a notice, once: its user did that
  a rank saves or evaluates, by names    it works, until stall_after
  a rank computes, nobody sees where     it works, until stall_after
  a rank computes, its stacks differ     it works: evaluation, compilation; patience begins again
  a rank computes, at the same place     a stall, once steps are known: a compiler looks like that
something moves after a stall            the stall is over
a rank that was held goes on             a notice, once; patience begins again
"""

from __future__ import annotations

from paddock.core.value import value
from paddock.watch.stacks import STARTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.watch.procfs import ProcessFacts
    from paddock.watch.stacks import RankStack

# In a second: fewer are a library's own pulse. Rank 0 of torch asks its TCPStore 100 times a second
# who is there, which is 4.4 kB.
MOVED_BYTES = 8192
BUSY_SHARE = 0.2  # of a core
PATIENCE_SECONDS = 20.0  # at least; without a rhythm, or init_*'s wait, stall_after holds
START_SECONDS = 60.0  # for ranks that wait for the others to begin with
PAUSE_FACTOR = 4.0  # a pause may be so many times the longest one seen
PAUSES_KEPT = 64
RHYTHM_PAUSES = 2
TWICE_SECONDS = 10.0
LOOKS = 3
STOPPED_SECONDS = 10.0


@value
class RankLook:
    """A rank at one moment. facts: None once it has ended. step: any number that its log tells."""

    rank: int
    facts: ProcessFacts | None
    log_bytes: int = 0
    step: float | None = None
    tracer: int = 0


@value
class AskStacks:
    """Take the stacks of all ranks now, and give them to take_stacks()."""


@value
class StallFound:
    """Nothing moves. busy: ranks that compute all the same."""

    seconds: float
    busy: tuple[int, ...]
    stacks: tuple[RankStack, ...]


@value
class StallEnded:
    """Something moves again."""

    seconds: float


@value
class RankHeld:
    """A rank was stopped by a signal, or a debugger is attached (tracer: its pid).

    seconds: for which it is so. debugger: the name of one that runs in the rank itself.
    """

    rank: int
    seconds: float
    tracer: int = 0
    debugger: str = ""


@value
class RankReleased:
    """A rank goes on after RankHeld."""

    rank: int


StallAction = AskStacks | StallFound | StallEnded | RankHeld | RankReleased


class StallDetector:
    """Sees by looks at all ranks whether a job moves. stall_after: the longest patience, seconds.

    The caller gives every look the time, in seconds of one clock.
    """

    def __init__(self, stall_after: float) -> None:
        self._stall_after = stall_after
        self._before: dict[int, RankLook] = {}
        self._looked_at = 0.0
        self._moved_at: float | None = None
        self._marked_at: float | None = None  # a log or a step moved
        self._pauses: list[float] = []
        self._has_step = False
        self._busy: tuple[int, ...] = ()
        self._held_since: dict[int, float] = {}
        self._told: set[int] = set()
        self._debugged: set[int] = set()
        self._places: dict[int, set[str]] = {}
        self._looks, self._next_stacks_at, self._is_stalled = 0, 0.0, False

    @property
    def patience(self) -> float:
        """How long nothing may move, in seconds."""
        learned = PAUSE_FACTOR * max(self._pauses) if self._has_rhythm else START_SECONDS
        return min(max(PATIENCE_SECONDS, learned), self._stall_after)

    @property
    def _has_rhythm(self) -> bool:
        return len(self._pauses) >= RHYTHM_PAUSES

    def begin(self) -> None:
        """Forget the ranks: a new attempt starts. Its rhythm is that of the one before."""
        self._before = {}
        self._moved_at = self._marked_at = None
        self._has_step = False
        self._held_since.clear()
        self._told.clear()
        self._forget_stacks()

    def look(self, now: float, ranks: Sequence[RankLook]) -> list[StallAction]:
        """Take a look at all ranks; returns what follows."""
        actions = self._held(now, ranks)
        before, self._before = self._before, {look.rank: look for look in ranks}
        gone_by, self._looked_at = now - self._looked_at, now
        if before.keys() != self._before.keys() or self._moved_at is None:
            self._moved_at = now
            return actions
        has_marked = any(_has_marked(before[look.rank], look) for look in ranks)
        has_ended = all(look.facts is None for look in ranks)  # other nodes may go on for long
        has_moved = (
            has_marked
            or has_ended
            or any(_has_moved(before[look.rank], look, gone_by) for look in ranks)
        )
        if has_marked:
            self._learn(now)
        if has_moved:
            if self._is_stalled:
                actions.append(StallEnded(now - self._moved_at))
            self._moved_at = now
            return [*actions, *self._forget_stacks()]
        self._busy = tuple(
            look.rank for look in ranks if _is_busy(before[look.rank], look, gone_by)
        )
        is_due = now - self._moved_at >= self.patience and now >= self._next_stacks_at
        if is_due and not self._is_stalled and not self._held_since:
            self._next_stacks_at = now + TWICE_SECONDS
            actions.append(AskStacks())
        return actions

    def take_stacks(self, now: float, stacks: Sequence[RankStack]) -> list[StallAction]:
        """Take the stacks that were asked for; returns what follows."""
        if self._moved_at is None or self._is_stalled:
            return []
        self._looks += 1
        debugged = [  # also a rank whose stack could not be read this time
            s for s in stacks if s.debugger or (s.rank in self._debugged and not s.frames)
        ]
        if debugged:
            self._next_stacks_at = now + self.patience
            new = [stack for stack in debugged if stack.rank not in self._debugged]
            self._debugged.update(stack.rank for stack in new)
            held = now - self._moved_at
            return [RankHeld(stack.rank, held, debugger=stack.debugger) for stack in new]
        if self._debugged:  # its user has let it go on
            self._moved_at = now
            return self._forget_stacks()
        for stack in stacks:
            # Without lines: a loop at one place has many, and one function.
            calls = " < ".join(frame.function for frame in stack.frames)
            self._places.setdefault(stack.rank, set()).add(calls)
        if self._busy and self._looks < LOOKS:
            return []
        working = [rank for rank in self._busy if len(self._places.get(rank, ())) >= LOOKS]
        is_long = now - self._moved_at >= self._stall_after
        is_start = any(stack.collective in STARTS for stack in stacks)
        is_early = not (self._has_step if self._busy else self._has_rhythm or is_start)
        is_slow_work = any(
            stack.is_slow_work or (stack.rank in self._busy and not stack.frames)
            for stack in stacks
        )
        if working or ((is_early or is_slow_work) and not is_long):
            self._forget_stacks()
            self._next_stacks_at = now + self.patience
            return []
        self._is_stalled = True
        return [StallFound(now - self._moved_at, self._busy, tuple(stacks))]

    def _held(self, now: float, ranks: Sequence[RankLook]) -> list[StallAction]:
        """Notice ranks that a user has stopped, or debugs."""
        found: list[StallAction] = []
        for look in ranks:
            if look.facts is None or not (look.tracer or look.facts.state in "Tt"):
                self._held_since.pop(look.rank, None)
                if look.rank in self._told:
                    self._told.remove(look.rank)
                    found.append(RankReleased(look.rank))
                    self._moved_at = self._moved_at if self._is_stalled else now
                continue
            since = self._held_since.setdefault(look.rank, now)
            if now - since >= STOPPED_SECONDS and look.rank not in self._told:
                self._told.add(look.rank)
                found.append(RankHeld(look.rank, now - since, look.tracer))
        return found

    def _learn(self, now: float) -> None:
        if self._marked_at is not None and not self._held_since:
            self._pauses = [*self._pauses[1 - PAUSES_KEPT :], now - self._marked_at]
        self._marked_at = now
        self._has_step = self._has_step or any(
            look.step is not None for look in self._before.values()
        )

    def _forget_stacks(self) -> list[StallAction]:
        """Forget what stacks have told; returns the ranks that were in a debugger of their own."""
        released: list[StallAction] = [RankReleased(rank) for rank in sorted(self._debugged)]
        self._debugged.clear()
        self._places.clear()
        self._looks, self._next_stacks_at, self._is_stalled = 0, 0.0, False
        return released


def _has_marked(before: RankLook, now: RankLook) -> bool:
    return now.log_bytes != before.log_bytes or now.step != before.step


def _has_moved(before: RankLook, now: RankLook, seconds: float) -> bool:
    if before.facts is None or now.facts is None:
        return (before.facts is None) != (now.facts is None)
    moved = now.facts.read_bytes + now.facts.written_bytes
    moved -= before.facts.read_bytes + before.facts.written_bytes
    return abs(moved) >= MOVED_BYTES * max(1.0, seconds)


def _is_busy(before: RankLook, now: RankLook, seconds: float) -> bool:
    """Return True for a rank that computes, or that only lacks a core for it."""
    if before.facts is None or now.facts is None or seconds <= 0:
        return False
    share = (now.facts.cpu_seconds - before.facts.cpu_seconds) / seconds
    return share > BUSY_SHARE or before.facts.state == now.facts.state == "R"
