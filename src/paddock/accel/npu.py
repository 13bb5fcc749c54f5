"""Ascend NPU: its traces in the file system, the command that lists it, the parser."""

from __future__ import annotations

from paddock.accel import Accelerator, Device, DeviceTrace


def parse(text: str) -> tuple[Device, ...]:
    """Read `npu-smi info -m`: the chips that have a logic id; the Mcu of a card has none.

    >>> parse("NPU ID  Chip ID  Chip Logic ID  Chip Name\\n0  0  0  Ascend 910B3\\n0  1  -  Mcu\\n")
    (Device(number='0', uuid=''),)
    """
    rows = [line.split() for line in text.splitlines()]
    numbers = [r[2] for r in rows if len(r) > 3 and all(word.isdecimal() for word in r[:3])]
    return tuple(Device(number) for number in sorted(numbers, key=int))


KNOWN = Accelerator(
    title="Ascend NPU",
    # ASCEND_RT_ is what the CANN run time obeys; NPU_ is the name Paddle's launcher derives
    # from the type of a plug-in device (distributed/launch/context/device.py).
    visible=("ASCEND_RT_VISIBLE_DEVICES", "NPU_VISIBLE_DEVICES"),
    traces=(DeviceTrace("/dev/davinci[0-9]*"),),  # not davinci_manager
    commands=(("npu-smi", "info", "-m"),),
    parse=parse,
)
