"""DeepSpeed under `paddock launch`, as docs/libraries/deepspeed.md says."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real.libraries.conftest import RestartOf


@pytest.mark.limit(300)  # its first start on a machine without a GPU compiles an extension
@pytest.mark.skipif(not find_spec("deepspeed"), reason="DeepSpeed is not in .venv/.real, note 0031")
def test_deepspeed_resumes_with_one_model_after_a_killed_rank(restart_of: RestartOf) -> None:
    """ZeRO over gloo; the `deepspeed` command starts nothing here."""
    job = restart_of("deepspeed", ["deepspeed"])
    assert job.resumed == [0, 1]
    assert job.is_one_model(), job
