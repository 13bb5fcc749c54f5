"""Warm start with real frameworks: what a forked rank computes is what a fresh one does.

One launch holds both: the first attempt learns, so that its ranks import for themselves, and the
second is forked after the imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Need
    from local.jobs import World

# Each tells numbers that must be the same in both attempts, digit by digit, and draws without a
# seed, that must be as different as they are in fresh processes.
TORCH = """
import random, tempfile, uuid
import numpy as np
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    draw("torch", torch.rand(1).item())
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(data, 8, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[RANK::WORLD]), y[RANK::WORLD])
        loss.backward()
        optimizer.step()
        show("loss", loss.item())
    if RANK == 0:  # a worker that imports all of it again
        spawned = DataLoader(data, 16, num_workers=1, multiprocessing_context="spawn")
        show("spawned", *(x.sum().item() for x, _ in spawned))
    show("weights", *model.module.weight.ravel().tolist())
    dist.destroy_process_group()
    end()
"""
PADDLE = """
import numpy as np
import paddle, paddle.distributed as dist
from paddle import nn
draw("paddle", paddle.rand([1]).item())
dist.init_parallel_env()
paddle.seed(3)
model = paddle.DataParallel(nn.Linear(4, 1))
optimizer = paddle.optimizer.Adam(parameters=model.parameters())
rng = np.random.default_rng(3)  # no tensors: Paddle's workers cannot have them
data = list(zip(rng.random((32, 4), "float32"), rng.random((32, 1), "float32")))
sampler = paddle.io.DistributedBatchSampler(data, 4, shuffle=True)
for x, y in paddle.io.DataLoader(data, batch_sampler=sampler, num_workers=1):
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    show("loss", float(loss))
show("weights", *model.parameters()[0].numpy().ravel().tolist())
import logging
tell("said", ATTEMPT, RANK, len(logging.getLogger("hapi").handlers))
end()
"""
JAX = """
import jax, jax.numpy as jnp, numpy as np
jax.distributed.initialize()
own = jax.random.normal(jax.random.key(RANK), (jax.local_device_count(), 4))
for _ in range(3):
    own = jax.pmap(lambda v: jnp.sin(v) + jax.lax.psum(v, "all"), axis_name="all")(own)
    show("sum", *map(float, own.addressable_data(0).ravel()))
end()
"""
# What all of them do.
COMMON = """
def show(*words):
    tell("same", ATTEMPT, RANK, *words)
def draw(what, number):
    tell("drawn", ATTEMPT, RANK, what, number)
def end():
    import random, tempfile, uuid
    import numpy as np
    draw("random", random.random())
    draw("numpy", np.random.rand())
    draw("uuid", uuid.uuid4())
    draw("name", tempfile.mktemp())
    tell("end", ATTEMPT)
    if ATTEMPT == 0:
        gate()
    os._exit(ATTEMPT == 0)
"""


@pytest.mark.parametrize(("module", "text"), [("torch", TORCH), ("paddle", PADDLE), ("jax", JAX)])
def test_forked_ranks_compute_what_fresh_ones_do(
    world: World, need: Need, module: str, text: str
) -> None:
    """With seeds the same to the last digit; without, as different as in fresh processes."""
    need(modules=[module])
    env = {"XDG_CACHE_HOME": str(world.folder / "cache")}
    words = ("--warm", "on", "--nproc_per_node", 2, "--max_restart", 1, "--restart_backoff", 0)
    job = world.start(*words, world.script(COMMON + text), env=env)
    world.events.wait("end", 0, count=2)
    world.open_gate(2)
    done = job.end()
    assert (done.code, done.left) == (0, []), done.console
    assert " modules imported once in " in done.err
    told: dict[str, list[list[tuple[str, ...]]]] = {}
    for event in world.events.all():
        attempts = told.setdefault(" ".join(event[:1]), [[], []])
        attempts[int(event[1])].append(event[2:])
    for kind, (cold, warm) in told.items():
        if kind != "drawn":
            assert sorted(cold) == sorted(warm)
    cold, warm = told["drawn"]
    for what in {event[1] for event in cold}:
        drawn = [[event[2] for event in each if event[1] == what] for each in (cold, warm)]
        assert len({*drawn[0], *drawn[1]}) == (4 if drawn[0][0] != drawn[0][1] else 1), what
