"""What one launcher process owns: the loop, the output, and its node's part in a job."""

from __future__ import annotations

import os

from paddock.agent.member import Member
from paddock.local.loop import Loop
from paddock.local.output import Output
from paddock.local.text import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.agent.coordinator import Coordinator
    from paddock.agent.messages import ToMember
    from paddock.core.job import Job

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


def attach_self(run: Run, coordinator: Coordinator, address: str) -> int:
    """Make this node the first member of its own coordinator."""
    member_id = coordinator.attach(LocalLink(run))
    run.member.connect(
        lambda message: coordinator.receive(member_id, message, is_self=True), address
    )
    return member_id


def new_uid() -> str:
    """Sixteen hex digits that no other run has."""
    return os.urandom(8).hex()


def _pod_name() -> str:
    """Six lower-case letters, as in the users' documents."""
    return "".join(LETTERS[b % 26] for b in os.urandom(6))
