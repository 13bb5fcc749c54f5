"""Which shards of a table are here, and how one changes hands while trainers go on. Pure.

An admin gives the owner one order. The two servers carry it out, and finish it whatever dies:

    phase   owner (giver)                            next owner (taker)
    copy    the shard, then what is pushed to it     ADOPT part (records): held apart, of no
            meanwhile, until that is little          effect; the last one says it is on the disk
    freeze  pushes to it wait; in sync from the next COMMIT on
    rest    what was pushed since                    ADOPT part
    move    MOVE (record): not here any more
    own                                              ADOPT own (record): here

A `version` names one attempt. Only the records outlive a server: before MOVE the shard is the
giver's, after it nobody's until the taker owns it. For as long as a taker has what came, it asks
the giver what became of it:

    given    MOVE of this version is in its log, on its disk    the taker owns it
    coming   the attempt goes on                                waits
    gone     neither, nor will it ever be given                 forgets it

Volatile: leaving, behind. All else follows from the records. The table's lock is held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paddock.ps.storage.arrays import Arrays, decode_arrays
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX, Header

PHASES = ("copy", "freeze", "rest", "move", "own")
# What one ADOPT carries, after the numbers of the shard and of the giver.
PART_BYTES = BODY_MAX - 8
# A version: how often the shard has changed hands, and a random number.
_NONCE_BITS = 32
Shards = NDArray[Any]
MigrationStatus = Literal["given", "coming", "gone"]


@dataclass(slots=True)
class OutgoingShard:
    """An attempt to give a shard away. is_wished: to be frozen when no step is being gathered."""

    to: int
    version: int
    is_frozen: bool = False
    is_wished: bool = False


@dataclass(slots=True)
class IncomingShard:
    """A shard on its way here from server `source`. count: parts that came. parts: of the newest
    copy, and of the rows changed since; ends: where each of these states ends."""

    version: int
    source: int
    count: int = 0
    ends: list[int] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """True when every part of what was begun is here."""
        return bool(self.ends) and self.ends[-1] == len(self.parts)

    def decode(self) -> list[Arrays]:
        """The arrays of each state, verified. Raises DamageError."""
        bounds = zip([0, *self.ends], self.ends, strict=False)
        return [decode_arrays(b"".join(self.parts[start:stop])) for start, stop in bounds]


class ShardOwnership:
    """The shards of one table. owned: those that are here, in order; one list with the table's.

    server: this one's number. given: (to, version) of those it owned last. adopted: versions of
    those that came; they stay, for what is told twice.

    >>> moves = ShardOwnership("words", 0, [0, 1], 4)
    >>> version = moves.leave(1, 3, 77)
    >>> moves.freeze(1, version, busy=False), moves.migration_status(1, 3, version)
    (True, 'coming')
    >>> moves.give(1, 3, version)
    >>> moves.owned, *(moves.migration_status(1, 3, version + i) for i in (0, 1))
    ([0], 'given', 'gone')
    """

    def __init__(self, table: str, server: int, owned: list[int], shards: int) -> None:
        self.table = table
        self.server = server
        self.owned = owned
        self.given: dict[int, tuple[int, int]] = {}
        self.adopted: dict[int, int] = {}
        self.incoming: dict[int, IncomingShard] = {}
        self.leaving: dict[int, OutgoingShard] = {}
        # Of each trainer: (incarnation, number) of a push that was sent away; those after it wait.
        self.behind: dict[int, tuple[int, int]] = {}
        self.is_away = np.ones(shards, np.bool_)  # (shards,), those that cannot be read here
        self._changed()

    @property
    def is_idle(self) -> bool:
        """True when no shard is frozen or on its way here."""
        return not self.incoming and not any(one.is_frozen for one in self.leaving.values())

    def _changed(self) -> None:
        # Bytes of what came and is not owned.
        self.nbytes = sum(len(part) for one in self.incoming.values() for part in one.parts)
        # True when a shard has moved, or does: until then nobody has to look at shards.
        self.active = bool(self.given or self.adopted or self.incoming or self.leaving)
        self.is_away[:] = True
        self.is_away[self.owned] = False
        self._is_closed = self.is_away.copy()
        self._is_closed[[shard for shard, one in self.leaving.items() if one.is_frozen]] = True

    # ------------------------------------------------------------------------- pushes and pulls

    def check_pull(self, shards: Shards) -> None:
        """Raises RequestError "moved" when one of these, (n,), is not here. A frozen one is."""
        if self.is_away[shards].any():
            raise self._refusal(shards, self.is_away)

    def check_push(self, header: Header, shards: Shards) -> None:
        """Raises RequestError "moved" when one of these shards, (n,), is not here, or frozen.

        Then the trainer's later pushes to the table are refused too, until this one comes again
        or is skipped: they must not overtake it.
        """
        first = self.behind.get(header.trainer)
        if first is not None and first[0] != header.incarnation:
            first = None
        if first is not None and header.sequence > first[1]:
            raise RequestError(
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

    def _refusal(self, shards: Shards, closed: NDArray[np.bool_]) -> RequestError:
        asked = [int(shard) for shard in np.unique(shards[closed[shards]])]
        owners = {
            str(shard): self.given[shard][0]
            for shard in asked
            if shard in self.given and self.is_away[shard] and shard not in self.leaving
        }
        where = f"is server {owners[str(asked[0])]}'s now" if str(asked[0]) in owners else "moves"
        return RequestError(
            "moved",
            f"table {self.table!r}: shard {asked[0]} {where} (server {self.server} was asked)",
            hint="if this lasts, is a server down? paddock ps status",
            facts={"owners": owners, "wait": len(owners) < len(asked)},
        )

    # -------------------------------------------------------------------------------- the giver

    def leave(self, shard: int, to: int, nonce: int) -> int:
        """Begin an attempt to give a shard away; its version, above all that the shard had."""
        version = ((self.adopted.get(shard, 0) >> _NONCE_BITS) + 1 << _NONCE_BITS) + nonce
        self.leaving[shard] = OutgoingShard(to, version)
        self._changed()
        return version

    def freeze(self, shard: int, version: int, *, busy: bool) -> bool:
        """True when pushes to the shard wait from now on; busy: after the step's COMMIT."""
        one = self.leaving[shard]
        assert one.version == version
        one.is_wished = True
        if not busy:
            self.grant()
        return one.is_frozen

    def grant(self) -> None:
        """No step is being gathered: what was to be frozen is."""
        for one in self.leaving.values():
            one.is_frozen = one.is_frozen or one.is_wished
        self._changed()

    def check_give(self, shard: int, version: int) -> None:
        """Raises RequestError when a shard may have changed since what this attempt has copied."""
        one = self.leaving.get(shard)
        if one is None or one.version != version or not one.is_frozen:
            raise RequestError("deadline", f"shard {shard} is not frozen")

    def stay(self, shard: int, version: int) -> None:
        """An attempt is over, or its MOVE on the disk: trainers are told of the new owner."""
        if shard in self.leaving and self.leaving[shard].version == version:
            del self.leaving[shard]
            self._changed()

    def give(self, shard: int, to: int, version: int) -> None:
        """The shard is another server's."""
        if shard in self.owned:
            self.owned.remove(shard)
        self.given[shard] = to, version
        self._changed()

    def migration_status(self, shard: int, to: object, version: object) -> MigrationStatus:
        """The status of an attempt."""
        if self.given.get(shard) == (to, version):
            return "given"
        one = self.leaving.get(shard)
        return "coming" if one is not None and one.version == version else "gone"

    # -------------------------------------------------------------------------------- the taker

    def was_owned(self, shard: int, version: int) -> bool:
        """True when this change of hands, or a later one, was completed here."""
        return self.adopted.get(shard, 0) >> _NONCE_BITS >= version >> _NONCE_BITS

    def has_part(self, shard: int, version: int, part: int) -> bool:
        """True when a part came before, or is of no use any more."""
        one = self.incoming.get(shard)
        is_here = one is not None and one.version == version and part < one.count
        return is_here or self.was_owned(shard, version)

    def check_part(self, shard: int, version: int, part: int) -> None:
        """Raises RequestError when a part does not follow what came."""
        if shard in self.owned or not 0 <= shard < len(self.is_away):
            raise RequestError(
                "usage", f"shard {shard} of table {self.table!r} is not to come here"
            )
        one = self.incoming.get(shard)
        if one is None and part == 0:
            return
        if one is None or one.version != version:  # Another attempt: its giver is asked first.
            raise RequestError("deadline", f"shard {shard} of another attempt is here")
        if part != one.count:
            raise RequestError(
                "deadline", f"part {part} of shard {shard} does not follow what came"
            )

    def receive(
        self, shard: int, arrival: IncomingShard, data: bytes, *, adds: bool, ends: bool
    ) -> None:
        """A part of a shard that comes. adds: to the states before its own; ends: its own.

        arrival: an empty one, for the first part.
        """
        one = self.incoming.setdefault(shard, arrival)
        assert one.version == arrival.version
        if one.is_whole and not adds:
            one.parts, one.ends = [], []
        one.parts.append(data)
        one.count += 1
        if ends:
            one.ends.append(len(one.parts))
        self._changed()

    def forget(self, shard: int) -> None:
        """The parts of a shard that came are dropped."""
        del self.incoming[shard]
        self._changed()

    def own(self, shard: int, version: int) -> IncomingShard:
        """The shard that came is this server's."""
        arrival = self.incoming.pop(shard)
        self.owned.append(shard)
        self.owned.sort()
        self.given.pop(shard, None)
        self.adopted[shard] = version
        self._changed()
        return arrival

    # -------------------------------------------------------------------------------------- state

    def to_json(self) -> dict[str, Any]:
        """The state that follows from the records, but for the parts."""
        return {
            "owned": list(self.owned),
            "given": {str(s): list(g) for s, g in sorted(self.given.items())},
            "adopted": {str(s): v for s, v in sorted(self.adopted.items())},
            "arrivals": {
                str(s): [a.version, a.source, a.count, list(a.ends), len(a.parts)]
                for s, a in sorted(self.incoming.items())
            },
        }

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The parts of shards on their way, (bytes,) uint8, by shard and number."""
        return {
            f"move.{shard}.{i}": np.frombuffer(part, np.uint8)
            for shard, arrival in sorted(self.incoming.items())
            for i, part in enumerate(arrival.parts)
        }

    def restore(self, data: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what to_json and to_arrays gave; the arrays are uint8."""
        self.owned[:] = data["owned"]
        self.given = {int(s): (int(to), int(v)) for s, (to, v) in data["given"].items()}
        self.adopted = {int(s): int(v) for s, v in data["adopted"].items()}
        self.incoming = {
            int(s): IncomingShard(
                v, source, n, ends, [arrays[f"move.{s}.{i}"].tobytes() for i in range(have)]
            )
            for s, (v, source, n, ends, have) in data["arrivals"].items()
        }
        self._changed()
