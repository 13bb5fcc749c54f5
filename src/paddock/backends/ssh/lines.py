"""The logs of a job's hosts, as one stream."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from paddock.backends.merge import clock_ahead_ns, merge
from paddock.backends.ssh.channel import ANSWER_SECONDS, Channel
from paddock.backends.ssh.command import Target
from paddock.backends.ssh.pool import all_or_none
from paddock.backends.types import LogChunk, LogQuery
from paddock.errors import PaddockError

Row = tuple[int, str, bytes]

AHEAD = 64  # messages of a host that may wait for those of others


def merged(
    questions: Sequence[tuple[Target, dict[str, Any]]], query: LogQuery
) -> Iterator[LogChunk]:
    """Yield log chunks of all hosts, in order of time. questions: host and keys of each request.

    A host that cannot be asked, or is lost, does not keep back the others' lines: UsageError at the
    end names all such hosts.
    """
    hosts = [_Host(target, request, query) for target, request in questions]
    try:
        yield from merge([(host.rows(), host.ahead_ns()) for host in hosts], query.tail)
    finally:
        for host in hosts:
            host.close()
    all_or_none([host.error for host in hosts if host.error is not None])


class _Host:
    """The log rows of a host, read ahead by a thread of its own."""

    def __init__(self, target: Target, request: dict[str, Any], query: LogQuery) -> None:
        self._news: queue.Queue[Row | None] = queue.Queue(AHEAD)
        self._ahead: Future[int] = Future()
        self.error: PaddockError | None = None
        self._target = target
        self._is_closed = False
        self._request = {
            **request, "ranks": query.ranks, "since": query.since, "until": query.until,
            "follow": query.follow, "tail": query.tail, "host": target.name,
            "asked_at": time.time(),
        }  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def ahead_ns(self) -> int:
        """Return the host's clock minus ours."""
        return self._ahead.result()

    def rows(self) -> Iterator[Row]:
        """Yield the host's rows until it has no more; `error` says if it was lost."""
        while (row := self._news.get()) is not None:
            yield row

    def close(self) -> None:
        """Stop reading from the host."""
        self._is_closed = True
        while not self._news.empty():
            self._news.get_nowait()

    def _read(self) -> None:
        try:
            with Channel(self._target) as channel:
                asked = time.time_ns()
                channel.send("logs", **self._request)
                clock, _ = channel.receive(ANSWER_SECONDS)
                sample = asked, int(clock["now_ns"]), time.time_ns()
                self._ahead.set_result(clock_ahead_ns([sample]))
                while not self._is_closed:
                    row, data = channel.receive(ANSWER_SECONDS)
                    if row.get("ended"):
                        break
                    self._news.put((int(row["at_ns"]), str(row["label"]), data))
        except PaddockError as error:
            self.error = error
        except (KeyError, TypeError, ValueError, OverflowError):
            self.error = PaddockError(f"{self._target.login}: it answers something that is no log")
        finally:
            if not self._ahead.done():  # nothing came
                self._ahead.set_result(0)
            self._news.put(None)
