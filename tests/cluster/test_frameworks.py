"""torch.yaml and jax.yaml in real containers: the same resource, other frameworks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from cluster.control.frameworks import LacksFrameworkError, with_framework

if TYPE_CHECKING:
    from cluster.jobs import Place

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"
END_SECONDS_MAX = 240.0
# What the documents of these files offer in place of the command that stands in them.
COMMANDS = {
    "torch": ["python", "torch_digits.py"],
    "torch-torchrun": ["python", "-m", "torch.distributed.run", "torch_digits.py"],
    "torch-paddock": ["paddock", "launch", "torch_digits.py"],
    "jax": ["python", "jax_digits.py"],
}


@pytest.mark.parametrize("how", COMMANDS)
def test_other_frameworks_train_under_the_same_resource(
    place: Place, small_images: None, how: str
) -> None:
    """No launcher, torchrun by its PET variables, or ours: two pods are one world that learns."""
    module = how.split("-")[0]
    job = yaml.safe_load((EXAMPLES / f"{module}.yaml").read_text("utf-8"))
    try:
        job = with_framework(job, module)
    except LacksFrameworkError as lack:
        pytest.skip(str(lack))
    job["spec"]["worker"]["template"]["spec"]["containers"][0]["command"] = COMMANDS[how]
    place.apply(job)
    status = place.end(module, seconds=END_SECONDS_MAX)
    log = place.logs(f"{module}-worker-0")
    assert status["phase"] == "Completed", f"{status}\n{log}"
    assert re.search(r"accuracy 0\.9\d\d on 360 unseen digits", log), log
