"""The console of an attached job: its submitter stays; Ctrl-C here ends the job on the hosts."""

from __future__ import annotations

import io
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

from paddock.backends.backend import EndUnknownError, Say
from paddock.backends.merge import MergedConsole, for_terminal
from paddock.backends.node.jobdir import SCREEN
from paddock.backends.node.logs import LINE_BYTES
from paddock.backends.node.main import ATTACHED_LEASE_SECONDS
from paddock.backends.ssh.channel import Channel
from paddock.backends.ssh.pool import HostGroup
from paddock.backends.ssh.state import checked
from paddock.errors import EXIT_OWN_FAULT, PaddockError
from paddock.local.output.console import write_all

News = tuple[int, dict[str, Any] | PaddockError, bytes]

PING_SECONDS = ATTACHED_LEASE_SECONDS / 4
KEPT_LINES = 20
AHEAD = 256  # messages that may wait to be shown
ROUND_SECONDS = 0.2


class Attached:
    """The console of an attached job.

    The first host's is shown whole; of the others, their ranks' output. The last lines of their
    launchers are kept. If the first host is lost, the next one takes over.
    """

    def __init__(self, group: HostGroup, requests: list[dict[str, Any]], say: Say) -> None:
        self._group = group
        self._requests = requests  # keys of a request that name the job, by host
        self._has_stopped = False
        self._say = say
        # Bounded: output that a blocked terminal does not take stays on the hosts.
        self._news: queue.Queue[News] = queue.Queue(AHEAD)
        self._is_over = threading.Event()
        self._rest: dict[tuple[int, bool], bytes] = {}  # of a line, by host and file
        self._kept: list[deque[bytes]] = [deque(maxlen=KEPT_LINES) for _ in group.channels]
        self._teller = 0  # the host whose launcher is heard
        self._ended: dict[int, dict[str, Any] | PaddockError] = {}
        self._asked = self._stopped_by = 0
        self._screen = (
            MergedConsole() if os.isatty(1) else None
        )  # a file has what was said as it is

    def run(self) -> int:
        """Show the console until all hosts have ended; return the job's exit code."""
        for index, channel in enumerate(self._group.channels):
            threading.Thread(target=self._read, args=(index, channel), daemon=True).start()
        threading.Thread(target=self._ping, daemon=True).start()
        before = {n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            while len(self._ended) < len(self._group.channels):
                self._take()
            if self._screen is not None:
                write_all(1, self._screen.last())
        finally:
            self._is_over.set()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._end()

    def _read(self, index: int, channel: Channel) -> None:
        try:
            channel.send("follow", **self._requests[index])
            while True:
                row, data = channel.receive()
                self._news.put((index, row, data))
                if row.get("ended"):
                    return
        except PaddockError as error:
            self._news.put((index, error, b""))

    def _ping(self) -> None:
        """Renew the attached lease, even if our output is blocked: a paused terminal is no loss."""
        while not self._is_over.wait(PING_SECONDS):
            self._tell_all("ping")

    def _take(self) -> None:
        self._stop_if_asked()
        try:
            index, row, data = self._news.get(timeout=ROUND_SECONDS)
        except queue.Empty:
            return
        if isinstance(row, PaddockError):
            self._ended[index] = row
            self._say(f"warning: {row.message}")
            if index == self._teller:
                self._hear_another()
        elif row.get("ended"):
            self._ended[index] = row
        elif data:
            self._show(index, data, is_screen=row.get("re") == SCREEN)

    def _hear_another(self) -> None:
        for index, lines in enumerate(self._kept):
            if not isinstance(self._ended.get(index), PaddockError):
                self._teller = index
                self._tell(index, lines)
                return

    def _show(self, index: int, data: bytes, *, is_screen: bool = False) -> None:
        """Show output that has come from a host's console or screen."""
        if index == 0:
            write_all(1, data if self._screen is None else self._screen.shown(data))
            return
        whole = self._rest.get((index, is_screen), b"") + data
        end = whole.rfind(b"\n") + 1
        if len(whole) - end > LINE_BYTES:  # a progress bar of hours
            whole, end = whole + b"\n", len(whole) + 1
        self._rest[index, is_screen] = whole[end:]
        lines = io.BytesIO(whole[:end])  # at newlines only: a progress bar is one line
        if is_screen and index != self._teller:
            self._kept[index].extend(lines)
        else:
            self._tell(index, lines)

    def _tell(self, index: int, lines: Iterable[bytes]) -> None:
        """Write lines of a host, which their prefix names."""
        prefix = f"[{self._group.channels[index].target.login}] ".encode()
        is_terminal = self._screen is not None
        shown = (for_terminal(line) if is_terminal else line for line in lines)
        write_all(1, b"".join(prefix + line for line in shown))

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._asked += 1
        self._stopped_by = self._stopped_by or number

    def _stop_if_asked(self) -> None:
        if self._asked:
            now, self._asked = self._asked > 1 or self._has_stopped, 0
            self._has_stopped = True
            self._say("stopping; once more for at once" if not now else "stopping at once")
            self._tell_all("stop", now=now, signal=self._stopped_by)

    def _tell_all(self, op: str, **row: Any) -> None:
        for index, channel in enumerate(self._group.channels):
            if index not in self._ended:
                with suppress(PaddockError):  # its reader gets the same error
                    channel.send(op, **self._requests[index], **row)

    def _end(self) -> int:
        """Return the job's exit code. Raises EndUnknownError when every connection was lost."""
        rows = [self._ended[index] for index in sorted(self._ended)]
        codes = [None if isinstance(r, PaddockError) else checked(r)["code"] for r in rows]
        if codes[0] is not None:
            return int(codes[0])
        if all(isinstance(row, PaddockError) for row in rows):
            names = [channel.target.login for channel in self._group.channels]
            raise EndUnknownError(
                f"the connection to {', '.join(names)} was lost, and the job ends because of it,"
                f" within {ATTACHED_LEASE_SECONDS:g} s and its --grace; how it ended is unknown"
                " until a host can be asked"
            )
        return next((int(code) for code in codes if code), EXIT_OWN_FAULT)
