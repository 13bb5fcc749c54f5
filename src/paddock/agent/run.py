"""Run one node's share of a job from the first process to the last line. Returns an exit code.

Ranks are started before anything that can wait is imported or set up.
"""

from __future__ import annotations

import os

from paddock.agent.coordinator import Coordinator
from paddock.agent.member import Member
from paddock.local.loop import READ, Loop
from paddock.local.output import Output
from paddock.local.text import LEVELS, configuration_lines, launch_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.agent.messages import ToMember
    from paddock.core.job import Job
    from paddock.core.policy import Verdict

OUTPUT_SECONDS = 2.0
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Run:
    """Everything one launcher process owns."""

    def __init__(self, job: Job, env: Mapping[str, str]) -> None:
        self.job = job
        self.env = env
        self.loop = Loop()
        self.output = Output()
        self.level = LEVELS.get(job.logs.level.upper(), 20)
        self.exit_code = 0
        self.member = Member(
            job,
            self.loop,
            self.output,
            env=env,
            pod_name=_pod_name(),
            on_over=self._on_over,
            level=self.level,
        )
        self._is_over = False
        self._may_end = True
        self._closers: list[Callable[[], None]] = []

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

    def finish(self) -> int:
        """Close everything; returns the exit code."""
        for close in self._closers:
            close()
        self.member.close()
        self.output.stop(OUTPUT_SECONDS)
        return self.exit_code


class LocalLink:
    """The coordinator's way to the node it lives on: a call."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def send(self, message: ToMember) -> None:
        """Deliver on the next turn of the loop, but at once before the loop runs."""
        self._run.member.receive(message)

    def close(self) -> None:
        """Nothing to close."""


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
        from paddock.agent.network import join_others

        _supervise(run, guardian_pid, before=lambda: join_others(run))
    return run.finish()


def _join_alone(run: Run) -> None:
    """A job of one node: coordinator and member in this process, no network."""

    def on_end(_verdict: Verdict) -> None:
        return

    coordinator = Coordinator(run.job, run.loop, new_uid(), on_end=on_end)
    attach_self(run, coordinator, run.job.rendezvous.own_host or "127.0.0.1")


def attach_self(run: Run, coordinator: Coordinator, address: str) -> int:
    """Make this node the first member of its own coordinator."""
    member_id = coordinator.attach(LocalLink(run))
    run.member.connect(
        lambda message: coordinator.receive(member_id, message, is_self=True), address
    )
    return member_id


def _supervise(run: Run, guardian_pid: int, before: Callable[[], None] | None = None) -> None:
    """Take signals, watch the guardian, and run the loop until the job is over."""
    import signal
    import sys

    from paddock.local.guardian import become_subreaper, forwarded_signals

    # The owner thread answers a dying rank; the output thread must not keep it from the GIL.
    sys.setswitchinterval(0.0005)
    become_subreaper()
    for number in forwarded_signals():
        signal.signal(number, lambda n, _frame: run.loop.post(lambda: _on_signal(run, n)))
    _watch_guardian(run, guardian_pid)
    run.output.start()
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
        from time import monotonic

        from paddock.local.guardian import end_descendants

        end_descendants(deadline=monotonic() + 5.0)
        os.write(2, b"paddock: error: the guardian process was killed; all processes ended\n")
        os._exit(137)

    try:
        fd = os.pidfd_open(guardian_pid)
    except ProcessLookupError:
        gone()
        return
    if os.getppid() != guardian_pid:
        gone()
    run.loop.watch(fd, READ, gone)


def new_uid() -> str:
    """Sixteen hex digits that no other run has."""
    return os.urandom(8).hex()


def _pod_name() -> str:
    """Six lower-case letters, as in the users' documents."""
    return "".join(LETTERS[b % 26] for b in os.urandom(6))
