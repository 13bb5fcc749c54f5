"""WarmProcess: the user's interpreter with the hook on its path; start, orders, messages, kill.

Messages are a kind, and lists of byte strings without NUL (pack() of the hook). Orders lie in
memory files that it reads through /proc, so the socket carries a short line only.

With ``--warm keep`` the process outlives a launch. The daemon is started anew after each launch, by
exec(2): it stays the parent of its children, and no state of one launch reaches the next but what
DaemonLoop writes.
"""

from __future__ import annotations

import json
import os

from paddock.core.job import Entrypoint
from paddock.local.loop import READ
from paddock.local.spawn import DEFAULT_SIGNALS
from paddock.local.warm.hook.sitecustomize import VARIABLE, pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Protocol

    from paddock.local.loop import Loop

    Lists = list[list[bytes]]

    class WarmDriver(Protocol):
        """The receiver of a WarmProcess's messages."""

        def on_message(self, kind: str, lists: Lists) -> None:
            """The process has sent a message."""

        def on_death(self, how: str, is_crash: bool) -> None:
            """The process has ended. is_crash False: killed by order, or out of memory."""


HOOK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
SAID_BYTES = 1 << 16  # of what imports print
SIGKILL = 9
ORDERED = (2, 9, 15)  # signals that people and the kernel send, and no crash
LEFT = ("env", "differing", "loaded", "skipped", "took", "files", "stamp")


class WarmProcess:
    """A warm process, from its start to its end. Owned by the loop's thread.

    command, env: of its start. differing: names of variables that it did not get.
    loaded: what it has imported, in took seconds. skipped: what it was not to import.
    files: of these modules. stamp: of the files, when they were read.
    """

    def __init__(self, loop: Loop, command: Entrypoint) -> None:
        self.driver: WarmDriver | None = None
        self.command = command
        self.env: Mapping[str, str] = {}
        self.differing: Sequence[str] = ()
        self.loaded: Sequence[str] = ()
        self.skipped: Sequence[str] = ()
        self.took = 0.0
        self.files: Sequence[str] = ()
        self.stamp = ""
        self._loop = loop
        self._inbox = b""
        self._output = [b"", b""]
        self._fds: list[int] = []  # all of ours
        self._orders: list[int] = []  # which it has not answered
        self._said = [-1, -1]
        self._socket = self._progress = self._pidfd = -1
        self.pid = 0
        self.is_dead = False

    def start(
        self, what: str, argv: tuple[str, ...], env: Mapping[str, str], *, has_stdin: bool
    ) -> None:
        """what: "probe" or "serve". has_stdin: it keeps ours, for a rank. Raises OSError."""
        self.env = env
        theirs: list[int] = []
        try:
            self._open(theirs)
            self.pid = self._spawn(what, argv, env, theirs, has_stdin=has_stdin)
            self._watch()
        except OSError:
            self.kill()
            raise
        finally:
            for fd in theirs:
                os.close(fd)

    def _watch(self) -> None:
        self._pidfd = os.pidfd_open(self.pid)
        self._fds.append(self._pidfd)
        self._loop.watch(self._pidfd, READ, self._ended)
        self._loop.watch(self._socket, READ, self._read)
        for fd in self._said:
            self._loop.watch(fd, READ, self._collect)

    def leave(self) -> dict[str, object]:
        """The state that take_over() needs, in this process after an exec(2)."""
        fds = [*self._said, self._socket, self._progress]
        for fd in fds:
            os.set_inheritable(fd, True)
        said = [data.decode("latin-1") for data in self.said]
        facts = {name: getattr(self, name) for name in LEFT}
        return {"pid": self.pid, "fds": fds, "said": said, "facts": facts}

    def take_over(self, left: Mapping[str, Any]) -> None:
        """Take over a warm process that this process has started before an exec(2)."""
        self.pid, self._fds = left["pid"], left["fds"]
        *self._said, self._socket, self._progress = self._fds
        self._output = [text.encode("latin-1") for text in left["said"]]
        vars(self).update(left["facts"])
        for fd in self._fds:
            os.set_inheritable(fd, False)
        self._watch()

    def _open(self, theirs: list[int]) -> None:
        """Open the socket and the files of its messages.

        theirs: its ends; the last four are 1, 2, CHANNEL and PROGRESS under numbers that are free
        here: ranks have all files that this process was started with.
        """
        import socket
        from fcntl import F_DUPFD_CLOEXEC, fcntl

        for number in (0, 1):
            self._said[number], write_fd = os.pipe2(os.O_CLOEXEC)
            self._fds.append(self._said[number])
            theirs.append(write_fd)
        ours, its = socket.socketpair()
        self._socket = ours.detach()
        theirs.append(its.detach())
        self._progress = os.memfd_create("paddock-warm")
        self._fds += [self._socket, self._progress]
        for fd in (*self._said, self._socket):
            os.set_blocking(fd, False)
        for fd in (*theirs, self._progress):
            theirs.append(fcntl(fd, F_DUPFD_CLOEXEC, 10))

    def _spawn(
        self,
        what: str,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        theirs: Sequence[int],
        *,
        has_stdin: bool,
    ) -> int:
        null = os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0
        path = env.get("PYTHONPATH")
        # The high numbers first, so that no step overwrites what a later one needs.
        wanted = [(theirs[2], theirs[-2]), (self._progress, theirs[-1])]
        wanted += [(theirs[-4], 1), (theirs[-3], 2)]
        return os.posix_spawnp(
            argv[0],
            argv,
            {
                **env,
                "PYTHONPATH": f"{HOOK}{os.pathsep}{path}" if path else HOOK,
                VARIABLE: f"{what} {os.getpid()} {theirs[-2]} {theirs[-1]}",
            },
            file_actions=[
                *((os.POSIX_SPAWN_DUP2, fd, number) for fd, number in wanted),
                *(() if has_stdin else (null,)),
            ],
            setpgroup=0,
            setsigmask=[],
            setsigdef=DEFAULT_SIGNALS,
        )

    # ------------------------------------------------------------------ orders

    def order(self, kind: str, lists: Sequence[Sequence[bytes]]) -> None:
        """Send an order. Raises OSError when it cannot be written."""
        fd = os.memfd_create("paddock-order")
        self._orders.append(fd)
        with open(fd, "wb", closefd=False) as f:
            f.write(pack(*lists))
        try:
            os.write(self._socket, f"{kind} /proc/{os.getpid()}/fd/{fd}\n".encode())
        except OSError:
            return  # it has died: its pidfd tells

    def kill(self) -> None:
        """Kill the process and its process group; no more messages come."""
        self._close_orders()
        for fd in self._fds:
            self._loop.unwatch(fd)
            os.close(fd)
        self._fds.clear()
        if self.pid:
            try:
                os.killpg(self.pid, SIGKILL)
            except ProcessLookupError:
                pass
            self.pid = 0  # the sweep reaps it: a process in D state would hold us up

    # ------------------------------------------------------------------- news

    @property
    def progress(self) -> bytes:
        """A counter, and the module being imported: changes while the process makes progress."""
        return os.pread(self._progress, 4096, 0) if self._fds else b""

    @property
    def at(self) -> str:
        """The name of the module being imported, "" for none."""
        return os.fsdecode(self.progress.partition(b" ")[2].partition(b"\0")[0])

    @property
    def said(self) -> list[bytes]:
        """The output so far on stdout and stderr, without NUL; the first SAID_BYTES."""
        self._collect()
        return self._output

    def _collect(self, _events: int = 0) -> None:
        for number, fd in enumerate(self._said):
            while fd in self._fds:
                try:
                    data = os.read(fd, 1 << 16)
                except BlockingIOError:
                    break
                if not data:
                    self._loop.unwatch(fd)
                    break
                room = SAID_BYTES - len(self._output[number])
                self._output[number] += data.replace(b"\0", b"")[: max(0, room)]

    def _ended(self, _events: int) -> None:
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if found is None:
            return
        self._read()  # its last words first
        if not self.pid:
            return  # they were reason enough
        self._loop.unwatch(self._pidfd)
        self.is_dead = True
        is_signal = found.si_code != os.CLD_EXITED
        how = "was killed by signal" if is_signal else "ended with exit code"
        is_crash = not (is_signal and found.si_status in ORDERED)
        if self.driver is not None:
            self.driver.on_death(f"{how} {found.si_status}", is_crash)

    def _read(self, _events: int = 0) -> None:
        try:
            data = os.read(self._socket, 1 << 20)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self._loop.unwatch(self._socket)
            return
        self._inbox += data
        try:
            found = list(self._messages())
        except (ValueError, IndexError):  # an import has written there
            found = [("failed", [[b"the warm server tells what is no message"]])]
        for kind, lists in found:
            if self.pid:
                self._close_orders()
                if self.driver is not None:
                    self.driver.on_message(kind, lists)

    def _messages(self) -> Iterator[tuple[str, Lists]]:
        """Take the complete messages: ``kind length`` on a line, then that many bytes."""
        while b"\n" in self._inbox:
            line, _, rest = self._inbox.partition(b"\n")
            kind, _, length = line.partition(b" ")
            if len(rest) < int(length):
                return
            self._inbox = rest[int(length) :]
            yield kind.decode(), unpack(rest[: int(length)])

    def _close_orders(self) -> None:
        for fd in self._orders:
            os.close(fd)
        self._orders.clear()


class DaemonLoop:
    """The loop of a launcher daemon, and the warm server that the last launch has left."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.warm: WarmProcess | None = None

    def write(self) -> int:
        """Write the state to a memfd, which an exec(2) leaves open; returns it."""
        fd = os.memfd_create("paddock-kept", 0)
        warm = self.warm
        with open(fd, "w", encoding="ascii", closefd=False) as f:
            json.dump(warm and [vars(warm.command), warm.leave()], f)
        return fd

    def read(self, fd: int) -> None:
        """Read the state that write() has left; closes the file."""
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, encoding="ascii") as f:
            found = json.load(f)
        if found is not None:
            command, left = found
            self.warm = WarmProcess(
                self.loop, Entrypoint(**{**command, "args": tuple(command["args"])})
            )
            self.warm.take_over(left)
