"""Submissions for the tests of this folder, as the command line would make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.backends.flags import split_args
from paddock.backends.types import Site, Submission
from paddock.jobfile.parse import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN = "the-key-of-the-job"


def submission(
    *words: str, run_id: str = "train-3f2a", options: Mapping[str, object] | None = None,
    env: tuple[tuple[str, str], ...] = (), package: str = "", workspace: str = "", **extra: str,
) -> Submission:  # fmt: skip
    """What `paddock submit` makes of these words, with an image unless options say otherwise."""
    split = split_args(words)
    site = options if options is not None else {"image": "registry.example/train:1"}
    found = {**site, **extra}  # as find_site does
    job = parse(
        ["--nnodes", split.nnodes or "1", *split.flags, "--", *split.script], {}, python="python3"
    ).job
    env = (*((name, text) for name, _, text in (w.partition("=") for w in split.env)), *env)
    return Submission(
        run_id, run_id.rpartition("-")[0], Site("lab", "kubernetes", found), job,
        tuple(split.flags), package=package, workspace=workspace, env=env, token=TOKEN, extra=extra,
    )  # fmt: skip
