"""The launcher: loop, this node's part in a job, record; from the first rank to the exit code.

Ranks are started before anything that can wait is imported or set up.
"""

from __future__ import annotations

import os

from paddock.agent.coordinator import Coordinator, CoordinatorEvents, LocalLink
from paddock.agent.member import Member
from paddock.core.attempt.supervisor import SIGTERM
from paddock.core.hosts import LOOPBACK
from paddock.core.rendezvous.messages import Warn
from paddock.errors import PaddockError
from paddock.local.guardian import find_prctl, yama_scope
from paddock.local.loop import READ, Loop
from paddock.local.node import LaunchContext, NodeRunner
from paddock.local.output.logs import run_folder
from paddock.local.output.noise import PADDLE_SOURCES, SOURCES
from paddock.local.output.streams import OutputThread
from paddock.local.report.reporter import Reporter, ScreenReporter, is_short, stderr_columns
from paddock.local.report.text import LEVELS, end_text
from paddock.local.runs.entry import CALLER_FD, CONTROL, RunEntry, is_recorded, job_name, take_entry
from paddock.local.runs.record import keep_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from socket import socket

    from paddock.agent.control import ControlServer
    from paddock.agent.recorder import StatusRecorder
    from paddock.agent.run_record import RunRecord
    from paddock.agent.view import JobView
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.core.plan import Plan
    from paddock.local.warm.process import DaemonLoop
    from paddock.watch.watcher import Watcher

OUTPUT_SECONDS = 2.0
WATCH_SECONDS = 1.0  # from the start on: a shorter job needs no watch
RANKS_SECONDS = 0.2  # left to ranks that start, before the record of their run is begun beside them
PR_SET_PTRACER = 0x59616D61  # linux/prctl.h
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def run_job(
    job: Job,
    env: Mapping[str, str],
    *,
    cores: int,
    guardian_pid: int,
    notes: Sequence[str] = (),
    words: Sequence[str] = (),
    kept: DaemonLoop | None = None,
) -> int:
    """Run this node's part of the job; returns the exit code.

    cores: that this process may use. words: arguments of ``paddock launch``. kept: the loop of a
    launcher that stays (--warm keep).
    """
    entry = take_entry(env, job_name(job, env)) if is_recorded(job, env) else RunEntry("", "")
    launcher: LauncherProcess | None = None
    try:
        launcher = LauncherProcess(job, env, cores, entry, kept)
        reporter = launcher.member.reporter
        reporter.say_all([("WARNING", note) for note in notes])
        listener = launcher.metrics_listener
        if listener is not None and job.metrics_port == 0:
            reporter.say("INFO", f"metrics are on port {listener.getsockname()[1]}")
        if not is_short(job):
            _tell_settings(job, reporter)
        if job.rendezvous.kind == "alone":
            launcher.join_alone()  # its ranks run before anything else is done
        if is_short(job):  # to the log only: no rank waits for it
            _tell_settings(job, reporter)
        launcher.supervise(guardian_pid, words)
        return launcher.finish()
    except BaseException as error:
        if launcher is not None and isinstance(error, PaddockError):
            launcher.abort(error)
        entry.remove_empty()
        raise


def _tell_settings(job: Job, reporter: Reporter) -> None:
    from paddock.jobfile.configuration import configuration

    if not job.record:  # of a submitted job the plan has been shown
        reporter.settings(configuration(job))


class Launcher(CoordinatorEvents):
    """This node's launcher. The parts that tests/sim replaces are passed in: loop, node, console.

    Its methods are the events of its member and of a coordinator on this node.
    """

    def __init__(
        self,
        job: Job,
        context: LaunchContext,
        *,
        loop: Loop,
        node: NodeRunner,
        say_raw: Callable[..., None],
        reporter: Reporter,
        recorder: StatusRecorder | None = None,
    ) -> None:
        """recorder: for --record. say_raw(text, to_stdout=False): writes to the console."""
        self.job = job
        self.env = context.env
        self.loop = loop
        self.say_raw = say_raw
        self.exit_code = 0
        self.coordinator: Coordinator | None = None  # while it is on this node
        self.verdict: Verdict | None = None  # the job's, or this node's own when it gives up
        self.view: JobView | None = None  # once the control socket or a record needs it
        self.member = Member(
            job, loop, node, reporter=reporter, pod_name=context.pod_name, events=self
        )
        self._recorder = recorder
        self._is_over = False
        self._may_end = True
        self._closers: list[Callable[[], None]] = []

    def join_alone(self) -> None:
        """Start a job of one node: coordinator and member in this process, no network."""
        coordinator = Coordinator(self.job, self.loop, self.new_uid(), events=self)
        LocalLink(coordinator, self.member).connect(self.job.rendezvous.own_host or LOOPBACK)

    def on_news(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        if self._recorder is not None:
            self._recorder.on_news(coordinator)
        self._show_change()

    def on_session_over(self) -> None:
        self.coordinator = None
        if self._recorder is not None:
            self._recorder.on_session_over()
        self._show_change()

    def on_verdict(self, verdict: Verdict, uid: str, is_own: bool) -> None:
        self.verdict = verdict
        if self._recorder is not None:
            self._recorder.on_verdict(verdict, uid, is_own)
        self._show_change()

    def starting(self, plan: Plan, node_rank: int) -> None:
        """The processes of an attempt start next."""

    def _show_change(self) -> None:
        if self.view is not None:
            self.view.changed()

    def over(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._is_over = True
        if self._may_end:
            self.loop.stop()

    @property
    def is_ended(self) -> bool:
        """True when there is nothing to wait for."""
        return self._is_over and self._may_end

    def end_when_over(self) -> None:
        """End this process once its member has ended; the leader's goodbye is done (server.py)."""
        self._may_end = True
        if self._is_over:
            self.loop.stop()

    def hold_end(self) -> None:
        """Do not end with the member's part: other nodes have still to hear the verdict."""
        self._may_end = False

    def at_end(self, close: Callable[[], None]) -> None:
        """Call this when the job is over, before the last lines are written."""
        self._closers.append(close)

    def close(self) -> None:
        for close in self._closers:
            close()
        self.member.close()

    def new_uid(self) -> str:
        """Sixteen hex digits that no other run has."""
        return os.urandom(8).hex()


class LauncherProcess(Launcher):
    """A Launcher on this machine, with its real loop, output and processes."""

    def __init__(
        self, job: Job, env: Mapping[str, str], cores: int, entry: RunEntry,
        kept: DaemonLoop | None = None,
    ) -> None:  # fmt: skip
        """kept: the loop of a launcher that stays, with the warm state of the launch before."""
        loop = Loop() if kept is None else kept.loop
        # A submitter tells the two apart by where they are: backends/node/main.py.
        self.output = output = OutputThread(on_lost=self._on_lost, has_own_screen=bool(job.record))
        self.control: ControlServer | None = None
        self.record: RunRecord | None = None
        self.watcher: Watcher | None = None
        self._begin_record: Callable[[], None] | None = None
        self._waits_from = 0.0  # for other nodes, by the loop's clock
        self._began_at = loop.wall()
        self.metrics_listener: socket | None = None
        if job.metrics_port is not None:
            from paddock.watch.metrics import open_port

            self.metrics_listener = open_port(job.metrics_port)
        self._entry = entry
        context = LaunchContext(env, cores, _pod_name(), entry.run_id, entry.folder, kept)
        self._node = node = NodeRunner(job, context, loop, output)
        node.allow_tracer = _allow_tracer(env)
        super().__init__(
            job, context, loop=loop, node=node, say_raw=output.say,
            reporter=_reporter(job, context, node, output),
            recorder=_recorder(job, loop, output, context.pod_name),
        )  # fmt: skip

    def _on_lost(self, text: str) -> None:
        self.loop.post(lambda: self.member.tell(Warn(text)))

    def supervise(self, guardian_pid: int, words: Sequence[str]) -> None:
        """Take signals, watch the guardian, and run the loop until the job is over."""
        import gc
        import signal
        import sys

        from paddock.agent.signals import LauncherSignals, OrphanReaper
        from paddock.local.guardian import forwarded_signals, from_guardian, take_signals

        # The owner thread answers a dying rank; the output thread must not keep it from the GIL.
        sys.setswitchinterval(0.0005)
        # A signal that comes just before the loop sleeps, or to another thread, must wake it too.
        signal.set_wakeup_fd(self.loop.wake_fd, warn_on_full_buffer=False)
        signals = LauncherSignals(self)
        for number in forwarded_signals():
            for came_as in {number, from_guardian(number)}:
                signals.watch(number, came_as)
        OrphanReaper(self.loop, self._node.reap).watch()
        self._watch_guardian(guardian_pid)
        self._watch_caller()
        take_signals()
        try:
            self.output.start()
        except RuntimeError as error:  # the limit of processes (ulimit -u) is reached
            raise PaddockError(
                f"no thread can be started: {error}", hint="raise ulimit -u"
            ) from error
        self._open_record_soon(words, guardian_pid)
        self.loop.at("watch", self.loop.now() + WATCH_SECONDS, self._begin_watch)
        if self.job.rendezvous.kind != "alone":
            from paddock.agent.rendezvous import join_others

            self._waits_from = self.loop.now()
            join_others(self)
        if not gc.isenabled():  # else this launcher stays, and may have garbage of a launch before
            gc.freeze()
            gc.enable()
        if not self.is_ended:
            self.loop.run()

    def _watch_guardian(self, guardian_pid: int) -> None:
        def gone(_events: int = 0) -> None:
            from paddock.local.guardian import end_descendants
            from paddock.local.output.console import last_words

            end_descendants()
            why = "the guardian process was killed; all processes ended"
            last_words(f"paddock: error: {why}\n", self.job.record, why)
            os._exit(137)

        try:
            fd = os.pidfd_open(guardian_pid)
        except ProcessLookupError:
            gone()
            return
        if os.getppid() != guardian_pid:
            gone()
        self.loop.watch(fd, READ, gone)

    def _watch_caller(self) -> None:
        """End the job when the Python process that called paddock.launch has gone."""
        text = self.env.get(CALLER_FD, "")
        if not text.isdecimal():
            return
        fd = int(text)

        def gone(_events: int = 0) -> None:
            self.loop.unwatch(fd)
            self.member.on_signal(SIGTERM, "caller")

        try:
            os.set_inheritable(fd, False)
            self.loop.watch(fd, READ, gone)
        except OSError:
            return  # the variable was inherited, and not the pipe

    def _begin_watch(self) -> None:
        """Watch this node's ranks from now on, or from when there are logs."""
        if not self._node.logs:
            self.loop.at("watch", self.loop.now() + WATCH_SECONDS, self._begin_watch)
            return
        from paddock.watch.watcher import WatchedRun, Watcher

        run = WatchedRun(
            self._node, self.member, self.loop, self.env,
            run_id=self._entry.run_id, began_at=self._began_at, waits_from=self._waits_from,
            is_waiting=lambda: (
                self.coordinator is not None and self.coordinator.machine.phase == "gathering"
            ),
            folder=self._entry.folder, metrics_listener=self.metrics_listener,
        )  # fmt: skip
        self.watcher = Watcher(run)
        try:
            self.watcher.start()
        except RuntimeError:
            self.watcher = None  # no thread can be started: nobody looks

    # --------------------------------------------------- record and control socket

    def _open_record_soon(self, words: Sequence[str], guardian_pid: int) -> None:
        """Make this launch a run among the others, and answer on its control socket.

        Where ranks are starting, this comes when they have had the processors to themselves for a
        moment, or at the end. words: arguments of ``paddock launch``.
        """

        def begin() -> None:
            self._begin_record = None
            self._open_record(words, guardian_pid)

        if self.member.plan is None or self.job.record:  # its submitter looks for it
            begin()
        else:
            self._begin_record = begin
            self.loop.at("begin-record", self.loop.now() + RANKS_SECONDS, begin)

    def _open_record(self, words: Sequence[str], guardian_pid: int) -> None:
        """Open the record of the run; a failure to write or open is one warning."""
        job = self.job
        from paddock.agent.view import JobView

        self.view = view = JobView(self)
        problem = self._entry.problem
        if self._entry.folder:
            from paddock.agent.run_record import RunRecord
            from paddock.local.runs.record import RecordFolder

            try:
                folder = RecordFolder(self._entry.folder, self.output, "the record")
                self.record = RunRecord(
                    folder, self.loop, self.output, view, run_id=self._entry.run_id,
                    name=job_name(job, self.env), words=words, nnodes=job.nnodes_max,
                    began_at=self._began_at,
                )  # fmt: skip
                self.record.begin(self.env, guardian_pid)
            except PaddockError as error:
                problem = error.message
        if self.record is not None and self.member.plan is not None:
            self.record.on_plan(self.member.plan, 0)
            view.changed()
        if problem:
            self.member.say("WARNING", f"this run is not recorded: {problem}")
        if self._entry.run_id or job.record:
            self._open_control(view)
        if self.record is not None:
            self.record.ask_git(self.env, self._node.own_pids)
            self.record.prune(self.env)

    def _open_control(self, view: JobView) -> None:
        """Open the control socket in the run's directory, or in that of its record.

        Hosts may share the directory of --record: there the name has the host's in it.
        """
        from paddock.agent.control import ControlServer

        job, run_id = self.job, self._entry.run_id
        directory = os.path.abspath(job.record) if job.record else run_folder(job, run_id)
        name = f"{CONTROL}.{os.uname().nodename}" if job.record else CONTROL
        control = ControlServer(
            self.loop, self.output, view, lambda now: self.member.stop(SIGTERM, now=now)
        )
        for folder in (directory, self._entry.folder):
            try:
                os.makedirs(folder, exist_ok=True)
                control.open(folder, name)
                self.control = control
                break
            except OSError:
                continue  # NFS and FUSE without sockets, a full or read-only disk
        self._keep_places()

    def _keep_places(self) -> None:
        if self.record is None:
            return
        planned = run_folder(self.job, self._entry.run_id)  # until there are logs
        self.record.keep(
            directory=self._node.directory or planned,
            logs=self._node.logs or planned,
            control=self.control.path if self.control is not None else "",
            uid=self.member.uid,
        )

    def starting(self, plan: Plan, node_rank: int) -> None:
        if self.record is not None:
            self.record.on_plan(plan, node_rank)
            self._keep_places()

    def finish(self, problem: str = "") -> int:
        """Close everything; returns the exit code. problem: the error that ended the launch."""
        self.close()
        is_late = self.watcher is None and self._node.has_unread_reports
        if is_late:
            self._begin_watch()  # of a short job: its reports are kept
        if self.watcher is not None:
            self.watcher.close()
            if self.watcher.bill and is_short(self.job) and not is_late:
                self.member.say("INFO", self.watcher.bill)
        elif self.metrics_listener is not None:
            self.metrics_listener.close()
        if self._begin_record is not None:
            self.loop.at("begin-record", None, self._begin_record)
            self._begin_record()
        why, member = problem or self.member.problem, self.member
        if self.verdict is not None:
            is_alone = self.job.nnodes_max == 1
            why = end_text(self.verdict, member.stopped_by, is_alone=is_alone)
        if self.record is not None:
            self.record.end(self.exit_code, why, was_stopped=bool(member.stop_signal))
        if self.exit_code:
            keep_reason(why, self.verdict, member.node_rank)
        if self.control is not None:
            self.control.close(self.exit_code)
        self.output.stop(OUTPUT_SECONDS)
        return self.exit_code

    def abort(self, error: PaddockError) -> None:
        """End a launch that failed as a whole; the caller prints why."""
        self.exit_code = error.exit_code
        try:
            self.finish(error.message)
        except RuntimeError:  # no thread can be started, so nothing can be written
            return


def _recorder(job: Job, loop: Loop, output: OutputThread, pod_name: str) -> StatusRecorder | None:
    """The StatusRecorder of --record, None without it. Raises UsageError."""
    if not job.record:
        return None
    from paddock.agent.recorder import StatusRecorder, launcher_name  # only with the flag
    from paddock.local.runs.record import RecordFolder

    return StatusRecorder(job, loop, RecordFolder(job.record, output), launcher_name(pod_name))


def _reporter(job: Job, context: LaunchContext, node: NodeRunner, output: OutputThread) -> Reporter:
    """The console, short or as Paddle's launcher; launcher.log has Paddle's lines always."""
    if not is_short(job):

        def write(text: str) -> None:
            output.say(text)
            node.record(text)

        return Reporter(LEVELS[job.logs.level], write)

    screen = ScreenReporter(
        job, context.env, output.say, node.record, node.shown_logs, output.has_shown,
        columns=stderr_columns, run_id=context.run_id if context.folder else "",
        has_time=not job.record,  # `paddock submit` shows it, perhaps on a terminal
    )  # fmt: skip
    output.fold(screen.folded, SOURCES if job.command.runs_python else PADDLE_SOURCES)
    return screen


def _allow_tracer(env: Mapping[str, str]) -> Callable[[], object] | None:
    """The call by which a rank allows this launcher, and so its py-spy, to trace it.

    None where that is of no use: only Yama's ptrace_scope 1 asks for it (Ubuntu's default), and
    only py-spy traces. Measured with Linux 6.1: what is allowed stays so over exec(2).
    Source: Documentation/admin-guide/LSM/Yama.rst, PR_SET_PTRACER.
    """
    if yama_scope() != "1":
        return None
    from paddock.watch.stacks import find_pyspy

    prctl, launcher_pid = find_prctl(), os.getpid()
    return (lambda: prctl(PR_SET_PTRACER, launcher_pid)) if find_pyspy(env) else None


def _pod_name() -> str:
    """Six lower-case letters, as in the users' documents."""
    return "".join(LETTERS[b % 26] for b in os.urandom(6))
