"""Curves for TensorBoard or VisualDL, by whichever of their writers is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from paddock.errors import UsageError

# Module, class, its directory's argument. add_scalar of each takes (tag, value, step) by position.
# visualdl is what PaddleRec 2.x used (runner.use_visual).
WRITERS = (
    ("visualdl", "LogWriter", "logdir"),
    ("torch.utils.tensorboard", "SummaryWriter", "log_dir"),
    ("tensorboardX", "SummaryWriter", "logdir"),
)


def open_events(directory: str) -> Callable[[str, float, int], None]:
    """A function that writes (name, value, step). Raises UsageError where no writer is there."""
    for module, name, argument in WRITERS:
        try:
            writer = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        write: Callable[[str, float, int], None] = writer(**{argument: directory}).add_scalar
        return write
    raise UsageError(
        f"curves are wanted in {directory!r}, but nothing that writes them is installed",
        hint="pip install visualdl, tensorboard or tensorboardX; or runner.use_visual: false",
    )
