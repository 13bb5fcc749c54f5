"""Devices that Paddle knows as plug-ins: one table, and Paddle's rule for their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.accel import DetectedDevices, accelerator, choose_devices, kind_of_env, kind_of_plugin
from paddock.accel.plugins import KNOWN
from paddock.core.job import PLUGIN_KINDS, Entrypoint, Job
from paddock.errors import UsageError
from paddock.jobfile.parse import parse
from paddock.local.facts import devices as shell
from paddock.local.facts.devices import find_devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.hosts import Devices


def found(line: str, env: Mapping[str, str]) -> Devices:
    """The devices of this machine for a command line."""
    job = parse([*line.split(), "a.py"], env, python="py").job
    return find_devices(job, {"PATH": "/nowhere", **env})


def pretend(monkeypatch: pytest.MonkeyPatch, paths: Mapping[str, int]) -> None:
    """Let that many paths match each pattern; no such device is in this machine."""
    monkeypatch.setattr(shell, "_matching", lambda pattern: ["x"] * paths.get(pattern, 0))


def test_every_plug_in_stands_in_the_table() -> None:
    """A kind that a job may name has to be known where devices are looked for."""
    assert tuple(KNOWN) == PLUGIN_KINDS
    assert all(accelerator(kind).visible for kind in PLUGIN_KINDS)


@pytest.mark.parametrize(
    ("kind", "variable"),
    [(kind, variable) for kind, known in KNOWN.items() for variable in known.visible],
)
def test_the_variable_of_a_plug_in_names_its_devices(kind: str, variable: str) -> None:
    """They were refused, or one process ran on the CPU without a word."""
    env = {variable: "4,5", "PADDLE_XCCL_BACKEND": kind}
    chosen = found("", env)
    assert (chosen.kind, chosen.labels, chosen.indices) == (kind, ("4", "5"), (0, 1))
    assert found("--devices 5", env).labels == ("5",)


def test_a_variable_of_its_own_tells_the_kind() -> None:
    """PADDLE_XCCL_BACKEND is of older releases; newer ones ask the plug-in."""
    assert kind_of_env({"MLU_VISIBLE_DEVICES": "0"}) == "mlu"
    assert kind_of_env({"CUDA_VISIBLE_DEVICES": "0"}) == "gpu"
    assert kind_of_env({"CUDA_VISIBLE_DEVICES": "0", "MACA_VISIBLE_DEVICES": "0"}) == "metax_gpu"
    assert kind_of_plugin({"PADDLE_XCCL_BACKEND": "npu"}) == ""


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("mlu", "/dev/cambricon_dev[0-9]*"),
        ("iluvatar_gpu", "/dev/iluvatar[0-9]*"),
        ("gcu", "/dev/gcu[0-9]*"),
        ("sdaa", "/dev/tcaicard[0-9]*"),
    ],
)
def test_device_nodes_are_counted(monkeypatch: pytest.MonkeyPatch, kind: str, pattern: str) -> None:
    """One process per device, as the plug-in would count them."""
    pretend(monkeypatch, {pattern: 2})
    chosen = found("", {})
    assert (chosen.kind, chosen.labels, chosen.count) == (kind, ("0", "1"), 2)


def test_a_shared_variable_belongs_to_the_device_that_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA_VISIBLE_DEVICES on an Iluvatar host means its devices, not NVIDIA's."""
    pretend(monkeypatch, {"/dev/iluvatar[0-9]*": 8})
    chosen = found("", {"CUDA_VISIBLE_DEVICES": "2,3"})
    assert (chosen.kind, chosen.labels) == ("iluvatar_gpu", ("2", "3"))


def test_devices_that_cannot_be_counted_are_taken_as_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the plug-in could count them, and it is not loaded."""
    pretend(monkeypatch, {"/dev/mxcd": 1})
    chosen = found("--devices 1,3 --framework paddle", {})
    assert (chosen.kind, chosen.labels, chosen.indices) == ("metax_gpu", ("1", "3"), (1, 3))
    assert found("--nproc_per_node 2", {}).labels == ("0", "1")
    with pytest.raises(UsageError, match="cannot be counted") as caught:
        found("", {})
    assert "--devices 0,1" in caught.value.hint


def test_a_variable_that_may_not_be_obeyed_hides_nothing() -> None:
    """The index in its list stays Paddle's, as its launcher gives it."""
    env = {"PADDLE_XCCL_BACKEND": "intel_hpu"}
    chosen = found("--devices 6,7", env)
    assert (chosen.indices, chosen.env) == ((6, 7), ())
    mlu = found("--devices 6,7", {"PADDLE_XCCL_BACKEND": "mlu"})
    assert (mlu.indices, mlu.env) == ((0, 1), (("MLU_VISIBLE_DEVICES", "6,7"),))


def test_auto_is_one_process_per_core_where_no_device_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun means it; without the word it stays one process."""
    pretend(monkeypatch, {})
    import os

    assert found("--nproc-per-node auto", {}).count == len(os.sched_getaffinity(0))
    assert found("", {}).count == 1


def test_gpu_means_rocm_devices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda, hence torchrun's word, does."""
    pretend(monkeypatch, {"/dev/kfd": 1, "/dev/dri/renderD*": 2})
    assert found("--nproc-per-node gpu", {}).kind == "dcu"


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("--xpus 0,1", "--xpus 0,1: this machine has no Kunlun XPU", "without --xpus runs 2"),
        ("--gpus 0", "--gpus 0: this machine has no accelerator", "without --gpus runs 1 process"),
        ("--devices 0", "--devices 0: this machine has no accelerator", "without --devices"),
    ],
)
def test_a_refusal_speaks_of_the_flag_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, line: str, message: str, hint: str
) -> None:
    """Who typed --xpus looks for --xpus."""
    pretend(monkeypatch, {})
    with pytest.raises(UsageError) as caught:
        found(line, {})
    (problem,) = caught.value.problems
    assert message in problem.message
    assert hint in problem.hint


def test_a_kind_that_was_asked_for_and_is_another_is_refused_with_the_way_out() -> None:
    """--devices takes any kind; --xpus does not."""
    with pytest.raises(UsageError) as caught:
        choose_devices(
            DetectedDevices("gpu"), {"CUDA_VISIBLE_DEVICES": "0"}, ("0",), "xpu", None, "--xpus"
        )
    assert caught.value.hint == "write --devices 0, which takes any kind"


def test_a_job_without_devices_needs_no_table() -> None:
    """A kind that the job fixes to the CPU is not looked for."""
    job = Job(Entrypoint("script", "a.py"), device_kind="cpu")
    assert find_devices(job, {"MLU_VISIBLE_DEVICES": "0"}).kind == "cpu"
