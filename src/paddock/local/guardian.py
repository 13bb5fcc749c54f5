"""Two nested processes, so that nothing survives the death of either.

    guardian  (the process the user started; subreaper; waits and forwards signals)
      `- launcher  (own session; subreaper; starts and watches the ranks)
           `- ranks, their children, their children's children in any session

Linux gives an orphan to its nearest living subreaper (prctl(2), PR_SET_CHILD_SUBREAPER). If the
launcher dies, all that descends from it becomes the guardian's child and is killed; if the
guardian dies, the launcher sees it (pidfd) and ends the job. Both have their own session, so a
SIGKILL to one process group cannot take both, and a terminal's Ctrl-C reaches the guardian only.

A launcher that is stopped (SIGSTOP) keeps no lease: the other nodes take it for lost and go on,
while its ranks run. So in a job of several nodes the guardian kills it before they do. That of a
job of one node may be stopped for ever, and one that a debugger holds is not stopped, but traced.
"""

from __future__ import annotations

import os
from time import monotonic

from paddock.errors import EXIT_OWN_FAULT, EXIT_SIGNAL_BASE, PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from paddock.core.rendezvous.messages import Loss
    from paddock.local.loop import Loop

ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
# Ignored by Python itself, for itself; its children get the defaults (see spawn.py).
OF_PYTHON = ("SIGPIPE", "SIGXFSZ")
# By these the daemon of a submitted job (backends/node/daemon.py) tells the guardian that no user
# asked the job to end: it was killed itself, the submitter of an attached job is gone, or Ray has
# ended what held the job's resources.
# Behind those that from_guardian gives; libc and Python use none of them.
HOLDER_LOST, DAEMON_LOST, SUBMITTER_LOST = 61, 62, 63
LOSSES: dict[int, Loss] = {
    HOLDER_LOST: "holder", DAEMON_LOST: "daemon", SUBMITTER_LOST: "submitter",
}  # fmt: skip
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
# Signals that end a job, sent so often: the launcher does not hear them any more.
ASKED_MAX = 4
# A launcher may be stopped for so many parts of its lease: with the time since its last word, a
# quarter of a lease at most, it is gone before it is missed. Counted in short waits of the
# guardian's own, which do not pass while all of the node stands still and no rank runs on.
LEASE_PARTS = 8
STOPPED_PARTS_MAX = 5
SIGKILL = 9
SWEEP_SECONDS = 5.0
ROUND_SECONDS = 0.02  # between two looks at those that do not end; pidfds tell sooner
ROUND_MAX = 256  # processes


def split(lease_seconds: float = 0.0, record: str = "") -> int:
    """Fork the launcher. Returns the guardian's pid in the launcher; never in the guardian.

    lease_seconds: of the launcher with the other nodes; 0 when there are none. record: where to
    write that the launcher was killed; "" for nowhere.

    Both are subreapers before anything can be orphaned, and the signals that end a job wait,
    blocked, until each side can take them: the launcher calls ``take_signals`` when it can.
    Raises PaddockError when no process can be started.
    """
    import signal

    guardian_pid = os.getpid()
    keep = frozenset(children_of_self())  # of the process before exec(2): not ours to end
    reset_signals()
    hold_signals()
    prctl = find_prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        launcher_pid = os.fork()
    except OSError as error:  # this user's limit, or that of the cgroup
        raise PaddockError(f"no process can be started: {error}", hint="raise ulimit -u") from error
    if launcher_pid == 0:
        os.setsid()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        # A stopped launcher must wake to see that its guardian is gone.
        prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
        return guardian_pid
    code = EXIT_OWN_FAULT
    try:
        code = _guard(launcher_pid, keep, lease_seconds, record)
    finally:
        os._exit(code)


def _guard(launcher_pid: int, keep: frozenset[int], lease_seconds: float, record: str) -> int:
    """Wait for the launcher, forwarding signals; then end whatever it left. Returns exit code."""
    import signal

    # The end of the launcher sends SIGCHLD, and so does its being stopped.
    wanted = {*forwarded_signals(), signal.SIGTSTP, signal.SIGCHLD}
    asked = stopped_parts = 0
    why = ""
    while (status := _reap(launcher_pid)) is None:
        if lease_seconds and state_of(launcher_pid) == b"T":
            info = signal.sigtimedwait(wanted, lease_seconds / LEASE_PARTS)
            stopped_parts += info is None
        else:
            info = signal.sigwaitinfo(wanted)
            stopped_parts = 0
        if stopped_parts == STOPPED_PARTS_MAX:
            os.kill(launcher_pid, signal.SIGKILL)
            why = f" (stopped for longer than its lease of {lease_seconds:g} s allows)"
        if info is None or info.si_signo == signal.SIGCHLD:
            continue
        if info.si_signo == signal.SIGTSTP:
            pause(lambda number: os.kill(launcher_pid, number))
            continue
        asked += info.si_signo not in (signal.SIGUSR1, signal.SIGUSR2)
        number = from_guardian(info.si_signo) if asked < ASKED_MAX else signal.SIGKILL
        for each in (number, signal.SIGCONT):  # it may have been stopped
            try:
                os.kill(launcher_pid, each)
            except ProcessLookupError:
                break
    left = end_descendants(keep=keep)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    killed_by = os.WTERMSIG(status)
    from paddock.local.output.console import last_words

    text = f"the launcher process was killed by signal {killed_by}{why}; "
    text += f"processes it left behind and that were ended: {left}"
    last_words(f"paddock: error: {text}\n", record, text)
    return EXIT_SIGNAL_BASE + killed_by


def pause(send: Callable[[int], object]) -> None:
    """Stop this process as Ctrl-Z does, until it is continued (fg, bg, SIGCONT).

    send: signals the launcher, which itself goes on: it pauses its ranks before, and continues them
    after. A process in an orphaned process group, as below no shell with jobs, does not stop
    (setpgid(2)): the ranks go on at once.
    """
    import signal

    send(from_guardian(signal.SIGTSTP))
    handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    signal.signal(signal.SIGTSTP, handler)
    send(from_guardian(signal.SIGCONT))


def _reap(launcher_pid: int) -> int | None:
    """Reap every child that has ended; the launcher's wait status if it is among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == launcher_pid:
            return status


def yama_scope() -> str:
    """Return ptrace_scope (Documentation/admin-guide/LSM/Yama.rst), "" of a kernel without."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def find_prctl() -> Callable[[int, int], object]:
    """prctl(2); without ctypes only children in their own session can escape, see 0004."""
    try:
        # The C module: `import ctypes` costs 2 ms on a path where ranks wait.
        from _ctypes import FUNCFLAG_CDECL, CFuncPtr, _SimpleCData, dlopen, dlsym
    except ImportError:  # a Python built without libffi
        return lambda _option, _argument: None

    class Integer(_SimpleCData):  # type: ignore[type-arg]  # no [] at run time
        _type_ = "l"

    class Function(CFuncPtr):
        _flags_ = FUNCFLAG_CDECL
        _restype_ = Integer

    itself = dlopen(None, 0)  # type: ignore[arg-type]  # as CDLL(None) does
    call, zero = Function(dlsym(itself, "prctl")), Integer(0)
    return lambda option, argument: call(option, Integer(argument), zero, zero, zero)


# ---------------------------------------------- signals: inherited, held back and handed on


def reset_signals() -> None:
    """Reset signals to their defaults; one that ends a job stays ignored if it was (nohup(1)).

    An ignored SIGCHLD, which exec(2) hands on, would reap our children before we can ask how
    they ended. Signals that were blocked are the caller's to unblock.
    """
    import signal

    kept = {getattr(signal, name, None) for name in (*ENDING, *OF_PYTHON)}
    for number in signal.valid_signals() - kept:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def forwarded_signals() -> set[int]:
    """Signals that the guardian hands on: those that end a job, less those our parent had ignored
    (nohup(1), sh -c 'cmd &'), and those that mean nothing to a launcher.
    """
    import signal

    wanted = {getattr(signal, name) for name in ENDING}
    kept: set[int] = {s for s in wanted if signal.getsignal(s) is not signal.SIG_IGN}
    return kept | {signal.SIGUSR1, signal.SIGUSR2, *LOSSES}


def from_guardian(number: int) -> int:
    """The signal by which the guardian forwards this one to the launcher.

    Another one: a batch system signals all processes of a job at once (scancel, slurmstepd), so
    the launcher gets both, and must not take it for asked twice. LOSSES are sent to the guardian
    alone, and go on as they are.
    """
    import signal

    return number if number in LOSSES else int(signal.SIGRTMIN) + number


def hold_signals() -> None:
    """Block the forwarded signals and SIGCHLD until ``take_signals``, and unblock all others."""
    import signal

    wanted = {*forwarded_signals(), signal.SIGTSTP}
    handed_on = {from_guardian(number) for number in (*wanted, signal.SIGCONT)}
    signal.pthread_sigmask(signal.SIG_SETMASK, {*wanted, *handed_on, signal.SIGCHLD})


def take_signals() -> None:
    """Unblock the signals that ``hold_signals`` has blocked."""
    import signal

    signal.pthread_sigmask(signal.SIG_SETMASK, ())


# ------------------------------------------------------------------------------- the sweep
#
# Ends every descendant of this process, round by round: each round's orphans become our children,
# as we are their nearest subreaper. Nothing is found by name: only our own unreaped children are
# killed, whose pids cannot be reused. A round never waits; between two of them the guardian sleeps,
# and the launcher's loop goes on. Both give up in the end: a process in uninterruptible sleep (a
# hung file system) cannot be killed.


class SweepProgress:
    """The progress of a sweep. keep: children that are not to be ended, read in each round."""

    def __init__(self, *keep: Set[int]) -> None:
        self.killed: set[int] = set()
        self._foreign: set[int] = set()
        self._keep = (*keep, self._foreign)

    def round(self) -> list[int] | None:
        """Kill and reap the children. None: there were none; else those that have not ended yet.

        After an empty list another round is due at once: their children may be ours now.
        """
        kept = frozenset[int]().union(*self._keep)
        children = [pid for pid in children_of_self() if pid not in kept]
        if not children:
            return None
        children.sort(key=self.killed.__contains__)  # a few that cannot be killed hide no others
        return [pid for pid in children[:ROUND_MAX] if not self._end(pid)]

    def _end(self, pid: int) -> bool:
        """Kill a process; True when it is gone, or another user's."""
        is_new = pid not in self.killed and state_of(pid) != b"Z"
        try:
            is_new = is_new and os.getpgid(pid) != os.getpgrp()  # else a tool of ours, as py-spy
            os.kill(pid, SIGKILL)
        except ProcessLookupError:
            return True
        except PermissionError:  # it has become another user (sudo)
            self._foreign.add(pid)
            return True
        if is_new:
            self.killed.add(pid)
        return _reaped(pid)


def end_descendants(*, keep: frozenset[int] = frozenset()) -> int:
    """Kill all descendants and wait for their end; returns how many were killed."""
    from select import poll

    sweep = SweepProgress(keep)
    deadline = monotonic() + SWEEP_SECONDS
    while (left := sweep.round()) is not None and monotonic() < deadline:
        if left:
            poller = poll()
            fds = pidfds(left)
            for fd in fds:
                poller.register(fd, 1)
            poller.poll(ROUND_SECONDS * 1000)
            for fd in fds:
                os.close(fd)
    return len(sweep.killed)


def sweep_on(loop: Loop, done: Callable[[int], None], *keep: Set[int]) -> None:
    """Kill all descendants without waiting: done(number of killed) is called when that is over.

    keep: read again in each round: children may be added meanwhile.
    """
    sweep = SweepProgress(*keep)
    deadline = monotonic() + SWEEP_SECONDS
    fds: list[int] = []
    timer = f"sweep {id(sweep)}"  # there may be two at a time

    def look(_events: int = 0) -> None:
        for fd in fds:
            loop.unwatch(fd)
            os.close(fd)
        fds.clear()
        left = sweep.round()
        if left is None or monotonic() >= deadline:
            loop.at(timer, None, look)
            done(len(sweep.killed))
            return
        fds.extend(pidfds(left))
        for fd in fds:
            loop.watch(fd, 1, look)
        loop.at(timer, monotonic() + (ROUND_SECONDS if left else 0.0), look)

    look()


def reap_orphans(*keep: Set[int]) -> None:
    """Reap the children that have ended, but those of keep and our own tools.

    A subreaper gets the orphans of all its descendants, and nobody else can wait for them. Who has
    started a tool (py-spy, nvidia-smi) waits for it, perhaps in another thread: it is known by our
    process group, which an ended process keeps until it is reaped and no rank is in.
    """
    kept, group = frozenset[int]().union(*keep), os.getpgrp()
    for pid in children_of_self():
        try:
            if pid not in kept and os.getpgid(pid) != group:
                os.waitpid(pid, os.WNOHANG)
        except OSError:
            continue  # who has started it was quicker


def children_of_self() -> list[int]:
    """Pids of our children, ended or not."""
    return children_of(os.getpid())


def children_of(pid: int) -> list[int]:
    """Pids of a process's children, ended or not; none when it is gone.

    Source: proc(5), /proc/pid/task/tid/children; where the kernel lacks it, every /proc/N/stat.
    """
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
                found.extend(int(word) for word in f.read().split())
        return found
    except (FileNotFoundError, ProcessLookupError):
        pass  # no CONFIG_PROC_CHILDREN, or it has just ended
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as f:
                    fields = f.read().rpartition(b")")[2].split()
            except OSError:
                continue  # ended meanwhile
            if int(fields[1]) == pid:
                found.append(int(name))
    return found


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def state_of(pid: int) -> bytes:
    """The state of a process as in proc(5): Z: ended or gone; T: stopped by a signal."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0]
    except OSError:
        return b"Z"


def pidfds(pids: list[int]) -> list[int]:
    """The pidfds of the first of these processes; none on kernels without pidfd."""
    fds = []
    for pid in pids[:64]:
        try:
            fds.append(os.pidfd_open(pid))
        except (OSError, AttributeError):
            break
    return fds
