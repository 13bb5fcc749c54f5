"""What bundled models read."""

from __future__ import annotations

import pytest

from paddock.errors import UsageError
from paddock.rec.bundled.formats import format_of
from paddock.rec.settings import ModelKind, Reading, Task, TrainingRun


def test_a_pipe_command_of_a_bundled_model_is_refused() -> None:
    """It was left out without a word: the job trained on what the files themselves say."""
    run = TrainingRun("train", Task.TRAIN, ModelKind.BUNDLED, ".", "model.py")
    with pytest.raises(UsageError, match="pipe_command is 'cat'"):
        format_of(Reading(("data",), 2, pipe_command="cat"), run)
