"""Which shards of a table are here, and how one changes hands while trainers go on.

    A (owner)                            B (next owner)
    freeze: pushes to it wait            -
    fetch: its content, in parts         ADOPT i of n (record): held apart, of no effect
    MOVE (record): not here any more     -
    -                                    ADOPT own (record): here

Every step may be repeated. A freeze ends by itself; until MOVE the shard is A's, and from then on
nobody's until B owns it: pushes and pulls wait. `version` names one attempt, so that a copy made
before a freeze ended is never taken for one made after it.

Volatile: holds, wishes, behind. All else follows from the records. The table's lock is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.ps.durable.arrays import Arrays, decode_arrays, encode_arrays
from paddock.ps.protocol.frames import BODY_MAX, Header
from paddock.ps.protocol.refusals import Refusal

# A freeze whose admin has gone ends after so long.
HOLD_SECONDS = 10.0
# What one ADOPT carries, after the shard's number.
PART_BYTES = BODY_MAX - 8
Shards = NDArray[Any]


@dataclass(slots=True)
class Arrival:
    """A shard on its way to this server. count: parts; whole when they are all here."""

    version: int
    count: int
    parts: list[bytes]

    @property
    def is_whole(self) -> bool:
        """Whether every part is here."""
        return len(self.parts) == self.count

    @property
    def nbytes(self) -> int:
        """Bytes of the parts."""
        return sum(map(len, self.parts))

    def decode(self) -> Arrays:
        """The shard's arrays, each verified. Raises DamageError."""
        return decode_arrays(b"".join(self.parts))


@dataclass(slots=True)
class Hold:
    """A frozen shard. until: of the clock. parts: its content, made when first asked for."""

    version: int
    until: float
    parts: list[memoryview]


class Moves:
    """The shards of one table. owned: those that are here, in order; one list with the table's.

    server: this one's number. given: (to, version) of those it owned last. adopted: versions of
    those that came.

    >>> moves = Moves("words", 0, [0, 1], 4)
    >>> moves.freeze(1, 77), moves.is_held(1, 77)
    (True, True)
    >>> moves.give(1, 3, 77)
    >>> moves.owned, moves.given
    ([0], {1: (3, 77)})
    """

    def __init__(
        self,
        table: str,
        server: int,
        owned: list[int],
        shards: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = table
        self.server = server
        self.owned = owned
        self.given: dict[int, tuple[int, int]] = {}
        self.adopted: dict[int, int] = {}
        self.arrivals: dict[int, Arrival] = {}
        self.holds: dict[int, Hold] = {}
        self.wishes: dict[int, tuple[int, float]] = {}
        # Of each trainer: (incarnation, number) of a push that was sent away; those after it wait.
        self.behind: dict[int, tuple[int, int]] = {}
        self._clock = clock
        self._is_away = np.ones(shards, np.bool_)
        self._changed()
        self.active = False  # Until a shard moves nobody has to look at shards.

    @property
    def nbytes(self) -> int:
        """Bytes of what is on its way, in either direction."""
        leaving = sum(part.nbytes for hold in self.holds.values() for part in hold.parts)
        return leaving + sum(one.nbytes for one in self.arrivals.values())

    def _changed(self) -> None:
        self.active = True
        self._is_away = np.ones(len(self._is_away), np.bool_)
        self._is_away[self.owned] = False
        self._is_closed = self._is_away.copy()
        self._is_closed[list(self.holds)] = True

    # ------------------------------------------------------------------------- pushes and pulls

    def check_pull(self, shards: Shards) -> None:
        """Raises Refusal "moved" when one of these shards is not here. A frozen one is."""
        if self._is_away[shards].any():
            raise self._refusal(shards, self._is_away)

    def are_here(self, shards: Shards) -> NDArray[np.bool_]:
        """Which of these shards can be read here."""
        here: NDArray[np.bool_] = ~self._is_away[shards]
        return here

    def check_push(self, header: Header, shards: Shards) -> None:
        """Raises Refusal "moved" when one of these shards is not here, or frozen.

        Then the trainer's later pushes to the table are refused too, until this one comes again
        or is skipped: they must not overtake it.
        """
        self._lift()
        first = self.behind.get(header.trainer)
        if first is not None and first[0] != header.incarnation:
            first = None
        if first is not None and header.sequence > first[1]:
            raise Refusal(
                "moved",
                f"table {self.table!r}: push {header.sequence} waits for push {first[1]}",
                facts={"owners": {}, "wait": False},
            )
        if self._is_closed[shards].any():
            if header.sequence:
                self.behind[header.trainer] = header.incarnation, header.sequence
            raise self._refusal(shards, self._is_closed)
        if first is not None:
            del self.behind[header.trainer]

    def skipped(self, header: Header) -> None:
        """A number will not be used any more."""
        if self.behind.get(header.trainer) == (header.incarnation, header.sequence):
            del self.behind[header.trainer]

    def _refusal(self, shards: Shards, closed: NDArray[np.bool_]) -> Refusal:
        asked = [int(shard) for shard in np.unique(shards[closed[shards]])]
        owners = {
            str(shard): self.given[shard][0]
            for shard in asked
            if shard in self.given and self._is_away[shard]
        }
        where = f"is server {owners[str(asked[0])]}'s now" if str(asked[0]) in owners else "moves"
        return Refusal(
            "moved",
            f"table {self.table!r}: shard {asked[0]} {where} (server {self.server} was asked)",
            hint="if this lasts, paddock ps rebalance mends a move that was broken off",
            facts={"owners": owners, "wait": len(owners) < len(asked)},
        )

    # ----------------------------------------------------------------------------------- freezing

    def freeze(self, shard: int, version: int) -> bool:
        """Pushes to the shard wait from now on; again: for longer. False: another order's."""
        self._lift()
        self.wishes.pop(shard, None)
        hold = self.holds.get(shard)
        if hold is None:
            hold = self.holds[shard] = Hold(version, 0.0, [])
            self._changed()
        if hold.version != version:
            return False
        hold.until = self._clock() + HOLD_SECONDS
        return True

    def wish(self, shard: int, version: int) -> None:
        """Freeze at the next moment at which nothing is held apart for a step."""
        self.wishes[shard] = version, self._clock() + HOLD_SECONDS

    def grant(self) -> None:
        """That moment."""
        now = self._clock()
        for shard, (version, until) in list(self.wishes.items()):
            del self.wishes[shard]
            if now < until and shard in self.owned:
                self.freeze(shard, version)

    def thaw(self, shard: int, version: int) -> None:
        """End a freeze and the wish for one."""
        if self.wishes.get(shard, (version,))[0] == version:
            self.wishes.pop(shard, None)
        if shard in self.holds and self.holds[shard].version == version:
            del self.holds[shard]
            self._changed()

    def _lift(self) -> None:
        if self.holds:
            now = self._clock()
            late = [shard for shard, hold in self.holds.items() if hold.until <= now]
            for shard in late:
                del self.holds[shard]
            if late:
                self._changed()

    def is_held(self, shard: int, version: int) -> bool:
        """Whether the shard has been frozen by this order without a break."""
        self._lift()
        hold = self.holds.get(shard)
        return hold is not None and hold.version == version

    def parts(self, shard: int, version: int, take: Callable[[int], Arrays]) -> list[memoryview]:
        """The content of a frozen shard, cut; take: gives its arrays. Raises Refusal."""
        if not self.is_held(shard, version):
            raise Refusal("deadline", f"shard {shard} is not frozen any more", hint="move it again")
        hold = self.holds[shard]
        hold.until = self._clock() + HOLD_SECONDS
        if not hold.parts:
            whole = memoryview(b"".join(encode_arrays(take(shard))[0]))
            hold.parts = [whole[at : at + PART_BYTES] for at in range(0, len(whole), PART_BYTES)]
        return hold.parts

    # ------------------------------------------------------------------------------------ records

    def give(self, shard: int, to: int, version: int) -> None:
        """The shard is another server's."""
        if shard in self.owned:
            self.owned.remove(shard)
        self.given[shard] = to, version
        self.adopted.pop(shard, None)
        self.holds.pop(shard, None)
        self._changed()

    def receive(self, shard: int, version: int, part: int, count: int, data: bytes) -> None:
        """A part of a shard that comes; the first one of another version replaces what came."""
        if part == 0:
            self.arrivals[shard] = Arrival(version, count, [])
        arrival = self.arrivals[shard]
        assert arrival.version == version and part == len(arrival.parts)
        arrival.parts.append(data)
        self.active = True

    def own(self, shard: int, version: int) -> Arrival:
        """The shard that came is this server's."""
        arrival = self.arrivals.pop(shard)
        self.owned.append(shard)
        self.owned.sort()
        self.given.pop(shard, None)
        self.adopted[shard] = version
        self._changed()
        return arrival

    def forget(self, shard: int) -> None:
        """Drop what came of a shard."""
        self.arrivals.pop(shard, None)

    # -------------------------------------------------------------------------------------- state

    def to_json(self) -> dict[str, Any]:
        """What follows from the records, but for the parts."""
        return {
            "owned": list(self.owned),
            "given": {str(s): list(g) for s, g in sorted(self.given.items())},
            "adopted": {str(s): v for s, v in sorted(self.adopted.items())},
            "arrivals": {
                str(s): [a.version, a.count, len(a.parts)] for s, a in sorted(self.arrivals.items())
            },
        }

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The parts."""
        return {
            f"move.{shard}.{i}": np.frombuffer(part, np.uint8)
            for shard, arrival in sorted(self.arrivals.items())
            for i, part in enumerate(arrival.parts)
        }

    def restore(self, data: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what to_json and to_arrays gave."""
        self.owned[:] = data["owned"]
        self.given = {int(s): (int(to), int(v)) for s, (to, v) in data["given"].items()}
        self.adopted = {int(s): int(v) for s, v in data["adopted"].items()}
        self.arrivals = {
            int(s): Arrival(v, n, [arrays[f"move.{s}.{i}"].tobytes() for i in range(have)])
            for s, (v, n, have) in data["arrivals"].items()
        }
        if self.given or self.adopted or self.arrivals:
            self._changed()
