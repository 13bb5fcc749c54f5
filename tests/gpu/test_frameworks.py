"""One rank a device with real frameworks: what they add up, they add up on the devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu.conftest import need_framework

if TYPE_CHECKING:
    from gpu.conftest import Gpu
    from local.jobs import World

TORCH = """
import torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
total = torch.full((1 << 20,), RANK + 1.0, device="cuda")
dist.all_reduce(total)
ends = (total[0].item(), total[-1].item())
tell("sum", RANK, *ends, dist.get_backend(), torch.cuda.get_device_properties("cuda").uuid)
dist.destroy_process_group()
"""
PADDLE = """
import paddle, paddle.distributed as dist
dist.init_parallel_env()
total = paddle.full([1 << 20], RANK + 1.0)
dist.all_reduce(total)
tell("sum", RANK, float(total[0]), float(total[-1]), str(total.place).replace(" ", ""))
"""
JAX = """
import jax, jax.numpy as jnp
jax.distributed.initialize()
own = jnp.full((jax.local_device_count(), 1 << 10), RANK + 1.0)
total = jax.pmap(lambda v: jax.lax.psum(v, "all"), axis_name="all")(own)
part = total.addressable_data(0).ravel()
tell("sum", RANK, float(part[0]), float(part[-1]), jax.local_devices()[0].platform,
     jax.local_device_count())
"""


def sums(world: World, script: str, gpus: list[Gpu]) -> list[tuple[str, ...]]:
    """What each rank told behind its two sums, which are right; by rank."""
    ended = world.run(world.script(script))
    assert (ended.code, ended.left) == (0, []), ended.console
    told = sorted(world.events.all("sum"), key=lambda event: int(event[1]))
    assert len(told) == len(gpus)
    wanted = float(sum(range(1, len(gpus) + 1)))
    assert [(float(event[2]), float(event[3])) for event in told] == [(wanted, wanted)] * len(gpus)
    return [event[4:] for event in told]


def test_torch_adds_up_over_nccl(gpus: list[Gpu], world: World) -> None:
    """Each rank on a device of its own, the one that nvidia-smi lists at that place."""
    need_framework("torch")
    told = sums(world, TORCH, gpus)
    assert told == [("nccl", gpu.uuid.removeprefix("GPU-")) for gpu in gpus]


def test_paddle_adds_up_on_the_devices(gpus: list[Gpu], world: World) -> None:
    """FLAGS_selected_gpus leads it there."""
    need_framework("paddle")
    assert all("gpu" in place for (place,) in sums(world, PADDLE, gpus))


def test_jax_adds_up_on_the_devices(gpus: list[Gpu], world: World) -> None:
    """Each process has one device of the job's."""
    need_framework("jax")
    assert sums(world, JAX, gpus) == [("gpu", "1")] * len(gpus)
