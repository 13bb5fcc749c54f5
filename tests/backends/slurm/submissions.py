"""Submissions for the tests of this folder, as the command line would make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.backends.types import Site, Submission
from paddock.jobfile.parse import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN = "the-key-of-the-job"


def submission(
    *words: str, run_id: str = "train-3f2a", options: Mapping[str, object] | None = None,
    env: tuple[tuple[str, str], ...] = (), package: str = "/home/me/code", workspace: str = "",
    file: str = "", **extra: str,
) -> Submission:  # fmt: skip
    """What `paddock submit` makes of these words: flags, `--`, script."""
    at = words.index("--")
    flags = tuple(word for word in words[:at] if not word.startswith("--nnodes="))
    return Submission(
        run_id, run_id.rpartition("-")[0], Site("lab", "slurm", options or {}),
        parse(words, {}, python="python3").job, flags, file=file, package=package,
        workspace=workspace, env=env, token=TOKEN, is_detached=True, extra=extra,
    )  # fmt: skip
