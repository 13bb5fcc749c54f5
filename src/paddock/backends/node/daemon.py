"""The job daemon of a host: starts the launcher, outlives the connection, records how it ended.

    sshd -- main.py (one request after another; goes with the connection)
    daemon.py (own session)  -- paddock launch (guardian) -- launcher -- ranks

It outlives the connection that started it. In an attached job it holds the end of a pipe whose
other end is main.py's: when that goes, the job has to end, whatever broke the connection. If the
daemon itself is killed, the kernel tells the launcher, which ends its ranks. Both have signals
of their own (local/guardian.py): no user asked, so the job has failed. The daemon is a subreaper:
when guardian and launcher are killed at one moment, their ranks become its children, and it ends
them before it records the end.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

from paddock.backends.node.jobdir import (
    NOW,
    STOP,
    control_socket,
    end_reason,
    inner,
    overwrite_json,
    owned_by,
    process_of,
    write_json,
    write_text,
)
from paddock.errors import PaddockError
from paddock.local.guardian import (
    DAEMON_LOST,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    SUBMITTER_LOST,
    SWEEP_SECONDS,
    children_of_self,
    end_descendants,
    find_prctl,
)
from paddock.local.runs.orphans import end_orphans, find_orphans
from paddock.local.runs.record import keep_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

STOPPED_BY = (signal.SIGTERM, signal.SIGINT)
STOP_SECONDS = 1.0
AGAIN_SECONDS = 0.1


def start(
    directory: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: str,
    outputs: tuple[str, str],
    is_attached: bool,
    loss: int = SUBMITTER_LOST,
) -> int:
    """Start a job daemon with its launcher.

    outputs: the files that get the launcher's stdout, and its stderr: its own lines. loss: of an
    attached job, the signal for its launcher when the lease has ended. Returns
    when the daemon runs and is recorded in state.json: the descriptor whose closing ends an
    attached job, -1 for a detached one. Raises OSError.
    """
    lease_read, lease_write = os.pipe2(os.O_CLOEXEC)
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            _close_all_but(lease_read, ready_write)
            os.setsid()
            if os.fork():
                os._exit(0)
            lease = lease_read if is_attached else -1
            _run(directory, argv, env, cwd, outputs, (lease, loss), ready_write)
        finally:
            os._exit(0)  # which nobody reads
    os.waitpid(pid, 0)
    os.close(lease_read)
    os.close(ready_write)
    with open(ready_read, "rb") as ready:
        problem = ready.read().decode("utf-8", "replace")
    if problem == "ok" and is_attached:
        return lease_write
    os.close(lease_write)
    if problem != "ok":
        raise OSError(problem or "the job daemon ended at once")
    return -1


def _close_all_but(*kept: int) -> None:
    """Close what was inherited: pipes of other threads that start a daemon, files of a notebook.

    A thread waits until nobody can write into its pipe any more, and this process lives for days.
    """
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            with suppress(OSError):  # of the listing itself
                os.close(fd)


def ask_to_stop(
    directory: str, state: Mapping[str, Any], *, now: bool, number: int = signal.SIGTERM
) -> bool:
    """Ask a job daemon to end its job. state: of state.json. False if it has just ended.

    number: what the ranks get, see STOPPED_BY: Ctrl-C of an attached job is SIGINT.
    """
    write_text(inner(directory, STOP), f"{NOW if now else time.time()}\n{number:d}\n")
    try:
        os.kill(int(state["process"]["pid"]), signal.SIGTERM)
    except ProcessLookupError:  # as jobs do when another host is told
        return False
    return True


def end_orphans_of(directory: str, *, now: bool) -> bool:
    """End processes of a job that neither launcher nor daemon looks after. False if none is left.

    Their grace is waited for in a process of its own, which outlives the connection.
    """
    owns = owned_by(directory)
    if not find_orphans(owns):
        return False
    write_text(inner(directory, STOP), f"{NOW if now else time.time()}\n")
    if now:
        end_orphans(owns, now=True)
        return True
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                null = os.open(os.devnull, os.O_RDWR)
                for fd in range(3):  # of the connection, which need not wait for us
                    os.dup2(null, fd)
                end_orphans(owns, now=False)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return True


def _run(
    directory: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    outputs: tuple[str, str],
    lease: tuple[int, int],
    ready: int,
) -> None:
    """Run the job daemon: start the launcher, wait, record its end."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    asked: list[int] = []
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    find_prctl()(PR_SET_CHILD_SUBREAPER, 1)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for target, fd in enumerate((null, *(os.open(path, flags, 0o600) for path in outputs))):
            os.dup2(fd, target)
        pid = _launch(directory, argv, env, cwd)
        process = process_of(os.getpid())
        write_json(
            inner(directory, "state.json"),
            {"state": "running", "process": process, "at": time.time()},
        )
        os.write(ready, b"ok")
    except OSError as error:
        os.write(ready, f"{error.filename or directory}: {error.strerror}".encode())
        return
    os.close(ready)
    status = _wait(pid, *lease, wake_read, asked, directory)
    orphans = _end_rest(argv)
    code = os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code
    was_asked = os.path.exists(inner(directory, STOP))
    state = "succeeded" if code == 0 else "cancelled" if was_asked else "failed"
    ended = {
        "state": state, "process": process, "at": time.time(), "code": code,
        "why": "" if code == 0 else end_reason(directory) or _killed(status, orphans),
    }  # fmt: skip
    try:
        write_json(inner(directory, "state.json"), ended)
    except OSError:  # a disk that the job has filled
        overwrite_json(inner(directory, "state.json"), ended)


def _launch(directory: str, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> int:
    own = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        find_prctl()(PR_SET_PDEATHSIG, DAEMON_LOST)  # when the job daemon has gone (prctl(2))
        if os.getppid() != own:
            os._exit(125)
        os.setsid()  # a Ctrl-C of no terminal reaches it
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM,
                       signal.SIGCHLD):  # fmt: skip
            signal.signal(number, signal.SIG_DFL)
        os.chdir(cwd)
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        why = f"{error.filename or argv[0]}: {error.strerror}"
        keep_error(inner(directory, ""), why)
        os.write(2, f"paddock: error: {why}\n".encode())
    finally:
        os._exit(127)


def _wait(pid: int, lease: int, loss: int, wake: int, asked: list[int], directory: str) -> int:
    """Wait until the launcher has ended; SIGTERM asks it to end, as the stop file says."""
    has_told = is_owed = False
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        while asked:
            asked.pop()
            is_now, number = _read_stop(directory)
            if is_now:
                if _end_now(directory):
                    continue
                is_owed = True
            elif has_told:
                continue
            os.kill(pid, number)
            has_told = True
        is_owed = is_owed and not _end_now(directory)
        fds = [wake] if lease < 0 else [wake, lease]
        ready, _, _ = select.select(fds, [], [], AGAIN_SECONDS if is_owed else 60.0)
        if lease in ready:
            os.close(lease)
            lease = -1
            os.kill(pid, loss)
        if wake in ready:
            os.read(wake, 4096)


def _read_stop(directory: str) -> tuple[bool, int]:
    """Return what the stop file asks for: an end without grace or not, and by which signal."""
    try:
        with open(inner(directory, STOP), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        text = ""
    line = text.partition("\n")[2].strip()
    number = next((each for each in STOPPED_BY if line == f"{each:d}"), signal.SIGTERM)
    return text.startswith(NOW), number


def _end_now(directory: str) -> bool:
    """Ask the launcher on its control socket to end at once. False if it does not answer."""
    from paddock.local.runs.control import ask

    try:
        ask(control_socket(directory), "stop", seconds=STOP_SECONDS, now=True)
    except PaddockError:
        return False
    return True


def _end_rest(argv: Sequence[str]) -> int:
    """End what a guardian has left to us: its ranks if its launcher was killed, too.

    A launcher that lives ends them itself, and says so: it has the guardian's command line, as it
    was forked and never executed another. Returns how many were ended.
    """
    line = b"".join(os.fsencode(word) + b"\0" for word in argv)
    deadline = time.monotonic() + SWEEP_SECONDS
    for pid in children_of_self():
        if _command_line(pid) != line:
            continue
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue  # it has just ended
        select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        os.close(fd)
    return end_descendants()


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _killed(status: int, orphans: int) -> str:
    """Return the sentence for a launcher that was killed by a signal; "" for any other end.

    orphans: processes that the daemon had to end.
    """
    if not os.WIFSIGNALED(status):
        return ""
    rest = f"; processes it left behind and that were ended: {orphans}" if orphans else ""
    return f"its launcher was killed by {signal.Signals(os.WTERMSIG(status)).name}{rest}"
