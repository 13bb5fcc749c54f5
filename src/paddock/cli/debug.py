"""``paddock debug --rank N``: launch a job here with one rank under a debugger.

The rank runs checks/debugged_rank.py. pdb's prompt is on this terminal: the job runs in a session
of its own; this process stays in the terminal's foreground, gives the rank the terminal through a
socket, and hands Ctrl-C to it. debugpy: the rank listens on 127.0.0.1 for an editor.

The other ranks wait: what Paddock itself times is off, and so is what frameworks take from the
environment (WAITING).
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
import termios
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

from paddock.cli import launch
from paddock.cli.explain import show_plan
from paddock.cli.family import CliCommand, Operand, named
from paddock.cli.main import COMMANDS as NAMES
from paddock.cli.main import answered
from paddock.command_line import FlagTable, flag, read_line
from paddock.core.hosts import LOOPBACK, host_of
from paddock.core.job import Entrypoint, Job
from paddock.core.value import replace
from paddock.errors import EXIT_SIGNAL_BASE, HelpAsked, Problem, UsageError, extra_hint, refuse
from paddock.jobfile.args import to_integer
from paddock.jobfile.flags import FLAGS as LAUNCH
from paddock.jobfile.flags import FOREIGN
from paddock.jobfile.parse import ParsedLaunch
from paddock.local.facts.devices import find_devices
from paddock.local.guardian import PR_SET_PDEATHSIG, find_prctl
from paddock.local.report.width import say
from paddock.local.runs.control import short_path

PROGRAM = os.path.join(os.path.dirname(__file__), "checks", "debugged_rank.py")
PORT = "5678"  # that editors propose
RANK = flag("rank", "N", "the rank to debug", is_needed=True)
DEBUGPY = flag("debugpy", "PORT", "listen on 127.0.0.1 for an editor, instead of pdb on this "
               f"terminal; {PORT} if no port is given", bare=PORT)  # fmt: skip
FLAGS = (RANK, DEBUGPY)
# Flags of launch that a debugged job takes; --rank is --node-rank there.
MORE = tuple(one for one in LAUNCH if one.name not in ("rank", "warm"))
TABLE = FlagTable("debug", (*FLAGS, *LAUNCH), FOREIGN)
OF_LAUNCH = FlagTable("debug", LAUNCH, FOREIGN)
FOREVER_SECONDS = 7 * 86400.0
PROMPT_SECONDS = 86400.0  # that pdb's prompt outlives the failure of another rank
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
WAITING = {
    # torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp: a collective over its time ends nothing.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
    # paddle/distributed/parallel.py: seconds that ranks wait for one another at the start.
    "FLAGS_stop_check_timeout": f"{FOREVER_SECONDS:.0f}",
    "PYTHONBREAKPOINT": "0",  # in the other ranks, which have no terminal
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # a warning of debugpy's that asks for nothing
}
OF_TORCH = (
    "torch's own limit is no variable: a collective fails after 30 minutes with gloo; to wait "
    "longer write init_process_group(..., timeout=timedelta(days=1))"
)


def run(argv: Sequence[str]) -> int:
    """Debug one rank of a job; returns the job's exit code."""
    launch.open_standard_files()
    parsed, words, rank, port = read(argv)
    if "dry_run" in parsed.values:
        show_plan(parsed)
        return 0
    if _is_of_torch(parsed.job):
        say(OF_TORCH)
    if port:
        return launch.start(debugged(parsed, rank, str(port)), words)
    with tempfile.TemporaryDirectory(prefix="paddock-debug-") as folder:
        place = os.path.join(folder, "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            with short_path(place) as short:
                listener.bind(short)
            listener.listen()
            return _launch(debugged(parsed, rank, place), words, listener, rank)


def read(argv: Sequence[str]) -> tuple[ParsedLaunch, list[str], int, int]:
    """The launch, its arguments, the rank to debug, and the port of debugpy, 0 for pdb.

    Raises UsageError with every problem found.
    """
    line = read_line(argv, TABLE, has_script=True)
    if line.is_help:
        raise HelpAsked("debug", argv)
    problems = line.problems
    own = {one.flag.key: one.text for one in line.flags if one.flag in FLAGS}
    words = [word for one in line.flags if one.flag not in FLAGS for word in one.words]
    is_pdb = "debugpy" not in own
    rank, port = to_integer(own.get("rank", "0")), to_integer(own.get("debugpy", PORT))
    if "rank" not in own:
        problems.append(Problem("--rank is not given", "write the rank to debug: --rank 0"))
    elif rank is None or rank < 0:
        problems.append(Problem(f"--rank {own['rank']}: not a rank", "write one rank: --rank 0"))
    if port is None or not 0 < port < 65536:
        what = f"--debugpy {own['debugpy']}: not a port"
        problems.append(Problem(what, f"write --debugpy {PORT}, or --debugpy alone"))
    elif not is_pdb:
        problems += _debugpy_problems(port)
    parsed = None
    try:
        parsed = launch.read([*words, "--", *line.rest] if line.rest else words, OF_LAUNCH)
        problems += _job_problems(parsed.job, rank or 0)
    except UsageError as error:
        problems += error.problems
    if is_pdb and not _is_in_foreground():
        problems.append(Problem("pdb needs this terminal, and runs in its background",
                                "run it in the foreground, or with --debugpy"))  # fmt: skip
    refuse(problems)
    assert parsed is not None and rank is not None and port is not None
    return parsed, [*words, *line.rest], rank, 0 if is_pdb else port


def _job_problems(job: Job, rank: int) -> list[Problem]:
    """The problems of debugging this rank of the job."""
    problems = []
    if not sys.platform.startswith("linux"):
        problems.append(Problem("paddock debug needs Linux"))
    if job.command.kind == "program":
        what = f"'{job.command.program}' is not run by Python: there is nothing to debug"
        problems.append(Problem(what, "name a .py file, or -m MODULE"))
    here = host_of(job, find_devices(job, os.environ), name="", address="")
    count = sum(number for role, _, number in here.slots if role == "worker") * job.nnodes_max
    is_known = not job.allow_uneven and not any(role.endpoints for role in job.roles)
    if is_known and rank >= count:
        what = f"--rank {rank}: there is no rank {rank}, this job has {count}"
        problems.append(Problem(what, f"write a rank in 0..{count - 1}"))
    return problems


def _debugpy_problems(port: int) -> list[Problem]:
    """The problems of listening for an editor at this port."""
    if find_spec("debugpy") is None:
        hint = f"{extra_hint('debug')}; without --debugpy it is pdb"
        return [Problem("--debugpy needs the package debugpy, which is not installed", hint)]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            what = f"--debugpy {port}: {LOOPBACK}:{port} cannot be listened on: {error.strerror}"
            return [Problem(what, "write another port: --debugpy 5679")]
    return []


def _is_in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # no terminal: commands come from a file or pipe


def _is_of_torch(job: Job) -> bool:
    """True if the script names torch."""
    try:
        with open(job.command.program, encoding="utf-8", errors="replace") as file:
            return job.framework in ("auto", "torch") and "torch" in file.read()
    except OSError:
        return False  # a module


def debugged(parsed: ParsedLaunch, rank: int, way: str) -> ParsedLaunch:
    """The launch with a command of its own for one rank, and nothing that ends the others' wait.

    way: the path of the terminal's socket for pdb, or the port of debugpy.
    """
    job, command = parsed.job, parsed.job.command
    under = (str(rank), way, command.kind, command.program, *command.args)
    env = tuple((name, text) for name, text in WAITING.items() if name not in os.environ)
    is_kept = way.isdigit() or "grace_seconds" in job.sources
    job = replace(
        job,
        rank_commands={rank: Entrypoint("script", PROGRAM, under, command.python)},
        logs=replace(job.logs, tail=(str(rank),)) if "logs.tail" not in job.sources else job.logs,
        warm="off",
        timeout_seconds=0.0,
        stall_after_seconds=0.0,
        on_stall="report",
        grace_seconds=job.grace_seconds if is_kept else PROMPT_SECONDS,
        restart=replace(job.restart, max_restarts=0),
        rendezvous=replace(job.rendezvous, join_timeout_seconds=FOREVER_SECONDS),
        extra_env=(*env, *job.extra_env),
    )
    return replace(parsed, job=job)


# -------------------------------------------------------------------- pdb on this terminal


def _launch(parsed: ParsedLaunch, words: Sequence[str], listener: socket.socket, rank: int) -> int:
    """Launch the job in a session of its own, and lend the terminal to the rank until it ends."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR) if os.isatty(0) else os.dup(0)
    except OSError:
        terminal = os.dup(0)
    before = termios.tcgetattr(terminal) if os.isatty(terminal) else None
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        find_prctl()(PR_SET_PDEATHSIG, signal.SIGTERM)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the terminal is not rank 0's
        os._exit(answered(lambda: launch.start(parsed, words)))
    signals, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup)
    for number in HANDED_ON:
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # the shell would read what is meant for pdb
    try:
        LentTerminal(terminal, pid, rank).serve(listener, signals)
    finally:
        if before is not None:
            with suppress(termios.error):  # it was closed
                termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return EXIT_SIGNAL_BASE - code if code < 0 else code


class LentTerminal:
    """A terminal that a rank may use while its job runs. job_pid: the guardian of the job."""

    def __init__(self, terminal: int, job_pid: int, rank: int) -> None:
        self._rank = rank
        self._terminal = terminal
        self._job_pid = job_pid
        self._link: socket.socket | None = None
        self._rank_pid = 0  # of the rank that has the terminal; it is alive
        self._is_asking = False
        self._was_interrupted = False
        self._is_ending = False
        self._has_stayed = False  # a SIGTERM came to the rank at its prompt

    def _interrupt(self) -> None:
        """Hand Ctrl-C to the rank; to the job where the rank has not answered the last one."""
        if not self._rank_pid or self._was_interrupted:
            self._end_job(signal.SIGINT)
            return
        self._was_interrupted = not self._is_asking
        if self._was_interrupted:
            say("interrupted; Ctrl-C again ends the job")
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(self._rank_pid, signal.SIGINT)

    def _end_job(self, number: int) -> None:
        """Hand a signal to the job; a rank that has stayed after a SIGTERM gets no other one."""
        self._is_ending = True
        os.kill(self._job_pid, number)
        if self._has_stayed:
            self._take_back()

    def _take_back(self) -> None:
        """Close the link to the rank, which kills it if it has not ended."""
        if self._link is not None:
            self._link.close()
        self._link, self._rank_pid, self._has_stayed = None, 0, False

    def serve(self, listener: socket.socket, signals: int) -> None:
        """Lend the terminal to each rank that asks, until the job has ended.

        signals: a descriptor that tells the signals to this process (set_wakeup_fd).
        """
        ended = os.pidfd_open(self._job_pid)
        while True:
            link = (self._link.fileno(),) if self._link is not None else ()
            ready = select.select([ended, signals, listener.fileno(), *link], [], [])[0]
            # What the rank says comes first: it tells what a Ctrl-C means.
            if self._link is not None and self._link.fileno() in ready:
                self._hear(self._link)
            if listener.fileno() in ready:
                self._lend(listener.accept()[0])
            for number in os.read(signals, 64) if signals in ready else b"":
                if number == signal.SIGINT:
                    self._interrupt()
                else:
                    self._end_job(number)
            if ended in ready:
                return

    def _lend(self, link: socket.socket) -> None:
        """Give a rank the terminal, unless the job is about to end."""
        self._take_back()
        if self._is_ending:
            link.close()
            return
        say(f"rank {self._rank} is under pdb here, the others wait for it; `q` ends the job, "
            "Ctrl-C interrupts the rank")  # fmt: skip
        socket.send_fds(link, [b"t"], [self._terminal])
        peer = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4)
        self._link = link
        self._rank_pid = int.from_bytes(peer, sys.byteorder)  # struct ucred, unix(7)

    def _hear(self, link: socket.socket) -> None:
        """Read what the rank says; it may have ended."""
        try:
            told = link.recv(64)
        except ConnectionError:
            told = b""
        if not told:
            self._take_back()
        for letter in told.decode():
            if letter == "q":
                self._rank_pid = 0
                self._end_job(signal.SIGINT)
            elif letter == "s":
                self._stay()
            else:
                self._is_asking = letter == "p"
                self._was_interrupted = self._was_interrupted and letter != "p"

    def _stay(self) -> None:
        """Leave the rank at its prompt, unless its end was asked for here."""
        self._has_stayed = True
        if self._is_ending:
            self._take_back()
            return
        say("another rank has failed, or the job was told to stop; "
            f"rank {self._rank} stays for you, `q` ends it")  # fmt: skip
        if os.isatty(self._terminal):
            os.write(self._terminal, f"(Pdb rank {self._rank}) ".encode())


COMMANDS = named(
    CliCommand(
        "debug", NAMES["debug"], FLAGS,
        operands=(Operand("script", "train.py [arguments of train.py]", "", "script"),),
        usages=("--rank N [flags] train.py [arguments of train.py]",),
        notes="Flags of launch (paddock help launch) go before the script, too.\n"
        "The other ranks wait: --timeout, --stall-after, --max-restart and --warm are off.\n"
        "An uncaught exception in the rank ends in pdb where it was raised.",
        more=MORE, extra="debug",
    )
)  # fmt: skip
