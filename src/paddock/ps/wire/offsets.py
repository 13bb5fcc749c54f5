"""How far each trainer has read its data, and which of its frames are applied beyond that. Pure.

Where pushes are applied at once, a position travels behind the last push of its batch to every
server, as a frame of its own. TrainerOffsets are numbered, over all incarnations of the trainer,
and so are the pushes since the last one, for each server apart:

    trainer     push 1, push 2, POSITION 1, push 1, push 2, push 3, POSITION 2, push 1 ...
    server 0    ....................................^ dies: (1, 2)
    server 1    ..............................^ (1, 1)

Its next incarnation goes on from the position with the *lowest* number that any server has, does
the same batches again in the same order, and leaves out, for each server, what that one has.
In sync a position belongs to its step instead: the contributions of an open step are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from paddock.errors import PaddockError
from paddock.ps.wire.errors import RequestError

OFFSET_BYTES_MAX = 4096
# Of each trainer. Under sync at most one is of a step not committed yet.
OFFSETS_KEPT = 4
# How many pushes are applied since the position is not known: a shard has moved.
UNKNOWN = -1


def check_offset(position: object) -> None:
    """Raises RequestError when a data position cannot be kept.

    >>> check_offset({"shard": 3, "offset": 4096})
    """
    try:
        size = len(json.dumps(position, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError("usage", f"a data position must be JSON: {error}") from error
    if size > OFFSET_BYTES_MAX:
        raise RequestError(
            "usage",
            f"a data position of {size} bytes, the limit is {OFFSET_BYTES_MAX}",
            hint="keep shard and offset, not the data",
        )


class OffsetMark(NamedTuple):
    """A server's progress with a trainer. frames: the number of its newest push since then."""

    number: int = 0
    position: Any = None
    frames: int = 0


@dataclass(eq=False)
class TrainerOffsets:
    """Per trainer: where its data goes on. number: of the position; in sync, the step it is of.

    Under sync a trainer says the position before the step is committed. If it dies then, its next
    incarnation must not skip the batch: `at` gives the position of the newest committed step.

    >>> positions = TrainerOffsets()
    >>> positions.note(0, 6, {"offset": 60}); positions.note(0, 7, {"offset": 70})
    >>> positions.count(0, 1)
    >>> positions.at(0, committed=6), positions.at(0), positions.at(1)
    ({'offset': 60}, {'offset': 70}, None)
    >>> positions.mark(0)
    OffsetMark(number=7, position={'offset': 70}, frames=1)
    """

    _notes: dict[int, list[tuple[int, Any]]] = field(default_factory=dict)  # in order of numbers
    _frames: dict[int, int] = field(default_factory=dict)

    def note(self, trainer: int, number: int, position: Any) -> None:
        """Remember it; what was said of this number and of later ones is void (done anew)."""
        earlier = [note for note in self._notes.get(trainer, []) if note[0] < number]
        self._notes[trainer] = [*earlier[1 - OFFSETS_KEPT :], (number, position)]
        self._frames.pop(trainer, None)

    def settle(self, step: int, members: Sequence[int]) -> None:
        """A step of sync is committed: who is no member of it gave nothing, and got no further.

        >>> positions = TrainerOffsets()
        >>> positions.note(0, 1, "a"); positions.note(1, 1, "b"); positions.settle(1, [0])
        >>> positions.at(0, committed=1), positions.at(1, committed=1)
        ('a', None)
        """
        for trainer, notes in self._notes.items():
            if trainer not in members and notes and notes[-1][0] == step:
                self._notes[trainer] = notes[:-1]

    def count(self, trainer: int, frame: int) -> None:
        """A push is applied; frame: its number since the position, 0 of one that counts none."""
        if self._frames.get(trainer) != UNKNOWN and (frame or trainer in self._frames):
            self._frames[trainer] = frame

    def lose_count(self) -> None:
        """A shard has come or gone: frames are cut in another way from now on."""
        self._frames = dict.fromkeys([*self._frames, *self._notes], UNKNOWN)

    def close(self, trainer: int) -> None:
        """The trainer has ended well; without a position it begins anew."""
        if trainer not in self._notes:
            self._frames.pop(trainer, None)

    def at(self, trainer: int, committed: int | None = None) -> Any:
        """The trainer's position after step `committed`, or the last one said; None if none."""
        for number, position in reversed(self._notes.get(trainer, [])):
            if committed is None or number <= committed:
                return position
        return None

    def mark(self, trainer: int) -> OffsetMark:
        """How far this server is, where positions travel with pushes."""
        number, position = self._notes.get(trainer, [(0, None)])[-1]
        return OffsetMark(number, position, max(0, self._frames.get(trainer, 0)))

    def marks(self, committed: int | None) -> dict[str, OffsetMark]:
        """The marks of all trainers, JSON-ready. committed: the newest step, in sync."""
        trainers = sorted(self._notes.keys() | self._frames.keys())
        if committed is None:
            return {str(t): self.mark(t) for t in trainers}
        return {str(t): OffsetMark(0, self.at(t, committed)) for t in trainers}

    @classmethod
    def from_marks(cls, marks: Mapping[str, Sequence[Any]], *, is_sync: bool) -> TrainerOffsets:
        """The marks of a checkpoint are set; in sync they are of what is before the first step."""
        positions = cls()
        for trainer, (number, position, frames) in marks.items():
            if number or position is not None:
                positions.note(int(trainer), 0 if is_sync else number, position)
            positions.count(int(trainer), 0 if is_sync else frames)
        return positions


def lowest(servers: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, OffsetMark]:
    """The mark of the server that is least far, for each trainer; from the marks of all.

    >>> lowest([{"0": OffsetMark(2, "b", 1)}, {"0": OffsetMark(1, "a", 7)}])
    {'0': OffsetMark(number=1, position='a', frames=7)}
    """
    trainers = sorted({trainer for marks in servers for trainer in marks}, key=int)
    return {
        t: min((OffsetMark(*m.get(t, ())) for m in servers), key=lambda m: m.number)
        for t in trainers
    }


def is_exact(servers: Sequence[Mapping[str, Sequence[Any]]], count: int) -> bool:
    """True when `count` servers can go on from these marks with no batch done twice in part.

    >>> is_exact([{"0": (1, "a", 0)}] * 2, 3), is_exact([{"0": (1, "a", 2)}] * 2, 3)
    (True, False)
    """
    least = {trainer: mark.number for trainer, mark in lowest(servers).items()}
    ends = [(t, OffsetMark(*marks.get(t, ()))) for marks in servers for t in least]
    return count == len(servers) or all((m.number, m.frames) == (least[t], 0) for t, m in ends)


class OffsetProgress:
    """A trainer's own count: positions noted, and pushes since the last one to each server.

    >>> progress = OffsetProgress(2)
    >>> progress.begin([OffsetMark(1, "a", 2), OffsetMark(2, "b", 0)])
    'a'
    >>> [progress.next_frame(0), progress.next_frame(0), progress.next_frame(0)]
    [None, None, 3]
    >>> progress.next_frame(1), progress.note("b"), progress.next_frame(1)
    (None, [0], 1)
    """

    def __init__(self, servers: int) -> None:
        self.number = 0
        self.is_counting = False
        self.has_pushed = False
        self._frames = [0] * servers
        self._has = [OffsetMark()] * servers

    def begin(self, marks: Sequence[OffsetMark], *, again: bool = True) -> Any:
        """The position from which the trainer goes on. again: it repeats the batches after it."""
        ends = [mark.number for mark in marks]
        self.number = min(ends) if again else max(ends)
        self._has = list(marks) if again else [OffsetMark()] * len(marks)
        self._frames = [0] * len(marks)
        self.is_counting = True
        return next(mark.position for mark in marks if mark.number == min(ends))

    def next_frame(self, server: int) -> int | None:
        """The number of the next push to a server; None: it has that, 0: nobody counts."""
        self.has_pushed = True
        if not self.is_counting:
            return 0
        self._frames[server] += 1
        here, has = (self.number, self._frames[server]), self._has[server]
        return None if here <= (has.number, has.frames) else here[1]

    def has_more(self, server: int) -> bool:
        """True when the server has the next push already."""
        has = self._has[server]
        return (self.number, self._frames[server]) < (has.number, has.frames)

    def note(self, position: Any) -> list[int]:
        """The servers that are to be told of a position. Raises PaddockError when it is another
        one than the incarnation before noted there."""
        self.number += 1
        self._frames = [0] * len(self._frames)
        for has in self._has:
            if has.number == self.number and has.position != position:
                raise PaddockError(
                    f"position {self.number} of this trainer is {position!r}, in its previous "
                    f"incarnation it was {has.position!r}: these are not the same batches",
                    hint="after resume_offset() do the same batches in the same order, or load a "
                    "checkpoint",
                )
        return [server for server, has in enumerate(self._has) if has.number < self.number]
