"""The launcher of systems without posix_spawn or pidfd (Windows, macOS, old Linux): one machine.

The same plan, environment, log files, report and exit codes, with subprocess and two threads per
process; whatever else is asked for is refused. What rests on the missing kernel features is
missing too: children that a process started outside its group are not ended, nothing is ended
when Paddock is killed, and a log directory is not locked.

Rule: only what every system has, so no guardian process, loop, output or ports from this package.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from time import monotonic, monotonic_ns

from paddock import errors
from paddock.contracts.environment import proc_env, shared_env
from paddock.core.attempt.exits import Exit, find_culprit, unfinished
from paddock.core.attempt.policy import Verdict
from paddock.core.attempt.supervisor import SignalGroup, Supervisor
from paddock.core.hosts import LOOPBACK, SERVICES, host_of, with_ports
from paddock.core.plan import make_plan
from paddock.core.rendezvous.messages import SetTimer, Stop, TimerFired
from paddock.core.value import replace
from paddock.errors import Problem, UsageError
from paddock.local.ending import has_peer_loss, has_timed_out
from paddock.local.facts.devices import find_devices
from paddock.local.guardian import reset_signals
from paddock.local.output.console import prefix_of, shown_keys, write_all
from paddock.local.output.logs import FILE_MODE, LAUNCHER_LOG, log_folder
from paddock.local.report.reporter import Reporter, ScreenReporter, is_short, stderr_columns
from paddock.local.report.text import LEVELS, end_text, job_line
from paddock.local.runs.record import keep_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from paddock.core.attempt.supervisor import Event
    from paddock.core.job import Job
    from paddock.core.plan import Plan, Proc

    Popen = subprocess.Popen[bytes]

TAIL_BYTES = 4096
DRAIN_SECONDS = 1.0  # for output that a survivor may hold open
# Windows runs a Python signal handler only between two waits, so no wait is longer.
ROUND_SECONDS = 0.2
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # the last is Windows' Ctrl-Break


def run_portable(job: Job, env: Mapping[str, str], cores: int) -> int:
    """Run a job of one machine on so many cores; returns the exit code.

    Raises UsageError for any other job.
    """
    problems = list(find_limits(job))
    if problems:
        raise UsageError.of(problems)
    if job.warm != "off":
        sys.stderr.write(
            "paddock: warning: not warm: it needs Linux 5.3; every process imports for itself\n"
        )
    gc.enable()
    return PortableRun(job, env, cores).run()


def find_limits(job: Job) -> Iterator[Problem]:
    """The flags of this job that only Linux can carry out."""
    where = f"on {'Windows' if os.name == 'nt' else 'a system without pidfd (Linux 5.3)'}"
    nodes = f"one machine only, this job has {job.nnodes_max} nodes or a meeting point"
    has_others = job.nnodes_max > 1 or job.rendezvous.kind != "alone"
    has_servers = any(role.name != "worker" for role in job.roles)
    for is_asked, what, hint in (
        (has_others, nodes, "leave out --nnodes, --master and --ips"),
        (job.is_elastic, "no elastic jobs", "leave out --elastic-level"),
        (job.restart.max_restarts > 0, "no restarts", "leave out --max-restart"),
        (bool(job.record), "no record", "leave out --record"),
        (job.metrics_port is not None, "no metrics", "leave out --metrics-port"),
        (has_servers, "no parameter servers", "use --run-mode collective"),
    ):
        if is_asked:
            yield Problem(f"{where} {what}", f"{hint}, or launch it on Linux 5.3 or newer")


class PortableRun:
    """A job on a system without pidfd. Owned by the main thread; other threads only put events."""

    def __init__(self, job: Job, env: Mapping[str, str], cores: int) -> None:
        self.job = job
        self._cores = cores
        devices = find_devices(job, env)
        address = job.rendezvous.own_host or LOOPBACK
        host = host_of(job, devices, name=socket.gethostname(), address=address)
        wanted = (*host.ports, *(0,) * len(SERVICES))
        self._held = [_bind(port, job.port_range) for port in wanted]
        host = with_ports(host, [hold.getsockname()[1] for hold in self._held])
        self.env = {**env, **dict(devices.env)}
        self.plan: Plan = make_plan(job, (host,), 0, os.urandom(8).hex())
        keys = [(p.role, p.rank) for p in self.plan.procs]
        self.supervisor = Supervisor(0, keys, grace_seconds=job.grace_seconds)
        self._folder = log_folder(job.logs.directory)
        self._run_dir = os.path.join(self._folder, ".paddock", self.plan.uid)
        self._is_recorded = False
        self.why = ""  # what ended the job; the first reason wins
        self._signal = 0
        self._timer_at: float | None = None
        self._events: queue.SimpleQueue[Event | int] = queue.SimpleQueue()
        self._children: dict[int, Popen] = {}
        self._readers: list[threading.Thread] = []
        self._tails: dict[int, bytes] = {}
        self._console = threading.Lock()
        self._reporter = self._choose_reporter()

    def run(self) -> int:
        """Start, watch, report."""
        reset_signals()
        numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
        taken = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
        before = [(n, signal.signal(n, lambda got, _: self._events.put(got))) for n in taken]
        try:
            self._start()
            self._watch()
        finally:
            for child in self._children.values():
                child.kill()
            for number, handler in before:
                signal.signal(number, handler)
        deadline = monotonic() + DRAIN_SECONDS
        for reader in self._readers:
            reader.join(max(0.0, deadline - monotonic()))
        try:
            os.rmdir(self._run_dir)
        except OSError:
            pass  # something was left there on purpose
        verdict = self._judge()
        self._reporter.over(verdict, self.plan)
        if verdict.exit_code:
            keep_reason(end_text(verdict, is_alone=True), verdict)
        return verdict.exit_code

    def _choose_reporter(self) -> Reporter:
        if not is_short(self.job):
            return Reporter(LEVELS[self.job.logs.level], self._write_both)
        return ScreenReporter(
            self.job,
            self.env,
            self._write,
            self._record,
            lambda: self._folder,
            columns=stderr_columns,
        )

    def _start(self) -> None:
        job = self.job
        try:
            os.makedirs(self._run_dir, mode=0o700, exist_ok=True)
            logs = [_open_log(self._log_path(p), job.logs.overwrite) for p in self.plan.procs]
        except OSError as error:
            raise UsageError(
                f"log_dir '{job.logs.directory}' is not writable: {error.strerror}",
                hint="choose another with --log-dir",
            ) from error
        shared = shared_env(
            self.env, job, self.plan, node_rank=0, cores=self._cores,
            log_dir=self._folder, run_dir=self._run_dir, pod_name=self.plan.uid[:6],
        )  # fmt: skip
        self._reporter.starting(self.plan, 0)
        self._reporter.echo(job_line(self.plan, False), *shared.notes)
        for hold in self._held:
            hold.close()
        keys = shown_keys(job.logs.tail, self.plan.procs)
        # Both streams are one here: hidden is who shows neither.
        streams_of = job.logs.streams_of
        shown = [
            p for p in self.plan.procs if (p.role, p.rank) in keys and streams_of(p.local_rank)
        ]
        for proc, log_fd in zip(self.plan.procs, logs, strict=True):
            env, backup = proc_env(shared, proc)
            if backup is not None:
                with open(_open_log(backup[0], True), "w", encoding="utf-8") as f:
                    json.dump(backup[1], f)
            prefix = prefix_of(job, proc, len(shown))
            self._spawn(proc, env, log_fd, prefix if proc in shown else None)

    def _spawn(self, proc: Proc, env: dict[str, str], log_fd: int, prefix: bytes | None) -> None:
        argv = list(self.job.command.argv())
        try:
            child = subprocess.Popen(
                argv,
                bufsize=0,
                env=env,
                stdin=None if proc.rank == 0 else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C is for Paddock only
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            os.close(log_fd)
            code, cause = errors.EXIT_NOT_EXECUTABLE, "not-executable"
            if isinstance(error, FileNotFoundError):
                code, cause = errors.EXIT_NOT_FOUND, "not-found"
            tail = f"{argv[0]}: {error.strerror}"
            self._events.put(replace(_exit(proc, code), cause=cause, tail=tail))
            return
        self._children[proc.rank] = child
        reader = threading.Thread(
            target=self._read, args=(proc, child, log_fd, prefix), daemon=True
        )
        reader.start()
        self._readers.append(reader)
        threading.Thread(target=self._await_end, args=(proc, child), daemon=True).start()

    # ---------------------------------------------------- the processes' threads

    def _await_end(self, proc: Proc, child: Popen) -> None:
        code = child.wait()
        self._events.put(replace(_exit(proc, code), pid=child.pid))

    def _read(self, proc: Proc, child: Popen, log_fd: int, prefix: bytes | None) -> None:
        """Copy all output to the log file, and whole lines to the console unless prefix is None."""
        assert child.stdout is not None
        partial, is_lost = b"", False
        while data := child.stdout.read(1 << 16):
            self._tails[proc.rank] = (self._tails.get(proc.rank, b"") + data)[-TAIL_BYTES:]
            try:
                write_all(log_fd, data)
            except OSError as error:
                if not is_lost:
                    self._reporter.say(
                        "WARNING", f"cannot log {proc.name}: {error.strerror}; it goes on"
                    )
                is_lost = True
            if prefix is not None:
                *lines, partial = (partial + data).split(b"\n")
                self._show(prefix, lines)
        self._show(prefix or b"", [partial] if partial else [])
        child.stdout.close()
        os.close(log_fd)

    def _show(self, prefix: bytes, lines: list[bytes]) -> None:
        text = b"".join(prefix + line.decode("utf-8", "replace").encode() + b"\n" for line in lines)
        with self._console:
            try:
                write_all(1, text)
            except OSError:
                return  # the reader is gone; the files have it

    def _record(self, text: str) -> None:
        """Append the text to LAUNCHER_LOG; best effort."""
        path = os.path.join(self._folder, LAUNCHER_LOG)
        try:
            fd = _open_log(path, self.job.logs.overwrite and not self._is_recorded)
            with open(fd, "w", encoding="utf-8", errors="replace") as f:
                f.write(text)
        except OSError:
            return
        self._is_recorded = True

    def _write_both(self, text: str) -> None:
        self._write(text)
        self._record(text)

    def _write(self, text: str) -> None:
        with self._console:
            sys.stderr.write(text)
            sys.stderr.flush()

    # ------------------------------------------------------------------ watch

    def _watch(self) -> None:
        limit = self.job.timeout_seconds
        deadline = monotonic() + limit if limit > 0 else None
        while self.supervisor.phase != "ended":
            now = monotonic()
            if deadline is not None and now >= deadline:
                deadline = None
                self._stop("deadline")
            if self._timer_at is not None and now >= self._timer_at:
                self._timer_at = None
                self._feed(TimerFired())
            try:
                event = self._events.get(timeout=ROUND_SECONDS)
            except queue.Empty:
                continue
            if isinstance(event, int):
                self._reporter.say("INFO", f"Terminating with signal {int(event)}")
                # Whether a rank handles another one than SIGINT is known by /proc only.
                first = int(event) if event == signal.SIGINT else signal.SIGTERM
                self._stop("signal", force=self._signal != 0, first=first)
                self._signal = self._signal or int(event)
            else:
                self._feed(event)

    def _stop(self, why: str, *, force: bool = False, first: int = signal.SIGTERM) -> None:
        self.why = self.why or why
        self._feed(Stop(0, why, force, signal=first))

    def _feed(self, event: Event) -> None:
        for action in self.supervisor.handle(event, monotonic()):
            if isinstance(action, SignalGroup):
                _signal_group(self._children.get(action.key[1]), action.signal)
            elif isinstance(action, SetTimer):
                self._timer_at = action.at
        if not self.why and any(e.failed for e in self.supervisor.exits):
            self.why = "failure"

    def _judge(self) -> Verdict:
        exits = tuple(self._with_tail(e) for e in self.supervisor.exits)
        if self.why == "deadline":
            text = f"the job's time limit of {self.job.timeout_seconds:g} s is over (--timeout)"
            text += unfinished(exits)
            return Verdict("fail", errors.EXIT_DEADLINE, text, exits=exits)
        if self.why == "signal":
            code = errors.EXIT_SIGNAL_BASE + self._signal
            clean = all(e.ok for e in exits)
            return Verdict("cancel", code, "this machine was told to", exits=exits, clean=clean)
        culprit = find_culprit(exits)
        if culprit is None:
            return Verdict("succeed", 0, "", exits=exits)
        return Verdict("fail", culprit.exit_code, "", culprit=culprit, exits=exits)

    def _with_tail(self, exit_: Exit) -> Exit:
        tail = self._tails.get(exit_.rank, b"")
        if exit_.ok or not tail:
            return exit_
        return replace(
            exit_,
            log=self._log_path(exit_),
            tail=tail.decode("utf-8", "replace"),
            peer_loss=has_peer_loss(tail),
            timed_out=has_timed_out(tail),
        )

    def _log_path(self, proc: Proc | Exit) -> str:
        return os.path.join(self._folder, f"workerlog.{proc.rank}")


def _bind(port: int, within: tuple[int, int] | None) -> socket.socket:
    for choice in range(within[0], within[1] + 1) if within and not port else (port,):
        sock = socket.socket()
        try:
            sock.bind((LOOPBACK, choice))
        except OSError:
            sock.close()
        else:
            return sock
    what = f"port {port} is in use" if port else "not enough free ports"
    raise UsageError(what, hint="choose others with --start-port")


def _open_log(path: str, is_new: bool) -> int:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_new else os.O_APPEND)
    return os.open(path, flags | getattr(os, "O_BINARY", 0), FILE_MODE)


def _exit(proc: Proc, code: int) -> Exit:
    """The Exit of a process that ended now. code: negative for a signal, as in subprocess."""
    end = Exit(proc.role, proc.rank, 0, proc.host, 0, monotonic_ns(), code)
    return replace(end, code=0, signal=-code, cause="signal") if code < 0 else end


def _signal_group(child: Popen | None, number: int) -> None:
    if child is None or child.poll() is not None:
        return
    try:
        if hasattr(os, "killpg"):
            os.killpg(child.pid, number)
        else:
            child.terminate()  # Windows knows no gentler way
    except ProcessLookupError:
        return
