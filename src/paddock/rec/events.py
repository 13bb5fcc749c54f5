"""Curves for TensorBoard or VisualDL, by whichever of their writers is installed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

from paddock.errors import UsageError

# Module, class, its directory's argument, what must be installed. add_scalar of each takes (tag,
# value, step) by position. visualdl is what PaddleRec 2.x used (runner.use_visual).
WRITERS = (
    ("visualdl", "LogWriter", "logdir", ("visualdl",)),
    ("torch.utils.tensorboard", "SummaryWriter", "log_dir", ("torch", "tensorboard")),
    ("tensorboardX", "SummaryWriter", "logdir", ("tensorboardX",)),
)


def check_events(directory: str) -> tuple[str, str, str]:
    """Module, class and argument of the writer there is, without importing it.

    Raises UsageError where none is installed.
    """
    for module, name, argument, needed in WRITERS:
        if all(importlib.util.find_spec(package) for package in needed):
            return module, name, argument
    raise UsageError(
        f"curves are wanted in {directory!r}, but nothing that writes them is installed",
        hint="pip install visualdl, tensorboard or tensorboardX; or runner.use_visual: false",
    )


def open_events(directory: str) -> Callable[[str, float, int], None]:
    """A function that writes (name, value, step). Raises UsageError where no writer is there."""
    module, name, argument = check_events(directory)
    writer = getattr(importlib.import_module(module), name)
    write: Callable[[str, float, int], None] = writer(**{argument: directory}).add_scalar
    return write
