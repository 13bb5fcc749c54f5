"""Hygon DCU, and any ROCm device: its traces, the command that lists it, the parser."""

from __future__ import annotations

from paddock.accel import Accelerator, Device, DeviceTrace


def parse(text: str) -> tuple[Device, ...]:
    """Read the table of `hy-smi` or of any `rocm-smi`: rows that start with a number.

    >>> parse("DCU  Temp\\n0    49.0C\\n1    50.0C\\n")
    (Device(number='0', uuid=''), Device(number='1', uuid=''))
    """
    numbers: dict[str, None] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].isdecimal():
            numbers.setdefault(words[0])
    return tuple(Device(number) for number in numbers)


KNOWN = Accelerator(
    title="Hygon DCU",
    # https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html; the ROCm build of
    # Paddle honours CUDA_VISIBLE_DEVICES like the CUDA one.
    visible=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    # /dev/kfd is one node for all; render nodes also belong to display cards, so they count
    # only when there is a kfd and no command could be run.
    traces=(DeviceTrace("/dev/kfd", counts=False),),
    commands=(("hy-smi",), ("rocm-smi",)),
    parse=parse,
    fallback="/dev/dri/renderD*",
)
