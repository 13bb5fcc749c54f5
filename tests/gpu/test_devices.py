"""Devices are counted, named and given to ranks as nvidia-smi and CUDA's driver see them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gpu.driver import DRIVER

if TYPE_CHECKING:
    from gpu.conftest import Gpu
    from local.jobs import World

SEE = DRIVER + 'tell("sees", RANK, os.environ.get("FLAGS_selected_gpus"), *devices())\n'


def explained(world: World, *words: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What `paddock explain --json` says."""
    done = subprocess.run(
        [sys.executable, "-m", "paddock", "explain", "--json", *words, "train.py"],
        env=world.env(env), cwd=world.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def seen(world: World, *words: object, env: dict[str, str] | None = None) -> list[list[str]]:
    """What each rank of a job was told and sees, by rank; the job ends well."""
    ended = world.run(*words, world.script(SEE), env=env)
    assert (ended.code, ended.left) == (0, []), ended.console
    told = sorted(world.events.all("sees"), key=lambda event: int(event[1]))
    return [list(event[2:]) for event in told]


def bare(gpu: Gpu) -> str:
    """A UUID as the driver gives it."""
    return gpu.uuid.removeprefix("GPU-")


def test_there_are_as_many_processes_as_nvidia_smi_lists(gpus: list[Gpu], world: World) -> None:
    """One process a device, each with its own."""
    processes = explained(world)["processes"]
    assert [p["device_kind"] for p in processes] == ["gpu"] * len(gpus)
    assert [p["device_labels"] for p in processes] == [[gpu.index] for gpu in gpus]


def test_every_rank_finds_its_own_device(gpus: list[Gpu], world: World) -> None:
    """The position that a rank is told, in what the driver shows it, is the device it was given."""
    ranks = seen(world)
    assert len(ranks) == len(gpus)
    assert [shown[int(position)] for position, *shown in ranks] == [bare(gpu) for gpu in gpus]


@pytest.mark.parametrize("how", ["its index", "its UUID", "the start of its UUID"])
@pytest.mark.parametrize("by", ["variable", "flag"])
def test_a_device_may_be_named_by(how: str, by: str, gpus: list[Gpu], world: World) -> None:
    """As people and schedulers do; the rank then sees that one and no other."""
    gpu = gpus[-1]
    names = {"its index": gpu.index, "its UUID": gpu.uuid, "the start of its UUID": gpu.uuid[:12]}
    words = ("--devices", names[how]) if by == "flag" else ()
    env = {"CUDA_VISIBLE_DEVICES": names[how]} if by == "variable" else {}
    assert seen(world, *words, env=env) == [["0", bare(gpu)]]


def test_a_mig_device_may_be_named(gpus: list[Gpu], world: World) -> None:
    """By the name that nvidia-smi -L prints, in the variable and in the flag."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    names = [line.rpartition("UUID: ")[2].rstrip(")") for line in listed.splitlines()]
    migs = [name for name in names if name.startswith("MIG-")]
    if not migs:
        pytest.skip(f"no MIG device: {len(gpus)} whole GPUs")
    wanted = [["0", migs[0].removeprefix("MIG-")]]
    assert seen(world, env={"CUDA_VISIBLE_DEVICES": migs[0]}) == wanted
    world.events.seen.clear()
    assert seen(world, "--devices", migs[0]) == wanted


def test_a_mig_name_is_passed_through_as_it_is(gpus: list[Gpu], world: World) -> None:
    """Nothing here lists MIG devices: the driver resolves the name, if it is told."""
    name = "MIG-5b7c3d1e-0000-5000-8000-000000000001"
    (process,) = explained(world, "--devices", name)["processes"]
    assert process["device_labels"] == [name]
    assert process["environment"]["CUDA_VISIBLE_DEVICES"] == name


def test_an_empty_list_hides_every_device(gpus: list[Gpu], world: World) -> None:
    """One process on the processor, and the driver shows it nothing."""
    env = {"CUDA_VISIBLE_DEVICES": ""}
    (process,) = explained(world, env=env)["processes"]
    assert process["device_kind"] == "cpu"
    assert seen(world, env=env) == [["None"]]


def test_the_processor_may_be_asked_for(gpus: list[Gpu], world: World) -> None:
    """More ranks than devices, and none is told to use one."""
    count = len(gpus) + 1
    told = seen(world, "--devices", "cpu", "--nproc_per_node", count)
    assert [position for position, *_ in told] == ["None"] * count


def test_more_processes_than_devices_are_refused(gpus: list[Gpu], world: World) -> None:
    """With both numbers, before anything starts."""
    count = len(gpus) + 1
    ended = world.run("--nproc_per_node", count, world.script("pass"))
    assert ended.code == 2
    assert f"--nproc_per_node {count} needs {count} devices" in ended.err


def test_a_device_that_is_not_there_is_refused(gpus: list[Gpu], world: World) -> None:
    """With those that are."""
    ended = world.run("--devices", len(gpus), world.script("pass"))
    assert ended.code == 2
    assert f"device {len(gpus)}" in ended.err
