"""A trainer of paddock.ps whose network is on a device: the tables learn as from the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu.conftest import need_framework
from ps.adapters.served import servers

if TYPE_CHECKING:
    from gpu.conftest import Gpu
    from local.jobs import World

# A table of words and a dense layer learn to tell even words from odd ones.
TRAIN = """
import torch
from paddock.ps import Client, OptimizerSpec
from paddock.ps.torch import DenseParameters, Embedding
device = torch.device(sys.argv[2])
torch.manual_seed(1)
with Client(sys.argv[1], strategy="half_async") as client:
    words = Embedding(client, "words", 4, optimizer=OptimizerSpec("adagrad", 0.1), pooling="sum")
    top = torch.nn.Linear(4, 1).to(device)
    dense = DenseParameters(client, top, optimizer=OptimizerSpec("adam", 0.05))
    ids = torch.arange(64, device=device).reshape(32, 2) // 2 * 2
    ids[1::2] += 1
    label = (ids[:, :1] % 2).float()
    for step in range(60):
        out = top(words(ids))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(out, label)
        loss.backward()
        words.push()
        dense.push()
        client.step()
        dense.pull()
        if step in (0, 59):
            tell("loss", step, loss.item(), out.device.type)
"""


def losses(world: World, device: str) -> tuple[list[float], set[str]]:
    """The first and the last loss of a training, and where it was computed."""
    world.events.seen.clear()
    with servers(1) as endpoints:
        ended = world.run("--nproc_per_node", 1, world.script(TRAIN), endpoints, device)
    assert (ended.code, ended.left) == (0, []), ended.console
    told = world.events.all("loss")
    return [float(event[2]) for event in told], {event[3] for event in told}


def test_a_trainer_on_a_device_learns_as_on_the_processor(gpus: list[Gpu], world: World) -> None:
    """Ids, rows and gradients go to the device and back; the losses differ by rounding alone."""
    for module in ("numba", "xxhash"):
        pytest.importorskip(module)
    need_framework("torch")
    there, where = losses(world, "cuda")
    here, _ = losses(world, "cpu")
    assert where == {"cuda"}
    assert there == pytest.approx(here, rel=1e-3)
    assert there[1] < there[0] / 2
