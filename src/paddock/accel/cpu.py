"""CPU: the accelerator of a machine that has none."""

from __future__ import annotations

from paddock.accel import Accelerator, Device


def parse(_text: str) -> tuple[Device, ...]:
    """List no device: processes on the CPU share it.

    >>> parse("")
    ()
    """
    return ()


KNOWN = {"cpu": Accelerator(kind="cpu", title="CPU", parse=parse)}
