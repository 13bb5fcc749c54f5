"""Run one node's share of a job from the first process to the last line. Returns an exit code.

Ranks are started before anything that can wait is imported or set up.
"""

from __future__ import annotations

import os

from paddock.agent.coordinator import Coordinator
from paddock.agent.run import Run, attach_self, new_uid
from paddock.errors import PaddockError
from paddock.local.loop import READ
from paddock.local.text import configuration_lines, launch_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.job import Job
    from paddock.core.policy import Verdict


def run_job(
    job: Job,
    env: Mapping[str, str],
    *,
    guardian_pid: int,
    shown: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> int:
    """Run this node's share of the job."""
    run = Run(job, env)
    banner = [launch_line("WARNING", note) for note in notes]
    if run.level <= 20:
        banner += [launch_line("INFO", line) for line in configuration_lines(shown)]
    run.output.say("".join(banner))
    if job.rendezvous.kind == "alone":
        _join_alone(run)
        _supervise(run, guardian_pid)
    else:
        _supervise(run, guardian_pid, before=lambda: _join_others(run))
    return run.finish()


def _join_others(run: Run) -> None:
    if run.job.rendezvous.kind == "etcd":
        from paddock.agent.elected import join_by_etcd

        join_by_etcd(run)
    else:
        from paddock.agent.network import join_by_master

        join_by_master(run)


def _join_alone(run: Run) -> None:
    """A job of one node: coordinator and member in this process, no network."""

    def on_end(_verdict: Verdict) -> None:
        return

    coordinator = Coordinator(run.job, run.loop, new_uid(), on_end=on_end)
    attach_self(run, coordinator, run.job.rendezvous.own_host or "127.0.0.1")


def _supervise(run: Run, guardian_pid: int, before: Callable[[], None] | None = None) -> None:
    """Take signals, watch the guardian, and run the loop until the job is over."""
    import signal
    import sys

    from paddock.local.signals import forwarded_signals, take_signals

    # The owner thread answers a dying rank; the output thread must not keep it from the GIL.
    sys.setswitchinterval(0.0005)
    # A signal that comes just before the loop sleeps, or to another thread, must wake it too.
    signal.set_wakeup_fd(run.loop.wake_fd, warn_on_full_buffer=False)
    for number in forwarded_signals():
        signal.signal(number, lambda n, _frame: run.loop.post(lambda: _on_signal(run, n)))
    _watch_guardian(run, guardian_pid)
    take_signals()
    try:
        run.output.start()
    except RuntimeError as error:  # the limit of processes (ulimit -u) is reached
        raise PaddockError(f"no thread can be started: {error}", hint="raise ulimit -u") from error
    if before is not None:
        before()
    if not run.is_ended:
        run.loop.run()


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
