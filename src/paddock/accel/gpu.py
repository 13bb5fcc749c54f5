"""NVIDIA GPU: its traces in the file system, the command that lists it, the parser."""

from __future__ import annotations

from paddock.accel import Accelerator, Device, DeviceTrace


def parse(text: str) -> tuple[Device, ...]:
    """Read `nvidia-smi --query-gpu=index,uuid --format=csv,noheader`.

    >>> parse("0, GPU-5a\\n1, GPU-6b\\n")
    (Device(number='0', uuid='GPU-5a'), Device(number='1', uuid='GPU-6b'))
    """
    rows = [[word.strip() for word in line.partition(",")] for line in text.splitlines()]
    return tuple(Device(number, uuid) for number, _, uuid in rows if number.isdecimal() and uuid)


KNOWN = Accelerator(
    title="NVIDIA GPU",
    # CUDA C++ Programming Guide, "CUDA Environment Variables".
    visible=("CUDA_VISIBLE_DEVICES",),
    traces=(
        # One node per GPU the container was given; not nvidiactl, nvidia-uvm, nvidia-caps.
        DeviceTrace("/dev/nvidia[0-9]*"),
        # A bare host whose driver has not been opened yet has no nodes. Inside a container
        # this still lists all GPUs of the host, hence second.
        DeviceTrace("/proc/driver/nvidia/gpus/*"),
        DeviceTrace("/dev/dxg", counts=False),  # WSL2: one node for all
    ),
    commands=(("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"),),
    parse=parse,
)
