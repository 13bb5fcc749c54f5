"""Which devices a node uses: the rules of Paddle's launcher, and every way to get it wrong."""

from __future__ import annotations

import pytest

from paddock.accel import (
    DetectedDevices,
    Device,
    choose_devices,
    found_by_command,
    found_by_paths,
    kind_of_env,
    kinds_to_probe,
    needs_command,
    visible_of,
)
from paddock.core.hosts import Devices
from paddock.errors import EXIT_USAGE, UsageError

UUIDS = ("GPU-aaaa1111", "GPU-bbbb2222", "GPU-cccc3333", "GPU-dddd4444")
UNASKED = DetectedDevices("gpu", is_counted=False)


def gpus(number: int) -> DetectedDevices:
    """A machine with that many NVIDIA GPUs, as nvidia-smi lists them."""
    return DetectedDevices("gpu", tuple(Device(str(at), UUIDS[at]) for at in range(number)))


def visible(text: str) -> dict[str, str]:
    """An environment with that CUDA_VISIBLE_DEVICES."""
    return {"CUDA_VISIBLE_DEVICES": text}


def labels(text: str) -> tuple[str, ...] | None:
    """What --devices text means to a Job; "" stands for no flag."""
    return tuple(text.split(",")) if text else None


@pytest.mark.parametrize(
    ("env", "devices", "nproc", "indices", "count"),
    [
        (visible("4,5,6,7"), "", None, (0, 1, 2, 3), 4),
        (visible("4,5,6,7"), "5,7", None, (1, 3), 2),
        (visible("4,5,6,7"), "7,5", None, (3, 1), 2),
        (visible("4,5,6,7"), "", 1, (0, 1, 2, 3), 1),
        (visible("4,5,6,7"), "", 2, (0, 1, 2, 3), 2),
        (visible("4,5,6,7"), "all", None, (0, 1, 2, 3), 4),
        (visible("GPU-a,GPU-b"), "", None, (0, 1), 2),
        (visible("GPU-a,GPU-b"), "GPU-b", None, (1,), 1),
        (visible("MIG-a,MIG-b"), "MIG-b", None, (1,), 1),
        (visible("3, 4"), "4", None, (1,), 1),
        (visible("3,-1,4"), "", None, (0,), 1),
    ],
)
def test_labels_become_positions_in_the_visible_list(
    env: dict[str, str], devices: str, nproc: int | None, indices: tuple[int, ...], count: int
) -> None:
    """--devices counts absolute numbers; the framework counts within the visible list."""
    chosen = choose_devices(UNASKED, env, labels(devices), "", nproc)
    assert (chosen.kind, chosen.indices, chosen.count) == ("gpu", indices, count)
    assert chosen.env == ()


@pytest.mark.parametrize(
    ("devices", "chosen_labels", "indices"),
    [("", ("0", "1", "2"), (0, 1, 2)), ("2,0", ("2", "0"), (2, 0)), ("all", ("0", "1", "2"), None)],
)
def test_without_a_variable_the_machine_counts(
    devices: str, chosen_labels: tuple[str, ...], indices: tuple[int, ...] | None
) -> None:
    """Absolute number and position are then the same."""
    chosen = choose_devices(gpus(3), {}, labels(devices), "", None)
    assert chosen.labels == chosen_labels
    assert chosen.indices == (indices or (0, 1, 2))


def test_visible_all_means_as_many_as_there_are() -> None:
    """Container images set the variable to "all"."""
    assert choose_devices(gpus(2), visible("all"), None, "", None).indices == (0, 1)


def test_a_uuid_is_found_by_its_number_and_the_other_way_round() -> None:
    """Schedulers hide by UUID while people type numbers."""
    env = visible(f"{UUIDS[2]},{UUIDS[0]}")
    assert choose_devices(gpus(4), env, ("0",), "", None).indices == (1,)
    assert choose_devices(gpus(4), visible("2,0"), (UUIDS[0],), "", None).indices == (1,)


def test_the_start_of_a_uuid_is_enough() -> None:
    """CUDA accepts it too."""
    assert choose_devices(gpus(4), {}, ("GPU-cc",), "", None).indices == (2,)


def test_a_mig_name_that_no_list_knows_is_made_visible() -> None:
    """nvidia-smi's query does not list MIG devices; the driver resolves the name, if it is told."""
    chosen = choose_devices(gpus(2), {}, ("MIG-x", "MIG-y"), "", None)
    assert chosen.indices == (0, 1)
    assert chosen.env == (("CUDA_VISIBLE_DEVICES", "MIG-x,MIG-y"),)


@pytest.mark.parametrize("env", [{}, visible(""), visible("-1"), visible("NoDevFiles")])
def test_a_machine_without_devices_runs_on_the_cpu(env: dict[str, str]) -> None:
    """Also where they are hidden: Paddle starts in GPU mode on such a box."""
    assert choose_devices(DetectedDevices(), env, None, "", None) == Devices()
    assert choose_devices(DetectedDevices(), env, None, "", 3) == Devices(count=3)


def test_the_cpu_may_be_asked_for_by_kind_or_by_name() -> None:
    """Then labels only say how many processes to run."""
    assert choose_devices(gpus(2), {}, ("0", "1"), "cpu", None) == Devices(count=2)
    assert choose_devices(gpus(2), {}, ("cpu",), "", 4) == Devices(count=4)


@pytest.mark.parametrize(
    ("found", "env", "devices", "kind", "nproc", "message", "hint"),
    [
        (
            DetectedDevices(),
            {},
            "0,1",
            "",
            None,
            "this machine has no accelerator",
            "--nproc-per-node 2",
        ),
        (
            DetectedDevices(),
            {},
            "0,1",
            "",
            4,
            "this machine has no accelerator",
            "--nproc-per-node 4",
        ),
        (DetectedDevices(), {}, "", "xpu", None, "no Kunlun XPU", "--nproc-per-node 1"),
        (
            DetectedDevices(),
            visible(""),
            "0",
            "",
            None,
            "CUDA_VISIBLE_DEVICES='' hides every",
            "unset CUDA",
        ),
        (gpus(2), {}, "", "npu", None, "has NVIDIA GPU", "use device kind gpu"),
        (gpus(2), {}, "5", "", None, "no device 5, this machine has 2 NVIDIA GPUs", "from 0,1"),
        (gpus(2), {}, "x", "", None, "'x' is neither a device number nor a UUID", "--devices 0,1"),
        (gpus(2), {}, "1,1", "", None, "names device 1 twice", "once"),
        (gpus(2), {}, "", "", 4, "needs 4 devices, this machine has 2", "--nproc-per-node 2"),
        (gpus(2), {}, "1", "", 2, "--devices 1 has 1 NVIDIA GPU", "--devices cpu"),
        (UNASKED, visible("4,5"), "0", "", None, "device 0 is not in", "choose from 4,5"),
        (UNASKED, visible("4,5"), "", "", 4, "CUDA_VISIBLE_DEVICES=4,5 has 2", "or fewer"),
        (UNASKED, {}, "", "", None, "no NVIDIA GPU can be used", "--devices cpu"),
    ],
)
def test_an_impossible_wish_is_one_clear_error(
    found: DetectedDevices,
    env: dict[str, str],
    devices: str,
    kind: str,
    nproc: int | None,
    message: str,
    hint: str,
) -> None:
    """Paddle answers each of these with a traceback or with silence."""
    with pytest.raises(UsageError) as caught:
        choose_devices(found, env, labels(devices), kind, nproc)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.exit_code == EXIT_USAGE


def test_all_wrong_labels_are_reported_together() -> None:
    """One run tells everything that must change."""
    with pytest.raises(UsageError) as caught:
        choose_devices(gpus(2), {}, ("7", "x", "1", "1"), "", None)
    assert len(caught.value.problems) == 3


def test_the_variable_decides_the_kind_before_any_file_is_touched() -> None:
    """Launching must not wait for a vendor's tool when the answer is in the environment."""
    assert kind_of_env({"XPULINK_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "0"}) == "xpu"
    assert kind_of_env({"ASCEND_RT_VISIBLE_DEVICES": "0,1"}) == "npu"
    assert kind_of_env({"HIP_VISIBLE_DEVICES": "0"}) == "dcu"
    assert kind_of_env(visible("all")) == ""
    assert not needs_command(UNASKED, visible("4,5"), ("5",))
    assert needs_command(UNASKED, visible("GPU-a"), ("0",))


def test_hidden_kinds_are_not_probed_but_others_are() -> None:
    """CUDA_VISIBLE_DEVICES= on a Kunlun machine must not hide the XPUs."""
    assert kinds_to_probe(visible(""), "")[:3] == ("npu", "xpu", "mlu")


def test_the_first_variable_that_is_set_decides() -> None:
    """Paddle looks at XPULINK_VISIBLE_DEVICES before XPU_VISIBLE_DEVICES."""
    env = {"XPULINK_VISIBLE_DEVICES": "2", "XPU_VISIBLE_DEVICES": "0,1"}
    assert visible_of("xpu", env) == ("XPULINK_VISIBLE_DEVICES", ("2",))


def test_paths_count_where_each_device_has_one() -> None:
    """Device nodes answer in microseconds; the tool is asked where they cannot count."""
    assert len((found_by_paths("gpu", {"/dev/nvidia[0-9]*": 3}) or DetectedDevices()).devices) == 3
    kfd = found_by_paths("dcu", {"/dev/kfd": 1})
    assert kfd == DetectedDevices("dcu", (), is_counted=False)
    assert kfd is not None
    assert needs_command(kfd, {}, None)
    assert found_by_paths("npu", {}) is None


def test_a_tool_that_lists_nothing_means_cpu() -> None:
    """A driver without devices is not an accelerator."""
    assert found_by_command("gpu", "No devices were found\n") == DetectedDevices()
    assert found_by_command("gpu", "0, GPU-a\n").devices == (Device("0", "GPU-a"),)
