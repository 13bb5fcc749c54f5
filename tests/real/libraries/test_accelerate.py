"""Hugging Face Accelerate under `paddock launch`, as docs/libraries/accelerate.md says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real.libraries.conftest import RestartOf


@pytest.mark.limit(240)  # two starts: on a busy machine imports take a minute
def test_accelerate_resumes_with_one_model_after_a_killed_rank(restart_of: RestartOf) -> None:
    """Accelerate finds the ranks without `accelerate config`; its checkpoint brings back all."""
    job = restart_of("accelerate", ["accelerate"])
    assert job.resumed == [0, 1]
    assert job.is_one_model(), job
