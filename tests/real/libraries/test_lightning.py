"""Lightning under `paddock launch`, as docs/libraries/lightning.md says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real.libraries.conftest import RestartOf


@pytest.mark.limit(240)  # two starts: on a busy machine imports take a minute
def test_lightning_resumes_with_one_model_after_a_killed_rank(restart_of: RestartOf) -> None:
    """Lightning takes the ranks for those of torchrun, and needs no plug-in for that."""
    job = restart_of("lightning", ["lightning"])
    assert job.resumed == [0, 1]
    assert job.is_one_model(), job
