"""The same request to all hosts at once: every failure is named, none is hidden by the first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from paddock.backends.ssh.channel import Channel
from paddock.backends.ssh.command import CONNECT_SECONDS, Target
from paddock.errors import PaddockError, Problem, refuse

AT_ONCE_MAX = 64
BRIEF_SECONDS = 3
T = TypeVar("T")
R = TypeVar("R")


def at_all(items: Sequence[T], do: Callable[[T], R]) -> list[R | PaddockError]:
    """Return do(item) for each, called in parallel; an error stands in its result's place."""
    if not items:
        return []
    with ThreadPoolExecutor(min(len(items), AT_ONCE_MAX), "paddock-ssh") as pool:
        return list(pool.map(lambda item: tried(do, item), items))


def tried(do: Callable[[T], R], item: T) -> R | PaddockError:
    """Return do(item), or the error that it raised."""
    try:
        return do(item)
    except PaddockError as error:
        return error


def all_or_none(results: Sequence[R | PaddockError]) -> list[R]:
    """Return the results. Raises UsageError with every error that is among them."""
    errors = [r for r in results if isinstance(r, PaddockError)]
    refuse([Problem(e.message, e.hint) for e in errors])
    return [r for r in results if not isinstance(r, PaddockError)]


class HostGroup:
    """The connections to all hosts of a job, in the order of the nodes."""

    def __init__(self, targets: Sequence[Target], ssh: str = "ssh") -> None:
        """Connect to all hosts; to none when one fails. Raises UsageError."""
        found = at_all(targets, lambda target: Channel(target, ssh))
        self.channels = [c for c in found if isinstance(c, Channel)]
        if len(self.channels) < len(targets):
            self.close()
            all_or_none(found)

    def each(self, do: Callable[[int, Channel], R]) -> list[R]:
        """Return do(index, channel) for all hosts. Raises UsageError with every failure."""
        numbered = list(enumerate(self.channels))
        return all_or_none(at_all(numbered, lambda pair: do(*pair)))

    def close(self) -> None:
        """Close all connections."""
        at_all(self.channels, lambda channel: channel.close())


class ConnectionPool:
    """The connections for questions about many jobs: one to each host, which is asked in turn.

    A host that cannot be asked is not tried again. is_brief: short time limits.
    """

    def __init__(self, *, is_brief: bool = False) -> None:
        self._is_brief = is_brief
        self._found: dict[Target, tuple[threading.Lock, Channel | PaddockError]] = {}

    def connect(self, targets: Iterable[Target]) -> None:
        """Connect to the targets that are not connected yet, in parallel."""
        new = [each for each in dict.fromkeys(targets) if each not in self._found]
        for target, found in zip(new, at_all(new, self._channel), strict=True):
            self._found[target] = threading.Lock(), found

    def ask(self, target: Target, op: str, **row: Any) -> dict[str, Any] | PaddockError:
        """Return the answer of a connected host, or the error that says why it cannot be asked."""
        lock, found = self._found[target]
        if isinstance(found, PaddockError):
            return found
        with lock:
            return tried(lambda channel: channel.ask(op, **row), found)

    def close(self) -> None:
        """Close all connections."""
        found = [each for _, each in self._found.values()]
        at_all([c for c in found if not isinstance(c, PaddockError)], lambda c: c.close())

    def _channel(self, target: Target) -> Channel:
        if not self._is_brief:
            return Channel(target)
        if target.connect_seconds == CONNECT_SECONDS:  # else it was chosen by the user
            target = replace(target, connect_seconds=BRIEF_SECONDS)
        return Channel(target, answer_seconds=target.connect_seconds + BRIEF_SECONDS)
