"""The process that the user started, with ``--warm keep``: it hands its launch to a launcher that
stays (keep.py), forwards signals, and ends with its code.
"""

from __future__ import annotations

import os
import sys
from time import sleep

from paddock.errors import EXIT_SIGNAL_BASE
from paddock.local.guardian import ASKED_MAX
from paddock.local.signals import forwarded_signals
from paddock.local.warm.keep import STATE_BYTES, Request, folder_of, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from paddock.core.job import Job
    from paddock.local.warm.keep import Place

SIGKILL = 9
START_SECONDS = 0.1  # from taking the lock to the socket
ANSWER_SECONDS = 10.0  # it may import what this launch would have to import
GONE_SECONDS = 30  # which a guardian may need to end what a launcher has left
# What runs us ends, or waits for, all that we have started.
HOSTS = {
    "SLURM_STEP_ID": "a Slurm step ends all that it has started",
    "OMPI_COMM_WORLD_RANK": "mpirun ends all that it has started",
    "PMI_RANK": "mpirun ends all that it has started",
    "KUBERNETES_SERVICE_HOST": "a pod ends with its first process",
}
OPEN_FILES = ("/dev/fd/", "/proc/self/fd/")  # only 0 to 2 are handed over
CODE = """# paddock: a launcher that stays (paddock warm list)
import sys
sys.path[:] = sys.argv.pop().split("\\n")
from paddock.cli.keeper import main
main()
"""


def launch_there(argv: Sequence[str], job: Job, env: Mapping[str, str]) -> int | None:
    """Returns the exit code; None: it has to be launched here, which was said if it matters."""
    why = _why_here(argv, job, env)
    if why is None:
        try:
            place = place_of(job, env, sys.executable)
            found = _reach(place, job)
        except OSError as error:
            why = f"{folder_of(env)}: {error.strerror}"
        else:
            if not isinstance(found, str):
                return _hand_over(found, Request(list(argv), dict(env), os.getcwd()))
            why = f"the one that is kept {found}"
    if why:
        sys.stderr.write(f"paddock: warning: not kept: {why}; this launch is as with --warm on\n")
    return None


def _why_here(argv: Sequence[str], job: Job, env: Mapping[str, str]) -> str | None:
    """Why no launcher may stay; "" where on and keep are the same."""
    if job.command.kind == "program":
        return ""
    found = [word for word in argv for name in OPEN_FILES if name in word]
    if found:
        return f"an argument names an open file: {found[0]}"
    if job.record:
        return "a submitted job leaves nothing behind"
    if os.isatty(0):
        return None  # somebody's shell, also in a pod, which goes on
    return next((why for name, why in HOSTS.items() if name in env), None)


def _reach(place: Place, job: Job) -> _Connection | str:
    """A launcher that stays, and is idle, started if there is none; or what is with it."""
    for _ in range(2):  # it may end just when we come
        lock = place.take()
        if lock is not None:
            try:
                _start(place, lock, job)
            finally:
                os.close(lock)
        found = place.connect()
        if found is None:  # another client is starting it, or somebody has removed the socket
            sleep(START_SECONDS)
            continue
        found.settimeout(ANSWER_SECONDS)
        words = _line(found).split()
        found.settimeout(None)
        if words[:1] == [b"idle"]:
            return _Connection(found, int(words[1]), int(words[2]))
        found.close()
        if words:
            return "is busy with another launch"
    return "does not answer (paddock warm stop)"


def _start(place: Place, lock: int, job: Job) -> None:
    """Start one. It is the lock's only holder when ours is closed. Raises OSError."""
    os.pwrite(lock, b" " * STATE_BYTES, 0)  # a full disk is met here, where it can be told
    command = job.command
    is_script = command.kind == "script"
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    with place.listen() as listener:
        facts = {
            "place": [place.folder, place.key],
            "lock": lock,
            "listener": listener.fileno(),
            "script": os.path.realpath(command.program) if is_script else command.program,
            "lease_seconds": job.lease_seconds,
        }
        for fd in (lock, listener.fileno()):
            os.set_inheritable(fd, True)
        argv = keeper_argv(facts)
        os.posix_spawn(sys.executable, argv, os.environ, file_actions=null, setsid=True)


def keeper_argv(facts: Mapping[str, object]) -> list[str]:
    """The command line of a launcher that stays, which reads names and texts as this process."""
    import json

    paths = "\n".join(os.path.abspath(path) for path in sys.path)
    mode = f"utf8={sys.flags.utf8_mode}"
    return [sys.executable, "-I", "-X", mode, "-c", CODE, json.dumps(facts), paths]


class _Connection:
    """To a launcher that stays, and its guardian."""

    def __init__(self, found: socket.socket, launcher: int, guardian: int) -> None:
        self.socket = found
        self.launcher = os.pidfd_open(launcher)
        self.guardian = os.pidfd_open(guardian)


def _hand_over(connection: _Connection, request: Request) -> int:
    """Have it launched; returns the exit code."""
    import signal

    try:
        request.send(connection.socket)  # a signal ends us, until it has all of it
    except OSError:
        pass
    asked = 0

    def forward(number: int, _frame: object) -> None:
        nonlocal asked
        asked += number not in (signal.SIGUSR1, signal.SIGUSR2)
        hurry = signal.SIGCONT if asked < ASKED_MAX else SIGKILL
        try:  # not to its pid: it may run another's job when we hear of it (Ctrl-Z)
            connection.socket.send(bytes([number]))
            signal.pidfd_send_signal(connection.launcher, hurry)
        except OSError:
            return  # the job is over

    for number in forwarded_signals():
        signal.signal(number, forward)
    line = _line(connection.socket)
    if line:
        return int(line)
    import select

    poller = select.poll()
    poller.register(connection.guardian, select.POLLIN)
    poller.poll(GONE_SECONDS * 1000)
    text = "the launcher that was kept, or its guardian, was killed; all processes ended"
    sys.stderr.write(f"paddock: error: {text}\n")
    return EXIT_SIGNAL_BASE + SIGKILL


def _line(connection: socket.socket) -> bytes:
    """A short line; b"" where the other side has ended."""
    line = b""
    while not line.endswith(b"\n"):
        try:
            part = connection.recv(64)
        except OSError:
            return b""
        if not part:
            return b""
        line += part
    return line
