"""Which of its host's devices a node takes that shares the host with others."""

from __future__ import annotations

import pytest

from paddock.core.job import Entrypoint, Job, Role
from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.local.facts.devices import find_devices

FOUR = {"CUDA_VISIBLE_DEVICES": "2,3,6,7"}
ONE = replace(Job(Entrypoint("script", "x.py")), roles=(Role("worker", 1),))


def shared(index: int, parts: int, nproc: int = 1) -> Job:
    """A node of a job with several on each host."""
    return replace(ONE, host_part=(index, parts), roles=(Role("worker", nproc),))


def test_tasks_of_one_host_take_different_devices() -> None:
    """All of them saw all devices, and all would have taken the first."""
    found = [find_devices(shared(index, 4), FOUR) for index in range(4)]
    assert [devices.labels for devices in found] == [("2",), ("3",), ("6",), ("7",)]
    assert [dict(devices.env)["CUDA_VISIBLE_DEVICES"] for devices in found] == ["2", "3", "6", "7"]
    halves = [find_devices(shared(index, 2, nproc=2), FOUR).labels for index in range(2)]
    assert halves == [("2", "3"), ("6", "7")]


def test_devices_that_srun_has_cut_are_taken_whole() -> None:
    """srun --gpus-per-task; one that is seen alone cannot be shared out either."""
    env = {**FOUR, "SLURM_GPUS_ON_NODE": "8"}
    assert find_devices(shared(1, 2), env).labels == ("2", "3", "6", "7")
    assert find_devices(shared(1, 2), {"CUDA_VISIBLE_DEVICES": "5"}).labels == ("5",)
    assert find_devices(shared(1, 2), {**FOUR, "SLURM_GPUS_ON_NODE": "4"}).labels == ("6", "7")


def test_devices_that_were_chosen_are_not_cut() -> None:
    """--devices says what this node has."""
    job = replace(shared(1, 2), devices=("3", "6"))
    assert find_devices(job, FOUR).labels == ("3", "6")


@pytest.mark.parametrize(("parts", "nproc"), [(3, 1), (8, 1), (2, 3)])
def test_devices_that_do_not_go_round_are_refused(parts: int, nproc: int) -> None:
    """Two processes on one device by mistake are slow at best."""
    with pytest.raises(UsageError, match=f"{parts} tasks share the 4 devices of this host"):
        find_devices(shared(0, parts, nproc), FOUR)
