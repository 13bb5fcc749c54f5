"""Replication is what a server asks before it answers; one without a replica asks NotReplicated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from paddock.ps.wire.errors import RequestError

if TYPE_CHECKING:
    from paddock.ps.stream import FrameStream
    from paddock.ps.wire.frames import Header


class Replication(Protocol):
    """The interface by which the engine, the server and its snapshots ask about a pair."""

    is_replicated: bool

    @property
    def term(self) -> int:
        """The number of the primary's term, from 1."""

    def may_serve(self) -> bool:
        """True when the server is to answer reads."""

    def may_write(self) -> int:
        """The term in which this server takes writes. Raises RequestError when it does not."""

    def refusal(self) -> RequestError:
        """Why this server does not serve, and who does as far as it knows."""

    def appended(self) -> None:
        """A record was logged; `engine.order` is held."""

    def replicated(self, lsn: int, term: int) -> None:
        """Wait until a record of `term` may be acknowledged. Raises RequestError."""

    def high_watermark(self, lsn: int) -> int:
        """The newest record up to `lsn` that no failover can take back."""

    def keep_from(self, lsn: int) -> int:
        """The lsn from which on the log must stay, when snapshots need it from `lsn` on."""

    def feed(self, stream: FrameStream, header: Header, body: memoryview) -> None:
        """Serve a replica's connection to its end. Raises RequestError."""

    def describe(self) -> dict[str, Any] | None:
        """Facts for `paddock ps status`."""

    def start(self) -> None:
        """Begin to ask the witness, and to follow whom it names."""

    def stop(self) -> None:
        """Give the lease up; let go of who waits."""


class NotReplicated:
    """The replication of a server that is alone: always the primary, of term 1."""

    is_replicated = False
    term = 1

    def may_serve(self) -> bool:
        return True

    def may_write(self) -> int:
        return self.term

    def refusal(self) -> RequestError:
        raise AssertionError("a server without a replica always serves")

    def appended(self) -> None:
        """The record needs to go nowhere else."""

    def replicated(self, lsn: int, term: int) -> None:
        """The record is safe already."""

    def high_watermark(self, lsn: int) -> int:
        return lsn

    def keep_from(self, lsn: int) -> int:
        return lsn

    def feed(self, stream: FrameStream, header: Header, body: memoryview) -> None:
        raise RequestError(
            "usage", "this server has no replica", hint="start it with --witness HOST:PORT"
        )

    def describe(self) -> None:
        return None

    def start(self) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing ran."""
