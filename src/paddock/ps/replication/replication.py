"""Replication is what a server asks before it answers; this one is of a server that is alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.ps.wire.errors import RequestError

if TYPE_CHECKING:
    from paddock.ps.stream import FrameStream
    from paddock.ps.wire.frames import Header


class Replication:
    """The engine, the server and its snapshots ask it about a pair. Without one the server is
    always the primary, of term 1; pair.py has the other answers."""

    is_replicated = False

    @property
    def term(self) -> int:
        """The number of the primary's term, from 1."""
        return 1

    def may_serve(self) -> bool:
        """True when the server is to answer reads."""
        return True

    def may_write(self) -> int:
        """The term in which this server takes writes. Raises RequestError when it does not."""
        return 1

    def refusal(self) -> RequestError:
        """The reason why this server does not serve, and who does as far as it knows."""
        raise AssertionError("a server without a replica always serves")

    def appended(self) -> None:
        """A record was logged; `engine.order` is held."""

    def replicated(self, lsn: int, term: int) -> None:
        """Wait until a record that was logged in `term` may be acknowledged. Raises
        RequestError."""

    def high_watermark(self, lsn: int) -> int:
        """The newest record up to `lsn` that no failover can take back."""
        return lsn

    def keep_from(self, lsn: int) -> int:
        """The lsn from which on the log must stay, when snapshots need it from `lsn` on."""
        return lsn

    def feed(self, stream: FrameStream, header: Header, body: memoryview) -> None:
        """Serve a replica's connection to its end. Raises RequestError."""
        hint = "start it with --witness HOST:PORT"
        raise RequestError("usage", "this server has no replica", hint=hint)

    def describe(self) -> dict[str, Any] | None:
        """Facts for `paddock ps status`."""
        return None

    def start(self) -> None:
        """Begin to ask the witness, and to follow whom it names."""

    def stop(self) -> None:
        """Give the lease up, so that the other server takes over at once; let go of who waits."""
