"""The errors of a run that did not succeed."""

from __future__ import annotations

from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class RunFailedError(PaddockError):
    """A run failed, was stopped or was lost, and no rank failed first.

    run_id: of the run. state: failed, cancelled or lost. exit_code: the job's.
    """

    def __init__(self, message: str, *, run_id: str, state: str, exit_code: int) -> None:
        super().__init__(message, hint=f"paddock logs {run_id}", exit_code=exit_code)
        self.run_id = run_id
        self.state = state


class RankFailedError(RunFailedError):
    """A rank failed first (the root cause), and the run with it.

    rank, host, role: of that rank. traceback: the traceback of its function, or the last lines of
    its log. consequences: the other ranks that failed or were stopped because of it, by number.
    exit_code: of the rank. __cause__ is the exception that its function raised, where it could be
    returned.
    """

    def __init__(
        self,
        message: str,
        *,
        run_id: str,
        exit_code: int,
        rank: int,
        host: str,
        role: str = "worker",
        traceback: str = "",
        consequences: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message, run_id=run_id, state="failed", exit_code=exit_code)
        self.rank = rank
        self.host = host
        self.role = role
        self.traceback = traceback
        self.consequences = consequences

    def __str__(self) -> str:
        others = self.consequences
        because = f"\nstopped or failed because of it: {ranks_text(others)}" if others else ""
        return f"{self.message}\n{self.traceback.rstrip()}{because}".rstrip()


def ranks_text(numbers: Sequence[int]) -> str:
    from paddock.local.report.text import spans

    return f"rank{'s' * (len(numbers) > 1)} {spans(sorted(numbers))}"
