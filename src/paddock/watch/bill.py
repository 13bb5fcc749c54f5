"""The bill: what the rank-seconds of a run were spent on. Pure; from the rows of its history.

kind        from                              to
----------  --------------------------------  -------------------------------------------------
start       the launcher's start              the ranks of an attempt run; waiting for nodes is
rendezvous  the launcher waits for nodes; or  rendezvous
            an attempt has no rank in this place
warm-up     the ranks run                     the first step
useful      the first step; where no rank of  the end, without what is below
            the run tells any: the ranks run
stalled     a stall's last move               something moves again
            a user holds the rank, or any     it goes on, or some rank does a step
            and no rank does a step
lost        a step that a restart does again  the end of the attempt that had done it before
restart     an attempt has ended              the ranks of the next one run
draining    a rank has ended, or is told to   the attempt has ended

A rank is in one kind at a time, from the start to the end of the run: the sum is the wall time
times the ranks, to the millisecond. Ranks may have other numbers in each attempt: one that follows
another in its place (a process of a node; or of the node that came for it) counts as one with it.
"""

from __future__ import annotations

from bisect import bisect
from itertools import pairwise

from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paddock.watch.history import HistoryRows, Row

    Span = tuple[int, int]  # from, to
    Phase = tuple[str, int, int]  # kind, from, to

KINDS = (
    "start", "rendezvous", "warm-up", "useful", "stalled", "lost", "restart", "draining",
)  # fmt: skip
OF_START = ("allocated", "code_there")  # phases of a submitted job's nodes: "start" in the bill
IDLE_MS = 10_000  # without a step, while a user holds a rank


@value
class Bill:
    """Milliseconds of all ranks together, by kind. wall_ms: of the run. steps: done, at last.

    is_over: False while the run goes on; then the bill is up to the latest row. has_steps: whether
    any rank told a step or an epoch; else nobody knows what of the time was useful.
    """

    wall_ms: int
    ranks: int
    spent_ms: tuple[tuple[str, int], ...]
    attempts: int
    steps: int | None
    is_over: bool
    has_steps: bool = True

    def name_of(self, kind: str) -> str:
        """The word for people: time in which ranks ran is useful if steps of theirs are known."""
        return "running" if kind == "useful" and not self.has_steps else kind

    def share(self, kind: str) -> float:
        """The share of a kind, of 1."""
        total = self.wall_ms * self.ranks
        return dict(self.spent_ms)[kind] / total if total else 0.0


class Attempt:
    """An attempt of all nodes, of a run whose rows end at `until`. Times in ms since 1970.

    ranks: -> node. places: -> rank, as take_places gives them. ended: until, while it runs. first:
    when the first rank did a step. steps: when an epoch and step were first seen, of any rank; by
    the kind of their lines.
    """

    def __init__(self, number: int, began: int, until: int) -> None:
        self.number = number
        self.began = began
        self.stopping = self.ended = self.redone_from = self.first = until
        self.ranks: dict[int, str] = {}
        self.places: dict[int, int] = {}
        self.steps: dict[tuple[object, bool, bool], list[tuple[int, tuple[float, int]]]] = {}
        self._nodes: set[str] = set()  # where ranks of it run
        self._first: dict[int, int] = {}  # step or epoch, by rank
        self._exits: dict[int, int] = {}

    def add(self, row: Row) -> None:
        """Take a row that is written while it is the latest attempt."""
        kind, rank, at = row["kind"], row.get("rank"), _ms(row)
        if kind == "attempt":
            self._nodes.add(row.get("node", ""))
            workers = [each[1] for each in row["ranks"] if each[0] == "worker"]
            self.ranks |= dict.fromkeys(workers, row.get("node", ""))
        elif kind == "progress" and rank in self.ranks:
            self._tell(at, row)
        elif kind == "exit" and rank in self.ranks:
            self._exits[rank] = at
            if not (row.get("ok") or row.get("by_us")):  # a failure stops the others
                self.stopping = min(self.stopping, at)
            if len(self._exits) == len(self.ranks):
                self.end(at)
        elif kind == "stopping":
            self.stopping = min(self.stopping, at)
        elif kind == "attempt_end" and row.get("attempt", self.number) == self.number:
            self._nodes.discard(row.get("node", ""))
            if not self._nodes:
                self.end(at)

    def end(self, at: int) -> None:
        """Its ranks have ended."""
        self.stopping, self.ended = min(self.stopping, at), min(self.ended, at)

    def _tell(self, at: int, row: Row) -> None:
        """Take a rank's epoch or step; one that was seen before is no news."""
        epoch, step = row.get("epoch"), row.get("step")
        if epoch is None and step is None:
            return
        self.first = min(self.first, self._first.setdefault(row["rank"], at))
        known = self.steps.setdefault((row.get("profile"), epoch is None, step is None), [])
        if not known or (epoch or 0, step or 0) > known[-1][1]:
            known.append((at, (epoch or 0, step or 0)))

    def find_lost(self, later: Sequence[Attempt]) -> None:
        """Find from when on its steps were done again by later attempts."""
        for key, known in sorted(self.steps.items(), key=lambda pair: -len(pair[1])):
            again = [each.steps[key][0][1] for each in later if key in each.steps]
            if again:
                found = (ms for ms, step in known if step >= min(again))
                self.redone_from = next(found, self.ended)
                return

    def stop_of(self, rank: int) -> int:
        """When a rank ended, or was told to."""
        return min(self._exits.get(rank, self.stopping), self.stopping)

    def first_of(self, rank: int) -> int:
        """When a rank began to do steps; one that tells none began with the others."""
        return min(self._first.get(rank, self.first), self.stop_of(rank))


def bill_of(history: HistoryRows, attempts: Sequence[Attempt] = ()) -> Bill | None:
    """The bill of a run; None before its first row. attempts: of read_attempts, where known."""
    rows = history.rows
    begin = next(history.of("begin"), None)
    if begin is None:
        return None
    attempts = attempts or read_attempts(history)
    phases = phases_of(history, attempts)
    spent = dict.fromkeys(KINDS, 0)
    for kind, since, until in (phase for of in phases.values() for phase in of):
        spent["start" if kind in OF_START else kind] += until - since
    steps = [
        known[-1][1][1] for each in attempts for key, known in each.steps.items() if not key[2]
    ]
    return Bill(
        _ms(rows[-1]) - _ms(rows[0]), len(phases), tuple(spent.items()), len(attempts),
        max(steps, default=None), rows[-1]["kind"] == "end",
        any(each.steps for each in attempts),
    )  # fmt: skip


def phases_of(history: HistoryRows, attempts: Sequence[Attempt]) -> dict[int, list[Phase]]:
    """The time of each place from first to last row, no gap: KINDS and OF_START."""
    rows = history.rows
    waits = [(_ms(row), _ms(row) + int(row["seconds"] * 1000)) for row in history.of("waited")]
    stalls = read_stalls(history, attempts)
    starts = dict[str | None, list[tuple[int, str]]]()
    for row in history.of(*OF_START, "begin"):
        starts.setdefault(row.get("node", ""), []).append((_ms(row), row["kind"]))
    found = {}
    for place in sorted({place for each in attempts for place in each.places}) or [0]:
        phases = _timeline(place, _ms(rows[0]), _ms(rows[-1]), attempts)
        here = [(each, each.places[place]) for each in attempts if place in each.places]
        first = here[0][0].ranks[here[0][1]] if here else None
        for (at, kind), (until, _) in pairwise(starts.get(first, ())):
            phases = _cut(phases, [(at, until)] if kind in OF_START else (), ("start",), kind)
        stood = sorted(
            (max(since, each.began), min(until, each.ended))
            for each, rank in here
            for key in (each.ranks[rank], rank, None)
            for since, until in stalls.get(key, ())
        )
        phases = _cut(phases, stood, ("warm-up", "useful", "lost"), "stalled")
        found[place] = _cut(phases, waits, ("start", "restart"), "rendezvous")
    return found


def needed_rows() -> Callable[[Row], bool]:
    """A test whether a bill needs the next row: no sample; of progress, what is new in an attempt.

    A long history has 150,000 rows, and the bill needs a thousandth of them.
    """
    seen: set[tuple[object, ...]] = set()

    def is_needed(row: Row) -> bool:
        if row["kind"] == "attempt":
            seen.clear()
        elif row["kind"] == "progress":
            news = {(row.get("rank"),), (row.get("profile"), row.get("epoch"), row.get("step"))}
            is_old = news <= seen
            seen.update(news)
            return not is_old
        return bool(row["kind"] != "sample")

    return is_needed


def bill_line(bill: Bill, where: str = "") -> str:
    """The bill in a line, largest first after useful. where: whose ranks these are.

    >>> bill_line(Bill(10_000, 2, (("start", 1000), ("useful", 19_000)), 1, 40, True))
    '95 % useful, 5 % start · 10.0 s x 2 ranks = 0.0056 rank-hours'
    """
    total = bill.wall_ms * bill.ranks or 1
    rest = sorted(bill.spent_ms, key=lambda pair: (pair[0] != "useful", -pair[1]))
    shown = [(kind, 100 * ms / total) for kind, ms in rest]
    parts = ", ".join(
        f"{share:.0f} % {bill.name_of(kind)}" for kind, share in shown if share >= 0.5
    )
    hours = total / 3_600_000
    ranks = f"{bill.ranks} rank{'' if bill.ranks == 1 else 's'}{where}"
    return f"{parts} · {bill.wall_ms / 1000:.1f} s x {ranks} = {hours:.2g} rank-hours"


def _ms(row: Row) -> int:
    return round(float(row["at"]) * 1000)


def read_attempts(history: HistoryRows) -> list[Attempt]:
    """The attempts of a run, in order."""
    found: list[Attempt] = []
    for row in history.rows:
        if row["kind"] == "attempt" and row["ranks"]:
            number = row.get("attempt", _ms(row))
            if not found or found[-1].number != number:
                if found:
                    found[-1].end(_ms(row))
                found.append(Attempt(number, _ms(row), _ms(history.rows[-1])))
        if found:
            found[-1].add(row)
    for number, each in enumerate(found):
        each.find_lost(found[number + 1 :])
        if not any(one.steps for one in found):
            each.first = each.began
    take_places(found)
    return found


def take_places(attempts: Sequence[Attempt]) -> None:
    """Number the places of ranks: that of the same process of the node before, else a free one."""
    places: list[tuple[str, int]] = []  # -> node, and which of its ranks, in order
    for each in attempts:
        index = dict.fromkeys(each.ranks.values(), -1)
        homeless = []
        for rank, node in sorted(each.ranks.items()):
            index[node] += 1
            if (node, index[node]) in places:
                each.places[places.index((node, index[node]))] = rank
            else:
                homeless.append((rank, (node, index[node])))
        free = (number for number in range(len(places)) if number not in each.places)
        for rank, home in homeless:
            number = next(free, len(places))
            places[number : number + 1] = [home]
            each.places[number] = rank


def _timeline(place: int, began: int, ended: int, spans: Sequence[Attempt]) -> list[Phase]:
    """The time of a place from the first to the last moment, by kind, without a gap."""
    found: list[Phase] = []
    at, kind = began, "start"
    for span in spans:
        found.append((kind, at, span.began))
        kind, at = "restart", span.ended
        rank = span.places.get(place)
        if rank is None:
            found.append(("rendezvous", span.began, span.ended))
            continue
        first, stop = span.first_of(rank), span.stop_of(rank)
        lost = max(first, min(span.redone_from, stop))
        found += [
            ("warm-up", span.began, first), ("useful", first, lost), ("lost", lost, stop),
            ("draining", stop, span.ended),
        ]  # fmt: skip
    found.append((kind if not spans else "draining", at, ended))
    return [each for each in found if each[2] > each[1]]


def read_stalls(
    history: HistoryRows, attempts: Sequence[Attempt]
) -> dict[str | int | None, list[Span]]:
    """When nothing moved, in ms: by the node whose launcher saw it; by the rank that was held.

    Under None: when no rank did a step, while one was held.
    """
    found: dict[str | int | None, list[Span]] = {}
    open_: set[str | int] = set()
    of_rank = ("held", "held_over", "exit")
    for row in history.of(*of_rank, "stall", "stall_over", "attempt", "attempt_end"):
        kind, at = row["kind"], _ms(row)
        key: str | int = row.get("rank", -1) if kind in of_rank else row.get("node", "")
        if kind in ("stall", "held"):
            since = at - int(row.get("seconds", 0) * 1000)
            found.setdefault(key, []).append((since, _ms(history.rows[-1])))
            open_.add(key)
        elif row.get("role", "worker") == "worker":
            over = open_ if kind == "attempt" else open_ & {key}
            for each in over:
                found[each][-1] = (found[each][-1][0], at)
            open_ = open_ - over
    steps = sorted(at for each in attempts for known in each.steps.values() for at, _ in known)
    held = [span for key, of in found.items() if isinstance(key, int) for span in of]
    for since, until in held:
        marks = [since, *steps[bisect(steps, since) : bisect(steps, until)], until]
        idle = [pair for pair in pairwise(marks) if pair[1] - pair[0] >= IDLE_MS]
        found.setdefault(None, []).extend(idle)
    return found


def _cut(
    spans: Sequence[Phase], holes: Sequence[Span], kinds: Sequence[str], becomes: str
) -> list[Phase]:
    """Give the parts of spans of some kinds that lie in a hole another kind. holes: in order."""
    found = []
    for name, since, until in spans:
        at = since
        for a, b in holes if name in kinds else ():
            a, b = max(a, at), min(b, until)
            if b > a:
                found += [(name, at, a), (becomes, a, b)]
                at = b
        found.append((name, at, until))
    return [each for each in found if each[2] > each[1]]
