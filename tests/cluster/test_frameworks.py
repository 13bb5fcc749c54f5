"""torch.yaml and jax.yaml in real containers: the same resource, other frameworks."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.control.frameworks import LacksFrameworkError, with_framework

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster
    from cluster.control.operators import Operator

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "examples"
END_SECONDS_MAX = 240.0
# What the documents of these files offer in place of the command that stands in them.
COMMANDS = {
    "torch": ["python", "torch_digits.py"],
    "torch-torchrun": ["python", "-m", "torch.distributed.run", "torch_digits.py"],
    "torch-paddock": ["paddock", "launch", "torch_digits.py"],
    "jax": ["python", "jax_digits.py"],
}


def finished(cluster: Cluster, name: str, namespace: str) -> dict[str, Any]:
    """The status of a job that is over."""
    until = time.monotonic() + END_SECONDS_MAX
    while True:
        said = cluster.kubectl("get", "pdj", name, "-n", namespace, "-o", "json").stdout
        status: dict[str, Any] = json.loads(said).get("status", {})
        if status.get("phase") in ("Completed", "Failed"):
            return status
        assert time.monotonic() < until, status
        time.sleep(0.5)  # sleep: kubectl has no wait for one of two phases


@pytest.mark.parametrize("how", COMMANDS)
def test_other_frameworks_train_under_the_same_resource(
    cluster: Cluster, operator: Operator, small_images: None, namespace: str, how: str
) -> None:
    """No launcher, torchrun by its PET variables, or ours: two pods are one world that learns."""
    module = how.split("-")[0]
    job = yaml.safe_load((EXAMPLES / f"{module}.yaml").read_text("utf-8"))
    try:
        job = with_framework(job, module)
    except LacksFrameworkError as lack:
        pytest.skip(str(lack))
    assert operator.pid
    job["spec"]["worker"]["template"]["spec"]["containers"][0]["command"] = COMMANDS[how]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(job))
    status = finished(cluster, module, namespace)
    log = cluster.kubectl("logs", f"{module}-worker-0", "-n", namespace, check=False).stdout
    assert status["phase"] == "Completed", f"{status}\n{log}"
    assert re.search(r"accuracy 0\.9\d\d on 360 unseen digits", log), log
