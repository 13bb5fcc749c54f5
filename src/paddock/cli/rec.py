"""``paddock rec``: recommendation models from PaddleRec's two files."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.cli.family import CliCommand, named
from paddock.cli.main import COMMANDS as NAMES
from paddock.rec.config.args import TABLE


def _run(words: Sequence[str]) -> int:
    """Train the model of a config.yaml; returns only where no process is started."""
    from paddock.rec.run import run as run_rec

    return run_rec(words, _check_submission)


def _check_submission(words: Sequence[str]) -> None:
    """Check the arguments of a submission, offline. Raises UsageError as `paddock submit` would."""
    from paddock.backends.backend import find_backend
    from paddock.backends.submit import read_args, read_submission

    submission = read_submission(read_args(words))
    find_backend(submission.site.backend).plan(submission)


COMMANDS = named(
    CliCommand(
        "rec",
        NAMES["rec"],
        TABLE.flags,
        takes_args=_run,
        usages=("-m CONFIG [-b BACKEND] [-o KEY=VALUE ...] [flags]",),
        notes="PaddleRec's of any age, or a bundled one.",
        extra="ps",
    )
)
