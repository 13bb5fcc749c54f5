"""Run one node's share of a job from the first process to the last line. Returns an exit code.

Ranks are started before anything that can wait is imported or set up.
"""

from __future__ import annotations

import os

from paddock.agent.coordinator import Coordinator
from paddock.agent.run import Launcher, Run
from paddock.errors import PaddockError
from paddock.local.loop import READ
from paddock.local.text import configuration_lines, launch_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.job import Job
    from paddock.core.messages import Letter


def run_job(
    job: Job,
    env: Mapping[str, str],
    *,
    guardian_pid: int,
    shown: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> int:
    """Run this node's share of the job."""
    launcher = Launcher(job, env)
    run = launcher.run
    banner = [launch_line("WARNING", note) for note in notes]
    if run.level <= 20:
        banner += [launch_line("INFO", line) for line in configuration_lines(shown)]
    launcher.output.say("".join(banner))
    if job.rendezvous.kind == "alone":
        _join_alone(run)
        _supervise(launcher, guardian_pid)
    else:
        _supervise(launcher, guardian_pid, before=lambda: _join_others(run))
    return launcher.finish()


def _join_others(run: Run) -> None:
    from paddock.agent.meet import join_others

    join_others(run)


def _join_alone(run: Run) -> None:
    """A job of one node: coordinator and member in this process, no network."""
    coordinator = Coordinator(run.job, run.loop, run.new_uid(), on_end=lambda _end: None)
    member = coordinator.attach(OwnLink(run))
    run.member.connect(
        coordinator.uid,
        lambda letter: coordinator.receive(member, letter, is_self=True),
        run.job.rendezvous.own_host or "127.0.0.1",
    )


class OwnLink:
    """The coordinator's way to the node it lives on: a call."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def send(self, letter: Letter) -> None:
        """Deliver at once."""
        self._run.member.receive(letter)

    def close(self) -> None:
        """Nothing to close."""


def _supervise(
    launcher: Launcher, guardian_pid: int, before: Callable[[], None] | None = None
) -> None:
    """Take signals, watch the guardian, and run the loop until the job is over."""
    import signal
    import sys

    from paddock.local.signals import forwarded_signals, take_signals

    run = launcher.run
    # The owner thread answers a dying rank; the output thread must not keep it from the GIL.
    sys.setswitchinterval(0.0005)
    # A signal that comes just before the loop sleeps, or to another thread, must wake it too.
    signal.set_wakeup_fd(launcher.loop.wake_fd, warn_on_full_buffer=False)
    for number in forwarded_signals():
        signal.signal(number, lambda n, _frame: run.loop.post(lambda: _on_signal(run, n)))
    _watch_guardian(run, guardian_pid)
    take_signals()
    try:
        launcher.output.start()
    except RuntimeError as error:  # the limit of processes (ulimit -u) is reached
        raise PaddockError(f"no thread can be started: {error}", hint="raise ulimit -u") from error
    if before is not None:
        before()
    if not run.is_ended:
        launcher.loop.run()


def _on_signal(run: Run, number: int) -> None:
    import signal

    if number in (signal.SIGUSR1, signal.SIGUSR2):
        run.member.forward(number)
        return
    run.member.on_signal(number)


def _watch_guardian(run: Run, guardian_pid: int) -> None:
    def gone(_events: int = 0) -> None:
        from paddock.local.console import last_words
        from paddock.local.sweep import end_descendants

        end_descendants()
        last_words("paddock: error: the guardian process was killed; all processes ended\n")
        os._exit(137)

    try:
        fd = os.pidfd_open(guardian_pid)
    except ProcessLookupError:
        gone()
        return
    if os.getppid() != guardian_pid:
        gone()
    run.loop.watch(fd, READ, gone)
