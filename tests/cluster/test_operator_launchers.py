"""A rank that raises below a launcher, in real pods: the pod and the exception that are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.control.frameworks import LacksFrameworkError, with_framework
from paddlejobs import job
from paddock import __version__

if TYPE_CHECKING:
    from cluster.jobs import Place

IMAGE = f"localhost/paddock-demo-torch:{__version__}"
BOOM = "import os, time\nif os.environ['RANK'] == '1': raise ValueError('bad sample 812')\n"
BOOM += "time.sleep(600)\n"
WRITE = f'cat > /tmp/boom.py <<"END"\n{BOOM}END\n'
LAUNCHERS = {
    "paddock": "exec paddock launch /tmp/boom.py",
    "torchrun": "exec python -m torch.distributed.run /tmp/boom.py",
}


def workers(count: int, command: str) -> dict[str, object]:
    """A role of pods that write the script and start it."""
    container = {
        "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", WRITE + command],
    }  # fmt: skip
    return {"replicas": count, "template": {"spec": {"containers": [container]}}}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_rank_that_raised_is_named_with_its_exception(
    place: Place, small_images: None, launcher: str
) -> None:
    """Its launcher's own last line said `Exit code 1`, and worker 0 was named by its number."""
    made = job(launcher, worker=workers(2, LAUNCHERS[launcher]), cleanPodPolicy="Never")
    if launcher == "torchrun":
        try:
            made = with_framework(made, "torch")
        except LacksFrameworkError as lack:
            pytest.skip(str(lack))
    place.apply(made)
    status = place.wait(launcher, "Failed", seconds=240)
    name = f"{launcher}-worker-1"
    assert "rank 1" in status["message"], place.known(launcher)
    assert status["lastFailure"]["pod"] == name, place.known(launcher)
    assert status["lastFailure"]["node"] == place.pods()[name]["spec"]["nodeName"]
    if launcher == "paddock":
        assert "failed first: exit code 1 (rank 1: ValueError: bad sample 812)" in status["message"]
