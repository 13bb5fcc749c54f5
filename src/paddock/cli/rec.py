"""``paddock rec``: recommendation models from PaddleRec's two files."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.rec.run import run as run_rec


def run(argv: Sequence[str]) -> int:
    """Start what a config.yaml says; comes back only where nothing is started."""
    return run_rec(argv)
