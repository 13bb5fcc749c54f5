"""The same to all hosts at once: every failure is named, none is hidden by the first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from paddock.backends.ssh.channel import Channel
from paddock.errors import PaddockError, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paddock.backends.ssh.command import Target

AT_ONCE_MAX = 64
T = TypeVar("T")
R = TypeVar("R")


def at_all(items: Sequence[T], do: Callable[[T], R]) -> list[R | PaddockError]:
    """do(item) for each, at the same time; an error stands in its result's place."""

    def tried(item: T) -> R | PaddockError:
        try:
            return do(item)
        except PaddockError as error:
            return error

    if not items:
        return []
    with ThreadPoolExecutor(min(len(items), AT_ONCE_MAX), "paddock-ssh") as pool:
        return list(pool.map(tried, items))


def all_or_none(results: Sequence[R | PaddockError]) -> list[R]:
    """The results. Raises UsageError with every error that is among them."""
    errors = [r for r in results if isinstance(r, PaddockError)]
    if errors:
        raise UsageError.of([Problem(e.message, e.hint) for e in errors])
    return [r for r in results if not isinstance(r, PaddockError)]


class Fleet:
    """A connection to each host, in the order of the nodes."""

    def __init__(self, targets: Sequence[Target], ssh: str = "ssh") -> None:
        """Connect to all of them; to none when one fails. Raises UsageError."""
        found = at_all(targets, lambda target: Channel(target, ssh))
        self.channels = [c for c in found if isinstance(c, Channel)]
        if len(self.channels) < len(targets):
            self.close()
            all_or_none(found)

    def each(self, do: Callable[[int, Channel], R]) -> list[R]:
        """do(index, channel) at all of them. Raises UsageError with every failure."""
        numbered = list(enumerate(self.channels))
        return all_or_none(at_all(numbered, lambda pair: do(*pair)))

    def close(self) -> None:
        """Let all go."""
        at_all(self.channels, lambda channel: channel.close())
