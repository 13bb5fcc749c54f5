"""One folder with everything that a running test cluster has, and the programs started in it.

Programs run in sessions of their own, so that Ctrl-C reaches the tests and not them; they end by
SIGKILL, by pid (an API server takes a minute to end politely while clients watch). Whatever
happens to the tests, a guard process removes all of it (sweep.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.control import groups, sweep
from stopped import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Under Debian's sudo and cron the sbin folders are missing; ip and iptables are there.
PATH = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/local/sbin:/usr/sbin:/sbin"
TAIL_LINES = 15
POLL_SECONDS = 0.05


class ClusterError(Exception):
    """A part of the cluster did not do what it was told. The text says which, and its log."""


class Program:
    """One program of a ground; it can be killed and started again."""

    def __init__(self, ground: Ground, name: str, argv: Sequence[str], group: str) -> None:
        self.name = name
        self.log = ground.folder / "log" / f"{name}.log"
        self._ground = ground
        self._argv = list(argv)
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False

    @property
    def pid(self) -> int:
        """Its process. The program must be running."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, again if it was killed; its log is continued."""
        assert not self.is_running, f"{self.name} is running"
        with open(self.log, "ab") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(
                self._argv, cwd=self._ground.folder, env=self._ground.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        file = self._ground.folder / "pids" / self.name
        file.write_text(sweep.stamp(self._process.pid) + "\n", "utf-8")
        if self._group:
            groups.join_group(self._group, self._process.pid)

    def kill(self) -> None:
        """kill -9; comes back when it is gone. Nothing happens when it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._is_paused = False

    def pause(self) -> None:
        """SIGSTOP: its connections stay open and nothing answers."""
        stop([self.pid])
        self._is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)
        self._is_paused = False

    def mend(self) -> bool:
        """Let it go on, or start it again; whether anything had to be done."""
        if self.is_running and not self._is_paused:
            return False
        if self.is_running:
            self.resume()
        else:
            self.kill()  # takes the exit status of one that ended by itself
            self.start()
        return True

    def has_said(self, text: str) -> bool:
        """Whether that stands in its log since it was last started."""
        return text.encode() in self.log.read_bytes()[self._began :]

    def tail(self) -> str:
        """The last lines of its log, with the log's name above them."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()
        except OSError:
            lines = []
        return "\n  ".join([f"{self.log}:", *(lines[-TAIL_LINES:] or ["(empty)"])])


class Ground:
    """A folder, the programs started in it, and the guard that outlives us."""

    def __init__(self) -> None:
        sweep.sweep_stale()
        # Short: the paths of Unix sockets below it may have 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix=sweep.PREFIX))
        (self.folder / "owner").write_text(sweep.stamp(os.getpid()) + "\n", "utf-8")
        for name in ("log", "pids", "bin"):
            (self.folder / name).mkdir()
        self.environment: Mapping[str, str] = {"PATH": PATH, "HOME": str(self.folder)}
        self.programs: dict[str, Program] = {}
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", sweep.__file__, str(self.folder)],
            stdin=subprocess.PIPE, start_new_session=True, env={"PATH": PATH},
        )  # fmt: skip

    def start(
        self, name: str, *argv: object, enter: Sequence[str] = (), group: str = ""
    ) -> Program:
        """Start a program.

        Args:
            enter: what the command begins with, such as nsenter and its namespaces.
            group: a control group made by make_group, which the program joins.
        """
        program = Program(self, name, [*enter, *map(str, argv)], group)
        self.programs[name] = program
        program.start()
        return program

    def make_group(self, name: str) -> str:
        """Make a control group that is removed, with all that is in it, at the end."""
        with open(self.folder / "groups", "a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        try:
            groups.make_group(name)
        except OSError as error:
            raise ClusterError(f"cannot make the control group {name}: {error}") from error
        return name

    def wait(
        self, what: str, done: Callable[[], bool], *programs: Program, seconds: float = 30.0
    ) -> None:
        """Come back when it is done. The programs are those whose fault it is if not.

        Raises: ClusterError, when time is up or one of the programs has ended.
        """
        deadline = time.monotonic() + seconds
        while not done():
            ended = [p for p in programs if not p.is_running]
            if ended or time.monotonic() > deadline:
                why = f"{ended[0].name} ended" if ended else f"not after {seconds:g} s"
                raise ClusterError("\n".join([f"{what}: {why}", *(p.tail() for p in programs)]))
            time.sleep(POLL_SECONDS)  # sleep: other programs' states wake nobody here

    def run(self, *argv: object, enter: Sequence[str] = (), seconds: float = 60.0) -> str:
        """Run a command to its end; its output. Raises: ClusterError, with what it said."""
        words = [*enter, *map(str, argv)]
        try:
            done = subprocess.run(
                words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=seconds,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterError(f"{' '.join(words)}: {error}") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise ClusterError(f"{' '.join(words)}: exit {done.returncode}: {said}")
        return done.stdout

    def close(self) -> None:
        """End every program and remove the folder. May be called twice."""
        if self._guard.stdin is None or self._guard.stdin.closed:
            return
        for program in reversed(self.programs.values()):
            program.kill()
        sweep.sweep(self.folder)
        # Only now: until here the guard would have done it in our place.
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard.wait()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing used a moment ago, all different."""
    socks = [socket.socket() for _ in range(count)]
    try:
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in socks]
    finally:
        for sock in socks:
            sock.close()
