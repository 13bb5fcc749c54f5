"""Launcher daemons (``--warm keep``): how they are found, and how a launch is handed to one.

A lock and a socket for each, in a directory that is this user's alone. Their name is a digest of
what a launcher cannot change in itself, or its warm server in itself: a launch goes to one that
has all of it, or starts another.

    client, the process that the user started    launcher that stays
                                          <---   "idle PID GUARDIAN" or "busy"
    arguments, environment, files 0 to 2  --->
    signals, a byte each                  --->   (so that none reaches another job)
                                          <---   exit code
    A side that sees the connection end before that takes the other for dead.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from time import sleep

from paddock import __version__
from paddock.errors import EXIT_SIGNAL_BASE
from paddock.local.guardian import ASKED_MAX, children_of, forwarded_signals, pause
from paddock.local.runs.control import peer_uid, short_path
from paddock.local.runs.entry import CALLER_FD
from paddock.local.warm.profile import make_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping, Sequence

    from paddock.core.job import Job

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
from paddock.cli.warm_daemon import main
main()
"""
STATE_BYTES = 4096  # of what a launcher tells in its lock
REQUEST_SECONDS = 5.0  # of silence in the middle of a request
# What the kernel knows of a process, and its children inherit.
STATUS = ("Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "SigIgn", "Cap",
          "Cpus_allowed:", "Mems_allowed:", "THP_enabled")  # fmt: skip
FILES = ("limits", "cgroup", "oom_score_adj", "coredump_filter", "personality")


class DaemonDirectory:
    """The lock and the socket of one launcher daemon."""

    def __init__(self, folder: str, key: str) -> None:
        self.folder, self.key = folder, key
        self.lock = os.path.join(folder, f"{key}.lock")
        self.socket = os.path.join(folder, f"{key}.socket")

    def take(self) -> int | None:
        """Take the lock; None if a daemon holds it, as it does until its end. Raises OSError."""
        import fcntl

        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.lock, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            if self.is_held_by(fd):
                return fd
            os.close(fd)  # it was removed while we took it

    def is_held_by(self, fd: int) -> bool:
        """False once `paddock warm stop` has removed the lock."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self.lock))
        except FileNotFoundError:
            return False

    def listen(self) -> socket.socket:
        """A socket for clients. Raises OSError."""
        import socket

        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with contextlib.suppress(FileNotFoundError):  # of one that was killed
            os.unlink(self.socket)
        with short_path(self.socket) as path:
            listener.bind(path)
        listener.listen(16)
        return listener

    def remove(self) -> None:
        """Remove the socket and the lock. The caller holds the lock."""
        for path in (self.socket, self.lock):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def connect(self) -> socket.socket | None:
        """Connect to the daemon; None if there is none, or it is another user's."""
        import socket

        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(self.socket) as path:
                client.connect(path)
            if is_ours(client):
                return client
        except OSError:
            pass
        client.close()
        return None


def place_of(job: Job, env: Mapping[str, str], python: str) -> DaemonDirectory:
    """The directory entry of the launcher daemon that may run this job. Raises OSError.

    python: the interpreter that runs Paddock.
    """
    command = job.command
    program = os.path.realpath(command.program) if command.kind == "script" else command.program
    here = os.stat(".")
    words = [python, command.kind, command.python, program, os.getcwd(), here.st_dev, here.st_ino]
    words += [sys.flags.utf8_mode, sys.getfilesystemencoding(), job.lease_seconds, __version__]
    words += [*_stamp_of_ours(), *_state_of_process()]
    text = "\0".join(map(str, words)).encode("utf-8", "surrogateescape")
    folder = folder_of(env)
    make_folder(folder)
    return DaemonDirectory(folder, hashlib.sha256(text).hexdigest()[:32])


def folder_of(env: Mapping[str, str]) -> str:
    """The folder of the daemons; it lasts while this user is logged in, or until a reboot."""
    base = env.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(base) and os.path.isdir(base):
        return os.path.join(base, "paddock")
    return f"/tmp/paddock-{os.geteuid()}"  # its owner and mode are checked


def is_ours(connection: socket.socket) -> bool:
    """True when the other side is this user's."""
    return peer_uid(connection) == os.geteuid()


def _stamp_of_ours() -> Iterator[object]:
    """The file facts of Paddock's package, which change when it is installed anew."""
    import paddock

    found = os.stat(paddock.__file__ or ".")
    yield from (paddock.__file__, found.st_mtime_ns, found.st_ino)


def _state_of_process() -> Iterator[object]:
    for name in ("status", *FILES):
        try:
            with open(f"/proc/self/{name}", encoding="utf-8", errors="surrogateescape") as f:
                lines = f.read().splitlines()
        except OSError:
            lines = ["-"]
        yield from (line for line in lines if name != "status" or line.startswith(STATUS))
    with contextlib.suppress(OSError), open("/proc/self/numa_maps", "rb") as f:
        yield f.readline().split()[1:2]  # the memory policy (numactl)
    for name in sorted(os.listdir("/proc/self/ns")):
        yield os.readlink(f"/proc/self/ns/{name}")
    yield from (os.readlink("/proc/self/root"), os.nice(0))


class RunningDaemon:
    """A launcher daemon: its pid, script, state ("idle", "busy", "importing") and since when."""

    def __init__(self, place: DaemonDirectory, row: Mapping[str, object]) -> None:
        self.place = place
        self.pid = int(str(row["pid"]))
        self.script = str(row["script"])
        self.state = str(row["state"])
        self.since = os.stat(place.lock).st_mtime

    @property
    def megabytes(self) -> int:
        """The daemon's memory in MiB, with that of its warm server."""
        return sum(map(_pss_kb, (self.pid, *children_of(self.pid)))) // 1024

    def stop(self) -> None:
        """Stop the daemon, after its job if it has one. Returns when it has ended or has a job."""
        connection = self.place.connect()
        for path in (self.place.lock, self.place.socket):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        if connection is not None:
            connection.settimeout(REQUEST_SECONDS)  # it may be stopped (SIGSTOP)
            with contextlib.suppress(OSError):  # it was quicker
                connection.shutdown(1)  # no request comes: it looks for its lock
                while connection.recv(64):
                    continue
            connection.close()


def all_found(env: Mapping[str, str]) -> list[RunningDaemon]:
    """All daemons of this user on this machine; removes the files of those that were killed."""
    folder = folder_of(env)
    try:
        make_folder(folder)
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = []
    for name in names:
        if not name.endswith(".lock"):
            continue
        place = DaemonDirectory(folder, name[: -len(".lock")])
        try:
            fd = place.take()
            if fd is not None:
                place.remove()
                os.close(fd)
                continue
            with open(place.lock, encoding="ascii") as f:
                found.append(RunningDaemon(place, json.loads(f.read())))
        except (OSError, ValueError, KeyError):
            continue  # it is just starting, or ending, or no lock of ours
    return found


def _pss_kb(pid: int) -> int:
    """The Pss of a process in kB: own pages and a part of shared ones (proc(5), smaps_rollup)."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


class LaunchRequest:
    """A launch: the arguments after `paddock launch`, the environment, the working directory."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: str) -> None:
        self.argv, self.env, self.cwd = argv, env, cwd

    def send(self, connection: socket.socket) -> None:
        """Send the request with descriptors 0 to 2. Raises OSError."""
        import socket

        data = json.dumps(vars(self)).encode("ascii")
        socket.send_fds(connection, [b"%12d" % len(data)], [0, 1, 2])
        connection.sendall(data)


def receive(connection: socket.socket) -> tuple[LaunchRequest, list[int]] | None:
    """Receive a launch and its descriptors; None if the client has gone, or sent no launch."""
    import socket

    connection.settimeout(REQUEST_SECONDS)
    fds: list[int] = []
    try:
        head, fds, _, _ = socket.recv_fds(connection, 12, 3)
        data = bytearray()
        while len(data) < int(head):
            part = connection.recv(int(head) - len(data))
            if not part:
                raise ValueError("half a request")
            data += part
        row = json.loads(data)
        if len(fds) != 3:
            raise ValueError("no files")
        connection.settimeout(None)
        return LaunchRequest(row["argv"], row["env"], row["cwd"]), fds
    except (OSError, ValueError, KeyError, TypeError):
        for fd in fds:
            os.close(fd)
        return None


# ------------------------------------------------------------------------ the user's process


def launch_there(argv: Sequence[str], job: Job, env: Mapping[str, str]) -> int | None:
    """Launch in a daemon; returns the exit code. None: launch here (the user is told why)."""
    why = _why_here(argv, job, env)
    if why is None:
        try:
            place = place_of(job, env, sys.executable)
            found = _reach(place, job)
        except OSError as error:
            why = f"{folder_of(env)}: {error.strerror}"
        else:
            if not isinstance(found, str):
                return _hand_over(found, LaunchRequest(list(argv), dict(env), os.getcwd()))
            why = f"the one that is kept {found}"
    if why:
        sys.stderr.write(f"paddock: warning: not kept: {why}; this launch is as with --warm on\n")
    return None


def _why_here(argv: Sequence[str], job: Job, env: Mapping[str, str]) -> str | None:
    """The reason why no daemon may be kept; None: it may; "": --warm on and keep are the same."""
    if job.command.kind == "program":
        return ""
    found = [word for word in argv for name in OPEN_FILES if name in word]
    if found:
        return f"an argument names an open file: {found[0]}"
    if job.record:
        return "a submitted job leaves nothing behind"
    if os.isatty(0):
        return None  # a user's shell, also in a pod, which goes on
    return next((why for name, why in HOSTS.items() if name in env), None)


def _reach(place: DaemonDirectory, job: Job) -> _Connection | str:
    """Connect to an idle daemon, started if there is none; else the reason why that failed."""
    for _ in range(2):  # it may end just when we come
        lock = place.take()
        if lock is not None:
            try:
                _start(place, lock, job)
            finally:
                os.close(lock)
        found = place.connect()
        if found is None:  # another client is starting it, or the socket was removed
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


def _start(place: DaemonDirectory, lock: int, job: Job) -> None:
    """Start a daemon, the lock's only holder when ours is closed. Raises OSError."""
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
        argv = daemon_argv(facts)
        os.posix_spawn(sys.executable, argv, os.environ, file_actions=null, setsid=True)


def daemon_argv(facts: Mapping[str, object]) -> list[str]:
    """The command line of a launcher daemon, which decodes names and texts as this process."""
    import json

    paths = "\n".join(os.path.abspath(path) for path in sys.path)
    mode = f"utf8={sys.flags.utf8_mode}"
    return [sys.executable, "-I", "-X", mode, "-c", CODE, json.dumps(facts), paths]


class _Connection:
    """The connection to a launcher daemon and its guardian."""

    def __init__(self, found: socket.socket, launcher: int, guardian: int) -> None:
        self.socket = found
        self.launcher = os.pidfd_open(launcher)
        self.guardian = os.pidfd_open(guardian)


def _hand_over(connection: _Connection, request: LaunchRequest) -> int:
    """Hand the launch over to the daemon; returns the exit code."""
    import select
    import signal

    caller = request.env.pop(CALLER_FD, "")  # a number of this process, and not of the daemon
    try:
        request.send(connection.socket)  # a signal ends us, until it has all of it
    except OSError:
        pass
    asked = 0
    ending = forwarded_signals() - {signal.SIGUSR1, signal.SIGUSR2}

    def forward(number: int, _frame: object = None) -> None:
        nonlocal asked
        asked += number in ending
        force = signal.SIGCONT if asked < ASKED_MAX else SIGKILL
        try:  # not to its pid: it may run another's job when we hear of it (Ctrl-Z)
            connection.socket.send(bytes([number]))
            signal.pidfd_send_signal(connection.launcher, force)
        except OSError:
            return  # the job is over

    for number in forwarded_signals():
        signal.signal(number, forward)
    signal.signal(signal.SIGTSTP, lambda _number, _frame: pause(forward))
    poller = select.poll()
    if caller.isdecimal():
        poller.register(connection.socket, select.POLLIN)
        poller.register(int(caller), select.POLLIN)
        if all(fd == int(caller) for fd, _ in poller.poll()):  # paddock.launch's process has ended
            forward(signal.SIGTERM, None)
    line = _line(connection.socket)
    if line:
        return int(line)
    poller = select.poll()
    poller.register(connection.guardian, select.POLLIN)
    poller.poll(GONE_SECONDS * 1000)
    text = "the launcher that was kept, or its guardian, was killed; all processes ended"
    sys.stderr.write(f"paddock: error: {text}\n")
    return EXIT_SIGNAL_BASE + SIGKILL


def _line(connection: socket.socket) -> bytes:
    """Read a short line; b"" if the other side has ended."""
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
