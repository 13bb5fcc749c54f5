"""The launcher daemon (``--warm keep``), which launches one job after the other.

Started by a client (local/warm/keep.py), as a guardian and a launcher like any other. After each
job it starts itself anew, by exec(2), and keeps its pid, its children, the lock, the socket and
what local/warm/process.py writes. Idle for KEPT_SECONDS it ends.
"""

from __future__ import annotations

import json
import os
import sys
from time import tzset

from paddock.cli import launch
from paddock.cli.main import answered
from paddock.errors import EXIT_OWN_FAULT
from paddock.local.guardian import end_descendants, hold_signals, split, take_signals
from paddock.local.loop import READ, Loop
from paddock.local.warm import keep
from paddock.local.warm.process import DaemonLoop
from paddock.local.warm.server import WarmServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import Any

KEPT_SECONDS = 1800.0
LOOK_SECONDS = 60.0
KEPT_MAX = 4  # that are idle: each has what its script imports


class LauncherDaemon:
    """The launcher daemon of --warm keep: waits for launches, and runs one at a time.

    facts: place, lock, listener, script, lease_seconds; state and guardian after an exec.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        import socket

        self.facts = facts
        self.place = keep.DaemonDirectory(*facts["place"])
        self.listener = socket.socket(fileno=facts["listener"])
        for fd in (facts["lock"], facts["listener"]):
            os.set_inheritable(fd, False)
        self.guardian_pid: int = facts["guardian"]
        self.loop = Loop()
        self.kept = DaemonLoop(self.loop)
        if "state" in facts:
            self.kept.read(facts["state"])
        self._until = 0.0
        self._found: tuple[socket.socket, keep.LaunchRequest, list[int]] | None = None

    # -------------------------------------------------------------------- idle

    def wait(self) -> tuple[socket.socket, keep.LaunchRequest, list[int]] | None:
        """Wait for a launch; None after KEPT_SECONDS, or `paddock warm stop`."""
        self.loop.watch(os.pidfd_open(self.guardian_pid), READ, lambda _events: _end())
        if os.getppid() != self.guardian_pid:  # it has died before, and its pid may be another's
            _end()
        if not self.place.is_held_by(self.facts["lock"]):
            return None
        if self.kept.warm is not None:
            # A client waits in the queue until it is done: it would have had to import.
            command = self.kept.warm.command
            warm = WarmServer(self.loop, command, os.environ, lambda *_: None, kept=self.kept)
            warm.prepare(lambda: self.loop.post(lambda: self._open(warm)))
        else:
            self._open(None)
        self.loop.run()
        return self._found

    def _open(self, warm: WarmServer | None) -> None:
        if warm is not None:
            warm.close()
        self._say("idle")
        self.loop.watch(self.listener.fileno(), READ, lambda _events: self._on_client())
        self._until = self.loop.now() + KEPT_SECONDS
        self._look()
        found = [each for each in keep.all_found(os.environ) if each.state == "idle"]
        for each in sorted(found, key=lambda each: each.since)[:-KEPT_MAX]:
            each.stop()

    def _look(self) -> None:
        """Stop the loop if it is time to end: called at each client, and once a minute."""
        now = self.loop.now()
        if now >= self._until or not self.place.is_held_by(self.facts["lock"]):
            self.loop.stop()
        self.loop.at("keep", min(self._until, now + LOOK_SECONDS), self._look)

    def _on_client(self) -> None:
        client = self._accept(b"idle %d %d\n" % (os.getpid(), self.guardian_pid))
        if client is not None:
            hold_signals()
            got = keep.receive(client)
            if got is not None:
                self._found = (client, *got)
                self.loop.at("keep", None, self._look)
                self.loop.stop()
                return
            take_signals()
            client.close()
        self._look()

    def _accept(self, greeting: bytes) -> socket.socket | None:
        try:
            client, _ = self.listener.accept()
        except OSError:  # out of descriptors: clients wait for the end of the job
            self.loop.unwatch(self.listener.fileno())
            return None
        try:
            if keep.is_ours(client):
                client.sendall(greeting)
                return client
        except OSError:
            pass  # it has gone
        client.close()
        return None

    # --------------------------------------------------------------------- job

    def launch(self, client: socket.socket, request: keep.LaunchRequest, fds: list[int]) -> None:
        """Launch the job, and send its exit code to the client."""
        self._say("busy")
        self.loop.watch(self.listener.fileno(), READ, lambda _events: self._refuse())
        self.loop.watch(client.fileno(), READ, lambda _events: _hear(client))
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.environ.clear()
        os.environ.update(request.env)
        tzset()
        code = EXIT_OWN_FAULT
        try:
            os.chdir(request.cwd)
            job = (request.argv, self.guardian_pid, self.kept)
            code = answered(lambda: launch.run_here(launch.read(request.argv), *job))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            hold_signals()
            self._say("importing")
            try:
                client.sendall(b"%d\n" % (code & 255))
            except OSError:
                pass

    def _refuse(self) -> None:
        client = self._accept(b"busy\n")
        if client is not None:
            client.close()

    # ------------------------------------------------------------------- again

    def again(self) -> None:
        """Start this process anew by exec(2), with nothing of the last job but the warm server."""
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        for fd in (self.facts["lock"], self.facts["listener"]):
            os.set_inheritable(fd, True)
        facts = {**self.facts, "guardian": self.guardian_pid, "state": self.kept.write()}
        os.execv(sys.executable, keep.daemon_argv(facts))

    def leave(self) -> None:
        """Remove the socket and the lock, if they are still this daemon's."""
        if self.place.is_held_by(self.facts["lock"]):
            self.place.remove()

    def _say(self, state: str) -> None:
        """Write the state into the lock file, for `paddock warm list`."""
        row = {"pid": os.getpid(), "script": self.facts["script"], "state": state}
        data = json.dumps(row).encode("ascii").ljust(keep.STATE_BYTES)
        os.pwrite(self.facts["lock"], data, 0)


def _hear(client: socket.socket) -> None:
    """Pass on the client's signals; at its end, end as a launcher whose guardian was killed."""
    try:
        numbers = client.recv(64)
    except ConnectionResetError:
        numbers = b""
    if not numbers:
        _end()
    for number in numbers:
        os.kill(os.getpid(), number)


def _end() -> None:
    """Kill all descendants, also an import that ignores its parent's end, and exit with 137."""
    end_descendants()
    os._exit(137)


def main() -> None:
    """Run the daemon: a process started by a client, or by itself through exec(2)."""
    facts: dict[str, Any] = json.loads(sys.argv[1])
    code = EXIT_OWN_FAULT
    try:
        if "guardian" not in facts:
            kept = (facts["lock"], facts["listener"])
            for fd in map(int, os.listdir("/proc/self/fd")):
                if fd > 2 and fd not in kept:
                    try:
                        os.close(fd)
                    except OSError:
                        continue  # the one that has listed them
            facts["guardian"] = split(facts["lease_seconds"])
        take_signals()
        daemon = LauncherDaemon(facts)
        found = daemon.wait()
        if found is not None:
            daemon.launch(*found)
            daemon.again()
        daemon.leave()
        code = 0
    finally:
        os._exit(code)
