"""A record is a frame that changes a server: what each class of records has.

records.py has the class of each op.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header
from paddock.ps.xxh3 import Buffer

if TYPE_CHECKING:
    from paddock.ps.group.messages import Output
    from paddock.ps.server.serve import Server
    from paddock.ps.server.store import Store
    from paddock.ps.server.tables import ServerTable, TableLock

DELTA, STATISTICS = int(FrameFlag.DELTA), int(FrameFlag.STATISTICS)
CONTRIBUTION, LAST = int(FrameFlag.CONTRIBUTION), int(FrameFlag.LAST)
# A trainer pushes step s + 1 after it has seen s committed, perhaps not by this server yet.
STEPS_AHEAD_MAX = 2


class LogRecord:
    """A record, from its check to its answer. The engine calls its methods in their order here.

    Replicas and recovery call apply_meta and apply only: both depend on the store and the record
    alone, and cannot fail.

    numbered: a repeat is known by its trainer's sequence; the record is sent again under it.
    from_clients: a client may ask for it; the others are made by a server.
    overlapping: while it is applied, the next one of its table may be checked and logged.
    """

    numbered = False
    from_clients = True
    overlapping = False

    def __init__(self, header: Header, body: Buffer) -> None:
        self.header = header
        self.body = body

    @cached_property
    def data(self) -> dict[str, Any]:
        """The object in a JSON body. Raises RequestError."""
        return json_part(self.body)

    def check_sender(self, server: Server) -> None:
        """Raises RequestError when a client may not ask this server for it."""

    def locks(self, store: Store) -> list[TableLock]:
        """The locks under which it is checked, logged and applied, in order. Raises
        RequestError."""
        return []

    def check(self, store: Store) -> None:
        """Raises RequestError when it cannot be applied. Changes nothing but the room for rows."""

    def reserve(self, store: Store) -> None:
        """Raises RequestError when a replica has no memory to apply it."""

    def is_done(self, store: Store) -> bool:
        """True when a record without a number has been applied already."""
        return False

    def apply_meta(self, store: Store, lsn: int) -> list[Output] | None:
        """Applies what belongs to the server as a whole, in the order of the log; what the
        coordinator has to say then, if anything."""
        return None

    def apply(self, store: Store, lsn: int) -> None:
        """Applies what belongs to tables; the locks are held."""

    def answer(self, store: Store) -> dict[str, Any] | None:
        """The JSON answer, the same for repeats."""
        return None

    def after_write(self, server: Server) -> None:
        """The last work before the client has its answer. Raises RequestError."""


class TableRecord(LogRecord):
    """A record of one table."""

    def locks(self, store: Store) -> list[TableLock]:
        return [store.find(self.header.table).lock]

    def check_contribution(self, store: Store, held: ServerTable, size: int) -> None:
        """Raises RequestError when a contribution of so many bytes cannot be held apart."""
        if not self.header.flags & CONTRIBUTION:
            return
        pending, step = held.contributions, self.header.step
        if step > pending.committed + STEPS_AHEAD_MAX:
            raise RequestError(
                "behind",
                f"a contribution to step {step}, but step {pending.committed} is the last one "
                "known",
                facts={"step": pending.committed},
            )
        if not store.has_bytes(size):
            limit = max(1, store.memory_limit_bytes - store.nbytes + pending.nbytes)
            if pending.nbytes + size > limit:
                raise RequestError(
                    "memory",
                    f"contributions of a step take {pending.nbytes + size} bytes, the limit is "
                    f"{limit}",
                    hint="smaller batches, more servers, or a higher --memory-limit",
                )


def json_part(body: Buffer) -> dict[str, Any]:
    """The object in a JSON body. Raises RequestError."""
    try:
        data = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise RequestError("usage", f"a frame's body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RequestError(
            "usage", f"a frame's body is a JSON {type(data).__name__}, not an object"
        )
    return data
