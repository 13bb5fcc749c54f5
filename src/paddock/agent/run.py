"""What one launcher process owns: the loop, the output, and its node's part in a job."""

from __future__ import annotations

import os

from paddock.agent.member import Member
from paddock.agent.view import JobView
from paddock.core.job import Job
from paddock.errors import PaddockError
from paddock.local.logs import run_folder
from paddock.local.loop import Loop
from paddock.local.output import Output
from paddock.local.reporter import Reporter, is_short
from paddock.local.runs import CONTROL, Entry, is_recorded, job_name, take_entry
from paddock.local.share import Share
from paddock.local.text import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.agent.control import ControlServer
    from paddock.agent.coordinator import Coordinator
    from paddock.agent.recorder import Recorder
    from paddock.agent.run_record import RunRecord
    from paddock.core.plan import Plan
    from paddock.core.policy import Verdict
    from paddock.local.warm.kept import Kept

OUTPUT_SECONDS = 2.0
RANKS_SECONDS = 0.2  # left to ranks that start, before the record of their run is begun beside them
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Run:
    """Everything one launcher process owns; what the simulator replaces is passed in."""

    def __init__(
        self,
        job: Job,
        env: Mapping[str, str],
        *,
        loop: Loop,
        share: Share,
        say_raw: Callable[..., None],
        pod_name: str,
        recorder: Recorder | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """recorder: of --record."""
        self.job = job
        self.env = env
        self.loop = loop
        self.say_raw = say_raw
        self.exit_code = 0
        self.member = Member(
            job,
            loop,
            share,
            say_raw=say_raw,
            pod_name=pod_name,
            on_over=self._on_over,
            reporter=reporter or Reporter(LEVELS[job.logs.level], say_raw),
        )
        self.view = JobView(job, loop, self.member)
        self._watchers: list[JobView | Recorder] = [self.view]
        self._watchers += [recorder] if recorder is not None else []
        self.member.on_verdict = self._on_verdict
        self._is_over = False
        self._may_end = True
        self._closers: list[Callable[[], None]] = []

    def on_news(self, coordinator: Coordinator) -> None:
        """This node coordinates, and the job's state has changed."""
        for each in self._watchers:
            each.on_news(coordinator)

    def on_reign_over(self) -> None:
        """This node does not coordinate any more."""
        for each in self._watchers:
            each.on_reign_over()

    def _on_verdict(self, verdict: Verdict, uid: str, is_own: bool) -> None:
        for each in self._watchers:
            each.on_verdict(verdict, uid, is_own)

    def _on_over(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self._is_over = True
        if self._may_end:
            self.loop.stop()

    @property
    def is_ended(self) -> bool:
        """True when there is nothing to wait for."""
        return self._is_over and self._may_end

    def end_when_over(self) -> None:
        """Nothing else has to be done before this process ends (see server.py)."""
        self._may_end = True
        if self._is_over:
            self.loop.stop()

    def hold_end(self) -> None:
        """Do not end with the member's part: others have still to be told."""
        self._may_end = False

    def at_end(self, close: Callable[[], None]) -> None:
        """Call this when the job is over, before the last lines are written."""
        self._closers.append(close)

    def close(self) -> None:
        """Call what at_end was told, and give back what the member holds."""
        for close in self._closers:
            close()
        self.member.close()

    def new_uid(self) -> str:
        """Sixteen hex digits that no other run has."""
        return os.urandom(8).hex()


class Launcher:
    """A Run on this machine, with its real loop, output and processes."""

    def __init__(self, job: Job, env: Mapping[str, str], kept: Kept | None = None) -> None:
        """kept: the loop, and what the launch before has left, of a launcher that stays."""
        self.loop = Loop() if kept is None else kept.loop
        # A submitter tells the two apart by where they are: backends/node/main.py.
        self.output = Output(on_lost=self._on_lost, has_own_screen=bool(job.record))
        self.env = env
        self.control: ControlServer | None = None
        self.record: RunRecord | None = None
        self._begin_record: Callable[[], None] | None = None
        self._began_at = self.loop.wall()
        pod_name = _pod_name()
        is_run = is_recorded(job, env)
        self._entry = take_entry(env, job_name(job)) if is_run else Entry("", "")
        self._share = Share(
            job, self.loop, self.output, env, pod_name, kept, self._entry.run_id, self._entry.folder
        )
        share = self._share
        self.run = Run(
            job,
            env,
            loop=self.loop,
            share=share,
            say_raw=self.output.say,
            pod_name=pod_name,
            recorder=_recorder(job, self.loop, self.output, pod_name),
            reporter=_reporter(
                job, env, share, self.output, self._entry.run_id if self._entry.folder else ""
            ),
        )

    def _on_lost(self, text: str) -> None:
        """In the output thread."""
        self.loop.post(lambda: self.run.member.warn(text))

    def open_record(self, words: Sequence[str], guardian_pid: int) -> None:
        """Make this launch a run among the others, and answer on its control socket.

        Where ranks are starting, this comes when they have had the processors to themselves for a
        moment, or at the end. words: after ``paddock launch``.
        """

        def begin() -> None:
            self._begin_record = None
            self._open_record(words, guardian_pid)

        if self.run.member.plan is None or self.run.job.record:  # its submitter looks for it
            begin()
        else:
            self._begin_record = begin
            self.loop.at("begin-record", self.loop.now() + RANKS_SECONDS, begin)

    def _open_record(self, words: Sequence[str], guardian_pid: int) -> None:
        """What cannot be written or opened is told in one line."""
        job, run = self.run.job, self.run
        problem = self._entry.problem
        if self._entry.folder:
            from paddock.agent.run_record import RunRecord
            from paddock.local.record import RecordFolder

            try:
                folder = RecordFolder(self._entry.folder, self.output, "the record")
                self.record = RunRecord(
                    folder, self.loop, self.output, run.view, run_id=self._entry.run_id,
                    name=job_name(job), words=words, nnodes=job.nnodes_max,
                    began_at=self._began_at,
                )  # fmt: skip
                run.member.on_plan = self._on_plan
                self.record.begin(self.env, guardian_pid)
            except PaddockError as error:
                problem = error.message
        if self.record is not None and run.member.plan is not None:
            self.record.on_plan(run.member.plan, 0)
            run.view.changed()
        if problem:
            run.member.say("WARNING", f"this run is not recorded: {problem}")
        if self._entry.run_id or job.record:
            self._open_control()
        if self.record is not None:
            self.record.ask_git(self.env, self._share.own_pids)
            self.record.prune(self.env)

    def _open_control(self) -> None:
        """In the run's directory; where that cannot have a socket, in that of its record.

        Hosts may share the directory of --record: there the name has the host's in it.
        """
        from paddock.agent.control import ControlServer

        job, run_id = self.run.job, self._entry.run_id
        directory = os.path.abspath(job.record) if job.record else run_folder(job, run_id)
        name = f"{CONTROL}.{os.uname().nodename}" if job.record else CONTROL
        control = ControlServer(self.loop, self.output, self.run.view, self._stop)
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
        planned = run_folder(self.run.job, self._entry.run_id)  # until there are logs
        self.record.keep(
            directory=self._share.directory or planned,
            logs=self._share.logs or planned,
            control=self.control.path if self.control is not None else "",
        )

    def _on_plan(self, plan: Plan, node_rank: int) -> None:
        assert self.record is not None
        self.record.on_plan(plan, node_rank)
        self._keep_places()

    def _stop(self, now: bool) -> None:
        """Asked for on the control socket."""
        from signal import SIGTERM

        self.run.member.stop(SIGTERM, now=now)

    def finish(self, problem: str = "") -> int:
        """Close everything; returns the exit code. problem: what the launch ended with."""
        run = self.run
        run.close()
        if self._begin_record is not None:
            self.loop.at("begin-record", None, self._begin_record)
            self._begin_record()
        if self.record is not None:
            member = run.member
            self.record.end(run.exit_code, problem or member.problem,
                            was_told=bool(member.told_signal),
                            stopped_by=member.stopped_by)  # fmt: skip
        if self.control is not None:
            self.control.close(run.exit_code)
        self.output.stop(OUTPUT_SECONDS)
        return run.exit_code

    def abort(self, error: PaddockError) -> None:
        """The launch has failed as a whole; the caller tells why."""
        self.run.exit_code = error.exit_code
        try:
            self.finish(error.message)
        except RuntimeError:  # no thread can be started, and so nothing can be written
            return


def _recorder(job: Job, loop: Loop, output: Output, pod_name: str) -> Recorder | None:
    """Of --record. Raises UsageError."""
    if not job.record:
        return None
    from paddock.agent.recorder import Recorder, launcher_name  # only for those who use the flag
    from paddock.local.record import RecordFolder

    return Recorder(job, loop, RecordFolder(job.record, output), launcher_name(pod_name))


def _reporter(
    job: Job, env: Mapping[str, str], share: Share, output: Output, run_id: str
) -> Reporter:
    """The console, short or as Paddle's launcher; launcher.log has Paddle's lines always.

    run_id: by which people find this launch again, "" where it is not recorded.
    """
    if not is_short(job):

        def write(text: str) -> None:
            output.say(text)
            share.record(text)

        return Reporter(LEVELS[job.logs.level], write)
    from paddock.local.screen import ScreenReporter, columns_of

    screen = ScreenReporter(
        job,
        env,
        output.say,
        share.record,
        lambda: share.shown_logs,
        output.has_shown,
        columns=lambda: columns_of(2),
        has_time=not job.record,  # `paddock submit` shows it, perhaps on a terminal
        run_id=lambda: run_id,
    )
    output.fold(screen.folded)
    return screen


def _pod_name() -> str:
    """Six lower-case letters, as in the users' documents."""
    return "".join(LETTERS[b % 26] for b in os.urandom(6))
