"""Run one node's share of a job from the first process to the last line. Returns an exit code.

Ranks are started before anything that can wait is imported or set up.
"""

from __future__ import annotations

import os

from paddock.agent.coordinator import Coordinator, OwnLink
from paddock.agent.run import Launcher, Run
from paddock.core.hosts import LOOPBACK
from paddock.errors import PaddockError
from paddock.local.loop import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.job import Job
    from paddock.local.warm.kept import Kept


def run_job(
    job: Job,
    env: Mapping[str, str],
    *,
    guardian_pid: int,
    shown: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
    words: Sequence[str] = (),
    kept: Kept | None = None,
) -> int:
    """Run this node's share of the job.

    words: after ``paddock launch``. kept: of a launcher that stays (--warm keep).
    """
    launcher = Launcher(job, env, kept)
    try:
        return _run(launcher, guardian_pid, shown, notes, words)
    except PaddockError as error:
        launcher.abort(error)
        raise


def _run(
    launcher: Launcher,
    guardian_pid: int,
    shown: Sequence[tuple[str, str]],
    notes: Sequence[str],
    words: Sequence[str],
) -> int:
    job = launcher.run.job
    run = launcher.run
    reporter = run.member.reporter
    reporter.say_all([("WARNING", note) for note in notes])
    if not job.record:  # of a submitted job the plan has been shown
        reporter.settings(shown)
    if job.rendezvous.kind == "alone":
        _join_alone(run)  # its ranks run before anything else is done

    def before() -> None:
        launcher.open_record(words, guardian_pid)
        if job.rendezvous.kind != "alone":
            _join_others(run)

    _supervise(launcher, guardian_pid, before)
    return launcher.finish()


def _join_others(run: Run) -> None:
    from paddock.agent.meet import join_others

    join_others(run)


def _join_alone(run: Run) -> None:
    """A job of one node: coordinator and member in this process, no network."""
    coordinator = Coordinator(
        run.job, run.loop, run.new_uid(), on_end=lambda _end: None, on_news=run.on_news
    )
    own = OwnLink(coordinator, run.member, on_refused=lambda: None)
    own.connect(run.job.rendezvous.own_host or LOOPBACK)


def _supervise(launcher: Launcher, guardian_pid: int, before: Callable[[], None]) -> None:
    """Take signals, watch the guardian, and run the loop until the job is over."""
    import gc
    import signal
    import sys

    from paddock.local.signals import forwarded_signals, from_guardian, take_signals

    run = launcher.run
    # The owner thread answers a dying rank; the output thread must not keep it from the GIL.
    sys.setswitchinterval(0.0005)
    # A signal that comes just before the loop sleeps, or to another thread, must wake it too.
    signal.set_wakeup_fd(launcher.loop.wake_fd, warn_on_full_buffer=False)
    signals = _Signals(run)
    for number in forwarded_signals():
        for came_as in {number, from_guardian(number)}:
            signals.watch(number, came_as)
    _watch_guardian(run, guardian_pid)
    take_signals()
    try:
        launcher.output.start()
    except RuntimeError as error:  # the limit of processes (ulimit -u) is reached
        raise PaddockError(f"no thread can be started: {error}", hint="raise ulimit -u") from error
    before()
    if not gc.isenabled():  # else this launcher stays, and may have garbage of a launch before
        gc.freeze()
        gc.enable()
    if not run.is_ended:
        launcher.loop.run()


class _Signals:
    """Signals to this process, and those the guardian hands on.

    What was sent to both at once was sent once: how often is the larger of the two counts. Those
    that end a job are counted together, since any of them means the same.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._heard: dict[int, list[int]] = {}

    def take(self, number: int, *, is_handed_on: bool) -> None:
        """Act on a signal, in the loop, unless it has come the other way already."""
        import signal

        from paddock.local.signals import LOSSES

        if number in LOSSES:
            self._run.member.on_signal(signal.SIGTERM, LOSSES[number])
            return
        is_user = number in (signal.SIGUSR1, signal.SIGUSR2)
        heard = self._heard.setdefault(number if is_user else 0, [0, 0])
        before = max(heard)
        heard[is_handed_on] += 1
        if max(heard) == before:
            return
        if is_user:
            self._run.member.forward(number)
        else:
            self._run.member.on_signal(number)

    def watch(self, number: int, came_as: int) -> None:
        """Take the signal `number` whenever `came_as` comes."""
        import signal

        def act() -> None:
            self.take(number, is_handed_on=came_as != number)

        signal.signal(came_as, lambda _number, _frame: self._run.loop.post(act))


def _watch_guardian(run: Run, guardian_pid: int) -> None:
    def gone(_events: int = 0) -> None:
        from paddock.local.console import last_words
        from paddock.local.sweep import end_descendants

        end_descendants()
        why = "the guardian process was killed; all processes ended"
        last_words(f"paddock: error: {why}\n", run.job.record, why)
        os._exit(137)

    try:
        fd = os.pidfd_open(guardian_pid)
    except ProcessLookupError:
        gone()
        return
    if os.getppid() != guardian_pid:
        gone()
    run.loop.watch(fd, READ, gone)
