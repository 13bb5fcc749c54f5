"""The Trainer of Hugging Face Transformers, as docs/libraries/hf-trainer.md says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real.libraries.conftest import RestartOf


@pytest.mark.limit(240)  # two starts: on a busy machine imports take a minute
def test_the_trainer_resumes_with_one_model_after_a_killed_rank(restart_of: RestartOf) -> None:
    """It finds the ranks through Accelerate, and its last checkpoint by itself."""
    job = restart_of("hf-trainer", ["transformers", "accelerate"])
    assert job.resumed == [0, 1]
    assert job.is_one_model(), job
