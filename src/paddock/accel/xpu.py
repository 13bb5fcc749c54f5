"""Kunlun XPU: its traces in the file system, the command that lists it, the parser."""

from __future__ import annotations

from paddock.accel import Accelerator, Device, DeviceTrace


def parse(text: str) -> tuple[Device, ...]:
    """Read the DEVICES table of `xpu_smi`, or the boxes of the later `xpu-smi`.

    A device is a row that starts with a number and names a PCI address; the VIDEO and PROCESSES
    tables below have the same first column but no address.

    >>> parse("|     1 | 0000:56:00.0 | R300 | /dev/xpu1 |")
    (Device(number='1', uuid=''),)
    """
    found: dict[str, Device] = {}
    number = ""
    for line in text.splitlines():
        words = line.replace("|", " ").split()
        if words and words[0].isdecimal():
            number = words[0]
        if number and any(_is_pci_address(word) for word in words):
            # A physical function with SR-IOV on controls its virtual ones and cannot compute.
            if not any(word.endswith("-PF") for word in words):
                found.setdefault(number, Device(number))
            number = ""
    return tuple(found.values())


def _is_pci_address(word: str) -> bool:
    # domain:bus:device.function, lspci(8)
    parts = word.replace(".", ":").split(":")
    return len(parts) == 4 and all(p and set(p.lower()) <= set("0123456789abcdef") for p in parts)


KNOWN = Accelerator(
    title="Kunlun XPU",
    # Paddle 3.3.1, distributed/launch/context/device.py: XPULINK first.
    visible=("XPULINK_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES"),
    traces=(DeviceTrace("/dev/xpu[0-9]*"),),  # not xpuctrl
    commands=(("xpu-smi",), ("xpu_smi",)),
    parse=parse,
)
