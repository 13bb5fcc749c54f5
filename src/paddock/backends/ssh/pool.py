"""The same request to all hosts at once: every failure is named, none is hidden by the first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from paddock.backends.ssh.channel import ANSWER_SECONDS, Channel
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
    """The connections of a submission to its hosts, in the order of the nodes."""

    def __init__(self, targets: Sequence[Target]) -> None:
        """Connect to all hosts; to none when one fails. Raises UsageError."""
        found = at_all(targets, Channel)
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
        at_all(self.channels, Channel.close)


REPEATABLE = ("status", "ping", "stop")  # may be asked twice


class ConnectionPool:
    """The connections of this process, one to each host, which is asked in turn.

    They stay open until the process ends, for the questions of later pools. One pool does not try
    a host again that could not be asked. is_brief: short time limits.
    """

    _open: ClassVar[dict[Target, Channel]] = {}
    _locks: ClassVar[dict[Target, threading.Lock]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()  # of _locks

    def __init__(self, *, is_brief: bool = False) -> None:
        self._is_brief = is_brief
        self._failed: dict[Target, PaddockError] = {}

    def ask_all(
        self, op: str, questions: Sequence[tuple[Target, Mapping[str, Any]]]
    ) -> list[dict[str, Any] | PaddockError]:
        """Return the answer to each request (host, fields), or the error why there is none."""
        of_host: dict[Target, list[int]] = {}
        for at, (target, _) in enumerate(questions):
            of_host.setdefault(target, []).append(at)
        found: dict[int, dict[str, Any] | PaddockError] = {}

        def ask(target: Target) -> None:
            with self._lock:
                lock = self._locks.setdefault(target, threading.Lock())
            with lock:
                for at in of_host[target]:
                    found[at] = self._ask(target, op, questions[at][1])

        at_all(list(of_host), ask)
        return [found[at] for at in range(len(questions))]

    def _ask(
        self, target: Target, op: str, row: Mapping[str, Any]
    ) -> dict[str, Any] | PaddockError:
        if target in self._failed:
            return self._failed[target]
        limits, seconds = target, ANSWER_SECONDS
        if self._is_brief:
            if target.connect_seconds == CONNECT_SECONDS:  # else it was chosen by the user
                limits = replace(target, connect_seconds=BRIEF_SECONDS)
            seconds = limits.connect_seconds + BRIEF_SECONDS
        channel = kept = self._open.pop(target, None)
        answer: dict[str, Any] | PaddockError
        try:
            if channel is None or not channel.is_open:
                channel = kept = None
                channel = Channel(limits, answer_seconds=seconds)
            channel.answer_seconds = seconds
            answer = channel.ask(op, **row)
        except PaddockError as error:
            if channel is None or not channel.is_open:
                if kept is not None and op in REPEATABLE:  # it broke unnoticed: connect anew
                    return self._ask(target, op, row)
                self._failed[target] = error
                return error
            answer = error
        self._open[target] = channel
        return answer
