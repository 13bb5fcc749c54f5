"""A rank that dies for memory, the machine's or the device's, is named, and its device is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cgroups import small_memory_group
from gpu.conftest import ask, need_framework
from gpu.driver import DRIVER
from local.jobs import wait_until

if TYPE_CHECKING:
    from gpu.conftest import Gpu
    from local.jobs import World

MEMORY_LIMIT = 4 << 30  # a CUDA context alone takes some hundred MB of the machine's memory
HELD_MIB = 1024


def used_mib(gpu: Gpu) -> int:
    """Memory of a device in use, by whomever."""
    (row,) = [row for row in ask("gpu=uuid,memory.used") if row[0] == gpu.uuid]
    return int(row[1])


def test_a_rank_killed_for_memory_leaves_its_device(gpus: list[Gpu], world: World) -> None:
    """The kernel kills it while it holds memory of a device; both are said and given back."""
    text = f"""{DRIVER}
use_first()
allocate({HELD_MIB} << 20)
tell("holds", RANK)
gate()
kept = []
while True:
    kept.append(bytearray(b"x" * (64 << 20)))
"""
    before = used_mib(gpus[0])
    with small_memory_group(MEMORY_LIMIT) as group:
        running = world.start(
            "--devices", gpus[0].index, world.script(text),
            before=["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"],
        )  # fmt: skip
        world.events.wait("holds")
        assert used_mib(gpus[0]) >= before + HELD_MIB
        world.open_gate(1)
        ended = running.end()
    assert (ended.code, ended.left) == (137, [])
    assert "was killed for lack of memory (SIGKILL, cgroup oom_kill)" in ended.err
    wait_until(lambda: used_mib(gpus[0]) < before + HELD_MIB)


def test_a_device_without_memory_is_told_in_the_ranks_words(gpus: list[Gpu], world: World) -> None:
    """The driver refuses; the report has the rank and its last line."""
    text = f"{DRIVER}\nuse_first()\nallocate(1 << 50)\n"
    ended = world.run("--devices", gpus[0].index, world.script(text))
    assert (ended.code, ended.left) == (1, [])
    assert "first failure: rank 0" in ended.err
    assert "CUDA_ERROR_OUT_OF_MEMORY" in ended.err


def test_torch_without_memory_is_told_in_its_words(gpus: list[Gpu], world: World) -> None:
    """What people see most often."""
    need_framework("torch")
    text = "import torch\ntorch.empty(1 << 50, dtype=torch.uint8, device='cuda')\n"
    ended = world.run("--devices", gpus[0].index, world.script(text))
    assert (ended.code, ended.left) == (1, [])
    assert "CUDA out of memory" in ended.err
